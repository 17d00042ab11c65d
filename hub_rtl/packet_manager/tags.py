# SPDX-License-Identifier: Apache-2.0
"""Finds the open entry of each store, or a place for a new one's tag."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, ones, select
from hub_rtl.parts.ram import Ram

from .records import BANKS, HOME, PLACES, WAYS, covers, pool_types_of
from .tag_table import TagTable

__all__ = ["Tags"]


POLYNOMIAL = 0x1B75  # dense: keys that differ in a few bits of any fields do not meet twice
DEGREE = POLYNOMIAL.bit_length() - 1


def hashes(key, width):
    """Two hashes of ``key``: bits of its remainder after division by POLYNOMIAL."""
    bits, columns = key.as_value(), [1]
    while len(columns) < DEGREE + len(bits):
        shifted = columns[-1] << 1
        columns.append(shifted ^ (POLYNOMIAL if shifted >> DEGREE else 0))
    taps = [
        [bit for bit, column in zip(bits, columns[DEGREE:], strict=True) if column >> n & 1]
        for n in range(2 * width)
    ]
    sums = [Cat(each).xor() for each in taps]
    return Cat(sums[:width]), Cat(sums[width:])


def by_bank(bits):
    """A bit per way, from one per bank."""
    return Cat(bits[0].replicate(WAYS), bits[1].replicate(WAYS), bits[2])


class Near(NamedTuple):
    """How the stores in C3 (``next``) and C2 (``second``) are related to the one that was in C3 in
    the cycle before; ``coming``: sets of ``next`` in the next cycle."""

    next: Signal
    second: Signal
    coming: Signal


class Tags(wiring.Component):
    """Finds the open entry of each store or gives it a new one: one store per cycle, any mix.

    Contract: at most one open entry per key. A tag stands in one of nine ways: four in each of two
    sets, which two hashes name, and one of the rank alone (``home``), so that no rank waits for a
    way for as long as another holds its entries. A store without a tag takes the next free entry if
    ``place`` allows it and a way is free, else it waits. Stores find a tag until two cycles after
    ``closing``.

    Latency: C0 hashed; C1 tags read; C2 compared; C3 hit, new or wait, told by ``found``. What the
    two stores in front write after a store has read its sets is compared with the store itself.

    Stalls: only in C3, for a way, for an entry, or for one cycle by ``pause``. The stages move
    together, also in the cycle in which that is found: a store that has to wait goes aside, and
    only while it stands there are those behind it held. So what holds them, and with it
    ``i.ready``, is a register, and no cycle is lost by it.

    Parameters: ``cfg``. Ports: ``i`` In stream(slim); ``mark`` In: stores accepted
    up to this cycle, this one included, become ``early`` if it covers them; ``early`` Out, one of
    them is still inside; ``found`` Out, C3; ``waits`` Out, of the store aside; ``asks`` Out,
    one-hot rank in C3, ``asks_again`` Out, it is that of the store in front; ``place``, ``at_max``
    In: the quota; ``free`` In, the next free entry; ``closing`` In; ``pause`` In; ``merged``,
    ``stalls`` Out strobes.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        self._log2_replicas = ceil_log2(cfg.replicas)
        t = self._types
        super().__init__(
            {
                "i": In(stream.Signature(t.slim)),
                "mark": In(t.mark),
                "early": Out(1),
                "found": Out(t.found),
                "waits": Out(t.waits),
                "asks": Out(cfg.ranks),
                "asks_again": Out(1),
                "place": In(1),
                "at_max": In(1),
                "free": In(t.index_width),
                "closing": In(t.closing),
                "pause": In(1),
                "merged": Out(1),
                "stalls": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        t = self._types
        m.submodules.table = table = TagTable(self._cfg)
        names = ("arrives", "reads", "compares", "decides", "aside")
        stages = [Signal(t.stage, name=name) for name in names]
        arrives, reads, compares, decides, aside = stages
        moves = Signal()
        shadow = Signal(PLACES)
        ways = Signal(PLACES)
        gives = Signal(PLACES)
        gave = Signal(PLACES)
        now = Signal(t.stage)  # the store in C3: the one aside, if there is one
        key = arrives.store.key
        low, high = hashes(key, ceil_log2(t.set_count))
        m.d.comb += [
            moves.eq(~aside.valid),
            self.i.ready.eq(moves),
            arrives.valid.eq(self.i.valid),
            arrives.store.eq(self.i.p),
            *(arrives.sets[n].eq(each) for n, each in enumerate((low, high, key.rank))),
            now.eq(Mux(aside.valid, aside, decides)),
        ]
        for before, after in zip(stages, stages[1:], strict=False):
            with m.If(moves):
                m.d.sync += [after.eq(before), after.early.eq(self._early(before))]
            with m.Else():
                m.d.sync += after.early.eq(self._early(after))
        m.d.sync += gave.eq(gives)
        m.d.comb += [
            self.early.eq(Cat(each.valid & each.early for each in stages[1:]).any()),
            table.read.eq(moves),
            table.reads.eq(reads.sets),
            table.compares.eq(compares.sets),
            table.key.eq(compares.store.key),
            # Written whether the way is given or not: it is free.
            table.opens.ways.eq(ways),
            table.opens.sets.eq(now.sets),
            table.opens.key.eq(now.store.key),
            table.opens.index.eq(self.free),
            table.gave.eq(gave),
            table.closing.eq(self.closing),
        ]
        near = self._near(m, moves, stages)
        closed = self._closed(m, decides, aside)
        hit, index = self._match(m, moves, stages, table, shadow, near, closed)
        of_aside = self._free_ways(m, moves, ways, table, shadow, near, gave, closed)
        wants = Signal()
        new = Signal()
        m.d.comb += [
            # Given after the store in C2 has read its tags.
            shadow.eq(by_bank(near.second.sets) & gave),
            wants.eq(now.valid & ~hit),
            gives.eq(Mux(wants & self.place & ~self.pause, ways, 0)),
            new.eq(mutant("packet_manager.opened_without_place", gives.any(), wants & ~self.pause)),
            self.stalls.eq(wants & ~new),
            self.merged.eq(hit),
            self.found.en.eq(hit | new),
            self.found.new.eq(new),
            self.found.early.eq(self._early(now)),
            self.found.index.eq(Mux(hit, index, self.free)),
            self.found.store.eq(now.store),
        ]
        m.d.sync += aside.valid.eq(self.stalls)
        self._place(m, now, ways)
        self._ask(m, moves, stages)
        self._wait(m, moves, decides, aside, ways, of_aside)
        return m

    def _early(self, stage):
        """A fence covers the store of a stage, that of this cycle included."""
        key = stage.store.key
        marked = self.mark.en & covers(self.mark, self._log2_replicas, key.plain, stage.store.dest)
        return stage.early | marked

    def _near(self, m, moves, stages):
        """Of the store in C3, and of the one in C2: whether its key, and which of its sets, are
        those of the store that was in C3 in the cycle before; and the sets of the one that will be
        in C3."""
        _, reads, compares, decides, _ = stages
        layout = data.StructLayout({"key": 1, "sets": BANKS})
        near = Near(
            next=Signal(layout, name="near_next"),
            second=Signal(layout, name="near_second"),
            coming=Signal(BANKS, name="near_coming"),
        )
        for each, behind in ((near.next, compares), (near.second, reads)):
            sets = Cat(a == b for a, b in zip(behind.sets, decides.sets, strict=True))
            with m.If(moves):
                m.d.sync += [
                    each.key.eq(behind.store.key.as_value() == decides.store.key.as_value()),
                    each.sets.eq(sets),
                ]
            if behind is compares:
                m.d.comb += near.coming.eq(Mux(moves, sets, near.next.sets))
        return near

    def _closed(self, m, decides, aside):
        """Ways of these two stores that were closed in the cycle before."""
        closing = Signal(self._types.closing)
        m.d.sync += closing.eq(self.closing)
        found = [Signal(PLACES, name=name) for name in ("closed", "closed_aside")]
        for closed, stage in zip(found, (decides, aside), strict=True):
            here = Cat(
                (closing.place.bank == n) & (closing.place.set == stage.sets[n])
                for n in range(BANKS)
            )
            way = Const(1, WAYS) << closing.place.way
            m.d.comb += closed.eq(
                Mux(closing.en, by_bank(here) & Cat(way[:WAYS], way[:WAYS], way[:1]), 0)
            )
        return found

    def _match(self, m, moves, stages, table, shadow, near, closed):
        """The store in C3 finds an open entry, and which."""
        _, _, _, decides, aside = stages
        equal = Signal(PLACES)
        equal_next = Signal(PLACES)
        some = Signal()
        matched = Signal()
        gave_some = Signal()
        gave_index = Signal(self._types.index_width)
        hit = Signal()
        index = [Signal.like(gave_index, name=f"index_{n}") for n in range(PLACES)]
        m.d.sync += [gave_some.eq(self.found.new), gave_index.eq(self.free)]
        m.d.comb += [
            # Their tags are not yet in use for who reads the table.
            equal_next.eq(
                table.equal
                | mutant("packet_manager.second_not_seen", Mux(near.second.key, shadow, 0), 0)
            ),
        ]
        with m.If(moves):
            m.d.sync += [
                equal.eq(equal_next),
                matched.eq(equal_next.any()),
                *(index[n].eq(Mux(shadow[n], gave_index, table.index[n])) for n in range(PLACES)),
            ]
        with m.Else():
            left = mutant("packet_manager.match_has_left", equal & ~closed[0], equal)
            m.d.sync += [equal.eq(left), matched.eq(left.any())]
        m.d.comb += [
            some.eq(mutant("packet_manager.twin_not_seen", near.next.key & gave_some, 0)),
            hit.eq(decides.valid & ~aside.valid & (matched | some)),
        ]
        return hit, select(equal, index) | Mux(some, gave_index, 0)

    def _free_ways(self, m, moves, ways, table, shadow, near, gave, closed):
        """Chooses ``ways``, one-hot, for the store in C3: in the emptier of its sets if possible.

        What is free is in registers that do not see what the store in front takes: a store leaves
        all that one could have taken. Returns the ways that the store aside could have.
        """
        view = data.StructLayout({"used": PLACES, "ways": PLACES, "full": BANKS - 1, "second": 1})
        own, of_aside, now = (Signal(view, name=name) for name in ("own", "of_aside", "now"))
        own_next = Signal(PLACES)
        aside_next = Signal(PLACES)
        avoided = Signal(PLACES)
        given = by_bank(near.next.sets) & gave
        m.d.comb += [
            own_next.eq(Mux(moves, table.used | shadow, own.used & ~closed[0])),
            aside_next.eq(Mux(moves, (own.used | given) & ~closed[0], of_aside.used & ~closed[1])),
            avoided.eq(mutant("packet_manager.way_given_twice", by_bank(near.coming) & ways, 0)),
            now.eq(Mux(moves, own, of_aside)),
        ]
        with m.If(moves):
            # Bank 1 is the emptier one.
            first, second = table.used[:WAYS], table.used[WAYS:HOME]
            emptier = ones(m, second, "used_second") < ones(m, first, "used_first")
            m.d.sync += [own.second.eq(emptier), of_aside.second.eq(own.second)]
        m.d.sync += [own.used.eq(own_next), of_aside.used.eq(aside_next)]
        for name, after, used in (
            ("own", own, own_next | avoided),
            ("of_aside", of_aside, aside_next),
        ):
            low, high = used[:WAYS], used[WAYS:HOME]
            free = [lowest_set(m, ~bits, f"{name}_free_{n}") for n, bits in enumerate((low, high))]
            m.d.sync += [
                after.full.eq(Cat(low.all(), high.all())),
                after.ways.eq(Cat(*free, ~used[HOME])),
            ]
        at_1 = Mux(now.second, ~now.full[1], now.full[0])
        low, high, home = now.ways[:WAYS], now.ways[WAYS:HOME], now.ways[HOME]
        m.d.comb += ways.eq(Cat(Mux(at_1, 0, low), Mux(at_1, high, 0), now.full.all() & home))
        return of_aside.ways

    def _place(self, m, now, ways):
        """Where the tag of a new entry stands."""
        place = self.found.place
        low, high, home = ways[:WAYS], ways[WAYS:HOME], ways[HOME]
        m.d.comb += [
            place.bank.eq(encode(Cat(low.any(), high.any(), home))),
            place.set.eq(select(Cat(low.any(), high.any(), home), list(now.sets))),
            place.way.eq(encode(low | high)),
        ]

    def _ask(self, m, moves, stages):
        """For which rank the store in C3 asks a place."""
        _, _, compares, decides, aside = stages
        asks = Signal(self._cfg.ranks)
        asks_aside = Signal(self._cfg.ranks)
        with m.If(moves):
            m.d.sync += [
                asks.eq(1 << compares.store.key.rank),
                asks_aside.eq(asks),
                self.asks_again.eq(compares.store.key.rank == decides.store.key.rank),
            ]
        m.d.comb += self.asks.eq(Mux(moves, asks, asks_aside))

    def _wait(self, m, moves, decides, aside, ways, of_aside):
        """What the store aside waits for; its rank's own way is whose."""
        t = self._types
        m.submodules.homes = homes = Ram(t.index_width, self._cfg.ranks, quick=True)
        m.d.comb += [
            homes.w_en.eq(ways[HOME]),
            homes.w_addr.eq(self.found.store.key.rank),
            homes.w_data.eq(self.free),
            homes.r_en.eq(moves),
            homes.r_addr.eq(decides.store.key.rank),
            self.waits.way.eq(aside.valid & ~of_aside.any()),
            self.waits.shared.eq(aside.valid & ~self.place & ~self.at_max),
            self.waits.own.eq(aside.valid & ~self.place & self.at_max),
            self.waits.rank.eq(aside.store.key.rank),
            self.waits.rival.eq(homes.r_data),
        ]
