# SPDX-License-Identifier: Apache-2.0
"""Scanner of the packet pool: ages, merge timer, bounded waiting, entries of dead peers, the oldest
entry."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import decode, pool_types_of

__all__ = ["PoolTimer", "AGE_WIDTH"]

AGE_WIDTH = 16
LONGEST = (1 << AGE_WIDTH) - 1


class PoolTimer(wiring.Component):
    """Visits one pool entry per cycle, in turn, and keeps its age in a memory: no timer per entry.

    Contract: an entry's age, as known here, is at most its true age and lags by less than two
    sweeps (a sweep is ``pool_depth`` cycles); it saturates at 65535. At a visit an entry is called
    *expired* when its age reached ``merge_timeout``, and *old* when it reached ``age_limit`` and no
    entry of its rank was old at the start of the sweep. So entries become old in batches, and a
    batch leaves before the next one is named: nobody is overtaken for ever, in whatever order a
    batch leaves. Entries of a dead peer are sunk at their visit, unless locked.

    Latency: a visit takes two cycles (``scan`` in the first; ``visit``, ``sink`` in the second);
    every entry once per sweep. ``merge_timeout`` and ``age_limit`` count from the next cycle on;
    ``oldest`` shows a sweep two cycles after its last visit.

    Parameters: ``cfg``, HubConfig. Ports: ``valid``, ``locked``, ``fresh`` (not visited since
    allocation), ``old``, ``of_dead`` (its peer is dead) In, one bit per entry; ``scan`` Out, entry
    whose identity is wanted, ``scanned`` In, that identity a cycle later; ``policy`` In;
    ``busy`` In, no sinking in this cycle; ``visit`` Out {en, index, expired, old}; ``sinks`` Out,
    the entry that is sunk unless ``busy``, one bit per entry, ``sink`` Out {en, index, rank}, the
    same; ``oldest`` Out, once per sweep.

    Source: docs/interfaces.md section 4 (merge timer, bounded age, DRAIN of a dead peer, HANG
    page).
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t, depth = self._types, cfg.pool_depth
        super().__init__(
            {
                "valid": In(depth),
                "locked": In(depth),
                "fresh": In(depth),
                "old": In(depth),
                "scan": Out(t.entry),
                "scanned": In(t.info),
                "of_dead": In(depth),
                "policy": In(t.policy),
                "busy": In(1),
                "visit": Out(t.visit),
                "sinks": Out(depth),
                "sink": Out(t.release),
                "oldest": Out(t.oldest),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, depth = self._cfg, self._cfg.pool_depth
        m.submodules.ages = ages = Ram(AGE_WIDTH, depth, bypass=False)

        # One entry is visited, the next one is looked up. A sink that has to wait holds both (the
        # visit is then repeated and changes nothing, `first` keeps in mind that it is the entry's
        # first one): skipped, it could meet the end of a packet again in each sweep.
        index, ahead, run = (
            Signal(self._types.index_width),
            Signal(self._types.index_width),
            Signal(),
        )
        here = Signal(depth, init=1)  # one-hot of `index`
        m.d.comb += [
            run.eq(~(self.sinks.any() & self.busy)),
            self.scan.en.eq(run),
            self.scan.index.eq(ahead),
            ages.r_en.eq(run),
            ages.r_addr.eq(ahead),
        ]
        with m.If(run):
            m.d.sync += [
                ahead.eq(ahead + 1),
                index.eq(ahead),
                here.eq(1 << ahead),
            ]

        valid, fresh, old, age, aged = (
            Signal(),
            Signal(),
            Signal(),
            Signal(AGE_WIDTH),
            Signal(AGE_WIDTH + 1),
        )
        first = Signal()
        m.d.sync += first.eq(mutant("packet_manager.fresh_visited_twice", fresh & ~run, 0))
        m.d.comb += [
            valid.eq((self.valid & here).any()),
            fresh.eq((self.fresh & here).any() | first),
            old.eq(
                (
                    mutant("packet_manager.left_entries_stay_old", self.valid & self.old, self.old)
                    & ~self.locked
                    & here
                ).any()
            ),  # an entry that has left keeps its flag
            aged.eq(
                mutant(
                    "packet_manager.ages_one_too_fast", ages.r_data + depth, ages.r_data + depth + 1
                )
            ),
            age.eq(Mux(fresh, 0, Mux(aged[-1], LONGEST, aged[:AGE_WIDTH]))),
            ages.w_en.eq(valid & run),
            ages.w_addr.eq(index),
            ages.w_data.eq(age),
        ]

        def reached(limit, name):
            """``age >= limit``, without waiting for the addition."""
            before = Signal(
                AGE_WIDTH + 1, name=f"before_{name}"
            )  # stored age from which on the limit is reached
            now, none = Signal(AGE_WIDTH, name=name), Signal(name=f"no_{name}")
            m.d.sync += [
                now.eq(limit),
                before.eq(Mux(limit > depth, limit - depth, 0)),
                none.eq(limit == 0),
            ]
            return Mux(fresh, none, ages.r_data >= before)

        rank = decode(m, self.scanned.rank, cfg.ranks, name="rank_of_visited")
        batch_open, old_seen = Signal(cfg.ranks, init=-1), Signal(cfg.ranks)
        seen_now, wrap = Signal(cfg.ranks), Signal()
        m.d.comb += [
            self.visit.en.eq(valid),
            self.visit.index.eq(index),
            self.visit.expired.eq(reached(self.policy.merge_timeout, "merge_timeout")),
            self.visit.old.eq(
                reached(self.policy.age_limit, "age_limit") & (rank & batch_open).any()
            ),
            self.sinks.eq(
                mutant(
                    "packet_manager.locked_entry_sunk",
                    here & self.valid & ~self.locked,
                    here & self.valid,
                )
                & self.of_dead
            ),
            self.sink.en.eq(
                mutant(
                    "packet_manager.sinks_while_releasing",
                    self.sinks.any() & ~self.busy,
                    self.sinks.any(),
                )
            ),
            self.sink.index.eq(index),
            self.sink.rank.eq(self.scanned.rank),
            wrap.eq((index == depth - 1) & run),
            seen_now.eq(old_seen | Mux(old, rank, 0)),
        ]
        m.d.sync += old_seen.eq(Mux(wrap, 0, seen_now))
        with m.If(wrap):
            m.d.sync += batch_open.eq(~seen_now)

        # The oldest of a sweep, found one cycle behind the visits.
        seen, best, best_now = (
            Signal(self._types.oldest),
            Signal(self._types.oldest),
            Signal(self._types.oldest),
        )
        wrapped = Signal()
        m.d.sync += [
            wrapped.eq(wrap),
            seen.valid.eq(valid),
            seen.age.eq(age),
        ]
        m.d.sync += [
            seen[name].eq(self.scanned[name])
            for name in ("plain", "rank", "region", "epoch", "rowid")
        ]
        m.d.comb += best_now.eq(best)
        with m.If(
            seen.valid
            & (
                ~best.valid
                | (seen.age > mutant("packet_manager.oldest_off_by_one", best.age, best.age + 1))
            )
        ):
            m.d.comb += best_now.eq(seen)
        m.d.sync += best.eq(best_now)
        with m.If(wrapped):
            m.d.sync += [
                self.oldest.eq(best_now),
                best.valid.eq(0),
            ]
        return m
