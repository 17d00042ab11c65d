# SPDX-License-Identifier: Apache-2.0
"""Layers of the system model: kernels, hosts, barriers, and the schemes MoE-Hub, Megatron and ideal
on them."""

from contextlib import ExitStack
from dataclasses import fields

import pytest

from sim.evaluate.end_to_end import forward_us, rest_us
from sim.evaluate.machine.compute import (
    Gemm,
    GpuTimes,
    expert_gemms,
    gate_us,
    group_tiles,
    grouped_gemm_us,
    pass_us,
)
from sim.evaluate.machine.engine import Cluster, GroupedGemm, run_layer
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.network_settings import HUB_GHZ, NetworkSettings
from sim.evaluate.machine.workload import Workload
from sim.evaluate.schemes import SCHEMES, UnknownScheme, scheme
from sim.evaluate.schemes.ideal import link_us
from sim.evaluate.schemes.moe_hub import SECTOR_BYTES, Hub, HubLayer
from sim.evaluate.schemes.stored import COLUMN_BYTES, Inbox, Sums
from sim.evaluate.study import IN_SWITCH
from sim.evaluate.systems import SYSTEMS, override, values_of
from sim.workload.models import model as shape


def workload(model="qwen2-moe-2.7b", ranks=4, tokens=512, **options):
    return Workload.make(shape(model), ranks, tokens, **options)


def cluster(ranks=2, **options):
    return Cluster(machine("h800", ranks), workload(ranks=ranks, tokens=64, **options))


def run(made, *processes):
    """Runs generators; returns when each ended, microseconds."""
    ends = {}

    def timed(name, process):
        yield from process
        ends[name] = made.env.now

    for name, process in enumerate(processes):
        made.env.process(timed(name, process))
    made.env.run()
    return [ends[name] for name in range(len(processes))]


# -- host, stream, barriers ------------------------------------------------------------------------


def test_launches_are_hidden_until_the_host_waits():
    made = cluster()
    gpu, spec = made.gpus[0], made.machine.gpu

    def stream():
        yield from gpu.kernel(10.0)
        assert made.env.now == pytest.approx(spec.kernel_gap_us + 10)
        yield from gpu.host_sync()
        waited = made.env.now
        yield from gpu.kernel(1.0)
        assert made.env.now == pytest.approx(waited + spec.launch_us + spec.launch_latency_us + 1)
        yield from gpu.kernel(50.0)
        before = made.env.now
        yield from gpu.kernel(1.0)  # launched while the long one ran
        assert made.env.now == pytest.approx(before + spec.kernel_gap_us + 1)

    run(made, stream())


def test_a_barrier_opens_when_the_last_rank_is_there():
    made = cluster(ranks=4)

    def rank(gpu):
        yield made.env.timeout(10.0 * gpu.rank)
        yield from made.device_barrier(gpu.rank)
        yield from made.device_barrier(gpu.rank)

    ends = run(made, *(rank(gpu) for gpu in made.gpus))
    assert len(set(ends)) == 1
    fabric = made.machine.fabric
    assert (
        30 + 2 * fabric.one_way_us
        < ends[0]
        < 30 + 2 * (fabric.one_way_us + made.machine.gpu.poll_us) + 0.5
    )


def test_ranks_meet_when_the_last_is_there():
    made = cluster(ranks=4)

    def rank(gpu):
        yield made.env.timeout(10.0 * gpu.rank)
        yield from made.meet(gpu.rank, "here")

    assert run(made, *(rank(gpu) for gpu in made.gpus)) == [30.0] * 4


def test_an_exchange_ends_for_each_rank_when_all_of_its_rows_are_there():
    made = cluster(ranks=4)
    ends = run(
        made,
        *(
            made.all_to_all(
                rank, [1_000_000 if peer == 3 else 0 for peer in range(4)], "rows", row_bytes=1000
            )
            for rank in range(4)
        ),
    )
    link = made.machine.fabric.link_gbps * 1e3
    assert ends[3] > 3e6 / link and ends[0] < ends[3]
    assert made.network.payload_bytes == 3_000_000


def test_a_gemm_takes_tiles_as_they_come():
    made = cluster()
    gpu, gemm = made.gpus[0], Gemm(2816, 2048)
    work = GroupedGemm(gpu, gemm, [128 * 12])

    def feed():
        for _ in range(12):
            work.ready(0, 128)
            yield made.env.timeout(100.0)
        work.close()
        yield work.done

    (end,) = run(made, feed())
    assert 1200 <= end < 1201  # each tile was done before the next came
    assert work.start == 0


