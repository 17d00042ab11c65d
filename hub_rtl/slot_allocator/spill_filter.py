# SPDX-License-Identifier: Apache-2.0
"""Spill filter: was this row ever spilled? Without a memory read."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

__all__ = ["SpillFilter"]


class SpillFilter(wiring.Component):
    """Counting filter: one small counter per hash value counts the spilled rows with that value.

    ``maybe`` = 0 means that no row with the index is spilled. A counter that reaches its maximum
    stays there (it no longer knows its count), so the filter may say "maybe" too often, never too
    seldom. ``maybe`` belongs to the ``look`` before and holds until the next; ``up`` and ``down``
    change the counter looked at last, at least one cycle later. One operation per cycle.

    Parameters: ``depth``, counters; ``width``, bits of a counter. Ports: ``look`` In, ``index`` In;
    ``maybe`` Out; ``up``, ``down`` In, strobes; ``clearing`` Out, after reset."""

    def __init__(self, depth, width):
        super().__init__(
            {
                "look": In(1),
                "index": In(index_width(depth)),
                "maybe": Out(1),
                "up": In(1),
                "down": In(1),
                "clearing": Out(1),
            }
        )
        self._depth, self._width = depth, width

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self._width, self._depth, clear=True)
        looked = Signal.like(self.index)
        with m.If(self.look):
            m.d.sync += looked.eq(self.index)
        count = ram.r_data
        stuck = count.all()
        m.d.comb += [
            ram.r_en.eq(self.look),
            ram.r_addr.eq(self.index),
            ram.w_addr.eq(looked),
            self.maybe.eq(count.any()),
            self.clearing.eq(ram.clearing),
            ram.w_en.eq(
                mutant(
                    "slot_allocator.stuck_counter_changes",
                    (self.up | self.down) & ~stuck,
                    self.up | self.down,
                )
            ),
            ram.w_data.eq(Mux(self.up, count + 1, count - 1)),
        ]
        return m
