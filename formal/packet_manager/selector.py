# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's selector (``hub_rtl/packet_manager/selector.py``): what is
locked, in which order, with which credit."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.spec import Spec
from hub_rtl.contract.fields import ROWID
from hub_rtl.packet_manager.selector import Selector
from hub_rtl.parts.onehot import encode, tree_sum

from .parts import look_into

__all__ = [
    "BestLeavesFirst",
    "CreditsTakenOnce",
    "LocksAreAllowed",
    "OldWaitTheirTurn",
    "RanksTakeTurns",
]


class SelectorSpec(Spec):
    """The selector, with entries that come and go as in the pool: an entry keeps its rank, kind and
    RowID and grows no worse, as long as it is there and in the cycle after
    (``packet_manager.room_is_made``); it is eligible only while it is there and not locked
    (``packet_manager.parts_fit_together``). The emitter lets nothing be picked in the cycle after a
    lock (``packet_manager.packets_are_entries``)."""

    def build(self, m):
        cfg, depth = self._cfg, self._cfg.pool_depth
        m.submodules.dut = self.dut = dut = Selector(cfg)
        self.inner = look_into(dut)
        self.free_inputs(dut)
        self.just = self.past(dut.lock.en, "just")
        self.held = held = Signal(depth, name="held")  # entries that are locked
        m.d.sync += held.eq((held | dut.lock_onehot) & dut.valid)
        self.suppose(
            "eligible entries are there and not locked", (dut.eligible & (~dut.valid | held)) == 0
        )
        self.suppose("nothing picked after a lock", ~dut.go, when=self.just)
        there = self.past(dut.valid, "there")
        for n in range(depth):
            rank = dut.rank_onehot[n]
            self.suppose(
                f"entry {n} has a rank", (rank != 0) & ((rank & (rank - 1)) == 0), when=dut.valid[n]
            )
            self.suppose(
                f"entry {n} stays what it is",
                (rank == self.past(rank))
                & (dut.plain[n] == self.past(dut.plain[n]))
                & (dut.rowid[n] == self.past(dut.rowid[n])),
                when=there[n],
            )
            self.suppose(
                f"entry {n} grows no worse",
                (dut.old[n] | ~self.past(dut.old[n]))
                & (dut.full[n] | ~self.past(dut.full[n]))
                & (~dut.nop[n] | self.past(dut.nop[n])),
                when=there[n],
            )
        self.step = self.inner.step
        self.lemma("one selection at a time", (self.step & (self.step - 1)) == 0)  # a helper
        self.specify(m, dut)


class LocksAreAllowed(SelectorSpec):
    """An entry that is locked is there, was not locked before, has the rank that is told as taken,
    and this rank was not dead in the cycle before; a lock comes three cycles after a ``go``, with
    no other lock since; ``lock``, ``lock_onehot`` and ``take`` agree, and ``locking`` names no
    other entry that is there."""

    def specify(self, m, dut):
        lock, take = dut.lock, dut.take
        rank = Array(dut.rank_onehot)[lock.index]
        self.always(
            "locked entry is there and free",
            (dut.valid & ~self.held).bit_select(lock.index, 1),
            when=lock.en,
        )
        self.always("rank told", rank == (1 << take.rank), when=lock.en)
        self.always(
            "rank is alive", (rank & self.past(dut.peer_dead, "were_dead")) == 0, when=lock.en
        )
        self.always(
            "lock, one-hot and take agree",
            (dut.lock_onehot == Mux(lock.en, 1 << lock.index, 0)) & (take.en == lock.en),
        )
        self.always("locking is the lock, or gone", (dut.locking & dut.valid) == dut.lock_onehot)
        may = dut.go
        for n in range(3):
            may = self.past(may & ~lock.en, f"may_{n}")
        self.always("three cycles after a go", may, when=lock.en)
        self.reach(
            "two locks of one rank",
            lock.en & (self.held & Cat(each == rank for each in dut.rank_onehot)).any(),
        )


