# SPDX-License-Identifier: Apache-2.0
"""A machine while it runs one Mixture-of-Experts layer: GPUs, their hosts, the network, and what a
scheme may ask of them.

A *scheme* is a function ``scheme(cluster)`` that starts one simpy process per rank, written like
the system's protocol::

    def scheme(cluster):
        for gpu in cluster.gpus:
            cluster.env.process(rank(cluster, gpu))

    def rank(cluster, gpu):
        yield from gpu.kernel(cluster.gate_us(gpu.rank))        # one kernel: waits for its launch,
        runs, marks the time yield from gpu.host_sync()                              # the host
        waits, later launches are exposed ... cluster.first_ready(gpu.rank);
        cluster.all_ready(gpu.rank); cluster.done(gpu.rank)

A scheme of GPUs with hubs has the attribute ``hub`` = True, see :class:`Cluster`.

Time is in microseconds. The layer begins at 0 on all ranks, with the gate, but for those that are
late. It is one of many alike: how far a rank's host is ahead when it begins is how far it was ahead
when the one before ended (:func:`run_layer`).
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from sim.evaluate.systems import constants

from . import compute
from .network import Network
from .network_settings import NetworkSettings
from .timeline import Timeline

__all__ = ["Cluster", "GpuSim", "GroupedGemm", "LayerResult", "NoGraph", "run_layer"]

FLAG_BYTES = 16  # a flag or a few counts: one flit
SMALL_BYTES = 64e3  # what a framework's operation on a few thousand numbers moves


@dataclass(frozen=True)
class LayerResult:
    """One layer. ``us``: from the gate to the last combined token of the slowest rank.
    ``first_ready_us``: first rows usable by an expert, mean of the ranks; ``all_ready_us``: last
    ones, slowest rank. ``gemm1_us``: from the last rank's routing to the last rank's end of GEMM1,
    None where a scheme does not tell. ``wire_bytes``, ``payload_bytes``: on links, all ranks.
    ``breakdown``: microseconds per phase, mean of the ranks; overlapped phases count each in full,
    ``waiting`` is for ranks that come later. ``rank_us``: end of each rank. ``sm_busy``: fraction
    of all SM time that ran tiles. ``usable_rows``: of each rank, those that an expert could begin
    with; all of them, unless a rank never came.
    """

    us: float
    first_ready_us: float
    all_ready_us: float
    wire_bytes: int
    payload_bytes: int
    breakdown: dict = field(default_factory=dict)
    rank_us: tuple = ()
    sm_busy: float = 0.0
    gemm1_us: float | None = None
    usable_rows: tuple = ()


class NoGraph(ValueError):
    """A layer that waits for its host was to be a CUDA graph; one line."""


class GpuSim:
    """One rank's GPU: SMs and HBM (``times``), the stream's kernels, the host thread that launches
    them."""

    def __init__(self, cluster, rank):
        self.cluster, self.rank, self.env, self.gpu = (
            cluster,
            rank,
            cluster.env,
            cluster.machine.gpu,
        )
        self.times = compute.GpuTimes(self.gpu)
        self.begins = cluster.delays[rank]  # what comes before the layer runs until then
        # the host is free to launch from then on; a rank that is late is so with its host
        self.host_at = self.begins - cluster.leads[rank] if self.begins < inf else inf
        self.host_us, self.synced = (
            0.0,
            False,
        )  # time that the host has spent; whether it has waited for the GPU

    # -- host and stream ---------------------------------------------------------------------------

    def begin(self):
        """Waits until the layer begins at this rank; for ever where it never does."""
        if self.env.now < self.begins:
            late = self.begins < inf
            yield self.env.timeout(self.begins - self.env.now) if late else self.env.event()

    def launch(self, host_us=None):
        """Waits until the next kernel of the stream starts: the gap after the one before, or the
        host if that is later.

        ``host_us``: host time of the call, the driver's alone by default (kinds of calls that take
        longer: ``[host]`` of systems.toml).
        """
        yield from self.begin()
        if self.cluster.graph:
            yield self.env.timeout(self.gpu.kernel_gap_us)
            return
        spent = self.gpu.launch_us if host_us is None else host_us
        self.host_at, self.host_us = self.host_at + spent, self.host_us + spent
        start = max(
            self.env.now + self.gpu.kernel_gap_us, self.host_at + self.gpu.launch_latency_us
        )
        yield self.env.timeout(start - self.env.now)

    def kernel(self, us, phase=None, host_us=None):
        """Launches a kernel that takes ``us`` and waits for its end."""
        with self.cluster.phase(self.rank, phase):
            yield from self.launch(host_us)
            yield self.env.timeout(us)

    def move(self, bytes_moved, phase=None, sms=None, host_us=None):
        """A kernel that moves bytes through HBM (reads and writes counted), see
        :func:`compute.pass_us`."""
        yield from self.kernel(compute.pass_us(self.gpu, bytes_moved, sms), phase, host_us)

    def host_sync(self, extra_us=0.0):
        """The host waits for the stream and reads a few bytes; from then on it launches.
        ``extra_us``: more of its time. Raises :class:`NoGraph`."""
        if self.cluster.graph:
            raise NoGraph(
                "host.graph = 1: this system waits for its host, it cannot be a CUDA graph"
            )
        self.host_at, self.synced = self.env.now + self.gpu.host_sync_us + extra_us, True
        with self.cluster.phase(self.rank, "host sync"):
            yield self.env.timeout(self.host_at - self.env.now)

    def poll(self):
        """A thread block that spins sees a flag that has just changed."""
        yield self.env.timeout(self.gpu.poll_us)

    # -- SMs ---------------------------------------------------------------------------------------

    def compute(self, blocks, block_us, hbm_bytes=0.0):
        """Runs thread blocks on the SMs that get free first; an event that fires when the last has
        ended."""
        _, end = self.times.run(self.env.now, [(blocks, block_us)], hbm_bytes)
        return self.env.timeout(end - self.env.now)

    def hold(self, sms):
        """Takes SMs away from all others until :meth:`release`; waits until it has them."""
        yield self.env.timeout(self.times.hold(self.env.now, sms) - self.env.now)

    def release(self, sms):
        self.times.release(self.env.now, sms)

    def keep(self, sms):
        """Takes SMs away until the layer ends: for a thread block that says what others do."""
        yield from self.hold(sms)

    def finish(self, begun, end, bytes_moved):
        """A kernel that has worked since ``begun`` on what came has its end then. ``bytes_moved``:
        through HBM, all of it."""
        yield self.env.timeout(max(0.0, end - self.env.now))

    def gemm(
        self,
        gemm,
        rows_per_expert,
        phase=None,
        launch=True,
        on_batch=None,
        room=None,
        host_us=None,
    ):
        """A whole grouped GEMM whose rows are all there, on the SMs that nobody holds.
        ``on_batch``, ``room``: see GroupedGemm; ``host_us``: see :meth:`launch`."""
        with self.cluster.phase(self.rank, phase):
            if launch:
                yield from self.launch(host_us)
            work = GroupedGemm(self, gemm, rows_per_expert, on_batch, room)
            for expert, rows in enumerate(rows_per_expert):
                for tile in compute.tiles_of(rows):
                    work.ready(expert, tile)
            work.close()
            yield work.done


class GroupedGemm:
    """A grouped GEMM that takes row tiles as they become ready.

    Whenever an SM is idle it starts a batch: of the expert whose tile has waited longest, up to
    ``compute.GROUP_TILES`` tiles, which share one stream of its weights. ``done`` fires after
    :meth:`close`, when the last tile has ended.

    Parameters: ``rows_per_expert``, expected rows, they decide the tile's width; ``on_batch(expert,
    rows, start, end)``, called when a batch is placed, for what its epilogue sends; ``room()``: an
    event that the next batch waits for, or None, where SMs stall on what has not been sent.
    """

    def __init__(self, gpu, gemm, rows_per_expert, on_batch=None, room=None):
        self.gpu, self.env, self.on_batch, self.room = gpu, gpu.env, on_batch, room
        self.gemm = gemm.fitted(gpu.gpu, rows_per_expert)
        self.done = self.env.event()
        self.start = inf  # of the first tile
        self._waiting = {}  # expert: rows of its tiles; experts in the order of their oldest tile
        self._closed, self._wake = False, None
        self.env.process(self._run())

    def ready(self, expert, rows):
        """A tile of ``rows`` rows (at most 128) of the expert can be computed from now on."""
        self._waiting.setdefault(expert, []).append(rows)
        self._notify()

    def close(self):
        """No more tiles will come."""
        self._closed = True
        self._notify()

    def _notify(self):
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _run(self):
        env, times, end = self.env, self.gpu.times, 0.0
        while self._waiting or not self._closed:
            if not self._waiting:
                self._wake = env.event()
                yield self._wake
                continue
            idle = times.next_free()
            if idle > env.now:
                yield env.timeout(idle - env.now)
                continue
            if self.room and (full := self.room()) is not None:
                yield full
                continue
            expert = next(iter(self._waiting))
            tiles = self._waiting.pop(expert)
            batch, rest = tiles[: compute.GROUP_TILES], tiles[compute.GROUP_TILES :]
            if rest:
                self._waiting[expert] = rest
            start, batch_end = compute.run_batch(times, env.now, self.gemm, expert, batch)
            self.start, end = min(self.start, start), max(end, batch_end)
            if self.on_batch:
                self.on_batch(expert, sum(batch), start, batch_end)
        yield env.timeout(max(0.0, end - env.now))
        self.done.succeed()


class Cluster:
    """The machine with its network, one workload, and what the ranks of a scheme share.

    ``env``, ``machine``, ``workload``, ``network``, ``gpus`` (:class:`GpuSim`), ``rng`` (numpy,
    from ``seed``). ``hub``: the GPUs have hubs, with their credits per destination and their
    loopback lanes; without, links have flow control of their own, which holds nobody up, and rows
    for the own rank do not leave memory. ``leads``: microseconds that each rank's host is ahead of
    its GPU at the start, without end by default. ``delays``: microseconds that each rank begins
    late, ``inf`` never; none by default. ``network_options``: of :meth:`NetworkSettings.of`.
    """

    def __init__(
        self, machine, workload, seed=1, hub=False, leads=None, delays=None, **network_options
    ):
        if workload.ranks != machine.ranks:
            raise ValueError(f"ranks = {workload.ranks}: the machine has {machine.ranks}")
        if delays and (len(delays) != machine.ranks or not min(delays) >= 0):
            raise ValueError(
                f"delays = {delays}: must be {machine.ranks} times, none of them below 0"
            )
        self.machine, self.workload, self.env = machine, workload, Timeline()
        settings = NetworkSettings.of(machine, **network_options)
        stock = replace(settings, places=None, local_rate=inf)
        self.connect(settings if hub else stock)
        self.rng = np.random.default_rng([seed, 0xC0])
        self.seed, self.network_options = seed, network_options
        self.tried = None  # what :meth:`first_layer` returns, where the scheme has tried it
        self.leads = leads or [inf] * machine.ranks
        self.delays = delays or [0.0] * machine.ranks
        self.graph = constants("host").graph
        self.gpus = [GpuSim(self, rank) for rank in range(machine.ranks)]
        self.breakdown = {}
        self._routed, self._first, self._all, self._gemm1, self._done = {}, {}, {}, {}, {}
        self._usable = [0] * machine.ranks
        self._barriers, self._passed = {}, {}
        self._counts = {}

    def connect(self, settings, kind=Network, **more):
        """Gives the machine a network of this kind and these settings; what comes into a GPU's
        memory takes its HBM."""
        self.network = kind(self.env, settings=settings, **more)
        self.network.written = lambda rank, size: self.gpus[rank].times.write(self.env.now, size)

    # -- marks -------------------------------------------------------------------------------------

    def first_ready(self, rank):
        """The first rows of a rank are usable by an expert now; only the first call counts."""
        self._first.setdefault(rank, self.env.now)

    def all_ready(self, rank, rows=None):
        """All rows of a rank are usable now, or ``rows`` more; the last call counts."""
        self._all[rank] = self.env.now
        if rows is None:
            self._usable[rank] = int(self.workload.rows_at(rank).sum())
        else:
            self._usable[rank] += rows

    def gemm1_done(self, rank):
        """GEMM1 of a rank has ended."""
        self._gemm1[rank] = self.env.now

    def done(self, rank):
        """The rank's tokens are combined: its layer is over."""
        self._done[rank] = self.env.now

    @contextmanager
    def phase(self, rank, name):
        """Books the time between entry and exit under ``name``; None books nothing."""
        start = self.env.now
        yield
        if name is not None:
            self.book(name, self.env.now - start)

    def book(self, name, us):
        """Adds one rank's time to a phase."""
        self.breakdown[name] = self.breakdown.get(name, 0.0) + us / self.machine.ranks

    # -- what ranks do together --------------------------------------------------------------------

    def device_barrier(self, rank, group="barrier"):
        """All ranks' kernels wait for each other: a flag to every peer, then polling. One generator
        per rank and barrier."""
        number = self._passed[rank, group] = self._passed.get((rank, group), -1) + 1
        arrived = self._barriers.setdefault((group, number), [[], self.env.event()])
        start = self.env.now
        flags = [
            self.network.send(rank, peer.rank, FLAG_BYTES)
            for peer in self.gpus
            if peer.rank != rank
        ]
        arrived[0].extend(flags)
        if len(arrived[0]) == self.machine.ranks * (self.machine.ranks - 1):
            self.env.process(self._open_barrier(arrived))
        last = yield arrived[1]
        self.book("waiting", last - start)
        yield from self.gpus[rank].poll()
        self.book("barrier", self.env.now - last)

    def _open_barrier(self, arrived):
        """``arrived[1]`` fires with the time at which the last rank came."""
        last = self.env.now
        yield self.env.all_of(arrived[0])
        arrived[1].succeed(last)

    def meet(self, rank, group):
        """Ranks wait until all of them have come to this point; costs nothing by itself (what a
        collective's start needs). Booked as ``waiting``."""
        inbox = self._inbox(rank, ("meet", group))
        inbox.setdefault("here", []).append(rank)
        event = inbox.setdefault("event", self.env.event())
        if len(inbox["here"]) == self.machine.ranks:
            event.succeed()
        with self.phase(rank, "waiting"):
            yield event

    def exchange(self, rank, bytes_per_peer=0, group="counts"):
        """A small all-to-all inside a kernel: every rank writes ``bytes_per_peer`` to every other
        and waits for theirs."""
        with self.phase(rank, "counts"):
            yield from self.all_to_all(
                rank, [bytes_per_peer + FLAG_BYTES] * self.machine.ranks, group=group
            )
            yield from self.gpus[rank].poll()

    def all_to_all(self, rank, bytes_to, group, **send_options):
        """Sends ``bytes_to[peer]`` to every other rank and waits until theirs are here and its own
        have left.

        ``send_options``: of :meth:`Network.send`. ``group``: name of this exchange, the same on all
        ranks; it may be reused.
        """
        inbox = self._inbox(rank, ("all_to_all", group))
        left = []
        for step in range(1, self.machine.ranks):
            peer = (rank + step) % self.machine.ranks
            transfer = self.network.send(rank, peer, int(bytes_to[peer]), **send_options)
            left.append(transfer.left)
            transfer.callbacks.append(lambda _, box=self._box(inbox, peer): self._arrived(box))
        yield self._box(inbox, rank)[1]
        yield self.env.all_of(left)

    def _inbox(self, rank, group):
        """What the ranks share about the next use of ``group``."""
        number = self._passed[rank, group] = self._passed.get((rank, group), -1) + 1
        return self._counts.setdefault((group, number), {})

    def _box(self, inbox, rank):
        return inbox.setdefault(rank, [0, self.env.event()])

    def _arrived(self, box):
        box[0] += 1
        if box[0] == self.machine.ranks - 1:
            box[1].succeed()

    # -- times of the workload ---------------------------------------------------------------------

    def gate_us(self, rank):
        """Router GEMM, softmax and top-k of the rank's tokens."""
        shape = self.workload.model or self.workload.shape
        return compute.gate_us(self.machine.gpu, shape, int(self.workload.tokens_of[rank]))

    def gate(self, gpu):
        """The framework's router, as in every system that does not fuse it: the kernels of
        :meth:`gate_us`, and small ones."""
        host = constants("host")
        yield from gpu.kernel(self.gate_us(gpu.rank), "gate", host.eager_op_us)
        for _ in range(host.gate_ops - 2):
            yield from gpu.move(SMALL_BYTES, "gate", host_us=host.eager_op_us)
        self._routed[gpu.rank] = self.env.now

    def next_leads(self):
        """How far each rank's host is ahead when its layer has ended.

        One that has not waited for its GPU is as far ahead as one likes, unless it spends more time
        than the layer takes: then it falls behind layer by layer, until it is the host that the
        layer waits for.
        """
        end = max(self._done.values())
        return [
            max(0.0, end - gpu.host_at) if gpu.synced else inf if gpu.host_us <= end else 0.0
            for gpu in self.gpus
        ]

    @property
    def is_over(self):
        """Whether all ranks have ended."""
        return len(self._done) == self.machine.ranks

    def first_layer(self):
        """Runs a layer that none came before: (its :class:`LayerResult`, :meth:`next_leads`)."""
        if self.tried is None:
            self.env.run()
            self.tried = self.result(), self.next_leads()
        return self.tried

    def result(self):
        """:class:`LayerResult` of a layer that has run; a rank that waits for one that never begins
        has ended at ``inf``. Raises RuntimeError when a rank did not finish without such a reason.
        """
        ranks = range(self.machine.ranks)
        missing = [rank for rank in ranks if rank not in self._done]
        if missing and inf not in self.delays:
            raise RuntimeError(
                f"rank {missing[0]} never finished its layer: the scheme waits for "
                "something that does not come"
            )
        ends = tuple(self._done.get(rank, inf) for rank in ranks)
        us = max(ends)
        busy = sum(gpu.times.sm_us for gpu in self.gpus) / (
            us * self.machine.gpu.sms * self.machine.ranks
        )
        return LayerResult(
            us,
            float(np.mean(list(self._first.values()))) if self._first else us,
            max(self._all.values(), default=us),
            self.network.wire_bytes,
            self.network.payload_bytes,
            dict(self.breakdown),
            ends,
            busy,
            max(self._gemm1.values()) - max(self._routed.values()) if self._gemm1 else None,
            tuple(self._usable),
        )


def run_layer(scheme, machine, workload, seed=1, delays=None, **network_options):
    """Runs a layer of ``workload`` on ``machine`` by ``scheme``; returns its :class:`LayerResult`.

    It is the second of two alike where the host of the first did not stay ahead of its GPU; a lead
    hardly changes after one. ``delays``: of :class:`Cluster`, in this layer; nobody was late in the
    one before. Same arguments, same result.
    """

    def layer(leads=None, delays=None):
        hub = getattr(scheme, "hub", False)
        cluster = Cluster(machine, workload, seed, hub, leads, delays, **network_options)
        scheme(cluster)
        return cluster

    def second(leads=None):
        cluster = layer(leads, delays)
        cluster.env.run()
        return cluster.result()

    if delays and constants("host").graph:  # whose launches wait for no host
        return second()
    result, leads = layer().first_layer()
    if not delays and all(lead == inf for lead in leads):
        return result
    return second(leads)
