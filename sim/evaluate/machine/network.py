# SPDX-License-Identifier: Apache-2.0
"""Links, switch planes and hubs of N GPUs, event by event, at the granularity of batches of
packets.

It models what the hub does (``docs/blocks/packet_manager.md``, ``docs/blocks/link.md``), by batches
in place of flits:

* a GPU's egress link serves its destinations **round robin**, a batch of packets at a turn, and
  skips those without credit: a congested destination holds nobody else up;
* for one destination **rows** leave by buckets of their RowIDs, plain stores behind them, what has
  grown old in between;
* **credits** bound the packets on their way from one GPU to another: places of the receiver's pool,
  which go to whom needs them (:mod:`sim.golden.pool_grants`). What a source is granted, and what
  it gives back, is told in flits of their own, between packets; they travel through the other's
  ingress, queue and all;
* a packet costs a header flit beside its payload flits, so the wire carries more than the payload;
* the switch is output-queued: a receiver's **ingress link** serialises what all others send it
  (incast), in order of arrival;
* a message is done when memory has acknowledged its last byte; what is for the own GPU takes the
  loopback path, no link.

    env = Timeline() network = Network(env, machine)                     # or Network(env,
    settings=NetworkSettings(...)) transfer = network.send(0, 3, 8 * 4096, row_bytes=4096) yield
    transfer.left                                 # the last flit is on the sender's link: its
    buffer is free yield transfer                                      # the last byte is
    acknowledged in memory at GPU 3

Time of the environment is in microseconds when the network is made for a machine. With ``settings``
it is whatever unit these use: cycles, when the model is compared with the RTL
(``sim/evaluate/validate.py``).
"""

from collections import deque
from math import ceil, floor, inf

import simpy

from sim.golden.pool_grants import Grants

from .network_settings import HUB_FILE, NetworkSettings, flits_of, hub_figures

__all__ = ["HUB_FILE", "Network", "NetworkSettings", "Transfer", "flits_of", "hub_figures"]

SLACK = 1e-9  # of a period: a sum of times may be a little less than it
FEW = 60  # packets
TURNS = 256  # turns that the longest message takes, at least and about


class Transfer(simpy.Event):
    """A message on its way; as an event it fires with the time at which memory acknowledged its
    last byte.

    ``src``, ``dst``, ``payload_bytes``, ``wire_bytes`` (0 within a GPU), ``packets``, ``list``, of
    those in which it waits.
    """

    def __init__(self, env, src, dst, payload_bytes, packets, flits, list):
        super().__init__(env)
        self.src, self.dst, self.payload_bytes, self.packets = src, dst, payload_bytes, packets
        self.flits, self.wire_bytes, self.list = flits, 0, list
        self.packets_waiting, self.flits_waiting = packets, flits  # not yet on the link
        self.sent_at = env.now
        self._left, self._left_at = None, None

    @property
    def left(self):
        """Event: the last flit is on the sender's link. What a kernel that stores the data itself
        waits for."""
        if self._left is None:
            self._left = simpy.Event(self.env)
            if self._left_at is not None:
                _fire(self._left, self._left_at)
        return self._left

    def _leave(self, time):
        self._left_at = time
        if self._left is not None:
            _fire(self._left, time)


def _fire(event, time):
    """Makes an event happen at ``time``, or now if that is over; its value is ``time``."""
    event._ok, event._value = True, time
    event.env.schedule(event, delay=max(0.0, time - event.env.now))


NEWS = -1  # list of what goes before all others
BUCKETS = 8  # lists of full rows, by RowID
PLAIN, NOP, TAIL, REMNANT = range(BUCKETS, BUCKETS + 4)  # full plain, full .nop, not full of either
REST_SHARE = 4  # of so many messages one is for what is no full row, at least


