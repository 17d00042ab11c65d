# SPDX-License-Identifier: Apache-2.0
"""Finds the open entry of each store, or a place for a new one's tag."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, ones, select
from hub_rtl.parts.ram import Ram

from .records import BANKS, HOME, PLACES, WAYS, covers, wide_types_of
from .tag_table import TagTable

__all__ = ["Tags"]


def fold(key, width, turn):
    """A hash of ``key``: its slices of ``width`` bits, each turned by ``turn`` more, XORed."""
    bits = Cat(key.as_value(), Const(0, width))
    total = Const(0, width)
    for number, low in enumerate(range(0, len(key.as_value()), width)):
        part, by = bits[low : low + width], (number * turn) % width
        total = total ^ Cat(part[by:], part[:by])
    return total


def by_bank(bits):
    """A bit per way, from one per bank."""
    return Cat(bits[0].replicate(WAYS), bits[1].replicate(WAYS), bits[2])


class Tags(wiring.Component):
    """Finds the open entry of each store or gives it a new one: one store per cycle, any mix.

    Contract: at most one open entry per key. A tag stands in one of nine ways: four in each of two
    sets, which two hashes name, and one of the rank alone (``home``), so that no rank waits for a
    way for as long as another holds its entries. A store without a tag takes the next free entry if
    ``place`` allows it and a way is free, else it waits. Stores find a tag until two cycles after
    ``closing``.

    Latency: C0 hashed; C1 tags read; C2 compared; C3 hit, new or wait, told by ``found``. The
    stages move together. What the two stores in front write after a store has read its sets is
    compared with the store itself.

    Stalls: only in C3, for a way, for an entry, or for one cycle by ``pause``; ``i.ready`` is a
    register, a store accepted meanwhile goes to a spare one.

    Parameters: ``cfg``, ``slice_bytes``. Ports: ``i`` In stream(slim); ``mark`` In: stores accepted
    up to this cycle, this one included, become ``early`` if it covers them; ``early`` Out, one of
    them is still inside; ``found`` Out, C3; ``waits`` Out, from its second cycle on; ``asks`` Out,
    one-hot rank in C3, ``asks_again`` Out, it is that of the store in front; ``place``, ``at_max``
    In: the quota; ``free`` In, the next free entry; ``closing`` In; ``pause`` In; ``merged``,
    ``stalls`` Out strobes.
    """

    def __init__(self, cfg, slice_bytes):
        self._cfg, self._types = cfg, wide_types_of(cfg, slice_bytes)
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
        m.submodules.table = table = TagTable(self._cfg, t.slice_bytes)
        moves, gives, gave_index = Signal(), Signal(PLACES), Signal(t.index_width)
        reads, compares, decides = stages = [
            Signal(t.stage, name=name) for name in ("reads", "compares", "decides")
        ]
        first, spare_early = self._accept(m, moves)
        for before, after in zip((first, *stages), stages, strict=False):
            early = before.early if before is first else self._early(before)
            with m.If(moves):
                m.d.sync += [after.eq(before), after.early.eq(early)]
            with m.Else():
                m.d.sync += after.early.eq(self._early(after))
        m.d.comb += [
            self.early.eq(Cat(each.valid & each.early for each in stages).any() | spare_early),
            table.read.eq(moves),
            table.reads.eq(reads.sets),
            table.compares.eq(compares.sets),
            table.key.eq(compares.store.key),
            table.opens.ways.eq(gives),
            table.opens.sets.eq(decides.sets),
            table.opens.key.eq(decides.store.key),
            table.opens.index.eq(self.free),
            table.closing.eq(self.closing),
        ]
        with m.If(moves):
            m.d.sync += [
                gave_index.eq(self.free),
                self.asks.eq(1 << compares.store.key.rank),
                self.asks_again.eq(compares.store.key.rank == decides.store.key.rank),
            ]
        hit, index = self._match(m, moves, stages, table, gives, gave_index)
        ways, full = self._free_ways(m, moves, stages, table, gives)
        can, new, valid = Signal(), Signal(), decides.valid
        m.d.comb += [
            can.eq(self.place & ~full & ~self.pause),
            new.eq(valid & ~hit & can),
            moves.eq(~valid | hit | can),
            gives.eq(Mux(new, ways, 0)),
            self.merged.eq(valid & hit),
            self.stalls.eq(~moves),
            self.found.en.eq(valid & moves),
            self.found.new.eq(new),
            self.found.early.eq(self._early(decides)),
            self.found.index.eq(Mux(hit, index, self.free)),
            self.found.store.eq(decides.store),
            self.found.place.bank.eq(
                encode(Cat(ways[:WAYS].any(), ways[WAYS:HOME].any(), ways[HOME]))
            ),
            self.found.place.set.eq(
                Mux(
                    ways[HOME],
                    decides.sets[2],
                    Mux(ways[WAYS:HOME].any(), decides.sets[1], decides.sets[0]),
                )
            ),
            self.found.place.way.eq(encode(ways[:WAYS] | ways[WAYS:HOME])),
        ]
        self._wait(m, moves, decides, gives, hit, full)
        return m

    def _early(self, stage):
        """A fence covers the store of a stage, that of this cycle included."""
        key = stage.store.key
        marked = self.mark.en & covers(self.mark, self._log2_replicas, key.plain, stage.store.dest)
        return stage.early | marked

    def _accept(self, m, moves):
        """The store that comes next, and whether the spare one is early."""
        t = self._types
        spare, arrives, first = (Signal(t.stage, name=n) for n in ("spare", "arrives", "first"))
        hashes = [fold(first.store.key, ceil_log2(t.set_count), turn) for turn in range(2)]
        m.d.comb += [
            self.i.ready.eq(~spare.valid),
            arrives.valid.eq(self.i.valid & self.i.ready),
            arrives.store.eq(self.i.p),
            first.valid.eq(spare.valid | self.i.valid),
            first.store.eq(Mux(spare.valid, spare.store, self.i.p)),
            first.early.eq(Mux(spare.valid, self._early(spare), self._early(arrives))),
            *(first.sets[n].eq(each) for n, each in enumerate((*hashes, first.store.key.rank))),
        ]
        with m.If(moves):
            m.d.sync += spare.valid.eq(0)
        with m.Elif(arrives.valid):
            m.d.sync += [spare.eq(arrives), spare.early.eq(self._early(arrives))]
        with m.Else():
            m.d.sync += spare.early.eq(self._early(spare))
        return first, spare.valid & spare.early

    def _match(self, m, moves, stages, table, gives, gave_index):
        """The store in C3 finds an open entry, and which."""
        reads, compares, decides = stages
        # With regard to the store in C3 when it had the stage behind it: that one took a new entry,
        # and has the same key. With two stages between: the tags it read do not show these ways.
        twin, second, matched = Signal(), Signal(), Signal()
        shadow, equal, equal_next = Signal(PLACES), Signal(PLACES), Signal(PLACES)
        index = [Signal(self._types.index_width, name=f"index_{n}") for n in range(PLACES)]
        second_index, second_hit, second_now = Signal.like(gave_index), Signal(), Signal()
        new = gives.any()

        def same(a, b):
            return a.store.key.as_value() == b.store.key.as_value()

        same_sets = by_bank([a == b for a, b in zip(reads.sets, decides.sets, strict=True)])
        m.d.comb += [
            equal_next.eq(
                mutant("wide_packet_manager.stale_tag_found", table.equal & ~shadow, table.equal)
            ),
            # The store between may have waited, and that entry may have left.
            second_now.eq(
                mutant("wide_packet_manager.second_not_seen", second, 0)
                & mutant("wide_packet_manager.second_has_left", (table.used & shadow).any(), 1)
            ),
        ]
        with m.If(moves):
            m.d.sync += [
                twin.eq(
                    mutant("wide_packet_manager.twin_not_seen", new, 0) & same(compares, decides)
                ),
                second.eq(new & same(reads, decides)),
                shadow.eq(same_sets & gives),
                second_hit.eq(second_now),
                second_index.eq(gave_index),
                equal.eq(equal_next),
                matched.eq(equal_next.any() | second_now),
                *(index[n].eq(table.index[n]) for n in range(PLACES)),
            ]
        others = Mux(twin, gave_index, 0) | Mux(second_hit, second_index, 0)
        return matched | twin, select(equal, index) | others

    def _free_ways(self, m, moves, stages, table, gives):
        """One-hot way for the store in C3, in the emptier of its sets if possible; none is free."""
        _, compares, decides = stages
        used, used_now, gave = Signal(PLACES), Signal(PLACES), Signal(PLACES)
        near, second = Signal(BANKS), Signal()  # second: bank 1 is the emptier one
        closing, closed = Signal(self._types.closing), Signal(PLACES)
        m.d.sync += closing.eq(self.closing)
        for bank in range(BANKS):
            way = (1 << closing.place.way)[: WAYS if bank < 2 else 1]
            here = (closing.place.bank == bank) & (closing.place.set == decides.sets[bank])
            low = bank * WAYS
            m.d.comb += closed[low : low + len(way)].eq(Mux(closing.en & here, way, 0))
        with m.If(moves):
            same_sets = [a == b for a, b in zip(compares.sets, decides.sets, strict=True)]
            m.d.sync += [
                used.eq(table.used),
                gave.eq(gives),
                near.eq(Cat(same_sets)),
                second.eq(ones(table.used[WAYS:HOME]) < ones(table.used[:WAYS])),
            ]
        with m.Else():
            m.d.sync += [used.eq(used_now & ~closed), near.eq(0)]
        free = [lowest_set(m, ~used_now[n * WAYS : (n + 1) * WAYS], f"free_{n}") for n in range(2)]
        full = [used_now[n * WAYS : (n + 1) * WAYS].all() for n in range(2)]
        at_1, at_home = Signal(), Signal()
        m.d.comb += [
            used_now.eq(
                used | mutant("wide_packet_manager.way_given_twice", by_bank(near) & gave, 0)
            ),
            at_home.eq(full[0] & full[1]),
            at_1.eq(Mux(second, ~full[1], full[0])),
        ]
        ways = Cat(Mux(at_1, 0, free[0]), Mux(at_1, free[1], 0), at_home & ~used_now[HOME])
        return ways, at_home & used_now[HOME]

    def _wait(self, m, moves, decides, gives, hit, full):
        """What the store in C3 waits for; its rank's own way is whose."""
        t, waited = self._types, Signal()
        m.submodules.homes = homes = Ram(t.index_width, self._cfg.ranks, quick=True)
        m.d.sync += waited.eq(~moves)
        misses = decides.valid & ~hit & waited
        m.d.comb += [
            homes.w_en.eq(gives[HOME]),
            homes.w_addr.eq(decides.store.key.rank),
            homes.w_data.eq(self.free),
            homes.r_en.eq(1),
            homes.r_addr.eq(decides.store.key.rank),
            self.waits.way.eq(misses & full),
            self.waits.shared.eq(misses & ~self.place & ~self.at_max),
            self.waits.own.eq(misses & ~self.place & self.at_max),
            self.waits.rank.eq(decides.store.key.rank),
            self.waits.rival.eq(homes.r_data),
        ]
