# SPDX-License-Identifier: Apache-2.0
"""Steps that several software systems take: row exchanges by copy kernels, slower GEMMs."""

from dataclasses import dataclass, replace
from math import inf
from weakref import WeakKeyDictionary

import numpy as np

from sim.evaluate.machine.compute import Gemm, expert_gemms
from sim.evaluate.machine.engine import Cluster
from sim.evaluate.systems import all_constants, constants

__all__ = [
    "RowExchange",
    "ScaledGemm",
    "activation",
    "call_us",
    "copy_kernel",
    "counted",
    "experts",
    "fastest",
    "link_payload_gbps",
    "scaled_gemms",
    "small_ops",
    "start",
    "stock_fabric",
]

SMALL_BYTES = 64e3
# Turns of a rank's links while its rows leave: for each destination, at least, and at most.
TURNS_EACH, LEAST_TURNS, MOST_TURNS = 32, 250, 1000
PARTS = 64  # pieces of a pair's rows, times ranks, in which a copy kernel hands them to the network


@dataclass(frozen=True)
class ScaledGemm(Gemm):
    """A GEMM whose tiles take ``1 / efficiency`` times as long as those of the GPU model."""

    efficiency: float = 1.0

    def tile_us(self, gpu, rows):
        return super().tile_us(gpu, rows) / self.efficiency


def scaled_gemms(shape, efficiency):
    """(GEMM1, GEMM2) of an expert, slowed down."""
    return tuple(
        ScaledGemm(gemm.n, gemm.k, gemm.dtype, gemm.weight_bytes, efficiency=efficiency)
        for gemm in expert_gemms(shape)
    )


