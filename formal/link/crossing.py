# SPDX-License-Identifier: Apache-2.0
"""Promises of what passes between two clocks (``hub_rtl/link/crossing.py``).

One clock for the solver; each domain of the part moves in the cycles of its own tick. Ticks come in
any pattern, also together, which is every phase and ratio, and a change that a flip-flop just
misses.
"""

from amaranth import Cat, ClockDomain, EnableInserter, Mux, Signal, Value
from amaranth.lib import wiring

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.records import LINK_STEPS
from hub_rtl.link.crossing import LINK, ON_THEIR_WAY, Crossing

__all__ = [
    "ItemsCrossInOrder",
    "LevelsCross",
    "NothingLeavesInReset",
    "NoticesFindRoom",
    "StrobesAreCounted",
    "StrobesFindRoom",
    "TakenIsTold",
]

BITS = 2  # lowest ones of each input, which move; queues do not look at what they hold
LINK_SIDE = "link", "o_record", "rx", "o_rx"


class TwoClocks(Spec):
    """A crossing whose inputs change with the clock of their side."""

    def crossing(self, m, link_reset=0):
        """The part; ``self.tick``: its clocks' ticks by domain; ``self.inputs``: of each input what
        is not always 0."""
        m.domains.link = domain = ClockDomain(LINK)
        m.d.comb += [domain.clk.eq(self.clk), domain.rst.eq(link_reset)]
        dut = Crossing(self._cfg)
        self.tick = {name: Signal(name=f"{name}_tick") for name in ("sync", LINK)}
        self.free(*self.tick.values())
        m.submodules.dut = EnableInserter(self.tick)(dut)
        self.parts.append(dut)
        inputs, self.inputs = {name: [] for name in self.tick}, {}
        for path, member, value in dut.signature.flatten(dut):
            if member.flow == wiring.In:
                few = Value.cast(value)[:BITS]
                self.free(few)
                self.inputs[path] = few
                inputs[LINK if path[0] in LINK_SIDE else "sync"].append(few)
        for name, values in inputs.items():
            still = self.started & ~self.past(self.tick[name], f"{name}_ticked")
            values = Cat(values)
            before = self.past(values, f"{name}_inputs")
            self.suppose(f"{name}: inputs change with the clock", values == before, when=still)
        return dut

    def twice_as_fast(self, m):
        """The link's clock is no faster."""
        hub, link = self.tick["sync"], self.tick[LINK]
        ticks = Signal(range(4))
        with m.If(hub):
            m.d.sync += ticks.eq(0)
        with m.Elif(link):
            m.d.sync += ticks.eq(ticks + (ticks != 3))
        self.suppose("link: at most twice as fast", ticks < 2, when=link & ~hub)

    def room(self, dut):
        """A strobe is not lost. Returns the queue of counts."""
        inner = observe(dut)
        waiting, queue = inner.counted.tx_busy, inner.queues["numbers"]
        full = (waiting == LINK_STEPS) & ~(queue.w_en & queue.w_rdy)
        comes = self.tick[LINK] & dut.link.counts.tx_busy
        self.always("room for a strobe", ~full, when=comes)
        return queue

    def moved(self, port, domain):
        """An item moves with its clock."""
        return moves(port) & self.tick[domain]


class ItemsCrossInOrder(TwoClocks):
    """The items of a stream come out on the other side whole, once and in order, and each that was
    taken has room; whatever the clocks do."""

    def __init__(self, cfg, stream):
        super().__init__(cfg)
        self._stream = stream

    def build(self, m):
        dut = self.crossing(m)
        source, sink, to_link = {
            "record": (dut.i_record, dut.o_record, True),
            "message": (dut.i_message, dut.link.i_message, True),
            "source": (dut.link.o_source, dut.o_source, False),
            "beat": (dut.link.o_beat, dut.o_beat, False),
            "control": (dut.link.o_control, dut.o_control, False),
        }[self._stream]
        into, out = ("sync", LINK) if to_link else (LINK, "sync")
        name = {"control": "taken_control"}.get(self._stream, self._stream)
        depth = observe(dut).queues[name].depth
        put, take = self.moved(source, into), self.moved(sink, out)
        self.always_fifo(self._stream, put, source.payload, take, sink.payload, depth)
        held = self.past(sink.valid & ~take, "waits")
        payload = Value.cast(sink.payload)
        self.always("valid held", sink.valid, when=held)
        self.always("payload held", payload == self.past(payload, "shown"), when=held)


class LevelsCross(TwoClocks):
    """What a side sees of a level of the other changes with its own clock only, and is the level
    when it has stood for two ticks of that."""

    def build(self, m):
        dut, link = self.crossing(m), self.parts[0].link
        for name, level, seen, reader in (
            ("rank", dut.rank, link.rank, LINK),
            ("dead", dut.peer_dead, link.peer_dead, LINK),
            ("ready", link.ctl_ready, dut.ctl_ready, "sync"),
        ):
            tick, before = self.tick[reader], self.past(seen, f"{name}_seen")
            rests = self.started & ~self.past(tick, f"{name}_ticked")
            self.always(f"{name}: with the reader's clock", seen == before, when=rests)
            ticks = Signal(range(3))
            stood = Signal(range(3))  # ticks in which it was what it is
            same = level == self.past(level, f"{name}_before")
            m.d.comb += stood.eq(Mux(same, ticks, 0))
            m.d.sync += ticks.eq(stood + (tick & (stood != 2)))
            self.always(f"{name}: as it is", seen == level, when=stood == 2)
            self.reach(f"{name}: seen", self.started & (seen != before))


