# SPDX-License-Identifier: Apache-2.0
"""Fences between their mark and their answer."""

from typing import NamedTuple

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REASON
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram_queue import RamQueue

__all__ = ["FENCES", "Fences"]

FENCES = 8  # fences in the queue's memory; one more waits at its output
BEGIN = 3  # cycles from `o_remote` until `unanswered` shows all who are asked, at most


class FencesObserve(NamedTuple):
    """What a proof may see of :class:`Fences`."""

    queue: RamQueue  #: {tag, remote} of fences not answered


class Fences(wiring.Component):
    """Keeps the fences, and the group of them that waits for the peers.

    Contract: those that wait when a flush has ``begun`` are a group: none is answered before every
    peer was seen without ``draining`` after they were ``marked``. If one of them is remote, the
    peers are asked then, and none of the group is answered before every peer that is not dead was
    seen not ``unanswered``. Status: PEER_DEAD if entries were ``sunk`` since the group before, or a
    dead peer has not answered; else INCOMPLETE if an answer said so since then; else OK. Answers
    are in order of the fences.

    Latency: two cycles from the last peer's draining to the first answer, then one per cycle; of a
    remote group two from the last peer's answer, five after it was asked at the earliest. Stalls:
    ``i`` waits while all places are taken.

    Parameters: ``cfg``; ``fences``, words of the queue. Ports: ``i`` In stream({tag, remote});
    ``o_answer`` Out stream(command_response); ``start`` Out, a flush is wanted; ``begun``,
    ``marked`` In strobes, of that flush; ``draining``, ``unanswered``, ``peer_dead`` In ``ranks``;
    ``sunk``, ``incomplete`` In strobes; ``o_remote`` Out strobe; ``answered`` Out strobe.
    """

    observe: FencesObserve  # once elaborated

    def __init__(self, cfg, fences=FENCES):
        self._item = data.StructLayout({"tag": cfg.tag_width, "remote": 1})
        super().__init__(
            {
                "i": In(stream.Signature(self._item)),
                "o_answer": Out(stream.Signature(types_of(cfg).command_response)),
                "start": Out(1),
                "begun": In(1),
                "marked": In(1),
                "draining": In(cfg.ranks),
                "unanswered": In(cfg.ranks),
                "peer_dead": In(cfg.ranks),
                "sunk": In(1),
                "incomplete": In(1),
                "o_remote": Out(1),
                "answered": Out(1),
            }
        )
        self._cfg, self._fences = cfg, fences

    def elaborate(self, platform):
        m = Module()
        answer, places = self.o_answer, range(self._fences + 2)
        m.submodules.queue = queue = RamQueue(self._item, self._fences)
        self.observe = FencesObserve(queue)
        # In the queue; of them, under the mark.
        inside, group = (Signal(places, name=name) for name in ("inside", "group"))
        comes, taken, remote, next_remote = (
            Signal(name=name) for name in ("comes", "taken", "remote", "next_remote")
        )
        waits = Signal(self._cfg.ranks)
        timer = Signal(range(BEGIN + 1))
        status = Signal(REASON)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        m.d.comb += [
            comes.eq(self.i.valid & self.i.ready),
            taken.eq(answer.valid & answer.ready),
            answer.p.tag.eq(queue.o.p.tag),
            answer.p.status.eq(status),
            queue.o.ready.eq(taken),
        ]
        m.d.sync += [
            inside.eq(inside + comes - taken),
            next_remote.eq((next_remote & ~self.begun) | (comes & self.i.p.remote)),
            self.answered.eq(taken),
        ]
        verdict = self._judge(m, remote, status)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.start.eq(inside.any())
                with m.If(self.begun):
                    m.d.sync += [
                        group.eq(inside),
                        remote.eq(mutant("producer.remote_fence_is_local", next_remote, 0)),
                        waits.eq(Const(-1, self._cfg.ranks)),
                    ]
                    m.next = "MARK"
            with m.State("MARK"):
                with m.If(self.marked):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += [
                    waits.eq(
                        mutant(
                            "producer.fence_ends_with_first_peer",
                            waits & self.draining,
                            Mux(self.draining.all(), waits, 0),
                        )
                    ),
                    timer.eq(BEGIN),
                ]
                with m.If(~waits.any() & remote):
                    m.d.comb += self.o_remote.eq(1)
                    m.next = "BEGIN"
                with m.Elif(~waits.any()):
                    m.d.comb += verdict.eq(1)
                    m.next = "ANSWER"
            with m.State("BEGIN"):
                m.d.sync += timer.eq(timer - 1)
                with m.If(~timer.any()):
                    m.next = "REMOTE"
            with m.State("REMOTE"):
                alive = mutant(
                    "producer.remote_fence_waits_for_dead",
                    self.unanswered & ~self.peer_dead,
                    self.unanswered,
                )
                with m.If(~mutant("producer.remote_fence_never_waits", alive, 0).any()):
                    m.d.comb += verdict.eq(1)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += answer.valid.eq(queue.o.valid)
                with m.If(taken):
                    m.d.sync += group.eq(group - 1)
                    with m.If(group == 1):
                        m.next = "IDLE"
        return m

    def _judge(self, m, remote, status):
        """What the group is told. Returns the strobe that says it now."""
        verdict, sunk, spoilt = (Signal(name=name) for name in ("verdict", "sunk", "spoilt"))
        lost = sunk | mutant("producer.sink_at_verdict_missed", self.sunk, 0)
        incomplete = spoilt | self.incomplete
        silent = remote & (self.unanswered & self.peer_dead).any()
        m.d.sync += [
            sunk.eq((sunk | self.sunk) & ~verdict),
            spoilt.eq(incomplete & ~(verdict & remote)),
        ]
        with m.If(verdict):
            m.d.sync += status.eq(
                Mux(
                    lost | mutant("producer.dead_peer_says_ok", silent, 0),
                    Reason.PEER_DEAD,
                    Mux(
                        mutant("producer.spoilt_says_ok", remote & incomplete, 0),
                        Reason.INCOMPLETE,
                        Reason.OK,
                    ),
                )
            )
        return verdict
