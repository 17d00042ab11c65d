# SPDX-License-Identifier: Apache-2.0
"""Pulses that may come from many sources in one cycle, one after the other."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width

from .arbiter import lowest_set
from .onehot import encode, select
from .stream import StreamQueue

__all__ = ["PulseQueue"]


class PulseQueue(wiring.Component):
    """Takes a pulse of every source in every cycle and gives them out one by one.

    The pulses of one cycle share a word of memory, so that no source needs a place of its own. A
    pulse that finds ``depth`` words waiting is lost, with all of its cycle. Latency three cycles
    when empty; one item per cycle. Order: by cycle, within a cycle the lowest source first.

    Parameters: ``shape``, what a pulse carries; ``count``, sources, 1 or more; ``depth``, words, at
    least 3. Ports: ``en`` In ``count``; ``items`` In, one of ``shape`` per source; ``o`` Out
    stream(shape), from the memory's output; ``source`` Out, whose the item is; ``lost`` Out
    ``count``, the pulses of this cycle that are lost.
    """

    def __init__(self, shape, count, depth):
        super().__init__(
            {
                "en": In(count),
                "items": In(shape).array(count),
                "o": Out(stream.Signature(shape)),
                "source": Out(index_width(count)),
                "lost": Out(count),
            }
        )
        self._shape, self._count, self._depth = shape, count, depth

    def elaborate(self, platform):
        m = Module()
        # The masks run one word ahead: the next one is loaded while the last item of a word leaves.
        m.submodules.words = words = StreamQueue(
            data.ArrayLayout(self._shape, self._count), self._depth
        )
        m.submodules.masks = masks = StreamQueue(self._count, self._depth)
        put = Signal()
        left = Signal(self._count)
        some = Signal()
        taken = Signal()
        last = Signal()
        first = lowest_set(m, left, "first")
        m.d.comb += [
            put.eq(self.en.any() & words.i.ready),
            words.i.valid.eq(put),
            masks.i.valid.eq(put),
            masks.i.payload.eq(self.en),
            words.i.payload.eq(Cat(self.items)),
            self.lost.eq(Mux(words.i.ready, 0, self.en)),
            self.o.valid.eq(some),
            self.o.payload.eq(select(first, [words.o.payload[n] for n in range(self._count)])),
            self.source.eq(encode(first)),
            taken.eq(some & self.o.ready),
            last.eq((left & ~first) == 0),
            words.o.ready.eq(taken & last),
            masks.o.ready.eq(~some | (taken & last)),
        ]
        with m.If(masks.o.ready):
            m.d.sync += [
                some.eq(masks.o.valid),
                left.eq(masks.o.payload),
            ]
        with m.Elif(taken):
            m.d.sync += left.eq(left & ~first)
        return m