class CreditsTakenOnce(SelectorSpec):
    """A lock takes exactly one credit of its rank, and only one that is there, while ``dest_ready``
    shows a ``take`` at most two cycles later."""

    def specify(self, m, dut):
        rank, most = self.constant(range(self._cfg.ranks), "rank"), 3
        credits, returned = Signal(range(most + 1), init=1), Signal()
        self.free(returned)
        takes = dut.take.en & (dut.take.rank == rank)
        took = self.past(takes, "took")
        self.suppose("credits that exist come back", credits != most, when=returned)
        m.d.sync += credits.eq(credits + returned - takes)
        self.suppose(
            "ready only with a credit, or one just taken",
            (credits != 0) | took,
            when=dut.dest_ready.bit_select(rank, 1),
        )
        self.always("credit was there", credits != 0, when=takes)
        # Helper: a credit seen at the pick is still there at the lock.
        picked = self.inner.picked.bit_select(rank, 1)
        self.lemma("credit waits", credits != 0, when=self.step.any() & picked)
        self.lemma("one rank picked", (self.inner.picked & (self.inner.picked - 1)) == 0)


class BestLeavesFirst(SelectorSpec):
    """Nothing is locked while a better entry of its rank was eligible three cycles before (so much
    the less when it has been for four). Better is, the locked one as it is and the other as of
    then: old, then full, then not ``.nop``, then the kind that was not locked last, then the
    smaller RowID (0 for plain ones), then the smaller entry number."""

    def specify(self, m, dut):
        other = self.constant(dut.lock.index.shape(), "other")
        last_plain = Signal()
        with m.If(dut.lock.en):
            m.d.sync += last_plain.eq(dut.plain.bit_select(dut.lock.index, 1))
        was, stayed = (
            {name: getattr(dut, name) for name in ("old", "full", "nop", "eligible")},
            dut.valid,
        )
        valid = dut.valid
        for cycle in (1, 2, 3):
            was = {name: self.past(flags, f"{name}_{cycle}") for name, flags in was.items()}
            valid = self.past(valid, f"valid_{cycle}")
            stayed = stayed & valid
        rowid, rank_of = Array(dut.rowid), Array(dut.rank_onehot)

        def merit(index, old, full, nop):
            kind = dut.plain.bit_select(index, 1)
            return Cat(
                index,
                Mux(kind, 0, rowid[index]),
                kind == last_plain,
                nop.bit_select(index, 1),
                ~full.bit_select(index, 1),
                ~old.bit_select(index, 1),
            )

        mine, its, below = Signal(40), Signal(40), len(other) + ROWID
        m.d.comb += [
            mine.eq(merit(dut.lock.index, dut.old, dut.full, dut.nop)),
            its.eq(merit(other, was["old"], was["full"], was["nop"])),
        ]
        rival = (was["eligible"] & stayed).bit_select(other, 1) & (
            rank_of[other] == rank_of[dut.lock.index]
        )
        self.always("no better one waits", mine <= its, when=dut.lock.en & rival)
        self.lemma("kind locked last", self.inner.last_plain == last_plain)  # a helper
        differ = rowid[other] != rowid[dut.lock.index]
        self.reach(
            "a RowID decides", dut.lock.en & rival & differ & (mine >> below == its >> below)
        )