def test_all_tiles_at_once_take_what_the_formula_says():
    made = cluster()
    first, _ = expert_gemms(shape("qwen2-moe-2.7b"))
    rows = [300, 20, 900, 0]
    (end,) = run(made, made.gpus[0].gemm(first, rows))
    assert end == pytest.approx(
        grouped_gemm_us(made.machine.gpu, first, rows) + made.machine.gpu.kernel_gap_us, rel=1e-6
    )


def test_a_scheme_that_waits_forever_is_named():
    def stuck(made):
        made.env.process(iter_wait(made))

    def iter_wait(made):
        yield made.env.event()

    with pytest.raises(RuntimeError, match="rank 0 never finished"):
        run_layer(stuck, machine("h800", 2), workload(ranks=2))


def test_ranks_of_machine_and_workload_must_agree():
    with pytest.raises(ValueError, match="ranks = 4: the machine has 2"):
        Cluster(machine("h800", 2), workload(ranks=4))


def test_hubs_between_the_presets_are_sized_alike():
    for ranks, share, lanes in ((2, 576, 6), (4, 192, 4), (8, 82, 2), (16, 38, 1), (72, 8, 1)):
        made = NetworkSettings.of(machine("h800_400", ranks))
        assert made.first_share == made.pools * share
        # a part of 64 bytes in each cycle of the hub's clock, three of the links' two
        slices = made.pools * lanes / 6
        assert made.local_rate == pytest.approx(slices * 64 * 2 / 3 * HUB_GHZ * 1e3)


def test_a_hub_is_built_as_it_is_told():
    """Slices of three links share the preset's pools; what is narrower than its links is as fast as
    it is."""
    box = machine("h800", 8)
    preset = NetworkSettings.of(box)
    assert (preset.first_share, preset.pool_packets) == (3 * 82, 3 * 128)
    same = (("lanes", 3), ("loop_lanes", 1))
    assert NetworkSettings.of(box, built=same) == preset
    less = NetworkSettings.of(box, built=(*same, ("pool_places", 288), ("pool_depth", 64)))
    assert (less.first_share, less.pool_packets) == (3 * 41, 3 * 64)
    narrow = NetworkSettings.of(box, built=(*same, ("slice_bytes", 32)))
    assert narrow.rate == pytest.approx(3 * 24 * HUB_GHZ * 1e3) and narrow.rate < preset.rate
    with pytest.raises(ValueError, match="rat_sets: must be one of lanes, "):
        NetworkSettings.of(box, built=(("rat_sets", 4),))


@pytest.mark.parametrize(
    "name", [name for name in SCHEMES if name.startswith("moe_hub") and name not in IN_SWITCH]
)
def test_a_hub_has_its_credits(name):
    """With places for few packets of each source a layer takes longer; hubs on switches have
    none."""
    load, box = workload("qwen2-moe-2.7b", 8, 512), machine("h800", 8)
    few = (("lanes", 3), ("loop_lanes", 1), ("pool_places", 70))
    before, after = (
        run_layer(scheme(name), box, load, **options).us for options in ({}, {"built": few})
    )
    assert after > 1.3 * before


def test_links_without_a_hub_have_no_credits():
    load, box = workload("qwen2-moe-2.7b", 8, 1024), machine("h800", 8)
    few = (("lanes", 3), ("loop_lanes", 1), ("pool_places", 14))
    for name in ("comet", "ideal", "row_flags"):
        assert run_layer(scheme(name), box, load) == run_layer(scheme(name), box, load, built=few)


# -- schemes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("tokens", [4, 300])
def test_every_scheme_ends_and_repeats_itself(name, tokens):
    load = workload(tokens=tokens)
    first, again = (run_layer(scheme(name), machine("h800", 4), load) for _ in range(2))
    assert first == again
    assert 0 < first.first_ready_us <= first.all_ready_us <= first.us == max(first.rank_us)


PACED = (
    "moe_hub",
    "moe_hub_base",
    "moe_hub_signal",
    "comet",
    "deepep_v1_normal",
    "deepep_v2",
    "mori",
    "nvls",
    "dysharp",
    "moe_hub_fused_in_switch",
)


