# SPDX-License-Identifier: Apache-2.0
"""A ring of names in memory: first come, first served, of a set whose members come once each."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.ram import Ram

__all__ = ["NameRing"]


class NameRingObserve(NamedTuple):
    """What a proof may see of a :class:`NameRing`."""

    names: Ram
    head: Signal
    tail: Signal


class NameRing(wiring.Component):
    """Names that wait, in the order in which they came.

    Contract: what is put in is offered, in order. Whoever puts names in sees to it that no more are
    inside than there are places; so there is no ``ready``. Latency: put in in cycle 0, offered in
    cycle 1 when nothing else waits. Throughput: one per cycle in, one per two cycles out. The
    output is a table's.

    Parameters: ``shape`` of a name; ``places``; ``quick``, see Ram. Ports: ``en`` In, ``name`` In:
    this one comes in; ``o`` Out stream(name); ``level`` Out: so many are inside.
    """

    observe: NameRingObserve  # once elaborated

    def __init__(self, shape, places, quick=False):
        super().__init__(
            {
                "en": In(1),
                "name": In(shape),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(places + 1)),
            }
        )
        self._shape, self._quick = shape, quick
        self.places = places

    def elaborate(self, platform):
        m = Module()
        m.submodules.names = names = Ram(self._shape, self.places, quick=self._quick)
        head, tail = Signal.like(names.r_addr, name="head"), Signal.like(names.w_addr, name="tail")
        self.observe = NameRingObserve(names, head, tail)
        goes = self.o.valid & self.o.ready

        def following(pointer):
            return Mux(pointer == self.places - 1, 0, pointer + 1)

        m.d.sync += self.level.eq(self.level + self.en - goes)
        with m.If(self.en):
            m.d.sync += tail.eq(following(tail))
        # The first one is shown by its table until it is taken; one that comes in now is read as it
        # is written.
        m.d.comb += [
            names.w_en.eq(self.en),
            names.w_addr.eq(tail),
            names.w_data.eq(self.name),
            names.r_en.eq(~self.o.valid),
            names.r_addr.eq(head),
            self.o.payload.eq(names.r_data),
        ]
        with m.If(~self.o.valid):
            m.d.sync += self.o.valid.eq(self.level.any() | self.en)
        with m.Elif(self.o.ready):
            m.d.sync += [
                self.o.valid.eq(0),
                head.eq(following(head)),
            ]
        return m
