"""Who may take a pool entry: one reserved per rank, a maximum per rank, the rest shared."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .pool_types import decode, pool_types_of

__all__ = ["PoolQuota", "ON_THE_WAY"]

#: Stores that may be between the crossbar and the pool when ``can_accept`` falls, and those in the pool's own stages that it
#: does not show yet.
ON_THE_WAY = 8 + 3


class PoolQuota(wiring.Component):
    """Counts pool entries per rank and decides whether one more is allowed.

    Contract: at any time ``free >= ranks without an entry``, so a rank without an entry always gets one; a rank with entries
    gets another while it has fewer than ``max_entries`` (0 counts as 1) and an entry is free that no other rank's reserve
    needs. ``can_accept[r]`` promises a place for ON_THE_WAY new entries (or as many as the shared part has, if that is
    smaller), or, when shared entries run short, the reserved entry of a rank that has none.

    Latency: ``place`` is combinational on ``asks``; an allocation counts in the next cycle; ``can_accept`` is registered. At
    most one allocation (for the rank that asks) and one release per cycle.

    Parameters: ``cfg``, HubConfig.
    Ports: ``asks`` In, one-hot rank; ``place`` Out, an entry may be allocated for it; ``at_max`` Out, the rank's own maximum
    forbids it; ``take`` In, allocate now for it; ``release`` In {en, index, rank}; ``max_entries`` In (counts from the next
    cycle on); ``can_accept`` Out ranks.

    Source: architecture 6.2 (reserve and maximum per peer instead of the paper's partition per peer).
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        super().__init__({
            "asks": In(cfg.ranks), "place": Out(1), "at_max": Out(1), "take": In(1),
            "release": In(self._types.release),
            "max_entries": In(self._types.count_width), "can_accept": Out(cfg.ranks),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, width = self._cfg, self._types.count_width
        spare = cfg.pool_depth - cfg.ranks
        room = min(ON_THE_WAY, spare)
        shared = Signal(width, init=spare)                      # free entries that no reserve needs

        asks, gives = self.asks, decode(m, self.release.rank, cfg.ranks, self.release.en, name="gives")
        none, one, full = Signal(cfg.ranks, init=-1), Signal(cfg.ranks), Signal(cfg.ranks)
        for r in range(cfg.ranks):
            count = Signal(width, name=f"count_{r}")
            after = (count, count + 1, count - 1)               # nothing, one more, one less
            change = Signal(2, name=f"change_{r}")
            m.d.comb += change.eq(Mux(asks[r] & self.take, Mux(gives[r], 0, 1), Mux(gives[r], 2, 0)))
            # What is asked of the next count, for each of its three values at once.
            m.d.sync += [count.eq(_choice(change, after)),
                         full[r].eq(_choice(change, [each >= self.max_entries for each in after])),
                         none[r].eq(_choice(change, [count == 0, 0, count == 1])),
                         one[r].eq(_choice(change, [count == 1, count == 0, count == 2])),
                         self.can_accept[r].eq(none[r] | ((count + room <= self.max_entries) & (shared >= room)))]

        asker_none, swap, any_shared = Signal(), Signal(), Signal(init=spare > 0)
        m.d.comb += [
            asker_none.eq((asks & none).any()),
            self.at_max.eq((asks & full).any() & ~asker_none),
            self.place.eq((asks & (none | (~full & any_shared.replicate(cfg.ranks)))).any()),
            swap.eq(self.take & (asks & gives).any()),          # one in, one out of the same rank
        ]
        # A rank's first entry comes out of its reserve and its last one goes back there: the shared part does not move.
        less, more, change = Signal(), Signal(), Signal(2)
        m.d.comb += [
            less.eq(self.take & ~asker_none & ~swap),
            more.eq(self.release.en & ~(gives & one).any() & ~swap),
            change.eq(Mux(less, Mux(more, 0, 2), Mux(more, 1, 0))),
        ]
        m.d.sync += [shared.eq(_choice(change, (shared, shared + 1, shared - 1))),
                     any_shared.eq(_choice(change, (shared != 0, 1, shared != 1)))]
        return m


def _choice(number, values):
    """The value of this number, of three."""
    return Mux(number[1], values[2], Mux(number[0], values[1], values[0]))
