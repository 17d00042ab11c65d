"""Links, switch planes and hubs of N GPUs, event by event, at the granularity of batches of packets.

It models what the hub does (``docs/blocks/packet_manager.md``, ``docs/blocks/link.md``), by batches in place of flits:

* a GPU's egress link serves its destinations **round robin**, a batch of packets at a turn, and skips those without credit:
  a congested destination holds nobody else up;
* **credits** bound the packets on their way from one GPU to another; they come back when the receiver has taken a packet;
* a packet costs a header flit beside its payload flits, so the wire carries more than the payload;
* the switch is output-queued: a receiver's **ingress link** serialises what all others send it (incast), in order of arrival;
* a message is done when memory has acknowledged its last byte; what is for the own GPU takes the loopback path, no link.

    env = simpy.Environment()
    network = Network(env, machine)                     # or Network(env, settings=NetworkSettings(...))
    transfer = network.send(0, 3, 8 * 4096, row_bytes=4096)
    yield transfer.left                                 # the last flit is on the sender's link: its buffer is free
    yield transfer                                      # the last byte is acknowledged in memory at GPU 3

Time of the environment is in microseconds when the network is made for a machine. With ``settings`` it is whatever unit these
use: cycles, when the model is compared with the RTL (``sim/evaluate/validate.py``).
"""

import json
from collections import deque
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

import simpy

__all__ = ["HUB_FILE", "Network", "NetworkSettings", "Transfer", "flits_of", "hub_figures"]

HUB_FILE = Path(__file__).parent / "data" / "hub.json"
HUB_GHZ = 1.5625        # docs/architecture.md: 16 bytes a cycle make 25 GB/s, one NVLink4 lane
TURNS = 256             # turns that a long message takes at least


