# SPDX-License-Identifier: Apache-2.0
"""Short queue in flip-flops with one cycle of latency."""

from typing import NamedTuple

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .mutants import mutant

__all__ = ["RegisterQueue"]


class RegisterQueueObserve(NamedTuple):
    """What a proof may see of a :class:`RegisterQueue`."""

    items: list  #: a register per place, the oldest item first
    full: Signal  #: bit n: there is an item in place n; a thermometer


class RegisterQueue(wiring.Component):
    """Short first-in first-out queue in flip-flops; the output is always entry 0, a register.

    Latency one cycle, one item per cycle, order kept. ``i.ready`` and ``o.valid`` come from
    registers. For few and narrow items, where the second cycle of a
    :class:`~hub_rtl.parts.stream.StreamQueue` hurts.

    Parameters: ``shape``, the payload; ``depth``, items, 2 or more (1 would run at half rate).
    Ports: ``i`` In, ``o`` Out, streams of ``shape``.
    """

    observe: RegisterQueueObserve  # once elaborated

    def __init__(self, shape, depth):
        if depth < 2:
            raise ValueError(
                f"depth = {depth}: must be at least 2, a shorter queue runs at half rate"
            )
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._shape, self._depth = shape, depth

    def elaborate(self, platform):
        m = Module()
        items = [Signal(self._shape, name=f"item{n}") for n in range(self._depth)]
        full = Signal(self._depth)  # bit n: item n is there; a thermometer
        self.observe = RegisterQueueObserve(items, full)
        put = Signal()
        take = Signal()
        m.d.comb += [
            self.i.ready.eq(~full[-1]),
            self.o.valid.eq(full[0]),
            self.o.payload.eq(items[0]),
            put.eq(self.i.valid & self.i.ready),
            take.eq(self.o.valid & self.o.ready),
        ]
        for n, item in enumerate(items):
            below = full[n - 1] if n else Const(1, 1)
            above = full[n + 1] if n + 1 < self._depth else Const(0, 1)
            above_item = items[n + 1] if n + 1 < self._depth else item
            # Item n is written where the queue ends: one place lower when the first item leaves in
            # the same cycle.
            lands = mutant(
                "parts.register_queue_overtakes",
                Mux(take, full[n] & ~above, ~full[n] & below),
                ~full[n] & below,
            )
            with m.If(put & lands):
                m.d.sync += item.eq(self.i.payload)
            with m.Elif(take):
                m.d.sync += item.eq(above_item)
            with m.If(put & ~take):
                m.d.sync += full[n].eq(below)
            with m.Elif(take & ~put):
                m.d.sync += full[n].eq(above)
        return m
