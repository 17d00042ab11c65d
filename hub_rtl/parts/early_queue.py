# SPDX-License-Identifier: Apache-2.0
"""First-in first-out queue in memory whose items are written one cycle before they are pushed."""

from typing import NamedTuple

from amaranth import Module, Mux, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width

from .mutants import mutant

__all__ = ["EarlyQueue"]


class EarlyQueueObserve(NamedTuple):
    """What a proof may see of an :class:`EarlyQueue`."""

    storage: Memory  #: may be given further ports while it is not elaborated
    head: Signal  #: address of the word that leaves memory next
    next_word: Signal  #: address that ``early`` is written to
    load: Signal  #: a word leaves memory for the output


class EarlyQueue(wiring.Component):
    """First-in first-out queue whose user writes a word in one cycle and says in the next one
    whether it counts.

    With ``write`` what is at ``early`` is written to memory, behind the last item; only ``push`` in
    the next cycle makes it one. So a word is never read in the cycle in which it is written, and no
    register has to stand in for it.

    Contract: ``push`` only after ``write``, and with fewer than ``depth`` items inside, the one at
    the output not counted; the user sees to it.

    Latency one cycle from ``push`` when empty, one item per cycle, order kept. ``o.valid`` comes
    from a register.

    Parameters: ``shape``, the payload; ``depth``, 1 or more: memory has one word more; ``quick``,
    FPGA tools are asked for distributed memory. Ports: ``early`` In ``shape``; ``write`` In;
    ``push`` In: what was at ``early`` in the cycle before is an item; ``o`` Out, stream of
    ``shape``.
    """

    observe: EarlyQueueObserve  # once elaborated

    def __init__(self, shape, depth, quick=False):
        super().__init__(
            {"early": In(shape), "write": In(1), "push": In(1), "o": Out(stream.Signature(shape))}
        )
        self.depth = depth
        self._width, self._words = Shape.cast(shape).width, depth + 1
        self._attrs = {"ram_style": "distributed"} if quick else {}

    def elaborate(self, platform):
        m = Module()
        m.submodules.storage = storage = Memory(
            shape=self._width, depth=self._words, init=[], attrs=self._attrs
        )
        write = storage.write_port()
        read = storage.read_port(domain="sync")
        head = Signal(index_width(self._words))
        tail = Signal(index_width(self._words))
        some = Signal()  # items in memory, beside the one at the output
        load = Signal()
        next_word = Signal.like(tail)

        def after(pointer):
            return Mux(pointer == self._words - 1, 0, pointer + 1)

        m.d.comb += [
            load.eq((some | self.push) & (self.o.ready | ~self.o.valid)),
            next_word.eq(
                Mux(
                    mutant("parts.early_queue_skips_first_place", self.push, self.push & some),
                    after(tail),
                    tail,
                )
            ),
            write.en.eq(self.write),
            write.addr.eq(next_word),
            write.data.eq(self.early),
            read.en.eq(load),
            read.addr.eq(head),
            self.o.payload.eq(read.data),
        ]
        m.d.sync += tail.eq(next_word)
        self.observe = EarlyQueueObserve(storage, head, next_word, load)
        with m.If(load):
            m.d.sync += head.eq(after(head))
        with m.If(self.push & ~load):
            m.d.sync += some.eq(1)
        with m.Elif(load & ~self.push):
            m.d.sync += some.eq(mutant("parts.early_queue_forgets_rest", after(head) != tail, 0))
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += self.o.valid.eq(load)
        return m