def twice_as_fast(box):
    """The machine with all rates doubled and all times halved."""
    gpu = {
        name: getattr(box.gpu, name) * (2 if name.endswith(("_gbps", "_tflops")) else 0.5)
        for name in (field.name for field in fields(box.gpu))
        if name.endswith(("_gbps", "_tflops", "_us"))
    }
    fabric = {"link_gbps": 2 * box.fabric.link_gbps, "hop_ns": box.fabric.hop_ns / 2}
    return box.changed(gpu=gpu, fabric=fabric)


@pytest.mark.parametrize("name", [*PACED, "ideal"])
def test_a_machine_twice_as_fast_takes_half_the_time(name):
    """Whatever is a time or a rate is taken as one: no unit is mixed up, no time is hidden."""
    load, box = workload("qwen2-moe-2.7b", 8, 2048), machine("h800", 8)
    before = run_layer(scheme(name), box, load)
    with ExitStack() as replaced:
        for part in SYSTEMS:
            changed = {
                one: value * (0.5 if one.endswith("_us") else 2)
                for one, value in values_of(part).items()
                if one.endswith(("_us", "_gbps"))
            }
            if changed:
                replaced.enter_context(override(part, **changed))
        after = run_layer(scheme(name), twice_as_fast(box), load, hub_ghz=2 * HUB_GHZ)
    assert after.us == pytest.approx(before.us / 2, rel=1e-6)
    assert (after.wire_bytes, after.payload_bytes) == (before.wire_bytes, before.payload_bytes)


@pytest.mark.parametrize("name", PACED)
@pytest.mark.parametrize(
    "worse", [{"fabric": {"link_gbps": 50.0}}, {"fabric": {"hop_ns": 5000.0}}, {"gpu": {"sms": 66}}]
)
def test_a_worse_machine_is_not_faster(name, worse):
    load, box = workload("qwen2-moe-2.7b", 8, 4096), machine("h800", 8)
    before, after = (run_layer(scheme(name), made, load).us for made in (box, box.changed(**worse)))
    assert after > before


@pytest.mark.parametrize("name", PACED)
def test_more_tokens_take_longer_and_more_bytes(name):
    few, many = (
        run_layer(scheme(name), machine("h800", 8), workload("qwen2-moe-2.7b", 8, tokens))
        for tokens in (1024, 16384)
    )
    assert many.us > few.us and many.payload_bytes > 8 * few.payload_bytes


def test_thread_blocks_stall_while_the_hubs_pool_is_full():
    """What GEMM2 has stored and the links have not taken is never much more than the pool: a batch
    of tiles that found room is on its way. Without room they wait."""
    load, box = workload("qwen2-moe-2.7b", 8, 8192), machine("h800", 8)
    slow = box.changed(fabric={"link_gbps": 50.0})
    made = Cluster(slow, load, hub=True)
    layer = HubLayer(made, Hub())
    ranks = layer.run()
    most = 0

    def watch():
        nonlocal most
        while any(rank.is_alive for rank in ranks):
            most = max(most, *layer.unsent)
            yield made.env.timeout(1.0)

    made.env.process(watch())
    made.env.run()
    assert layer.pool_bytes < most < layer.pool_bytes + 132 * 128 * load.shape.combine_bytes
    wide = Cluster(slow, load, hub=True)
    endless = HubLayer(wide, Hub())
    endless.pool_bytes = 1 << 40
    endless.run()
    wide.env.run()
    assert wide.breakdown["gemm2"] < 0.9 * made.breakdown["gemm2"]


def test_what_comes_into_memory_takes_its_share_of_hbm():
    gpu = machine("h800", 8).gpu
    times, size = GpuTimes(gpu), gpu.stream_gbps * 1e3 * 10.0  # ten microseconds of it
    times.write(0.0, size)
    _, end = times.run(0.0, [(1, 1.0)], hbm_bytes=size)
    assert end == pytest.approx(20.0 + gpu.tile_overhead_us)


def test_waiting_for_a_late_rank_is_no_phase_of_the_exchange():
    made = cluster(ranks=2)

    def rank(gpu):
        yield made.env.timeout(100.0 * gpu.rank)
        yield from made.device_barrier(gpu.rank)
        yield from made.meet(gpu.rank, "here")

    run(made, *(rank(gpu) for gpu in made.gpus))
    assert made.breakdown["waiting"] == pytest.approx(50.0, abs=1.0)  # mean of both ranks
    assert made.breakdown["barrier"] < 3.0


