# SPDX-License-Identifier: Apache-2.0
"""DeepEP V1's low-latency kernels in their form with a hook, which is there for overlap.

Source: deepseek-ai/DeepEP dd758ca, ``csrc/kernels/legacy/internode_ll.cu``, ``return_recv_hook``: a
kernel that sends, on nearly all SMs, and one that receives, which is launched when its rows are
wanted. Between the two no SM is taken. Over NVLink the SMs store the rows themselves, so the first
lasts until they have left.
"""

from sim.evaluate.schemes.deepep import ll_combine, ll_copied, ll_dispatch
from sim.evaluate.schemes.steps import experts, start
from sim.evaluate.systems import constants

__all__ = ["HOOKED"]


def _send(cluster, gpu, exchange, phase):
    with cluster.phase(gpu.rank, phase):
        yield from gpu.launch()
        cluster.communicates(gpu.rank)
        us = constants("deepep_v1_ll").kernel_us + exchange.seconds_us(gpu.rank)
        kernel = cluster.env.process(gpu.blocks(us))
        yield from exchange.run(gpu.rank)
        yield kernel


def _receive(cluster, gpu, exchange, phase, copied_bytes):
    with cluster.phase(gpu.rank, phase):
        yield exchange.arrived[gpu.rank]
    with cluster.phase(gpu.rank, phase):
        yield from gpu.launch()
        yield from gpu.poll()
        yield from gpu.blocks(gpu.gpu.grid_sync_us + copied_bytes / (gpu.gpu.stream_gbps * 1e3))


def _rank(cluster, gpu, exchanges):
    workload, rank = cluster.workload, gpu.rank
    there, back = ll_copied(workload, rank)
    yield from cluster.gate(gpu)
    yield from _send(cluster, gpu, exchanges[0], "dispatch")
    yield from _receive(cluster, gpu, exchanges[0], "dispatch", there)
    cluster.first_ready(rank)
    cluster.all_ready(rank)
    yield from experts(gpu, workload.rows_at(rank))
    yield from _send(cluster, gpu, exchanges[1], "combine")
    yield from _receive(cluster, gpu, exchanges[1], "combine", back)
    cluster.done(rank)


def deepep_v1_ll(cluster):
    """V1's kernels for low latency, send and receive apart; on a :class:`.streams.Layer`."""
    start(cluster, _rank, (ll_dispatch(cluster), ll_combine(cluster)))


#: What a system does otherwise when something runs beside its layer.
HOOKED = {"deepep_v1_ll": deepep_v1_ll}
