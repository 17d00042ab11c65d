# SPDX-License-Identifier: Apache-2.0
"""ProducerControl: fence, close and announcements; owner of the decoder entries."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REASON
from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.contract.records import CLOSE_COUNTS, record_of, types_of
from hub_rtl.parts.mutants import bug, mutant
from hub_rtl.parts.stream import StreamMerge

from .announcer import Announcer
from .close_list import SETTLE
from .fences import FENCES, Fences
from .handle_table import HandleTable
from .news_engine import NewsEngine
from .records import producer_types_of

__all__ = ["FENCES", "ProducerControl"]

ANSWER = 2  # cycles from a granted ask until its answer is seen in the registers


class ProducerControlObserve(NamedTuple):
    """What a proof may see of a :class:`ProducerControl`: its parts."""

    table: HandleTable
    engine: NewsEngine
    announcer: Announcer
    answers: StreamMerge  #: of commands, of fences, of announcements
    fences: Fences


class ProducerControl(wiring.Component):
    """Executes the producer's commands; sends news of what is promised and of closes.

    Contract:

    * ANNOUNCE is refused like a store (UNKNOWN, FOREIGN, EPOCH_*), UNKNOWN too if the handle has no
      such replica, AFTER_CLOSE if that is told already; or a tell of 16 * ``bytes16`` bytes goes to
      the replica's peer: with the 15 next ones to it, at once without ``more``, after 64 cycles at
      the latest. It waits until the tell of this replica before has gone.
    * When each replica is told and what was promised has left, once for each, the handle closes by
      itself.
    * ANNOUNCE_ALL tells 0 to every replica of that epoch and owner that is not told; of a handle
      that has told nothing this goes with its close.
    * CLOSE is refused like a store (UNKNOWN, FOREIGN, EPOCH_*, AFTER_CLOSE), or the entry becomes
      {epoch + 1, closed} in all decoders; the answer OK says that the close is pending. One entry
      per replica goes out in a NEWS packet when older stores were waited for, the handle's entries
      marked in the packet managers, and its peer has drained: kept, short or over when it was told,
      else with the bytes sent; with ``abort``, that the producer gave up.
    * CLOSE_ALL does so for every usable entry with that epoch and owner. EPOCH_EARLY, of
      ANNOUNCE_ALL too: some entry was held (below) and is not changed, repeat the command.
    * FENCE marks everything; OK when every peer was seen drained after that; PEER_DEAD when a
      packet manager sank entries since the answer before. Fences that come while one is under way
      are answered together after the next.
    * FENCE_REMOTE then asks the peers, and is answered when their memories have acknowledged all
      plain packets that had left (:class:`~hub_rtl.producer.fences.Fences`).
    * While a close is pending, the epoch after the next (same bank) is held: its stores, tells and
      its close are EPOCH_EARLY.
    * A dead peer's pending news are dropped and counted. Its sunk bytes have not left: a handle
      that promised them waits for a CLOSE.
    * An operation that does not exist is answered UNKNOWN.

    Latency: a command is answered after 7 cycles, an ANNOUNCE without ``more`` 3 more; they go one
    per cycle (of one destination one in 5), others wait for the answers before them. CLOSE_ALL and
    ANNOUNCE_ALL take one cycle per handle beside that. What is closed shares a flush of 17 cycles,
    and the time for older stores to be handed over, with all that was closed while the flush before
    was under way; then one cycle to list each replica; the entries go one per 3 cycles, up to 16 to
    a packet. Answers carry the command's tag and are not in order.

    Order and stalls: commands are executed in order. Pending news wait per peer, none holds up
    another peer's. A fence that waits holds up nothing; ``fences`` + 1 of them wait in a queue, one
    more stalls the commands. Commands also wait for ``o_response``. Stores are never stalled, nor
    is ``i_spent``, but by accesses of the entries. ``flushing`` that stays 1 (a
    store stuck behind a congested peer) holds up later closes and fences.

    Parameters: ``cfg``; ``fences``, words of their queue.

    Ports: ``i_command`` In stream(command), ``o_response`` Out stream(command_response);
    ``handle_write`` In {en, index, handle}, lost while ``clearing``; ``o_handle_write`` Out record
    ``handle_broadcast`` to all decoders; ``handle_read`` In {en, index}, ``handle_data`` Out
    handle, 2 cycles later, held (a write in the same cycle wins, the read is lost); ``o_flush`` Out
    strobe to the decoders, ``flushing`` In, one bit per lane; ``o_flush_merge`` Out strobe to the
    merges of own-rank stores, ``merging`` In, one bit per loop lane; ``o_mark`` Out {en, all,
    handle}; ``draining`` In, ``ranks`` per packet manager; ``sunk`` In strobe, some packet manager
    sank an entry; ``o_remote`` Out strobe, ``unanswered`` In, ``ranks`` per slice, ``incomplete``
    In strobe: see :class:`~hub_rtl.remote_fence.remote_fence.FenceAsks`; ``o_announce`` Out
    stream(``ledger_announce``), ``i_spent`` In stream(``spent``), ``ledger_flush`` Out,
    ``ledger_flushing`` In, ``ledger_read`` Out, ``ledger_word`` In: see
    :class:`~hub_rtl.producer.ledger.SendLedger`; ``peer_dead``, ``may_send`` In, ``wanted`` Out
    ``ranks``, ``claim`` Out {en, rank}, ``o_news`` Out stream(record): see
    :class:`~hub_rtl.producer.news_engine.NewsEngine`; ``pending`` Out ``ranks``; ``clearing`` Out;
    ``counts`` Out strobes: ``closes``, ``closes_dropped``, ``tells``, ``tells_dropped``,
    ``fences``. Source: docs/interfaces.md section 3; the paper has no close (it counts globally).
    """

    observe: ProducerControlObserve  # once elaborated

    def __init__(self, cfg, fences=FENCES):
        types, own = types_of(cfg), producer_types_of(cfg)
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
                "o_remote": Out(1),
                "unanswered": In(cfg.ranks).array(cfg.slices),
                "incomplete": In(1),
                "o_announce": Out(stream.Signature(own.ledger_announce)),
                "i_spent": In(stream.Signature(own.spent)),
                "ledger_flush": Out(1),
                "ledger_flushing": In(1),
                "ledger_read": Out(own.ledger_read),
                "ledger_word": In(own.ledger_word),
                "o_news": Out(stream.Signature(record_of(cfg, cfg.slice_bytes))),
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
        m.submodules.engine = engine = NewsEngine(cfg)
        m.submodules.answers = answers = StreamMerge(self._types.command_response, 3)
        wiring.connect(m, answers.o, wiring.flipped(self.o_response))
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
            engine.draining.eq(draining),
        ]
        self._engine(m, table, engine)
        fences = self._fences(m, answers.i[1], draining)
        announcer = self._announcer(m, table, engine, answers.i[2])
        self.observe = ProducerControlObserve(table, engine, announcer, answers, fences)
        walks = self._commands(m, table, engine, announcer, answers.i[0], fences.i)
        self._flush(m, engine, walks, fences)
        return m

    def _engine(self, m, table, engine):
        """News, between the table and the ledger."""
        wiring.connect(m, engine.o_news, wiring.flipped(self.o_news))
        wiring.connect(m, engine.o_announce, wiring.flipped(self.o_announce))
        wiring.connect(m, wiring.flipped(self.i_spent), table.i_spent)
        m.d.comb += [
            table.unpend.eq(engine.unpend),
            engine.unpend_granted.eq(table.unpend_granted),
            engine.i_close.valid.eq(table.closed.valid),
            engine.i_close.payload.eq(table.closed.close),
            engine.peer_dead.eq(self.peer_dead),
            engine.may_send.eq(self.may_send),
            engine.ledger_flushing.eq(self.ledger_flushing),
            engine.ledger_word.eq(self.ledger_word),
            *[
                getattr(self, name).eq(getattr(engine, name))
                for name in ("wanted", "claim", "ledger_flush", "ledger_read", "pending")
            ],
            self.counts.closes.eq(engine.sent),
            self.counts.closes_dropped.eq(engine.dropped),
            self.counts.tells.eq(engine.told),
            self.counts.tells_dropped.eq(engine.told_dropped),
        ]

    def _fences(self, m, answer, draining):
        """Fences, between the commands and the peers. Returns the part."""
        m.submodules.fences = fences = Fences(self._cfg, self._fences_kept)
        wiring.connect(m, fences.o_answer, answer)
        unanswered = self.unanswered[0]
        for one in self.unanswered[1:]:
            unanswered = unanswered | one
        m.d.sync += fences.unanswered.eq(unanswered)
        m.d.comb += [
            fences.draining.eq(draining),
            fences.sunk.eq(self.sunk),
            fences.peer_dead.eq(self.peer_dead),
            fences.incomplete.eq(self.incomplete),
            self.o_remote.eq(fences.o_remote),
            self.counts.fences.eq(fences.answered),
        ]
        return fences

    def _announcer(self, m, table, engine, answer):
        """Announcements, between the commands and the list of tells. Returns the part."""
        m.submodules.announcer = announcer = Announcer(self._cfg)
        wiring.connect(m, announcer.o_tell, engine.i_tell)
        wiring.connect(m, announcer.o_answer, answer)
        m.d.comb += [
            announcer.i.payload.eq(self.i_command.payload),
            *(table.ask[name].eq(announcer.ask[name]) for name, _ in announcer.ask.shape()),
            table.ask.tell.eq(announcer.ask.valid),
            announcer.result.eq(table.result),
            announcer.result.valid.eq(table.result.valid & announcer.busy),
            announcer.ask_granted.eq(table.ask_granted & announcer.ask.valid),
            announcer.telling.eq(engine.telling),
            engine.urge.eq(announcer.urge),
        ]
        return announcer

    def _flush(self, m, engine, more_closes, fences):
        """Over and over, for the fences and closes that wait: older stores are waited for, then the
        marks go; with its mark a close is listed. While more closes come one after the other, they
        are waited for."""
        timer = Signal(range(SETTLE + 1))
        is_fence = Signal()
        flushing = Signal()
        merging = Signal()
        m.d.comb += [
            self.o_mark.en.eq(engine.mark.en),
            self.o_mark.handle.eq(engine.mark.handle),
        ]
        m.d.sync += [
            flushing.eq(self.flushing.any()),
            merging.eq(self.merging.any()),
        ]
        with m.If(timer.any()):
            m.d.sync += timer.eq(timer - 1)
        with m.FSM(name="flush"):
            with m.State("IDLE"):
                m.d.sync += is_fence.eq(fences.start)
                waits = fences.start | (engine.staged & ~more_closes)
                with m.If(mutant("producer.flush_without_cause", waits, ~more_closes)):
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.comb += [
                    self.o_flush.eq(1),
                    engine.cut.eq(1),
                    fences.begun.eq(is_fence),
                ]
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
                    m.next = "LIST"
            with m.State("LIST"):
                m.d.comb += engine.release.eq(1)
                m.d.sync += timer.eq(SETTLE)
                with m.If(~engine.left):
                    m.d.comb += [
                        self.o_mark.en.eq(is_fence),
                        self.o_mark.all.eq(is_fence),
                    ]
                    m.next = "MARKED"
            with m.State("MARKED"):
                with m.If(~timer.any() | ~is_fence):
                    m.d.comb += fences.marked.eq(is_fence)
                    m.next = "IDLE"

    def _commands(self, m, table, engine, announcer, answer, fence):
        """The sequence of a command: ask the table, answer. Announcements and fences go to their
        parts. Returns whether all handles are being asked."""
        command = Signal(self._types.command)
        op, offered = command.op, self.i_command.payload
        every = Signal()
        tells = Signal()
        asks = Signal()
        walks = Signal()
        fences = Signal()
        remote = Signal()
        index = Signal(self._cfg.handle_width)
        timer = Signal(range(ANSWER + 1))
        held = Signal()
        status = Signal(REASON)
        ask, result = table.ask, table.result
        m.d.comb += [
            every.eq((op == CommandOp.CLOSE_ALL) | (op == CommandOp.ANNOUNCE_ALL)),
            tells.eq(offered.op == CommandOp.ANNOUNCE),
            remote.eq(offered.op == CommandOp.FENCE_REMOTE),
            fences.eq((offered.op == CommandOp.FENCE) | remote),
            asks.eq(~fences & (offered.op <= CommandOp.ANNOUNCE_ALL)),
            fence.p.tag.eq(offered.tag),
            fence.p.remote.eq(remote),
            answer.payload.tag.eq(mutant("producer.answer_has_next_tag", command.tag, offered.tag)),
            answer.payload.status.eq(status),
        ]
        with m.If(timer.any()):
            m.d.sync += timer.eq(timer - 1)
        with m.If(result.valid):
            m.d.sync += [
                held.eq(mutant("producer.held_by_last_only", held | result.held, result.held)),
                status.eq(
                    mutant(
                        "producer.close_all_says_last_reason",
                        Mux(every, Reason.OK, result.reason),
                        result.reason,
                    )
                ),
            ]

        with m.FSM(name="command"):
            with m.State("IDLE"):
                m.d.sync += held.eq(0)
                with m.If(
                    mutant(
                        "producer.command_before_cleared",
                        self.i_command.valid & ~table.clearing,
                        self.i_command.valid,
                    )
                ):
                    m.d.sync += [
                        command.eq(offered),
                        status.eq(Reason.UNKNOWN),
                    ]
                    with m.If(tells):
                        m.d.comb += [
                            announcer.i.valid.eq(1),
                            self.i_command.ready.eq(announcer.i.ready),
                        ]
                    with m.Elif(fences):
                        m.d.comb += [
                            fence.valid.eq(~announcer.busy),
                            self.i_command.ready.eq(fence.ready & ~announcer.busy),
                        ]
                    with m.Elif(~announcer.busy):
                        m.d.comb += self.i_command.ready.eq(1)
                        m.next = "ANSWER"
                        with m.If(asks):
                            m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += index.eq(Mux(every, 0, command.handle[::-1]))
                # A close reads what the ledger was told before.
                with m.If(~engine.telling):
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += [
                    ask.valid.eq(1),
                    ask.tell.eq(0),
                    ask.tell_rest.eq(op == CommandOp.ANNOUNCE_ALL),
                    ask.abort.eq(command.abort & (op == CommandOp.CLOSE)),
                    # All handles with the counter's bits reversed: neighbours, often of one peer,
                    # are not listed one after the other, so that the messages of all peers are on
                    # their way at the same time. Numbers beyond the table are UNKNOWN there.
                    ask.index.eq(index[::-1]),
                    ask.epoch.eq(command.epoch),
                    ask.owner.eq(command.owner),
                    walks.eq(every),
                ]
                with m.If(table.ask_granted):
                    m.d.sync += [
                        index.eq(index + 1),
                        timer.eq(ANSWER),
                    ]
                    with m.If(~every | index.all()):
                        m.next = "COLLECT"
            with m.State("COLLECT"):
                with m.If(~timer.any()):
                    m.next = "ANSWER"
                    with m.If(every & held):
                        m.d.sync += status.eq(Reason.EPOCH_EARLY)
            with m.State("ANSWER"):
                m.d.comb += answer.valid.eq(1)
                with m.If(answer.ready):
                    m.next = "IDLE"
        return walks