def test_bytes_on_the_wire():
    load, box = workload(), machine("h800", 4)
    off = load.pair_rows.sum() - load.pair_rows.trace()
    row, answer = load.shape.dispatch_bytes + COLUMN_BYTES, load.shape.combine_bytes
    hub = run_layer(scheme("moe_hub"), box, load)
    assert hub.payload_bytes == off * (row + answer)
    header = box.fabric.header_flits * box.fabric.flit_bytes
    assert hub.wire_bytes / hub.payload_bytes == pytest.approx((128 + header) / 128, rel=0.02)
    base = run_layer(scheme("moe_hub_base"), box, load)
    assert base.wire_bytes / base.payload_bytes == pytest.approx(
        (SECTOR_BYTES + header) / SECTOR_BYTES, rel=0.02
    )


def test_the_ideal_layer_is_bound_by_links_where_experts_are_small():
    load, box = workload(ranks=8, tokens=32768), machine("h800", 8)
    assert run_layer(scheme("ideal"), box, load).us > link_us(box, load)
    faster = box.changed(fabric={"link_gbps": 2000.0})
    assert run_layer(scheme("ideal"), faster, load).us < link_us(box, load)


def test_the_ideal_layer_is_its_kernels_back_to_back():
    """The busiest rank's gate, both GEMMs, activation and weighed sum; no links where they are
    fast."""
    load, box = workload(), machine("h800", 4).changed(fabric={"link_gbps": 1e6})
    first, second = expert_gemms(load.shape)

    def us(rank):
        rows, tokens = load.rows_at(rank), int(load.tokens_of[rank])
        return (
            gate_us(box.gpu, load.shape, tokens)
            + grouped_gemm_us(box.gpu, first, rows)
            + pass_us(box.gpu, int(rows.sum()) * 3 * load.shape.inter * 2)
            + grouped_gemm_us(box.gpu, second, rows)
            + pass_us(box.gpu, (tokens * load.shape.top_k + tokens) * load.shape.combine_bytes)
        )

    assert run_layer(scheme("ideal"), box, load).rank_us == pytest.approx(
        [us(rank) for rank in range(4)]
    )


def test_an_unknown_scheme_is_refused():
    with pytest.raises(UnknownScheme, match="system = 'magic'"):
        scheme("magic")


# -- parts of the hub's scheme ---------------------------------------------------------------------


def test_rows_make_a_group_ready_from_any_source():
    ready = []
    box = Inbox(260, 128, ready.append)
    box.arrive(2, 60)
    box.arrive(0, 67)
    assert ready == []
    box.arrive(1, 1)
    assert ready == [128]
    assert box.take(128) == {2: 60, 0: 67, 1: 1}
    box.arrive(0, 33)
    box.arrive(1, 99)
    assert ready == [128, 128, 4]
    assert box.groups == 3 and box.missing_rows == 0


def test_groups_are_as_large_as_the_stream_of_weights_asks_for():
    gpu = machine("h800", 8).gpu
    small, large = Gemm(1024, 1024), expert_gemms(shape("mixtral-8x7b"))[0]
    assert group_tiles(gpu, small, 4) == 1
    tiles = group_tiles(gpu, large, 1)
    assert tiles * large.blocks * large.tile_us(gpu, 128) / gpu.sms >= large.bytes_of_weights / (
        gpu.stream_gbps * 1e3
    )


def test_sums_overlap_with_answers_that_still_come():
    sums = Sums(100, 1)
    sums.arrivals = [(10.0, 50), (20.0, 50)]
    assert sums.end(0.0, 8.0) == 24.0  # half of it was summed while the others came
    sums.per_token = 8
    assert sums.end(0.0, 8.0) == pytest.approx(28.0, abs=0.1)  # hardly a token had all of its eight


# -- the rest of the model -------------------------------------------------------------------------


def test_forward_adds_up():
    box, model = machine("h800", 8), shape("mixtral-8x7b")
    assert forward_us(box, model, 8192, 500.0) == pytest.approx(
        32 * (500 + rest_us(box.gpu, model, 1024))
    )
    assert rest_us(box.gpu, model, 16384) > 16 * rest_us(
        box.gpu, model, 1024
    )  # attention grows with the square
    assert rest_us(box.gpu, shape("qwen1.5-moe-a2.7b"), 1024) > rest_us(
        box.gpu, shape("qwen2-moe-2.7b"), 1024
    ) + pass_us(box.gpu, 1024 * 6 * 5632)  # the shared expert
    with pytest.raises(ValueError, match="deepseek-v4-pro: its attention"):
        rest_us(box.gpu, shape("deepseek-v4-pro"), 64)
