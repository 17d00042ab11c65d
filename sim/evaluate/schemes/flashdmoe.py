# SPDX-License-Identifier: Apache-2.0
"""FlashDMoE: gate, dispatch, both GEMMs and combine in one persistent kernel, tile tasks started by
flags.

Source: osayamenja/FlashMoE 1a77aed
``csrc/include/flashmoe/{types,moe/moe,os/packet,os/scheduler}.cuh``. Each source rank has a slot
per expert; one flag per (source rank, expert) says that its rows are there, and their tiles are
scheduled at once. A tile has rows of one source and one expert, and a tile that is not full takes
as long as a full one. A token with several experts on a rank is sent for each. Published in FP32
(through TF32 tensor cores); FP16 is the same protocol with half the bytes and the same fraction of
the tensor cores' peak, which is assumed. Unlike the published configuration no token is dropped.
"""

from functools import partial
from math import ceil

from sim.evaluate.machine.compute import expert_gemms
from sim.evaluate.systems import constants

from .scheme import Scheme
from .steps import start

__all__ = ["SCHEMES", "flashdmoe"]

ELEMENT_BYTES = {"fp16": 2, "fp32": 4}


def flashdmoe(cluster, dtype="fp16"):
    """One process per rank; ``dtype``: ``fp16`` or ``fp32``, of rows, weights and answers."""
    workload, ranks = cluster.workload, cluster.machine.ranks
    inbox = [[int(workload.rows[rank].sum()), cluster.env.event()] for rank in range(ranks)]
    arrivals = [
        [int((workload.rows[:, workload.experts_of(rank)] > 0).sum())] for rank in range(ranks)
    ]
    start(cluster, _rank, dtype, inbox, arrivals)


def _rank(cluster, gpu, dtype, inbox, arrivals):
    workload, rank, system = cluster.workload, gpu.rank, constants("flashdmoe")
    row = ELEMENT_BYTES[dtype] * workload.shape.row
    yield from gpu.launch()
    yield from gpu.hold(system.os_blocks)
    # Gate in the same kernel: a barrier of the grid where there would be a launch.
    yield cluster.env.timeout(cluster.gate_us(rank) - gpu.gpu.kernel_gap_us + gpu.gpu.grid_sync_us)
    with cluster.phase(rank, "dispatch"):
        left = []
        ranks = cluster.machine.ranks
        for step in range(ranks):
            peer = (rank + step) % ranks
            for number, expert in enumerate(workload.experts_of(peer)):
                rows = int(workload.rows[rank, expert])
                if rows:
                    sent = cluster.network.send(
                        rank, peer, rows * row + system.signal_bytes, row_bytes=row
                    )
                    sent.callbacks.append(
                        lambda _, peer=peer, number=number, rows=rows: cluster.env.process(
                            _work(
                                cluster,
                                cluster.gpus[peer],
                                rank,
                                number,
                                rows,
                                dtype,
                                inbox,
                                arrivals,
                            )
                        )
                    )
                    left.append(sent.left)
        yield cluster.env.all_of(left)
    with cluster.phase(rank, "experts and combine"):
        yield inbox[rank][1]
    gpu.release(system.os_blocks)
    cluster.done(rank)


def _work(cluster, gpu, source, number, rows, dtype, inbox, arrivals):
    """Tasks of the rows of one source and one expert: GEMM1, GEMM2, results back, weighed sum at
    the source."""
    system, shape, size = constants("flashdmoe"), cluster.workload.shape, ELEMENT_BYTES[dtype]
    yield from gpu.poll()
    cluster.first_ready(gpu.rank)
    arrivals[gpu.rank][0] -= 1
    if not arrivals[gpu.rank][0]:
        cluster.all_ready(gpu.rank)
    tiles, answer = ceil(rows / system.tile_rows), size * shape.row
    for gemm in expert_gemms(shape):
        blocks = tiles * ceil(gemm.n / system.tile_columns)
        rate = gpu.gpu.peak_tflops(dtype) * system.gemm_efficiency * 1e6 / gpu.gpu.sms
        block_us = 2 * system.tile_rows * system.tile_columns * gemm.k / rate
        weights = gpu.times.weights((gemm.n, gemm.k, number), gemm.n * gemm.k * size)
        yield gpu.compute(blocks, block_us, weights + rows * (gemm.k + gemm.n) * size)
    yield cluster.network.send(
        gpu.rank, source, rows * answer + system.signal_bytes, row_bytes=answer
    )
    home = cluster.gpus[source]
    yield from home.poll()
    columns = ceil(shape.row / system.tile_columns)
    moved = system.tile_rows * system.tile_columns * size * 3
    yield home.compute(tiles * columns, moved / (home.gpu.sm_hbm_gbps * 1e3), rows * answer * 3)
    box = inbox[source]
    box[0] -= rows
    if not box[0]:
        box[1].succeed()


SCHEMES = {
    "flashdmoe_fp16": Scheme(
        partial(flashdmoe, dtype="fp16"), "FlashDMoE FP16", "#b56576", place=9
    ),
    "flashdmoe_fp32": Scheme(
        partial(flashdmoe, dtype="fp32"), "FlashDMoE FP32", "#e5b3bb", place=10
    ),
}
