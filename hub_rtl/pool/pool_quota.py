"""Who may take a pool entry: one reserved per rank, a maximum per rank, the rest shared."""

from amaranth import Module, Signal
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

    Latency: ``place`` is combinational on ``ask``; an allocation counts in the next cycle; ``can_accept`` is registered. At
    most one allocation (for the rank that asks) and one release per cycle.

    Parameters: ``cfg``, HubConfig.
    Ports: ``ask`` In rank; ``place`` Out, an entry may be allocated for it; ``at_max`` Out, the rank's own maximum forbids
    it; ``take`` In, allocate now for ``ask``; ``release`` In {en, index, rank}; ``max_entries`` In; ``can_accept`` Out ranks.

    Source: architecture 6.2 (reserve and maximum per peer instead of the paper's partition per peer).
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        super().__init__({
            "ask": In(cfg.rank_width), "place": Out(1), "at_max": Out(1), "take": In(1),
            "release": In(self._types.release),
            "max_entries": In(self._types.count_width), "can_accept": Out(cfg.ranks),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, width = self._cfg, self._types.count_width
        spare = cfg.pool_depth - cfg.ranks
        room = min(ON_THE_WAY, spare)
        shared = Signal(width, init=spare)                      # free entries that no reserve needs

        asks = decode(m, self.ask, cfg.ranks, name="asks")
        gives = decode(m, self.release.rank, cfg.ranks, self.release.en, name="gives")
        none, one, full = Signal(cfg.ranks), Signal(cfg.ranks), Signal(cfg.ranks)
        for r in range(cfg.ranks):
            count = Signal(width, name=f"count_{r}")
            up = asks[r] & self.take
            with m.If(up & ~gives[r]):
                m.d.sync += count.eq(count + 1)
            with m.If(~up & gives[r]):
                m.d.sync += count.eq(count - 1)
            m.d.comb += [none[r].eq(count == 0), one[r].eq(count == 1), full[r].eq(count >= self.max_entries)]
            m.d.sync += self.can_accept[r].eq(none[r] | ((count + room <= self.max_entries) & (shared >= room)))

        asker_none, swap = Signal(), Signal()
        m.d.comb += [
            asker_none.eq((asks & none).any()),
            self.at_max.eq((asks & full).any() & ~asker_none),
            self.place.eq(asker_none | (~self.at_max & (shared != 0))),
            swap.eq(self.take & (asks & gives).any()),          # one in, one out of the same rank
        ]
        # A rank's first entry comes out of its reserve and its last one goes back there: the shared part does not move.
        less, more = Signal(), Signal()
        m.d.comb += [
            less.eq(self.take & ~asker_none & ~swap),
            more.eq(self.release.en & ~(gives & one).any() & ~swap),
        ]
        with m.If(more & ~less):
            m.d.sync += shared.eq(shared + 1)
        with m.If(less & ~more):
            m.d.sync += shared.eq(shared - 1)
        return m
