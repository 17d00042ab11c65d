"""Promises of the small sources of operations and of the flag writer (``bank_sources.py``, ``event_flags.py``)."""

from amaranth import Cat, Mux, Signal

from hub_rtl.formats import EventKind
from hub_rtl.readiness.bank_sources import OverlapInbox, StallClock
from hub_rtl.readiness.event_flags import EventFlags
from hub_rtl.readiness.scoreboard_types import OpKind, scoreboard_types

from .readiness import Opened
from .spec import Spec

__all__ = ["EachReadyHasItsFlag", "OverlapsAreKept", "TicksComeInTime"]


class OverlapsAreKept(Spec):
    """A bank whose overlap was reported is told to the pipeline, at most once per report, after fewer others than there are
    banks, and is offered within two cycles when nothing else is. No other bank is told."""

    def __init__(self, cfg):
        super().__init__()
        self._cfg = cfg

    def build(self, m):
        banks, width = scoreboard_types(self._cfg).banks, scoreboard_types(self._cfg).bank_width
        dut = OverlapInbox(self._cfg)
        opened = Opened(m, dut)
        waiting, last = opened.signals("$signal", "arbiter.last")
        self.free_inputs(dut)
        name, op = self.constant(width, "name"), dut.o_op.payload
        self.suppose("it is a bank", name < banks)
        told = Cat(op.bank, op.region)
        reported = dut.overlap.en & (Cat(dut.overlap.bank, dut.overlap.region) == name)
        mine, taken = dut.o_op.valid & (told == name), dut.o_op.valid & dut.o_op.ready
        due, owed, others = Signal(), Signal(3), Signal(8)
        m.d.sync += [owed.eq(owed - (taken & mine) + (reported & (owed != 7))), due.eq(reported | (due & ~(taken & mine))),
                     others.eq(Mux(due & ~(taken & mine), others + taken, 0))]
        self.always("only what was reported", (owed != 0) & (op.kind == OpKind.OVERLAP), when=mine)
        self.always("in its turn", others < banks, when=due)
        self.always("offered within two cycles", dut.o_op.valid, when=due & self.past(due & ~dut.o_op.valid, "due_before"))
        self.always_held(dut.o_op, "o_op")
        distance = Signal(width)
        for n in range(banks):
            with m.If(last[n]):
                m.d.comb += distance.eq(name - n - 1)
        kept = waiting.bit_select(name, 1)
        self.lemma("one was served last", sum((last == 1 << n for n in range(1, banks)), last == 1).bool())
        self.lemma("the one that is offered", last == 1 << told, when=dut.o_op.valid)
        self.lemma("not lost", kept | mine, when=due)
        self.lemma("kept when reported", kept + mine <= owed)
        self.lemma("its turn comes", others + dut.o_op.valid + distance < banks, when=kept & ~mine)
        self.lemma("others before it", others < banks)


class TicksComeInTime(Spec):
    """With a constant ``timeout`` that is not 0, each bank is ticked again and again: more than a quarter of it after the tick
    before, and at most two cycles per bank and three later, beside the cycles in which a tick waits. 0 never ticks."""

    def __init__(self, cfg):
        super().__init__()
        self._cfg = cfg

    def build(self, m):
        banks, width = scoreboard_types(self._cfg).banks, scoreboard_types(self._cfg).bank_width
        dut = StallClock(self._cfg)
        index, elapsed = Opened(m, dut).signals("index", "$signal")
        self.free(dut.o_op.ready)
        timeout, name, op = self.constant(32, "timeout"), self.constant(width, "name"), dut.o_op.payload
        m.d.comb += dut.timeout.eq(timeout)
        self.suppose("it is a bank", name < banks)
        quarter = timeout >> 2
        ticks = dut.o_op.valid & dut.o_op.ready & (Cat(op.bank, op.region) == name)
        stalled = dut.o_op.valid & ~dut.o_op.ready
        seen, all_cycles, cycles = Signal(), Signal(34), Signal(34)     # since the last tick; ``cycles`` without stalls
        with m.If(ticks):
            m.d.sync += [seen.eq(1), all_cycles.eq(0), cycles.eq(0)]
        with m.Else():      # the first tick has no tick before; long stalls do not count
            m.d.sync += [all_cycles.eq(all_cycles + ~all_cycles[-1]), cycles.eq(cycles + ~stalled)]
        limit = quarter + 2 * banks + 3
        self.always("not too early", all_cycles > quarter, when=ticks & seen)
        self.always("not too late", cycles <= limit, when=timeout != 0)
        self.always("0 never ticks", ~dut.o_op.valid, when=timeout == 0)
        self.always("a tick is a tick", op.kind == OpKind.TICK, when=dut.o_op.valid)
        self.always_held(dut.o_op, "o_op")
        self.lemma("number", (index < banks) & (Cat(op.bank, op.region) == index))
        self.lemma("due", elapsed == quarter + 1, when=dut.o_op.valid | (index != 0))
        self.lemma("a pause", elapsed <= quarter + 1)
        self.lemma("off", (elapsed == 0) & (index == 0), when=timeout == 0)
        self.lemma("since the pause began", all_cycles >= elapsed, when=seen & (index <= name))
        self.lemma("the first round", seen | (index <= name))
        this_round = seen & (index > name)
        passes = Mux(this_round, index - name, Mux(seen, banks - name, 0) + index)
        spent = Signal(34)
        m.d.comb += spent.eq((passes << 1) + dut.o_op.valid + Mux(this_round, 0, elapsed))
        self.lemma("cycles", cycles <= spent + 1, when=timeout != 0)


