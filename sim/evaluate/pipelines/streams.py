# SPDX-License-Identifier: Apache-2.0
"""Several streams on one GPU, several layers on one machine at a time.

A layer of a scheme runs on a :class:`Layer`, a cluster of its own whose links, SMs, memory and host
are those of a :class:`Box`, which others use at the same time:

* thread blocks take the SMs that get free first, whichever stream they are of; kernels that only
  take time when a layer is alone take SMs and memory here;
* with ``apart``, SMs for communication are kept from the first kernel that asks for them on, as
  many as it takes, and those of all streams use them in turn, the same order on all ranks: what
  frameworks do that run two micro-batches (their GEMMs are told to leave those SMs alone, and
  kernels that wait for other ranks must not wait for each other);
* one host thread launches for all streams. While it waits for one it launches for none; what it
  could launch before it has: the best order of its calls is taken.
"""

from sim.evaluate.machine.compute import GpuTimes, pass_us
from sim.evaluate.machine.engine import Cluster, GpuSim
from sim.evaluate.machine.network import Network
from sim.evaluate.machine.timeline import Timeline

__all__ = ["Box", "Device", "Layer", "Stream"]


class Device:
    """What the streams of one GPU share. ``lanes``: streams that communicate. ``apart``: see the
    module's text. Its host begins with the first layer, ahead of nothing."""

    def __init__(self, env, gpu, lanes, apart):
        self.env, self.lanes, self.apart = env, lanes, apart
        self.times = GpuTimes(gpu)
        self.host_at = self.host_us = 0.0
        self.kept = 0  # SMs for communication
        self.turn, self.asked = 0, [0] * lanes
        self._next_turn = env.event()

    def hold(self, lane, sms):
        """Waits for SMs for a kernel of a lane that communicates; all lanes have equally many."""
        if not self.apart:
            yield from self._take(sms)
            return
        own = self.asked[lane] * self.lanes + lane
        self.asked[lane] += 1
        while self.turn != own:
            yield self._next_turn
        if sms > self.kept:
            more, self.kept = sms - self.kept, sms
            yield from self._take(more)

    def release(self, sms):
        """The kernel has ended."""
        if not self.apart:
            self.times.release(self.env.now, sms)
            return
        self.turn += 1
        before, self._next_turn = self._next_turn, self.env.event()
        before.succeed()

    def _take(self, sms):
        yield self.env.timeout(self.times.hold(self.env.now, sms) - self.env.now)


class Stream(GpuSim):
    """A stream of a :class:`Device`; its first launch waits for ``after`` where there is one."""

    def __init__(self, layer, rank, device, lane=0, after=None):
        self.cluster, self.rank, self.env, self.gpu = layer, rank, layer.env, layer.machine.gpu
        self.device, self.times, self.lane, self.after = device, device.times, lane, after
        self.synced, self.own_sms = False, 0

    # the host is one of all streams; what it has done stays done
    @property
    def host_at(self):
        return self.device.host_at

    @host_at.setter
    def host_at(self, time):
        self.device.host_at = max(self.device.host_at, time)

    @property
    def host_us(self):
        return self.device.host_us

    @host_us.setter
    def host_us(self, us):
        self.device.host_us = us

    def begin(self):
        if self.after is not None and not self.after.processed:
            yield self.after

    def blocks(self, us, sms=None):
        """One thread block on each SM that is not held, ``us`` long, or on ``sms`` of them. A
        generator; see :meth:`GpuTimes.run`."""
        count = min(sms or self.times.sms, self.times.sms)
        _, end = self.times.run(self.env.now, [(count, us)])
        yield self.env.timeout(end - self.env.now)

    def kernel(self, us, phase=None, host_us=None):
        if self.cluster.leaves_out(phase):
            return
        with self.cluster.phase(self.rank, phase):
            yield from self.launch(host_us)
            yield from self.blocks(us)

    def move(self, bytes_moved, phase=None, sms=None, host_us=None):
        if self.cluster.leaves_out(phase):
            return
        with self.cluster.phase(self.rank, phase):
            yield from self.launch(host_us)
            count = min(sms or self.times.sms, self.times.sms)
            us = pass_us(self.gpu, bytes_moved, count)
            _, end = self.times.run(self.env.now, [(count, us)], bytes_moved)
            yield self.env.timeout(end - self.env.now)

    def host_sync(self, extra_us=0.0):
        if not self.cluster.counted:
            yield from super().host_sync(extra_us)

    def hold(self, sms):
        yield from self.begin()
        yield from self.device.hold(self.lane, sms)
        self.cluster.communicates(self.rank)

    def release(self, sms):
        self.device.release(sms)

    def keep(self, sms):
        yield from self.begin()
        yield self.env.timeout(self.times.hold(self.env.now, sms) - self.env.now)
        self.own_sms += sms

    def give_back(self):
        """The layer has ended: what :meth:`keep` took is free."""
        if self.own_sms:
            self.times.release(self.env.now, self.own_sms)
        self.own_sms = 0

    def finish(self, begun, end, bytes_moved):
        """Its SMs and its memory are taken from ``begun`` on, as far as others have left them."""
        us, now = pass_us(self.gpu, bytes_moved), self.env.now
        left = max(0.0, end - now)
        self.times.write(begun, bytes_moved)
        self.times.run(begun, [(self.times.sms, max(0.0, us - left))])
        yield from self.blocks(left)

    def gemm(self, gemm, rows_per_expert, phase=None, **options):
        yield from super().gemm(gemm, rows_per_expert, phase, **options)
        if phase == "gemm2" and sum(rows_per_expert) == self.cluster.taken(self.rank):
            self.cluster.computed(self.rank)