class _Pair:
    """One source, one destination, one plane: messages that wait, and the credits between the two.

    Lists of messages, each first in, first out, as the packet manager has them: rows by their
    RowID's bucket, in a circle from the last bucket on; after three that passed over it the rest,
    the better list first. What is plain waits while a row is there. Neither holds while a message
    is old: then buckets and rest take turns, and the lists within them.
    """

    __slots__ = ("dst", "lists", "credits", "bucket", "rest", "passed")

    def __init__(self, dst, credits):
        self.dst, self.lists, self.credits = dst, {}, credits
        self.bucket = self.rest = self.passed = 0  # the last ones; messages that passed over rest

    def push(self, transfer):
        self.lists.setdefault(transfer.list, deque()).append(transfer)

    @property
    def waiting(self):
        return bool(self.lists)

    def head(self, old=-inf):
        """The message to serve next; those sent before ``old`` are old."""
        lists = self.lists
        if not lists:
            return None
        if NEWS in lists:
            return lists[NEWS][0]
        if len(lists) == 1:
            return next(iter(lists.values()))[0]
        aged = any(queue[0].sent_at < old for queue in lists.values())
        there = sorted(lists)
        if not aged and any(number < BUCKETS or number == TAIL for number in there):
            there = [number for number in there if number not in (PLAIN, REMNANT)]
        buckets = [number for number in there if number < BUCKETS]
        rest = there[len(buckets) :]
        if rest and (not buckets or self.passed == REST_SHARE - 1):
            number = rest[0]
            if aged:
                number = next((one for one in rest if one > self.rest), rest[0])
        else:
            last = self.bucket + aged
            number = next((one for one in buckets if one >= last), buckets[0])
        return lists[number][0]

    def sent(self, transfer, old=-inf):
        """Packets of a message have left; the last ones take it out of its list."""
        number = transfer.list
        if number == NEWS:
            pass
        elif number >= BUCKETS:
            self.rest, self.passed = number, 0
        else:
            self.bucket = number
            if any(one >= BUCKETS for one in self.lists):
                aged = any(queue[0].sent_at < old for queue in self.lists.values())
                self.passed = REST_SHARE - 1 if aged else min(self.passed + 1, REST_SHARE - 1)
        if not transfer.packets_waiting:
            queue = self.lists[number]
            queue.popleft()
            if not queue:
                del self.lists[number]


class _Port:
    """One plane of a GPU's egress: destinations that have messages, in the order of their turns."""

    __slots__ = ("src", "plane", "pairs", "turns", "busy", "batch", "reports")

    def __init__(self, src, plane, settings, credits):
        self.src, self.plane, self.turns, self.busy = src, plane, deque(), False
        # What comes back to the own GPU takes places of nobody.
        self.pairs = [_Pair(dst, inf if dst == src else credits) for dst in range(settings.ranks)]
        self.batch = (
            settings.batch_packets
        )  # packets of a turn, the same for all destinations: turns are fair
        self.reports = 0  # flits that tell credits and wait for the link


class _Pool:
    """Receive pools of one plane of a GPU: who has their places, (time, source, packets) that will
    leave them, when sources are visited next, and the period of the last visit."""

    __slots__ = ("rank", "plane", "grants", "coming", "next", "period")

    def __init__(self, rank, plane, settings):
        sources = [source for source in range(settings.ranks) if source != rank]
        self.rank, self.plane = rank, plane
        self.grants = Grants(sources, settings.places, settings.pools)
        self.coming, self.next, self.period = deque(), inf, 0


