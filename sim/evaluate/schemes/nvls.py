# SPDX-License-Identifier: Apache-2.0
"""NVLS: dispatch and combine by what NVLink SHARP has today, static multicast groups.

A group is fixed when memory is bound to it, and a token's ranks differ from token to token, so the
only group that fits all is that of all ranks: every token goes to every rank (NCCL's all-gather by
``multimem.st``), with its choices; each rank picks the rows that are for its experts, adds up what
they answer per token, writes zeros for all other tokens, and every token's rank reads the sum over
all ranks (reduce-scatter by ``multimem.ld_reduce``). This is the emulation that DySHARP (arXiv
2605.05607) compares with: 340 % of useless traffic with 32 ranks and 8 experts a token. No count is
needed on the host.
"""

from sim.evaluate.machine.in_switch import InSwitchNetwork
from sim.evaluate.systems import constants

from .scheme import Scheme
from .steps import experts, link_payload_gbps, stock_fabric

__all__ = ["SCHEMES", "nvls", "row_bytes"]

PARTS = 8  # of a rank's tokens, each a message


def row_bytes(shape):
    """Bytes of a token with its choices."""
    return shape.dispatch_bytes + constants("nvls").meta_bytes_per_choice * shape.top_k


def nvls(cluster):
    """One process per rank."""
    stock_fabric(cluster)
    cluster.connect(cluster.network.settings, InSwitchNetwork)
    here = [[int(cluster.workload.tokens), cluster.env.event()] for _ in cluster.gpus]
    for gpu in cluster.gpus:
        cluster.env.process(_rank(cluster, gpu, here))


def _rank(cluster, gpu, here):
    workload, rank = cluster.workload, gpu.rank
    shape, rows, op = workload.shape, workload.rows_at(rank), constants("host").eager_op_us
    taken = int(rows.sum())
    yield from cluster.gate(gpu)
    yield from _collective(cluster, gpu, "dispatch", _gather(cluster, rank, here))
    yield from gpu.move(2 * taken * shape.dispatch_bytes, "permute", host_us=op)
    cluster.first_ready(rank)
    cluster.all_ready(rank)
    yield from experts(gpu, rows)
    yield from gpu.move((taken + workload.tokens) * shape.combine_bytes, "unpermute", host_us=op)
    yield from _collective(cluster, gpu, "combine", _scatter(cluster, rank))
    cluster.done(rank)


def _collective(cluster, gpu, phase, rows):
    """NCCL's kernel: launched, started on all ranks, base latency, rows."""
    with cluster.phase(gpu.rank, phase):
        yield from gpu.launch(constants("host").eager_op_us)
    yield from cluster.meet(gpu.rank, phase)
    with cluster.phase(gpu.rank, phase):
        yield cluster.env.timeout(constants("nvls").base_us)
        yield from rows


def _parts(cluster, rank, size):
    """(tokens, microseconds) of each part of a rank's tokens, of ``size`` bytes. All ranks' tokens
    pass each link, down or up: the rate of the slower direction."""
    tokens = int(cluster.workload.tokens_of[rank])
    rate = constants("nvls").link_efficiency * link_payload_gbps(cluster.machine) * 1e3
    us = cluster.workload.tokens * size / rate
    parts = min(PARTS, tokens)
    for part in range(parts):
        count = tokens * (part + 1) // parts - tokens * part // parts
        yield count, us * count / tokens


def _gather(cluster, rank, here):
    """The rank's tokens to all ranks, its own among them; ends when all ranks' are here."""
    size, left = row_bytes(cluster.workload.shape), []
    for tokens, us in _parts(cluster, rank, size):
        sent = cluster.network.multicast(
            rank,
            dict.fromkeys(range(cluster.machine.ranks), tokens * size),
            tokens * size,
            row_bytes=size,
        )
        for dst, copy in sent.copies.items():
            copy.callbacks.append(lambda _, dst=dst, tokens=tokens: _came(here[dst], tokens))
        left.append(sent.left)
        yield cluster.env.timeout(us)
    yield cluster.env.all_of([*left, here[rank][1]])


def _came(box, tokens):
    box[0] -= tokens
    if not box[0]:
        box[1].succeed()


def _scatter(cluster, rank):
    """The rank reads the sums of its tokens over all ranks."""
    size, sums = cluster.workload.shape.combine_bytes, []
    for tokens, us in _parts(cluster, rank, size):
        for gpu in cluster.gpus:
            gpu.times.write(cluster.env.now, tokens * size)  # read there
        sums.append(
            cluster.network.pull(
                rank,
                dict.fromkeys(range(cluster.machine.ranks), tokens * size),
                tokens * size,
                row_bytes=size,
                read=constants("dysharp").read_us,
            )
        )
        yield cluster.env.timeout(us)
    yield cluster.env.all_of(sums)


SCHEMES = {
    "nvls": Scheme(nvls, "NVLS", "#76b900", place=19),
}
