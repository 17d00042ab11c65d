# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's quota (``hub_rtl/packet_manager/pool_quota.py``): the reserve
per rank and ``can_accept``."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.spec import Spec
from hub_rtl.packet_manager.pool_quota import ON_THE_WAY, PoolQuota
from hub_rtl.parts.onehot import tree_sum

from .parts import look_into

__all__ = ["AcceptedFindsPlace", "QuotaKeepsReserve"]


class _Quota(Spec):
    """The quota, with the entries of each rank counted from outside.

    The pool takes an entry only where there is place (``packet_manager.parts_fit_together``), and
    frees entries that are there (the same).
    """

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = self.dut = dut = PoolQuota(cfg)
        inner = look_into(dut)
        self.free_inputs(dut, but=("asks",))
        counts = [Signal(range(cfg.pool_depth + 2), name=f"entries_{r}") for r in range(cfg.ranks)]
        ask = self.ask = Signal(range(cfg.ranks), name="ask")
        self.free(ask)
        m.d.comb += dut.asks.eq(1 << ask)
        for r, count in enumerate(counts):
            m.d.sync += count.eq(
                count + (dut.take & (ask == r)) - (dut.release.en & (dut.release.rank == r))
            )
        self.of = lambda rank: Array(counts)[rank]
        used, self.free_entries, self.without = Signal(8), Signal(8), Signal(range(cfg.ranks + 1))
        m.d.comb += [
            used.eq(tree_sum(counts)),
            self.free_entries.eq(cfg.pool_depth - used),
            self.without.eq(tree_sum([count == 0 for count in counts])),
        ]
        self.suppose("ranks exist", (ask < cfg.ranks) & (dut.release.rank < cfg.ranks))
        self.suppose("takes only a place that there is", dut.place, when=dut.take)
        self.suppose(
            "frees an entry that there is", self.of(dut.release.rank) != 0, when=dut.release.en
        )
        # Helpers: what the books of the quota mean: all but the claim of the cycle before.
        booked = [count - late for count, late in zip(counts, inner.claims, strict=True)]
        for r, count in enumerate(counts):
            self.lemma(
                f"rank {r} counted",
                (getattr(inner, f"count_{r}") == booked[r]) & (count >= inner.claims[r]),
            )
        self.lemma("never more than the pool", used <= cfg.pool_depth)
        taken = (inner.claims & ~inner.none).any()
        self.lemma("shared part counted", inner.shared + self.without == self.free_entries + taken)
        self.lemma("who claimed", tree_sum(list(inner.claimer)) == 1, when=self.started)
        self.most = most = self.past(
            dut.policy.max_entries, "most"
        )  # a maximum counts from the next cycle on
        for name, flags in (
            ("none", [each == 0 for each in booked]),
            ("one", [each == 1 for each in booked]),
        ):
            self.lemma(f"ranks with {name}", getattr(inner, name) == Cat(flags))
        some = self.free_entries > self.without
        for name, places, maxed in (
            ("", inner.places, inner.maxed),
            (" after a claim", inner.places_after, inner.maxed_after),
        ):
            when = self.started & (inner.claimed if name else ~inner.claimed)
            self.lemma(
                f"places told{name}",
                places == Cat((count == 0) | ((count < most) & some) for count in counts),
                when=when,
            )
            self.lemma(
                f"maximum told{name}",
                maxed == Cat((count != 0) & (count >= most) for count in counts),
                when=when,
            )
        self.lemma(
            "places at first",
            inner.places.all() & ~inner.maxed.any() & ~inner.claimed,
            when=~self.started,
        )
        self.specify(m, dut)


class QuotaKeepsReserve(_Quota):
    """Free entries are never fewer than ranks without an entry; a rank without an entry always
    finds a place; one with entries finds one exactly if it has fewer than ``max_entries`` (of the
    cycle before) and an entry is free that no other rank's reserve needs; ``at_max`` tells which of
    the two was missing."""

    def specify(self, m, dut):
        mine = self.of(self.ask)
        self.always("reserve kept", self.free_entries >= self.without)
        self.always("a rank without entry finds a place", dut.place, when=mine == 0)
        self.always("at maximum told", dut.at_max == (mine >= self.most), when=mine != 0)
        self.always(
            "place exact",
            dut.place == ((mine < self.most) & (self.free_entries > self.without)),
            when=mine != 0,
        )
        self.reach("all entries in use", self.free_entries == 0)


class AcceptedFindsPlace(_Quota):
    """While ``can_accept`` of a rank is 1, and then for as many further new entries (of any rank)
    as there may be stores on their way and in the pool's stages, or as the shared part has if that
    is smaller, a new entry of this rank finds a place; with the reserved entry alone, one does.
    ``max_entries`` does not change meanwhile."""

    def specify(self, m, dut):
        cfg = self._cfg
        room = min(ON_THE_WAY, cfg.pool_depth - cfg.ranks)
        self.suppose(
            "maximum stands still",
            dut.policy.max_entries == self.past(dut.policy.max_entries),
            when=self.started,
        )
        rank = self.constant(range(cfg.ranks), "rank")
        can, had_none = (dut.can_accept >> rank)[0], self.past(self.of(rank) == 0, "had_none")
        mine, taken = self.ask == rank, self.past(dut.take, "taken")
        taken_mine = self.past(dut.take & mine, "taken_mine")
        # Takes of anyone since the cycle that the flag was computed in: it is a register. `left`:
        # those that may still come.
        left, before = Signal(range(room + 2)), Signal(range(room + 2))
        m.d.comb += left.eq(
            Mux(can & ~had_none, room - taken, Mux(can, Mux(taken_mine, 0, 1), before))
        )
        m.d.sync += before.eq(Mux((left != 0) & dut.take, left - 1, left))
        reserved, was_reserved = Signal(), Signal()
        m.d.comb += reserved.eq(Mux(can, had_none, was_reserved))
        m.d.sync += was_reserved.eq(reserved)
        self.always("accepted finds a place", dut.place, when=mine & (left != 0) & ~reserved)
        self.always(
            "accepted finds its reserve", dut.place, when=mine & (left != 0) & reserved & can
        )
        # Helper: why it does.
        self.lemma(
            "shared part is wide enough",
            (self.free_entries - self.without >= left)
            & (self.of(rank) + left <= dut.policy.max_entries),
            when=(left != 0) & ~reserved & self.started,
        )
        self.reach("flag falls and the last store comes", mine & dut.take & ~can & (left == 1))