class NothingLeavesInReset(TwoClocks):
    """While the link is in reset nothing leaves a queue to it: what the hub writes meanwhile, out
    of its own reset already, waits."""

    def build(self, m):
        reset = Signal()
        self.free(reset)
        dut = self.crossing(m, reset)
        for name, port in (("record", dut.o_record), ("message", dut.link.i_message)):
            queue = observe(dut).queues[name]
            self.always(f"{name}: nothing leaves", ~(queue.r_en & queue.r_rdy), when=reset)
            self.reach(f"{name}: one waits", reset & port.valid & port.ready)


class TakenIsTold(TwoClocks):
    """A control flit is answered once, after the link took it; and then ``ctl_ready`` shows, in the
    next cycle at the latest, what the link's showed after that."""

    def build(self, m):
        dut = self.crossing(m)
        control, far = dut.i_control, dut.link.i_control
        waits = self.past(control.valid & ~self.moved(control, "sync"), "waits")
        self.suppose("control: valid held", control.valid, when=waits)
        offered = self.past(control.payload, "offered")
        self.suppose("control: payload held", control.payload == offered, when=waits)
        away = Signal()
        answered = self.moved(control, "sync")
        taken = self.moved(far, LINK)
        self.flag(away, taken, answered)
        self.always("taken when offered", control.valid, when=far.valid & ~away)
        self.always("not before it is taken", away, when=answered)
        self.always("one at a time", ~away, when=taken)
        self.always("as it is", far.payload == control.payload, when=far.valid)
        self.reach("one waits for the other clock", away & blocked(control))


#: Ticks of the link's clock until a queue of counts is full and three strobes have waited.
FILLS = 33


class StrobesAreCounted(TwoClocks):
    """While the link's clock ticks at most twice between two ticks of the hub's, what a counter
    gets is what its link told, less what is on its way: no strobe is counted twice, and each finds
    room."""

    def build(self, m):
        dut = self.crossing(m)
        hub, link = self.tick["sync"], self.tick[LINK]
        self.twice_as_fast(m)
        queue = self.room(dut)
        told, strobe = dut.counts.tx_busy, dut.link.counts.tx_busy
        sums = Signal(8)
        m.d.sync += sums.eq(sums + (link & strobe) - told * hub)
        self.always("as many as there were", sums <= LINK_STEPS * (queue.depth + 1))
        filled = self._filled(m, hub, link)
        self.reach("three at once", filled & (told == LINK_STEPS) & hub)

    def _filled(self, m, hub, link):
        """1 as long as all is as on the shortest way to a number of three, which is too far for a
        free search: each tick of the link's clock brings a strobe, nothing else moves; it ticks as
        fast as it may until the queue is full and strobes wait, and then the hub's takes them."""
        age = Signal(range(4 * FILLS))
        turn = Signal(range(3))
        strayed = Signal()
        fills, slow = age < FILLS, turn == 2
        others = Cat(few for path, few in self.inputs.items() if path != ("link", "counts"))
        still = (self.inputs["link", "counts"] == 1) & ~others.any()
        as_told = (link == fills) & (hub == (slow | ~fills)) & still
        m.d.sync += [
            age.eq(age + 1),
            turn.eq(Mux(slow, 0, turn + 1)),
            strayed.eq(strayed | ~as_told),
        ]
        return ~strayed & as_told


class StrobesFindRoom(TwoClocks):
    """While the link's clock ticks at most twice between two ticks of the hub's, each strobe finds
    room, for ever: also behind a full queue, which no search for :class:`StrobesAreCounted` comes
    to."""

    def build(self, m):
        dut = self.crossing(m)
        self.twice_as_fast(m)
        self.room(dut)


class NoticesFindRoom(TwoClocks):
    """What headers tell finds room, if a flit tells one thing at most, and that within
    ON_THEIR_WAY cycles after it was taken from the wire."""

    def build(self, m):
        dut = self.crossing(m)
        link, queue = self.tick[LINK], observe(dut).queues["notices"]
        taken = Signal(ON_THEIR_WAY)  # a flit, so many cycles ago
        with m.If(link):
            m.d.sync += taken.eq(Cat(dut.o_rx.tvalid & dut.o_rx.tready, taken))
        later = self.constant(range(ON_THEIR_WAY), "later")
        tells = queue.w_en & link
        self.suppose("told by a flit", taken.bit_select(later, 1), when=tells)
        self.always("room", queue.w_rdy, when=tells)
        self.reach("the wire waits", dut.o_rx.tready & dut.rx.tvalid & ~dut.rx.tready)
