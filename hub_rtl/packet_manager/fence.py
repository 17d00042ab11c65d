# SPDX-License-Identifier: Apache-2.0
"""Which entries a fence waits for, and when all of them have left."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant

from .records import pool_types_of

__all__ = ["Fence"]

LEDGER_CYCLES = 3  # from o_sent until the ledger shows the bytes, at most
SENT_CYCLES = 1  # from a packet's last beat to o_sent, beside its register


class FenceObserve(NamedTuple):
    """What a proof may see of a :class:`Fence`."""

    counts: list  #: covered entries of each rank, and one that has left in the cycle before
    less: Signal  #: ranks for which there is such a one


class Fence(wiring.Component):
    """Marks what was accepted before, and tells until when it is on its way.

    Contract: a mark covers every entry; those that are none of its handle's are found ``innocent``
    one by one, and are covered no longer. Marks that meet (one comes before the other's entries
    have left) are one mark: of their handle if it is the same, else of all. ``draining[r]`` is 1
    from the cycle after a mark until nothing covered of rank r is left in a stage, an entry, at the
    output or on its way into the ledger. In the cycles between a packet's last beat and the ledger
    a mark covers it whatever its handle.

    Parameters: ``cfg``. Ports: ``mark`` In; ``mark_now`` Out, the mark that
    entries are judged by; ``covered`` Out, a bit per entry; ``opened`` In; ``entries`` In, of each
    rank, as of the next cycle; ``innocent`` In; ``leaves`` In; ``early`` In, a covered store has no
    entry yet; ``tail`` In; ``draining`` Out ranks.
    """

    observe: FenceObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "mark": In(t.mark),
                "mark_now": Out(t.mark),
                "covered": Out(cfg.pool_depth),
                "opened": In(t.opened),
                "entries": In(t.count_width).array(cfg.ranks),
                "innocent": In(t.innocent),
                "leaves": In(t.leaves),
                "early": In(1),
                "tail": In(t.tail),
                "draining": Out(cfg.ranks),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        mark, covered = self.mark, self.covered
        leaves_covered = Signal()
        just_marked = Signal()
        left = Signal(cfg.ranks)
        less = Signal(cfg.ranks)
        counts = [Signal(t.count_width, name=f"covered_{r}") for r in range(cfg.ranks)]
        self.observe = FenceObserve(counts, less)
        late = self._tail(m, leaves_covered)
        drains = Signal(cfg.ranks)
        m.d.comb += leaves_covered.eq(covered.bit_select(self.leaves.index, 1))
        m.d.sync += [
            just_marked.eq(mark.en),
            # Counted a cycle later; a mark in that cycle has counted without it.
            less.eq(Mux(self.leaves.en & leaves_covered & ~mark.en, 1 << self.leaves.rank, 0)),
            drains.eq(left | late | self.early.replicate(cfg.ranks)),
        ]
        # In the cycle after a mark nobody has been looked through yet.
        m.d.comb += self.draining.eq(drains | just_marked.replicate(cfg.ranks))
        with m.If(self.innocent.en):
            m.d.sync += covered.bit_select(self.innocent.index, 1).eq(0)
        with m.If(mark.en):
            m.d.sync += covered.eq(-1)
            with m.If(self.draining.any()):
                other = mark.all | (mark.handle != self.mark_now.handle)
                m.d.sync += self.mark_now.all.eq(self.mark_now.all | other)
            with m.Else():
                m.d.sync += self.mark_now.eq(mark)
        with m.If(self.opened.en):
            m.d.sync += covered.bit_select(self.opened.index, 1).eq(
                mutant(
                    "packet_manager.opened_at_mark",
                    self.opened.early | mark.en,
                    self.opened.early,
                )
            )
        for r in range(cfg.ranks):
            count = counts[r]
            early = mutant("packet_manager.early_not_counted", self.opened.early, 0)
            more = self.opened.en & early & (self.opened.info.key.rank == r)
            innocent = self.innocent.en & (self.innocent.rank == r)
            m.d.comb += left[r].eq(count.any())
            m.d.sync += count.eq(Mux(mark.en, self.entries[r], count + more - less[r] - innocent))
        return m

    def _tail(self, m, leaves_covered):
        """Ranks of covered packets whose last beat waits, or whose bytes the ledger does not show
        yet."""
        cfg, tail, mark = self._cfg, self.tail, self.mark.en
        kept = Signal()
        now = Signal()
        ranks = 0
        left = self.leaves.en & ~self.leaves.sunk
        m.d.comb += now.eq(
            mutant("packet_manager.mark_misses_tail", mark, 0) | Mux(left, leaves_covered, kept)
        )
        m.d.sync += kept.eq(now)
        stage = data.StructLayout({"en": 1, "covered": 1, "rank": cfg.rank_width})
        ranks = Mux(tail.waits & kept, 1 << tail.rank, 0)
        before = Signal(stage)
        m.d.comb += [before.en.eq(tail.taken), before.covered.eq(now), before.rank.eq(tail.rank)]
        late = 0
        for n in range(SENT_CYCLES + LEDGER_CYCLES):
            after = Signal(stage, name=f"ledger_{n}")
            m.d.sync += [after.eq(before), after.covered.eq(before.covered | mark)]
            late = late | Mux(after.en & after.covered, 1 << after.rank, 0)
            before = after
        return ranks | mutant("packet_manager.drained_before_ledger", late, 0)
