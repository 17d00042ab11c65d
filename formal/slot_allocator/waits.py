# SPDX-License-Identifier: Apache-2.0
"""Bounded waits of a slice (``hub_rtl/slot_allocator``): the consumer side drains whatever software
does, while memory answers."""

from unittest import mock

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec
from hub_rtl.slot_allocator import lookup
from hub_rtl.slot_allocator.issue import Issue
from hub_rtl.slot_allocator.lookup import Lookup
from hub_rtl.slot_allocator.records import REPLIES, Kind

from .inner import Inside, free_part

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


class LookupDrains(WaitSpec):
    """A packet whose bytes are counted leaves the lookup within ``LIMIT`` cycles, whatever tags,
    region states, filter and spilled words say, while each of byte count, command queue,
    allocation, spill memory, overlap port and issue stage answers within ``FAIR`` cycles; a purge
    ends by itself. User: the next purge comes when ``purging`` is 0."""

    LIMIT = 56

    def build(self, m):
        dut = Lookup(self._cfg)
        names = ("RowCheck", "PlainCheck", "SpillFilter", "RowTags")
        with mock.patch.multiple(
            lookup, **{name: free_part(getattr(lookup, name)) for name in names}
        ):
            inside = Inside(m, dut)
        self.free_inputs(dut)
        head, count = dut.i_head, dut.i_bytes
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
        timers["bytes"] = self.serve(m, "bytes", head.valid & ~count.valid)
        self.suppose("bytes with the head", head.valid, when=count.valid)
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
        self.suppose("one purge at a time", ~dut.purging, when=dut.purge.en)
        acting = ~Cat(
            inside.state(name) for name in ("READ", "CHECK", "GROUP", "PURGE", "WIPE", "LEAVE")
        ).any()
        said = Cat(inside["rows.reason"], inside["plain.allowed"])
        self.suppose(
            "what a check says holds",
            said == self.past(said, "said"),
            when=acting & self.past(acting, "acted"),
        )
        self.suppose("refused for a reason", inside["rows.refused"] == (inside["rows.reason"] != 0))
        age = self.bounded(m, "packet", head.valid & ~head.ready, self.LIMIT)
        purge_age = self.bounded(m, "purge", dut.purging, self.LIMIT + 8)
        self._lemmas(m, inside, dut, age, purge_age, timers, busy, open_)
        self.reach("a long way", (age >= 15) & head.ready)
        self.reach("purge ends", self.past(dut.purging, "purging_before") & ~dut.purging)

    def _lemmas(self, m, inside, dut, age, purge_age, timers, busy, open_):
        """Helper invariants: the longest way to each state, in cycles, with FAIR = 2 and one set of
        two ways."""
        state, head, fetched, erased = inside.state, dut.i_head, inside["fetched"], inside["erased"]
        chosen, stall = (
            Signal(),
            Signal(4),
        )  # a victim was chosen; cycles in ACT with the bytes known
        with m.If(state("VICTIM")):
            m.d.sync += chosen.eq(1)
        with m.Elif(state("READ")):
            m.d.sync += chosen.eq(0)
        m.d.sync += stall.eq(
            Mux(state("ACT") & dut.i_bytes.valid & ~head.ready, stall + ~stall.all(), 0)
        )
        self.lemma("acting", inside["acting"] == state("ACT"))
        self.lemma("stalls end", stall <= 9, when=state("ACT"))
        at = {
            "READ": 7,
            "CHECK": 8,
            "GROUP": 9,
            "FETCH": 14 + timers["spill"],
            "FETCHED": 17 + timers["answer"],
            "DRAIN": 22 + timers["filled"],
            "SCAN": 25 + inside["step"],
            "VICTIM": 28,
            "COUNT": 29,
            "SPILL": 30 + timers["spill"],
            "SPILLED": 33 + timers["answer"],
            "LOST": 36 + timers["overlap"],
            "UNCOUNT": 40,
            "ERASE": 41 + timers["spill"],
            "ERASED": 44 + timers["answer"],
            "WIPE": 2,
            "LEAVE": 4 + timers["issue"],
            "PURGE": Mux(inside["walk"] == 0, 1, 3),
        }
        for name, longest in at.items():
            self.lemma(f"way to {name}", age <= longest, when=state(name) & head.valid)
        self.lemma("some state", Cat(state(name) for name in (*at, "ACT")).any())
        self.lemma("answers on their way", inside["unanswered"] <= REPLIES)
        self.lemma(
            "way to ACT",
            age
            <= Mux(
                dut.i_bytes.valid,
                stall + Mux(erased, 47, Mux(chosen, 39, Mux(fetched, 20, 13))),
                11 + timers["bytes"],
            ),
            when=state("ACT"),
        )
        quiet = Cat(state(name) for name in ("READ", "PURGE", "WIPE", "LEAVE")).any()
        begins = Cat(state(name) for name in ("CHECK", "GROUP", "FETCH", "FETCHED")).any()
        early = Cat(state(name) for name in ("CHECK", "GROUP", "ACT")).any()
        self.lemma("head stays", head.valid, when=~quiet)
        self.lemma("age of none", age == 0, when=~head.valid)
        self.lemma("bytes stay", dut.i_bytes.valid, when=~quiet & ~early)
        self.lemma("bytes stay in ACT", dut.i_bytes.valid, when=state("ACT") & (fetched | chosen))
        self.lemma("restored was fetched", fetched | ~inside["restored"], when=~quiet)
        self.lemma(
            "erased was restored", fetched, when=state("UNCOUNT") | state("ERASE") | state("ERASED")
        )
        self.lemma("clean at first", ~inside["restored"], when=begins)
        self.lemma(
            "fetching comes first",
            fetched | ~inside["maybe"],
            when=~quiet & ~early & ~state("FETCH") & ~state("FETCHED") | state("ACT") & chosen,
        )
        self.lemma("erased at last", fetched, when=erased & ~quiet)
        self.lemma("fetched once", ~fetched & ~erased, when=begins)
        self.lemma("erased once", ~erased, when=~quiet & ~state("ACT"))
        self.lemma(
            "chosen once", ~chosen, when=begins | state("DRAIN") | state("SCAN") | state("VICTIM")
        )
        self.lemma("a way was chosen", inside["has_way"], when=chosen & ~quiet & ~state("VICTIM"))
        self.lemma(
            "memory", busy == Cat(state(name) for name in ("FETCHED", "SPILLED", "ERASED")).any()
        )
        self.lemma("unanswered", open_ + dut.o_alloc.valid == inside["unanswered"])
        self.lemma("steps", inside["step"] <= self._cfg.rat_ways)
        self.lemma(
            "walk",
            (inside["walk"] <= self._cfg.rat_sets) & ~(state("WIPE") & (inside["walk"] != 0)),
        )
        self.lemma("purge first", age == 0, when=state("READ") & dut.purging)
        self.lemma("purging", dut.purging, when=quiet & ~state("READ"))
        for name, longest in {
            "READ": 57,
            "PURGE": Mux(inside["walk"] == 0, 58, 60),
            "WIPE": 59,
            "LEAVE": 61 + timers["issue"],
        }.items():
            self.lemma(f"purge at {name}", purge_age <= longest, when=state(name) & dut.purging)
        self.lemma("purge waits", purge_age <= age + 1, when=~quiet & dut.purging)


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
        inside, part = Signal(), Signal.like(piece.p.part)
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
        level = Signal(3)
        m.d.sync += level.eq(level + dut.reply_en - dut.alloc_taken)
        self.suppose("answers fit", level < 4, when=dut.reply_en)
        asks = Signal()  # the command before takes an answer
        with m.If(dut.i_command.ready):
            m.d.sync += asks.eq(dut.i_command.valid & (command.kind == Kind.ROW) & command.fresh)
        there = dut.i_command.valid & ~dut.i_command.ready
        self.bounded(m, "command", there & ~(asks & (level == 0)), self.LIMIT)
        self.reach("beats wait", there & dut.o_data.valid & ~dut.o_data.ready)
