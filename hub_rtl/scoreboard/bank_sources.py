# SPDX-License-Identifier: Apache-2.0
"""Small sources of work for the scoreboard's pipeline: overlap reports, and the clock that notices
stalls."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REGISTER
from hub_rtl.parts.mutants import mutant

from .bank_queue import BankQueue
from .records import OpKind, scoreboard_types

__all__ = ["OverlapInbox", "StallClock"]


class OverlapInboxObserve(NamedTuple):
    """What a proof may see of an :class:`OverlapInbox`."""

    queue: BankQueue


class OverlapInbox(wiring.Component):
    """Keeps overlap pulses until the pipeline takes them; several of one bank count as one.

    Latency two cycles, never loses a bank. Order: first come, first served. None may come while
    ``clearing``. Parameters: ``cfg``. Ports: ``overlap`` In {en, region, bank}; ``o_op`` Out
    stream(op); ``clearing`` Out.
    """

    observe: OverlapInboxObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        super().__init__(
            {
                "overlap": In(self._types.bank_strobe),
                "o_op": Out(stream.Signature(self._types.op)),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        op = self.o_op.payload
        m.submodules.queue = queue = BankQueue(self._cfg)
        self.observe = OverlapInboxObserve(queue)
        m.d.comb += [
            queue.put.eq(self.overlap),
            self.clearing.eq(queue.clearing),
            op.kind.eq(OpKind.OVERLAP),
            Cat(op.bank, op.region).eq(queue.o.payload),
            self.o_op.valid.eq(queue.o.valid),
            queue.o.ready.eq(self.o_op.ready),
        ]
        return m


class StallClockObserve(NamedTuple):
    """What a proof may see of a :class:`StallClock`."""

    index: Signal  #: the bank whose tick is next
    elapsed: Signal  #: cycles since the last round


class StallClock(wiring.Component):
    """Sends one TICK to every bank four times per timeout.

    Contract: a bank whose fourth tick after its last motion comes is reported: not before
    ``timeout`` cycles without motion (the pause between two rounds is more than a quarter of it),
    and after five pauses and rounds at the latest. A round takes two to four cycles per bank. 0 is
    off. Parameters: ``cfg``. Ports: ``timeout`` In(32) cycles; ``o_op`` Out stream(op).
    """

    observe: StallClockObserve  # once elaborated

    def __init__(self, cfg):
        self._types = scoreboard_types(cfg)
        super().__init__({"timeout": In(REGISTER), "o_op": Out(stream.Signature(self._types.op))})

    def elaborate(self, platform):
        m = Module()
        op = self.o_op.payload
        elapsed = Signal(31)
        index = Signal(self._types.bank_width)
        self.observe = StallClockObserve(index, elapsed)
        due = Signal()
        # One cycle more than a quarter: a motion in the tick's own cycle must not shorten the wait.
        m.d.comb += [
            due.eq(
                mutant(
                    "scoreboard.shortest_timeout_is_off",
                    self.timeout.any(),
                    self.timeout[1:].any(),
                )
                & (elapsed > self.timeout[2:])
            ),
            op.kind.eq(OpKind.TICK),
        ]
        m.d.comb += Cat(op.bank, op.region).eq(index)
        with m.If(self.o_op.valid):
            with m.If(self.o_op.ready):
                m.d.sync += [
                    self.o_op.valid.eq(0),
                    index.eq(index + 1),
                ]
                with m.If(
                    index
                    == mutant(
                        "scoreboard.last_bank_has_no_tick",
                        self._types.banks - 1,
                        self._types.banks - 2,
                    )
                ):
                    m.d.sync += [
                        index.eq(0),
                        elapsed.eq(0),
                    ]
        with m.Else():
            m.d.sync += self.o_op.valid.eq(due)
            with m.If(~due):
                m.d.sync += elapsed.eq(Mux(self.timeout.any(), elapsed + 1, 0))
        return m
