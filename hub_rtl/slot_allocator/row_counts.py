# SPDX-License-Identifier: Apache-2.0
"""What changes of a RAT entry with each packet: missing bytes, and the age order of its set."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.ram import Ram

from .records import slice_types_of

__all__ = ["RowCounts"]


class RowCountsObserve(NamedTuple):
    """What a proof may see of a :class:`RowCounts`."""

    missing: Ram  #: per set, missing bytes of each way's row
    ages: Ram  #: per set, the age of each way XOR its number
    looked: Signal  #: the set in view


class RowCounts(wiring.Component):
    """Missing bytes of each row of the RAT, and in which order the rows of a set came.

    ``look`` reads a set; from the next cycle on, until the next ``look``, ``missing`` and ``ages``
    show it. A write goes to the set in view: read, changed and written in one cycle. A ``look`` in
    the cycle of a write sees it, what is in view does not change. ``install`` makes the way the
    youngest of its set. ``age`` of a way counts the ways that are older.

    Parameters: ``cfg``. Ports: ``look``, ``set`` In; ``missing``, ``ages`` Out, arrays over ways;
    ``write`` In, one bit per way, ``left`` In, bytes that the row still misses, ``install`` In;
    ``clearing`` Out, after reset."""

    observe: RowCountsObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "look": In(1),
                "set": In(max(1, own.set_width)),
                "missing": Out(data.ArrayLayout(cfg.row_bytes_width, cfg.rat_ways)),
                "ages": Out(data.ArrayLayout(own.way_width, cfg.rat_ways)),
                "write": In(cfg.rat_ways),
                "left": In(cfg.row_bytes_width),
                "install": In(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own, ways = self._cfg, self._own, self._cfg.rat_ways
        quick = cfg.rat_sets <= 64
        m.submodules.missing = missing = Ram(
            self.missing.shape(), cfg.rat_sets, granules=ways, quick=quick
        )
        m.submodules.ages = ages = Ram(self.ages.shape(), cfg.rat_sets, clear=True, quick=quick)
        looked = Signal.like(self.set)
        self.observe = RowCountsObserve(missing, ages, looked)
        with m.If(self.look):
            m.d.sync += looked.eq(self.set)
        for ram in (missing, ages):
            m.d.comb += [
                ram.r_en.eq(self.look),
                ram.r_addr.eq(self.set),
                ram.w_addr.eq(looked),
            ]
        m.d.comb += [
            self.missing.eq(missing.r_data),
            missing.w_en.eq(self.write),
            ages.w_en.eq(self.install & self.write.any()),
            self.clearing.eq(ages.clearing),
        ]
        old_age = Signal(own.way_width)
        m.d.comb += old_age.eq(
            Cat(
                Cat(self.write[n] & self.ages[n][bit] for n in range(ways)).any()
                for bit in range(own.way_width)
            )
        )
        for n in range(ways):
            age = self.ages[n]
            younger = Mux(age > old_age, age - 1, age)
            after = Mux(self.write[n], Const(ways - 1, own.way_width), younger)
            m.d.comb += [
                # Kept XOR the way's number: the cleared memory says that way n has n older ones.
                age.eq(ages.r_data[n] ^ n),
                ages.w_data[n].eq(after[: own.way_width] ^ n),
                missing.w_data[n].eq(self.left),
            ]
        return m
