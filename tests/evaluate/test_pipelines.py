# SPDX-License-Identifier: Apache-2.0
"""Layers beside each other: everything is computed and sent once, nothing is faster than links and
SMs allow, and alone a layer is what it is without the others."""

from dataclasses import replace

import numpy as np
import pytest

from sim.evaluate.machine import compute
from sim.evaluate.machine.compute import expert_gemms, grouped_gemm_us
from sim.evaluate.machine.engine import Cluster
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.network import flits_of
from sim.evaluate.machine.workload import Workload, WorkloadError
from sim.evaluate.pipelines.overlap import halves
from sim.evaluate.pipelines.run import PROGRAMS, run_program
from sim.evaluate.pipelines.streams import Box, Device, Layer
from sim.evaluate.pipelines.training import backward, wgrads
from sim.evaluate.schemes import SCHEMES, scheme
from sim.evaluate.schemes.ideal import link_us
from sim.evaluate.study import IN_SWITCH
from sim.evaluate.systems import override
from sim.workload.models import model as shape

RANKS = 4
BOX = machine("h800", RANKS)
SHAPE = replace(shape("olmoe-1b-7b"), experts=8, top_k=2, inter=768, shared=512)
WORK = Workload.make(SHAPE, RANKS, 128)
SYSTEMS = ("moe_hub", "expert_flags", "deepep_v2", "deepep_v1_normal", "deepep_v1_ll", "megatron")
FORWARD = ("one stream", "shared expert", "two halves", "two batches")


def run(name, system="deepep_v2", work=WORK, box=BOX, **options):
    return run_program(name, system, scheme(system), box, work, **options)


def box_of(system, work, **options):
    """A box with one layer that has run."""
    made = Box(BOX, **options)
    layer = made.layer(0, lambda: Layer(made, scheme(system), work))
    for rank in range(RANKS):
        made.env.process(layer.run(rank))
    made.env.run()
    return layer


@pytest.fixture
def computed(monkeypatch):
    """{(n, k): rows} of all batches of grouped GEMMs."""
    found, place = {}, compute.run_batch

    def run_batch(times, at, gemm, expert, tiles):
        found[gemm.n, gemm.k] = found.get((gemm.n, gemm.k), 0) + sum(tiles)
        return place(times, at, gemm, expert, tiles)

    monkeypatch.setattr(compute, "run_batch", run_batch)
    return found


@pytest.mark.parametrize("system", [name for name in SCHEMES if name not in IN_SWITCH])
def test_alone_a_layer_is_what_it_is_without_a_box(system):
    made = scheme(system)
    plain = Cluster(BOX, WORK, hub=getattr(made, "hub", False), leads=[0.0] * RANKS)
    made(plain)
    plain.env.run()
    alone, expected = box_of(system, WORK).result(), plain.result()
    assert alone.us == pytest.approx(expected.us, rel=1e-9)
    assert alone.wire_bytes == expected.wire_bytes


@pytest.mark.parametrize("tokens", [4 * RANKS, 6 * RANKS + 1, 128])
def test_halves_are_the_whole(tokens):
    work = Workload.make(SHAPE, RANKS, tokens)
    first, second = halves(work)
    assert np.array_equal(first.rows + second.rows, work.rows)
    assert np.array_equal(first.tokens_of + second.tokens_of, work.tokens_of)
    assert (abs(first.tokens_of - second.tokens_of) <= 1).all()


def test_a_micro_batch_has_a_token():
    with pytest.raises(WorkloadError, match="tokens = 5: two micro-batches need two tokens"):
        run("two batches", work=Workload.make(SHAPE, RANKS, 5))
    least = run("two batches", work=Workload.make(SHAPE, RANKS, 2 * RANKS))
    assert least.us > 0


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("program", FORWARD)
def test_every_row_is_computed_once(program, system, computed):
    run(program, system)
    rows, layers = int(WORK.rows.sum()), PROGRAMS[program].layers
    for gemm in expert_gemms(WORK.shape):
        assert computed[gemm.n, gemm.k] == rows * layers


@pytest.mark.parametrize("system", ["moe_hub", "deepep_v2", "deepep_v1_ll"])
def test_the_same_bytes_travel(system):
    """Flags and counts apart, that each micro-batch has of its own."""
    whole = run("one stream", system).payload_bytes
    for program in ("two halves", "two batches"):
        assert run(program, system).payload_bytes == pytest.approx(whole, rel=2e-3)


