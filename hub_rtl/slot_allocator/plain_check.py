# SPDX-License-Identifier: Apache-2.0
"""Checks of plain packets: window of the source rank, dependency range."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import ADDR, ADDR16, LEN, LOG2_STRIDE, RANK, UNIT
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram

from .records import slice_types_of

__all__ = ["PlainCheck"]


class PlainCheckObserve(NamedTuple):
    """What a proof may see of a :class:`PlainCheck`."""

    windows: Ram  #: per rank {base, limit}
    is_rank: Signal  #: the source is one
    above: Signal  #: the packet does not begin before its window
    below: Signal  #: it does not end behind it


class PlainCheck(wiring.Component):
    """Is a plain packet allowed, and which dependency group does it count for?

    ``look`` starts with the packet's fields, which must hold for 3 more cycles. ``allowed``,
    ``counted``, ``dep``, ``group_base`` and ``group_step``, whose sum is the group, are valid 3
    cycles later, for as long as the fields hold. The ranges are shown in turn
    (:class:`~hub_rtl.slot_allocator.range_ring.RangeRing`), all of them in the 3 cycles from
    ``look`` on; the lowest armed one that holds the address wins. A rank without a window (or no
    rank at all) is not allowed anything.

    Parameters: ``cfg``. Ports: ``look`` In; ``src`` In, ``addr16`` In (address / 16), ``len`` In,
    flits; ``show`` In {step, ranges}; ``window_write`` In; ``allowed``, ``counted``, ``dep``,
    ``group_base``, ``group_step`` Out; ``clearing`` Out, after reset."""

    observe: PlainCheckObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types, self._own = cfg, types_of(cfg), slice_types_of(cfg)
        super().__init__(
            {
                "look": In(1),
                "src": In(RANK),
                "addr16": In(ADDR16),
                "len": In(LEN),
                "show": In(self._own.range_show),
                "window_write": In(self._types.window_write),
                "allowed": Out(1),
                "counted": Out(1),
                "dep": Out(cfg.dep_width),
                "group_base": Out(cfg.group_width),
                "group_step": Out(cfg.group_width),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, places = self._cfg, self._own.range_places
        m.submodules.windows = windows = Ram(self._types.window, cfg.ranks, clear=True, quick=True)
        addr, end, is_rank = Signal(ADDR), Signal(ADDR + 1), Signal()
        window = windows.r_data
        m.d.comb += [
            addr.eq(Cat(Const(0, UNIT), self.addr16)),
            windows.r_en.eq(self.look),
            windows.r_addr.eq(self.src[: len(windows.r_addr)]),
            windows.w_en.eq(self.window_write.en),
            windows.w_addr.eq(self.window_write.rank),
            windows.w_data.eq(self.window_write.window),
            self.clearing.eq(windows.clearing),
        ]
        # Compared with < alone: <= costs a comparison for equality too.
        # Cycle 0: end of the span. Cycle 1: against both ends of the window. Cycle 2: allowed.
        above, below = Signal(), Signal()
        self.observe = PlainCheckObserve(windows, is_rank, above, below)
        m.d.sync += [
            end.eq(Cat(Const(0, UNIT), self.addr16 + self.len)),
            is_rank.eq(self.src < cfg.ranks),
            above.eq(~(addr < window.base)),
            below.eq(
                ~(window.limit < mutant("slot_allocator.end_of_write_not_checked", end, addr))
            ),
            self.allowed.eq(is_rank & above & below),
        ]
        # Cycles 0 to 2: ranges. The distance to the base is the place in the range and tells if the
        # base is not above.
        holds, step, best = Signal(places), Signal(2), Signal(2)
        distances = [Signal(ADDR + 1, name=f"distance{n}") for n in range(places)]
        for n, distance in enumerate(distances):
            each = self.show.ranges[n]
            m.d.comb += [
                distance.eq(addr - each.base),
                holds[n].eq(each.armed & ~distance[-1] & (addr < each.limit)),
            ]
        chosen = lowest_set(m, holds, "chosen")
        inside, shift = Signal(ADDR), Signal(LOG2_STRIDE)
        m.d.comb += step.eq(self.show.step)
        with m.If(self.look | (holds.any() & (~self.counted | (step < best)))):
            m.d.sync += [
                self.counted.eq(holds.any()),
                best.eq(step),
                self.dep.eq(
                    select(chosen, [(step * places + n)[: cfg.dep_width] for n in range(places)])
                ),
                inside.eq(select(chosen, distances)),
                shift.eq(select(chosen, [self.show.ranges[n].log2_stride for n in range(places)])),
                self.group_base.eq(
                    select(chosen, [self.show.ranges[n].group_base for n in range(places)])
                ),
            ]
        # Cycle 3: group; the sum is the user's.
        m.d.comb += self.group_step.eq((inside >> shift)[: cfg.group_width])
        return m