class Layer(Cluster):
    """One layer of one micro-batch in a :class:`Box`; rank r begins when ``begin[r]`` fires.

    ``sending[r]``: its first kernel that communicates has its SMs. ``ready[r]``: all its rows have
    been through GEMM2, at its end at the latest. ``ended[r]``: its tokens are combined.
    ``counted``: how many rows go where is known from before, as it is in a backward pass: kernels
    and exchanges of counts are left out, and the host does not wait for them; what the call of such
    an exchange costs stays.
    """

    def __init__(self, box, scheme, workload, lane=0, counted=False):
        self.box, self.counted = box, counted
        hub = getattr(scheme, "hub", False)
        super().__init__(box.machine, workload, box.seed, hub, **box.network_options)
        self.env, ranks = box.env, range(box.machine.ranks)
        self.begin, self.sending, self.ready, self.ended = (
            [self.env.event() for _ in ranks] for _ in range(4)
        )
        self.gpus = [
            Stream(self, rank, box.devices[rank], lane, self.begin[rank]) for rank in ranks
        ]
        scheme(self)

    @property
    def network(self):
        return self.box.network

    def connect(self, settings, kind=Network, **more):
        self.box.connect(settings, kind, **more)

    def run(self, rank):
        """The rank's part of the layer, from now on. A generator."""
        self.begin[rank].succeed()
        yield self.ended[rank]

    def beside(self, rank):
        """Another stream of the rank's GPU."""
        return Stream(self, rank, self.box.devices[rank])

    def taken(self, rank):
        """Rows that a rank computes."""
        return int(self.workload.rows_at(rank).sum())

    def leaves_out(self, phase):
        """Whether kernels of this phase are left out."""
        return self.counted and phase in ("counts", "layout")

    def meet(self, rank, group):
        if not self.leaves_out(group):
            yield from super().meet(rank, group)

    def all_to_all(self, rank, bytes_to, group, **send_options):
        if not self.leaves_out(group):
            yield from super().all_to_all(rank, bytes_to, group, **send_options)

    def communicates(self, rank):
        if not self.sending[rank].triggered:
            self.sending[rank].succeed()

    def computed(self, rank):
        if not self.ready[rank].triggered:
            self.ready[rank].succeed()

    def done(self, rank):
        super().done(rank)
        self.gpus[rank].give_back()
        self.communicates(rank)
        self.computed(rank)
        self.ended[rank].succeed()


class Box:
    """A machine that several layers use at a time; ``lanes``, ``apart``: of :class:`Device`.

    All layers are on the same links, with or without hubs; those of today's GPUs have turns as the
    first layer asks for them."""

    def __init__(self, machine, seed=1, lanes=1, apart=False, **network_options):
        self.machine, self.seed, self.env = machine, seed, Timeline()
        self.network_options = network_options
        self.devices = [Device(self.env, machine.gpu, lanes, apart) for _ in range(machine.ranks)]
        self.network, self._layers = None, {}

    def connect(self, settings, kind=Network, **more):
        """The links and switches, as the last layer wants them that was made before anything was
        sent."""
        if self.network is None or not self.network.messages:
            self.network = kind(self.env, settings=settings, **more)
            self.network.written = self._written

    def _written(self, rank, size):
        self.devices[rank].times.write(self.env.now, size)

    def layer(self, key, make):
        """The layer of this key, by ``make()`` when its first rank comes to it."""
        if key not in self._layers:
            self._layers[key] = make()
        return self._layers[key]

    @property
    def layers(self):
        """All layers so far, in the order in which they began."""
        return list(self._layers.values())
