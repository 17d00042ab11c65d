# SPDX-License-Identifier: Apache-2.0
"""Announcer: ANNOUNCE commands, one after the other without a pause."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.register_queue import RegisterQueue

from .records import producer_types_of

__all__ = ["Announcer"]

ASKED = 4  # commands of which the handle table was asked: its latency, and one that is told


class AnnouncerObserve(NamedTuple):
    """What a proof may see of an :class:`Announcer`."""

    asked: RegisterQueue  #: commands of which the table was asked
    results: RegisterQueue  #: what it said of them, in the same order
    oldest: Signal  #: {valid, command, result, told}
    recent: list  #: destinations of the commands that were asked last
    under_way: Signal  #: per cycle of the table's latency, it was asked
    is_in: dict  #: 1 in that state: SHOW, AGAIN, AWAIT


class Announcer(wiring.Component):
    """Asks the handle table of each ANNOUNCE, gives the tell to the list, answers.

    Contract: a command that the table refuses is answered with its reason; else its tell goes to
    the list once, then it is answered OK. One whose replica has a tell that has not gone yet asks
    again until it has. After a command without ``more`` all that is listed goes (``urge``), before
    its answer.

    Latency: 5 cycles from ``i`` to ``o_answer``; without ``more`` 3 more. Throughput: one command
    per cycle, but of the same destination one in 5. Order is kept: tells, and answers.

    Stalls: waits for the table, ``o_tell`` and ``o_answer``; while one asks again, those behind it
    wait.

    Parameters: ``cfg``. Ports: ``i`` In stream(command); ``ask`` Out record ``tell_ask``,
    ``ask_granted`` In, ``result`` In record ``result``, 2 cycles later; ``o_tell`` Out
    stream(``tell``); ``telling`` In, the list has not shown the ledger all; ``urge`` Out strobe;
    ``o_answer`` Out stream(command_response); ``busy`` Out.
    """

    observe: AnnouncerObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), producer_types_of(cfg)
        self._cfg, self._types, self._own = cfg, types, own
        super().__init__(
            {
                "i": In(stream.Signature(types.command)),
                "ask": Out(own.tell_ask),
                "ask_granted": In(1),
                "result": In(own.result),
                "o_tell": Out(stream.Signature(own.tell)),
                "telling": In(1),
                "urge": Out(1),
                "o_answer": Out(stream.Signature(types.command_response)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        command, result = self._types.command, self._own.result
        m.submodules.waiting = waiting = RegisterQueue(command, 2)
        m.submodules.asked = asked = RegisterQueue(command, ASKED)
        m.submodules.results = results = RegisterQueue(result, ASKED)
        m.submodules.answers = answers = RegisterQueue(self._types.command_response, 2)
        wiring.connect(m, wiring.flipped(self.i), waiting.i)
        wiring.connect(m, answers.o, wiring.flipped(self.o_answer))
        oldest = Signal(
            data.StructLayout({"valid": 1, "command": command, "result": result, "told": 1})
        )
        recent = [Signal(self._cfg.dest_width, name=f"recent{n}") for n in range(ASKED + 1)]
        under_way = Signal(2)
        waits = Signal()
        m.d.comb += [
            waits.eq(
                oldest.valid
                & (oldest.result.reason == Reason.OK)
                & mutant("producer.told_over_waiting_tell", oldest.result.wait, 0)
            ),
            results.i.payload.eq(self.result),
            self.busy.eq(waiting.o.valid | asked.o.valid | oldest.valid | answers.o.valid),
        ]
        m.d.sync += under_way.eq(Cat(self.ask_granted, under_way[0]))
        with m.FSM() as fsm:
            is_in = {}
            self.observe = AnnouncerObserve(asked, results, oldest, recent, under_way, is_in)
            with m.State("SHOW"):
                self._ask_next(m, waiting.o, waits)
                m.d.comb += results.i.valid.eq(self.result.valid)
                with m.If(waits & ~under_way.any()):
                    m.next = "AGAIN"
            with m.State("AGAIN"):
                self._ask(m, oldest.command)
                with m.If(self.ask_granted):
                    m.next = "AWAIT"
            with m.State("AWAIT"):
                with m.If(self.result.valid):
                    m.d.sync += oldest.result.eq(self.result)
                    m.next = "SHOW"
        is_in |= {name: fsm.ongoing(name) for name in fsm.encoding}
        self._tell(m, is_in["SHOW"] & ~waits, answers.i)
        return m

    def _dest(self, command):
        return Cat(command.replica[: ceil_log2(self._cfg.replicas)], command.handle)

    def _ask(self, m, command):
        m.d.comb += [
            self.ask.valid.eq(1),
            self.ask.index.eq(command.handle),
            *(self.ask[name].eq(command[name]) for name in ("epoch", "owner", "replica")),
        ]

    def _ask_next(self, m, waiting, waits):
        """Not while the oldest waits, nor while there may be one of the same destination: it would
        be told first if that one has to ask again."""
        inside, dest = self.observe, self._dest(waiting.payload)
        some = inside.asked.o.valid | inside.oldest.valid
        met = mutant(
            "producer.same_dest_overtakes",
            some & Cat(dest == before for before in inside.recent).any(),
            0,
        )
        with m.If(waiting.valid & inside.asked.i.ready & ~waits & ~met):
            self._ask(m, waiting.payload)
        m.d.comb += [
            inside.asked.i.valid.eq(self.ask_granted),
            inside.asked.i.payload.eq(waiting.payload),
            waiting.ready.eq(self.ask_granted),
        ]
        with m.If(self.ask_granted):
            for before, later in zip([dest, *inside.recent], inside.recent, strict=False):
                m.d.sync += later.eq(before)

    def _tell(self, m, known, answers):
        """The oldest command, when it is ``known`` what comes of it: told, then answered."""
        asked, results, oldest = self.observe.asked, self.observe.results, self.observe.oldest
        command, tell, more = oldest.command, self.o_tell, oldest.command.more
        good = Signal()
        done = Signal()
        next_one = Signal()
        m.d.comb += [
            good.eq(oldest.result.reason == Reason.OK),
            tell.valid.eq(
                oldest.valid
                & known
                & good
                & mutant("producer.tell_again_when_urged", ~oldest.told, 1)
                & answers.ready
            ),
            tell.p.dest.eq(self._dest(command)),
            tell.p.target.eq(oldest.result.target),
            tell.p.epoch.eq(command.epoch),
            tell.p.bytes16.eq(command.bytes16),
            answers.valid.eq(done),
            answers.p.tag.eq(command.tag),
            answers.p.status.eq(oldest.result.reason),
            self.urge.eq(done & ~more),
            next_one.eq((done | ~oldest.valid) & results.o.valid),
            results.o.ready.eq(next_one),
            asked.o.ready.eq(next_one),
        ]
        with m.If(oldest.valid & known & answers.ready):
            m.d.comb += done.eq(
                Mux(
                    more,
                    ~good | tell.ready,
                    (~good | oldest.told)
                    & mutant("producer.urged_before_ledger", ~self.telling, 1),
                )
            )
        with m.If(tell.valid & tell.ready):
            m.d.sync += oldest.told.eq(1)
        with m.If(done):
            m.d.sync += oldest.valid.eq(0)
        with m.If(next_one):
            m.d.sync += [
                oldest.valid.eq(1),
                oldest.command.eq(asked.o.payload),
                oldest.result.eq(results.o.payload),
                oldest.told.eq(0),
            ]
