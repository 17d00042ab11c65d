# SPDX-License-Identifier: Apache-2.0
"""Bounded waits of a slice (``hub_rtl/slot_allocator``): the consumer side drains whatever software
does, while memory answers."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.slot_allocator.issue import Issue
from hub_rtl.slot_allocator.records import REPLIES, Kind

from .pipe import PipeSpec

__all__ = ["IssueDrains", "LookupDrains"]


class WaitSpec(Spec):
    """Each thing waited for comes within ``FAIR`` cycles."""

    FAIR = 2

    def serve(self, m, name, waits):
        """Supposes that ``waits`` never lasts longer than ``FAIR`` cycles."""
        age = Signal(range(self.FAIR + 1), name=f"{name.replace(' ', '_')}_age")
        m.d.sync += age.eq(Mux(waits, age + 1, 0))
        self.suppose(f"{name} in time", age < self.FAIR, when=waits)
        return age

    def bounded(self, m, name, waits, limit):
        """Promises that ``waits`` lasts at most ``limit`` cycles."""
        age = Signal(range(limit + 2), name=f"{name}_waited")
        m.d.sync += age.eq(Mux(waits, age + (age <= limit), 0))
        self.always(f"{name} within {limit}", age <= limit)
        return age


class LookupDrains(PipeSpec, WaitSpec):
    """A packet stays in R3 for at most ``STAY`` cycles, so one whose bytes are known goes in as
    soon, whatever tags, region states, filter and spilled words say, while each of command queue,
    allocation, spill memory, overlap port and issue stage answers within ``FAIR`` cycles. A purge
    ends by itself, after three such stays and the walk. User: the next purge comes when ``purging``
    is 0."""

    FREE = ("rows", "plain", "spilled", "tags")
    STAY = 47

    def build(self, m):
        self.pipe(m)
        inside, dut = self.inside, self.dut
        rows = inside.rows
        self.suppose("refused for a reason", rows.refused == (rows.reason != 0))
        timers = {
            name: self.serve(m, name, port.valid & ~port.ready)
            for name, port in (
                ("alloc", dut.o_alloc),
                ("spill", dut.o_spill),
                ("overlap", dut.o_overlap),
            )
        }
        self.serve(m, "queue", ~dut.o_command.ready)
        self.suppose(
            "a place stays free",
            dut.o_command.ready,
            when=self.past(dut.o_command.ready & ~dut.o_command.valid, "place"),
        )
        busy = Signal()
        with m.If(dut.o_spill.valid & dut.o_spill.ready):
            m.d.sync += busy.eq(1)
        with m.Elif(dut.spill_done):
            m.d.sync += busy.eq(0)
        self.suppose("memory answers what was asked", busy, when=dut.spill_done)
        timers["answer"] = self.serve(m, "answer", busy & ~dut.spill_done)
        open_ = Signal(4)
        asked = dut.o_alloc.valid & dut.o_alloc.ready
        m.d.sync += open_.eq(open_ + asked - dut.alloc_taken)
        self.suppose("answers were asked for", open_ != 0, when=dut.alloc_taken)
        self.serve(m, "slot", (open_ != 0) & ~dut.alloc_taken)
        timers["filled"] = self.serve(m, "earlier commands", ~dut.filled)
        timers["issue"] = self.serve(m, "issue", ~dut.issue_idle)
        stay, cfg = self.STAY, self._cfg
        third, head = inside.third, dut.i_head
        age = self.bounded(m, "stay", third.valid & ~inside.leave, stay)
        waits = head.valid & ~head.ready & ~dut.purging
        head_age = self.bounded(m, "packet", waits, stay + 1)
        walk = 2 * cfg.rat_sets + 8
        purge_age = self.bounded(m, "purge", dut.purging, 3 * (stay + 2) + walk)
        self.lemma("first in line", head_age <= age, when=waits)
        self._stay(m, age, timers, busy, open_)
        self._purge(age, purge_age, timers)
        self.reach("a long way", (age >= 12) & inside.leave)
        self.reach("purge ends", self.past(dut.purging, "purging_before") & ~dut.purging)

    def _stay(self, m, age, timers, busy, open_):
        """The longest way to each state, in cycles, with FAIR = 2 and two ways."""
        inside, ways = self.inside, self._cfg.rat_ways
        found = observe(inside.search)
        stall = Signal(4)
        idle, third = self.slow["IDLE"], inside.third
        ready = third.valid & ~inside.path.holds
        m.d.sync += stall.eq(Mux(ready & ~inside.leave, stall + ~stall.all(), 0))
        self.lemma("stalls end", stall <= 9)
        at = {
            "FETCH": 1 + timers["spill"],
            "FETCHED": 4 + timers["answer"],
            "FOUND": 7,
            "LOOK": 8,
            "DRAIN": 9 + timers["filled"],
            "SCAN": 12 + found.step,
            "VICTIM": 14 + ways,
            "COUNT": 15 + ways,
            "SPILL": 16 + ways + timers["spill"],
            "SPILLED": 19 + ways + timers["answer"],
            "LOST": 22 + ways + timers["overlap"],
            "RECOUNT": 26 + ways,
            "UNCOUNT": 27 + ways,
            "ERASE": 28 + ways + timers["spill"],
            "ERASED": 31 + ways + timers["answer"],
            "AGAIN": 34 + ways,
        }
        for name, longest in at.items():
            self.lemma(f"way to {name}", age <= longest, when=self.slow[name])
        self.lemma("some state", idle | Cat(self.slow[name] for name in at).any())
        self.lemma("way through", age <= stall + 35 + ways, when=idle & self.served)
        self.lemma("way straight on", age == stall, when=idle & ready & ~self.served)
        self.lemma("begins at once", age == 0, when=idle & inside.path.holds)
        self.lemma("nobody waits", age == 0, when=~third.valid)
        self.lemma("some packet", self.is_row(third), when=~idle | self.served)
        self.lemma("served once", ~self.served, when=~idle)
        self.lemma("steps", found.step <= Mux(self.slow["SCAN"], ways + 1, 0))
        self.lemma("memory", busy == self.within("FETCHED", "SPILLED", "ERASED"))
        full = observe(inside.asked).full
        self.lemma("requests in line", full != 0b10)
        inside_queue = full[0] + full[1]
        self.lemma("unanswered", open_ + inside_queue == inside.unanswered)
        self.lemma("answers on their way", inside.unanswered <= REPLIES)

    def _purge(self, age, purge_age, timers):
        """How long a purge has waited: for the packets before it, and in its walk."""
        walk, dut = self.walk, self.dut
        first, second, third = (each.valid for each in self.stages)
        moves = Mux(first, 3, Mux(second, 2, Mux(third, 1, 0)))
        before = (3 - moves) * (self.STAY + 2) + age + 1
        sets = self._cfg.rat_sets
        last = 3 * (self.STAY + 2) + 2
        cleared = ~dut.clearing
        self.lemma(
            "purge waits", purge_age <= before, when=dut.purging & walk.states["IDLE"] & cleared
        )
        self.lemma("purge at LOOK", purge_age <= last + 2 * walk.walk, when=walk.states["LOOK"])
        self.lemma("purge at WIPE", purge_age <= last + 1 + 2 * walk.walk, when=walk.states["WIPE"])
        leaves = purge_age <= last + 1 + 2 * sets + timers["issue"]
        self.lemma("purge at LEAVE", leaves, when=walk.states["LEAVE"])
        self.lemma("walk", walk.walk <= sets)
        self.lemma("sets left", walk.walk < sets, when=walk.states["WIPE"])
        walking = ~walk.states["IDLE"]
        self.lemma("walks while purging", dut.purging & cleared, when=walking)
        self.lemma("pipe empty while walking", ~(first | second | third), when=walking)


class IssueDrains(WaitSpec):
    """A command is taken within ``LIMIT`` cycles, unless the one before waits for its answer, while
    the memory writer takes each write and beat, the scoreboard each refusal, and the pieces of
    packets that left come, within ``FAIR`` cycles.

    User: the parts of a packet's pieces go up; the last part is the last piece."""

    LIMIT = 40

    def build(self, m):
        cfg, dut = self._cfg, Issue(self._cfg)
        m.submodules.dut = dut
        self.free_inputs(dut)
        command, piece = dut.i_command.p, dut.i_piece
        inside = Signal()
        part = Signal.like(piece.p.part)
        with m.If(piece.valid & piece.ready):
            m.d.sync += [inside.eq(~piece.p.last), part.eq(piece.p.part)]
        self.suppose("parts go up", piece.p.part > part, when=piece.valid & inside)
        end = cfg.packet_bytes // cfg.slice_bytes - 1
        self.suppose("last part", piece.p.last, when=piece.valid & (piece.p.part == end))
        self.suppose("victims only between commands", dut.filled, when=dut.victim_look)
        for name in ("o_write", "o_data", "o_refused"):
            port = getattr(dut, name)
            self.serve(m, name, port.valid & ~port.ready)
        self.serve(m, "pieces", ~dut.i_piece.valid)
        level = Signal(range(REPLIES + 1))
        m.d.sync += level.eq(level + dut.reply_en - dut.alloc_taken)
        self.suppose("answers fit", level < REPLIES, when=dut.reply_en)
        asks = Signal()  # the command before takes an answer
        with m.If(dut.i_command.ready):
            m.d.sync += asks.eq(dut.i_command.valid & (command.kind == Kind.ROW) & command.fresh)
        there = dut.i_command.valid & ~dut.i_command.ready
        self.bounded(m, "command", there & ~(asks & (level == 0)), self.LIMIT)
        self.reach("beats wait", there & dut.o_data.valid & ~dut.o_data.ready)
