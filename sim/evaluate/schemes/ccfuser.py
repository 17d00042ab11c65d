# SPDX-License-Identifier: Apache-2.0
"""CCFuser: the first GEMM fetches its rows from peers' memory itself, the second stores its results
there.

Source: WongHuLin/CCFuser (PPoPP 2025) ``mix_moe/mix_moe/functions.py``,
``mix_moe/csrc/cuda/mix_gemm.cu``: ``moe_first_mm`` (nvshmem gets of the next tile while one is
computed), ``moe_second_mm`` (nvshmem puts of finished rows). A tile has rows of one source rank and
one expert. Counts are gathered and copied to the host first. What the host then does in Python to
plan tiles, and moving experts to other ranks, are left out.
"""

from collections import deque

from sim.evaluate.machine.engine import GroupedGemm
from sim.evaluate.systems import constants

from .nccl import exchange_counts
from .scheme import Scheme
from .steps import activation, scaled_gemms, small_ops, start

__all__ = ["SCHEMES", "ccfuser"]


def ccfuser(cluster):
    """One process per rank."""
    ranks = cluster.machine.ranks
    inbox = [[int(cluster.workload.rows[rank].sum()), cluster.env.event()] for rank in range(ranks)]
    start(cluster, _rank, inbox)


def _rank(cluster, gpu, inbox):
    host, system, workload, rank = (
        constants("host"),
        constants("ccfuser"),
        cluster.workload,
        gpu.rank,
    )
    shape, op, tokens = workload.shape, host.eager_op_us, int(workload.tokens_of[rank])
    sent, rows = tokens * shape.top_k, [int(count) for count in workload.rows_at(rank)]
    yield from cluster.gate(gpu)
    # Counts of all ranks to all, copied to the host piece by piece.
    yield from small_ops(gpu, system.count_ops, "counts")
    yield from exchange_counts(cluster, gpu, 8 * shape.experts)
    for _ in range(system.count_syncs):
        yield from gpu.host_sync(extra_us=host.read_us)
    # Own rows in the experts' order into the symmetric heap; then peers may fetch.
    before = op + host.function_us  # the layer is one autograd Function
    yield from gpu.move((tokens + sent) * shape.dispatch_bytes, "permute", host_us=before)
    yield from cluster.device_barrier(rank)
    first, second = scaled_gemms(shape, system.fused_gemm_efficiency)
    with cluster.phase(rank, "gemm1"):
        yield from gpu.launch(host.extension_us)
        work = GroupedGemm(gpu, first, rows)
        cluster.env.process(_fetch(cluster, gpu, work))
        yield work.done
    yield from activation(gpu, sum(rows), op)
    with cluster.phase(rank, "gemm2"):
        yield from gpu.launch(host.extension_us)
        yield _second(cluster, gpu, second, rows, inbox).done
    with cluster.phase(rank, "combine"):
        yield inbox[rank][1]
    yield from cluster.device_barrier(rank)
    yield from gpu.move((sent + tokens) * shape.combine_bytes, "unpermute", host_us=op)
    cluster.done(rank)


def _tiles(cluster, rank):
    """(expert, source, rows) of a rank's tiles, sources in turn beginning with its own."""
    workload, ranks, size = cluster.workload, cluster.machine.ranks, constants("ccfuser").tile_rows
    for step in range(ranks):
        source = (rank + step) % ranks
        for number, expert in enumerate(workload.experts_of(rank)):
            rows = int(workload.rows[source, expert])
            while rows:
                yield number, source, min(rows, size)
                rows -= min(rows, size)


def _fetch(cluster, gpu, work):
    """Gets of remote tiles, at most one in flight per thread block beside the tile it computes."""
    rank, size = gpu.rank, cluster.workload.shape.dispatch_bytes
    window = gpu.gpu.sms * (constants("ccfuser").tiles_in_flight - 1)
    flying = deque()
    for number, source, rows in _tiles(cluster, rank):
        if source == rank:
            work.ready(number, rows)
            cluster.first_ready(rank)
            continue
        while len(flying) >= window:
            yield flying.popleft()
        flying.append(
            cluster.env.process(_get(cluster, source, rank, rows * size, size, work, number, rows))
        )
    yield from flying
    cluster.all_ready(rank)
    work.close()


def _get(cluster, source, rank, size, row_bytes, work, number, rows):
    """A read: the request travels, then the rows."""
    yield cluster.env.timeout(cluster.machine.fabric.one_way_us)
    yield cluster.network.send(source, rank, size, row_bytes=row_bytes)
    cluster.first_ready(rank)
    work.ready(number, rows)


def _second(cluster, gpu, gemm, rows, inbox):
    """GEMM2, whose blocks put finished rows into their source's memory."""
    rank, answer = gpu.rank, cluster.workload.shape.combine_bytes
    origins = {}
    for number, source, count in _tiles(cluster, rank):
        origins.setdefault(number, deque()).append((source, count))

    def on_batch(number, count, _start, end):
        parts = []
        while count > 0:
            source, tile = origins[number].popleft()
            parts.append((source, tile))
            count -= tile
        cluster.env.process(put(parts, end - cluster.env.now))

    def put(parts, delay):
        yield cluster.env.timeout(delay)
        for source, count in parts:
            cluster.network.send(rank, source, count * answer, row_bytes=answer).callbacks.append(
                lambda _, box=inbox[source], count=count: _took(box, count)
            )

    work = GroupedGemm(gpu, gemm, rows, on_batch)
    for number, _, count in _tiles(cluster, rank):
        work.ready(number, count)
    work.close()
    return work


def _took(box, count):
    box[0] -= count
    if not box[0]:
        box[1].succeed()


SCHEMES = {
    "ccfuser": Scheme(ccfuser, "CCFuser", "#6a994e", place=4),
}
