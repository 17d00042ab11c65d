"""Checks of plain packets: window of the source rank, dependency range."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import ADDR_WIDTH
from ..lib.arbiter import lowest_set
from ..lib.onehot import encode, select
from ..lib.ram import Ram
from ..types import types_of

__all__ = ["PlainCheck"]


class PlainCheck(wiring.Component):
    """Is a plain packet allowed, and which dependency group does it count for?

    ``look`` starts with the packet's fields, which must hold for 3 more cycles. ``allowed``, ``counted``, ``dep`` and
    ``group`` are valid 3 cycles later, for as long as the fields hold. All ranges are compared at once; the
    lowest armed one that holds the address wins. A rank without a window (or no rank at all) is not allowed anything.

    Parameters: ``cfg``. Ports: ``look`` In; ``src`` In, ``addr16`` In (address / 16), ``len`` In, flits; ``ranges`` In, array
    of all dependency ranges; ``window_write`` In; ``allowed``, ``counted``, ``dep``, ``group`` Out; ``clearing`` Out, after
    reset. """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, types_of(cfg)
        super().__init__({
            "look": In(1), "src": In(7), "addr16": In(ADDR_WIDTH - 4), "len": In(5),
            "ranges": In(data.ArrayLayout(self._types.dep_range, cfg.dep_ranges)), "window_write": In(self._types.window_write),
            "allowed": Out(1), "counted": Out(1), "dep": Out(cfg.dep_width), "group": Out(cfg.group_width), "clearing": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.windows = windows = Ram(self._types.window, cfg.ranks, clear=True)
        addr, end, is_rank = Signal(ADDR_WIDTH), Signal(ADDR_WIDTH + 1), Signal()
        m.d.comb += [
            addr.eq(Cat(Const(0, 4), self.addr16)),
            windows.r_en.eq(self.look), windows.r_addr.eq(self.src[:len(windows.r_addr)]),
            windows.w_en.eq(self.window_write.en), windows.w_addr.eq(self.window_write.rank),
            windows.w_data.eq(self.window_write.window), self.clearing.eq(windows.clearing),
        ]
        # Cycle 0: end of the span, comparators.
        holds = Signal(cfg.dep_ranges)
        m.d.sync += [end.eq(Cat(Const(0, 4), self.addr16 + self.len)), is_rank.eq(self.src < cfg.ranks)]
        for n in range(cfg.dep_ranges):
            each = self.ranges[n]
            m.d.sync += holds[n].eq(each.armed & (each.base <= addr) & (addr < each.limit))
        # Cycles 1 and 2: window; a memory is slow to answer, so its word is compared in the cycle after.
        window = Signal(self._types.window)
        m.d.sync += [window.eq(windows.r_data), self.allowed.eq(is_rank & (window.base <= addr) & (end <= window.limit))]
        # Cycle 1: choice of the range.
        chosen = lowest_set(m, holds, "chosen")
        base, shift, group_base = Signal(ADDR_WIDTH), Signal(6), Signal(cfg.group_width)
        m.d.sync += [
            self.counted.eq(holds.any()), self.dep.eq(encode(chosen)),
            base.eq(select(chosen, [self.ranges[n].base for n in range(cfg.dep_ranges)])),
            shift.eq(select(chosen, [self.ranges[n].log2_stride for n in range(cfg.dep_ranges)])),
            group_base.eq(select(chosen, [self.ranges[n].group_base for n in range(cfg.dep_ranges)])),
        ]
        # Cycle 2: position in the range. Cycle 3: group.
        inside = Signal(ADDR_WIDTH)
        m.d.sync += inside.eq(addr - base)
        m.d.comb += self.group.eq((inside >> shift)[:cfg.group_width] + group_base)
        return m

