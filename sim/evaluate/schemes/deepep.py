# SPDX-License-Identifier: Apache-2.0
"""DeepEP: V1 for throughput, V1 for low latency, V2. A token goes once to each rank (V1 low
latency: once to each expert).

Source: deepseek-ai/DeepEP dd758ca. V1: ``csrc/kernels/legacy/{layout,intranode,internode_ll}.cu``,
``buffer.hpp``; V2:
``deep_ep/include/deep_ep/impls/{dispatch,dispatch_copy_epilogue,combine,combine_reduce_epilogue}.cuh``.
Every phase is a function of its own, so that ``published.py`` can time dispatch or combine alone,
as DeepEP's tests do.
"""

from sim.evaluate.systems import constants

from .scheme import Scheme
from .steps import RowExchange, call_us, copy_kernel, experts, start

__all__ = [
    "SCHEMES",
    "dispatch_row_bytes",
    "ll_combine",
    "ll_dispatch",
    "normal_combine",
    "normal_dispatch",
    "once_to_each_rank",
    "permuted_experts",
    "v2_combine",
    "v2_dispatch",
]

CACHED_BYTES = 64e3  # what the kernels of layout and prefix sums read and write


def dispatch_row_bytes(shape, system, *, cached=False):
    """Bytes of a dispatched row: values and scales, and what says where it came from and where it
    goes.

    ``cached``: the layout of an earlier dispatch is used again, so V1 sends no choices (its
    benchmark does this).
    """
    system = constants(system)
    choices = 0 if cached else system.meta_bytes_per_choice * shape.top_k
    size = shape.dispatch_bytes + system.meta_bytes + choices
    align = getattr(system, "row_align", 1)
    return -(-size // align) * align


def once_to_each_rank(cluster, system, row, back=False, **more):
    """Exchange of a row per token and rank, or of the answers to them; ``system``: what its stores
    leave of the links."""
    rows = cluster.workload.distinct
    efficiency = constants(system).link_efficiency
    return RowExchange(
        cluster, (rows.T if back else rows) * row, row, efficiency=efficiency, **more
    )


def permuted_experts(cluster, gpu):
    """Rows lie as they came, one per token: a copy of each for every local expert, in the experts'
    order; the experts; their answers back into the first order."""
    workload, rank = cluster.workload, gpu.rank
    shape, rows = workload.shape, workload.rows_at(rank)
    copied = int(workload.distinct[:, rank].sum()) + int(rows.sum())
    yield from gpu.move(copied * shape.dispatch_bytes, "permute")
    cluster.first_ready(rank)
    cluster.all_ready(rank)
    yield from experts(gpu, rows)
    yield from gpu.move(copied * shape.combine_bytes, "unpermute")


# -- V1, throughput --------------------------------------------------------------------------------


def _normal_exchange(cluster, row, sms, back=False):
    """Half of the SMs send. What their stores leave of a link is V2's: they are bound by SMs where
    V1 was measured on fast links."""
    system = constants("deepep_v1_normal")
    rate = (sms or system.sms) // 2 * system.sm_gbps
    return once_to_each_rank(cluster, "deepep_v2", row, back, sm_gbps=rate)


def normal_dispatch(cluster, cached=False, sms=None):
    """Exchange of V1's dispatch: rings of (rank, channel), their senders and receivers on ``sms``
    SMs."""
    row = dispatch_row_bytes(cluster.workload.shape, "deepep_v1_normal", cached=cached)
    return _normal_exchange(cluster, row, sms)


def normal_combine(cluster, sms=None):
    """Exchange of V1's combine, the same way back; the receiver adds up."""
    return _normal_exchange(cluster, cluster.workload.shape.combine_bytes, sms, back=True)


def normal_notify(cluster, gpu):
    """Counts of rows per rank and expert: layout, then barriers around an exchange; the host spins
    on the sums."""
    system, host = constants("deepep_v1_normal"), constants("host")
    tensor = host.allocation_us
    layout = host.extension_us + system.layout_allocations * tensor
    yield from gpu.kernel(system.layout_us, "layout", layout)
    yield from gpu.launch(host.extension_us + system.notify_allocations * tensor)
    for _ in range(system.notify_barriers - 1):
        yield from cluster.device_barrier(gpu.rank)
    yield from cluster.exchange(gpu.rank, 4 * cluster.workload.shape.experts)
    yield from cluster.device_barrier(gpu.rank)
    yield from gpu.host_sync(extra_us=system.allocations * tensor)


def _normal(cluster, gpu, exchanges):
    system, (dispatch, combine) = constants("deepep_v1_normal"), exchanges
    yield from cluster.gate(gpu)
    yield from normal_notify(cluster, gpu)
    yield from copy_kernel(cluster, gpu, dispatch, "dispatch", system.sms)
    yield from permuted_experts(cluster, gpu)
    host = constants("host")
    us = host.extension_us + system.combine_allocations * host.allocation_us
    yield from gpu.move(CACHED_BYTES, "combine", host_us=us)
    yield from cluster.device_barrier(gpu.rank)
    yield from copy_kernel(cluster, gpu, combine, "combine", system.sms)
    cluster.done(gpu.rank)


def deepep_v1_normal(cluster):
    """V1's kernels for throughput, with the counts exchanged first."""
    start(cluster, _normal, (normal_dispatch(cluster), normal_combine(cluster)))


# -- V1, low latency -------------------------------------------------------------------------------


def ll_sms(gpu, experts):
    """SMs of a low-latency kernel: as many as give each the same number of experts."""
    return -(-experts // -(-experts // gpu.sms))


def ll_dispatch(cluster, network=None):
    """Exchange of V1's low-latency dispatch: a row per token and expert into a slot of its own, no
    counts before."""
    row = cluster.workload.shape.dispatch_bytes + constants("deepep_v1_ll").header_bytes
    return RowExchange(cluster, cluster.workload.pair_rows * row, row, parts=1, network=network)


def ll_combine(cluster, network=None):
    """Exchange of V1's low-latency combine: an answer per token and expert; the receiver weighs and
    adds."""
    row = cluster.workload.shape.combine_bytes
    return RowExchange(cluster, cluster.workload.pair_rows.T * row, row, parts=1, network=network)


def ll_kernel(cluster, gpu, exchange, phase, copied_bytes, before_us=0.0):
    """Send, poll the flags of all (source, expert) pairs, then copy or add up what lies in the
    slots."""
    sms = min(ll_sms(gpu.gpu, cluster.workload.shape.experts), gpu.gpu.sms - 1)
    rate = min(gpu.gpu.stream_gbps, sms * gpu.gpu.sm_hbm_gbps)
    copy_us = gpu.gpu.grid_sync_us + copied_bytes / (rate * 1e3)
    host_us = call_us("deepep_v1_ll")
    yield from copy_kernel(cluster, gpu, exchange, phase, sms, before_us, copy_us, host_us)


def ll_copied(workload, rank):
    """(dispatch, combine): bytes that the receiving part of the two kernels reads and writes in
    memory."""
    taken, sent = int(workload.pair_rows[:, rank].sum()), int(workload.pair_rows[rank].sum())
    tokens = int(workload.tokens_of[rank])
    return 2 * taken * workload.shape.dispatch_bytes, (sent + tokens) * workload.shape.combine_bytes


def _low_latency(cluster, gpu, exchanges):
    system, workload, rank = constants("deepep_v1_ll"), cluster.workload, gpu.rank
    there, back = ll_copied(workload, rank)
    yield from cluster.gate(gpu)
    yield from ll_kernel(cluster, gpu, exchanges[0], "dispatch", there, system.kernel_us)
    cluster.first_ready(rank)
    cluster.all_ready(rank)
    yield from experts(gpu, workload.rows_at(rank))  # masked GEMM: slots without a row cost nothing
    yield from ll_kernel(cluster, gpu, exchanges[1], "combine", back, system.kernel_us)
    cluster.done(rank)


def deepep_v1_ll(cluster):
    """V1's kernels for low latency."""
    start(cluster, _low_latency, (ll_dispatch(cluster), ll_combine(cluster)))


# -- V2 --------------------------------------------------------------------------------------------


def _v2_exchange(cluster, row, sms, back=False):
    system = constants("deepep_v2")
    rate = (sms or system.sms) * system.sm_gbps
    return once_to_each_rank(cluster, "deepep_v2", row, back, sm_gbps=rate)


def v2_dispatch(cluster, sms=None):
    """Exchange of V2's dispatch: slots by atomics per destination rank, rows by TMA, counts beside
    them."""
    return _v2_exchange(cluster, dispatch_row_bytes(cluster.workload.shape, "deepep_v2"), sms)


def v2_combine(cluster, sms=None):
    """Exchange of V2's combine: a row per token and rank, added up by the epilogue."""
    return _v2_exchange(cluster, cluster.workload.shape.combine_bytes, sms, back=True)


def _v2(cluster, gpu, exchanges):
    system, workload, rank = constants("deepep_v2"), cluster.workload, gpu.rank
    dispatch, combine = exchanges
    us = call_us("deepep_v2")
    yield from cluster.gate(gpu)
    yield from copy_kernel(cluster, gpu, dispatch, "dispatch", system.sms, host_us=us)
    yield from cluster.device_barrier(rank)
    # dispatch_copy_epilogue: from a slot per source rank to the experts' order.
    yield from permuted_experts(cluster, gpu)
    yield from copy_kernel(cluster, gpu, combine, "combine", system.sms, host_us=us)
    yield from cluster.device_barrier(rank)
    # combine_reduce_epilogue: sum over the ranks of a token.
    tokens, parts = int(workload.tokens_of[rank]), int(workload.distinct[rank].sum())
    yield from gpu.move((parts + tokens) * workload.shape.combine_bytes, "combine")
    cluster.done(rank)


def deepep_v2(cluster):
    """V2, no count known to the host, worst-case buffers."""
    start(cluster, _v2, (v2_dispatch(cluster), v2_combine(cluster)))


SCHEMES = {
    "deepep_v1_normal": Scheme(deepep_v1_normal, "DeepEP V1", "#7d5ba6", place=5),
    "deepep_v1_ll": Scheme(deepep_v1_ll, "DeepEP V1 LL", "#b39ddb", place=6),
    "deepep_v2": Scheme(deepep_v2, "DeepEP V2", "#2a6f97", place=7),
}