class EachReadyHasItsFlag(Spec):
    """Each READY of a region with flag_en makes one flag, in order, at flag_base + 8 * (group - group_base) with kind, epoch
    and rows of the event; nothing else makes one. None is lost while events are loaded only when there is room. (READYs of one
    arbitrary region are watched, the others come between them.)"""

    def __init__(self, cfg):
        super().__init__()
        self._cfg = cfg

    def build(self, m):
        cfg = self._cfg
        dut = EventFlags(cfg)
        opened = Opened(m, dut)
        self.free_inputs(dut)
        event, write = dut.event, dut.geometry_write
        region, mark = self.constant(cfg.region_width, "region"), Signal()
        self.free(mark)
        self.suppose("events are loaded when there is room", dut.room, when=dut.loaded)
        self.suppose("nothing comes while clearing", ~dut.loaded & ~write.en, when=dut.clearing)
        ready = dut.loaded & (event.kind == EventKind.READY) & ~event.plain
        self.suppose("a geometry is not written while its region announces", write.region != event.region,
                     when=ready & write.en)
        base = [Signal(48, name=f"base_{n}") for n in (0, 1)]
        group_base = [Signal(cfg.group_width, name=f"first_{n}") for n in (0, 1)]
        enabled = Signal(2)
        regions = (region, ~region[0])      # the tiny hub has two
        for n, each in enumerate(regions):
            with m.If(write.en & (write.region == each)):
                m.d.sync += [base[n].eq(write.geometry.flag_base), group_base[n].eq(write.geometry.group_base),
                             enabled[n].eq(write.geometry.flag_en)]
        flagged = ready & Mux(event.region == region, enabled[0], enabled[1])
        taken = dut.o_flag.valid & dut.o_flag.ready
        inside, ahead, watched = Signal(3), Signal(3), Signal()
        addr, data = Signal(48), Signal(64)
        m.d.sync += inside.eq(inside + flagged - taken)
        with m.If(~watched & mark & flagged & (event.region == region)):
            m.d.sync += [watched.eq(1), ahead.eq(inside - taken), data.eq(Cat(event.kind, event.epoch, event.rows)),
                         addr.eq(base[0] + ((event.group - group_base[0])[:cfg.group_width] << 3))]
        with m.Elif(watched & taken):
            m.d.sync += [ahead.eq(ahead - 1), watched.eq(ahead != 0)]
        shown = dut.o_flag.payload
        self.always("the flag of its event", (shown.addr == addr) & (shown.data == data), when=taken & watched & (ahead == 0))
        self.always("nothing else is a flag", inside != 0, when=dut.o_flag.valid)
        self.always("at most four wait", inside <= 4)
        empty = Signal(3)
        m.d.sync += empty.eq(Mux((inside != 0) & ~dut.o_flag.valid, empty + 1, 0))
        self.always("offered within three cycles", empty <= 2)
        self.always("room when nothing waits", dut.room, when=inside == 0)
        self.always_held(dut.o_flag, "o_flag")

        # Lemmas: what the table, the register behind it and the queue hold.
        came = self.past(ready, "came")
        for n, each in enumerate(regions):
            word, known = opened.row(self, "words", each, f"words_{n}")
            self.lemma(f"table {n}", word == Cat(enabled[n], base[n], group_base[n]), when=known)
            self.lemma(f"nothing in the table {n}", ~enabled[n], when=~known)
        queue = "queue.fifo."
        level, first, last, shows = opened.signals(*(queue + name for name in ("inner_level", "consume", "produce", "r_rdy")))
        push, payload, valid = opened.signals("i__valid", "i__payload", "$signal#0")
        depth = 3
        end = Mux(first + level >= depth, first + level - depth, first + level)
        self.lemma("pointers", (first < depth) & (level <= depth) & (last == end) & (last < depth))
        self.lemma("in the register", valid == came)
        self.lemma("all inside", inside == level + shows + push)
        expected = Cat(addr, data)
        self.lemma("no room, no push", level + shows + push <= 4)
        position = Signal(4)
        m.d.comb += position.eq(ahead - shows)
        self.lemma("it is inside", ahead < inside, when=watched)
        storage = [opened.word(queue + "storage", n, f"slot_{n}") for n in range(depth)]
        read = storage[0][1]._read_ports[0]._data
        for n, (word, _, _) in enumerate(storage):
            place = first + position
            self.lemma(f"slot {n}", word == expected, when=watched & ((ahead != 0) | ~shows) & (position < level)
                        & ((place == n) | (place == n + depth)))
        self.lemma("at the exit", read == expected, when=watched & (ahead == 0) & shows)
        self.lemma("at the entry", payload == expected, when=watched & ((ahead != 0) | ~shows) & (position == level))
