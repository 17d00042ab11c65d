# SPDX-License-Identifier: Apache-2.0
"""Promises of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``) about purges."""

from amaranth import Array, Cat, Signal
from amaranth.lib import data

from hub_rtl.slot_allocator.records import Kind

from .pipe import PipeSpec, covers

__all__ = ["PurgeForgetsItsBank"]


class PurgeForgetsItsBank(PipeSpec):
    """For any row: once a purge with its bank has ended, no entry of it is left: its next packet
    that is placed asks the address table. For any entry of the RAT: it changes only with a packet
    that leaves the pipe, or in a purge of its bank, and a purge only removes it. ``purging`` begins
    in the cycle after ``purge`` and ends only when nothing of earlier packets is left in the issue
    stage. A tag matches only the row it names. User: the next purge comes when ``purging`` is 0; a
    row of no region fails its checks. Entries are watched in the tag memory."""

    def build(self, m):
        cfg = self._cfg
        self.pipe(m)
        self.checks()
        inside, dut, own, purge = self.inside, self.dut, self.own, self.dut.purge
        third, command = inside.third, dut.o_command
        purged = Signal(own.purge)
        with m.If(purge.en):
            m.d.sync += purged.eq(purge)
        began, went = self.past(purge.en, "began"), self.past(dut.purging, "went")
        ended = went & ~dut.purging
        self.always("purging begins", dut.purging, when=began)
        self.always("purging only when asked", began | went, when=dut.purging)
        self.always("earlier packets have left", self.past(dut.issue_idle, "was_idle"), when=ended)

        # A row, and whether it may have an entry.
        row = Signal(own.row)
        for name, field in own.row:
            m.d.comb += row[name].eq(self.constant(field.shape, name))
        placed = (
            command.valid
            & command.ready
            & (self.named(third) == row)
            & (command.p.kind == Kind.ROW)
        )
        bank_ours = covers(purged, row.region, row.epoch[0])
        gone = Signal()
        had = Signal()
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
        which = self.constant(max(1, own.set_width), "set")
        way = self.constant(own.way_width, "way")
        self.suppose("entry exists", (which < cfg.rat_sets) & (way < cfg.rat_ways))
        word = self.at(m, which, "entry_set")
        entry = data.View(own.tag, Array(each.as_value() for each in word)[way])
        before = data.View(own.tag, self.past(entry, "before"))
        calm = self.started & ~self.past(dut.clearing | inside.leave, "changes")
        bank_entry = covers(purged, before.region, before.epoch[0])
        same = entry.as_value() == before.as_value()
        self.always(
            "entry of another bank stays", same, when=calm & before.valid & went & ~bank_entry
        )
        self.always("entry stays without a purge", same, when=calm & before.valid & ~went)
        self.always("only packets install", ~entry.valid, when=calm & ~before.valid)
        self.always("purges only remove", same | ~entry.valid, when=calm & before.valid & went)
        self.reach("an entry is removed", calm & before.valid & ~entry.valid)
        exact = Cat(
            inside.tags.seen.match[n] == (each.valid & self.same_row(each, row))
            for n, each in enumerate(inside.tags.tags[n] for n in range(cfg.rat_ways))
        )
        first = inside.first
        looking = self.is_row(first) & (self.named(first) == row) & self.slow["IDLE"]
        self.always("match is exact", exact.all(), when=looking)
        self._lemmas(m, row, purged, gone, ended)

    def _lemmas(self, m, row, purged, gone, ended):
        """Where the walk is, and what it has left."""
        cfg, dut, walk, inside = self._cfg, self.dut, self.walk, self.inside
        home = Signal(max(1, self.own.set_width))
        m.d.comb += home.eq(self.home(row))
        self.sets(m)
        mine = self.at(m, home)
        walking = ~walk.states["IDLE"]

        def holds(each, run):
            return each.valid & covers(run, each.region, each.epoch[0])

        ours = Cat(each.valid & self.same_row(each, row) for each in mine)
        self.lemma("banks purged", walk.run.as_value() == purged.as_value(), when=dut.purging)
        self.lemma(
            "walk ends",
            (walk.walk <= cfg.rat_sets) & ~(walk.states["WIPE"] & (walk.walk == cfg.rat_sets)),
        )
        self.lemma("all walked", walk.walk == cfg.rat_sets, when=walk.states["LEAVE"])
        self.lemma("walks", self.looked == walk.walk, when=walk.states["WIPE"])
        left = Cat(holds(each, purged) for each in mine).any()
        self.lemma("home wiped", ~left, when=walking & (walk.walk > home) | ended)
        self.lemma("none left", ~ours.any(), when=gone)
        named = self.is_row(inside.third) & (self.named(inside.third) == row)
        self.lemma("no hit", ~inside.judge.hit, when=gone & named)
