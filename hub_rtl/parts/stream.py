# SPDX-License-Identifier: Apache-2.0
"""Typed stream parts: register slice, queue, round-robin merge."""

from typing import NamedTuple

from amaranth import Module, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .arbiter import RoundRobin
from .mutants import mutant
from .onehot import select

__all__ = ["StreamMerge", "StreamQueue", "StreamRegister", "StreamStage"]


class StreamRegisterObserve(NamedTuple):
    """What a proof may see of a :class:`StreamRegister`."""

    spare: Signal  #: the item behind the one that is offered
    spare_valid: Signal  #: there is one


class StreamRegister(wiring.Component):
    """Skid stage: cuts every combinational path between its two sides.

    Latency one cycle, one item per cycle, order kept, nothing lost under back-pressure. ``i.ready``
    and ``o.valid`` come from registers.

    Parameters: ``shape``, the payload. Ports: ``i`` In, ``o`` Out, streams of ``shape``.
    """

    observe: StreamRegisterObserve  # once elaborated

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._shape = shape

    def elaborate(self, platform):
        m = Module()
        spare = Signal(self._shape)
        spare_valid = Signal()
        self.observe = StreamRegisterObserve(spare, spare_valid)
        m.d.comb += self.i.ready.eq(~spare_valid)
        with m.If(
            mutant(
                "parts.register_overwrites_waiting",
                mutant(
                    "parts.register_pushed_over_waiting",
                    self.o.ready | ~self.o.valid,
                    self.o.ready | self.i.valid,
                ),
                self.o.ready | ~spare_valid,
            )
        ):
            m.d.sync += [
                self.o.valid.eq(spare_valid | self.i.valid),
                spare_valid.eq(0),
            ]
            with m.If(spare_valid):
                m.d.sync += self.o.payload.eq(spare)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.Elif(self.i.valid & ~spare_valid):
            m.d.sync += [
                spare.eq(self.i.payload),
                spare_valid.eq(mutant("parts.register_loses_spare", 1, 0)),
            ]
        return m


class StreamStage(wiring.Component):
    """Register without a spare place: half the flip-flops of a skid stage, for a consumer whose
    ``ready`` is early.

    Latency one cycle, one item per cycle, order kept. ``i.ready`` follows ``o.ready`` in the same
    cycle.

    Parameters: ``shape``, the payload. Ports: ``i`` In, ``o`` Out, streams of ``shape``.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(
            mutant("parts.stage_overwrites_waiting", self.o.ready | ~self.o.valid, 1)
        )
        with m.If(self.i.ready):
            m.d.sync += [
                self.o.valid.eq(self.i.valid),
                self.o.payload.eq(self.i.payload),
            ]
        return m


class _FifoObserve(NamedTuple):
    """What a proof may see of a :class:`_Fifo`."""

    memory: Memory  #: a ring of what waits behind the item that is offered; may be given ports
    first: Value  #: where the next item to be offered is
    last: Value  #: where one that comes in goes


class _Fifo(SyncFIFOBuffered):
    """The library's queue, its memory in sight."""

    observe: _FifoObserve  # once elaborated

    def elaborate(self, platform):
        m = super().elaborate(platform)
        memory = m.submodules.storage
        read, write = memory.read_ports[0], memory.write_ports[0]
        self.observe = _FifoObserve(memory, read.addr, write.addr)
        return m


class StreamQueueObserve(NamedTuple):
    """What a proof may see of a :class:`StreamQueue`."""

    fifo: _Fifo


class StreamQueue(wiring.Component):
    """First-in first-out queue in memory.

    Latency two cycles when empty, one item per cycle, order kept. ``level`` counts the items
    inside.

    Parameters: ``shape``, the payload; ``depth``, items, at least 3 (below that the queue would run
    at half rate). Ports: ``i`` In, ``o`` Out, streams of ``shape``; ``level`` Out, items.
    """

    observe: StreamQueueObserve  # once elaborated

    def __init__(self, shape, depth):
        if depth < 3:
            raise ValueError(
                f"depth = {depth}: must be at least 3, a shorter queue runs at half rate"
            )
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )
        self._shape, self._depth = shape, depth

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = _Fifo(width=Shape.cast(self._shape).width, depth=self._depth)
        self.observe = StreamQueueObserve(fifo)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(
                mutant("parts.queue_takes_when_full", fifo.w_rdy, fifo.w_rdy | self.o.ready)
            ),
            self.o.payload.eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(
                mutant("parts.queue_loses_when_pushed", self.o.ready, self.o.ready | self.i.valid)
            ),
            self.level.eq(fifo.level),
        ]
        return m


class StreamMergeObserve(NamedTuple):
    """What a proof may see of a :class:`StreamMerge`."""

    register: wiring.Component  #: at the output, of the class ``stage``


class StreamMerge(wiring.Component):
    """Joins ``count`` streams into one, round-robin and fair; a registered output.

    Latency one cycle, one item per cycle in total. Order is kept per input. With ``packets`` the
    payload must have fields ``first`` and ``last``, and a packet is never interleaved with another.

    Parameters: ``shape``; ``count``, 1 or more; ``packets``; ``stage``, the class of the output
    register: with :class:`StreamStage` the inputs' ``ready`` follow that of the output in the same
    cycle. Ports: ``i`` In, list of streams; ``o`` Out, stream.
    """

    observe: StreamMergeObserve  # once elaborated

    def __init__(self, shape, count, packets=False, stage=StreamRegister):
        super().__init__(
            {"i": In(stream.Signature(shape)).array(count), "o": Out(stream.Signature(shape))}
        )
        self._shape, self._count, self._packets, self._stage = shape, count, packets, stage

    def elaborate(self, platform):
        m = Module()
        m.submodules.register = register = self._stage(self._shape)
        m.submodules.arbiter = arbiter = RoundRobin(self._count)
        self.observe = StreamMergeObserve(register)
        wiring.connect(m, register.o, wiring.flipped(self.o))
        grant = arbiter.grant_onehot
        for n, i in enumerate(self.i):
            m.d.comb += [
                arbiter.requests[n].eq(i.valid),
                i.ready.eq(grant[n] & register.i.ready),
            ]
        m.d.comb += [
            register.i.valid.eq((grant & arbiter.requests).any()),
            register.i.payload.eq(select(grant, [i.payload for i in self.i])),
        ]
        taken = register.i.valid & register.i.ready
        if self._packets:
            inside = Signal()
            with m.If(taken):
                m.d.sync += inside.eq(
                    mutant(
                        "parts.merge_inside_at_first_only",
                        ~register.i.payload.last,
                        register.i.payload.first,
                    )
                )
            m.d.comb += arbiter.hold.eq(inside)
        m.d.comb += arbiter.advance.eq(mutant("parts.merge_turn_stays", taken, 0))
        return m
