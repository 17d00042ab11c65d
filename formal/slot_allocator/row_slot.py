# SPDX-License-Identifier: Apache-2.0
"""Promise of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``): a row keeps its slot wherever
its mapping is."""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import Reason
from hub_rtl.slot_allocator.records import VictimRank
from hub_rtl.slot_allocator.spill_path import WORD

from .pipe import PipeSpec, covers

__all__ = ["RowKeepsItsSlot"]


class RowKeepsItsSlot(PipeSpec):
    """For any row of an open bank, from its first packet until its last byte was looked up, across
    spills and restores, whatever packets stand beside it in the pipe: it asks for a new slot once;
    each later packet finds the entry of its answer, or asks for the address of the slot it was
    given; its entry counts the bytes it still misses. It is spilled and restored with exactly that,
    and restored only when spilled.

    Supposed: the bank stays open and is not purged; a memory that works; the entry of the answer
    holds what the table gave; a row of an open bank passes its checks; the filter says "maybe" for
    a spilled row."""

    def __init__(self, cfg, covered=True, steered=False):
        super().__init__(cfg)
        self._covered, self._steered = covered, steered

    #: Covers of a restore and of what leads to it, more than 20 cycles deep: of
    #: slot_allocator.row_slot_restores.
    DEEP = (
        "restored",
        "restored with a victim",
        "old slot asked for again: when",
        "counted out only when spilled: when",
        "filter knows: when",
    )

    def reach(self, name, happens):
        """Only with ``covered`` the deep covers too."""
        if self._covered or name not in self.DEEP:
            super().reach(name, happens)

    def build(self, m):
        cfg = self._cfg
        self.pipe(m)
        self.checks()
        inside, dut = self.inside, self.dut
        self.row = row = Signal(self.own.row)
        self.width = cfg.row_bytes_width
        for name, field in self.own.row:
            m.d.comb += row[name].eq(self.constant(field.shape, name))
        self.src, self.row_bytes = self.constant(7, "src"), self.constant(self.width, "row_bytes")
        self.slot = slot = Signal(self.own.slot)
        m.d.comb += slot.eq(self.constant(self.own.slot.size, "slot"))
        self.suppose("region exists", row.region < cfg.regions)
        self.suppose(
            "row is some bytes long", (self.row_bytes != 0) & (self.row_bytes <= cfg.max_row_bytes)
        )
        self._places(m)
        self._memory(m)
        self._neighbours(m)

        asked, command = inside.asked.i, dut.o_command.p
        fresh = self.taken & command.fresh
        self.always("one new slot", ~self.in_rat, when=fresh)  # in memory: the old slot, see below
        self.always(
            "later packets find it",
            self.in_rat & (command.index == self.index),
            when=self.taken & ~command.fresh,
        )
        self.always(
            "asks with its command",
            asked.valid
            & asked.ready
            & (asked.p.region == row.region)
            & (asked.p.bank == row.epoch[0])
            & (asked.p.rowid == row.rowid),
            when=fresh,
        )
        self.always(
            "old slot asked for again",
            asked.p.translate & (asked.p.slot == slot.slot) & (asked.p.overflow == slot.overflow),
            when=fresh & self.in_memory,
        )
        self.always("no translation of a new row", ~asked.p.translate, when=fresh & ~self.in_memory)
        self.always("kept if bytes are missing", command.install, when=fresh & (self.after > 0))
        sent = self.sent
        self.always("spilled when mapped", self.in_rat, when=self.spills)
        self.always(
            "spilled as it is",
            (sent.slot == slot.slot)
            & (sent.overflow == slot.overflow)
            & (sent.missing == self.missing)
            & (sent.epoch == row.epoch)
            & (sent.src == self.src)
            & (sent.rowtag == row.rowid[:16]),
            when=self.spills,
        )
        self.always(
            "too many bytes tell",
            dut.o_overlap.valid,
            when=self.past(self.taken & (self.after < 0), "over"),
        )
        self.always(
            "counted out only when spilled", self.in_memory, when=inside.spilled.down & self.leaves
        )
        if self._steered:
            self._steer()
        self._lemmas(m)
        for name, happens in {
            "hit": self.taken & self.in_rat,
            "hit behind itself": self.taken & self.in_rat & self.past(fresh, "was_new"),
            "restored": self.taken & self.in_memory,
            "spilled": self.spills,
            "restored with a victim": self.taken
            & self.in_memory
            & self.past(self.past(inside.path.again)),
        }.items():
            self.reach(name, happens)

    def ours(self, packet):
        body = self.body(packet)
        return self.is_row(packet) & Cat(body[name] == self.row[name] for name in self.names).all()

    names = ("region", "epoch", "rowid")

    def is_ours(self, tag):
        return Cat(tag[name] == self.row[name] for name in self.names).all()

    def _places(self, m):
        """Where the row's mapping is, as its packets leave and its words are written."""
        inside, dut, row = self.inside, self.dut, self.row
        command, spill, third = dut.o_command, dut.o_spill, inside.third
        self.leaves = self.ours(third)
        self.taken = taken = inside.leave & self.leaves & ~third.refused
        self.in_rat, self.in_memory = Signal(name="in_rat"), Signal(name="in_memory")
        self.index = Signal.like(command.p.index)
        self.missing = Signal(self.width, name="misses")
        self.after = Signal(range(-self._cfg.packet_bytes, 2 * self._cfg.max_row_bytes))
        mapped = self.in_rat | self.in_memory
        m.d.comb += self.after.eq(Mux(mapped, self.missing, self.row_bytes) - third.head.bytes)
        self.sent = sent = Signal(WORD)
        m.d.comb += sent.eq(spill.p.word)
        named = (
            spill.valid
            & spill.ready
            & (spill.p.region == row.region)
            & (spill.p.bank == row.epoch[0])
            & (spill.p.rowid == row.rowid)
        )
        self.writes, self.reads = named & spill.p.write, named & ~spill.p.write
        self.spills = self.writes & sent.valid
        with m.If(taken):
            m.d.sync += [
                self.in_memory.eq(0),
                self.in_rat.eq(self.after > 0),
                self.missing.eq(self.after),
                self.index.eq(command.p.index),
            ]
        with m.Elif(self.spills):
            m.d.sync += [
                self.in_memory.eq(1),
                self.in_rat.eq(0),
            ]

    def _memory(self, m):
        """One request at a time; the row's word is what was written last."""
        dut, spill = self.dut, self.dut.o_spill
        self.word = Signal(WORD)
        self.busy = Signal()
        self.reading = Signal()
        with m.If(self.writes):
            m.d.sync += self.word.eq(self.sent)
        with m.If(spill.valid & spill.ready):
            m.d.sync += [
                self.busy.eq(1),
                self.reading.eq(self.reads),
            ]
        with m.Elif(dut.spill_done):
            m.d.sync += self.busy.eq(0)
        self.suppose("memory answers what was asked", self.busy, when=dut.spill_done)
        self.suppose(
            "memory keeps words",
            dut.spill_reply.word == self.word.as_value(),
            when=dut.spill_done & self.reading,
        )
        self.suppose("memory works", ~dut.spill_reply.error, when=dut.spill_done)

    def _neighbours(self, m):
        """What other parts promise."""
        inside, dut, row = self.inside, self.dut, self.row
        first, second, third = self.stages
        rows, search = inside.rows, inside.search
        found = dut.victim
        looked = self.past(dut.victim_look & (dut.victim_index == self.index), "looked")
        self.suppose(
            "entry holds the answer",
            (found.slot == self.slot.slot)
            & (found.overflow == self.slot.overflow)
            & (found.reason == Reason.OK),
            when=looked & self.in_rat,
        )
        body = self.body(second)
        bank = (body.region == row.region) & (body.epoch[0] == row.epoch[0])
        self.suppose("row passes its checks", rows.reason == Reason.OK, when=self.ours(second))
        self.suppose("length of the row", rows.row_bytes == self.row_bytes, when=self.ours(second))
        self.suppose(
            "other epochs refused",
            rows.reason != Reason.OK,
            when=self.is_row(second) & bank & (body.epoch != row.epoch),
        )
        scanned = (search.region == row.region) & (search.epoch[0] == row.epoch[0])
        self.suppose(
            "bank open",
            rows.alive == self.past(search.epoch == row.epoch, "same_epoch"),
            when=self.past(search.look_bank & scanned, "scanned"),
        )
        purge = dut.purge
        self.suppose("no purge", ~(purge.en & covers(purge, row.region, row.epoch[0])))
        for n, packet in enumerate(self.stages, 1):
            self.suppose(f"one source at R{n}", packet.head.src == self.src, when=self.ours(packet))
        # The filter was looked at for a row that is spilled, and stays so until it is looked at.
        self.asked_maybe = Signal()
        there = self.in_memory & ~self.leaves
        with m.If(inside.spilled.look):
            m.d.sync += self.asked_maybe.eq(
                there & Mux(inside.path.again, self.ours(second), self.ours(first))
            )
        self.suppose("filter knows", inside.spilled.maybe, when=self.asked_maybe)

    def _steer(self):
        """Traffic in which deep covers are found soon: packets of two rows of one bank, and
        neighbours that never wait."""
        inside, dut, row = self.inside, self.dut, self.row
        head = dut.i_head.p
        body = data.View(self.own.row_body, head.body)
        self.suppose(
            "two rows of one bank",
            ~head.plain
            & (body.region == row.region)
            & (body.epoch == row.epoch)
            & (body.rowid[1:] == row.rowid[1:]),
            when=dut.i_head.valid,
        )
        self.suppose("no refusal", inside.rows.reason == Reason.OK)
        self.suppose(
            "neighbours never wait",
            dut.o_command.ready
            & dut.o_alloc.ready
            & dut.o_overlap.ready
            & dut.filled
            & dut.o_spill.ready
            & dut.alloc_taken
            & ~dut.purge.en,
        )
        self.suppose(
            "packets of one kind",
            ~head.poison & (head.len == 1) & (head.bytes == 16) & (inside.rows.row_bytes == 64),
            when=dut.i_head.valid,
        )
        self.suppose("victims are placed", inside.rows.alive & (dut.victim.reason == Reason.OK))

    def _lemmas(self, m):
        """Helper invariants: what tags, spill word and registers hold of the row."""
        inside, row, cfg = self.inside, self.row, self._cfg
        home = Signal(max(1, self.own.set_width), name="home")
        m.d.comb += home.eq(self.home(row))
        self.sets(m)
        kept = self.at(m, home)
        first, second, third = self.stages
        judge, path, ways = inside.judge, inside.path, cfg.rat_ways
        way_bits = ceil_log2(ways)
        ours_at = Cat(self.index[:way_bits] == n for n in range(ways))
        match = Cat(each.valid & self.is_ours(each) for each in kept)
        stale = (match != 0) & ~self.in_rat
        at_home = self.is_row(third) & (third.set == home)
        one = (judge.way != 0) & ((judge.way & (judge.way - 1)) == 0)
        needs_one = self.is_row(third) & ~judge.hit & judge.has_way
        self.lemma("R3 has one way", one, when=needs_one)
        # Tags and counts.
        self.lemma("waits for clearing", ~self.in_rat & ~self.in_memory, when=self.dut.clearing)
        self.lemma(
            "index in its set",
            (self.index[way_bits:] == home[: self.own.set_width]) & (self.index[:way_bits] < ways),
            when=self.in_rat,
        )
        self.lemma("entry matches", match == ours_at, when=self.in_rat)
        begun = ~self.slow["IDLE"] | self.served
        self.lemma(
            "stale entry goes",
            self.in_memory
            & (
                self.within("SPILLED", "RECOUNT", "UNCOUNT", "ERASE", "ERASED", "AGAIN")
                | self.served
            )
            & inside.absent
            & judge.has_way
            & ~inside.complete
            & (match == judge.way)
            & ~self.leaves
            & at_home,
            when=stale & ~self.dut.clearing,
        )
        counts = observe(inside.counts)
        missing = inside.counts.missing.shape()(peek(m, counts.missing, home))
        self.lemma(
            "entry complete",
            Cat(
                ~ours_at[n] | (kept[n].src == self.src) & (missing[n] == self.missing)
                for n in range(ways)
            ).all()
            & (self.missing != 0),
            when=self.in_rat,
        )
        self.lemma(
            "counts in view",
            inside.counts.missing.as_value() == missing.as_value(),
            when=at_home,
        )
        self.lemma("one place", ~(self.in_rat & self.in_memory))
        # The row's packets in the pipe.
        named = self.named(third)
        bank = (named.region == row.region) & (named.epoch[0] == row.epoch[0])
        self.lemma("own epoch at R3", named.epoch == row.epoch, when=inside.place & bank)
        seen = observe(judge).second
        self.lemma("not foreign", ~seen.stranger, when=self.in_rat & self.ours(second))
        self.lemma("ours is not refused", ~third.refused, when=self.leaves)
        self.lemma(
            "bytes missing",
            inside.missing == Mux(self.in_rat | path.restored, self.missing, self.row_bytes),
            when=self.leaves,
        )
        self.lemma(
            "known for sure",
            self.asked_maybe,
            when=self.ours(second) & self.in_memory & ~self.leaves & self.slow["IDLE"],
        )
        self.lemma("R3 maybe", third.maybe, when=self.leaves & self.in_memory)
        fetched = self.served | ~self.within("IDLE", "FETCH", "FETCHED")
        self.lemma(
            "restored if spilled", path.restored == self.in_memory, when=self.leaves & fetched
        )
        self.lemma("not in reach", ~self.in_rat, when=self.leaves & begun)
        self.lemma("memory works", ~self.slow["LOST"])
        self.lemma(
            "found",
            path.slot.as_value() == self.slot.as_value(),
            when=self.leaves & path.restored,
        )
        # Memory.
        self.lemma("busy", self.busy == self.within("FETCHED", "SPILLED", "ERASED"))
        self.lemma("reading", self.reading == self.leaves, when=self.slow["FETCHED"])
        gone = self.leaves & path.restored & (self.within("ERASED", "AGAIN") | self.served)
        w = self.word
        self.lemma(
            "word kept",
            w.valid
            & (w.epoch == row.epoch)
            & (w.overflow == self.slot.overflow)
            & (w.slot == self.slot.slot)
            & (w.missing == self.missing)
            & (w.src == self.src)
            & (w.rowtag == row.rowid[:16])
            & (self.missing != 0),
            when=self.in_memory & ~gone,
        )
        self.lemma("word erased", ~w.valid, when=~self.in_memory | gone)
        self._victim(m, kept, ours_at, at_home, match)

    def _victim(self, m, kept, ours_at, at_home, match):
        """The search: no row but the one that is spilled gives up its way."""
        inside, row, ways = self.inside, self.row, self._cfg.rat_ways
        search, judge, read = inside.search, inside.judge, inside.tags.tags
        found = observe(search)
        step, scan = found.step, self.slow["SCAN"]
        needs = ~judge.has_way & ~inside.complete
        self.lemma("a way is needed", needs, when=self.within("LOOK", "DRAIN", "SCAN", "VICTIM"))
        full = Cat(read[n].valid for n in range(ways)).all()
        self.lemma("full set", full, when=self.within("DRAIN", "SCAN", "VICTIM", "COUNT", "SPILL"))
        still = judge.has_way & ~inside.complete & (judge.way == search.way)
        self.lemma("still needed", still, when=self.within("COUNT", "SPILL", "SPILLED"))
        self.lemma("steps", step <= Mux(scan, ways + 1, 0))
        for n in range(ways + 2):
            self.lemma(
                f"step {n}",
                (found.scanned == (1 << n) % (1 << ways))
                & (found.looked == (1 << n >> 1) % (1 << ways))
                & (found.rated == (1 << n >> 2) % (1 << ways)),
                when=step == n,
            )
        for n in range(ways):
            here = (read[n].region == row.region) & (read[n].epoch[0] == row.epoch[0])
            self.lemma(
                f"alive {n}",
                found.alive == (read[n].epoch == row.epoch),
                when=scan & found.rated[n] & here,
            )
        victim = inside.path.victim_tag
        best = found.best
        chosen = (scan & (step > 2)) | self.within("VICTIM", "COUNT", "SPILL")
        one = (search.way != 0) & ((search.way & (search.way - 1)) == 0)
        self.lemma("a victim", one & (best.rank != 0), when=chosen)
        self.lemma("no victim yet", best.as_value() == 0, when=scan & ((step == 1) | (step == 2)))
        self.lemma(
            "our row as victim",
            self.in_rat
            & at_home
            & (search.way == ours_at)
            & (search.slot.as_value() == self.slot.as_value())
            & (best.rank == VictimRank.PLACED),
            when=chosen & self.is_ours(victim),
        )
        self.lemma(
            "old row as victim",
            best.rank == VictimRank.OVER,
            when=chosen
            & (victim.region == row.region)
            & (victim.epoch[0] == row.epoch[0])
            & (victim.epoch != row.epoch),
        )
        self.lemma(
            "only placed rows spill",
            best.rank == VictimRank.PLACED,
            when=self.within("COUNT", "SPILL"),
        )
        apart = self.within("FETCH", "FETCHED", "FOUND", "RECOUNT", "UNCOUNT", "ERASE", "ERASED")
        apart = apart | self.within("IDLE", "SPILLED", "AGAIN")
        self.lemma(
            "way is free",
            ((judge.way & match) == 0) | self.in_memory,
            when=at_home & inside.absent & judge.has_way & apart,
        )
        self.lemma(
            "others purged",
            ~covers(self.walk.run, row.region, row.epoch[0]),
            when=self.dut.purging,
        )
