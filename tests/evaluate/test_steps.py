# SPDX-License-Identifier: Apache-2.0
"""Steps of all schemes, process by process, and that their times are paid.

Expected steps are those of each scheme's module, which has them from the published system's source.
"""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from sim.evaluate.host import KINDS
from sim.evaluate.machine.engine import Cluster, run_layer
from sim.evaluate.schemes import deepep, tutel
from sim.evaluate.systems import constants, override, replaced

from .evaluate_record import RANKS, SHAPE, SYSTEM, WORKLOAD, recorded

FAST = tuple(("host", kind, 0.01) for kind in KINDS)  # a host that is always ahead


def steps_of(name):
    """(processes of a rank, polls beside them), as each module's text and source have them; GEMMs
    that take tiles as they come are not steps."""
    host = constants("host")
    gate = f"gate*{host.gate_ops - 1}"
    experts = "gemm1 activation gemm2"
    copy = "hold rows poll release"
    nccl = "hold meet rows release"
    barrier, counts = "barrier poll", "all-to-all poll"
    chunk = f"permute {experts} unpermute"
    if name.startswith("fastermoe"):
        s, local, steps = (
            constants("fastermoe"),
            SHAPE.experts // RANKS,
            2 if "groups" in name else 1,
        )
        exchange = "hold meet rows release" if steps > 1 else "meet rows"
        return [
            f"{gate} counts*{s.count_ops} meet {counts} sync*{s.count_syncs} permute "
            + "sync gemm1 activation sync gemm2 copy " * (local * steps)
            + "sync unpermute*3",
            " ".join([exchange] * 2 * local * steps),
        ], 0
    if name.startswith("tutel"):
        s, chunks = constants("tutel"), 2 if "chunks" in name else 1
        exchange = "hold meet rows release" if chunks > 1 else "meet rows"
        main = f"gate*{1 + s.gate_ops + s.gate_ops_per_choice * SHAPE.top_k} "
        main += f"meet {counts} sync permute*2 sync "
        return [
            _joined(main + f"{chunk} " * chunks + f"sync unpermute*{SHAPE.top_k}"),
            " ".join([exchange] * 2 * chunks),
        ], 0
    if name.startswith(("row_flags", "expert_flags")):  # an SM that hands out tiles stays held
        local = SHAPE.experts // RANKS
        own, flags = ("", 1) if name.startswith("row") else (f"{counts} ", 2)
        store = f"hold {own}release"  # a poll for each batch of answers, for each expert's rows
        return ["hold", f"{gate} activation gemm2", store], flags * local * RANKS
    if name.startswith("flashdmoe"):
        return ["hold release"], 2 * SHAPE.experts // RANKS * RANKS
    main = {
        "megatron": f"{gate} counts*7 meet {counts} permute*4 sync {nccl} {nccl} permute*2 "
        f"{experts} unpermute*2 {nccl} unpermute",
        "megatron in all-gathers": _joined(
            f"{gate} gate sync gate sync gate*2 meet {counts} permute*4 sync meet {counts} "
            "permute sync meet all-to-all permute sync permute*3 sync permute sync permute*2 sync "
            f"permute {experts} unpermute*5 meet all-to-all"
        ),
        "comet": f"{gate} counts*8 meet {counts} counts*3 sync gather {barrier} "
        "activation hold gemm2*8 release poll kernel",
        "ccfuser": f"{gate} counts*10 meet {counts} sync*5 permute {barrier} "
        f"activation {barrier} unpermute",
        "deepep_v1_normal": f"{gate} layout {barrier} {barrier} {counts} {barrier} sync {copy} "
        f"permute {experts} unpermute combine {barrier} {copy}",
        "deepep_v1_ll": f"{gate} {copy} {experts} {copy}",
        "deepep_v2": f"{gate} {copy} {barrier} permute {experts} unpermute {copy} "
        f"{barrier} combine",
        "mori": f"{gate} {copy} permute*2 {experts} unpermute {copy}",
        "nvls": f"{gate} meet permute {experts} unpermute meet",
        "dysharp": f"{gate} hold poll release",
        "moe_hub_fused": f"{gate} hold release",
        "moe_hub_fused_in_switch": f"{gate} hold release",
        "moe_hub_base": f"{gate} activation gemm2 {barrier} sum",
        "moe_hub_packets": f"{gate} activation gemm2 {barrier} sum",
    }.get(name, f"{gate} activation gemm2")  # all other hubs
    polls = RANKS * (name in ("comet", "moe_hub_base", "moe_hub_packets"))  # a flag of each source
    return [main, *["hold release"] * name.startswith(("moe_hub", "dysharp"))], polls


def _joined(text):
    """The same steps, equal neighbours joined."""
    parts = [
        (step, int(count or 1)) for step, _, count in (part.partition("*") for part in text.split())
    ]
    groups = [
        (step, sum(count for _, count in group))
        for step, group in groupby(parts, key=lambda part: part[0])
    ]
    return " ".join(f"{step}*{count}" if count > 1 else step for step, count in groups)


