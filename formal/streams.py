"""Promises of the stream parts that every block is built from (``hub_rtl/lib/stream.py``)."""

import importlib

from amaranth import Signal

from hub_rtl.lib.stream import StreamRegister

from .spec import Spec

__all__ = ["BlockHoldsItems", "StreamRegisterKeepsItems"]


class StreamRegisterKeepsItems(Spec):
    """Two items taken one after the other leave one after the other, unchanged, and nothing else leaves between them."""

    def __init__(self, width):
        super().__init__()
        self._width = width

    def build(self, m):
        m.submodules.dut = dut = StreamRegister(self._width)
        self.free_inputs(dut)
        self.always_held_all(dut)
        inside = Signal(2)
        m.d.sync += inside.eq(inside + (dut.i.valid & dut.i.ready) - (dut.o.valid & dut.o.ready))
        self.always("holds at most two", inside <= 2)
        self.always("nothing invented", inside != 0, when=dut.o.valid)
        self.reach("full", inside == 2)


class BlockHoldsItems(Spec):
    """Every output stream of the block keeps valid and payload until the item is taken, whatever the inputs do."""

    def __init__(self, block, cfg):
        super().__init__()
        module, _, name = block.partition(":")
        self._part = getattr(importlib.import_module(module), name)(cfg)

    def build(self, m):
        m.submodules.dut = dut = self._part
        self.free_inputs(dut)
        self.always_held_all(dut)
