# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's books: free entries, quota, credits, turns, fences."""

from amaranth import Array, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.packet_manager.fence import Fence
from hub_rtl.packet_manager.quota import FreeList, Quota
from hub_rtl.packet_manager.rank_lists import RankLists
from hub_rtl.packet_manager.ready_lists import ReadyLists
from hub_rtl.packet_manager.records import BUCKETS, LISTS
from hub_rtl.parts.onehot import tree_sum

__all__ = [
    "CreditsTakenOnce",
    "DrainingCovers",
    "EntriesGivenOnce",
    "NoListPassedOver",
    "ReserveKept",
]


class EntriesGivenOnce(Spec):
    """No entry is given to two blocks at a time, while only held ones are given back."""

    def build(self, m):
        depth = self._cfg.pool_depth
        m.submodules.dut = dut = FreeList(self._cfg)
        self.free_inputs(dut)
        entry = self.constant(range(depth), "entry")
        held = Signal()
        out = Signal(range(depth + 1))
        takes, gives = (
            dut.takes & (dut.free == entry),
            dut.gives.en & (dut.gives.index == entry),
        )
        m.d.sync += [
            held.eq((held | takes) & ~gives),
            out.eq(out + dut.takes - dut.gives.en),
        ]
        self.suppose("takes only what is free", out != depth, when=dut.takes)
        self.suppose("gives only what is held", held, when=gives)
        self.suppose("gives no more than is held", out != 0, when=dut.gives.en)
        self.always("entry was free", ~held, when=takes)