class OldWaitTheirTurn(SelectorSpec):
    """Once an old entry has been eligible for four cycles and no other of its rank becomes old any
    more (two sweeps after it did: ``packet_manager.old_in_batches``), fewer than ``pool_depth``
    others of its rank are locked before it. So, while its rank has credits, every entry leaves: it
    becomes old (``packet_manager.ages_true``), old entries are eligible
    (``packet_manager.room_is_made``), and each lock of its rank comes soon
    (``packet_manager.ranks_take_turns``)."""

    def specify(self, m, dut):
        depth = self._cfg.pool_depth
        entry = self.constant(range(depth), "entry")
        rank = Array(dut.rank_onehot)[entry]
        fresh_old = dut.old & ~self.past(dut.old & dut.valid, "were_old")
        self.suppose(
            "old entries are eligible until locked",
            (dut.old & dut.valid & ~self.held & ~dut.eligible) == 0,
        )
        was_calm, calm, calms = Signal(name="was_calm"), Signal(name="calm"), Signal(name="calms")
        self.free(calms)
        here = (dut.valid & dut.old & dut.eligible).bit_select(entry, 1)
        waits = here & ~dut.lock_onehot.bit_select(entry, 1)
        long = self.past(
            waits & self.past(waits & self.past(waits, "waits_1"), "waits_2"), "waits_3"
        )
        m.d.sync += was_calm.eq(waits & (was_calm | (calms & long)))
        m.d.comb += calm.eq(was_calm & here)
        of_rank = Cat(each == rank for each in dut.rank_onehot)
        self.suppose(
            "no other becomes old",
            (fresh_old & of_rank & dut.valid & ~(1 << entry)) == 0,
            when=calm,
        )
        self.suppose(
            "old entries stay old",
            (
                self.past(dut.old, "old_before")
                & ~dut.old
                & dut.valid
                & self.past(dut.valid, "valid_before")
            )
            == 0,
        )
        overtakes = dut.lock.en & of_rank.bit_select(dut.lock.index, 1) & (dut.lock.index != entry)
        overtaken = Signal(range(depth + 2))
        m.d.sync += overtaken.eq(Mux(calm, overtaken + overtakes, 0))
        self.always("overtaken less than a pool", overtaken < depth, when=calm)
        # Helpers: only old ones overtake, and they grow fewer.
        rivals = dut.valid & dut.old & ~self.held & of_rank & ~(1 << entry)
        self.lemma(
            "only old ones overtake", rivals.bit_select(dut.lock.index, 1), when=overtakes & calm
        )
        self.lemma(
            "rivals grow fewer",
            overtaken + tree_sum([rivals[n] for n in range(depth)]) < depth,
            when=calm,
        )
        self.reach("overtaken by all others", overtaken == depth - 1)


class RanksTakeTurns(SelectorSpec):
    """A rank with an eligible entry and a credit has one of its entries locked within 4 * ranks + 3
    cycles in which ``go`` allows a pick, whatever entries and credits the other ranks have: nobody
    blocks another peer."""

    def specify(self, m, dut):
        cfg, inner = self._cfg, self.inner
        ranks, rank = cfg.ranks, self.constant(range(cfg.ranks), "rank")
        mine = Cat(each.bit_select(rank, 1) for each in dut.rank_onehot)
        was_mine = self.past(dut.valid & mine & ~self.held, "was_mine")
        alive = ~(dut.peer_dead | self.past(dut.peer_dead, "were_dead")).bit_select(rank, 1)
        self.suppose(
            "entries of an alive rank stay until their lock",
            (was_mine & ~dut.valid) == 0,
            when=alive,
        )
        waits, waited = Signal(), Signal(range(4 * ranks + 8))
        m.d.comb += waits.eq(
            (dut.eligible & mine).any() & dut.dest_ready.bit_select(rank, 1) & alive
        )
        with m.If(~waits | (dut.take.en & (dut.take.rank == rank))):
            m.d.sync += waited.eq(0)
        with m.Elif(dut.go):
            m.d.sync += waited.eq(waited + 1)
        self.always("has its turn", waited <= 4 * ranks + 3)
        self.reach(
            "the others have no credit",
            (dut.dest_ready == (1 << rank)) & (waited == 3) & dut.eligible.all(),
        )
        # Helpers: ranks that are still served before this one bound how long it has waited.
        last, before, phase = (
            look_into(inner.ranks).last,
            Signal(range(ranks + 1)),
            Signal(range(4)),
        )
        distance = [[(r - n - 1) % ranks for n in range(ranks)] for r in range(ranks)]
        m.d.comb += [
            phase.eq(Mux(self.step[0], 3, Mux(self.step[1], 2, self.step[2]))),
            before.eq(Array(Array(each)[encode(last)] for each in distance)[rank]),
        ]
        picked = inner.picked.bit_select(rank, 1) & self.step.any()
        self.lemma("one rank was served last", last.any() & ((last & (last - 1)) == 0))
        self.lemma("picked is served last", inner.picked == last, when=self.step.any())
        self.lemma(
            "bounded by the turns before",
            waited + phase <= 4 + 4 * (ranks - 1 - before),
            when=~picked,
        )
        self.lemma("bounded while picked", waited + phase <= 4 * ranks + 4, when=picked)