@pytest.mark.parametrize("name", SYSTEM)
def test_every_rank_takes_the_systems_steps(name):
    for rank in range(RANKS):
        texts, polls = recorded(name).streams(rank)
        expected, spins = steps_of(name)
        assert (texts, polls) == (expected, spins)


@pytest.mark.parametrize(
    "name, system, constant, times",
    [
        ("megatron", "nccl", "simple_base_us", 2),
        ("megatron", "nccl", "ll_base_us", 2),
        ("megatron", "nccl", "ll_hop_us", RANKS - 1 + 1),
        ("comet", "nccl", "ll_hop_us", RANKS - 1),
        ("ccfuser", "nccl", "ll_base_us", 1),
        ("fastermoe", "nccl", "simple_base_us", 4),
        ("tutel", "nccl", "simple_base_us", 2),
        ("tutel", "nccl", "ll_hop_us", 2 * (RANKS - 1)),
        ("deepep_v1_normal", "deepep_v1_normal", "layout_us", 1),
        ("deepep_v1_ll", "deepep_v1_ll", "kernel_us", 2),
        ("mori", "mori", "kernel_us", 2),
        ("nvls", "nvls", "base_us", 2),
    ],
)
def test_a_time_without_rows_is_paid_as_often_as_its_step_is_taken(name, system, constant, times):
    machine, us = recorded(name).cluster.machine, []
    more = 1.0 if system == "nccl" else 100.0  # a ring takes another protocol when one is slow
    for added in (0.0, more):  # on a host that is always ahead, else its time hides some of it
        with (
            replaced(FAST),
            override(system, **{constant: getattr(constants(system), constant) + added}),
        ):
            us.append(run_layer(SYSTEM[name], machine, WORKLOAD).us)
    # Half a time more, where one of two streams has to wait once more for the other.
    assert times - 0.01 < (us[1] - us[0]) / more < times + 0.5


def paid(name, kind):
    """How often a layer whose host is late pays for a kind of call."""
    box, us = recorded(name).cluster.machine, []
    for more in (0.0, 1000.0):  # late with both: what comes does not depend on the GPU
        late = {"eager_op_us": 300.0} | {kind: getattr(constants("host"), kind) + 300.0 + more}
        with override("host", **late):
            us.append(run_layer(SYSTEM[name], box, WORKLOAD).us)
    return (us[1] - us[0]) / 1000.0


