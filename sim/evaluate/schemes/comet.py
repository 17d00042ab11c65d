# SPDX-License-Identifier: Apache-2.0
"""COMET (flux): GEMM tiles that wait for source ranks, and a second GEMM whose columns are reduced
and sent part by part.

Source: bytedance/flux ``src/moe_ag_scatter`` (layer 0: copy engines gather every rank's tokens, one
flag per source rank; rows sorted so that a problem spans few of them), ``src/moe_gather_rs`` (layer
1: thread blocks of their own sum a token's rows and store the sums to its rank, while the others
compute the next part of the columns), ``docs/moe_usage.md``. Counts must be on the host first.
"""

from dataclasses import replace
from math import ceil

import numpy as np

from sim.evaluate.machine.compute import TILE_ROWS, expert_gemms, pass_us, tiles_of
from sim.evaluate.machine.engine import GroupedGemm
from sim.evaluate.systems import constants

from .nccl import exchange_counts
from .scheme import Scheme
from .steps import ScaledGemm, activation, counted, small_ops, start

__all__ = ["SCHEMES", "Placement", "comet", "layer0", "layer1", "prepare", "shared_gemms"]


class Placement:
    """Which experts a rank computes: its own, or with ``tensor_parallel`` ranks sharing the
    columns, those of its group.

    ``experts_at(rank)``; ``rows_at[rank][source, expert]``, rows by source rank;
    ``partial[rank][source]``, tokens of a source that have an expert at the rank, and so get a
    partial sum from it. Raises ValueError when the ranks cannot be divided into such groups.
    """

    def __init__(self, workload, tensor_parallel=1):
        if tensor_parallel < 1 or workload.ranks % tensor_parallel:
            raise ValueError(
                f"tensor_parallel = {tensor_parallel}: must divide the {workload.ranks} ranks"
            )
        tensor_parallel = int(tensor_parallel)  # 2.0 from a command line
        self.workload, self.tensor_parallel = workload, tensor_parallel
        groups = workload.rank_of // tensor_parallel
        hits = np.zeros((workload.tokens, groups.max() + 1), dtype=bool)
        np.put_along_axis(hits, groups[workload.experts], True, axis=1)
        by_group = np.stack(
            [
                np.bincount(workload.source_of, weights=column, minlength=workload.ranks)
                for column in hits.T
            ]
        )
        self.rows_at = [
            workload.rows[:, groups == rank // tensor_parallel] for rank in range(workload.ranks)
        ]
        self.partial = [
            by_group[rank // tensor_parallel].astype(np.int64) for rank in range(workload.ranks)
        ]


def prepare(cluster, gpu):
    """Gather and sort indices on the GPU; the host waits for the sorted splits."""
    system, host = constants("comet"), constants("host")
    yield from small_ops(gpu, system.prepare_ops, "counts", host.extension_us)
    for _ in range(system.host_syncs):
        yield from gpu.host_sync(extra_us=host.read_us)


def _pull(cluster, gpu, placement, token_bytes, on_source):
    """The copy engine: own tokens first, then those of the next ranks in turn; a flag after
    each."""
    rank, ranks, system = gpu.rank, cluster.machine.ranks, constants("comet")
    for step in range(ranks):
        source = (rank + step) % ranks
        tokens = cluster.workload.tokens_of if system.gather_all else placement.partial[rank]
        size = int(tokens[source]) * token_bytes
        if source != rank:
            yield cluster.network.send(source, rank, size, packet_bytes=system.copy_packet_bytes)
        on_source(step)
        yield from gpu.poll()


def layer0(cluster, gpu, placement, gemm):
    """All-gather, scatter and GEMM1 in one, in problems of a few row tiles of one expert: a tile
    starts when the last source rank that its problem has rows of is there."""
    rank, ranks = gpu.rank, cluster.machine.ranks
    # Own tokens into the symmetric buffer, then all ranks have theirs there.
    own = int(cluster.workload.tokens_of[rank])
    yield from gpu.move(2 * own * cluster.workload.shape.dispatch_bytes, "gather")
    yield from cluster.device_barrier(rank)
    ordered = np.roll(placement.rows_at[rank], -rank, axis=0)
    sums, placed = ordered.cumsum(axis=0), np.zeros(ordered.shape[1], dtype=np.int64)
    with cluster.phase(rank, "gemm1"):
        yield from gpu.launch(constants("host").extension_us)
        work = GroupedGemm(gpu, gemm, [int(rows) for rows in sums[-1]])
        problem = TILE_ROWS * constants("comet").problem_tiles

        def on_source(step):
            last = step == ranks - 1
            for expert, rows in enumerate(sums[step]):
                while rows - placed[expert] >= problem or (last and rows > placed[expert]):
                    held = min(problem, int(rows - placed[expert]))
                    for tile in tiles_of(held):
                        work.ready(expert, tile)
                    placed[expert] += held
            cluster.first_ready(rank)
            if last:
                cluster.all_ready(rank, int(sums[-1].sum()))
                work.close()

        cluster.env.process(
            _pull(cluster, gpu, placement, cluster.workload.shape.dispatch_bytes, on_source)
        )
        yield work.done


def layer1(cluster, gpu, placement, gemm, inbox):
    """GEMM2 by parts of its columns; blocks of their own sum and send a part while the next is
    computed."""
    system, rank, ranks = constants("comet"), gpu.rank, cluster.machine.ranks
    rows, splits = (
        [int(count) for count in placement.rows_at[rank].sum(axis=0)],
        parts(cluster.workload.shape),
    )
    columns = ceil(gemm.n / splits)
    part = ScaledGemm(columns, gemm.k, gemm.dtype, gemm.weight_bytes)
    with cluster.phase(rank, "gemm2"):
        yield from gpu.launch(constants("host").extension_us)
        yield from gpu.hold(system.combine_ctas)
        reducer = None
        for _ in range(splits):
            yield from gpu.gemm(part, rows, launch=False)
            reducer = cluster.env.process(
                _reduce(cluster, gpu, placement, sum(rows), 2 * columns, reducer, inbox)
            )
    with cluster.phase(rank, "combine"):
        yield reducer
        gpu.release(system.combine_ctas)
        yield inbox[rank][1]
        yield from gpu.poll()
        partial = sum(int(placement.partial[peer][rank]) for peer in range(ranks))
        own = int(cluster.workload.tokens_of[rank])
        yield from gpu.kernel(pass_us(gpu.gpu, (partial + own) * 2 * gemm.n))


def _reduce(cluster, gpu, placement, rows, part_bytes, before, inbox):
    """Sums of one part of the columns, stored to the tokens' ranks."""
    if before is not None and before.is_alive:
        yield before
    system, rank, ranks = constants("comet"), gpu.rank, cluster.machine.ranks
    moved = (rows + int(placement.partial[rank].sum())) * part_bytes
    # Experts at different ranks: sums are added to the token's row by remote reductions of 32 bits
    # a lane (global_red).
    packet = system.reduction_bytes if placement.tensor_parallel < ranks else 128
    pace, left = moved / (system.combine_ctas * system.combine_cta_gbps * 1e3) / ranks, []
    for step in range(1, ranks + 1):
        peer = (rank + step) % ranks
        sent = cluster.network.send(
            rank,
            peer,
            int(placement.partial[rank][peer]) * part_bytes,
            row_bytes=part_bytes,
            packet_bytes=packet,
        )
        sent.callbacks.append(lambda _, peer=peer: _took(inbox[peer]))
        left.append(sent.left)
        yield cluster.env.timeout(pace)
    yield cluster.env.all_of(left)


def _took(box):
    box[0] -= 1
    if not box[0]:
        box[1].succeed()


def parts(shape):
    """Parts of the columns of GEMM2; what divides them."""
    return 7 if shape.hidden == 7168 else constants("comet").combine_splits


def inboxes(cluster):
    """[rank]: messages of layer 1 that a rank waits for, and the event of the last."""
    return [
        [cluster.machine.ranks * parts(cluster.workload.shape), cluster.env.event()]
        for _ in cluster.gpus
    ]


def shared_gemms(shape, tensor_parallel):
    """(GEMM1, GEMM2) of an expert whose columns between them so many ranks share."""
    first, second = expert_gemms(shape)
    return (
        replace(first, n=ceil(first.n / tensor_parallel)),
        replace(second, k=ceil(second.k / tensor_parallel)),
    )


def comet(cluster):
    """One process per rank."""
    placement = Placement(cluster.workload, constants("comet").tensor_parallel)
    start(cluster, _rank, placement, inboxes(cluster))


def _rank(cluster, gpu, placement, inbox):
    host, system, shape = constants("host"), constants("comet"), cluster.workload.shape
    first, second = shared_gemms(shape, placement.tensor_parallel)
    choices = int(cluster.workload.tokens_of[gpu.rank]) * shape.top_k
    yield from cluster.gate(gpu)
    if system.indices_given:  # Megatron-LM's router all the same, and what it says to all ranks
        yield from counted(gpu, "gate")
        us = host.collective_us + host.allocation_us
        yield from exchange_counts(cluster, gpu, 2 * choices, "probabilities", host_us=us)
        yield from exchange_counts(cluster, gpu, 8 * choices, "indices", host_us=us)
    else:
        # Splits of all ranks to all, then gather and scatter indices.
        yield from small_ops(gpu, system.count_ops, "counts")
        yield from exchange_counts(cluster, gpu, 4 * choices)
    yield from prepare(cluster, gpu)
    gather = ScaledGemm(
        first.n, first.k, first.dtype, first.weight_bytes, efficiency=system.gather_gemm_efficiency
    )
    yield from layer0(cluster, gpu, placement, gather)
    cluster.gemm1_done(gpu.rank)
    rows = ceil(placement.rows_at[gpu.rank].sum() / placement.tensor_parallel)
    yield from activation(gpu, rows, host.eager_op_us)
    yield from layer1(cluster, gpu, placement, second, inbox)
    cluster.done(gpu.rank)


SCHEMES = {
    "comet": Scheme(comet, "COMET", "#e0a32e", place=3),
}
