# SPDX-License-Identifier: Apache-2.0
"""A network whose switches copy rows and add answers up, as NVLink SHARP and DySHARP do.

Beside the messages of :class:`.network.Network`, which are as they were, there are three:

=========  =========================================================================================
multicast  Rows go up the sender's link once; the switch sends a copy of each to the GPUs that it is
           for, which differ from row to row. A copy takes its receiver's link.
sums       GPUs answer for the tokens of one GPU; the switch adds up what is for one token, and one
           sum goes down. Each term takes its sender's link, the sum the receiver's.
pull       The receiver asks first: requests go up once and are copied to those that have terms;
           they read their memory and answer; the switch adds.
=========  =========================================================================================

The copies of a multicast, and the terms of sums, are spread evenly over it: a sum can go down when
all GPUs with terms have sent as large a part of theirs. What comes back to the sender itself takes
its links too, as NVLink SHARP does it. A packet may carry flits that list its targets.

A multicast takes a credit of every receiver, and waits until all have one; with ``buffer_flits`` it
waits while more flits than that queue for one of them, as the switch's buffers are full then. Terms
for different GPUs take turns. Sums travel in a class of their own, as responses do beside requests:
they wait for other sums, not for the rows that queue for the same GPU, which they delay. Where the
switch keeps partial sums is no limit here: ``waiting_sums`` says how much it had to keep.
"""

from collections import deque
from math import inf

from .network import TURNS, Network, Transfer, flits_of

__all__ = ["InSwitchNetwork", "Multicast", "Sums"]


class _Line:
    """Messages of one kind on a GPU's egress: multicasts first in, first out, terms in turn. Takes
    turns with other kinds and with the destinations of others."""

    def __init__(self):
        self.messages = deque()

    @property
    def credits(self):
        """Packets that the first message may send now."""
        return self.messages[0].room()


class _Parts(Transfer):
    """A message that is not one stream from one GPU to another. ``wire_bytes``: mean of what goes
    up and what goes down, which for others is the same."""

    def _part(self, dst, payload_bytes, packets, flits):
        return Transfer(self.env, self.src, dst, payload_bytes, packets, flits, None)


class Multicast(_Parts):
    """Rows for several GPUs; as an event it fires when the last copy is in memory.

    ``copies``: {GPU: :class:`.network.Transfer`}, each fires when what is for that GPU is there.
    """

    def __init__(self, network, src, port, up, copies, payload_bytes):
        super().__init__(network.env, src, None, payload_bytes, *up, None)
        self.network, self.port = network, port
        self.copies = {
            dst: self._part(dst, size, packets, flits)
            for dst, (size, packets, flits) in copies.items()
        }

    def room(self):
        """Each receiver still needs a place for what it gets of them."""
        if not self.payload_bytes:  # requests
            return inf
        if not self.network.has_buffers(self):
            return 0
        if self.network.settings.places is None:
            return inf
        return min(
            self.port.pairs[dst].credits
            for dst, copy in self.copies.items()
            if copy.packets_waiting
        )

    def sent_part(self, packets, flits):
        """{GPU: (packets, flits)} of the copies of these packets."""
        sent = self.packets - self.packets_waiting, self.flits - self.flits_waiting
        parts = {}
        for dst, copy in self.copies.items():
            left = [
                whole - whole * now // total
                for whole, now, total in zip(
                    (copy.packets, copy.flits), sent, (self.packets, self.flits), strict=True
                )
            ]
            parts[dst] = copy.packets_waiting - left[0], copy.flits_waiting - left[1]
            copy.packets_waiting, copy.flits_waiting = left
        return parts


