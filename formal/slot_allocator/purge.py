# SPDX-License-Identifier: Apache-2.0
"""Promises of the lookup stage (``hub_rtl/slot_allocator/lookup.py``) about purges."""

from unittest import mock

from amaranth import Array, Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.spec import Spec
from hub_rtl.slot_allocator import lookup
from hub_rtl.slot_allocator.lookup import Lookup
from hub_rtl.slot_allocator.records import Kind, fold_key

from .inner import Inside, free_part

__all__ = ["PurgeForgetsItsBank"]


class PurgeForgetsItsBank(Spec):
    """For any row: once a purge of its bank has ended, no entry of it is left: its next packet that
    is placed asks the address table. For any entry of the RAT: it changes only with a packet that
    is looked up, or in a purge of its own bank, and a purge only removes it. ``purging`` begins in
    the cycle after ``purge`` and ends only when nothing of earlier packets is left in the issue
    stage. A tag matches only the row it names. User: the next purge comes when ``purging`` is 0; a
    row of no region fails its checks. Entries are watched in the tag memory and on their way to
    it."""

    def build(self, m):
        cfg, dut = self._cfg, Lookup(self._cfg)
        with mock.patch.multiple(
            lookup,
            **{
                name: free_part(getattr(lookup, name))
                for name in ("RowCheck", "PlainCheck", "SpillFilter")
            },
        ):
            inside = Inside(m, dut)
        self.free_inputs(dut)
        own, head, command, purge = inside["own"], dut.i_head, dut.o_command, dut.purge
        body = data.View(own.row_body, head.p.body)
        self.suppose("one purge at a time", ~dut.purging, when=purge.en)
        self.suppose("bytes with the head", head.valid, when=dut.i_bytes.valid)
        self.suppose("no header while clearing", ~head.valid, when=dut.clearing)
        purged = Signal(own.bank)
        with m.If(purge.en):
            m.d.sync += [
                purged.region.eq(purge.region),
                purged.bank.eq(purge.bank),
            ]
        began, went = self.past(purge.en, "began"), self.past(dut.purging, "went")
        ended = went & ~dut.purging
        self.always("purging begins", dut.purging, when=began)
        self.always("purging only when asked", began | went, when=dut.purging)
        self.always("earlier packets have left", self.past(dut.issue_idle, "was_idle"), when=ended)

        # A row, and whether it may have an entry.
        rowid, region, epoch = (
            self.constant(24, "rowid"),
            self.constant(cfg.region_width, "region"),
            self.constant(4, "epoch"),
        )
        self.suppose(
            "region exists",
            body.region < cfg.regions,
            when=head.valid & (inside["rows.reason"] == 0),
        )
        self.suppose("refused for a reason", inside["rows.refused"] == (inside["rows.reason"] != 0))
        ours = (
            ~head.p.plain & (body.region == region) & (body.epoch == epoch) & (body.rowid == rowid)
        )
        placed = command.valid & command.ready & ours & (command.p.kind == Kind.ROW)
        bank_ours = (purged.region == region) & (purged.bank == epoch[0])
        gone, had = Signal(), Signal()
        with m.If(placed):
            m.d.sync += [
                gone.eq(0),
                had.eq(had | command.p.install),
            ]
        with m.Elif(ended & bank_ours):
            m.d.sync += gone.eq(1)
        self.always("asks again", command.p.fresh, when=placed & (gone | ended & bank_ours))
        self.reach("a row that had an entry", placed & gone & had)

        # An entry.
        tag = data.ArrayLayout(own.tag, cfg.rat_ways)
        which, way = (
            self.constant(max(1, own.set_width), "set"),
            self.constant(own.way_width, "way"),
        )
        self.suppose("entry exists", (which < cfg.rat_sets) & (way < cfg.rat_ways))
        writing, looked = inside["tags.writing"], inside["tags.looked"]  # on its way to memory

        def content(address, name):
            stored = tag(inside.word(m, "tags.tag_ram.memory", address, name))
            now = [Signal(own.tag, name=f"{name}{n}") for n in range(cfg.rat_ways)]
            m.d.comb += [
                each.eq(
                    Mux(
                        writing[n] & (looked == address),
                        inside["tags.written"].as_value(),
                        stored[n].as_value(),
                    )
                )
                for n, each in enumerate(now)
            ]
            return now

        word = content(which, "entry_set")
        entry = data.View(own.tag, Array(word[n].as_value() for n in range(cfg.rat_ways))[way])
        before = data.View(own.tag, self.past(entry, "before"))
        calm = self.started & ~self.past(dut.clearing | (command.valid & command.ready), "changes")
        bank_entry = (purged.region == before.region) & (purged.bank == before.epoch[0])
        same = entry.as_value() == before.as_value()
        self.always(
            "entry of another bank stays", same, when=calm & before.valid & went & ~bank_entry
        )
        self.always("entry stays without a purge", same, when=calm & before.valid & ~went)
        self.always("only packets install", ~entry.valid, when=calm & ~before.valid)
        self.always("purges only remove", same | ~entry.valid, when=calm & before.valid & went)
        self.reach("an entry is removed", calm & before.valid & ~entry.valid)

        # Helper invariants: where the walk is, and what it has left.
        state, walk = inside.state, inside["walk"]
        home = Signal(max(1, own.set_width))
        m.d.comb += home.eq(fold_key(region, epoch[0], rowid, own.set_width))
        mine = content(home, "home_set")
        read, tags, kept = inside["tags"].tags, inside["tags"], inside["tags.kept"]
        walking = Cat(state(name) for name in ("PURGE", "WIPE", "LEAVE")).any()
        looking = ~walking & ~state("READ")

        def holds(each, bank):
            return each.valid & (each.region == bank.region) & (each.epoch[0] == bank.bank)

        def is_ours(each):
            return (
                each.valid & (each.region == region) & (each.epoch == epoch) & (each.rowid == rowid)
            )

        self.lemma("acting", inside["acting"] == state("ACT"))
        self.lemma("cleared", ~dut.clearing, when=inside["cleared"])
        self.lemma(
            "bank purged", inside["purge_bank"].as_value() == purged.as_value(), when=dut.purging
        )
        self.lemma("purging", dut.purging, when=walking)
        self.lemma("waits for clearing", ~dut.clearing, when=~state("READ"))
        self.lemma("memory cleared", inside["tags.tag_ram.walk"] <= cfg.rat_sets)
        self.lemma("walk ends", (walk <= cfg.rat_sets) & ~(state("WIPE") & (walk == cfg.rat_sets)))
        self.lemma("all walked", walk == cfg.rat_sets, when=state("LEAVE"))
        self.lemma("walks", looked == walk, when=state("WIPE"))
        self.lemma(
            "compared ahead",
            inside["tags.same"]
            == (
                kept.valid
                & (kept.region == tags.region)
                & (kept.epoch == tags.epoch)
                & (kept.rowid == tags.rowid)
            ),
            when=state("CHECK"),
        )
        self.lemma(
            "reads its home",
            read.as_value() == Cat(each.as_value() for each in mine),
            when=(looking | state("WIPE")) & (looked == home),
        )
        self.lemma(
            "reads the set",
            read.as_value() == Cat(each.as_value() for each in word),
            when=(looking | state("WIPE")) & (looked == which),
        )

        # The set tells the lowest bits of a RowID, which are not compared.
        def at(each):
            return fold_key(each.region, each.epoch[0], each.rowid, own.set_width)

        self.lemma(
            "home cleared",
            Cat(each.as_value() for each in mine) == 0,
            when=dut.clearing & (inside["tags.tag_ram.walk"] > home),
        )
        self.lemma(
            "rows at home",
            Cat(~mine[n].valid | (at(mine[n]) == home) for n in range(cfg.rat_ways)).all(),
            when=~dut.clearing,
        )
        self.lemma(
            "own set",
            looked == fold_key(body.region, body.epoch[0], body.rowid, own.set_width),
            when=looking & ~head.p.plain,
        )
        self.always(
            "match is exact",
            Cat(tags.match[n] == is_ours(read[n]) for n in range(cfg.rat_ways)).all(),
            when=state("CHECK") & ours,
        )
        self.lemma(
            "home wiped",
            ~Cat(holds(each, purged) for each in (mine[n] for n in range(cfg.rat_ways))).any(),
            when=walking & (walk > home) | ended,
        )
        self.lemma(
            "none left", ~Cat(is_ours(mine[n]) for n in range(cfg.rat_ways)).any(), when=gone
        )
        self.lemma(
            "looked at home", (looked == home) & (inside["looked_set"] == home), when=looking & ours
        )
        self.lemma(
            "no hit", ~inside["hit"], when=gone & ours & looking & ~state("CHECK") & ~state("GROUP")
        )
        self.lemma("head stays", head.valid, when=looking)
        self.lemma(
            "written at once", writing == 0, when=~(state("READ") | state("PURGE")) | dut.clearing
        )
