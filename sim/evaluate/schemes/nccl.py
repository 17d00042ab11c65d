# SPDX-License-Identifier: Apache-2.0
"""NCCL within a node: groups of sends and receives, which an all-to-all is, and rings for counts.

Source: NVIDIA/nccl 5067397c. ``src/enqueue.cc`` (addP2pToPlan, scheduleP2pTasksToPlan): channels of
a message, its protocol; ``src/graph/paths.cc``: channels of a GPU; ``src/init.cc``: chunks;
``src/device/sendrecv.h``: a thread block for each channel sends and receives;
``src/graph/tuning.cc``: latencies of protocols and rates of channels.

========  ==========================================================================================
LL        8 bytes of data, 8 of flags: twice the bytes on the links, no fence. For messages of at
          most ``ll_threshold`` bytes a channel.
LL128     120 of 128 bytes are data. Rings only: a send has no LL128.
Simple    Chunks of ``chunk_bytes`` go into a buffer at the receiver, ``buffer_chunks`` long; a
          fence and a flag follow each, then a thread block there copies it to where it belongs.
========  ==========================================================================================

A user's buffers are not registered, as PyTorch's are not: with registered ones the copy at the
receiver falls away.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil

import numpy as np

from sim.evaluate.systems import constants

from .steps import link_payload_gbps

__all__ = [
    "SendRecv",
    "Way",
    "channels",
    "collective",
    "exchange_counts",
    "ring_of_rows",
    "ring_us",
    "way",
]


def _power_above(number):
    return 1 << max(0, ceil(number) - 1).bit_length()


def channels(machine):
    """Channels of a GPU for sends and receives, thread blocks of one SM each: two for each of its
    links, a power of two."""
    fabric = machine.fabric
    links = max(1, int(fabric.link_gbps / fabric.nvlink_gbps))
    return min(constants("nccl").channels, _power_above(2 * links))


@dataclass(frozen=True)
class Way:
    """How a message travels: protocol LL or Simple, on so many channels."""

    low_latency: bool
    channels: int


def way(machine, size):
    """:class:`Way` of a message of ``size`` bytes from one rank to another.

    As many channels as give every peer as many, but no less than an eighth of a chunk for each;
    more, up to all, where a channel had more than ``chunks_of_part`` chunks.
    """
    nccl, most = constants("nccl"), channels(machine)
    used = most
    while used * machine.ranks > most and used > 1:
        used //= 2
    used = max(1, min(used, ceil(size / (nccl.chunk_bytes / 8))))
    while size / used > nccl.chunks_of_part * nccl.chunk_bytes and used <= most // 2:
        used *= 2
    return Way(size <= used * nccl.ll_threshold, used)


class SendRecv:
    """One group of sends and receives of all ranks: ``bytes_to[src, dst]``.

    ``rows``: they are rows or answers, not counts. ``arrived[rank]``: event, everything for the
    rank is where it belongs. Start every rank once by :meth:`run`, when all are there.
    """

    def __init__(self, cluster, bytes_to, rows=True):
        self.cluster, self.env, self.machine = cluster, cluster.env, cluster.machine
        self.bytes_to = np.asarray(bytes_to, dtype=np.int64)
        self.nccl = constants("nccl")
        self.options = {"efficiency": self.nccl.link_efficiency}
        if rows:
            self.options["packet_bytes"] = 128
        ranks = self.machine.ranks
        self.ways = {
            (src, dst): way(self.machine, int(self.bytes_to[src, dst]))
            for src in range(ranks)
            for dst in range(ranks)
            if self.bytes_to[src, dst]
        }
        self.used = self._channels_used(ranks)
        self.copied_at = dict.fromkeys(self.ways, 0.0)
        self.arrived = [self.env.event() for _ in range(ranks)]
        self._open = [sum(dst == rank for _, dst in self.ways) for rank in range(ranks)]
        for rank, count in enumerate(self._open):
            if not count:
                self.arrived[rank].succeed()

    def _channels_used(self, ranks):
        """Channels of each rank's messages, those of both ways in the same thread blocks."""
        sent, taken = [0] * ranks, [0] * ranks
        for (src, dst), one in self.ways.items():
            sent[src] += one.channels
            taken[dst] += one.channels
        return [max(1, *both) for both in zip(sent, taken, strict=True)]

    def sms(self, rank):
        """SMs that the rank's kernel takes."""
        return min(channels(self.machine), self.used[rank])

    def base_us(self, rank):
        """What the kernel takes beside its transfers: of the slower protocol, where it has both."""
        simple = any(
            rank in pair and not one.low_latency
            for pair, one in self.ways.items()
            if pair != (rank, rank)
        )
        return self.nccl.simple_base_us if simple else self.nccl.ll_base_us

    def _gbps(self, pair, rank):
        """What the channels of a message store, or copy, at ``rank``: those that several messages
        have in common share their rate."""
        gpu, one = self.machine.gpu, self.ways[pair]
        of_channel = gpu.nccl_channel_gbps
        if one.low_latency and pair[0] != pair[1]:
            of_channel = gpu.nccl_ll_gbps / self.nccl.ring_channels
        share = min(1.0, channels(self.machine) / self.used[rank])
        return of_channel * one.channels * share

    def run(self, rank):
        """The rank's kernel: ends when its last byte has left. A generator."""
        ranks = self.machine.ranks
        order = [(rank, (rank + step) % ranks) for step in range(ranks)]
        yield self.env.all_of(
            [self.env.process(self._send(pair)) for pair in order if pair in self.ways]
        )

    def _send(self, pair):
        (src, dst), size, one = pair, int(self.bytes_to[pair]), self.ways[pair]
        rate, nccl, full = self._gbps(pair, src) * 1e3, self.nccl, deque()
        chunk = size if one.low_latency or src == dst else one.channels * nccl.chunk_bytes
        wire = 2 if one.low_latency and src != dst else 1
        while size:
            part = min(size, chunk)
            size -= part
            if len(full) == nccl.buffer_chunks:
                yield full.popleft()
            sent = self.cluster.network.send(src, dst, wire * part, **self.options)
            copied = self.env.event()
            full.append(copied)
            sent.callbacks.append(
                lambda _, part=part, copied=copied, last=not size: self.env.process(
                    self._take(pair, part, copied, last)
                )
            )
            if src != dst:
                yield self.env.timeout(part / rate)
            yield sent.left

    def _take(self, pair, size, copied, last):
        """The receiver sees the flag and copies the chunk, one after the other; LL's lines it takes
        as they come."""
        (src, dst), one, nccl = pair, self.ways[pair], self.nccl
        begin = self.env.now
        if src != dst:
            hop = nccl.ll_hop_us if one.low_latency else nccl.simple_hop_us
            begin += max(0.0, hop - self.machine.fabric.one_way_us)
        if src == dst or not one.low_latency:
            begin = max(begin, self.copied_at[pair])
            begin += size / (self._gbps(pair, dst) * 1e3)
        self.copied_at[pair] = begin
        yield self.env.timeout(begin - self.env.now)
        copied.succeed()
        if last:
            self._open[dst] -= 1
            if not self._open[dst]:
                self.arrived[dst].succeed()