class Network:
    """Links, switch planes and hubs between the GPUs of a machine; see the module's text.

    Parameters: ``env``, a :class:`.timeline.Timeline`; ``machine`` (see
    :meth:`NetworkSettings.of`, which also takes ``options``) or ``settings``. Figures, all of what
    was sent so far: ``payload_bytes``, ``wire_bytes`` (headers included, links only),
    ``report_bytes`` (flits that tell credits), ``local_bytes`` (payload within a GPU),
    ``messages``; ``egress_busy[gpu]`` and ``ingress_busy[gpu]``, the time that the links carried
    flits (mean of the planes). Same calls at the same times, same result.
    """

    def __init__(self, env, machine=None, *, settings=None, **options):
        if (machine is None) == (settings is None):
            raise ValueError("a network is made for a machine, or from settings")
        self.env, self._call_at = env, env.call_at
        self.settings = s = settings or NetworkSettings.of(machine, **options)
        self._planes = 1 if s.spray else s.planes
        self._cycle = s.flit_bytes * self._planes / s.rate  # of a flit on one plane
        self._packet = (
            self._cycle * flits_of(128, flit_bytes=s.flit_bytes, header_flits=s.header_flits)[1]
        )
        first = s.first_share
        # Packets of a turn, which come back as one: a third of a first share, up to half of it
        # where that is few. An eighth takes more than twice as long and moves layers by less than
        # one percent.
        self._most = max(1, first // 3, min(first // 2, FEW)) if first < inf else inf
        self._ports = [
            [_Port(src, plane, s, first) for plane in range(self._planes)] for src in range(s.ranks)
        ]
        self._pools, self._round_length = None, s.visit * (s.ranks - 1)
        if s.places is not None and s.ranks > 1:
            self._pools = [
                [_Pool(dst, plane, s) for plane in range(self._planes)] for dst in range(s.ranks)
            ]
        self._ingress_free = [[0.0] * self._planes for _ in range(s.ranks)]
        self._local_free = [0.0] * s.ranks
        self.payload_bytes = self.wire_bytes = self.local_bytes = self.report_bytes = (
            self.messages
        ) = 0
        #: Called with (GPU, bytes) when bytes have come into its memory; None: nobody is told.
        self.written = None
        self.egress_busy, self.ingress_busy = [0.0] * s.ranks, [0.0] * s.ranks

    def send(
        self,
        src,
        dst,
        payload_bytes,
        *,
        packet_bytes=128,
        row_bytes=None,
        rowid=None,
        nop=False,
        full=True,
        news=False,
        plane=None,
        efficiency=1.0,
    ):
        """Sends a message now; returns its :class:`Transfer`.

        ``packet_bytes``: payload of a packet at most; 32 for stores that nothing merges.
        ``row_bytes``: the message consists of rows of this length, and a packet never spans two of
        them. ``rowid``: of a row; without one it is plain. ``nop``: a row's, stored with the
        paper's class ``.nop``. ``full``: its packets are. ``news``: hubs tell each other something;
        it goes before all others, also of other destinations, and is done when it has arrived.
        These decide among the messages for one destination, see :class:`_Pair`. ``plane``: by
        default all of them, with ``spray``, else (src + dst) mod planes. ``efficiency``: fraction
        of the links' time that its flits fill while it has them. A message of 0 bytes is done at
        once. Raises ValueError for a GPU, plane or size that is not there.
        """
        s = self.settings
        for name, value in (("src", src), ("dst", dst)):
            if not 0 <= value < s.ranks:
                raise ValueError(f"{name} = {value}: must be between 0 and {s.ranks - 1}")
        if payload_bytes < 0 or packet_bytes < 1:
            raise ValueError(
                f"payload_bytes = {payload_bytes}, packet_bytes = {packet_bytes}: must be "
                "at least 0 and 1"
            )
        if plane is not None and (s.spray or not 0 <= plane < s.planes):
            raise ValueError(
                f"plane = {plane}: must be between 0 and {s.planes - 1}, on a network without spray"
            )
        packets, flits = flits_of(
            payload_bytes,
            packet_bytes=packet_bytes,
            row_bytes=row_bytes,
            flit_bytes=s.flit_bytes,
            header_flits=s.header_flits,
        )
        if news:
            waits_in = NEWS
        elif rowid is None:
            waits_in = PLAIN if full else REMNANT
        else:
            waits_in = TAIL if not full else NOP if nop else rowid % BUCKETS
        taken = ceil(flits / efficiency) if src != dst else flits
        transfer = Transfer(self.env, src, dst, payload_bytes, packets, taken, waits_in)
        self.messages += 1
        if not packets:
            _fire(transfer, self.env.now)
            transfer._leave(self.env.now)
        elif src == dst:
            self._loop(transfer)
        else:
            transfer.wire_bytes = flits * s.flit_bytes
            self.wire_bytes += transfer.wire_bytes
            self.payload_bytes += payload_bytes
            port = self._ports[src][(src + dst) % self._planes if plane is None else plane]
            pair = port.pairs[dst]
            if news:  # its destination is the next one, in whatever order the others are
                if pair.waiting:
                    port.turns.remove(pair)
                port.turns.appendleft(pair)
            elif not pair.waiting:
                port.turns.append(pair)
            pair.push(transfer)
            port.batch = max(port.batch, packets // TURNS)
            self._serve(port)
        return transfer

    def _arrive(self, transfer, time):
        if self.written:
            transfer.callbacks.append(lambda one: self.written(one.dst, one.payload_bytes))
        _fire(transfer, time)

    def _loop(self, transfer):
        s, now = self.settings, self.env.now
        self.local_bytes += transfer.payload_bytes
        beats = transfer.packets * ceil(transfer.payload_bytes / transfer.packets / s.beat_bytes)
        end = max(now, self._local_free[transfer.src]) + beats * s.beat_bytes / s.local_rate
        self._local_free[transfer.src] = end
        transfer._leave(end + s.store_latency)
        self._arrive(transfer, end + s.local_latency)

    def _serve(self, port):
        """Gives an idle link to the next destination that has a credit; without one, until a credit
        or a message comes."""
        turns = port.turns
        if port.busy or not turns:
            return
        for skipped, pair in enumerate(turns, 1):
            if pair.credits > 0:
                turns.rotate(-skipped)
                self._send_batch(port, pair)
                return

    def _send_batch(self, port, pair):
        """One turn of a destination: packets of its first messages, as many as a batch and its
        credits allow."""
        s, now, lists = self.settings, self.env.now, pair.lists
        old = now - s.age_limit
        room = min(port.batch, self._most, pair.credits)
        packets = flits = 0
        ended = []  # (message, flits of the batch up to its end)
        while packets < room and lists:
            head = pair.head(old)
            count, waiting = room - packets, head.packets_waiting
            if count < waiting:
                share = -(-head.flits_waiting * count // waiting)
                head.packets_waiting = waiting - count
                head.flits_waiting -= share
                flits += share
            else:
                count = waiting
                flits += head.flits_waiting
                head.packets_waiting = head.flits_waiting = 0
                ended.append((head, flits))
            packets += count
            pair.sent(head, old)
        if not lists:
            port.turns.remove(pair)
        pair.credits -= packets
        told = 0
        if port.reports:  # packets go first: at most one such flit after each
            told = min(port.reports, packets)
            port.reports -= told
        length = (flits + told) * self._cycle
        port.busy = True
        self.egress_busy[port.src] += length / self._planes
        for transfer, at in ended:
            transfer._leave(now + s.store_latency + at * self._cycle)
        self._call_at(now + length, self._sent, port, pair, packets, flits, ended)

    def _sent(self, port, pair, packets, flits, ended):
        """A batch's last flit has left: its place on the receiver's link, its credits, the ends of
        its messages."""
        s, now, free = self.settings, self.env.now, self._ingress_free[pair.dst]
        length, packet = flits * self._cycle, flits / packets * self._cycle
        # The switch stores a packet before it sends it on; the batch's first packet is there before
        # its last has left.
        there = now + s.latency + packet
        end = max(free[port.plane], now - length + packet + s.latency) + length
        if end < there:
            end = there
        free[port.plane] = end
        self.ingress_busy[pair.dst] += length / self._planes
        for transfer, at in ended:
            inside = 0.0 if transfer.list == NEWS else s.store_latency + s.write_latency
            self._arrive(transfer, end - (flits - at) * self._cycle + inside)
        if self._pools:
            self._frees(
                self._pools[pair.dst][port.plane], port.src, end + s.credit_latency, packets
            )
        port.busy = False
        self._serve(port)

    def _frees(self, pool, source, time, packets):
        """Packets have left the pool at that time; sources are visited behind it."""
        pool.coming.append((time, source, packets))
        if len(pool.coming) == 1:
            self._visit_at(pool, self._round(time))

    def _round(self, time):
        """When the first round of visits after a time begins."""
        length = self._round_length
        return length * (floor(time / length) + 1) if length else time

    def _visit_at(self, pool, time):
        if time < pool.next:  # a visit that was planned for later is none
            pool.next = time
            self._call_at(time, self._visit, pool, time)

    def _visit(self, pool, planned):
        """A round: every source is looked at, and told what it got."""
        if planned != pool.next:
            return
        now, period = self.env.now, self.settings.period
        pool.next, grants, coming = inf, pool.grants, pool.coming
        while coming and coming[0][0] <= now:
            _, source, packets = coming.popleft()
            grants.arrived(source, packets)
            grants.freed(source, packets)
        periods = now / period + SLACK
        measures = periods >= pool.period + 1
        if measures:
            pool.period = floor(periods)
        for source, granted, back in grants.round(measures):
            self._tell(pool.rank, pool.plane, source, self._granted, pool, granted, back)
        if grants.pending:
            self._visit_at(pool, self._round(now))
        elif coming:
            self._visit_at(pool, self._round(coming[0][0]))
        elif period < inf and not grants.settled:
            self._visit_at(pool, period * (pool.period + 1))

    def _tell(self, src, plane, dst, function, pool, *arguments):
        """A flit of its own goes from a hub to another: between packets, and through the other's
        ingress link behind what is queued there."""
        s, now, port = self.settings, self.env.now, self._ports[src][plane]
        free, cycle, arrival = self._ingress_free[dst], self._cycle, now + s.latency
        if port.busy:
            port.reports += 1
            arrival = now + self._packet / 2 + s.latency
        self.report_bytes += s.flit_bytes
        queued = free[plane]
        if queued > arrival:
            arrival = queued
        if queued > now:
            free[plane] = queued + cycle
        self._call_at(arrival + cycle, function, pool, self._ports[dst][plane], *arguments)

    def _granted(self, pool, port, packets, back):
        """A source hears what it may send more; asked to, it gives back of what it has not used.
        ``pool``: the receiver's, ``port``: the source's."""
        pair = port.pairs[pool.rank]
        pair.credits += packets
        if back:
            part = pool.grants.gives(pair.credits)
            if part:
                pair.credits -= part
                self._tell(port.src, port.plane, pool.rank, self._returned, pool, port.src, part)
        if not port.busy:
            self._serve(port)

    def _returned(self, pool, _, source, packets):
        """The receiver hears that a source has given places back."""
        pool.grants.returned(source, packets)
        self._visit_at(pool, self._round(self.env.now))
