# SPDX-License-Identifier: Apache-2.0
"""Checks of plain packets: window of the source rank, dependency range."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import ADDR, ADDR16, LEN, LOG2_STRIDE, RANK, UNIT
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, select
from hub_rtl.parts.ram import Ram

from .records import slice_types_of

__all__ = ["PlainCheck"]


class PlainCheckObserve(NamedTuple):
    """What a proof may see of a :class:`PlainCheck`."""

    windows: Ram  #: per rank {base, limit}
    addr: Signal  #: of the packet that went in last
    end: Signal  #: behind it
    is_rank: Signal  #: its source is one
    found: data.View  #: its range; `armed`: there is one
    dep: Signal  #: number of that


class PlainCheck(wiring.Component):
    """Is a plain packet allowed, and which dependency group does it count for?

    A pipeline of two steps: with ``move`` the packet at the input goes in, and each packet inside
    goes on. ``look``: it is a packet. ``allowed``, ``counted``, ``dep``, ``group_base`` and
    ``group_step``, whose sum is the group, belong to the packet that went in two moves before, and
    stay until the next. Counted are the ranges of the cycle in which it went in; the lowest armed
    one that holds the address wins. A rank without a window (or no rank at all) is not allowed
    anything.

    Parameters: ``cfg``. Ports: ``move``, ``look`` In; ``src`` In, ``addr16`` In (address / 16),
    ``len`` In, flits; ``ranges`` In; ``window_write`` In; ``allowed``, ``counted``, ``dep``,
    ``group_base``, ``group_step`` Out; ``clearing`` Out, after reset."""

    observe: PlainCheckObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types, self._own = cfg, types_of(cfg), slice_types_of(cfg)
        super().__init__(
            {
                "move": In(1),
                "look": In(1),
                "src": In(RANK),
                "addr16": In(ADDR16),
                "len": In(LEN),
                "ranges": In(self._own.ranges),
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
        cfg = self._cfg
        m.submodules.windows = windows = Ram(self._types.window, cfg.ranks, clear=True, quick=True)
        addr = Signal(ADDR)
        end = Signal(ADDR + 1)
        is_rank = Signal()
        window = windows.r_data
        m.d.comb += [
            windows.r_en.eq(self.look),
            windows.r_addr.eq(self.src[: len(windows.r_addr)]),
            windows.w_en.eq(self.window_write.en),
            windows.w_addr.eq(self.window_write.rank),
            windows.w_data.eq(self.window_write.window),
            self.clearing.eq(windows.clearing),
        ]
        # Compared with < alone: <= costs a comparison for equality too.
        above = Signal()
        below = Signal()
        with m.If(self.move):
            m.d.sync += [
                addr.eq(Cat(Const(0, UNIT), self.addr16)),
                end.eq(Cat(Const(0, UNIT), self.addr16 + self.len)),
                is_rank.eq(self.src < cfg.ranks),
                above.eq(~(addr < window.base)),
                below.eq(
                    is_rank
                    & ~(window.limit < mutant("slot_allocator.end_of_write_not_checked", end, addr))
                ),
            ]
        m.d.comb += self.allowed.eq(above & below)
        self.observe = PlainCheckObserve(windows, addr, end, is_rank, *self._group(m, addr))
        return m

    def _group(self, m, addr):
        """Which range, then where in it. Returns what is known between."""
        cfg = self._cfg
        at = Signal(ADDR)
        holds = Signal(cfg.dep_ranges)
        m.d.comb += [
            at.eq(Cat(Const(0, UNIT), self.addr16)),
            *(
                holds[n].eq(each.armed & ~(at < each.base) & (at < each.limit))
                for n, each in ((n, self.ranges[n]) for n in range(cfg.dep_ranges))
            ),
        ]
        chosen = lowest_set(m, holds, "chosen")
        found = Signal(self._own.range)  # `armed`: there is one
        inside = Signal(ADDR)
        shift = Signal(LOG2_STRIDE)
        dep = Signal(cfg.dep_width)
        with m.If(self.move):
            m.d.sync += [
                found.eq(select(chosen, list(self.ranges))),
                dep.eq(encode(chosen)),
                self.counted.eq(found.armed),
                self.dep.eq(dep),
                self.group_base.eq(found.group_base),
                inside.eq(addr - found.base),
                shift.eq(found.log2_stride),
            ]
        m.d.comb += self.group_step.eq((inside >> shift)[: cfg.group_width])
        return found, dep
