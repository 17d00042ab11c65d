# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM with Transformer Engine: every step a kernel, sizes known to the host first. Rows
travel by the all-to-all dispatcher; with ``gather_all`` by the all-gather dispatcher, which brings
every token to every rank.

Source: NVIDIA/Megatron-LM d98e8a6 ``megatron/core/transformer/moe/token_dispatcher.py``
(MoEAlltoAllTokenDispatcher, no token dropped), ``router.py``, ``experts.py`` (TEGroupedMLP), with
the fused permutation of NVIDIA/TransformerEngine (``--moe-permute-fusion``; without it there are
more kernels and host synchronisations). The all-gather dispatcher (MoEAllGatherTokenDispatcher) as
COMET's authors compare with it, ZSL98/Megatron-LM 2e0afa9, with their moe_gather and moe_scatter;
with ``synchronizes`` the host waits for the GPU behind each layer, as in their measurement.
"""

from sim.evaluate.machine.compute import expert_gemms, pass_us
from sim.evaluate.systems import constants

from .comet import Placement, shared_gemms
from .nccl import SendRecv, collective, exchange_counts, ring_of_rows
from .scheme import Scheme
from .steps import counted, small_ops, start

__all__ = ["SCHEMES", "gathered", "megatron"]

COUNT_OPS = (
    7  # preprocess(): sum of the map, cast, sums over ranks, slice, three sums of what was gathered
)
MAP_OPS = 3  # TransformerEngine permutation.py: the row id map takes three kernels
COPIES = (
    5  # _maybe_dtoh_and_synchronize(): tensors of counts copied to the host before the all-to-all
)
COPY_US = 2.4  # of each after the first; see host_sync_us in hardware.toml
PROBABILITY_BYTES = 4  # the routing weights travel in an all-to-all of their own
INDEX_BYTES = 8  # of a choice, in the all-gather
MASK_OPS = 3  # token_permutation(): two comparisons, and


def megatron(cluster):
    """One process per rank. Raises ValueError for shared columns without the all-gather
    dispatcher."""
    system = constants("megatron")
    if system.gather_all:
        gathered(cluster, system.tensor_parallel)
        return
    if system.tensor_parallel != 1:
        raise ValueError(
            f"megatron.tensor_parallel = {system.tensor_parallel}: must be 1 without "
            "megatron.gather_all = 1"
        )
    shape, pairs = cluster.workload.shape, cluster.workload.pair_rows
    there = SendRecv(cluster, pairs * shape.dispatch_bytes)
    weights = SendRecv(cluster, pairs * PROBABILITY_BYTES, rows=False)
    start(cluster, _rank, there, weights, SendRecv(cluster, pairs.T * shape.combine_bytes))


def gathered(cluster, tensor_parallel=1):
    """The all-gather dispatcher, ``tensor_parallel`` ranks sharing the columns of each expert."""
    start(cluster, _rank_gathered, Placement(cluster.workload, tensor_parallel))


def _rank(cluster, gpu, there, weights, back):
    host, workload, rank = constants("host"), cluster.workload, gpu.rank
    shape, rows, pairs = workload.shape, workload.rows_at(rank), workload.pair_rows
    tokens, sent, taken = int(workload.tokens_of[rank]), int(pairs[rank].sum()), int(rows.sum())
    op, row, answer = host.eager_op_us, shape.dispatch_bytes, shape.combine_bytes
    function = host.function_us  # of autograd, around permutations and all-to-alls

    def all_to_all(exchange, phase, group):
        host_us = host.collective_us + function
        return collective(cluster, gpu, exchange, phase, group, host_us, beside=True)

    # 1. Router.
    yield from gpu.kernel(cluster.gate_us(rank), "gate", op)
    yield from small_ops(gpu, host.gate_ops - 2, "gate")
    # 2. Counts of every rank to every rank.
    yield from small_ops(gpu, COUNT_OPS, "counts")
    yield from exchange_counts(cluster, gpu, 8 * shape.experts)
    # 3. Rows in the order of their experts; the host needs the counts for the sizes of what
    # follows.
    yield from small_ops(gpu, MAP_OPS, "permute")
    yield from gpu.move((tokens + sent) * row, "permute", host_us=op + function)
    yield from gpu.host_sync(extra_us=host.read_us + (COPIES - 1) * COPY_US)
    # 4. Rows, then their weights, to the ranks that hold the experts.
    yield from all_to_all(there, "dispatch", "dispatch")
    yield from all_to_all(weights, "dispatch", "probabilities")
    cluster.first_ready(rank)
    cluster.all_ready(rank)
    # 5. Rows of one expert together, when there are several.
    if len(rows) > 1:
        yield from small_ops(gpu, 1, "permute")
        yield from gpu.move(2 * taken * row, "permute", host_us=op + function)
    # 6. Expert.
    first, second = expert_gemms(shape)
    yield from _grouped(gpu, first, rows, "gemm1", host)
    yield from gpu.kernel(pass_us(gpu.gpu, taken * 6 * shape.inter), "activation", op + function)
    yield from _grouped(gpu, second, rows, "gemm2", host)
    # 7. The way back.
    if len(rows) > 1:
        yield from small_ops(gpu, 1, "unpermute")
        yield from gpu.move(2 * taken * answer, "unpermute", host_us=op + function)
    yield from all_to_all(back, "combine", "combine")
    yield from gpu.move((sent + tokens) * answer, "unpermute", host_us=op + function)
    cluster.done(rank)


def _rank_gathered(cluster, gpu, placement):
    host, workload, rank = constants("host"), cluster.workload, gpu.rank
    shape, split = workload.shape, placement.tensor_parallel
    rows = placement.rows_at[rank].sum(axis=0)
    own, tokens, taken = int(workload.tokens_of[rank]), workload.tokens, int(rows.sum())
    op, row, answer = host.eager_op_us, shape.dispatch_bytes, shape.combine_bytes
    function = host.function_us  # of autograd, around gathers, scatters and collectives

    def selected(count, phase):
        """Operations whose results' size the host has to know."""
        yield from small_ops(gpu, count, phase)
        yield from gpu.host_sync(extra_us=host.read_us)

    # 1. Router, which counts the choices.
    yield from cluster.gate(gpu)
    yield from counted(gpu, "gate")
    # 2. Choices and weights of all tokens, then the tokens themselves.
    yield from exchange_counts(cluster, gpu, INDEX_BYTES * own * shape.top_k, "indices")
    yield from small_ops(gpu, MASK_OPS, "permute")
    yield from selected(1, "permute")
    yield from exchange_counts(
        cluster,
        gpu,
        PROBABILITY_BYTES * own * shape.top_k,
        "probabilities",
        host_us=host.collective_us + function,
    )
    yield from selected(1, "permute")
    us = host.collective_us + function
    yield from ring_of_rows(cluster, gpu, tokens * row, "dispatch", "dispatch", us)
    # 3. Those of the rank's experts, in the order of their experts.
    yield from selected(1, "permute")
    yield from _by_index(gpu, taken, 2 * row, "permute", op + function)
    yield from small_ops(gpu, 1, "permute")  # argsort
    yield from counted(gpu, "permute")
    yield from gpu.host_sync(extra_us=host.read_us)
    if len(rows) > 1:
        yield from _by_index(gpu, taken, 2 * row, "permute", op + function)
    cluster.first_ready(rank)
    cluster.all_ready(rank, taken)
    # 4. Expert.
    first, second = shared_gemms(shape, split)
    yield from _grouped(gpu, first, rows, "gemm1", host)
    passed = pass_us(gpu.gpu, taken * 6 * shape.inter // split)
    yield from gpu.kernel(passed, "activation", op + function)
    yield from _grouped(gpu, second, rows, "gemm2", host)
    # 5. The way back: zeros and a scatter with sums, a product with the weights, the same into
    # places of all tokens, sums of all ranks.
    if len(rows) > 1:
        yield from gpu.move(taken * answer, "unpermute", host_us=op + function)
        yield from _by_index(gpu, taken, 3 * answer, "unpermute", op)
    yield from gpu.move(2 * taken * answer, "unpermute", host_us=op)
    yield from gpu.move(tokens * answer, "unpermute", host_us=op + function)
    yield from _by_index(gpu, taken, 3 * answer, "unpermute", op)
    yield from ring_of_rows(cluster, gpu, tokens * answer, "combine", "combine", us)
    if constants("megatron").synchronizes:
        yield from gpu.host_sync()
    cluster.done(rank)


def _by_index(gpu, rows, row_bytes, phase, host_us):
    """A gather or scatter of rows by an expanded index, ``row_bytes`` moved for each: PyTorch deals
    with one element at a time."""
    elements = rows * gpu.cluster.workload.shape.hidden
    us = max(pass_us(gpu.gpu, rows * row_bytes), elements / constants("megatron").index_rate / 1e3)
    yield from gpu.kernel(us, phase, host_us)


def _grouped(gpu, gemm, rows, phase, host):
    """TEGroupedMLP's GroupedLinear: a module; one cuBLAS call per local expert, on several streams,
    which the host prepares and launches one by one."""
    us = host.module_us + host.grouped_gemm_us * len(rows)
    yield from gpu.gemm(gemm, rows, phase, host_us=us)


SCHEMES = {
    "megatron": Scheme(megatron, "Megatron-TE", "#8d99ae", place=0),
}
