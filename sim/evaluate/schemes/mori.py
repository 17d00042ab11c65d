# SPDX-License-Identifier: Apache-2.0
"""mori v2 within a node: the sender takes the next row of the destination's one cursor by a remote
atomic.

Source: ROCm/mori 624002c8, ``python/mori/ops/dispatch_combine_v2/intranode_kernels.py`` (dispatch,
gather combine). A token goes once to each rank, into a dense row in the order of arrival; counts
follow the rows. Nothing is exchanged before.
"""

from sim.evaluate.systems import constants

from .deepep import dispatch_row_bytes, once_to_each_rank, permuted_experts
from .scheme import Scheme
from .steps import call_us, copy_kernel, start

__all__ = ["SCHEMES", "combine", "dispatch", "kernel", "mori"]


def dispatch(cluster):
    """Exchange of the dispatch kernel."""
    row = dispatch_row_bytes(cluster.workload.shape, "mori")
    return once_to_each_rank(cluster, "mori", row)


def combine(cluster):
    """Exchange of the combine kernel: the source rank reads its tokens' answers at all ranks and
    adds them up."""
    return once_to_each_rank(cluster, "mori", cluster.workload.shape.combine_bytes, back=True)


def kernel(cluster, gpu, exchange, phase):
    """Atomics for rows, payload, barrier of the grid, counts as flags, polling."""
    system = constants("mori")
    sms = min(system.blocks, gpu.gpu.sms - 1)
    yield from copy_kernel(
        cluster, gpu, exchange, phase, sms, system.kernel_us, host_us=call_us("mori")
    )


def mori(cluster):
    """One process per rank."""
    start(cluster, _rank, dispatch(cluster), combine(cluster))


def _rank(cluster, gpu, there, back):
    workload, rank = cluster.workload, gpu.rank
    yield from cluster.gate(gpu)
    yield from kernel(cluster, gpu, there, "dispatch")
    # Rows lie in the order of arrival, one per token: counts per local expert, then the copies.
    taken = int(workload.distinct[:, rank].sum())
    yield from gpu.move(12 * taken * workload.shape.top_k, "permute")
    yield from permuted_experts(cluster, gpu)
    yield from kernel(cluster, gpu, back, "combine")
    cluster.done(rank)


SCHEMES = {
    "mori": Scheme(mori, "mori", "#61a5c2", place=8),
}
