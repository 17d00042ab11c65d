"""Megatron-LM with Transformer Engine: the all-to-all dispatcher, every step a kernel, counts known to the host first.

Source: NVIDIA/Megatron-LM ``megatron/core/transformer/moe/token_dispatcher.py`` (MoEAlltoAllTokenDispatcher),
``router.py``, ``experts.py`` (TEGroupedMLP); NVIDIA/TransformerEngine ``permutation.py``.
"""

import numpy as np

from ..compute import expert_gemms, pass_us
from ..systems import constants

__all__ = ["SCHEMES", "megatron"]

COUNT_OPS = 6           # preprocess(): sum of the map, reshape, sums over ranks and experts, casts, each a small kernel
PERMUTE_OPS = 2         # permutation.py: row id map, then the permutation itself
SMALL_BYTES = 64e3      # what such a small kernel moves


def megatron(cluster):
    """One process per rank."""
    for gpu in cluster.gpus:
        cluster.env.process(_rank(cluster, gpu))


def _rank(cluster, gpu):
    host, workload, rank = constants("host"), cluster.workload, gpu.rank
    shape, rows, pairs = workload.shape, workload.rows_at(rank), workload.pair_rows
    tokens, sent, taken = int(workload.tokens_of[rank]), int(pairs[rank].sum()), int(rows.sum())
    op, row, answer = host.eager_op_us, shape.dispatch_bytes, shape.combine_bytes

    def small(count, phase):
        for _ in range(count):
            yield from gpu.move(SMALL_BYTES, phase, host_us=op)

    def collective(bytes_to, phase, **options):
        """An NCCL all-to-all: its kernel, its start on all ranks, the transfers."""
        with cluster.phase(rank, phase):
            yield from gpu.launch(op)
            yield from cluster.meet(rank, phase)
            yield cluster.env.timeout(host.collective_us)
            yield from cluster.all_to_all(rank, bytes_to, phase, **options)

    # 1. Router.
    yield from gpu.kernel(cluster.gate_us(rank), "gate", op)
    yield from small(host.gate_ops - 2, "gate")
    # 2. Counts of every rank to every rank; the host needs them for the sizes of the all-to-all and of the GEMMs.
    yield from small(COUNT_OPS, "counts")
    yield from collective(np.full(cluster.machine.ranks, 8 * shape.experts), "counts")
    yield from gpu.host_sync(extra_us=op)
    # 3. Rows in the order of their experts, then to the ranks that hold these.
    yield from small(PERMUTE_OPS - 1, "permute")
    yield from gpu.move((tokens + sent) * row, "permute", host_us=op)
    yield from collective(pairs[rank] * row, "dispatch", row_bytes=row)
    cluster.first_ready(rank)
    cluster.all_ready(rank)
    # 4. Rows of one expert together, when there are several.
    if len(rows) > 1:
        yield from gpu.move(2 * taken * row, "permute", host_us=op)
    # 5. Expert.
    first, second = expert_gemms(shape)
    yield from _grouped(gpu, first, rows, "gemm1", op)
    yield from gpu.kernel(pass_us(gpu.gpu, taken * 6 * shape.inter), "activation", op)
    yield from _grouped(gpu, second, rows, "gemm2", op)
    # 6. The way back.
    if len(rows) > 1:
        yield from gpu.move(2 * taken * answer, "unpermute", host_us=op)
    yield from collective(pairs[:, rank] * answer, "combine", row_bytes=answer)
    yield from gpu.move((sent + tokens) * answer, "unpermute", host_us=op)
    cluster.done(rank)


def _grouped(gpu, gemm, rows, phase, op):
    """TEGroupedMLP: one cuBLAS call per local expert, on several streams; the host launches them one by one."""
    gpu.host_at += op + gpu.gpu.launch_us * (len(rows) - 1)
    yield from gpu.gemm(gemm, rows, phase)


SCHEMES = {"megatron": megatron}
