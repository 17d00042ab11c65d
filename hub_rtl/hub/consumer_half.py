# SPDX-License-Identifier: Apache-2.0
"""Consumer half of the hub: slot allocator, memory writers, scoreboard and the 64-bit memory port,
wired together."""

from typing import NamedTuple

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hub_rtl.contract.axi import Axi4, Axi4Write
from hub_rtl.contract.fields import ADDR, BYTE, REGISTER, WORD
from hub_rtl.contract.records import MEMORY_COUNTS, READY_COUNTS, WAITING, received_of, types_of
from hub_rtl.memory.flag_port import SpillPortMerge
from hub_rtl.memory.memory import MemoryWriter
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.placing import placer
from hub_rtl.parts.stream import StreamMerge, StreamStage
from hub_rtl.remote_fence.remote_fence import FenceAnswers
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator

from .news_split import NewsSplit

__all__ = ["HubConsumer"]


class HubConsumerObserve(NamedTuple):
    """What a proof may see of a :class:`HubConsumer`: its parts."""

    allocator: SlotAllocator
    scoreboard: ReadinessScoreboard
    flag_port: SpillPortMerge
    refusals: StreamMerge
    writers: list  #: MemoryWriter per slice
    splits: list  #: NewsSplit per slice
    news: StreamMerge  #: entries of all slices
    answers: list  #: FenceAnswers per slice