@pytest.mark.parametrize("system", ["moe_hub", "deepep_v2"])
@pytest.mark.parametrize("program", FORWARD)
def test_no_form_beats_links_or_sms(program, system):
    """Busiest rank's GEMMs with all SMs; the links' time of what is on the wire, spread evenly."""
    work, box = Workload.make(SHAPE, RANKS, 2048), BOX.changed(gpu={"sms": 40})
    gpu, layer = box.gpu, run(program, system, work, box)
    gemms = [
        sum(grouped_gemm_us(gpu, gemm, work.rows_at(rank)) for gemm in expert_gemms(SHAPE))
        for rank in range(RANKS)
    ]
    assert layer.us > max(gemms)
    assert layer.us > layer.wire_bytes / RANKS / (BOX.fabric.link_gbps * 1e3)
    assert 0 < layer.sm_busy < 1


def test_slow_links_are_the_limit():
    """With links of 2 GB/s two micro-batches take what their bytes take there."""
    slow = BOX.changed(fabric={"link_gbps": 2.0})
    links = link_us(slow, WORK)
    for program in FORWARD:
        assert run(program, "moe_hub", box=slow).us > 0.999 * links
    assert run("two batches", "moe_hub", box=slow).us < 1.2 * links


def test_both_micro_batches_are_on_the_same_sms():
    """Two layers at a time on one box take the GEMM time of two."""
    made = Box(BOX, lanes=2, apart=True)
    layers = [
        made.layer(lane, lambda lane=lane: Layer(made, scheme("ideal"), WORK, lane))
        for lane in range(2)
    ]
    stream = [layer.beside(0) for layer in layers]
    gemm, ends = expert_gemms(WORK.shape)[0], []
    rows = [2048] * len(WORK.rows_at(0))  # tiles for every SM

    def work(one):
        yield from one.gemm(gemm, rows, launch=False)
        ends.append(made.env.now)

    for one in stream:
        made.env.process(work(one))
    made.env.run()
    alone = grouped_gemm_us(BOX.gpu, gemm, rows)
    assert max(ends) > 1.9 * alone


@pytest.mark.parametrize("system", IN_SWITCH)
def test_layers_one_after_the_other_have_switches_that_add(system):
    """Backward sends what forward does, and a step of two layers is three passes: the first forward
    one is not timed, but sent."""
    one, both = run("one stream", system), run("step", system)
    assert both.payload_bytes == pytest.approx(1.5 * one.payload_bytes)
    assert run("step, layer", system).us > both.us


@pytest.mark.parametrize("system", [name for name in SCHEMES if SCHEMES[name].fused])
@pytest.mark.parametrize("program", [name for name in PROGRAMS if PROGRAMS[name].apart])
def test_nothing_runs_beside_a_kernel_that_has_all_sms(program, system):
    with pytest.raises(ValueError, match=f"^{program}: nothing runs beside[^\n]*{system}[^\n]*$"):
        run(program, system)


@pytest.mark.parametrize("system", [name for name in SCHEMES if not SCHEMES[name].fused])
def test_something_runs_beside_all_others(system):
    assert run("two halves", system).us > 0


def test_kernels_share_sms_with_gemms():
    """A kernel that starts while all SMs compute waits for them."""
    made = Box(BOX)
    layer = made.layer(0, lambda: Layer(made, scheme("ideal"), WORK))
    one, other, ends = layer.beside(0), layer.beside(0), {}

    def blocks(name, stream, us):
        yield from stream.blocks(us)
        ends[name] = made.env.now

    made.env.process(blocks("first", one, 10.0))
    made.env.process(blocks("second", other, 5.0))
    made.env.run()
    assert ends == {"first": 10.0, "second": 15.0}


def test_memory_is_shared():
    """A pass over memory that others fill is as late as they are."""
    made = Box(BOX)
    layer = made.layer(0, lambda: Layer(made, scheme("ideal"), WORK))
    stream, ends = layer.beside(0), []
    size = BOX.gpu.stream_gbps * 1e3 * 20  # 20 us

    def work():
        layer.gpus[0].times.write(0.0, size)
        yield from stream.move(size)
        ends.append(made.env.now)

    made.env.process(work())
    made.env.run()
    assert ends[0] > 40


