# SPDX-License-Identifier: Apache-2.0
"""ProducerControl: fence, close and close-all; owner of the decoder entries."""

from typing import NamedTuple

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REASON
from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.contract.records import CLOSE_COUNTS, types_of
from hub_rtl.parts.mutants import bug, mutant
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.stream import StreamMerge

from .close_engine import CloseEngine
from .handle_table import HandleTable
from .records import producer_types_of

__all__ = ["FENCES", "ProducerControl"]

FENCES = 8  # fences in the queue's memory; one more waits at its output
SETTLE = (
    6  # cycles from flush or mark until their status shows, with registers of the hub on the way
)


class ProducerControlObserve(NamedTuple):
    """What a proof may see of a :class:`ProducerControl`: its parts."""

    table: HandleTable
    closes: CloseEngine
    answers: StreamMerge  #: of commands and of fences
    fences: RamQueue  #: tags of fences not answered


class ProducerControl(wiring.Component):
    """Executes the producer's commands; sends news of closes with the bytes that all packet
    managers have sent.

    Contract:

    * CLOSE is refused like a store (UNKNOWN, FOREIGN, EPOCH_*, AFTER_CLOSE), or the entry becomes
      {epoch + 1, closed} in all decoders, older stores are waited for and the handle's entries
      marked in the packet managers; the answer OK says that the close is pending. One entry per
      replica goes out in a NEWS packet when its peer has drained, with the bytes sent.
    * CLOSE_ALL does so for every usable entry with that epoch and owner. EPOCH_EARLY: some entry
      was held (below) and is not closed, repeat the command.
    * FENCE marks everything; OK when every peer was seen drained after that; PEER_DEAD when a
      packet manager sank entries since the answer before. Fences that come while one is under way
      are answered together after the next.
    * While a close is pending, the epoch after the next (same bank) is held: its stores and its
      close are EPOCH_EARLY.
    * A dead peer's pending closes are dropped and counted.
    * An operation that does not exist is answered UNKNOWN.

    Latency: a close is answered 34 cycles after the command plus the time for older stores to be
    handed over; CLOSE_ALL takes one cycle per handle before that and one to list each replica; the
    entries go one per 3 cycles, up to 16 to a packet.
    Answers carry the command's tag and are not in order.

    Order and stalls: closes are executed in order. Pending closes wait per peer, none holds up
    another peer's. A fence that waits holds up nothing; ``fences`` + 1 of them wait in a queue, one
    more stalls the commands. Commands also wait for ``o_response``. Stores are never stalled.
    ``flushing`` that stays 1 (a store stuck behind a congested peer) holds up later closes and
    fences.

    Parameters: ``cfg``; ``fences``, words of their queue.

    Ports: ``i_command`` In stream(command), ``o_response`` Out stream(command_response);
    ``handle_write`` In {en, index, handle}, lost while ``clearing``;
    ``o_handle_write`` Out record ``handle_broadcast`` to all decoders; ``handle_read`` In {en,
    index}, ``handle_data`` Out handle, 2 cycles later, held (a write in the same cycle wins, the
    read is lost); ``o_flush`` Out strobe to the decoders, ``flushing`` In, one bit per lane;
    ``o_flush_merge`` Out strobe to the merges of own-rank stores, ``merging`` In, one bit per loop
    lane; ``o_mark`` Out {en, all, handle}; ``draining`` In, ``ranks`` per packet manager; ``sunk``
    In strobe, some packet manager sank an entry; ``ledger_read`` Out, ``ledger_total`` In, one per
    slice; ``peer_dead``, ``may_send`` In, ``wanted`` Out ``ranks``, ``claim`` Out {en, rank},
    ``o_news`` Out stream(flit): see :class:`~hub_rtl.producer.close_engine.CloseEngine`;
    ``pending`` Out ``ranks``; ``clearing`` Out; ``counts`` Out strobes: ``closes``,
    ``closes_dropped``, ``fences``. Source: docs/interfaces.md section 3; the paper has no close (it
    counts globally).
    """

    observe: ProducerControlObserve  # once elaborated

    def __init__(self, cfg, fences=FENCES):
        types = types_of(cfg)
        super().__init__(
            {
                "i_command": In(stream.Signature(types.command)),
                "o_response": Out(stream.Signature(types.command_response)),
                "handle_write": In(types.handle_write),
                "o_handle_write": Out(types.handle_broadcast),
                "handle_read": In(types.handle_read),
                "handle_data": Out(types.handle),
                "o_flush": Out(1),
                "flushing": In(cfg.lanes),
                "o_flush_merge": Out(1),
                "merging": In(cfg.loop_lanes),
                "o_mark": Out(types.mark),
                "draining": In(cfg.ranks).array(cfg.slices),
                "sunk": In(1),
                "ledger_read": Out(producer_types_of(cfg).ledger_read),
                "ledger_total": In(cfg.total_width).array(cfg.slices),
                "o_news": Out(stream.Signature(types.flit)),
                "wanted": Out(cfg.ranks),
                "may_send": In(cfg.ranks),
                "claim": Out(types.rank_strobe),
                "peer_dead": In(cfg.ranks),
                "pending": Out(cfg.ranks),
                "clearing": Out(1),
                "counts": Out(CLOSE_COUNTS),
            }
        )
        self._cfg, self._types, self._fences_kept = cfg, types, fences

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.table = table = HandleTable(cfg)
        m.submodules.closes = closes = CloseEngine(cfg)
        m.submodules.answers = answers = StreamMerge(self._types.command_response, 2)
        wiring.connect(m, answers.o, wiring.flipped(self.o_response))
        wiring.connect(m, closes.o_news, wiring.flipped(self.o_news))
        if (asked := bug("producer.answer_withdrawn_for_dead_peer")) is not None:
            with m.If(asked & self.peer_dead.any()):
                m.d.comb += self.o_response.valid.eq(0)
        draining = Signal(cfg.ranks)
        together = self.draining[0]
        for one in self.draining[1:]:
            together = together | one
        m.d.sync += draining.eq(together)
        m.d.comb += [
            table.write.eq(self.handle_write),
            table.read.eq(self.handle_read),
            self.handle_data.eq(table.read_data),
            self.o_handle_write.eq(table.o_write),
            self.clearing.eq(table.clearing),
            table.unpend.eq(closes.unpend),
            closes.unpend_granted.eq(table.unpend_granted),
            closes.i_close.valid.eq(table.result.valid & (table.result.reason == Reason.OK)),
            closes.i_close.payload.eq(table.result.staged),
            closes.draining.eq(draining),
            self.wanted.eq(closes.wanted),
            closes.may_send.eq(self.may_send),
            self.claim.eq(closes.claim),
            closes.peer_dead.eq(self.peer_dead),
            self.ledger_read.eq(closes.ledger_read),
            self.pending.eq(closes.pending),
            self.counts.closes.eq(closes.sent),
            self.counts.closes_dropped.eq(closes.dropped),
        ]
        m.d.comb += [
            mine.eq(its) for mine, its in zip(closes.ledger_total, self.ledger_total, strict=True)
        ]

        start_fence, fence_marked = Signal(), Signal()
        fences = self._fences(m, answers.i[1], draining, start_fence, fence_marked)
        self.observe = ProducerControlObserve(table, closes, answers, fences)
        self._commands(m, table, closes, answers.i[0], fences.i, start_fence, fence_marked)
        return m

    def _fences(self, m, answer, draining, start, marked):
        """Queue of fences, and the group of them that waits for the peers. Returns the
        queue."""
        cfg = self._cfg
        m.submodules.fences = queue = RamQueue(cfg.tag_width, self._fences_kept)
        inside, group = (
            Signal(range(self._fences_kept + 2)),
            Signal(range(self._fences_kept + 2)),
        )  # in the queue; of them, covered by the mark
        waits, sunk, status = Signal(cfg.ranks), Signal(), Signal(REASON)
        busy, waiting = Signal(), Signal()
        m.d.comb += [
            # Not yet begun, and none is under way.
            start.eq(inside.any() & ~busy),
            answer.valid.eq(busy & ~waiting & queue.o.valid),
            answer.payload.tag.eq(queue.o.payload),
            answer.payload.status.eq(status),
            queue.o.ready.eq(answer.ready & busy & ~waiting),
        ]
        taken = answer.valid & answer.ready
        m.d.sync += [
            inside.eq(inside + (queue.i.valid & queue.i.ready) - taken),
            self.counts.fences.eq(taken),
            sunk.eq(sunk | self.sunk),
        ]
        with m.If(marked):
            m.d.sync += [
                busy.eq(1),
                waiting.eq(1),
                waits.eq(Const(-1, cfg.ranks)),
                group.eq(inside),
            ]
        with m.Elif(waiting):
            m.d.sync += waits.eq(
                mutant(
                    "producer.fence_ends_with_first_peer",
                    waits & draining,
                    Mux(draining.all(), waits, 0),
                )
            )
            with m.If(~waits.any()):
                m.d.sync += [
                    waiting.eq(0),
                    status.eq(
                        Mux(
                            mutant("producer.sink_at_verdict_missed", sunk | self.sunk, sunk),
                            Reason.PEER_DEAD,
                            Reason.OK,
                        )
                    ),
                    sunk.eq(0),
                ]
        with m.Elif(taken):
            m.d.sync += group.eq(group - 1)
            with m.If(group == 1):
                m.d.sync += busy.eq(0)
        return queue

    def _commands(self, m, table, closes, answer, fence, start_fence, fence_marked):
        """The sequence of a command: change the entries, wait for older stores, mark, list the
        closes, answer."""
        cfg = self._cfg
        command, count, timer = (
            Signal(self._types.command),
            Signal(cfg.handle_width),
            Signal(range(SETTLE + 1)),
        )
        index = Signal(cfg.handle_width)
        is_fence, skipped, any_ok, held, status = (
            Signal(),
            Signal(),
            Signal(),
            Signal(),
            Signal(REASON),
        )
        flushing, merging = Signal(), Signal()
        offered, close_all = self.i_command.payload, command.op == CommandOp.CLOSE_ALL
        m.d.comb += [
            # All handles with the counter's bits reversed: neighbours, often of one peer, are not
            # listed one after the other, so that the messages of all peers are on their way at the
            # same time. Numbers beyond the table are UNKNOWN there.
            index.eq(count[::-1]),
            table.close.index.eq(index),
            table.close.epoch.eq(command.epoch),
            table.close.owner.eq(command.owner),
            fence.payload.eq(offered.tag),
            self.o_mark.all.eq(is_fence | close_all),
            self.o_mark.handle.eq(command.handle),
            answer.payload.tag.eq(mutant("producer.answer_has_next_tag", command.tag, offered.tag)),
            answer.payload.status.eq(status),
        ]
        m.d.sync += [
            flushing.eq(self.flushing.any()),
            merging.eq(self.merging.any()),
        ]
        with m.If(timer.any()):
            m.d.sync += timer.eq(timer - 1)
        with m.If(table.result.valid):
            m.d.sync += [
                any_ok.eq(any_ok | (table.result.reason == Reason.OK)),
                held.eq(
                    mutant(
                        "producer.held_by_last_only", held | table.result.held, table.result.held
                    )
                ),
                status.eq(
                    mutant(
                        "producer.close_all_says_last_reason",
                        Mux(close_all, Reason.OK, table.result.reason),
                        table.result.reason,
                    )
                ),
            ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    is_fence.eq(0),
                    any_ok.eq(0),
                    held.eq(0),
                ]
                # A command goes between two fences, whatever the number of fences.
                with m.If(start_fence & ~(self.i_command.valid & ~skipped)):
                    m.d.sync += [
                        is_fence.eq(1),
                        skipped.eq(0),
                    ]
                    m.next = "FLUSH"
                with m.Elif(
                    mutant(
                        "producer.command_before_cleared",
                        self.i_command.valid & ~table.clearing,
                        self.i_command.valid,
                    )
                ):
                    m.d.sync += [
                        skipped.eq(1),
                        command.eq(offered),
                        status.eq(Reason.UNKNOWN),
                    ]
                    with m.If(offered.op == CommandOp.FENCE):
                        m.d.comb += [
                            fence.valid.eq(1),
                            self.i_command.ready.eq(fence.ready),
                        ]
                    with m.Else():
                        m.d.comb += self.i_command.ready.eq(1)
                        m.d.sync += count.eq(
                            Mux(offered.op == CommandOp.CLOSE_ALL, 0, offered.handle[::-1])
                        )
                        m.next = "WALK"
                        with m.If(
                            (offered.op != CommandOp.CLOSE) & (offered.op != CommandOp.CLOSE_ALL)
                        ):
                            m.next = "ANSWER"
            with m.State("WALK"):
                m.d.comb += table.close.valid.eq(1)
                with m.If(table.close_granted):
                    m.d.sync += count.eq(count + 1)
                    with m.If(~close_all | count.all()):
                        m.d.sync += timer.eq(3)
                        m.next = "COLLECT"
            with m.State("COLLECT"):
                with m.If(~timer.any()):
                    with m.If(close_all & held):
                        m.d.sync += status.eq(Reason.EPOCH_EARLY)
                    m.next = "FLUSH"
                    with m.If(
                        mutant("producer.empty_close_all_marks", ~any_ok, ~any_ok & ~close_all)
                    ):
                        m.next = "ANSWER"
            with m.State("FLUSH"):
                m.d.comb += self.o_flush.eq(1)
                m.d.sync += timer.eq(SETTLE)
                m.next = "FLUSHING"
            with m.State("FLUSHING"):
                with m.If(~timer.any() & ~flushing):
                    m.next = "MERGE"
            with m.State("MERGE"):
                m.d.comb += self.o_flush_merge.eq(1)
                m.d.sync += timer.eq(SETTLE)
                m.next = "MERGING"
            with m.State("MERGING"):
                with m.If(
                    mutant(
                        "producer.timer_marks_while_merging", ~timer.any() & ~merging, ~timer.any()
                    )
                ):
                    m.next = "MARK"
            with m.State("MARK"):
                m.d.comb += self.o_mark.en.eq(1)
                m.d.sync += timer.eq(SETTLE)
                m.next = "MARKED"
            with m.State("MARKED"):
                with m.If(~timer.any()):
                    m.d.comb += fence_marked.eq(is_fence)
                    m.next = "LIST"
                    with m.If(is_fence):
                        m.next = "IDLE"
            with m.State("LIST"):
                m.d.comb += closes.release.eq(1)
                with m.If(~closes.staged):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += answer.valid.eq(1)
                with m.If(answer.ready):
                    m.next = "IDLE"