def _after_launch(gpu, us):
    """NCCL's times are of loops of collectives: they have the gap between two kernels in them."""
    return max(0.0, us - gpu.gpu.kernel_gap_us)


def collective(cluster, gpu, exchange, phase, group, host_us, beside=False):
    """A :class:`SendRecv`: its launch, its start on all ranks together, until the rank has sent and
    received everything.

    ``group``: name of this collective, the same on all ranks. ``host_us``: host time of the call.
    ``beside``: other kernels run beside it, it takes its SMs from them.
    """
    sms = exchange.sms(gpu.rank) if beside else 0
    with cluster.phase(gpu.rank, phase):
        yield from gpu.launch(host_us)
        if sms:
            yield from gpu.hold(sms)
    yield from cluster.meet(gpu.rank, group)
    with cluster.phase(gpu.rank, phase):
        yield cluster.env.timeout(_after_launch(gpu, exchange.base_us(gpu.rank)))
        yield from exchange.run(gpu.rank)
        yield exchange.arrived[gpu.rank]
        if sms:
            gpu.release(sms)


def ring_us(machine, size, steps):
    """A ring's time by NCCL's own model, with the protocol that it finds fastest: ``size`` bytes of
    all ranks in ``steps`` steps."""
    gpu, nccl, link = machine.gpu, constants("nccl"), link_payload_gbps(machine)
    of_channels = nccl.ring_channels * gpu.nccl_ll128_channel_gbps
    protocols = (
        (nccl.ll_base_us, nccl.ll_hop_us, min(gpu.nccl_ll_gbps, link / 2)),
        (nccl.ll128_base_us, nccl.ll128_hop_us, min(of_channels, link * 120 / 128)),
        (nccl.simple_base_us, nccl.simple_hop_us, link),
    )
    passed = size * steps / machine.ranks
    return min(base + steps * hop + passed / (gbps * 1e3) for base, hop, gbps in protocols)


def exchange_counts(cluster, gpu, bytes_per_peer, group="counts", steps=None, host_us=None):
    """A framework's collective of a few numbers: its launch, its start on all ranks,
    ``bytes_per_peer`` to every other. ``steps``: of the ring, an all-gather's by default, 1 for a
    group of sends and receives. ``host_us``: of the call, torch.distributed's by default."""
    ranks, env = cluster.machine.ranks, cluster.env
    with cluster.phase(gpu.rank, "counts"):
        yield from gpu.launch(constants("host").collective_us if host_us is None else host_us)
    yield from cluster.meet(gpu.rank, group)
    us = ring_us(cluster.machine, ranks * bytes_per_peer, ranks - 1 if steps is None else steps)
    end = env.now + _after_launch(gpu, us)
    yield from cluster.exchange(gpu.rank, bytes_per_peer, group)
    with cluster.phase(gpu.rank, "counts"):
        yield env.timeout(max(0.0, end - env.now))


def ring_of_rows(cluster, gpu, size, phase, group, host_us):
    """An all-gather or a reduce-scatter of rows, ``size`` bytes of all ranks: what a ring's steps
    take by NCCL's own model, and no less than its channels' stores do on the links. ``host_us``: of
    the call."""
    machine, env, nccl = cluster.machine, cluster.env, constants("nccl")
    with cluster.phase(gpu.rank, phase):
        yield from gpu.launch(host_us)
    yield from cluster.meet(gpu.rank, group)
    with cluster.phase(gpu.rank, phase):
        end = env.now + _after_launch(gpu, ring_us(machine, size, machine.ranks - 1))
        part = [size // machine.ranks] * machine.ranks
        options = {"efficiency": nccl.link_efficiency, "packet_bytes": 128}
        yield from cluster.all_to_all(gpu.rank, part, group, **options)
        yield env.timeout(max(0.0, end - env.now))
