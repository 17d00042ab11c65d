# SPDX-License-Identifier: Apache-2.0
"""Tutel: rows padded to one capacity per expert, all-to-all in chunks of the capacity that overlap
with the experts' GEMMs.

Source: microsoft/tutel ``tutel/impls/{moe_layer,fast_dispatch,overlap}.py``,
``tutel/experts/{ffn,llama_ffn}.py``. The capacity factor is 0: the capacity is the largest number
of rows that any rank has for any expert, so that no token is dropped. Without the host's wait for
it the factor is 1, and what is above an expert's even share is dropped.
"""

from math import ceil

import numpy as np

from sim.evaluate.machine.compute import expert_gemms
from sim.evaluate.systems import constants

from .nccl import SendRecv, collective, exchange_counts
from .scheme import Scheme
from .steps import fastest, small_ops, start

__all__ = ["SCHEMES", "capacity", "pipelined", "tutel"]


def capacity(workload, degree):
    """Rows per expert and source rank after padding, a multiple of the number of chunks (128 of
    those above 256)."""
    rows = int(workload.rows.max())
    if not constants("tutel").host_syncs:
        shape = workload.shape
        rows = shape.top_k * ceil(int(workload.tokens_of.max()) / shape.experts)
    step = degree if rows <= 256 else 128
    return ceil(rows / step) * step


def tutel(cluster):
    """Adaptive pipelining: as many chunks as make the layer fastest."""
    degrees = tuple(2**power for power in range(constants("tutel").overlap_degrees))
    pipelined(cluster, fastest(cluster, pipelined, degrees))


def pipelined(cluster, degree):
    """One process per rank; ``degree`` chunks."""
    workload = cluster.workload
    rows = capacity(workload, degree) // degree
    local = np.array([len(workload.experts_of(rank)) for rank in range(workload.ranks)])
    shape = workload.shape
    there, back = (
        np.tile(local * rows, (workload.ranks, 1)),
        np.tile((local * rows)[:, None], (1, workload.ranks)),
    )
    chunks = [
        (
            SendRecv(cluster, there * shape.dispatch_bytes),
            SendRecv(cluster, back * shape.combine_bytes),
        )
        for _ in range(degree)
    ]
    start(cluster, _rank, chunks, rows)


def _rank(cluster, gpu, chunks, rows):
    host, system, workload, rank = constants("host"), constants("tutel"), cluster.workload, gpu.rank
    shape, op, tokens, ranks = (
        workload.shape,
        host.eager_op_us,
        int(workload.tokens_of[rank]),
        workload.ranks,
    )
    sent, local = tokens * shape.top_k, len(workload.experts_of(rank))
    padded = shape.experts * rows * len(chunks)
    # 1. Gate; place of each row in its expert by one-hot masks and sums over tokens, once per
    # choice. The running sum is a kernel of its own, which makes the tensor that it writes.
    yield from gpu.kernel(cluster.gate_us(rank), "gate", op)
    yield from small_ops(gpu, system.gate_ops, "gate")
    for _ in range(shape.top_k):
        for tensor in (host.allocation_us, *[0.0] * (system.gate_ops_per_choice - 1)):
            yield from gpu.move(8 * tokens * shape.experts, "gate", host_us=op + tensor)
    # 2. The largest count of all ranks is the capacity; the host needs it for the sizes. With a
    # capacity that is given nobody is asked.
    if system.host_syncs:
        yield from exchange_counts(cluster, gpu, 8, steps=2 * (ranks - 1))
    for _ in range(system.host_syncs):
        yield from gpu.host_sync(extra_us=host.read_us)
    # 3. Rows into [experts, capacity] (fast_encode): zeros, then the rows; casts there and back
    # where that is not done in the layer's type.
    wide = system.encode_bytes_scale
    casts = wide > 1
    if casts:
        yield from gpu.move((1 + wide) * tokens * shape.dispatch_bytes, "permute", host_us=op)
    yield from gpu.move(wide * padded * shape.dispatch_bytes, "permute", host_us=op)
    function = host.function_us  # of autograd, around encoding and decoding, and all-to-alls
    yield from gpu.move(
        wide * (tokens + sent) * shape.dispatch_bytes,
        "permute",
        host_us=op * shape.top_k + function,
    )
    if casts:
        yield from gpu.move((1 + wide) * padded * shape.dispatch_bytes, "permute", host_us=op)
    reads = system.expert_count_reads
    if reads:
        yield from gpu.host_sync(extra_us=host.read_us)
    # 4. Chunk by chunk, on two streams: all-to-all, expert, all-to-all back.
    taken = [cluster.env.event() for _ in chunks]
    answered = [cluster.env.event() for _ in chunks]
    over = cluster.env.process(_communicate(cluster, gpu, chunks, taken, answered))
    first, second = expert_gemms(shape)
    for number, arrived in enumerate(taken):
        yield arrived
        cluster.first_ready(rank)
        if number == len(chunks) - 1:
            cluster.all_ready(rank)
        batch = [rows * ranks] * local
        if local > 1:
            yield from gpu.move(2 * sum(batch) * shape.dispatch_bytes, "permute", host_us=op)
        yield from gpu.gemm(first, batch, "gemm1", host_us=op)
        if system.bias_adds:
            yield from gpu.move(sum(batch) * shape.inter * 6, "gemm1", host_us=op)
        yield from gpu.move(sum(batch) * shape.inter * 6, "activation", host_us=op)
        yield from gpu.gemm(second, batch, "gemm2", host_us=op)
        if system.bias_adds:
            yield from gpu.move(2 * sum(batch) * shape.combine_bytes, "gemm2", host_us=op)
        if local > 1:
            yield from gpu.move(2 * sum(batch) * shape.combine_bytes, "unpermute", host_us=op)
        answered[number].succeed()
    yield over
    for _ in range(1, reads):
        yield from gpu.host_sync(extra_us=host.read_us)
    # 5. fast_decode: one pass per choice, into a tensor of its own, and a sum for each but the
    # first.
    if casts:
        yield from gpu.move((1 + wide) * padded * shape.combine_bytes, "unpermute", host_us=op)
    yield from gpu.move(
        wide * (sent + tokens * shape.top_k) * shape.combine_bytes,
        "unpermute",
        host_us=(op + host.allocation_us) * shape.top_k + function,
    )
    for _ in range(1, shape.top_k):
        yield from gpu.move(3 * wide * tokens * shape.combine_bytes, "unpermute", host_us=op)
    if casts:
        yield from gpu.move((1 + wide) * tokens * shape.combine_bytes, "unpermute", host_us=op)
    cluster.done(rank)


def _communicate(cluster, gpu, chunks, taken, answered):
    """The communication stream: dispatch of all chunks first, then the answers in order."""
    host, beside = constants("host"), len(chunks) > 1
    us = host.collective_us + 2 * host.function_us  # around the call, and around its wait
    for number, (there, _) in enumerate(chunks):
        yield from collective(cluster, gpu, there, "dispatch", f"there {number}", us, beside)
        taken[number].succeed()
    for number, (_, back) in enumerate(chunks):
        yield answered[number]
        yield from collective(cluster, gpu, back, "combine", f"back {number}", us, beside)


SCHEMES = {
    "tutel": Scheme(tutel, "Tutel", "#c97b63", place=2),
}
