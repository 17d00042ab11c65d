# SPDX-License-Identifier: Apache-2.0
"""Memories of the tags, and which of their ways are in use."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.ram import Ram

from .records import PLACES, WAYS, pool_types_of

__all__ = ["TagTable"]


class TagTable(wiring.Component):
    """Nine ways for a key: four in each of two sets, one of its rank.

    Contract: with ``read`` the words at ``reads`` are fetched; in the next cycles, until the next
    ``read``, ``equal`` says which of them are in use and have ``key``, ``used`` which are in use,
    ``index`` whose they are. A word written in the cycle of its read shows as it was before.
    Ways are written by ``opens``; ``gave`` says in the next cycle which of them are in use, and
    counts, as ``closing`` does, from the cycle after.

    Parameters: ``cfg``. Ports: ``read`` In; ``reads`` In sets; ``compares`` In,
    the sets that were read, ``key`` In; ``equal``, ``used`` Out, a bit per way; ``index`` Out, an
    entry per way; ``opens`` In {ways, sets, key, index}: writes these ways; ``gave`` In ways;
    ``closing`` In.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "read": In(1),
                "reads": In(t.sets),
                "compares": In(t.sets),
                "key": In(t.key),
                "equal": Out(PLACES),
                "used": Out(PLACES),
                "index": Out(t.index_width).array(PLACES),
                "opens": In(t.opens),
                "gave": In(PLACES),
                "closing": In(t.closing),
            }
        )

    def elaborate(self, platform):
        m = Module()
        t = self._types
        word = data.StructLayout({"key": t.key, "index": t.index_width})
        place = self.closing.place
        low = 0
        written = Signal(t.sets)
        m.d.sync += written.eq(self.opens.sets)
        sizes = ((t.set_count, WAYS), (t.set_count, WAYS), (self._cfg.ranks, 1))
        for bank, (count, ways) in enumerate(sizes):
            tags = Ram(data.ArrayLayout(word, ways), count, granules=ways, quick=True, bypass=False)
            m.submodules[f"tags_{bank}"] = tags
            gave = self.gave[low : low + ways]
            closes = Signal(ways, name=f"closes_{bank}")
            used = Array(Signal(ways, name=f"used_{bank}_{n}") for n in range(count))
            m.d.comb += [
                tags.r_en.eq(self.read),
                tags.r_addr.eq(self.reads[bank]),
                tags.w_en.eq(self.opens.ways[low : low + ways]),
                tags.w_addr.eq(self.opens.sets[bank]),
                closes.eq(Mux(self.closing.en & (place.bank == bank), (1 << place.way)[:ways], 0)),
                self.used[low : low + ways].eq(used[self.compares[bank]]),
            ]
            for way in range(ways):
                same = tags.r_data[way].key.as_value() == self.key.as_value()
                m.d.comb += [
                    tags.w_data[way].key.eq(self.opens.key),
                    tags.w_data[way].index.eq(self.opens.index),
                    self.index[low + way].eq(tags.r_data[way].index),
                    self.equal[low + way].eq(same & self.used[low + way]),
                ]
            for n in range(count):
                opened = Mux(written[bank] == n, gave, 0)
                closed = Mux(place.set == n, closes, 0)
                m.d.sync += used[n].eq((used[n] | opened) & ~closed)
            low += ways
        return m