class HubConsumer(wiring.Component):
    """Everything from received records to memory and events.

    Contract, latency, stalls: as of its parts. Refusals of all slices are merged into one stream,
    one per cycle; the scoreboard takes each within a few cycles, and ``refusal_valid`` and
    ``refusal`` show each as it is taken, for those who report. So are the entries of NEWS packets,
    which wait for the scoreboard alone, and which it always takes.

    Parameters: ``cfg``; ``library``, where lane-level parts are shared, or None. Ports: per slice
    ``i_record``, ``mem``, ``waiting``, ``outstanding``, ``memory_counts``, ``news_lost``,
    ``asked``, ``o_answer``; ``close_taken``; ``o_event``; ``spill`` (64-bit AXI4, also flags);
    region side ``i_command``, ``command_error``, ``geometry_write``, ``window_write``,
    ``dep_write``, ``dep_busy``, ``query``, ``status``, ``missing_from``, ``silent``, ``timeout``,
    ``o_timeout``; ``refusal_valid``, ``refusal`` Out; ``obs_alloc``; ``alloc_counts``,
    ``ready_counts``, ``flag_error``; ``purging``, ``clearing`` Out. Source: architecture section 3.
    """

    observe: HubConsumerObserve  # once elaborated

    def __init__(self, cfg, library=None):
        t, record = types_of(cfg), received_of(cfg, cfg.slice_bytes)
        self._cfg, self._place = cfg, placer(library)
        super().__init__(
            {
                "i_record": In(stream.Signature(record)).array(cfg.slices),
                "mem": Out(Axi4Write(ADDR, cfg.slice_bytes * BYTE)).array(cfg.slices),
                "waiting": Out(WAITING).array(cfg.slices),
                "outstanding": Out(range(cfg.write_depth + 1)).array(cfg.slices),
                "memory_counts": Out(MEMORY_COUNTS).array(cfg.slices),
                "news_lost": Out(cfg.slices),
                "asked": In(t.messages["asked"]).array(cfg.slices),
                "o_answer": Out(stream.Signature(t.answer)).array(cfg.slices),
                "close_taken": Out(1),
                "o_event": Out(stream.Signature(t.event)),
                "spill": Out(Axi4(ADDR, WORD)),
                "i_command": In(stream.Signature(t.region_order)),
                "command_error": Out(t.command_error),
                "geometry_write": In(t.geometry_write),
                "window_write": In(t.window_write),
                "dep_write": In(t.dep_write),
                "dep_busy": Out(1),
                "query": In(t.bank_name),
                "status": Out(t.status),
                "missing_from": Out(cfg.ranks),
                "silent": Out(cfg.ranks),
                "timeout": In(REGISTER),
                "o_timeout": Out(t.bank_strobe),
                "refusal_valid": Out(1),
                "refusal": Out(t.refusal),
                "obs_alloc": Out(t.obs_alloc),
                "alloc_counts": Out(t.alloc_counts),
                "ready_counts": Out(READY_COUNTS),
                "flag_error": Out(1),
                "purging": Out(1),
                "clearing": Out(1, init=1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.allocator = allocator = SlotAllocator(cfg)
        m.submodules.scoreboard = scoreboard = ReadinessScoreboard(cfg)
        m.submodules.flag_port = flag_port = SpillPortMerge()
        m.submodules.refusals = refusals = StreamMerge(
            types_of(cfg).refusal, cfg.slices, stage=StreamStage
        )
        writers = [
            self._place("moehub_memory_writer", lambda: MemoryWriter(cfg))
            for _ in range(cfg.slices)
        ]
        m.submodules.news = news = StreamMerge(types_of(cfg).news, cfg.slices, stage=StreamStage)
        splits = [self._place("moehub_news_split", lambda: NewsSplit(cfg)) for _ in writers]
        answers = [self._place("moehub_fence_answers", lambda: FenceAnswers(cfg)) for _ in writers]
        self.observe = HubConsumerObserve(
            allocator, scoreboard, flag_port, refusals, writers, splits, news, answers
        )
        for n, (writer, split) in enumerate(zip(writers, splits, strict=True)):
            m.submodules[f"writer{n}"] = writer
            m.submodules[f"split{n}"] = split
            connect(m, flipped(self.i_record[n]), split.i_record)
            connect(m, split.o_record, allocator.i_record[n])
            connect(m, split.o_news, news.i[n])
            connect(m, allocator.o_write[n], writer.i_write)
            connect(m, allocator.o_data[n], writer.i_data)
            connect(m, allocator.o_refused[n], answers[n].i_refused)
            connect(m, answers[n].o_refused, refusals.i[n])
            connect(m, writer.mem, flipped(self.mem[n]))
            connect(m, writer.o_ack, scoreboard.i_ack[n])
            m.d.comb += [
                writer.quiesce.eq(scoreboard.quiesce),
                self.waiting[n].eq(allocator.waiting[n]),
                self.outstanding[n].eq(writer.outstanding),
                self.memory_counts[n].eq(writer.counts),
                self.news_lost[n].eq(split.lost),
            ]
        connect(m, refusals.o, scoreboard.i_refused)
        connect(m, news.o, scoreboard.i_news)
        taken = mutant("hub.entry_counted_while_offered", news.o.valid & news.o.ready, news.o.valid)
        m.d.comb += self.close_taken.eq(taken & news.o.payload.close)
        connect(m, flipped(self.i_command), scoreboard.i_command)
        connect(m, scoreboard.o_event, flipped(self.o_event))
        connect(m, allocator.spill, flag_port.spill)
        connect(m, scoreboard.o_flag, flag_port.i_flag)
        connect(m, flag_port.mem, flipped(self.spill))

        for n, (each, writer) in enumerate(zip(answers, writers, strict=True)):
            m.submodules[f"answers{n}"] = each
            self._answer(m, n, each, writer.o_ack)
        self._configure(m, allocator, scoreboard)
        m.d.comb += [
            allocator.region_update.eq(scoreboard.o_region_update),
            allocator.rows_query.eq(scoreboard.rows_query),
            scoreboard.rows.eq(allocator.rows),
            allocator.purge.eq(scoreboard.purge),
            scoreboard.purging.eq(allocator.purging),
            scoreboard.quiescing.eq(
                mutant(
                    "hub.quiescing_of_first_writer",
                    Cat(writer.quiescing for writer in writers).any(),
                    writers[0].quiescing,
                )
            ),
            scoreboard.overlap.eq(allocator.o_overlap),
        ]
        self._show(m, allocator, scoreboard, flag_port, refusals)
        counted = Cat(each.clearing for each in answers).any()
        m.d.sync += self.clearing.eq(allocator.clearing | scoreboard.clearing | counted)
        return m

    def _answer(self, m, n, answers, ack):
        """What memory acknowledges counts for remote fences as it does for the scoreboard."""
        connect(m, answers.o_answer, flipped(self.o_answer[n]))
        context, acked = ack.p.context, answers.acked
        m.d.comb += [
            answers.asked.eq(self.asked[n]),
            acked.en.eq(ack.valid & ack.ready & context.plain),
            acked.rank.eq(context.src),
            acked.phase.eq(context.phase),
            acked.bad.eq(~ack.p.ok | context.poison),
        ]

    def _configure(self, m, allocator, scoreboard):
        """Broadcasts of configuration go to every slice: the strobe through a register, what is
        written stays that long."""
        geometry_write = Signal.like(self.geometry_write)
        window_write = Signal.like(self.window_write)
        dep_write = Signal.like(self.dep_write)
        for late, early in (
            (geometry_write, self.geometry_write),
            (window_write, self.window_write),
            (dep_write, self.dep_write),
        ):
            m.d.sync += late.en.eq(early.en)
            m.d.comb += [late[name].eq(early[name]) for name, _ in early.shape() if name != "en"]
        for part in (allocator, scoreboard):
            m.d.comb += [
                part.geometry_write.eq(geometry_write),
                part.dep_write.eq(dep_write),
            ]
        m.d.comb += allocator.window_write.eq(window_write)

    def _show(self, m, allocator, scoreboard, flag_port, refusals):
        """What software asks for and counts."""
        m.d.comb += [
            scoreboard.query.eq(self.query),
            scoreboard.timeout.eq(self.timeout),
            self.status.eq(scoreboard.status),
            self.missing_from.eq(scoreboard.missing_from),
            self.silent.eq(scoreboard.silent),
            self.command_error.eq(scoreboard.command_error),
            self.o_timeout.eq(scoreboard.o_timeout),
            self.dep_busy.eq(scoreboard.dep_busy),
            self.obs_alloc.eq(allocator.obs_alloc),
            self.alloc_counts.eq(allocator.counts),
            self.ready_counts.eq(scoreboard.counts),
            self.flag_error.eq(flag_port.flag_error),
            self.purging.eq(allocator.purging),
            self.refusal_valid.eq(
                mutant(
                    "hub.refusal_counted_while_offered",
                    refusals.o.valid & refusals.o.ready,
                    refusals.o.valid,
                )
            ),
            self.refusal.eq(refusals.o.payload),
        ]