class ReserveKept(Spec):
    """Free entries are never fewer than ranks without one, and no rank has more than its maximum,
    while entries are taken only where there is place."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = Quota(cfg)
        self.free_inputs(dut, but=("asks", "asks_again", "policy"))
        most = self.constant(dut.policy.max_entries.shape(), "most")
        ask = Signal(range(cfg.ranks))
        before = Signal(range(cfg.ranks))
        self.free(ask)
        m.d.sync += before.eq(ask)
        m.d.comb += [
            dut.asks.eq(1 << ask),
            dut.asks_again.eq(ask == before),
            dut.policy.max_entries.eq(most),
        ]
        counts = [Signal(range(cfg.pool_depth + 2), name=f"entries_{r}") for r in range(cfg.ranks)]
        for r, count in enumerate(counts):
            m.d.sync += count.eq(
                count + (dut.takes & (ask == r)) - (dut.leaves.en & (dut.leaves.rank == r))
            )
        used = tree_sum(counts)
        without = tree_sum([count == 0 for count in counts])
        self.suppose("ranks exist", (ask < cfg.ranks) & (dut.leaves.rank < cfg.ranks))
        self.suppose("takes only a place that there is", dut.place, when=dut.takes)
        booked = self.past(dut.takes, "took") & (before == dut.leaves.rank)
        self.suppose(
            "frees an entry that has been there for a cycle",
            Array(counts)[dut.leaves.rank] > booked,
            when=dut.leaves.en,
        )
        self.always("reserve kept", used + without <= cfg.pool_depth)
        for r, count in enumerate(counts):
            self.always(f"maximum of rank {r} kept", (count <= 1) | (count <= most))


class CreditsTakenOnce(Spec):
    """A take is of a credit that is there, while ``dest_ready`` shows a take in the next cycle."""

    def build(self, m):
        m.submodules.dut = dut = ReadyLists(self._cfg)
        self.free_inputs(dut)
        rank, most = self.constant(range(self._cfg.ranks), "rank"), 3
        credits = Signal(range(most + 1), init=1)
        returned = Signal()
        self.free(returned)
        takes = dut.take.en & (dut.take.rank == rank)
        m.d.sync += credits.eq(credits + returned - takes)
        self.suppose("credits that exist come back", credits != most, when=returned)
        self.suppose("lists exist", dut.ready.list.number < LISTS, when=dut.ready.en)
        self.suppose(
            "ready only with a credit", credits != 0, when=dut.dest_ready.bit_select(rank, 1)
        )
        self.always("credit was there", credits != 0, when=takes)


class NoListPassedOver(Spec):
    """While a rank is old, a list with an entry that can be chosen is passed over less than 2 x
    BUCKETS times."""

    def build(self, m):
        m.submodules.dut = dut = RankLists()
        self.free_inputs(dut, but=("pops", "last", "old"))
        m.d.comb += dut.old.eq(1)
        which, most = self.constant(range(LISTS), "which"), 3
        inside = Signal(range(most + 1))
        popped = Signal(LISTS)
        last = Signal()
        self.free(last)
        fills, pops = dut.fills.bit_select(which, 1), dut.pops.bit_select(which, 1)
        m.d.sync += [
            popped.eq(Mux(dut.picked, 1 << dut.choice, 0)),
            inside.eq(inside + fills - pops),
        ]
        m.d.comb += [dut.pops.eq(popped), dut.last.eq(Mux(pops, inside == 1, last))]
        self.suppose("one list at a time", (dut.fills & (dut.fills - 1)) == 0)
        self.suppose("picked when there is a choice", dut.some, when=dut.picked)
        self.suppose("picked every second cycle", ~self.past(dut.picked, "just"), when=dut.picked)
        self.suppose("fits", inside != most, when=fills)
        self.always(
            "chosen list has an entry", inside != 0, when=dut.picked & (dut.choice == which)
        )
        passed = Signal(range(4 * BUCKETS))
        with m.If(inside == 0):
            m.d.sync += passed.eq(0)
        with m.Elif(dut.picked):
            m.d.sync += passed.eq(Mux(dut.choice == which, 0, passed + 1))
        self.always("had its turn", passed <= 2 * BUCKETS)


class DrainingCovers(Spec):
    """After a mark the rank of an entry drains until the entry has left or was found innocent,
    later than in the mark's own cycle."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = Fence(cfg)
        inner = observe(dut)
        self.free_inputs(dut, but=("entries",))
        entry = self.constant(range(cfg.pool_depth), "entry")
        here = Signal(cfg.pool_depth)
        ranks = Array(Signal(range(cfg.ranks), name=f"rank_{n}") for n in range(cfg.pool_depth))
        opened, leaves, innocent = dut.opened, dut.leaves, dut.innocent
        opens, goes = (Mux(each.en, 1 << each.index, 0) for each in (opened, leaves))
        m.d.sync += here.eq((here | opens) & ~goes)
        with m.If(opened.en):
            m.d.sync += ranks[opened.index].eq(opened.info.key.rank)
        self.suppose("opens what is free", ~here.bit_select(opened.index, 1), when=opened.en)
        self.suppose("what leaves is there", here.bit_select(leaves.index, 1), when=leaves.en)
        self.suppose("of its rank", leaves.rank == ranks[leaves.index], when=leaves.en)
        self.suppose(
            "innocent is one that is covered",
            here.bit_select(innocent.index, 1)
            & dut.covered.bit_select(innocent.index, 1)
            & (innocent.rank == ranks[innocent.index])
            & ~(leaves.en & (leaves.index == innocent.index)),
            when=innocent.en,
        )
        for r in range(cfg.ranks):
            count = tree_sum([here[n] & (ranks[n] == r) for n in range(cfg.pool_depth)])
            m.d.comb += dut.entries[r].eq(
                count + (opened.en & (opened.info.key.rank == r)) - (leaves.en & (leaves.rank == r))
            )
        covered = Signal()
        its = here.bit_select(entry, 1)
        with m.If(opened.en & (opened.index == entry)):
            m.d.sync += covered.eq(opened.early | dut.mark.en)
        with m.Elif(leaves.en & (leaves.index == entry)):
            m.d.sync += covered.eq(0)
        with m.Elif(dut.mark.en & its):
            m.d.sync += covered.eq(1)
        with m.Elif(innocent.en & (innocent.index == entry)):
            m.d.sync += covered.eq(0)
        for r in range(cfg.ranks):
            wanted = tree_sum(
                [here[n] & dut.covered[n] & (ranks[n] == r) for n in range(cfg.pool_depth)]
            )
            self.lemma(f"covered of rank {r} counted", inner.counts[r] == wanted + inner.less[r])
        self.lemma("covered known", dut.covered.bit_select(entry, 1) == covered, when=its)
        was = self.past(covered & its, "was")
        self.always(
            "its rank drains",
            dut.draining.bit_select(ranks[entry], 1),
            when=was & covered & its,
        )
