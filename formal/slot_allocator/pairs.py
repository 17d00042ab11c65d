# SPDX-License-Identifier: Apache-2.0
"""Promise of the lookup stage (``hub_rtl/slot_allocator/lookup.py``) to its spill filter: spills
and restores are counted in pairs."""

from unittest import mock

from amaranth import Cat, Signal
from amaranth.lib import data

from formal.kit.spec import Spec
from hub_rtl.contract.config import ceil_log2
from hub_rtl.slot_allocator import lookup
from hub_rtl.slot_allocator.lookup import WORD, Lookup
from hub_rtl.slot_allocator.records import fold_key

from .inner import Inside, free_part

__all__ = ["SpillsArePaired"]

PARTS = ("RowCheck", "PlainCheck", "SpillFilter")


class SpillsArePaired(Spec):
    """What enters the spill table is counted in the filter, what leaves it is counted out, at the
    counter of that very row. Each ``up`` is followed by the write of one word of a row with the
    counter's index, each ``down`` by the erasure of one row's word with that index, before the
    filter is changed again. For any row: its word is erased only when memory holds one. One
    operation per cycle, none while clearing, one change per ``look``.

    So a counter is never below the number of words with its index in memory, the sum over rows of
    what is shown for any one: only counted rows leave. Whatever the filter answers, rows of other
    banks, epochs and purges included.

    Supposed: packets of regions that do not exist are refused; memory invents no word (the table
    was zeroed, what is erased is gone: an erasure does not fail)."""

    def build(self, m):
        cfg = self._cfg
        self.dut = dut = Lookup(cfg)
        with mock.patch.multiple(
            lookup, **{name: free_part(getattr(lookup, name)) for name in PARTS}
        ):
            inside = self.inside = Inside(m, dut)
        self.free_inputs(dut)
        self.width = ceil_log2(cfg.filter_depth)
        spill, table = dut.o_spill, inside["spilled"]
        sent = Signal(WORD)
        m.d.comb += sent.eq(spill.p.word)
        asks = spill.valid & spill.ready
        writes, erases = asks & spill.p.write & sent.valid, asks & spill.p.write & ~sent.valid
        self.suppose("bytes with the head", dut.i_head.valid, when=dut.i_bytes.valid)
        self.suppose("no header while clearing", ~dut.i_head.valid, when=dut.clearing)

        body = data.View(inside["own"].row_body, dut.i_head.p.body)
        self.suppose(
            "a packet of no region is refused",
            body.region < cfg.regions,
            when=dut.i_head.valid & ~dut.i_head.p.plain & ~inside["rows.refused"],
        )

        # The filter's port: what was looked at, and which change waits for its word.
        looked, fresh = Signal(self.width), Signal()
        with m.If(table.look):
            m.d.sync += [
                looked.eq(table.index),
                fresh.eq(1),
            ]
        with m.Elif(table.up | table.down):
            m.d.sync += fresh.eq(0)
        came, left, at = Signal(), Signal(), Signal(self.width)
        self.came, self.left, self.at = came, left, at
        with m.If(table.up | table.down):
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
        self.looked, self.fresh = looked, fresh
        changes = table.up | table.down
        self.always("one operation per cycle", table.look + table.up + table.down <= 1)
        self.always("nothing while clearing", ~(table.look | changes), when=dut.clearing)
        self.always("one change per look", fresh, when=changes)
        self.always("each change has its word", ~came & ~left, when=changes)
        row = fold_key(spill.p.region, spill.p.bank, spill.p.rowid, self.width)
        self.always("a spilled row was counted, at its counter", came & (at == row), when=writes)
        self.always(
            "an erased row was counted out, at its counter", left & (at == row), when=erases
        )

        # One row's word in memory.
        rowid, region = self.constant(24, "rowid"), self.constant(cfg.region_width, "region")
        bank = self.constant(1, "bank")
        ours = (spill.p.region == region) & (spill.p.bank == bank) & (spill.p.rowid == rowid)
        held, busy, reading, erasing = Signal(), Signal(), Signal(), Signal()
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
        self.reach(
            "restored into a way", erases & self.past(inside.state("UNCOUNT")) & inside["need_way"]
        )
        self.ours = (body.region == region) & (body.epoch[0] == bank) & (body.rowid == rowid)
        self._lemmas(m)

    def _lemmas(self, m):
        """Helper invariants: which counter each state has looked at, and whose word is in hand."""
        inside, state, dut = self.inside, self.inside.state, self.dut
        acting = ~Cat(
            state(name) for name in ("READ", "CHECK", "GROUP", "PURGE", "WIPE", "LEAVE")
        ).any()

        def within(*names):
            return Cat(state(name) for name in names).any()

        self.lemma("acting", inside["acting"] == state("ACT"))
        self.lemma("cleared", ~dut.clearing, when=inside["cleared"])
        self.lemma("waits for clearing", ~dut.clearing, when=~state("READ"))
        self.lemma(
            "written at once",
            inside["tags.writing"] == 0,
            when=~within("READ", "PURGE") | dut.clearing,
        )
        self.lemma("head stays", dut.i_head.valid, when=acting | within("CHECK", "GROUP"))
        self.lemma(
            "slow packets", dut.i_bytes.valid & ~dut.i_head.p.plain, when=acting & ~state("ACT")
        )
        self.lemma("a word follows", self.came == within("SPILL"))
        self.lemma("an erasure follows", self.left == state("ERASE"))
        self.lemma("looked before", self.fresh, when=within("COUNT", "UNCOUNT"))
        self.lemma("busy", self.busy == within("FETCHED", "SPILLED", "ERASED"))
        self.lemma("erasing", self.erasing == state("ERASED"), when=self.busy)
        self.lemma("reading", self.reading == self.ours, when=state("FETCHED"))
        self.lemma(
            "restored is there",
            self.held,
            when=self.ours & acting & inside["restored"] & ~inside["erased"] & ~state("ERASED"),
        )
        self.lemma(
            "erasing what was restored",
            inside["restored"] & ~inside["erased"],
            when=within("UNCOUNT", "ERASE", "ERASED"),
        )
        self.lemma(
            "nothing before it was fetched",
            (inside["fetched"] | ~inside["restored"]) & (inside["restored"] | ~inside["erased"]),
            when=acting,
        )
        self.lemma(
            "begins clean",
            ~inside["fetched"] & ~inside["restored"] & ~inside["erased"],
            when=within("CHECK", "GROUP"),
        )
        self.lemma("fetched once", ~inside["restored"], when=within("FETCH", "FETCHED"))
        body = data.View(inside["own"].row_body, dut.i_head.p.body)
        self.lemma("region exists", body.region < self._cfg.regions, when=acting & ~state("ACT"))
        packet = fold_key(body.region, body.epoch[0], body.rowid, self.width)
        self.lemma("own counter", self.looked == packet, when=state("UNCOUNT"))
        self.lemma("own counter counted", self.at == packet, when=state("ERASE"))
        self._victim(within)

    def _victim(self, within):
        """The counter of each way on its way through the search."""
        inside, ways, read = self.inside, self._cfg.rat_ways, self.inside["tags"].tags
        step = inside["step"]

        def counter(tag):
            return fold_key(tag.region, tag.epoch[0], tag.rowid, self.width)

        best = inside["best_way"]
        scan = within("SCAN")
        chosen = (scan & (step > 1)) | within("VICTIM", "COUNT", "SPILL")
        self.lemma("steps", step <= ways)
        for n in range(ways):
            self.lemma(
                f"scans {n}",
                inside["scan_way"] == 1 << n,
                when=(scan & (step + 1 == n)) | (within("DRAIN") if n == 0 else 0),
            )
            self.lemma(
                f"seen {n}",
                (inside["seen_way"] == 1 << n) & (inside["seen_index"] == counter(read[n])),
                when=scan & (step == n),
            )
            self.lemma(
                f"rated {n}",
                (inside["rated_way"] == 1 << n) & (inside["rated_index"] == counter(read[n])),
                when=scan & (step == n + 1),
            )
            self.lemma(f"best {n}", inside["best_index"] == counter(read[n]), when=chosen & best[n])
        self.lemma(
            "a victim",
            (best != 0) & ((best & (best - 1)) == 0) & (inside["best_key"].rank != 0),
            when=chosen,
        )
        self.lemma("no victim yet", inside["best_key"].as_value() == 0, when=scan & (step <= 1))
        self.lemma("its counter", self.looked == inside["best_index"], when=within("COUNT"))
        self.lemma("its counter counted", self.at == inside["best_index"], when=within("SPILL"))
