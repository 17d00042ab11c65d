"""Scanner of the packet pool: ages, merge timer, bounded waiting, entries of dead peers, the oldest entry."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..lib.ram import Ram
from .pool_types import decode, pool_types_of

__all__ = ["PoolTimer", "AGE_WIDTH"]

AGE_WIDTH = 16


class PoolTimer(wiring.Component):
    """Visits one pool entry per cycle, in turn, and keeps its age in a memory: no timer per entry.

    Contract: an entry's age, as known here, is at most its true age and lags by less than two sweeps (a sweep is
    ``pool_depth`` cycles); it saturates at 65535. At a visit an entry is called *expired* when its age reached
    ``merge_timeout``, and *old* when it reached ``age_limit`` and no entry of its rank was old at the start of the sweep. So
    entries become old in batches, and a batch leaves before the next one is named: nobody is overtaken for ever, in whatever
    order a batch leaves. Entries of a dead peer are sunk at their visit, unless locked.

    Latency: a visit takes two cycles (``scan`` in the first; ``visit``, ``sink`` in the second); every entry once per sweep.

    Parameters: ``cfg``, HubConfig.
    Ports: ``valid``, ``locked``, ``fresh`` (not visited since allocation), ``old`` In, one bit per entry; ``scan`` Out, entry
    whose identity is wanted, ``scanned`` In, that identity a cycle later; ``peer_dead`` In ranks; ``merge_timeout``,
    ``age_limit`` In, cycles; ``busy`` In, no sinking in this cycle; ``visit`` Out {en, index, expired, old}; ``sink`` Out
    {en, index, rank}; ``oldest`` Out, once per sweep.

    Source: architecture 6.2 (merge timer, bounded age, DRAIN of a dead peer, HANG page).
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t, depth = self._types, cfg.pool_depth
        super().__init__({
            "valid": In(depth), "locked": In(depth), "fresh": In(depth), "old": In(depth),
            "scan": Out(t.entry), "scanned": In(t.info), "peer_dead": In(cfg.ranks),
            "merge_timeout": In(AGE_WIDTH), "age_limit": In(AGE_WIDTH), "busy": In(1),
            "visit": Out(t.visit), "sink": Out(t.release), "oldest": Out(t.oldest),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, depth = self._cfg, self._cfg.pool_depth
        m.submodules.ages = ages = Ram(AGE_WIDTH, depth)

        # One entry is visited, the next one is looked up. A sink that has to wait holds both: skipped, it could meet the end of
        # a packet again in each sweep.
        index, ahead, run, dead = Signal(self._types.index_width), Signal(self._types.index_width), Signal(), Signal()
        m.d.comb += [run.eq(~(dead & self.busy)), self.scan.en.eq(run), self.scan.index.eq(ahead),
                     ages.r_en.eq(run), ages.r_addr.eq(ahead)]
        with m.If(run):
            m.d.sync += [ahead.eq(ahead + 1), index.eq(ahead)]

        valid, free_to_go, old, age, aged = Signal(), Signal(), Signal(), Signal(AGE_WIDTH), Signal(AGE_WIDTH + 1)
        m.d.comb += [
            valid.eq(self.valid.bit_select(index, 1)),
            free_to_go.eq(~self.locked.bit_select(index, 1)),
            old.eq(self.old.bit_select(index, 1)),
            aged.eq(ages.r_data + depth),
            age.eq(Mux(self.fresh.bit_select(index, 1), 0, Mux(aged[-1], 0xFFFF, aged[:AGE_WIDTH]))),
            ages.w_en.eq(valid & run), ages.w_addr.eq(index), ages.w_data.eq(age),
        ]

        rank = decode(m, self.scanned.rank, cfg.ranks, valid, name="rank_of_visited")
        batch_open, old_seen = Signal(cfg.ranks, init=-1), Signal(cfg.ranks)
        seen_now, wrap = Signal(cfg.ranks), Signal()
        m.d.comb += [
            self.visit.en.eq(valid & run), self.visit.index.eq(index),
            self.visit.expired.eq(age >= self.merge_timeout),
            self.visit.old.eq((age >= self.age_limit) & (rank & batch_open).any()),
            dead.eq((rank & self.peer_dead).any() & free_to_go),
            self.sink.en.eq(dead & run),
            self.sink.index.eq(index), self.sink.rank.eq(self.scanned.rank),
            wrap.eq((index == depth - 1) & run),
            seen_now.eq(old_seen | Mux(old & free_to_go, rank, 0)),
        ]
        m.d.sync += old_seen.eq(Mux(wrap, 0, seen_now))
        with m.If(wrap):
            m.d.sync += batch_open.eq(~seen_now)

        best, best_now = Signal(self._types.oldest), Signal(self._types.oldest)
        m.d.comb += best_now.eq(best)
        with m.If(valid & (~best.valid | (age > best.age))):
            m.d.comb += [best_now.valid.eq(1), best_now.age.eq(age)]
            m.d.comb += [best_now[name].eq(self.scanned[name]) for name in ("plain", "rank", "region", "epoch", "rowid")]
        m.d.sync += best.eq(best_now)
        with m.If(wrap):
            m.d.sync += [self.oldest.eq(best_now), best.valid.eq(0)]
        return m
