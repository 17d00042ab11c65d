# SPDX-License-Identifier: Apache-2.0
"""Machines and kernels of the system model: data with sources, tiles and waves, weights from HBM,
published GEMMs."""

import statistics

import pytest

from sim.evaluate.machine.compute import (
    Gemm,
    GpuTimes,
    expert_gemms,
    grouped_gemm_us,
    pass_us,
    run_batch,
    tiles_of,
)
from sim.evaluate.machine.hardware import MACHINES, HardwareError, load_data, machine, sources
from sim.workload.models import model as shape

GPU = machine("h800", 8).gpu


@pytest.mark.parametrize("name", MACHINES)
def test_every_number_has_a_source(name):
    made = machine(name, 8)
    for kind, part in (("gpu", made.gpu), ("fabric", made.fabric)):
        entry = load_data("hardware.toml")["machine"][name][kind]["value"]
        named = sources(kind, entry)
        assert {field for field in vars(part) if field != "name"} == set(named)
        assert all(isinstance(text, str) and len(text) > 4 for text in named.values())


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: machine("h900", 8), "machine = 'h900'"),
        (lambda: machine("h800", 1), "ranks = 1"),
        (lambda: machine("gb200_nvl72", 73), "ranks = 73"),
        (lambda: machine("h800", 8).changed(gpu={"sms": 0}), "sms = 0"),
        (lambda: machine("h800", 8).changed(gpu={"bf16_efficiency": 1.2}), "bf16_efficiency = 1.2"),
        (lambda: GPU.peak_tflops("int3"), "dtype = 'int3'"),
    ],
)
def test_wrong_machines_are_refused_in_one_line(call, text):
    with pytest.raises(HardwareError, match=text) as error:
        call()
    assert "\n" not in str(error.value)


def test_the_papers_machine_differs_from_the_h800_by_its_links_only():
    real, paper = machine("h800", 8), machine("h800_400", 8)
    assert real.gpu == paper.gpu
    assert (real.fabric.link_gbps, paper.fabric.link_gbps) == (200, 400)
    assert paper.fabric.one_way_us == pytest.approx(0.5)


def test_tiles_of_rows():
    assert tiles_of(0) == [] and tiles_of(128) == [128] and tiles_of(300) == [128, 128, 44]


def test_a_last_wave_costs_as_much_as_a_full_one():
    full, more = (
        grouped_gemm_us(GPU, Gemm(128 * blocks, 32768, weight_bytes=0.01), [128])
        for blocks in (132, 133)
    )
    assert more == pytest.approx(2 * full, rel=0.01)


def test_full_waves_run_at_the_main_loops_rate():
    gemm = Gemm(128 * 33, 32768, weight_bytes=0.01)  # 4 row tiles x 33 columns = 132 thread blocks
    us = grouped_gemm_us(GPU, gemm, [512])
    assert gemm.flops(512) / us / 1e6 == pytest.approx(GPU.gemm_tflops("bf16"), rel=0.02)


def test_few_rows_are_bound_by_the_stream_of_weights():
    first, _ = expert_gemms(shape("mixtral-8x7b"))
    us = grouped_gemm_us(GPU, first, [16])
    assert us == pytest.approx(first.bytes_of_weights / (GPU.stream_gbps * 1e3), rel=0.05)


def test_weights_in_level_2_cache_are_not_read_again():
    gemm, times = Gemm(2816, 2048), GpuTimes(GPU)
    size = gemm.bytes_of_weights
    assert times.weights("a", size) == size
    times.run(0.0, [(1, 1.0)], size)
    assert times.weights("a", size) == 0
    times.run(0.0, [(1, 1.0)], GPU.l2_mbytes * 1e6)
    assert times.weights("a", size) == size


def test_tiles_wait_for_sms_that_are_held():
    times = GpuTimes(GPU)
    assert times.hold(0.0, 100) == 0.0
    _, end = times.run(0.0, [(64, 10.0)])
    assert end == 20.0  # 32 SMs are left
    times.release(20.0, 100)
    assert times.run(20.0, [(132, 10.0)]) == (20.0, 30.0)
    with pytest.raises(ValueError, match="sms = 132"):
        times.hold(40.0, 132)


def test_list_scheduling_fills_sms_as_they_get_free():
    times = GpuTimes(GPU)
    times.run(0.0, [(66, 10.0), (66, 4.0)])
    start, end = times.run(0.0, [(66, 3.0)])
    assert (start, end) == (4.0, 7.0)
    assert times.next_free() == 7.0 and times.idle_at == 10.0


def test_one_batch_shares_its_weights():
    gemm = Gemm(28672, 4096)
    together, apart = GpuTimes(GPU), GpuTimes(GPU)
    _, end = run_batch(together, 0.0, gemm, 0, [64] * 4)
    for _ in range(4):
        _, last = run_batch(apart, 0.0, gemm, 0, [64])
    assert last > 2.5 * end


def test_narrow_tiles_when_there_are_few():
    assert Gemm(4096, 7168).fitted(GPU, [128]).columns == 32
    assert Gemm(28672, 4096).fitted(GPU, [512]).columns == 128


def test_a_pass_is_bound_by_hbm_and_by_its_sms():
    assert pass_us(GPU, 1e9) == pytest.approx(1e6 / GPU.stream_gbps, rel=0.01)
    assert pass_us(GPU, 1e9, sms=2) > 10 * pass_us(GPU, 1e9)


def test_published_gemms():
    errors = []
    for entry in load_data("gemm_published.toml")["measured"]:
        gemm = Gemm(entry["n"], entry["k"], "fp8", 1)
        us = grouped_gemm_us(GPU, gemm, [entry["rows"]] * entry["groups"])
        if entry["role"] == "test":
            errors.append(
                abs(entry["groups"] * gemm.flops(entry["rows"]) / us / 1e6 / entry["tflops"] - 1)
            )
    assert len(errors) >= 20 and statistics.median(errors) < 0.06 and max(errors) < 0.5


def test_last_tiles_count_whole():
    """A row or a column beyond a tile costs a tile more, so it decides how narrow tiles have to
    be."""
    assert [Gemm(n, 512).blocks for n in (1, 128, 129)] == [1, 1, 2]
    gemm = Gemm(128 * GPU.sms // 2, 512)
    assert gemm.fitted(GPU, [129]).columns == 128 > gemm.fitted(GPU, [128]).columns