@pytest.mark.parametrize(
    "name, kind, times",
    [
        # two permutations and two back, three all-to-alls, the activation
        ("megatron", "function_us", 4 + 3 + 1),
        ("megatron", "collective_us", 1 + 3),
        ("megatron", "module_us", 2),
        ("megatron", "grouped_gemm_us", 2 * SHAPE.experts // RANKS),
        ("megatron", "read_us", 1),
        # counts in the router, two selections, one of places, counts of experts
        ("megatron in all-gathers", "read_us", 2 + 3 + 3),
        ("megatron in all-gathers", "collective_us", 4),
        ("megatron in all-gathers", "module_us", 2),
        ("fastermoe", "read_us", 5),
        ("fastermoe", "nccl_us", 1 + 2 * SHAPE.experts // RANKS),
        ("tutel", "read_us", 1 + 2),
        ("tutel", "collective_us", 1 + 2),
        ("tutel", "allocation_us", 2 * SHAPE.top_k),
        ("comet", "read_us", 1),
        ("comet", "extension_us", 3 + 2),
        ("comet", "collective_us", 1),
        ("ccfuser", "extension_us", 2),
        ("ccfuser", "function_us", 1),
        ("deepep_v1_normal", "allocation_us", 3 + 2 + 7 + 2),
        ("deepep_v1_normal", "extension_us", 2 + 1),
    ],
)
def test_each_kind_of_call_is_paid_as_often_as_it_is_made(name, kind, times):
    assert paid(name, kind) == pytest.approx(times, abs=0.1)


def test_comet_runs_its_router_though_its_indices_are_given():
    """The router's counts are read twice; weights and indices go to all ranks in place of
    splits."""
    with override("comet", indices_given=1):
        assert paid("comet", "read_us") == pytest.approx(1 + 2, abs=0.1)
        assert paid("comet", "collective_us") == pytest.approx(2, abs=0.1)


def test_a_host_that_waits_behind_each_layer_is_never_ahead():
    """All of the router's calls come after the layer before, and add to the time."""
    box = recorded("megatron in all-gathers").cluster.machine
    with override("megatron", gather_all=1):
        ahead = run_layer(SYSTEM["megatron"], box, WORKLOAD).us
        with override("megatron", synchronizes=1):
            behind = run_layer(SYSTEM["megatron"], box, WORKLOAD).us
    host = constants("host")
    assert behind - ahead > box.gpu.host_sync_us + host.eager_op_us


def test_fastermoe_calls_back_into_python_for_each_expert():
    box, experts = recorded("fastermoe").cluster.machine, SHAPE.experts // RANKS
    with override("fastermoe", expert_ops=constants("fastermoe").expert_ops + 100):
        more = run_layer(SYSTEM["fastermoe"], box, WORKLOAD).us - max(recorded("fastermoe").done)
    assert more > 0.9 * experts * 100 * constants("host").eager_op_us


def test_fastermoe_reads_two_numbers_to_expand_a_bias():
    with override("fastermoe", biases=1):
        read = paid("fastermoe", "read_us")
    assert read == pytest.approx(5 + 2 * 2 * SHAPE.experts // RANKS, abs=0.1)


def test_without_its_schedule_fastermoe_waits_for_each_gemm():
    """At least the second of an expert's two waits holds up what comes next."""
    box, us = recorded("fastermoe").cluster.machine, []
    for scheduled in (1, 0):
        with override("fastermoe", scheduled=scheduled):
            us.append(run_layer(SYSTEM["fastermoe"], box, WORKLOAD).us)
    assert us[1] - us[0] > 0.9 * (SHAPE.experts // RANKS) * box.gpu.host_sync_us


@pytest.mark.parametrize("scheduled", [0, 1])
def test_without_its_schedule_fastermoe_calls_experts_without_rows(scheduled):
    """Two ranks have one expert each that anybody chooses."""
    box, local = recorded("fastermoe").cluster.machine, SHAPE.experts // RANKS
    chosen = np.tile(local * np.arange(SHAPE.top_k), (WORKLOAD.tokens, 1))
    us, few = [], replace(WORKLOAD, experts=chosen)
    for more in (0, 1000):
        ops = constants("fastermoe").expert_ops + more
        with override("fastermoe", scheduled=scheduled, expert_ops=ops):
            us.append(run_layer(SYSTEM["fastermoe"], box, few).us)
    calls = (us[1] - us[0]) / 1000 / constants("host").eager_op_us
    assert local > 1 and calls == pytest.approx(1 if scheduled else local, rel=0.1)


def test_tutel_adds_biases_in_passes_of_their_own():
    before = recorded("tutel")
    box = before.cluster.machine.changed(gpu={"hbm_gbps": 1.0})
    us = []
    for adds in (0, 1):
        with override("tutel", bias_adds=adds):
            us.append(run_layer(SYSTEM["tutel"], box, WORKLOAD).us)
    rows = SHAPE.experts * tutel.capacity(WORKLOAD, 1)
    moved = rows * (3 * SHAPE.inter + 2 * SHAPE.hidden) * 2
    assert us[1] - us[0] == pytest.approx(moved / 1e3, rel=0.3)


def test_low_latency_kernels_copy_what_lies_in_the_slots():
    ends = []
    for copied in (0, 1e8):
        cluster = Cluster(recorded("deepep_v1_ll").cluster.machine, WORKLOAD)
        exchange = deepep.ll_dispatch(cluster)
        for gpu in cluster.gpus:
            cluster.env.process(deepep.ll_kernel(cluster, gpu, exchange, "dispatch", copied))
        cluster.env.run()
        ends.append(cluster.env.now)
    gpu = cluster.machine.gpu
    rate = min(gpu.stream_gbps, deepep.ll_sms(gpu, SHAPE.experts) * gpu.sm_hbm_gbps)
    assert ends[1] - ends[0] == pytest.approx(1e8 / (rate * 1e3))


@pytest.mark.parametrize(
    "name, system, constant, value",
    [
        ("comet", "comet", "combine_cta_gbps", 1.0),
        ("comet", "comet", "combine_ctas", 100),
        ("deepep_v2", "deepep_v2", "sm_gbps", 1.0),
        ("deepep_v1_normal", "deepep_v1_normal", "sm_gbps", 1.0),
        ("mori", "mori", "link_efficiency", 0.1),
        ("flashdmoe_fp16", "flashdmoe", "os_blocks", 100),
    ],
)
def test_a_slow_part_holds_the_layer_up(name, system, constant, value):
    before = recorded(name)  # made here, not with the slow part
    with override(system, **{constant: value}):
        assert run_layer(SYSTEM[name], before.cluster.machine, WORKLOAD).us > 1.1 * max(before.done)


@pytest.mark.parametrize("name", [name for name in SYSTEM if name.startswith("moe_hub")])
def test_stores_take_the_time_of_the_sms_that_make_them(name):
    slow = recorded(name).cluster.machine.changed(gpu={"sm_copy_gbps": 0.1})
    assert run_layer(SYSTEM[name], slow, WORKLOAD).us > 1.5 * max(recorded(name).done)


def test_gathers_and_scatters_by_index_take_an_element_at_a_time():
    """Two gathers and two scatters of a rank's rows; with so low a rate nothing else counts."""
    box, us = recorded("megatron in all-gathers").cluster.machine, []
    for rate in (1.0, 2.0):
        with override("megatron", gather_all=1, index_rate=rate):
            us.append(run_layer(SYSTEM["megatron"], box, WORKLOAD).us)
    rows = max(int(WORKLOAD.rows_at(rank).sum()) for rank in range(RANKS))
    assert us[0] - us[1] == pytest.approx(4 * rows * SHAPE.hidden * (1.0 - 0.5) / 1e3, rel=0.02)
