# SPDX-License-Identifier: Apache-2.0
"""Dependency ranges of plain stores, shown to all slices."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant

from .records import slice_types_of

__all__ = ["RangeTable"]


class RangeTable(wiring.Component):
    """Keeps the dependency ranges: all slices compare with all of them in each cycle.

    A range that is written is shown from the next cycle on. After reset none is armed.

    Parameters: ``cfg``. Ports: ``dep_write`` In; ``ranges`` Out, an array, registers."""

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__({"dep_write": In(types.dep_write), "ranges": Out(own.ranges)})

    def elaborate(self, platform):
        m = Module()
        write = self.dep_write
        for n in range(self._cfg.dep_ranges):
            with m.If(
                write.en
                & mutant(
                    "slot_allocator.ranges_in_wrong_places",
                    write.index == n,
                    write.index == self._cfg.dep_ranges - 1 - n,
                )
            ):
                m.d.sync += [
                    self.ranges[n][name].eq(write.range[name]) for name, _ in self._own.range
                ]
        return m
