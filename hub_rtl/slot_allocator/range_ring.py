# SPDX-License-Identifier: Apache-2.0
"""Dependency ranges of plain stores, shown to all slices in turn."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import RANGE_STEPS, slice_types_of

__all__ = ["RangeRing"]


class RangeRingObserve(NamedTuple):
    """What a proof may see of a :class:`RangeRing`."""

    ram: Ram  #: per step, its ranges
    step: Signal  #: that is read
    shown: Signal  #: that was read


class RangeRing(wiring.Component):
    """Keeps the dependency ranges and shows a third of them in each cycle, round and round.

    Range n is place ``n % places`` of step ``n // places``. Within any 3 cycles each range is shown
    once; a range that was written is shown from the second cycle after on. Places behind the last
    range are not armed.

    Parameters: ``cfg``. Ports: ``dep_write`` In; ``show`` Out {step, ranges}, registers;
    ``clearing`` Out, after reset: writes would be lost."""

    observe: RangeRingObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {"dep_write": In(types.dep_write), "show": Out(own.range_show), "clearing": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        own, write, places = self._own, self.dep_write, self._own.range_places
        word = data.ArrayLayout(own.range, places)
        m.submodules.ram = ram = Ram(word, RANGE_STEPS, granules=places, clear=True, quick=True)
        step, shown = Signal(range(RANGE_STEPS)), Signal(range(RANGE_STEPS))
        self.observe = RangeRingObserve(ram, step, shown)
        for n in range(self._cfg.dep_ranges):
            with m.If(write.en & (write.index == n)):
                m.d.comb += [
                    ram.w_en.eq(1 << n % places),
                    ram.w_addr.eq(
                        mutant("slot_allocator.ranges_in_wrong_places", n // places, n % places)
                    ),
                ]
        m.d.comb += [
            *(
                ram.w_data[place][name].eq(write.range[name])
                for place in range(places)
                for name, _ in own.range
            ),
            ram.r_en.eq(1),
            ram.r_addr.eq(step),
            self.clearing.eq(ram.clearing),
        ]
        m.d.sync += [
            step.eq(Mux(step == RANGE_STEPS - 1, 0, step + 1)),
            shown.eq(step),
            self.show.step.eq(shown),
            self.show.ranges.eq(ram.r_data),
        ]
        return m
