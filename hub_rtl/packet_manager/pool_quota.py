# SPDX-License-Identifier: Apache-2.0
"""Who may take a pool entry: one reserved per rank, a maximum per rank, the rest shared."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant

from .records import decode, pool_types_of

__all__ = ["PoolQuota", "ON_THE_WAY"]

#: Stores that may be between the crossbar and the pool when ``can_accept`` falls, and those in the
#: pool's own stages that it does not show yet.
ON_THE_WAY = 8 + 3


class PoolQuota(wiring.Component):
    """Counts pool entries per rank and decides whether one more is allowed.

    Contract: at any time ``free >= ranks without an entry``, so a rank without an entry always gets
    one; a rank with entries gets another while it has fewer than ``max_entries`` (0 counts as 1)
    and an entry is free that no other rank's reserve needs. ``can_accept[r]`` promises a place for
    ON_THE_WAY new entries (or as many as the shared part has, if that is smaller), or, when shared
    entries run short, the reserved entry of a rank that has none.

    Latency: ``place`` is combinational on ``asks``; an allocation counts in the next cycle (the
    books follow one cycle later, answers are prepared for both outcomes); ``can_accept`` is
    registered. At most one allocation (for the rank that asks) and one release per cycle.

    Parameters: ``cfg``, HubConfig. Ports: ``asks`` In, one-hot rank; ``place`` Out, an entry may be
    allocated for it; ``at_max`` Out, the rank's own maximum forbids it; ``take`` In, allocate now
    for it; ``release`` In {en, index, rank}; ``policy`` In (counts from the next cycle on);
    ``can_accept`` Out ranks.

    Source: docs/interfaces.md section 4 (reserve and maximum per peer instead of the paper's
    partition).
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        super().__init__(
            {
                "asks": In(cfg.ranks),
                "place": Out(1),
                "at_max": Out(1),
                "take": In(1),
                "release": In(self._types.release),
                "policy": In(self._types.policy),
                "can_accept": Out(cfg.ranks),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, width = self._cfg, self._types.count_width
        spare = cfg.pool_depth - cfg.ranks
        room = min(ON_THE_WAY, spare)
        shared = Signal(width, init=spare)  # free entries that no reserve needs

        # A claim is known late in its cycle, so it is written into the books one cycle later, with
        # a release of that cycle.
        asks, gives = (
            self.asks,
            decode(m, self.release.rank, cfg.ranks, self.release.en, name="gives"),
        )
        claimed, claimer, fresh = Signal(), Signal(cfg.ranks), Signal()
        claims, swaps, less, more, change = (
            Signal(cfg.ranks),
            Signal(),
            Signal(),
            Signal(),
            Signal(2),
        )
        none, one = Signal(cfg.ranks, init=-1), Signal(cfg.ranks)
        m.d.sync += [
            claimed.eq(self.take),
            claimer.eq(asks),
        ]
        # A rank's first entry comes out of its reserve and its last one goes back there: the shared
        # part does not move.
        m.d.comb += [
            claims.eq(Mux(claimed, claimer, 0)),
            fresh.eq((claimer & none).any()),
            swaps.eq((claims & gives).any()),  # one in, one out of the same rank
            less.eq(
                mutant(
                    "packet_manager.place_taken_and_given",
                    claimed & ~fresh & ~swaps,
                    claimed & ~fresh,
                )
            ),
            more.eq(self.release.en & ~(gives & one).any() & ~swaps),
            change.eq(Mux(less, Mux(more, 0, 2), Mux(more, 1, 0))),
        ]
        m.d.sync += shared.eq(_choice(change, (shared, shared + 1, shared - 1)))

        # The books as they are in the next cycle, but for a claim of this one, and what is asked of
        # them.
        none_next, full_next, full_after = Signal(cfg.ranks), Signal(cfg.ranks), Signal(cfg.ranks)
        any_next, any_after, enough = Signal(), Signal(), Signal()
        m.d.comb += [
            any_next.eq(_choice(change, (shared != 0, 1, shared != 1))),
            any_after.eq(
                Mux(
                    (asks & none_next).any(),
                    any_next,
                    _choice(change, (shared > 1, shared != 0, shared > 2)),
                )
            ),
            enough.eq(Mux(claimed & ~fresh, shared > room, shared >= room)),
        ]
        places, places_after = (
            Signal(cfg.ranks, init=-1),
            Signal(cfg.ranks),
        )  # without and with a claim in the cycle before
        maxed, maxed_after = Signal(cfg.ranks), Signal(cfg.ranks)
        for r in range(cfg.ranks):
            count = Signal(width, name=f"count_{r}")
            after = (count, count + 1, count - 1)  # nothing, one more, one less
            way = Signal(2, name=f"change_{r}")
            m.d.comb += [
                way.eq(Mux(claims[r], Mux(gives[r], 0, 1), Mux(gives[r], 2, 0))),
                none_next[r].eq(_choice(way, (none[r], 0, one[r]))),
                full_next[r].eq(_choice(way, [each >= self.policy.max_entries for each in after])),
                full_after[r].eq(
                    _choice(way, [each + 1 >= self.policy.max_entries for each in after])
                ),
            ]
            m.d.sync += [
                count.eq(_choice(way, after)),
                none[r].eq(none_next[r]),
                one[r].eq(_choice(way, [count == 1, count == 0, count == 2])),
                places[r].eq(none_next[r] | (~full_next[r] & any_next)),
                maxed[r].eq(full_next[r] & ~none_next[r]),
                places_after[r].eq(
                    Mux(
                        asks[r],
                        ~full_after[r] & any_after,
                        none_next[r] | (~full_next[r] & any_after),
                    )
                ),
                maxed_after[r].eq(Mux(asks[r], full_after[r], full_next[r] & ~none_next[r])),
                self.can_accept[r].eq(
                    (none[r] & ~claims[r])
                    | (
                        enough
                        & Mux(
                            claims[r],
                            count + room < self.policy.max_entries,
                            mutant(
                                "packet_manager.one_entry_over_maximum",
                                count + room <= self.policy.max_entries,
                                count + room <= self.policy.max_entries + 1,
                            ),
                        )
                    )
                ),
            ]
        m.d.comb += [
            self.place.eq(
                (
                    asks
                    & mutant(
                        "packet_manager.claim_not_seen", Mux(claimed, places_after, places), places
                    )
                ).any()
            ),
            self.at_max.eq((asks & Mux(claimed, maxed_after, maxed)).any()),
        ]
        return m


def _choice(number, values):
    """The value of this number, of three."""
    return Mux(number[1], values[2], Mux(number[0], values[1], values[0]))
