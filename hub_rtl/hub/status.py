# SPDX-License-Identifier: Apache-2.0
"""What registers show of the blocks: counter increments, the HANG page's view of one slice."""

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import (
    CLOSE_COUNTS,
    MEMORY_COUNTS,
    POOL_COUNTS,
    READY_COUNTS,
    STORE_COUNTS,
    WAITING,
    types_of,
)
from hub_rtl.contract.registers import COUNTERS
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import ones, select, tree_sum

__all__ = ["CounterSums", "SliceView"]

#: Strobes of the scoreboard that have another name as a counter.
RENAMED = {"overlaps": "row_overlaps", "merges": "ack_merges"}


class CounterSums(wiring.Component):
    """Adds the strobes of all lanes and slices: one increment per counter.

    Latency: two cycles, a register before the sums and one behind them. Every strobe given here
    must have a counter in ``registers.COUNTERS``, and the other way round.

    Parameters: ``cfg``. Ports: ``store`` per lane, ``pool``, ``memory``, ``lost`` per
    slice, ``link`` per link and loop lane, ``bad`` per link, In; ``close``, ``alloc``, ``ready``
    In; ``single`` In, strobes that are counted as they are; ``counts`` Out.
    """

    SINGLE = ("closes_received", "rejects_received", "flag_errors", "rejects_sent", "rejects_lost")

    def __init__(self, cfg):
        super().__init__(
            {
                "store": In(STORE_COUNTS).array(cfg.lanes),
                "pool": In(POOL_COUNTS).array(cfg.slices),
                "link": In(types_of(cfg).link_counts).array(cfg.links + cfg.loop_lanes),
                "memory": In(MEMORY_COUNTS).array(cfg.slices),
                "bad": In(cfg.links),
                "lost": In(cfg.slices),
                "close": In(CLOSE_COUNTS),
                "alloc": In(types_of(cfg).alloc_counts),
                "ready": In(READY_COUNTS),
                "single": In(data.StructLayout(dict.fromkeys(self.SINGLE, 1))),
                "counts": Out(types_of(cfg).counts),
            }
        )
        self._store_names = {
            "stores": "stores",
            "refused": "stores_refused",
            "stall": "store_stalls",
        }

    def elaborate(self, platform):
        m = Module()
        sources = {}

        def came(strobes):
            """The strobes of the cycle before."""
            kept = Signal.like(strobes, name_suffix="_came")
            m.d.sync += kept.eq(strobes)
            return kept

        def give(counter, value):
            if counter in sources or counter not in COUNTERS:
                raise ValueError(f"{counter}: must be the name of one counter, and have one source")
            if len(Value.cast(value)) > len(self.counts[counter]):
                raise ValueError(
                    f"{counter}: increments of {len(Value.cast(value))} bits, must be at most "
                    f"{len(self.counts[counter])}: see registers.ONE_SOURCE"
                )
            sources[counter] = value

        def add_all(ports, rename=None):
            for name, _ in ports[0].shape():
                counter, values = (rename or {}).get(name, name), [port[name] for port in ports]
                strobes = all(len(value) == 1 for value in values)
                total = ones(m, values, name) if strobes else tree_sum(values)
                give(counter, total[: len(self.counts[counter])])

        add_all([came(port) for port in self.store], self._store_names)
        for ports in (self.pool, self.link, self.memory):
            add_all([came(port) for port in ports])
        bad, lost, close, alloc, ready, single = map(
            came, (self.bad, self.lost, self.close, self.alloc, self.ready, self.single)
        )
        give(
            "bad_packets",
            mutant(
                "hub.bad_packets_of_first_lane",
                ones(m, list(bad), "bad"),
                ones(m, list(bad)[:1], "first_bad"),
            ),
        )
        give("news_lost", ones(m, list(lost), "lost"))
        for name, _ in close.shape():
            give(name, close[name])
        for name, _ in alloc.shape():
            if name != "refused":
                give(name, alloc[name])
        for reason in Reason:
            if f"refused_{reason.name.lower()}" in COUNTERS:
                give(f"refused_{reason.name.lower()}", alloc.refused[reason])
        for name, _ in ready.shape():
            give(RENAMED.get(name, name), ready[name])
        for name in self.SINGLE:
            give(name, single[name])
        if set(sources) != set(COUNTERS):
            raise ValueError(f"no source for {', '.join(sorted(set(COUNTERS) - set(sources)))}")
        m.d.sync += [self.counts[name].eq(value) for name, value in sources.items()]
        return m


class SliceView(wiring.Component):
    """Shows one slice's oldest entries to the HANG page.

    Latency: one cycle from ``slice`` or a change to ``view``.

    Parameters: ``cfg``. Ports: ``slice`` In; per slice ``oldest``, ``waiting``, ``outstanding``,
    ``dest_ready``, ``ctl_ready`` In; ``view`` Out.
    """

    def __init__(self, cfg):
        types = types_of(cfg)
        super().__init__(
            {
                "slice": In(cfg.slice_width),
                "oldest": In(types.oldest).array(cfg.slices),
                "waiting": In(WAITING).array(cfg.slices),
                "outstanding": In(range(cfg.write_depth + 1)).array(cfg.slices),
                "dest_ready": In(cfg.ranks).array(cfg.slices),
                "ctl_ready": In(cfg.ranks).array(cfg.slices),
                "view": Out(types.view),
            }
        )

    def elaborate(self, platform):
        m = Module()
        view = self.view
        chosen = Signal(len(self.oldest))
        m.d.comb += chosen.eq(Cat(self.slice == n for n in range(len(chosen))))
        m.d.sync += [
            view.oldest.eq(select(chosen, self.oldest)),
            view.waiting.eq(
                mutant(
                    "hub.view_shows_first_slice",
                    select(chosen, self.waiting),
                    select(chosen, [self.waiting[0]] * len(chosen)),
                )
            ),
            view.outstanding.eq(select(chosen, self.outstanding)),
            view.no_credit.eq(~select(chosen, self.dest_ready)),
            view.no_ctl_credit.eq(~select(chosen, self.ctl_ready)),
        ]
        return m
