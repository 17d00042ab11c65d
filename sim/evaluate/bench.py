# SPDX-License-Identifier: Apache-2.0
"""Parts of a layer run alone, as the systems' own benchmarks do: one dispatch, one combine, one
fused GEMM.

Every function returns microseconds; ranks start together. Machines of several nodes have a second
network for what leaves a node, the network cards: :class:`TwoLevel`.
"""

from dataclasses import replace

import numpy as np

from sim.evaluate.machine.compute import Gemm
from sim.evaluate.machine.engine import Cluster
from sim.evaluate.machine.network import Network
from sim.evaluate.schemes import comet, deepep, mori, nccl
from sim.evaluate.schemes.steps import ScaledGemm, copy_kernel, stock_fabric

from .systems import constants

__all__ = [
    "TwoLevel",
    "alltoall_us",
    "comet_layer",
    "combine_us",
    "dispatch_call_us",
    "dispatch_us",
    "flag_us",
]


class TwoLevel:
    """Two networks behind one ``send``: NVLink between ranks of a node, one network card per GPU
    between nodes."""

    def __init__(self, cluster, node_ranks, nic_gbps):
        wires = replace(cluster.network.settings, rate=nic_gbps * 1e3, header_flits=0)
        self.near, self.far, self.node_ranks = (
            cluster.network,
            Network(cluster.env, settings=wires),
            node_ranks,
        )

    def send(self, src, dst, payload_bytes, **options):
        network = self.near if src // self.node_ranks == dst // self.node_ranks else self.far
        return network.send(src, dst, payload_bytes, **options)


def _run(machine, workload, process, ahead=True):
    """Time at which the last rank ends; ``process(cluster)`` gives a function that makes the
    process of a GPU. ``ahead``: the hosts are; else they begin with the first call."""
    cluster = Cluster(machine, workload, leads=None if ahead else [0.0] * machine.ranks)
    stock_fabric(cluster)
    rank_process = process(cluster)
    running = [cluster.env.process(rank_process(gpu)) for gpu in cluster.gpus]
    cluster.env.run(cluster.env.all_of(running))
    return cluster.env.now


def _normal(workload, way, options):
    def process(cluster):
        sms = options.get("sms", constants("deepep_v1_normal").sms)
        exchange = (
            deepep.normal_dispatch(cluster, cached=True, sms=sms)
            if way == "dispatch"
            else deepep.normal_combine(cluster, sms=sms)
        )

        def rank(gpu):
            # The layout is known (cached handle): prefix sums and a barrier, then the copy.
            yield from gpu.move(deepep.CACHED_BYTES)
            yield from cluster.device_barrier(gpu.rank)
            yield from copy_kernel(cluster, gpu, exchange, None, sms)

        return rank

    return process


def _low_latency(workload, way, options):
    def process(cluster):
        system, network = constants("deepep_v1_ll"), None
        before = (
            system.kernel_us
        )  # a message through a network card takes longer to post and to pass
        if "nodes_of" in options:
            network = TwoLevel(
                cluster, options["nodes_of"], options["nic_gbps"] * system.rdma_efficiency
            )
            before += system.rdma_us
        exchange = (deepep.ll_dispatch if way == "dispatch" else deepep.ll_combine)(
            cluster, network
        )

        def rank(gpu):
            copied = deepep.ll_copied(workload, gpu.rank)[way == "combine"]
            yield from deepep.ll_kernel(cluster, gpu, exchange, None, copied, before)

        return rank

    return process


def _v2(workload, way, options):
    def process(cluster):
        sms = options.get("sms", constants("deepep_v2").sms)
        exchange = (deepep.v2_dispatch if way == "dispatch" else deepep.v2_combine)(cluster, sms)

        def rank(gpu):
            yield from copy_kernel(cluster, gpu, exchange, None, sms)
            yield from cluster.device_barrier(gpu.rank)

        return rank

    return process


def _mori(workload, way, options):
    def process(cluster):
        exchange = (mori.dispatch if way == "dispatch" else mori.combine)(cluster)
        return lambda gpu: mori.kernel(cluster, gpu, exchange, None)

    return process


KERNELS = {
    "deepep_v1_normal": _normal,
    "deepep_v1_ll": _low_latency,
    "deepep_v2": _v2,
    "mori": _mori,
}


def dispatch_us(system, machine, workload, options):
    """Dispatch of ``system`` alone; ``options``: ``sms``, and ``nodes_of`` with ``nic_gbps`` for
    several nodes."""
    return _run(machine, workload, KERNELS[system](workload, "dispatch", options))


def combine_us(system, machine, workload, options):
    """Combine of ``system`` alone, see :func:`dispatch_us`."""
    return _run(machine, workload, KERNELS[system](workload, "combine", options))


def dispatch_call_us(machine, workload):
    """DeepEP V1's dispatch with what comes before it: layout, counts, the host's wait."""

    def process(cluster):
        exchange = deepep.normal_dispatch(cluster)

        def rank(gpu):
            yield from deepep.normal_notify(cluster, gpu)
            yield from copy_kernel(cluster, gpu, exchange, None, constants("deepep_v1_normal").sms)

        return rank

    return _run(machine, workload, process, ahead=False)


def comet_layer(number, machine, workload, tensor_parallel, own=()):
    """COMET's layer 0 or 1 alone, experts of one matrix each, their columns shared by
    ``tensor_parallel`` ranks. ``own``: workloads, by one of which each rank chooses the rows that
    it computes in layer 0, as a benchmark does whose ranks draw them apart."""
    shape, placement = workload.shape, comet.Placement(workload, tensor_parallel)
    for rank, drawn in enumerate(own):
        placement.rows_at[rank] = comet.Placement(drawn, tensor_parallel).rows_at[rank]

    def process(cluster):
        inbox = comet.inboxes(cluster)

        def rank(gpu):
            if number == 0:
                gather = ScaledGemm(
                    shape.inter // tensor_parallel,
                    shape.hidden,
                    efficiency=constants("comet").gather_gemm_efficiency,
                )
                yield from comet.prepare(cluster, gpu)
                yield from comet.layer0(cluster, gpu, placement, gather)
            else:
                gemm = Gemm(shape.hidden, shape.inter // tensor_parallel)
                yield from comet.layer1(cluster, gpu, placement, gemm, inbox)

        return rank

    return _run(machine, workload, process)


def alltoall_us(machine, workload, size):
    """NCCL's all-to-all: every rank sends an equal part of ``size`` bytes to each, its own
    included."""
    each = np.full((machine.ranks, machine.ranks), size // machine.ranks)

    def process(cluster):
        stock_fabric(cluster, size)
        exchange = nccl.SendRecv(cluster, each)
        return lambda gpu: nccl.collective(cluster, gpu, exchange, None, "all-to-all", None)

    return _run(machine, workload, process)


def flag_us(machine, workload):
    """A flag stored by one GPU, seen by a poll at another."""

    def process(cluster):
        def rank(gpu):
            if gpu.rank == 0:
                yield cluster.network.send(0, 1, 8)
                yield from gpu.poll()
            else:
                yield cluster.env.timeout(0)

        return rank

    return _run(machine, workload, process)
