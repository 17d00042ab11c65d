# SPDX-License-Identifier: Apache-2.0
"""FasterMoE: groups of ranks exchange rows pairwise while the experts work on what the group before
has brought.

Source: laekov/fastmoe ``cuda/fastermoe/smart_schedule.h``, ``fmoe/fastermoe/schedule.py``,
``fmoe/functions.py``. Each expert of each group is one exchange (an ncclGroup) and one call back
into Python, each linear layer one of ``cuda/parallel_linear.cu``: the host waits before its GEMM.
With a bias (``biases``) it copies the expert's count to the GPU before that and expands the bias by
``repeat_interleave`` (PyTorch of 2024, ``ATen/native/Repeat.h``), which reads two numbers back.
Shadowing of experts is off, as by default. Without its schedule (``scheduled``) all ranks are one
group, as ``fmoe/layers.py`` has it.
"""

import numpy as np

from sim.evaluate.machine.compute import expert_gemms
from sim.evaluate.systems import constants

from .nccl import SendRecv, collective, exchange_counts
from .scheme import Scheme
from .steps import fastest, small_ops, start

__all__ = ["SCHEMES", "exchanges", "fastermoe", "grouped"]


def exchanges(cluster, groups, group_of):
    """[step][expert]: (rows[src, dst], there, back). At a step, ranks of group g send to group g +
    step."""
    workload, shape = cluster.workload, cluster.workload.shape
    ranks, local = (
        workload.ranks,
        max(len(workload.experts_of(rank)) for rank in range(workload.ranks)),
    )
    result = []
    for step in range(groups):
        result.append([])
        for number in range(local):
            rows = np.zeros((ranks, ranks), dtype=np.int64)
            for dst in range(ranks):
                of = workload.experts_of(dst)
                if number < len(of):
                    sources = [
                        src
                        for src in range(ranks)
                        if (group_of[src] + step) % groups == group_of[dst]
                    ]
                    rows[sources, dst] = workload.rows[sources, of[number]]
            result[-1].append(
                (
                    rows,
                    SendRecv(cluster, rows * shape.dispatch_bytes),
                    SendRecv(cluster, rows.T * shape.combine_bytes),
                )
            )
    return result


def fastermoe(cluster):
    """Groups of the default size, or all ranks in one where that is faster."""
    if not constants("fastermoe").scheduled:
        grouped(cluster, cluster.machine.ranks)
        return
    widths = constants("fastermoe").pipeline_ranks, cluster.machine.ranks
    grouped(cluster, fastest(cluster, grouped, widths))


def grouped(cluster, width):
    """One process per rank; groups of ``width`` ranks."""
    ranks = cluster.machine.ranks
    width = min(width, ranks)
    groups = max(1, ranks // width)
    group_of = [min(rank // width, groups - 1) for rank in range(ranks)]
    start(cluster, _rank, exchanges(cluster, groups, group_of))


def _rank(cluster, gpu, steps):
    host, system, workload, rank = (
        constants("host"),
        constants("fastermoe"),
        cluster.workload,
        gpu.rank,
    )
    shape, op, tokens = workload.shape, host.eager_op_us, int(workload.tokens_of[rank])
    sent = tokens * shape.top_k
    yield from cluster.gate(gpu)
    # Counts: per expert, exchanged, and copied to the host piece by piece.
    yield from small_ops(gpu, system.count_ops, "counts")
    yield from exchange_counts(
        cluster,
        gpu,
        8 * len(workload.experts_of(rank)),
        steps=1,
        host_us=host.extension_us + host.nccl_us,
    )
    for _ in range(system.count_syncs):
        yield from gpu.host_sync(extra_us=host.read_us)
    # The schedule is one autograd Function.
    before = op + host.function_us
    yield from gpu.move((tokens + sent) * shape.dispatch_bytes, "permute", host_us=before)
    # Stream of communication beside the default stream.
    taken = [cluster.env.event() for _ in steps]
    answered = [cluster.env.event() for _ in steps]
    over = cluster.env.process(_communicate(cluster, gpu, steps, taken, answered))
    first, second = expert_gemms(shape)
    host_free = cluster.env.now
    for step, arrived in enumerate(taken):
        yield arrived
        cluster.first_ready(rank)
        if step == len(steps) - 1:
            cluster.all_ready(rank)
        for number, (rows, _, _) in enumerate(steps[step]):
            count = int(rows[:, rank].sum())
            if count or not system.scheduled:
                # Python's call back: its operations, of which four are the kernels below.
                host_free = max(host_free, cluster.env.now) + system.expert_ops * op
                gpu.host_at = max(gpu.host_at, host_free - 4 * op)
                yield from _linear(gpu, first, number, count, "gemm1")
                yield from gpu.move(count * shape.inter * 6, "activation", host_us=op)
                yield from _linear(gpu, second, number, count, "gemm2")
                yield from gpu.move(2 * count * shape.combine_bytes, "copy", host_us=op)
        answered[step].succeed()
    yield over
    yield from gpu.host_sync()
    # _local_gather: zeros, rows to their places; then the weighed sum.
    yield from gpu.move(sent * shape.combine_bytes, "unpermute", host_us=op)
    yield from gpu.move(2 * sent * shape.combine_bytes, "unpermute", host_us=op)
    yield from gpu.move((sent + tokens) * shape.combine_bytes, "unpermute", host_us=op)
    cluster.done(rank)


def _linear(gpu, gemm, number, rows, phase):
    """A linear layer of one expert. If it has a bias its output begins as that, once for each row.
    The GEMM is on a stream of its own: the host waits for what was before, and without the schedule
    for the GEMM."""
    host, system, env = constants("host"), constants("fastermoe"), gpu.cluster.env
    yield env.timeout(max(0.0, gpu.host_at - env.now))  # it has other operations before
    if system.biases:
        yield from small_ops(gpu, 1, phase)  # the count, from memory of the host
        yield from gpu.host_sync()
        for ops in (1, 2):  # how many rows, by a running sum; whether no count is negative
            yield from small_ops(gpu, ops, phase)
            yield from gpu.host_sync(extra_us=host.read_us)
        yield from small_ops(gpu, 1, phase)  # the rows' numbers
        yield from gpu.move(2 * rows * gemm.n * 2, phase, host_us=host.eager_op_us)
    yield from gpu.host_sync()
    if rows:
        yield from gpu.launch(host.eager_op_us)
        yield from gpu.gemm(gemm, [0] * number + [rows], phase, launch=False)
    if not system.scheduled:
        yield from gpu.host_sync()


def _communicate(cluster, gpu, steps, taken, answered):
    beside, us = len(steps) > 1, constants("host").nccl_us  # called from C++
    for step, experts in enumerate(steps):
        for number, (_, there, _) in enumerate(experts):
            yield from collective(
                cluster, gpu, there, "dispatch", f"there {step} {number}", us, beside
            )
        taken[step].succeed()
    for step, experts in enumerate(steps):
        yield answered[step]
        for number, (_, _, back) in enumerate(experts):
            yield from collective(
                cluster, gpu, back, "combine", f"back {step} {number}", us, beside
            )


SCHEMES = {
    "fastermoe": Scheme(fastermoe, "FasterMoE", "#5c677d", place=1),
}
