# SPDX-License-Identifier: Apache-2.0
"""Memory writer: commands and beats to AXI4 writes, answers back to their contexts."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import BURST_INCR, RESP_OKAY, Axi4Write
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import ADDR, AXI_LEN, BYTE
from hub_rtl.contract.records import MEMORY_COUNTS, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.stream import StreamRegister

__all__ = ["MemoryWriter"]


class MemoryWriter(wiring.Component):
    """AXI4 write master of one slice.

    Contract: one burst per command (``beats`` of ``slice_bytes``, incrementing, non-bufferable, ID
    0), its beats in order; one acknowledgement per command, in order, with the command's context
    and ``ok`` = answered OKAY. ``bready`` is always 1: no more than ``write_depth`` commands are
    ever between ``i_write`` and the taking of their acknowledgement.

    Latency: one cycle from ``i_write`` to ``awvalid`` and from ``i_data`` to ``wvalid``, one cycle
    from the answer to ``o_ack``. One beat per cycle, no bubble between bursts; one acknowledgement
    per cycle.

    Ordering and stalls: an address leaves as soon as its command is there; a beat leaves no earlier
    than its address is at ``aw``. ``i_write`` waits while ``write_depth`` commands are outstanding
    or the memory takes no address; ``i_data`` while no command is there or the memory takes no
    beat. ``quiesce`` (strobe) sets ``quiescing`` from the next cycle until every command accepted
    up to the strobe's cycle was acknowledged and its acknowledgement taken; later commands go on
    meanwhile.

    On illegal input: answers beyond the bursts written are ignored. Commands are trusted (they come
    from the slot allocator): a burst stays within 4 KiB and has as many beats as it says, ``last``
    on its last.

    Parameters: ``cfg``. Ports: ``i_write`` In stream(write); ``i_data`` In stream(beat); ``mem``
    Out :class:`~hub_rtl.contract.axi.Axi4Write`, ``slice_bytes`` wide; ``o_ack`` Out stream(ack);
    ``quiesce`` In; ``quiescing`` Out; ``outstanding`` Out 0..write_depth, commands not yet
    acknowledged and taken; ``counts`` Out ``MEMORY_COUNTS``. Source: docs/interfaces.md section 7.
    """

    def __init__(self, cfg):
        types = types_of(cfg)
        super().__init__(
            {
                "i_write": In(stream.Signature(types.write)),
                "i_data": In(stream.Signature(types.beat)),
                "mem": Out(Axi4Write(ADDR, cfg.slice_bytes * BYTE)),
                "o_ack": Out(stream.Signature(types.ack)),
                "quiesce": In(1),
                "quiescing": Out(1),
                "outstanding": Out(range(cfg.write_depth + 1)),
                "counts": Out(MEMORY_COUNTS),
            }
        )
        self._cfg, self._types = cfg, types

    def elaborate(self, platform):
        m = Module()
        types, depth = self._types, self._cfg.write_depth
        m.submodules.address = address = StreamRegister(
            data.StructLayout({"addr": ADDR, "len": AXI_LEN})
        )
        m.submodules.beat = beat = StreamRegister(types.beat)
        m.submodules.contexts = contexts = RamQueue(types.context, depth)
        m.submodules.answers = answers = RamQueue(1, depth)
        accepted = self._take_commands(m, address, contexts)
        written = self._take_beats(m, beat, accepted)
        acked = self._answer(m, contexts, answers, written)
        m.d.sync += self.outstanding.eq(
            mutant(
                "memory.accepted_lost_at_ack",
                self.outstanding + accepted - acked,
                Mux(acked, self.outstanding - 1, self.outstanding + accepted),
            )
        )
        self._quiesce(m, accepted, acked)
        self._count(m)
        return m

    def _take_commands(self, m, address, contexts):
        """Commands to addresses; the strobe of one accepted. The context queue is as deep as
        `outstanding` goes, so it always has a place."""
        command, mem = self.i_write, self.mem
        accepted = Signal()
        m.d.comb += [
            command.ready.eq(address.i.ready & (self.outstanding != self._cfg.write_depth)),
            accepted.eq(command.valid & command.ready),
            address.i.valid.eq(accepted),
            address.i.payload.addr.eq(command.payload.addr),
            address.i.payload.len.eq(
                mutant(
                    "memory.burst_one_beat_long",
                    command.payload.beats - 1,
                    command.payload.beats,
                )
            ),
            contexts.i.valid.eq(accepted),
            contexts.i.payload.eq(command.payload.context),
            mem.awvalid.eq(address.o.valid),
            mem.awaddr.eq(address.o.payload.addr),
            mem.awlen.eq(address.o.payload.len),
            mem.awsize.eq(ceil_log2(self._cfg.slice_bytes)),
            mem.awburst.eq(BURST_INCR),
            address.o.ready.eq(mem.awready),
        ]
        return accepted

    def _take_beats(self, m, beat, accepted):
        """Beats of accepted commands, one that comes with its command included; the strobe of a
        last one written."""
        mem = self.mem
        open_bursts = Signal(range(self._cfg.write_depth + 1))  # not all their beats accepted
        ended = Signal()
        written = Signal()
        has_burst = mutant(
            "memory.data_before_address",
            mutant("memory.data_waits_a_cycle", open_bursts.any() | accepted, open_bursts.any()),
            1,
        )
        m.d.comb += [
            self.i_data.ready.eq(beat.i.ready & has_burst),
            beat.i.valid.eq(self.i_data.valid & has_burst),
            beat.i.payload.eq(self.i_data.payload),
            ended.eq(beat.i.valid & beat.i.ready & self.i_data.payload.last),
            mem.wvalid.eq(beat.o.valid),
            mem.wdata.eq(beat.o.payload.data),
            mem.wstrb.eq(beat.o.payload.strb),
            mem.wlast.eq(beat.o.payload.last),
            beat.o.ready.eq(mem.wready),
            written.eq(mem.wvalid & mem.wready & mem.wlast),
        ]
        m.d.sync += open_bursts.eq(open_bursts + accepted - ended)
        return written

    def _answer(self, m, contexts, answers, written):
        """Answers meet their contexts; the strobe of an acknowledgement taken."""
        mem = self.mem
        unanswered = Signal(range(self._cfg.write_depth + 1))  # bursts written, not yet answered
        answered = Signal()
        acked = Signal()
        m.d.comb += [
            mem.bready.eq(1),
            answered.eq(
                mutant("memory.answer_to_nobody_counts", mem.bvalid & unanswered.any(), mem.bvalid)
            ),
            answers.i.valid.eq(answered),
            answers.i.payload.eq(
                mutant("memory.bad_answer_is_good", mem.bresp == RESP_OKAY, mem.bresp != 3)
            ),
            self.o_ack.valid.eq(
                mutant(
                    "memory.acknowledges_unanswered",
                    mutant(
                        "memory.acknowledgement_withdrawn",
                        contexts.o.valid & answers.o.valid,
                        contexts.o.valid & answers.o.valid & ~mem.bvalid,
                    ),
                    contexts.o.valid,
                )
            ),
            self.o_ack.payload.context.eq(contexts.o.payload),
            self.o_ack.payload.ok.eq(answers.o.payload),
            acked.eq(self.o_ack.valid & self.o_ack.ready),
            contexts.o.ready.eq(acked),
            answers.o.ready.eq(acked),
        ]
        m.d.sync += unanswered.eq(
            mutant(
                "memory.written_lost_at_answer",
                unanswered + written - answered,
                Mux(answered, unanswered - 1, unanswered + written),
            )
        )
        return acked

    def _quiesce(self, m, accepted, acked):
        """Acknowledgements come in order: counting down from what was outstanding is enough."""
        before = Signal.like(self.outstanding)
        m.d.sync += before.eq(
            Mux(
                self.quiesce,
                mutant(
                    "memory.quiesce_misses_accepted", self.outstanding + accepted, self.outstanding
                ),
                before,
            )
            - (
                acked
                & mutant("memory.quiesce_misses_ack", self.quiesce | before.any(), before.any())
            )
        )
        m.d.comb += self.quiescing.eq(before.any())

    def _count(self, m):
        """Strobes for the counters."""
        mem = self.mem
        m.d.sync += [
            self.counts.writes.eq(mem.awvalid & mem.awready),
            self.counts.beats.eq(mem.wvalid & mem.wready),
            self.counts.stall_aw.eq(mem.awvalid & ~mem.awready),
            self.counts.stall_w.eq(mem.wvalid & ~mem.wready),
        ]
