# SPDX-License-Identifier: Apache-2.0
"""The pipe of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``) under proof: its environment,
and helper invariants that several promises rest on."""

from amaranth import Cat, Signal
from amaranth.lib import data

from formal.kit.cuts import cut
from formal.kit.inside import observe, peek
from formal.kit.spec import Spec
from hub_rtl.slot_allocator.records import fold_key, slice_types_of
from hub_rtl.slot_allocator.row_pipe import RowPipe

__all__ = ["PipeSpec", "covers"]


def covers(run, region, bank):
    """Whether a purge is of this bank too."""
    return (run.region <= region) & (region <= run.last) & (run.bank == bank)


class PipeSpec(Spec):
    """The pipe; of its parts those in ``FREE`` say anything, but never that they clear."""

    FREE = ("rows", "plain", "spilled")

    def pipe(self, m):
        """Builds the pipe and its environment."""
        cfg = self._cfg
        self.own = slice_types_of(cfg)
        self.dut = dut = RowPipe(cfg)
        m.submodules.dut = dut
        self.inside = inside = observe(dut)
        for name in self.FREE:
            cut(self, getattr(inside, name), but=("clearing",))
        self.free_inputs(dut)
        self.suppose("no header while clearing", ~dut.i_head.valid, when=dut.clearing)
        self.suppose("one purge at a time", ~dut.purging, when=dut.purge.en)
        self.suppose("bytes fit", dut.i_head.p.bytes <= cfg.packet_bytes)
        self.stages = inside.first, inside.second, inside.third
        self.slow = observe(inside.path).states
        self.walk = observe(inside.purger)
        self.served = observe(inside.path).served
        self.looked = Signal.like(inside.tags.set, name="looked_set")
        with m.If(inside.tags.look):
            m.d.sync += self.looked.eq(inside.tags.set)

    def checks(self):
        """What the free checks say of packets."""
        rows, inside = self.inside.rows, self.inside
        said = Cat(rows.reason, rows.known, rows.row_bytes, inside.plain.allowed)
        self.suppose(
            "what a check says holds",
            said == self.past(said, "said"),
            when=~self.past(inside.move, "moved"),
        )
        self.suppose("refused for a reason", rows.refused == (rows.reason != 0))
        second = inside.second
        self.suppose(
            "no such region",
            rows.reason != 0,
            when=second.valid
            & ~second.head.plain
            & (self.body(second).region >= self._cfg.regions),
        )

        exists = self.body(inside.third).region < self._cfg.regions
        self.lemma("no region, no place", exists, when=inside.place)

    def body(self, packet):
        return data.View(self.own.row_body, packet.head.body)

    def named(self, packet):
        """The row that a packet names."""
        body, row = self.body(packet), self.own.row
        return data.View(row, Cat(body[name][: field.width] for name, field in row))

    def is_row(self, packet):
        return packet.valid & ~packet.head.plain

    def within(self, *names):
        """A packet is on the slow way, in one of these states."""
        return Cat(self.slow[name] for name in names).any()

    def home(self, row):
        """Number of a row's set."""
        return fold_key(row.region, row.epoch[0], row.rowid, self.own.set_width)

    def same_row(self, one, other):
        return Cat(one[name] == other[name] for name in ("region", "epoch", "rowid")).all()

    def sets(self, m):
        """The stored tags of each set, and all lemmas about stages and sets."""
        self.kept = [self.at(m, place, f"set{place}") for place in range(self._cfg.rat_sets)]
        self.stage_lemmas()
        for place in range(self._cfg.rat_sets):
            self.view_lemmas(place)
            self.set_lemmas(place)

    def at(self, m, address, name="home_set"):
        """The stored tags of a set."""
        tags = self.inside.tags
        word = Signal(tags.tags.shape(), name=name)
        m.d.comb += word.eq(peek(m, observe(tags).ram, address))
        return [word[n] for n in range(self._cfg.rat_ways)]

    def stage_lemmas(self):
        """Where packets are, and how they are related."""
        inside, dut, judge = self.inside, self.dut, self.inside.judge
        first, second, third = self.stages
        some = first.valid | second.valid | third.valid
        walking = ~self.walk.states["IDLE"]
        self.lemma("nothing while clearing", ~some & self.slow["IDLE"], when=dut.clearing)
        self.lemma("nothing while walking", ~some & ~dut.clearing & dut.purging, when=walking)
        for n, packet in enumerate(self.stages, 1):
            own = packet.set == self.home(self.named(packet))
            self.lemma(f"own set of R{n}", own, when=self.is_row(packet))
        for name, twin, packet in (("far", inside.far, first), ("near", inside.near, second)):
            related = (
                (twin.row == (self.named(packet) == self.named(third)))
                & (twin.set == (packet.set == third.set))
                & (twin.stranger == (packet.head.src != third.head.src))
            )
            self.lemma(f"{name}: related", related, when=self.is_row(packet) & self.is_row(third))
        counts, walk = observe(inside.counts), observe(observe(inside.tags).ram).walk
        self.lemma("memory walked", walk <= self._cfg.rat_sets)
        self.lemma("ages walked", observe(counts.ages).walk == walk)
        self.lemma("counts of R3", counts.looked == third.set, when=self.is_row(third))
        fits = third.fits == ~(third.head.bytes < third.whole)
        self.lemma("fits", fits, when=self.is_row(third))
        self.still = self.slow["IDLE"] & ~walking
        self.set_view = self.within("DRAIN", "SCAN", "VICTIM", "COUNT", "SPILL", "SPILLED", "LOST")
        self.lemma("R1 in view", self.looked == first.set, when=self.still & first.valid)
        self.lemma("R3 in view", self.looked == third.set, when=self.set_view)
        self.begun = begun = ~self.slow["IDLE"] | self.served
        self.lemma("R3 has no entry", ~judge.hit, when=begun & ~third.refused)
        working = ~self.slow["IDLE"] & ~self.slow["AGAIN"]
        self.lemma("works for the packet", inside.absent, when=working)
        self.lemma("works for a row", self.is_row(third), when=begun)
        self.lemma("served once", ~self.served, when=~self.slow["IDLE"])
        self.lemma("restored when begun", begun & inside.absent, when=inside.path.restored)
        fetches = self.within("FETCH", "FETCHED")
        self.lemma("nothing found yet", ~inside.path.restored, when=fetches)
        self.lemma("fetched when maybe", third.maybe, when=fetches | self.slow["FOUND"])
        erases = self.within("RECOUNT", "UNCOUNT", "ERASE", "ERASED")
        self.lemma("erases what was restored", inside.path.restored, when=erases)
        placed = erases | self.slow["AGAIN"] | self.served
        placed = placed | self.within("COUNT", "SPILL", "SPILLED", "LOST")
        self.lemma("a way if it needs one", ~inside.path.lacks, when=placed & inside.absent)

    def view_lemmas(self, at):
        """What is seen of set ``at`` is what is stored there, for each packet at its stage."""
        inside, tags, kept = self.inside, self.inside.tags, self.kept[at]
        first, second, third = self.stages
        judge, seen, viewed = inside.judge, observe(inside.judge).second, self.looked == at
        _, passed, tag, same = observe(tags)
        shown = (self.still & first.valid) | self.set_view | self.walk.states["WIPE"]
        as_stored = Cat(tags.tags[n].as_value() == each.as_value() for n, each in enumerate(kept))
        self.lemma(f"set {at} in view", as_stored.all(), when=shown & viewed)
        self.lemma(
            f"compared ahead in set {at}",
            same == self.same_row(tag, self.named(first)),
            when=self.still & self.is_row(first) & (passed != 0) & tag.valid & viewed,
        )
        used = Cat(each.valid for each in kept)

        def matches(packet):
            row = self.named(packet)
            return Cat(each.valid & self.same_row(each, row) for each in kept)

        for n, packet, view in ((1, first, tags.seen), (2, second, seen)):
            here = self.is_row(packet) & (packet.set == at) & (self.still if n == 1 else 1)
            match = matches(packet)
            right = (view.match == match) & (view.used == used)
            self.lemma(f"R{n} sees set {at}", right, when=here)
        match, here = matches(third), self.is_row(third) & (third.set == at)
        hit = (judge.hit == (match != 0)) & (~judge.hit | (judge.way == match))
        self.lemma(f"R3 knows its way in set {at}", hit, when=here & ~self.begun)
        before = self.within("IDLE", "FETCH", "FETCHED", "FOUND", "LOOK", "DRAIN", "SCAN")
        self.lemma(
            f"R3 has a free way in set {at}",
            (judge.has_way == ~used.all()) & ((judge.way & used) == 0),
            when=here & ~judge.hit & before & ~self.served,
        )

    def set_lemmas(self, at):
        """What is stored in set ``at`` belongs there; it begins empty."""
        kept, walk = self.kept[at], observe(observe(self.inside.tags).ram).walk
        empty = Cat(each.as_value() for each in kept) == 0
        self.lemma(f"set {at} cleared", empty, when=self.dut.clearing & (walk > at))
        own = Cat(~each.valid | (self.home(each) == at) for each in kept).all()
        self.lemma(f"rows of set {at}", own, when=~self.dut.clearing)