@cache
def hub_figures():
    """The hub's latencies (cycles) and rates, as measured on the RTL by ``sim/evaluate/calibrate.py``.

    Raises ValueError when the file is not there or is not what the benchmark writes.
    """
    try:
        return json.loads(HUB_FILE.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{HUB_FILE}: {error}; `python -m sim.evaluate.calibrate` measures it") from None


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Rates and latencies of a network, in bytes and in one unit of time of the caller's choice.

    ``rate``: bytes per unit of time that a GPU's links carry in one direction, all planes together. ``planes``: switch planes,
    each with an equal share of the rate; with ``spray`` every message is spread evenly over all, so that they act as one.
    ``latency``: from the end of a packet on the sender's link to its beginning on the receiver's, both hops and the switch.
    ``store_latency``: last store of a packet to its header on the link. ``write_latency``: last flit at the receiver to
    memory's acknowledgement. ``credits``: packets that may be on their way per source, destination and plane, None: any
    number. ``credit_latency``: from a packet's end at the receiver to its credit at the sender. ``local_rate``,
    ``local_latency``: of the loopback path, the latter from the last store to the acknowledgement. ``batch_packets``: packets
    of one turn of the round robin.
    """

    ranks: int
    rate: float
    latency: float
    planes: int = 1
    spray: bool = True
    store_latency: float = 0.0
    write_latency: float = 0.0
    credits: int | None = None
    credit_latency: float = 0.0
    local_rate: float = inf
    local_latency: float = 0.0
    flit_bytes: int = 16
    header_flits: int = 1
    batch_packets: int = 128

    def __post_init__(self):
        for name, low in (("ranks", 1), ("planes", 1), ("flit_bytes", 1), ("header_flits", 0), ("batch_packets", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least {low}")
        for name in ("rate", "local_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be above 0")
        for name in ("latency", "store_latency", "write_latency", "credit_latency", "local_latency"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0")
        if self.credits is not None and self.credits < 1:
            raise ValueError(f"credits = {self.credits}: must be at least 1, or None")

    @classmethod
    def of(cls, machine, *, hub=None, hub_ghz=HUB_GHZ, memory_us=0.0, batch_packets=128):
        """Settings of a machine, in microseconds: ``machine.ranks`` and ``machine.fabric`` (``sim/evaluate/hardware.py``).

        ``hub``: figures in place of those of ``data/hub.json``; ``hub_ghz``: the hub's clock. ``memory_us``: time that memory
        takes to answer a write. A link has as many of the measured hub's lanes as its rate needs, credits in proportion, and
        its messages are spread over them and over the planes.
        """
        hub, fabric = hub or hub_figures(), machine.fabric
        cycle, rate, cycles = 1e-3 / hub_ghz, fabric.link_gbps * 1e3, hub["latency_cycles"]
        lanes = max(1, round(rate * cycle / fabric.flit_bytes))
        return cls(ranks=machine.ranks, rate=rate, latency=2e-3 * fabric.hop_ns, planes=fabric.planes,
                   store_latency=cycle * cycles["store_to_link"], write_latency=cycle * cycles["arrival_to_write"] + memory_us,
                   credits=lanes * hub["credits"]["packets"],
                   credit_latency=cycle * cycles["arrival_to_credit"] + 2e-3 * fabric.hop_ns,
                   local_latency=cycle * cycles["store_to_own_write"] + memory_us,
                   flit_bytes=fabric.flit_bytes, header_flits=fabric.header_flits, batch_packets=batch_packets)


def flits_of(payload_bytes, *, packet_bytes=128, row_bytes=None, flit_bytes=16, header_flits=1):
    """(packets, flits) that carry ``payload_bytes`` in rows of ``row_bytes`` (None: one row); a packet never spans two rows."""
    row_bytes = row_bytes or payload_bytes
    rows, rest = divmod(payload_bytes, row_bytes) if row_bytes else (0, 0)
    packets = flits = 0
    for count, length in ((rows, row_bytes), (1, rest)):
        if count and length:
            whole, part = divmod(length, packet_bytes)
            of_row = whole + (part > 0)
            packets += count * of_row
            flits += count * (of_row * header_flits + whole * -(-packet_bytes // flit_bytes) + -(-part // flit_bytes))
    return packets, flits


class Transfer(simpy.Event):
    """A message on its way; as an event it fires with the time at which memory acknowledged its last byte.

    ``src``, ``dst``, ``payload_bytes``, ``wire_bytes`` (0 within a GPU), ``packets``; ``left``: an event that fires when the
    last flit is on the sender's link, so that a kernel which stores the data itself can wait for it.
    """

    def __init__(self, env, src, dst, payload_bytes, packets, flits, priority):
        super().__init__(env)
        self.src, self.dst, self.payload_bytes, self.packets = src, dst, payload_bytes, packets
        self.flits, self.wire_bytes, self.priority = flits, 0, priority
        self.packets_waiting, self.flits_waiting = packets, flits       # not yet on the link
        self.left = simpy.Event(env)


class _Pair:
    """One source, one destination, one plane: messages that wait, by priority, and the credits between the two."""

    __slots__ = ("dst", "queues", "sent", "returns", "blocked")

    def __init__(self, dst):
        self.dst, self.queues = dst, {}
        self.sent = 0               # packets
        self.returns = deque()      # credits of packets first..last come back from time to time, evenly; oldest first
        self.blocked = False        # a batch is still waiting for credits of its last packets

    def queue(self):
        """The messages to serve next: those of the smallest priority number; None when there are none."""
        waiting = [priority for priority, queue in self.queues.items() if queue]
        return self.queues[min(waiting)] if waiting else None

    def credit_back(self, packet):
        """Time at which the credit of packet number ``packet`` is back; infinite while that is not known yet."""
        if packet < 0:
            return 0.0
        for first, last, start, end in self.returns:
            if packet <= last:
                return start if packet <= first else start + (end - start) * (packet - first) / (last - first)
        return inf


class _Port:
    """One plane of a GPU's egress: destinations that have messages, in the order of their turns."""

    __slots__ = ("src", "plane", "pairs", "turns", "busy", "wake")

    def __init__(self, src, plane):
        self.src, self.plane, self.pairs, self.turns = src, plane, {}, deque()
        self.busy, self.wake = False, inf


class Network:
    """Links, switch planes and hubs between the GPUs of a machine; see the module's text.

    Parameters: ``env``, a simpy environment; ``machine`` (see :meth:`NetworkSettings.of`, which also takes ``options``) or
    ``settings``. Figures, all of what has left so far: ``payload_bytes``, ``wire_bytes`` (headers included, links only),
    ``local_bytes`` (payload within a GPU), ``messages``; ``egress_busy[gpu]`` and ``ingress_busy[gpu]``, the time that the
    links carried flits (mean of the planes). Same calls at the same times, same result.
    """

    def __init__(self, env, machine=None, *, settings=None, **options):
        if (machine is None) == (settings is None):
            raise ValueError("a network is made for a machine, or from settings")
        self.env = env
        self.settings = s = settings or NetworkSettings.of(machine, **options)
        self._planes = 1 if s.spray else s.planes
        self._cycle = s.flit_bytes * self._planes / s.rate      # of a flit on one plane
        self._ports = [[_Port(src, plane) for plane in range(self._planes)] for src in range(s.ranks)]
        self._ingress_free = [[0.0] * self._planes for _ in range(s.ranks)]
        self._local_free = [0.0] * s.ranks
        self.payload_bytes = self.wire_bytes = self.local_bytes = self.messages = 0
        self.egress_busy, self.ingress_busy = [0.0] * s.ranks, [0.0] * s.ranks

    def send(self, src, dst, payload_bytes, *, packet_bytes=128, row_bytes=None, priority=0, plane=None):
        """Sends a message now; returns its :class:`Transfer`.

        ``packet_bytes``: payload of a packet at most; 32 for stores that nothing merges. ``row_bytes``: the message consists of
        rows of this length, and a packet never spans two of them. ``priority``: smaller numbers leave first among the messages
        for one destination (the paper's ``.nop`` is 1). ``plane``: by default all of them, with ``spray``, else
        (src + dst) mod planes. A message of 0 bytes is done at once.
        Raises ValueError for a GPU, plane or size that is not there.
        """
        s = self.settings
        for name, value in (("src", src), ("dst", dst)):
            if not 0 <= value < s.ranks:
                raise ValueError(f"{name} = {value}: must be between 0 and {s.ranks - 1}")
        if payload_bytes < 0 or packet_bytes < 1:
            raise ValueError(f"payload_bytes = {payload_bytes}, packet_bytes = {packet_bytes}: must be at least 0 and 1")
        if plane is not None and (s.spray or not 0 <= plane < s.planes):
            raise ValueError(f"plane = {plane}: must be between 0 and {s.planes - 1}, on a network without spray")
        packets, flits = flits_of(payload_bytes, packet_bytes=packet_bytes, row_bytes=row_bytes, flit_bytes=s.flit_bytes,
                                  header_flits=s.header_flits)
        transfer = Transfer(self.env, src, dst, payload_bytes, packets, flits, priority)
        self.messages += 1
        if not packets:
            self._fire(transfer, 0.0)
            self._fire(transfer.left, 0.0)
        elif src == dst:
            self._loop(transfer)
        else:
            transfer.wire_bytes = flits * s.flit_bytes
            self.wire_bytes += transfer.wire_bytes
            self.payload_bytes += payload_bytes
            port = self._ports[src][(src + dst) % self._planes if plane is None else plane]
            pair = port.pairs.get(dst) or port.pairs.setdefault(dst, _Pair(dst))
            if pair.queue() is None:
                port.turns.append(pair)
            pair.queues.setdefault(priority, deque()).append(transfer)
            if not port.busy:
                self._serve(port)
        return transfer

    def _fire(self, event, delay):
        """Makes an event happen ``delay`` from now; its value is that time."""
        event._ok, event._value = True, self.env.now + delay
        self.env.schedule(event, delay=delay)

    def _call(self, delay, function, *arguments):
        event = simpy.Event(self.env)
        event.callbacks.append(lambda _: function(*arguments))
        self._fire(event, delay)

    def _loop(self, transfer):
        s, now = self.settings, self.env.now
        self.local_bytes += transfer.payload_bytes
        end = max(now, self._local_free[transfer.src]) + transfer.flits * s.flit_bytes / s.local_rate
        self._local_free[transfer.src] = end
        self._fire(transfer.left, end - now)
        self._fire(transfer, end - now + s.local_latency)

    def _serve(self, port):
        """Gives the link to the next destination that has a credit, or waits for the first credit that comes back."""
        now, credits, soonest = self.env.now, self.settings.credits, inf
        for _ in range(len(port.turns)):
            pair = port.turns[0]
            port.turns.rotate(-1)
            if pair.blocked:
                continue
            back = 0.0 if credits is None else pair.credit_back(pair.sent - credits)
            if back <= now:
                self._send_batch(port, pair)
                return
            soonest = min(soonest, back)
        if soonest < port.wake:
            port.wake = soonest
            self._call(soonest - now, self._woken, port, soonest)

    def _woken(self, port, time):
        if port.wake == time:
            port.wake = inf
            if not port.busy:
                self._serve(port)

    def _send_batch(self, port, pair):
        """One turn of a destination: packets of its first messages, as many as a batch has."""
        s, now, queue = self.settings, self.env.now, pair.queue()
        room = max(s.batch_packets, queue[0].packets // TURNS)
        packets = flits = 0
        ended = []                  # (message, flits of the batch up to its end)
        while queue and room > packets:
            head = queue[0]
            count = min(room - packets, head.packets_waiting)
            share = -(-head.flits_waiting * count // head.packets_waiting)
            head.packets_waiting -= count
            head.flits_waiting -= share
            packets, flits = packets + count, flits + share
            if not head.packets_waiting:
                ended.append((queue.popleft(), flits))
                queue = pair.queue()
        if queue is None:
            port.turns.remove(pair)
        first = pair.sent
        pair.sent += packets
        length = flits * self._cycle
        port.busy = True
        self.egress_busy[port.src] += length / self._planes
        for transfer, at in ended:
            self._fire(transfer.left, s.store_latency + at * self._cycle)
        # Later packets of the batch wait for credits of their own, while the link serves others.
        end = now + length
        if s.credits is not None:
            end = max(end, self._credit_limit(pair, first, packets, length / packets))
        self._call(length, self._sent, port, pair, first, packets, flits, ended, end)

    def _credit_limit(self, pair, first, packets, packet_time):
        """Earliest end of a batch's last packet, as far as credits go."""
        s, now = self.settings, self.env.now
        known = pair.credit_back(min(first + packets - 1 - s.credits, first - 1))
        round_trip = s.latency + 2 * packet_time + s.credit_latency
        beyond = max(0, packets - s.credits)        # more than a window: each window waits for the one before
        return max(known, now + beyond / s.credits * round_trip) + packet_time

    def _sent(self, port, pair, first, packets, flits, ended, end):
        port.busy = False
        if end > self.env.now:
            pair.blocked = True
            self._call(end - self.env.now, self._arrive_late, port, pair, first, packets, flits, ended)
        else:
            self._arrive(port, pair, first, packets, flits, ended)
        self._serve(port)

    def _arrive_late(self, port, pair, *batch):
        pair.blocked = False
        self._arrive(port, pair, *batch)
        if not port.busy:
            self._serve(port)

    def _arrive(self, port, pair, first, packets, flits, ended):
        """A batch's last flit has left: its place on the receiver's link, credits, and the ends of its messages."""
        s, now, free = self.settings, self.env.now, self._ingress_free[pair.dst]
        length, packet = flits * self._cycle, flits / packets * self._cycle
        # The switch stores a packet before it sends it on, and the batch's first packet may have overtaken its last.
        start = max(free[port.plane], now - length + packet + s.latency)
        end = max(start + length, now + s.latency + packet)
        free[port.plane] = end
        self.ingress_busy[pair.dst] += length / self._planes
        if s.credits is not None:
            returns = pair.returns
            while returns and returns[0][1] < first - s.credits:
                returns.popleft()
            returns.append((first, first + packets - 1, start + packet + s.credit_latency, end + s.credit_latency))
        for transfer, at in ended:
            self._fire(transfer, end - (flits - at) * self._cycle - now + s.store_latency + s.write_latency)
