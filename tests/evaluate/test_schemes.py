# SPDX-License-Identifier: Apache-2.0
"""Schemes of the software systems: what they send, what they wait for, and that they end on any
workload."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sim.evaluate import bench, systems
from sim.evaluate.host import extreme
from sim.evaluate.machine.compute import Gemm, expert_gemms, grouped_gemm_us
from sim.evaluate.machine.engine import Cluster, NoGraph, run_layer
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.network import flits_of
from sim.evaluate.machine.workload import Workload
from sim.evaluate.schemes import SCHEMES, comet, deepep, fastermoe, flashdmoe, tutel
from sim.evaluate.schemes.flags import PlacedInbox, RowFlags
from sim.evaluate.schemes.in_switch import Parts
from sim.evaluate.schemes.nvls import row_bytes as nvls_row_bytes
from sim.evaluate.schemes.steps import RowExchange, ScaledGemm, link_payload_gbps
from sim.evaluate.schemes.stored import COLUMN_BYTES
from sim.workload.models import model as shape

SOFTWARE = (
    "fastermoe",
    "tutel",
    "comet",
    "ccfuser",
    "deepep_v1_normal",
    "deepep_v1_ll",
    "deepep_v2",
    "flashdmoe_fp16",
    "flashdmoe_fp32",
    "mori",
    "row_flags",
    "expert_flags",
    "nvls",
    "dysharp",
)
SWITCHED = ("moe_hub_in_switch", "moe_hub_fused_in_switch")  # hubs whose switch copies and adds
HUBS = ("moe_hub", "moe_hub_by_expert", "moe_hub_once", "moe_hub_fused", *SWITCHED)
FLAGS = 64e3  # bytes of flags and counts of a small layer, at most


def workload(model="olmoe-1b-7b", ranks=4, tokens=512, **options):
    return Workload.make(shape(model), ranks, tokens, **options)


def layer(system, made=None, ranks=4, **options):
    made = made or workload(ranks=ranks, **options)
    return run_layer(SCHEMES[system], machine("h800", made.ranks), made)


def across(pairs):
    return int(pairs.sum() - np.trace(pairs))


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SOFTWARE + HUBS)
@pytest.mark.parametrize(
    "model, ranks, tokens, skew",
    [
        ("olmoe-1b-7b", 2, 2, 0.0),
        ("olmoe-1b-7b", 5, 7, 0.05),
        ("mixtral-8x7b", 3, 130, 0.05),
        ("deepseek-v3", 8, 64, 0.032),
    ],
)
def test_a_layer_ends_whatever_its_rows(system, model, ranks, tokens, skew):
    made = Workload.make(shape(model), ranks, tokens, skew=skew)
    result = layer(system, made)
    assert (
        len(result.rank_us) == ranks
        and 0 < result.first_ready_us <= result.all_ready_us < result.us
    )


@pytest.mark.parametrize("system", SOFTWARE + HUBS)
def test_same_arguments_same_result(system):
    assert layer(system) == layer(system)


@pytest.mark.parametrize("system", SOFTWARE + HUBS)
def test_no_layer_takes_less_than_its_gemms(system):
    made = workload(tokens=4096)
    gpu = machine("h800", 4).gpu
    work = max(
        sum(grouped_gemm_us(gpu, gemm, made.rows_at(rank)) for gemm in expert_gemms(made.shape))
        for rank in range(4)
    )
    assert layer(system, made).us > work


@pytest.mark.parametrize(
    "system, pairs",
    [
        ("fastermoe", "pair_rows"),
        ("ccfuser", "pair_rows"),
        ("deepep_v1_ll", "pair_rows"),
        ("flashdmoe_fp16", "pair_rows"),
        ("expert_flags", "pair_rows"),
        ("deepep_v1_normal", "distinct"),
        ("deepep_v2", "distinct"),
        ("mori", "distinct"),
    ],
)
def test_rows_on_the_links(system, pairs):
    """A row per token and expert, or per token and rank, there and back; little else."""
    made = workload()
    there, back = made.shape.dispatch_bytes, made.shape.combine_bytes
    rows = across(getattr(made, pairs)) * (there + back)
    assert rows <= layer(system, made).payload_bytes <= 1.06 * rows + FLAGS


def test_comet_gathers_every_token_at_every_rank():
    made = workload()
    gathered = made.tokens * 3 * made.shape.dispatch_bytes
    sums = across(made.distinct) * made.shape.combine_bytes
    assert gathered + sums <= layer("comet", made).payload_bytes <= gathered + sums + FLAGS
    with systems.override("comet", gather_all=0):
        fewer = across(made.distinct) * made.shape.dispatch_bytes
        assert fewer + sums <= layer("comet", made).payload_bytes <= fewer + sums + FLAGS


def test_flashdmoe_in_fp32_sends_twice_the_bytes():
    half, full = layer("flashdmoe_fp16"), layer("flashdmoe_fp32")
    assert (
        full.payload_bytes == pytest.approx(2 * half.payload_bytes, rel=1e-3) and full.us > half.us
    )


# -- parts -----------------------------------------------------------------------------------------


def exchange_us(efficiency=1.0, sm_gbps=None, size=1 << 20):
    made = Cluster(machine("h800", 4), workload())
    exchange = RowExchange(
        made, np.full((4, 4), size), 4096, efficiency=efficiency, sm_gbps=sm_gbps
    )
    running = [made.env.process(exchange.run(rank)) for rank in range(4)]
    made.env.run(made.env.all_of(running + exchange.arrived))
    assert made.network.payload_bytes == 12 * size
    return made.env.now


def test_an_exchange_takes_its_bytes_over_the_rate():
    link = 3 * (1 << 20) / (link_payload_gbps(machine("h800")) * 1e3)
    assert exchange_us() == pytest.approx(link, rel=0.1)
    assert exchange_us(efficiency=0.5) == pytest.approx(2 * link, rel=0.1)
    assert exchange_us(sm_gbps=20.0) == pytest.approx(4 * (1 << 20) / 20e3, rel=0.1)


def test_a_scaled_gemm_takes_longer():
    gpu = machine("h800").gpu
    plain, slow = Gemm(4096, 4096), ScaledGemm(4096, 4096, efficiency=0.5)
    assert slow.tile_us(gpu, 128) == pytest.approx(2 * plain.tile_us(gpu, 128))
    assert slow.fitted(gpu, [128]).efficiency == 0.5


def test_rows_of_deepep_have_the_published_length():
    fp8 = shape("deepseek-v3")
    assert deepep.dispatch_row_bytes(fp8, "deepep_v2") == 7520
    assert fp8.dispatch_bytes + systems.constants("deepep_v1_ll").header_bytes == 7408


def test_low_latency_kernels_take_the_published_number_of_sms():
    gpu = machine("h800").gpu
    assert (deepep.ll_sms(gpu, 256), deepep.ll_sms(gpu, 288)) == (128, 96)


def test_deepep_v1_waits_for_counts_and_v2_does_not():
    assert "host sync" in layer("deepep_v1_normal").breakdown
    assert not {"host sync", "counts"} & layer("deepep_v2").breakdown.keys()


def test_tutel_pads_to_the_largest_count():
    made = workload(skew=0.05)
    assert made.rows.max() <= tutel.capacity(made, 1) <= tutel.capacity(made, 2)
    assert tutel.capacity(made, 2) % 2 == 0
    padded = (
        made.ranks * (made.ranks - 1) * made.shape.experts // made.ranks * tutel.capacity(made, 1)
    )
    assert layer("tutel", made).payload_bytes >= padded * (
        made.shape.dispatch_bytes + made.shape.combine_bytes
    )


def test_systems_that_tune_themselves_take_the_fastest_way():
    made = workload("mixtral-8x7b", ranks=8, tokens=4096)
    spec = machine("h800", 8)
    ways = [
        run_layer(partial(tutel.pipelined, degree=degree), spec, made).us for degree in (1, 2, 4)
    ]
    assert layer("tutel", made).us == min(ways) < max(ways)


@pytest.mark.parametrize(
    "system, constant, value", [("nccl", "simple_base_us", 100.0), ("host", "eager_op_us", 60.0)]
)
def test_what_systems_settle_on_hangs_on_every_constant(system, constant, value):
    """... and not on what this workload was asked before."""
    before, anew = (workload("mixtral-8x7b", ranks=8, tokens=4096, seed=7) for _ in range(2))
    usual = layer("tutel", before).us
    with systems.override(system, **{constant: value}):
        assert layer("tutel", before).us == layer("tutel", anew).us != usual


def test_fastermoe_exchanges_every_row_once():
    made = Cluster(machine("h800", 8), workload(ranks=8))
    steps = fastermoe.exchanges(made, 2, [rank // 4 for rank in range(8)])
    assert (sum(rows for step in steps for rows, _, _ in step) == made.workload.pair_rows).all()


def test_fastermoe_pays_for_each_expert():
    """Exchanges and calls back into Python are per expert: many small experts cost more than few
    large ones."""
    few, many = workload("mixtral-8x7b", tokens=64), workload("olmoe-1b-7b", tokens=64)
    assert (
        layer("fastermoe", many).breakdown["dispatch"]
        > 4 * layer("fastermoe", few).breakdown["dispatch"]
    )


def test_comet_computes_before_all_sources_are_there():
    made = workload("mixtral-8x7b", tokens=8192)
    result = layer("comet", made)
    assert result.first_ready_us < 0.7 * result.all_ready_us


def test_comet_waits_for_every_source_of_a_problem():
    """Four row tiles of an expert are one problem: where an expert has no more, it waits for all
    ranks."""
    made = workload("mixtral-8x7b", ranks=8, tokens=2048, skew=0)
    us = {}
    for tiles in (1, 4):
        with systems.override("comet", problem_tiles=tiles):
            us[tiles] = bench.comet_layer(0, machine("h800", 8), made, 8)
    assert made.loads.max() == 4 * 128 and us[4] > 1.03 * us[1]


def test_comets_columns_leave_in_what_divides_them():
    made = shape("mixtral-8x7b")
    assert comet.parts(made) == 8
    assert comet.parts(replace(made, hidden=7168)) == 7


def test_ranks_that_draw_apart_compute_what_they_drew():
    """One rank draws more rows for its experts than the workload has: the layer takes longer, but
    not where its experts are those that it draws less for."""
    box, made = machine("h800", 8), workload("mixtral-8x7b", ranks=8, tokens=8192, skew=0)
    even = bench.comet_layer(0, box, made, 4)
    assert bench.comet_layer(0, box, made, 4, [made] * 8) == even
    shares = np.array([3, 3, 3, 3, 1, 1, 1, 1]) / 16
    first, last = (Workload.make(made.shape, 8, 8192, shares=one) for one in (shares, shares[::-1]))
    assert bench.comet_layer(0, box, made, 4, [first] + [made] * 7) > 1.05 * even
    assert bench.comet_layer(0, box, made, 4, [made] * 7 + [first]) < 1.05 * even
    assert bench.comet_layer(0, box, made, 4, [made] * 7 + [last]) > 1.05 * even


def test_comets_sums_follow_the_placement():
    made = workload(ranks=4)
    own, shared = comet.Placement(made), comet.Placement(made, 4)
    assert [list(own.partial[rank]) for rank in range(4)] == [
        list(made.distinct[:, rank]) for rank in range(4)
    ]
    assert all((shared.partial[rank] == made.tokens_of).all() for rank in range(4))
    assert all(shared.rows_at[rank].sum() == made.tokens * made.shape.top_k for rank in range(4))


def test_comets_sums_between_experts_cost_packets_of_a_sector():
    """As published, two groups of experts gain less than the halved rows would give."""
    made = workload("mixtral-8x7b", ranks=8, tokens=8192, skew=0)
    times = {tensor: bench.comet_layer(1, machine("h800", 8), made, tensor) for tensor in (8, 4)}
    with systems.override("comet", reduction_bytes=128):
        assert bench.comet_layer(1, machine("h800", 8), made, 4) < times[4]


def test_ccfuser_is_held_up_by_the_tiles_it_fetches():
    made = workload(tokens=4096)
    spec = machine("h800", 4)
    slow = spec.changed(fabric={"link_gbps": 25.0})
    fast = run_layer(SCHEMES["ccfuser"], spec, made).breakdown["gemm1"]
    assert run_layer(SCHEMES["ccfuser"], slow, made).breakdown["gemm1"] > 1.2 * fast


def test_a_tile_of_flashdmoe_that_is_not_full_takes_as_long():
    """Twice the source ranks with half the rows each: as many tiles' time as with full ones is not
    saved."""
    full, split = (
        workload("mixtral-8x7b", ranks=2, tokens=512, skew=0),
        workload("mixtral-8x7b", ranks=8, tokens=512, skew=0),
    )
    gpu = machine("h800", 2).gpu
    assert full.rows.max() >= 64 and split.rows.max() < 64
    blocks = sum(
        int((split.rows[:, split.experts_of(0)] > 0).sum()) * -(-gemm.n // 64)
        for gemm in expert_gemms(split.shape)
    )
    assert blocks > gpu.sms
    assert layer("flashdmoe_fp16", split).us > 0.5 * layer("flashdmoe_fp16", full).us


def test_two_networks_carry_rows_of_a_node_and_between_nodes():
    made = Cluster(machine("h800", 4), workload())
    both = bench.TwoLevel(made, 2, 50.0)
    near, far = both.send(0, 1, 1 << 20), both.send(0, 2, 1 << 20)
    made.env.run(made.env.all_of([near, far]))
    assert (both.near.payload_bytes, both.far.payload_bytes) == (1 << 20, 1 << 20)
    assert far.value > 3 * near.value


def test_flashdmoe_knows_two_types():
    assert set(flashdmoe.SCHEMES) == {"flashdmoe_fp16", "flashdmoe_fp32"}


# -- flags, and orders of rows ---------------------------------------------------------------------


def test_a_flag_in_each_packet_costs_its_bytes():
    """The order of rows changes no byte; one of 16 is the flag's, there and back."""
    made = workload()
    rows = across(made.pair_rows)
    plain = rows * (made.shape.dispatch_bytes + COLUMN_BYTES + made.shape.combine_bytes)
    sent = layer("row_flags", made).payload_bytes
    assert plain * 16 / 15 <= sent <= plain * 16 / 15 * 1.001 + FLAGS
    with systems.override("row_flags", packet_payload=1.0):
        assert plain <= layer("row_flags", made).payload_bytes <= plain * 1.001 + FLAGS


