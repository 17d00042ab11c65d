# SPDX-License-Identifier: Apache-2.0
"""Promise of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``) to its spill filter: spills
and restores are counted in pairs."""

from amaranth import Mux, Signal

from formal.kit.inside import observe
from hub_rtl.contract.config import ceil_log2
from hub_rtl.slot_allocator.records import fold_key
from hub_rtl.slot_allocator.spill_path import WORD

from .pipe import PipeSpec

__all__ = ["SpillsArePaired"]


class SpillsArePaired(PipeSpec):
    """What enters the spill table is counted in the filter, what leaves it is counted out, at the
    counter of that very row. Each ``up`` is followed by the write of one word of a row with the
    counter's index, each ``down`` by the erasure of one row's word with that index, before the
    filter is changed again. For any row: its word is erased only when memory holds one. A packet
    that goes on to R3 takes what the filter says of its own row, of now. One operation per cycle,
    none while clearing, one change per ``look``.

    So a counter is never below the number of words with its index in memory, the sum over rows of
    what is shown for any one: only counted rows leave. Whatever the filter answers, rows of other
    banks, epochs and purges included.

    Supposed: packets of regions that do not exist are refused; memory invents no word (the table
    was zeroed, what is erased is gone: an erasure does not fail)."""

    def build(self, m):
        cfg = self._cfg
        self.pipe(m)
        self.checks()
        self.width = ceil_log2(cfg.filter_depth)
        inside, dut, spill = self.inside, self.dut, self.dut.o_spill
        table, third = inside.spilled, inside.third
        sent = Signal(WORD)
        m.d.comb += sent.eq(spill.p.word)
        asks = spill.valid & spill.ready
        writes, erases = asks & spill.p.write & sent.valid, asks & spill.p.write & ~sent.valid

        # The filter's port: what was looked at, and which change waits for its word.
        looked = Signal(self.width)
        fresh = Signal()
        self.looked_counter, self.fresh = looked, fresh
        changes = table.up | table.down
        with m.If(table.look):
            m.d.sync += [
                looked.eq(table.index),
                fresh.eq(1),
            ]
        with m.Elif(changes):
            m.d.sync += fresh.eq(0)
        came = Signal()
        left = Signal()
        at = Signal(self.width)
        self.came, self.left, self.counted = came, left, at
        with m.If(changes):
            m.d.sync += [
                came.eq(table.up),
                left.eq(table.down),
                at.eq(looked),
            ]
        with m.Elif(writes | erases):
            m.d.sync += [
                came.eq(0),
                left.eq(0),
            ]
        self.always("one operation per cycle", table.look + table.up + table.down <= 1)
        self.always("nothing while clearing", ~(table.look | changes), when=dut.clearing)
        self.always("one change per look", fresh, when=changes)
        self.always("each change has its word", ~came & ~left, when=changes)
        row = fold_key(spill.p.region, spill.p.bank, spill.p.rowid, self.width)
        self.always("a spilled row was counted, at its counter", came & (at == row), when=writes)
        self.always(
            "an erased row was counted out, at its counter", left & (at == row), when=erases
        )
        goes_on = inside.move & self.is_row(inside.second)
        own = looked == self.counter(self.named(inside.second))
        self.always("told of its own counter", own & fresh, when=goes_on)

        # One row's word in memory.
        rowid, region = self.constant(24, "rowid"), self.constant(cfg.region_width, "region")
        bank = self.constant(1, "bank")
        ours = (spill.p.region == region) & (spill.p.bank == bank) & (spill.p.rowid == rowid)
        held = Signal()
        busy = Signal()
        reading = Signal()
        erasing = Signal()
        self.held, self.busy, self.reading, self.erasing = held, busy, reading, erasing
        with m.If(writes & ours):
            m.d.sync += held.eq(1)
        with m.Elif(erases & ours):
            m.d.sync += held.eq(0)
        with m.If(asks):
            m.d.sync += [
                busy.eq(1),
                reading.eq(ours & ~spill.p.write),
                erasing.eq(erases),
            ]
        with m.Elif(dut.spill_done):
            m.d.sync += busy.eq(0)
        reply = Signal(WORD)
        m.d.comb += reply.eq(dut.spill_reply.word)
        self.suppose("memory answers what was asked", busy, when=dut.spill_done)
        self.suppose(
            "memory invents no word",
            ~reply.valid | held,
            when=dut.spill_done & reading & ~dut.spill_reply.error,
        )
        self.suppose("an erasure works", ~dut.spill_reply.error, when=dut.spill_done & erasing)
        # No cover of a row that is spilled and erased, minutes deep:
        # slot_allocator.row_slot_restores has it.
        self.always("erased only when there", held | ~(erases & ours))
        self.reach("spilled", writes & ours)
        self.reach("restored into a way", erases & ~inside.complete)
        named = self.named(third)
        self.ours = (named.region == region) & (named.epoch[0] == bank) & (named.rowid == rowid)
        self._lemmas(m)
        self._victim()

    def counter(self, row):
        return fold_key(row.region, row.epoch[0], row.rowid, self.width)

    def _lemmas(self, m):
        """Which counter each state has looked at, and whose word is in hand."""
        inside, slow = self.inside, self.slow
        self.stage_lemmas()
        for n, each in enumerate(self.stages, 1):
            own = each.counter == self.counter(self.named(each))
            self.lemma(f"own counter of R{n}", own, when=self.is_row(each))
        packet = self.counter(self.named(inside.third))
        self.lemma("a word follows", self.came == slow["SPILL"])
        self.lemma("an erasure follows", self.left == slow["ERASE"])
        self.lemma("looked before", self.fresh, when=self.within("COUNT", "UNCOUNT"))
        self.lemma("busy", self.busy == self.within("FETCHED", "SPILLED", "ERASED"))
        self.lemma("erasing", self.erasing == slow["ERASED"], when=self.busy)
        self.lemma("reading", self.reading == self.ours, when=slow["FETCHED"])
        goes = self.served | self.within("ERASED", "AGAIN")
        restored = self.ours & inside.path.restored & ~goes
        self.lemma("restored is there", self.held, when=restored)
        self.lemma("own counter", self.looked_counter == packet, when=slow["UNCOUNT"])
        self.lemma("own counter counted", self.counted == packet, when=slow["ERASE"])
        behind = self.looked_counter == self.counter(self.named(inside.second))
        waits = self.is_row(inside.second) & slow["IDLE"]
        self.lemma("counter of R2", behind & self.fresh, when=waits)

    def _victim(self):
        """The counter of each way on its way through the search."""
        inside, ways, read = self.inside, self._cfg.rat_ways, self.inside.tags.tags
        search = inside.search
        found, scan = observe(search), self.slow["SCAN"]
        step, rank = found.step, found.best.rank
        chosen = (scan & (step > 2)) | self.within("VICTIM", "COUNT", "SPILL")
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
            counter = self.counter(read[n])
            for what, way, index in (
                ("seen", found.looked, found.looked_index),
                ("rated", found.rated, found.rated_index),
            ):
                self.lemma(f"{what} {n}", index == counter, when=scan & way[n])
            self.lemma(f"best {n}", search.index == counter, when=chosen & search.way[n])
        one = (search.way != 0) & ((search.way & (search.way - 1)) == 0)
        self.lemma("a victim", one & (rank != 0), when=chosen)
        none = found.best.as_value() == 0
        self.lemma("no victim yet", none, when=scan & ((step == 1) | (step == 2)))
        at = self.looked_counter == search.index
        self.lemma("its counter", at, when=self.slow["COUNT"])
        self.lemma("its counter counted", self.counted == search.index, when=self.slow["SPILL"])
