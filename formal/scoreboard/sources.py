# SPDX-License-Identifier: Apache-2.0
"""Promises of the small sources of operations (``hub_rtl/scoreboard/bank_sources.py``)."""

from amaranth import Cat, Mux, Signal, Value

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec, blocked, moves
from hub_rtl.scoreboard.bank_sources import OverlapInbox, StallClock
from hub_rtl.scoreboard.records import OpKind, scoreboard_types

__all__ = ["OverlapsAreKept", "TicksComeInTime", "queue_lemmas", "ring_entries"]


def ring_entries(spec, ring, title="entry"):
    """Lemmas about a NameRing. Returns the words of its places, which of them are inside, and how
    many are in front of each."""
    names, head, tail = observe(ring)
    places = ring.places
    entries = [known_word(spec, names, n, f"{title}_{n}")[0] for n in range(places)]
    ahead = [Mux(n >= head, n - head, n + places - head)[: len(ring.level)] for n in range(places)]
    ends = head + ring.level
    spec.lemma(f"{title}: places", (head < places) & (tail < places) & (ring.level <= places))
    spec.lemma(f"{title}: the end", tail == Mux(ends >= places, ends - places, ends))
    shown = Signal.like(Value.cast(names.r_data), name=f"{title}_shown")
    for n in range(places):
        with spec.m.If(head == n):
            spec.m.d.comb += shown.eq(entries[n])
    first = (ring.level != 0) & (Value.cast(names.r_data) == shown)
    spec.lemma(f"{title}: the first one is shown", first, when=ring.o.valid)
    return entries, [each < ring.level for each in ahead], ahead


def queue_lemmas(spec, queue, cfg, name):
    """Lemmas about a BankQueue: each bank is inside once or not at all, and the tables
    agree.

    Returns ``(inside, arrives, place)`` of bank ``name``: it is in the queue; it was put in one
    cycle ago; how many are in front of it if it is inside.
    """
    banks, width = scoreboard_types(cfg).banks, scoreboard_types(cfg).bank_width
    came_table, gone_table, ring, asked, asked_bank = observe(queue)
    entries, used, ahead = ring_entries(spec, ring)
    came = [known_word(spec, came_table, n, f"came_{n}") for n in range(banks)]
    gone = [known_word(spec, gone_table, n, f"gone_{n}") for n in range(banks)]
    inside = Signal(banks)
    place = Signal(width)
    for bank in range(banks):
        (put, known), (took, also_known) = came[bank], gone[bank]
        spec.lemma(f"both tables know bank {bank}", known == also_known)
        spec.m.d.comb += inside[bank].eq(known & (put != took))
        here = [used[n] & (entries[n][:width] == bank) for n in range(banks)]
        spec.lemma(f"bank {bank} is in the queue once", sum(here[1:], here[0]) == inside[bank])
        for n in range(banks):
            spec.lemma(f"entry {n} turns bank {bank}", entries[n][width] == put, when=here[n])
            with spec.m.If(here[n] & (name == bank)):
                spec.m.d.comb += place.eq(ahead[n])
        spec.lemma(f"nobody asks before bank {bank} is known", ~asked, when=~known)
    spec.lemma("no more than there are banks", ring.level == sum(inside[1:], inside[0]))
    return inside.bit_select(name, 1), asked & (asked_bank == name), place


class OverlapsAreKept(Spec):
    """A bank whose overlap was reported is told to the pipeline, at most once per report, after
    fewer others than there are banks, and is offered within two cycles when nothing else is. No
    other bank is told."""

    def build(self, m):
        banks, width = scoreboard_types(self._cfg).banks, scoreboard_types(self._cfg).bank_width
        dut = OverlapInbox(self._cfg)
        m.submodules.dut = dut
        self.free_inputs(dut)
        self.suppose("nothing comes while clearing", ~dut.overlap.en, when=dut.clearing)
        name, op = self.constant(width, "name"), dut.o_op.payload
        self.suppose("it is a bank", name < banks)
        told = Cat(op.bank, op.region)
        reported = dut.overlap.en & (Cat(dut.overlap.bank, dut.overlap.region) == name)
        mine, taken = dut.o_op.valid & (told == name), moves(dut.o_op)
        due = Signal()
        owed = Signal(3)
        others = Signal(8)
        m.d.sync += [
            owed.eq(owed - (taken & mine) + (reported & (owed != 7))),
            due.eq(reported | (due & ~(taken & mine))),
            others.eq(Mux(due & ~(taken & mine), others + taken, 0)),
        ]
        self.always("only what was reported", (owed != 0) & (op.kind == OpKind.OVERLAP), when=mine)
        self.always("in its turn", others < banks, when=due)
        self.always(
            "offered within two cycles",
            dut.o_op.valid,
            when=due & self.past(due & ~dut.o_op.valid, "due_before"),
        )
        self.always_held(dut.o_op, "o_op")
        inside, arrives, place = queue_lemmas(self, observe(dut).queue, self._cfg, name)
        self.lemma("not lost", inside | arrives, when=due)
        self.lemma("kept when reported", inside + (arrives & ~inside) <= owed)
        self.lemma("its turn comes", others + place < banks, when=due & inside)
        self.lemma("others before it", others < banks)
        self.lemma("nobody before it yet", others == 0, when=due & ~inside)


class TicksComeInTime(Spec):
    """With a constant ``timeout`` that is not 0, each bank is ticked again and again: more than a
    quarter of it after the tick before, and at most two cycles per bank and three later, beside the
    cycles in which a tick waits. 0 never ticks."""

    def build(self, m):
        banks, width = scoreboard_types(self._cfg).banks, scoreboard_types(self._cfg).bank_width
        dut = StallClock(self._cfg)
        m.submodules.dut = dut
        index, elapsed = observe(dut)
        self.free(dut.o_op.ready)
        timeout, name, op = (
            self.constant(32, "timeout"),
            self.constant(width, "name"),
            dut.o_op.payload,
        )
        m.d.comb += dut.timeout.eq(timeout)
        self.suppose("it is a bank", name < banks)
        quarter = timeout >> 2
        ticks = moves(dut.o_op) & (Cat(op.bank, op.region) == name)
        stalled = blocked(dut.o_op)
        seen = Signal()
        all_cycles = Signal(34)  # since the last tick
        cycles = Signal(34)  # those without stalls
        with m.If(ticks):
            m.d.sync += [
                seen.eq(1),
                all_cycles.eq(0),
                cycles.eq(0),
            ]
        with m.Else():  # the first tick has no tick before; long stalls do not count
            m.d.sync += [
                all_cycles.eq(all_cycles + ~all_cycles[-1]),
                cycles.eq(cycles + ~stalled),
            ]
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