def test_software_takes_the_order_that_ends_first():
    made, spec = workload("qwen2-moe-2.7b", ranks=8, tokens=4096), machine("h800", 8)
    ways = [
        run_layer(lambda cluster, order=order: RowFlags(cluster, order).run(), spec, made).us
        for order in (False, True)
    ]
    assert layer("row_flags", made).us == min(ways) != max(ways)


def test_rows_by_expert_start_the_experts_early():
    """With many experts at a rank the first tile does not wait for the last token."""
    many = workload("qwen2-moe-2.7b", ranks=8, tokens=4096)
    by_token, by_expert = layer("moe_hub", many), layer("moe_hub_by_expert", many)
    assert by_expert.first_ready_us < by_token.first_ready_us
    assert by_expert.payload_bytes == by_token.payload_bytes


def test_with_one_expert_per_gpu_the_orders_are_one():
    """But for the barrier of the grid after which the choices are sorted."""
    one = workload("mixtral-8x7b", ranks=8, tokens=8192)
    by_token, by_expert = layer("moe_hub", one), layer("moe_hub_by_expert", one)
    barrier = machine("h800", 8).gpu.grid_sync_us
    assert by_expert.us == pytest.approx(by_token.us + barrier, abs=barrier)


def test_a_row_per_gpu_is_what_deepep_sends():
    """Values once per token and rank, a column per row, one sum per token and rank back."""
    made = workload(ranks=4)
    once, rows = across(made.distinct), across(made.pair_rows)
    wanted = once * (made.shape.dispatch_bytes + made.shape.combine_bytes) + rows * COLUMN_BYTES
    sent = layer("moe_hub_once", made).payload_bytes
    assert wanted - FLAGS <= sent <= wanted + FLAGS
    assert sent < layer("moe_hub", made).payload_bytes