def link_payload_gbps(machine, packet_bytes=128):
    """GB/s of payload that one GPU's links carry in full packets, in one direction."""
    fabric = machine.fabric
    flits = -(-packet_bytes // fabric.flit_bytes)
    return fabric.link_gbps * packet_bytes / ((flits + fabric.header_flits) * fabric.flit_bytes)


def stock_fabric(cluster, sent_bytes=None):
    """Gives the cluster links of today's GPUs: no credits per destination, no hub's loopback path.

    What a rank sends takes 250 to 1,000 turns of its links, more with more destinations, of 8 KB
    at least: enough to be fair, few enough to be fast. ``sent_bytes``: that, the workload's rows by
    default.
    """
    workload = cluster.workload
    if sent_bytes is None:
        rows = workload.tokens * workload.shape.top_k // workload.ranks
        sent_bytes = rows * workload.shape.combine_bytes
    packets = sent_bytes // 128
    turns = min(max(TURNS_EACH * workload.ranks, LEAST_TURNS), MOST_TURNS)
    cluster.connect(
        replace(
            cluster.network.settings,
            places=None,
            local_rate=inf,
            batch_packets=max(64, packets // turns),
        )
    )


def start(cluster, process, *shared):
    """Starts ``process(cluster, gpu, *shared)`` for every rank, on links without a hub."""
    stock_fabric(cluster)
    for gpu in cluster.gpus:
        cluster.env.process(process(cluster, gpu, *shared))


_chosen = WeakKeyDictionary()  # {workload: {what a choice hangs on: (variant, its first layer)}}


def fastest(cluster, scheme, variants):
    """The one of ``variants`` with which ``scheme(cluster, variant)`` ends first, the first of
    equals: what a system that tunes itself settles on.

    Tried on the cluster's own machine, workload and network, with the constants in force; the
    cluster is told how its layer went in the trial.
    """
    known = _chosen.setdefault(cluster.workload, {})
    options = tuple(sorted(cluster.network_options.items()))
    key = (scheme, variants, cluster.machine, cluster.seed, options, all_constants())
    if key not in known:
        best = None
        for variant in variants:
            trial = Cluster(
                cluster.machine, cluster.workload, cluster.seed, **cluster.network_options
            )
            scheme(trial, variant)
            trial.env.run(until=best.us if best else None)
            if not best or trial.is_over:  # a slower one need not be run to its end
                first = trial.first_layer()
                best, known[key] = first[0], (variant, first)
    variant, cluster.tried = known[key]
    return variant


class RowExchange:
    """Rows that copy kernels of all ranks store to each other, each rank to all others in turn.

    ``bytes_to[src, dst]``; ``row_bytes``, of one row; ``efficiency``, fraction of the links'
    payload rate that the kernels reach; ``sm_gbps``, what all copying SMs of a rank move at most,
    rows that stay at the rank included (None: no limit); ``on_part(src, dst, part)``, called when
    that part of the pair's rows is in memory at ``dst``; ``network``, in place of the cluster's.
    ``arrived[rank]``: event, all rows for the rank are in its memory. Start every rank once by
    :meth:`run`.
    """

    def __init__(
        self,
        cluster,
        bytes_to,
        row_bytes,
        *,
        efficiency=1.0,
        sm_gbps=None,
        parts=None,
        on_part=None,
        network=None,
    ):
        parts = parts or max(2, PARTS // cluster.machine.ranks)
        self.cluster, self.env, self.network = cluster, cluster.env, network
        self.bytes_to, self.row_bytes, self.parts, self.on_part = (
            np.asarray(bytes_to),
            int(row_bytes),
            parts,
            on_part,
        )
        self.gbps, self.sm_gbps = efficiency * link_payload_gbps(cluster.machine), sm_gbps
        ranks = cluster.machine.ranks
        self.arrived = [self.env.event() for _ in range(ranks)]
        self._open = [ranks * parts] * ranks

    def seconds_us(self, rank):
        """Least time of the rank's copy kernel."""
        own = int(self.bytes_to[rank].sum())
        remote = own - int(self.bytes_to[rank, rank])
        return max(remote / (self.gbps * 1e3), own / (self.sm_gbps * 1e3) if self.sm_gbps else 0.0)

    def run(self, rank):
        """The rank's copy kernel: ends when its last row has left. A generator."""
        ranks, pace, left = self.cluster.machine.ranks, self.seconds_us(rank) / self.parts, []
        network = self.network or self.cluster.network
        order = [(rank + step) % ranks for step in range(ranks)]
        for part in range(self.parts):
            for dst in order:
                total = int(self.bytes_to[rank, dst])
                rows = total // self.row_bytes
                first, last = rows * part // self.parts, rows * (part + 1) // self.parts
                size = (last - first) * self.row_bytes
                if part == self.parts - 1:
                    size += total - rows * self.row_bytes
                sent = network.send(rank, dst, size, row_bytes=self.row_bytes)
                sent.callbacks.append(lambda _, dst=dst, part=part: self._took(rank, dst, part))
                left.append(sent.left)
            yield self.env.timeout(pace)
        yield self.env.all_of(left)

    def _took(self, src, dst, part):
        if self.on_part:
            self.on_part(src, dst, part)
        self._open[dst] -= 1
        if not self._open[dst]:
            self.arrived[dst].succeed()


def copy_kernel(cluster, gpu, exchange, phase, sms, before_us=0.0, after_us=0.0, host_us=None):
    """A communication kernel on ``sms`` SMs of its own: rows leave and arrive, flags are polled.

    ``before_us``, ``after_us``: what it does before its rows leave and after all have arrived;
    ``host_us``: see :meth:`GpuSim.launch`.
    """
    with cluster.phase(gpu.rank, phase):
        yield from gpu.launch(host_us)
        yield from gpu.hold(sms)
        yield cluster.env.timeout(before_us)
        yield from exchange.run(gpu.rank)
        yield exchange.arrived[gpu.rank]
        yield from gpu.poll()
        yield cluster.env.timeout(after_us)
        gpu.release(sms)


def call_us(system):
    """Host time of a call into the C++ extension of ``system``, its tensors allocated."""
    host = constants("host")
    return host.extension_us + constants(system).allocations * host.allocation_us


def small_ops(gpu, count, phase, host_us=None):
    """Operations of PyTorch on a few thousand numbers, one kernel each. ``host_us``: of each, where
    it is not one of the dispatcher's."""
    op = constants("host").eager_op_us if host_us is None else host_us
    for _ in range(count):
        yield from gpu.move(SMALL_BYTES, phase, host_us=op)


def counted(gpu, phase):
    """``torch.bincount``: least and greatest number, which the host reads one after the other,
    zeros, counts.

    Source: pytorch ``aten/src/ATen/native/cuda/SummaryOps.cu``; two waits and 58 us of host time on
    B200 (unsloth-zoo pull request 1248).
    """
    for _ in range(2):
        yield from small_ops(gpu, 1, phase)
        yield from gpu.host_sync(extra_us=constants("host").read_us)
    yield from small_ops(gpu, 2, phase)


def activation(gpu, rows, host_us=None):
    """SwiGLU of ``rows`` rows: reads gate and up, writes their product."""
    inter = gpu.cluster.workload.shape.inter
    yield from gpu.move(rows * inter * 2 * 3, "activation", host_us=host_us)


def experts(gpu, rows_per_expert, gemms=None, host_us=None):
    """First GEMM, activation, second GEMM, one kernel after the other, all rows being there."""
    first, second = gemms or expert_gemms(gpu.cluster.workload.shape)
    yield from gpu.gemm(first, rows_per_expert, "gemm1")
    yield from activation(gpu, int(sum(rows_per_expert)), host_us)
    yield from gpu.gemm(second, rows_per_expert, "gemm2")
