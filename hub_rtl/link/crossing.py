# SPDX-License-Identifier: Apache-2.0
"""Everything that passes between a link's own clock and the hub's, in one place."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer, PulseSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import LINK_COUNTS, LINK_STEPS, MESSAGES, record_of, types_of
from hub_rtl.parts.mutants import mutant, variant

from .link import slice_ports

__all__ = ["LINK", "Crossing"]

LINK = "link"  # the links' clock domain; the hub's is ``sync``
BYTES = 256  # of payload that find room each way: hides the synchronizers at one beat per cycle
FEW = 4  # items of a queue whose rate does not matter
NOTICES = 16  # places for what headers tell
NUMBERS = 16  # of counts: a round trip through the synchronisers at 2 : 1
ON_THEIR_WAY = 5  # notices that flits already taken from the wire may still become
#: Notices with which the wire goes on: the level shows one two cycles later, the wire waits then.
LET_IN = NOTICES - ON_THEIR_WAY - 3


class CrossingObserve(NamedTuple):
    """What a proof may see of a :class:`Crossing`."""

    queues: dict  #: AsyncFIFO by name
    counted: Signal  #: strobes of the link that wait to be handed over


class Crossing(wiring.Component):
    """One link's signals between its own clock (domain ``link``) and the hub's (``sync``).

    Contract: on the hub's side it is the link and its serializer, on the link's side it is the
    slice; the two clocks may have any phase. Streams come out whole, once and in order; what
    headers tell (the messages, ``o_bad``) comes out once and in order, too. Of
    ``counts`` nothing is lost: they are numbers of strobes, up to three a cycle. ``i_control``
    takes one flit at a time and is ready when the link has taken it; ``ctl_ready`` shows that in
    the next cycle at the latest. ``rank`` and ``peer_dead`` are levels: bits arrive each by itself,
    so the rank is set before traffic, as everywhere. The wire waits while headers have told more
    than the hub's clock has taken.

    What crosses, and by what: streams, notices and counts by an AsyncFIFO (Gray pointers over two
    flip-flops), levels by an FFSynchronizer, that a control flit was taken by a PulseSynchronizer.
    No other path between the two clocks exists.

    Latency: an item is there 2 to 3 cycles of the clock that reads after the edge that wrote it; a
    place is free again 2 to 3 cycles of the other one after it was read. Throughput: a beat per
    cycle of the slower clock. A control flit takes about 5 cycles of each clock. Stalls: as the
    streams' takers.

    Clocks: the link's is at most twice as fast as the hub's, else counts are lost; anything slower
    is slow, not wrong. Reset: both domains' resets are asserted together, each in its own clock,
    for at least 4 cycles of the slower one; they end in any order, for a queue is not read while
    its reading side is in reset. A queue empties when the domain that writes it is reset: its reset
    reaches the reading side at once and ends there after two cycles. The other way round nothing is
    told, so one domain is never reset alone.

    Parameters: ``cfg``. Ports: ``i_record`` In stream(record), ``o_record`` Out, the same for the
    serializer; :func:`~hub_rtl.link.link.slice_ports`, but ``counts`` Out ``link_counts``;
    ``link``, the same ports of the LinkPort; ``rx`` In AXI4-Stream, the wire, ``o_rx`` Out, the
    same for the LinkPort. Source: C. E. Cummings, "Simulation and Synthesis Techniques for
    Asynchronous FIFO Design", SNUG 2002, as Amaranth's library has it.
    """

    observe: CrossingObserve  # once elaborated

    def __init__(self, cfg):
        record = stream.Signature(record_of(cfg, cfg.slice_bytes))
        super().__init__(
            {
                "i_record": In(record),
                "o_record": Out(record),
                **slice_ports(cfg),
                "counts": Out(types_of(cfg).link_counts),
                "link": In(wiring.Signature(slice_ports(cfg))),
                "rx": In(AxiStream(FLIT)),
                "o_rx": Out(AxiStream(FLIT)),
            }
        )
        self._cfg = cfg
        strobes = dict(LINK_COUNTS)
        self._steps = data.StructLayout(dict.fromkeys(strobes, LINK_STEPS.bit_length()))
        names = (*MESSAGES, "o_bad")
        self._notice = data.StructLayout({name: getattr(self.link, name).shape() for name in names})

    def elaborate(self, platform):
        m = Module()
        beats = max(FEW, BYTES // self._cfg.slice_bytes)
        link, queues = self.link, {}
        self.observe = CrossingObserve(queues, Signal(self._steps))
        self._pass(m, "record", self.i_record, self.o_record, beats, to_link=True)
        self._pass(m, "message", self.i_message, link.i_message, FEW, to_link=True)
        self._pass(m, "beat", link.o_beat, self.o_beat, beats)
        # A source goes before its packet's first beat: it never waits for room.
        self._pass(m, "source", link.o_source, self.o_source, 2 * beats)
        self._pass(m, "taken_control", link.o_control, self.o_control, FEW)
        self._send_control(m)
        self._tell(m)
        self._count(m)
        for name, level, seen, init, domain in (
            ("rank_seen", self.rank, link.rank, 0, LINK),
            ("dead_seen", self.peer_dead, link.peer_dead, 0, LINK),
            ("ready_seen", link.ctl_ready, self.ctl_ready, (1 << self._cfg.ranks) - 1, "sync"),
        ):
            if variant("link.level_crosses_as_it_is", True, False):
                m.submodules[name] = FFSynchronizer(level, seen, o_domain=domain, init=init)
            else:
                m.d.comb += seen.eq(level)
        return m

    def _queue(self, m, name, width, depth, ready=1, to_link=False):
        """An asynchronous queue, from the link unless ``to_link``. It is not read in reset: the
        other side may be out of its own already."""
        writes, reads = ("sync", LINK) if to_link else (LINK, "sync")
        m.submodules[name] = queue = AsyncFIFO(
            width=width, depth=depth, w_domain=writes, r_domain=reads, exact_depth=True
        )
        self.observe.queues[name] = queue
        resting = ResetSignal(reads, allow_reset_less=True)
        m.d.comb += queue.r_en.eq(ready & ~mutant("link.queue_read_in_reset", resting, 0))
        return queue

    def _pass(self, m, name, source, sink, depth, to_link=False):
        """A stream's items, in order."""
        width = len(Value.cast(source.payload))
        queue = self._queue(m, name, width, depth, sink.ready, to_link)
        m.d.comb += [
            queue.w_data.eq(source.payload),
            queue.w_en.eq(source.valid),
            source.ready.eq(mutant("link.item_taken_without_room", queue.w_rdy, 1)),
            sink.payload.eq(queue.r_data),
            sink.valid.eq(queue.r_rdy),
        ]

    def _send_control(self, m):
        """A control flit, and that the link took it: until then its sender waits."""
        control, link = self.i_control, self.link.i_control
        queue = self._queue(m, "control", FLIT, 2, link.ready, to_link=True)
        m.submodules.taken = taken = PulseSynchronizer(LINK, "sync")
        away = Signal()
        m.d.comb += [
            queue.w_data.eq(control.payload),
            queue.w_en.eq(control.valid & ~away),
            control.ready.eq(
                mutant("link.control_taken_when_offered", taken.o, queue.w_en & queue.w_rdy)
            ),
            link.payload.eq(queue.r_data),
            link.valid.eq(queue.r_rdy),
            taken.i.eq(queue.r_rdy & queue.r_en),
        ]
        m.d.sync += away.eq((away | (queue.w_en & queue.w_rdy)) & ~taken.o)

    def _tell(self, m):
        """What headers tell; the wire waits while there is no room for it."""
        wire = self.rx
        rx = self.o_rx
        hold = Signal()
        queue = self._queue(m, "notices", self._notice.size, NOTICES)
        told = Signal(self._notice)
        seen = self._notice(queue.r_data)
        names = [name for name, _ in self._notice]
        m.d.comb += [
            *(told[name].eq(getattr(self.link, name)) for name in names),
            queue.w_data.eq(told),
            queue.w_en.eq(Cat(told[name].en for name in names).any()),
        ]
        for name in names:
            m.d.comb += getattr(self, name).eq(Mux(queue.r_rdy, seen[name].as_value(), 0))
        m.d[LINK] += hold.eq(mutant("link.notices_without_room", queue.w_level > LET_IN, 0))
        m.d.comb += [
            rx.tdata.eq(wire.tdata),
            rx.tlast.eq(wire.tlast),
            rx.tvalid.eq(wire.tvalid & ~hold),
            wire.tready.eq(rx.tready & ~hold),
        ]

    def _count(self, m):
        """Strobes are added up until the queue takes their numbers."""
        waiting = self.observe.counted
        queue = self._queue(m, "numbers", self._steps.size, NUMBERS)
        given = Signal()
        seen = self._steps(queue.r_data)
        m.d.comb += [
            queue.w_data.eq(waiting),
            queue.w_en.eq(waiting.as_value().any()),
            given.eq(queue.w_en & queue.w_rdy),
        ]
        for name, _ in self._steps:
            left = Mux(mutant("link.counts_given_twice", given, 0), 0, waiting[name])
            m.d[LINK] += waiting[name].eq(
                Mux(left == LINK_STEPS, left, left + self.link.counts[name])
            )
            m.d.comb += self.counts[name].eq(Mux(queue.r_rdy, seen[name], 0))