def test_communication_takes_turns_on_its_own_sms():
    """Lane 1 came first and waits for lane 0; SMs are kept once, as many as the largest kernel
    takes."""
    made = Box(BOX, lanes=2, apart=True)
    device, order = Device(made.env, BOX.gpu, 2, True), []

    def kernel(lane, wait, sms):
        yield made.env.timeout(wait)
        for _ in range(2):
            yield from device.hold(lane, sms)
            order.append((lane, made.env.now))
            yield made.env.timeout(10)
            device.release(sms)

    made.env.process(kernel(0, 5, 8))
    made.env.process(kernel(1, 0, 24))
    made.env.run()
    assert order == [(0, 5), (1, 15), (0, 25), (1, 35)]
    assert device.times.sms == BOX.gpu.sms - 24


def test_the_host_launches_for_both():
    """A host of 100 us per operation is what a layer with twice the launches waits for."""
    with override("host", eager_op_us=100.0):
        one, two = run("one stream").us, run("two batches").us
    assert two > 1.5 * one


# -- training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen2-moe-2.7b", "deepseek-v3"])
def test_backward_moves_what_forward_moved(model):
    """Gradients have the rows of the answers and of the tokens; GEMMs have as many operations."""
    work = Workload.make(shape(model), RANKS, 256)
    back = backward(work)
    assert np.array_equal(back.rows, work.rows)
    assert back.shape.dispatch_bytes == work.shape.dispatch_bytes
    assert back.shape.combine_bytes == work.shape.combine_bytes
    forward = sum(gemm.flops(work.rows.sum()) for gemm in expert_gemms(work.shape))
    assert sum(gemm.flops(work.rows.sum()) for gemm in expert_gemms(back.shape)) == forward
    (_, first_in), (second_out, _) = back.shape.matrices
    assert first_in == second_out == work.shape.row


@pytest.mark.parametrize("system", ["moe_hub", "deepep_v2"])
def test_backward_is_as_long_on_links_as_forward(system):
    plain, back = box_of(system, WORK).result(), box_of(system, backward(WORK)).result()
    assert back.wire_bytes == plain.wire_bytes


def test_gradients_of_weights_have_the_operations_of_their_gemms():
    rows = [100, 0, 300]
    for (gemm, count), (n, k) in zip(
        wgrads(WORK.shape, rows), reversed(WORK.shape.matrices), strict=True
    ):
        assert sum(gemm.flops(out) for out in count) == 2 * sum(rows) * n * k
        assert len(count) == 2  # an expert without rows has no gradient
    assert wgrads(WORK.shape, [0, 0]) == []


@pytest.mark.parametrize("system", ["moe_hub", "deepep_v2", "megatron"])
def test_a_step_has_three_gemms_for_one(system, computed):
    """Forward once more than backward: the first one is not timed."""
    run("step", system)
    rows, layers = int(WORK.rows.sum()), PROGRAMS["step"].layers
    for gemm in expert_gemms(WORK.shape):
        assert computed[gemm.n, gemm.k] >= rows * layers
    for gemm in expert_gemms(backward(WORK).shape):
        assert computed[gemm.n, gemm.k] == rows * (layers - 1)
    for n, _ in WORK.shape.matrices:
        widths = {key: count for key, count in computed.items() if key[0] == n}
        assert len(widths) > 1  # GEMMs as deep as an expert has rows


def test_recomputing_takes_longer():
    plain, activation, layer = (
        run(name).us for name in ("step", "step, activation", "step, layer")
    )
    assert plain < activation < layer
    assert run("step, layer").wire_bytes > run("step").wire_bytes


def test_counts_are_known_in_a_backward_pass():
    """Nothing of a known layout is counted, and no host waits for it."""
    made = Box(BOX)
    layer = made.layer(0, lambda: Layer(made, scheme("megatron"), WORK, counted=True))
    for rank in range(RANKS):
        made.env.process(layer.run(rank))
    made.env.run()
    plain = box_of("megatron", WORK).result()
    known = layer.result()
    assert "host sync" in plain.breakdown and "host sync" not in known.breakdown
    assert known.wire_bytes < plain.wire_bytes
    counts = RANKS * (RANKS - 1) * flits_of(8 * WORK.shape.experts)[1] * BOX.fabric.flit_bytes
    assert plain.wire_bytes - known.wire_bytes >= counts


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_arguments_same_result(program):
    assert run(program, "moe_hub") == run(program, "moe_hub")