class Sums(_Parts):
    """Sums for one GPU; as an event it fires when the last is in its memory.

    ``terms``: {GPU: :class:`Term`} of those that answer.
    """

    def __init__(self, network, dst, down, terms, payload_bytes):
        super().__init__(network.env, None, dst, payload_bytes, *down, None)
        self.network, self.added, self.waiting = network, 0, 0
        self.terms = {
            src: Term(self, src, packets, flits) for src, (packets, flits) in terms.items()
        }

    def progress(self):
        """(flits of sums that all terms are there for, flits for which some are)"""
        parts = [self.flits * term.came // term.flits for term in self.terms.values()]
        return min(parts), max(parts)


class Term(Transfer):
    """What one GPU adds to :class:`Sums`; ``came``: its flits that are in the switch."""

    def __init__(self, sums, src, packets, flits):
        super().__init__(sums.env, src, sums.dst, 0, packets, flits, None)
        self.sums, self.came = sums, 0

    def room(self):
        return inf


class InSwitchNetwork(Network):
    """See the module's text. Beside the figures of :class:`.network.Network`: ``up_bytes``,
    ``down_bytes``, what the new messages put on links from and to GPUs, headers included;
    ``waiting_sums[gpu]``, bytes of partial sums that the switch held for a GPU, at most.

    ``sum_latency``: what copying or adding takes in the switch beside its latency, in the unit of
    the settings. ``buffer_flits``: that may queue for a GPU in the switch, None: any number.
    ``turns``: that a message takes at most and about, if it is longer than a batch.
    """

    def __init__(
        self,
        env,
        machine=None,
        *,
        settings=None,
        sum_latency=0.0,
        buffer_flits=None,
        turns=TURNS,
        **options,
    ):
        super().__init__(env, machine, settings=settings, **options)
        if self._planes != 1:
            raise ValueError("spray = False: a switch that copies needs messages on all planes")
        self.sum_latency, self.turns = sum_latency, turns
        self._buffer = inf if buffer_flits is None else buffer_flits * self._cycle
        self._sums_free = [0.0] * self.settings.ranks
        self._asleep = set()  # GPUs whose multicast waits for buffers
        self.up_bytes = self.down_bytes = 0
        self.waiting_sums = [0] * self.settings.ranks
        self._kept = [0] * self.settings.ranks
        self._lines = {}

    # -- messages ----------------------------------------------------------------------------------

    def multicast(self, src, bytes_to, payload_bytes, *, row_bytes=None, list_flits=(0, 0)):
        """Sends rows of ``payload_bytes`` now, of which each GPU gets ``bytes_to[gpu]``; returns
        the :class:`Multicast`.

        ``row_bytes``: of one row, as for :meth:`send`. ``list_flits``: flits of a packet that list
        its targets, going up and, for the targets at one GPU, going down. Raises ValueError without
        a receiver, for a GPU that is not there, and where a GPU would get more than there is, or
        the GPUs together less.
        """
        self._check(src, bytes_to, payload_bytes, "bytes_to")
        up = self._size(payload_bytes, row_bytes, list_flits[0])
        copies = {
            dst: (size, *self._size(size, row_bytes, list_flits[1]))
            for dst, size in bytes_to.items()
            if size
        }
        message = self._multicast(src, up, copies, payload_bytes, "rows")
        self.payload_bytes += (payload_bytes + sum(bytes_to.values())) // 2
        return message

    def sums(self, dst, bytes_from, payload_bytes, *, row_bytes=None):
        """Each GPU sends its terms now, ``bytes_from[gpu]`` of them; ``dst`` gets ``payload_bytes``
        of sums. Returns :class:`Sums`; raises ValueError as :meth:`multicast` does."""
        self._check(dst, bytes_from, payload_bytes, "bytes_from")
        made = self._sums(dst, bytes_from, payload_bytes, row_bytes)
        for term in made.terms.values():
            self._queue(term, "terms")
        return made

    def pull(self, dst, bytes_from, payload_bytes, *, row_bytes=None, list_flits=(0, 0), read=0.0):
        """As :meth:`sums`, but each GPU sends its terms when the request of ``dst`` has come to it
        and ``read`` has passed, the time of its memory. A request per packet of sums."""
        self._check(dst, bytes_from, payload_bytes, "bytes_from")
        made = self._sums(dst, bytes_from, payload_bytes, row_bytes)
        up, down = (self.settings.header_flits + flits for flits in list_flits)
        asked = {
            src: (0, term.packets, max(1, down) * term.packets) for src, term in made.terms.items()
        }
        request = self._multicast(
            dst, (made.packets, max(1, up) * made.packets), asked, 0, "requests"
        )
        for src, copy in request.copies.items():
            copy.callbacks.append(
                lambda _, src=src: self._call_at(
                    self.env.now + read, self._queue, made.terms[src], "terms"
                )
            )
        return made

    # -- what they are made of ---------------------------------------------------------------------

    def _check(self, gpu, parts, payload_bytes, name):
        for one in (gpu, *parts):
            if not 0 <= one < self.settings.ranks:
                raise ValueError(
                    f"{name}: GPU {one}: must be between 0 and {self.settings.ranks - 1}"
                )
        if payload_bytes < 1 or not any(parts.values()):
            raise ValueError(f"{name} = {parts}: must name a GPU, and bytes of some")
        least, most = max(parts.values()), sum(parts.values())
        if min(parts.values()) < 0 or not least <= payload_bytes <= most:
            raise ValueError(
                f"payload_bytes = {payload_bytes}: must be between {least}, the most of one GPU, "
                f"and {most}, that of all"
            )

    def _size(self, payload_bytes, row_bytes, list_flits=0):
        s = self.settings
        return flits_of(
            payload_bytes,
            row_bytes=row_bytes,
            flit_bytes=s.flit_bytes,
            header_flits=s.header_flits + list_flits,
        )

    def _multicast(self, src, up, copies, payload_bytes, kind):
        port = self._ports[src][0]
        message = Multicast(self, src, port, up, copies, payload_bytes)
        self._count(message, up[1], sum(flits for *_, flits in copies.values()))
        self._queue(message, kind)
        return message

    def _sums(self, dst, bytes_from, payload_bytes, row_bytes):
        terms = {src: self._size(size, row_bytes) for src, size in bytes_from.items() if size}
        made = Sums(self, dst, self._size(payload_bytes, row_bytes), terms, payload_bytes)
        self.payload_bytes += (payload_bytes + sum(bytes_from.values())) // 2
        self._count(made, sum(flits for _, flits in terms.values()), made.flits)
        return made

    def _count(self, message, up, down):
        self.messages += 1
        self.up_bytes += up * self.settings.flit_bytes
        self.down_bytes += down * self.settings.flit_bytes
        message.wire_bytes = (up + down) * self.settings.flit_bytes // 2
        self.wire_bytes += message.wire_bytes

    def has_buffers(self, message):
        """Whether the switch takes more of a multicast now; else its sender looks again when it
        will."""
        now, src = self.env.now, message.src
        free = max(self._ingress_free[dst][0] for dst in message.copies) - self._buffer
        if free <= now:
            return True
        if src not in self._asleep:
            self._asleep.add(src)
            self._call_at(free, self._wake, src)
        return False

    def _wake(self, src):
        self._asleep.discard(src)
        self._serve(self._ports[src][0])

    def _queue(self, message, kind):
        port = self._ports[message.src][0]
        line = self._lines.setdefault((message.src, kind), _Line())
        if not line.messages:
            port.turns.append(line)
        line.messages.append(message)
        port.batch = max(port.batch, message.packets // self.turns)
        self._serve(port)

    # -- a turn ------------------------------------------------------------------------------------

    def _send_batch(self, port, pair):
        if not isinstance(pair, _Line):
            super()._send_batch(port, pair)
            return
        message, s = pair.messages[0], self.settings
        packets = int(min(port.batch, self._most, message.room(), message.packets_waiting))
        flits = -(-message.flits_waiting * packets // message.packets_waiting)
        message.packets_waiting -= packets
        message.flits_waiting -= flits
        if not message.packets_waiting:
            pair.messages.popleft()
        elif isinstance(message, Term):
            pair.messages.rotate(-1)
        if not pair.messages:
            port.turns.remove(pair)
        parts = message.sent_part(packets, flits) if isinstance(message, Multicast) else None
        if parts and message.payload_bytes and s.places is not None:
            for dst, (count, _) in parts.items():
                port.pairs[dst].credits -= count
        told = min(port.reports, packets)
        port.reports -= told
        length = (flits + told) * self._cycle
        port.busy = True
        self.egress_busy[port.src] += length / self._planes
        if not message.packets_waiting:
            message._leave(self.env.now + s.store_latency + flits * self._cycle)
        self.env.call_after(length, self._passed, port, message, packets, flits, parts)

    def _passed(self, port, message, packets, flits, parts):
        """A batch's last flit has left: its copies go down, or the sums that it completes."""
        if parts is None:
            self._add(port, message, packets, flits)
        else:
            self._copy(port, message, packets, flits, parts)
        port.busy = False
        self._serve(port)

    def _copy(self, port, message, packets, flits, parts):
        s, last = self.settings, 0.0
        for dst, (count, down) in parts.items():
            end = self._down(port, dst, flits, packets, down)
            last = max(last, end)
            copy = message.copies[dst]
            if count and dst != port.src and message.payload_bytes and s.places is not None:
                self._frees(self._pools[dst][port.plane], port.src, end + s.credit_latency, count)
            if down and not copy.flits_waiting:
                self._arrive(copy, end + s.store_latency + s.write_latency)
        if not message.packets_waiting:
            last += s.store_latency + s.write_latency
            self._call_at(last, message.succeed, last)

    def _add(self, port, term, packets, flits):
        sums, dst = term.sums, term.dst
        term.came += flits
        ready, begun = sums.progress()
        down, sums.added = ready - sums.added, ready
        self._kept[dst] += begun - ready - sums.waiting
        sums.waiting = begun - ready
        kept = self._kept[dst] * self.settings.flit_bytes
        self.waiting_sums[dst] = max(self.waiting_sums[dst], kept)
        if down:
            end = self._down(port, dst, flits, packets, down, sums=True)
            if ready == sums.flits:
                s = self.settings
                self._arrive(sums, end + s.store_latency + s.write_latency)

    def _down(self, port, dst, flits, packets, down, sums=False):
        """``down`` flits take the receiver's link, made of ``flits`` in ``packets`` that have just
        gone up; returns when the last is through."""
        now, rows_free = self.env.now, self._ingress_free[dst]
        free = self._sums_free[dst] if sums else rows_free[0]
        latency = self.settings.latency + self.sum_latency
        length, packet, took = (count * self._cycle for count in (flits, flits / packets, down))
        start = max(free, now - length + packet + latency)
        end = max(start + took, now + latency + packet)
        if down:
            self.ingress_busy[dst] += took / self._planes
            if sums:
                self._sums_free[dst] = end
                rows_free[0] = max(rows_free[0], start) + took
            else:
                rows_free[0] = end
        return end