def test_a_tile_waits_for_the_sources_whose_rows_it_has():
    released = []
    box = PlacedInbox([100, 0, 60, 100], 128, released.append)
    box.arrive(2, 60)
    box.arrive(3, 100)
    assert released == [128, 4]  # only the first tile has rows of source 0
    box.arrive(0, 99)
    assert released == [128, 4]  # nor do the first rows of a source do
    box.arrive(0, 1)
    assert released == [128, 4, 128] and not box.missing
    assert [box.take(128), box.take(4), box.take(128)] == [{2: 32, 3: 96}, {3: 4}, {0: 100, 2: 28}]


# -- in the switch ---------------------------------------------------------------------------------


def links_of(system, made):
    """(bytes up, bytes down) of a layer's multicasts and sums, headers and requests included."""
    scheme = SCHEMES[system]
    cluster = Cluster(machine("h800", made.ranks), made, hub=getattr(scheme.run, "hub", False))
    scheme(cluster)
    cluster.env.run()
    return cluster.network.up_bytes, cluster.network.down_bytes


def wire(size, header_flits):
    return 16 * flits_of(size, header_flits=header_flits)[1]


@pytest.mark.parametrize("system", ("dysharp", *SWITCHED))
def test_a_token_goes_up_once_and_one_sum_comes_down(system):
    """Each packet lists its targets; a request goes up for each packet of a sum, and down to each
    rank that has a term."""
    made = workload(tokens=2048)
    header, answer = machine("h800", 4).fabric.header_flits, made.shape.combine_bytes
    row = made.shape.dispatch_bytes + COLUMN_BYTES * (system != "dysharp")
    leaving, once = int(Parts(made, 1).leaving.sum()), across(made.distinct)
    rows, sums = wire(row, header + 1), wire(answer, header)
    request = 16 * (header + 1) * -(-answer // 128)
    assert links_of(system, made) == (
        leaving * rows + once * sums + leaving * request,
        once * rows + leaving * sums + once * request,
    )


def test_without_the_switch_links_carry_as_much_up_as_down():
    made = workload(tokens=2048)
    up, down = links_of("moe_hub_fused", made)
    row = made.shape.dispatch_bytes + COLUMN_BYTES
    assert (
        up == down == across(made.distinct) * wire(row, machine("h800", 4).fabric.header_flits + 1)
    )


def test_nvls_moves_every_token_to_and_from_every_rank():
    """Its own among them, as NVLink SHARP does."""
    made = workload()
    header, answer = machine("h800", 4).fabric.header_flits, made.shape.combine_bytes
    rows, sums = wire(nvls_row_bytes(made.shape), header), wire(answer, header)
    request = 16 * header * -(-answer // 128)
    assert links_of("nvls", made) == (
        made.tokens * (rows + 4 * sums + request),
        made.tokens * (4 * rows + sums + 4 * request),
    )


def test_useless_traffic_of_nvls_is_as_published():
    """DySHARP: 340 %, with 32 ranks and 8 of 256 experts."""
    made = Workload.make(shape("deepseek-v3"), 32, 8192, skew=0.0)
    wanted = across(made.distinct)
    assert 31 * made.tokens / wanted - 1 == pytest.approx(3.40, rel=0.02)


@pytest.mark.parametrize("count", [1, 7, 24])
def test_parts_are_all_tokens(count):
    made = workload(ranks=5, tokens=507, skew=0.05)
    parts = Parts(made, count)
    assert (parts.tokens.sum(axis=1) == made.tokens_of).all()
    assert (parts.rows.sum(axis=1) == made.rows).all()
    assert (parts.once.sum(axis=1) == made.distinct).all()
    others = parts.once.sum(axis=2) - np.array([parts.once[rank, :, rank] for rank in range(5)])
    most = np.array([np.delete(parts.once[rank], rank, axis=1).max(axis=1) for rank in range(5)])
    assert (parts.leaving <= parts.tokens).all()
    assert (most <= parts.leaving).all() and (parts.leaving <= others).all()


# -- CUDA graphs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [name for name in SCHEMES if name != "ideal"])
def test_a_graph_costs_the_host_nothing_or_there_is_none(system):
    """What asks its host is no graph and says so; of all others the host's time is gone."""
    made = workload(tokens=8)
    asks = "host sync" in layer(system, made).breakdown
    with systems.override("host", graph=1):
        if asks:
            with pytest.raises(NoGraph, match="waits for its host"):
                layer(system, made)
        else:
            graph = layer(system, made)
            with systems.replaced(extreme(high=True)):
                assert layer(system, made) == graph
    assert asks or graph.us <= layer(system, made).us


# -- constants -------------------------------------------------------------------------------------


def test_constants_of_a_system():
    before = systems.constants("comet").combine_ctas
    with systems.override("comet", combine_ctas=8):
        assert systems.constants("comet").combine_ctas == 8
        with systems.override("comet", combine_splits=2):
            assert systems.constants("comet").combine_ctas == 8
    assert systems.constants("comet").combine_ctas == before
    assert all(
        source for system in systems.SYSTEMS for _, source in systems.provenance(system).values()
    )


def test_every_constant_is_read():
    """A constant that no code reads would look like part of the model."""
    code = "\n".join(path.read_text() for path in Path(systems.__file__).parent.rglob("*.py"))
    unread = [
        f"{system}.{name}"
        for system in systems.SYSTEMS
        for name in vars(systems.constants(system))
        if not re.search(rf'\.{name}\b|"{name}"', code)
    ]
    assert not unread, unread


def test_constants_that_are_not_there():
    with pytest.raises(systems.UnknownSystem, match="system = 'flux': must be one of"):
        systems.constants("flux")
    with pytest.raises(systems.UnknownSystem, match="comet: no constant sms"):
        systems.override("comet", sms=1)


@pytest.mark.parametrize("system, options", [("comet", {}), ("megatron", {"gather_all": 1})])
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_ranks_that_share_columns_take_the_rows_of_all_their_experts(system, options, shared):
    """Each of a group has all of its rows, and its part of the columns: as much work as without."""
    made, work = machine("h800", 4), Workload.make(shape("mixtral-8x7b"), 4, 2048)
    with systems.override(system, tensor_parallel=shared, **options):
        layer = run_layer(SCHEMES[system], made, work)
    of_group = [
        int(sum(work.rows_at(rank - rank % shared + one).sum() for one in range(shared)))
        for rank in range(4)
    ]
    assert list(layer.usable_rows) == of_group
    columns = [
        sum(gemm.n * gemm.k for gemm in gemms)
        for gemms in (comet.shared_gemms(work.shape, shared), expert_gemms(work.shape))
    ]
    assert sum(of_group) * columns[0] == work.tokens * work.shape.top_k * columns[1]


@pytest.mark.parametrize(
    "system, options, rule",
    [
        ("comet", {"tensor_parallel": 3}, "tensor_parallel = 3: must divide the 4 ranks"),
        ("comet", {"tensor_parallel": 0}, "tensor_parallel = 0: must divide the 4 ranks"),
        ("megatron", {"tensor_parallel": 2}, "megatron.tensor_parallel = 2: must be 1 without"),
    ],
)
def test_groups_that_cannot_be_are_refused(system, options, rule):
    made, work = machine("h800", 4), Workload.make(shape("mixtral-8x7b"), 4, 64)
    with systems.override(system, **options), pytest.raises(ValueError, match=rule):
        run_layer(SCHEMES[system], made, work)


def test_a_given_capacity_is_an_even_share():
    work = Workload.make(shape("mixtral-8x7b"), 4, 2048, skew=0.05)
    with systems.override("tutel", host_syncs=0):
        assert tutel.capacity(work, 1) == 2048 // 4 * 2 // 8 < work.rows.max()
    assert tutel.capacity(work, 1) >= work.rows.max()
