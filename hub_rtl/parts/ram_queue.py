# SPDX-License-Identifier: Apache-2.0
"""First-in first-out queue over the memory wrapper."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width

from .mutants import mutant
from .ram import Ram

__all__ = ["RamQueue"]


class RamQueueObserve(NamedTuple):
    """What a proof may see of a :class:`RamQueue`."""

    ram: Ram  #: its words
    head: Signal
    tail: Signal
    stored: Signal  #: items in memory, without the one at the output
    some: Signal  #: stored is not 0
    room: Signal  #: stored is not depth


class RamQueue(wiring.Component):
    """First-in first-out queue in a :class:`~hub_rtl.parts.ram.Ram`, for any depth.

    Latency one cycle when empty (the memory's bypass), one item per cycle, order kept. The item at
    the output has left the memory, so ``depth + 1`` items fit. ``i.ready`` and ``o.valid`` come
    from registers.

    Parameters: ``shape``, the payload; ``depth``, words of memory, 1 or more; ``quick``, FPGA tools
    are asked for distributed memory. Ports: ``i`` In, ``o`` Out, streams of ``shape``.
    """

    observe: RamQueueObserve  # once elaborated

    def __init__(self, shape, depth, quick=False):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.depth, self._shape, self._quick = depth, shape, quick

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self._shape, self.depth, quick=self._quick)
        head = Signal(index_width(self.depth))
        tail = Signal(index_width(self.depth))
        stored = Signal(range(self.depth + 1))  # items in memory, without the one at the output
        # Registers, so that nothing is compared.
        some = Signal()  # stored is not 0
        room = Signal(init=1)  # it is not depth
        self.observe = RamQueueObserve(ram, head, tail, stored, some, room)
        push = Signal()
        load = Signal()
        open_ = Signal()

        def after(pointer):
            return Mux(pointer == self.depth - 1, 0, pointer + 1)

        m.d.comb += [
            self.i.ready.eq(room),
            push.eq(self.i.valid & self.i.ready),
            open_.eq(self.o.ready | ~self.o.valid),
            load.eq(mutant("parts.ram_queue_misses_push", some | push, some) & open_),
            ram.w_en.eq(push),
            ram.w_addr.eq(tail),
            ram.w_data.eq(self.i.payload),
            ram.r_en.eq(open_),
            ram.r_addr.eq(head),  # read even if there is nothing: ``o.valid`` says so
            self.o.payload.eq(ram.r_data),
        ]
        with m.If(push & ~load):
            m.d.sync += [
                stored.eq(stored + 1),
                some.eq(1),
                room.eq(stored != self.depth - 1),
            ]
        with m.Elif(load & ~push):
            m.d.sync += [
                stored.eq(stored - 1),
                some.eq(stored != 1),
                room.eq(1),
            ]
        with m.If(push):
            m.d.sync += tail.eq(
                mutant("parts.ram_queue_tail_follows_head", after(tail), after(head))
            )
        with m.If(load):
            m.d.sync += head.eq(after(head))
        with m.If(self.o.ready | ~mutant("parts.ram_queue_overwrites_output", self.o.valid, load)):
            m.d.sync += self.o.valid.eq(load)
        return m
