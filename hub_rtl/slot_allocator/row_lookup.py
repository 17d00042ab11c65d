# SPDX-License-Identifier: Apache-2.0
"""One slice of the slot allocator: packets in, memory writes out."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import CAUSE
from hub_rtl.contract.records import received_of, types_of
from hub_rtl.parts.ram_queue import RamQueue

from .issue import Issue
from .record_split import RecordSplit
from .records import COMMANDS, WaitCause, slice_types_of
from .row_pipe import RowPipe

__all__ = ["RowLookup"]


class RowLookup(wiring.Component):
    """A slice: :class:`RecordSplit` → :class:`RowPipe` → commands → :class:`Issue`.

    Latency from a record's first beat at `i_record` to `o_write`, all idle: 11 cycles for a new
    row, 8 for a known one and for a plain packet. Throughput: one beat per cycle, and one packet.
    Writes, beats and refusals leave in the order of the records. Waits for memory (`o_write`,
    `o_data`, spill) and for `o_refused`, which is always drained.

    Parameters: ``cfg``. Ports: those of the slice, see
    :class:`~hub_rtl.slot_allocator.slot_allocator.SlotAllocator`; ``o_alloc`` Out stream,
    ``reply_en``, ``reply`` In; ``o_spill`` Out stream, ``spill_done``, ``spill_reply`` In;
    ``o_overlap`` Out stream; ``strobes`` Out."""

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "i_record": In(stream.Signature(received_of(cfg, cfg.slice_bytes))),
                "o_write": Out(stream.Signature(types.write)),
                "o_data": Out(stream.Signature(types.beat)),
                "o_refused": Out(stream.Signature(types.refusal)),
                "o_alloc": Out(stream.Signature(types.alloc_request)),
                "reply_en": In(1),
                "reply": In(types.alloc_reply),
                "o_spill": Out(stream.Signature(own.spill_request)),
                "spill_done": In(1),
                "spill_reply": In(own.spill_reply),
                "o_overlap": Out(stream.Signature(own.bank)),
                "purge": In(own.purge),
                "purging": Out(1),
                "geometry_write": In(types.geometry_write),
                "region_update": In(types.region_update),
                "window_write": In(types.window_write),
                "ranges": In(own.ranges),
                "waiting": Out(own.waiting),
                "strobes": Out(own.strobes),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own, flipped = self._cfg, self._own, wiring.flipped
        m.submodules.split = split = RecordSplit(cfg)
        m.submodules.lookup = lookup = RowPipe(cfg)
        m.submodules.commands = commands = RamQueue(
            own.command, COMMANDS - 1
        )  # and one at its output
        m.submodules.issue = issue = Issue(cfg)
        wiring.connect(m, flipped(self.i_record), split.i)
        wiring.connect(m, split.o_head, lookup.i_head)
        wiring.connect(m, lookup.o_command, commands.i)
        wiring.connect(m, commands.o, issue.i_command)
        wiring.connect(m, split.o_piece, issue.i_piece)
        for inner, outer in (
            (lookup.o_alloc, self.o_alloc),
            (lookup.o_spill, self.o_spill),
            (lookup.o_overlap, self.o_overlap),
            (issue.o_write, self.o_write),
            (issue.o_data, self.o_data),
            (issue.o_refused, self.o_refused),
        ):
            wiring.connect(m, inner, flipped(outer))
        cleared = Signal()  # a register: it decides on the input's ready
        m.d.sync += cleared.eq(~lookup.clearing)
        m.d.comb += [
            split.enable.eq(cleared),
            self.clearing.eq(lookup.clearing),
            issue.reply_en.eq(self.reply_en),
            issue.reply.eq(self.reply),
            lookup.alloc_taken.eq(issue.alloc_taken),
            lookup.spill_done.eq(self.spill_done),
            lookup.spill_reply.eq(self.spill_reply),
            issue.victim_look.eq(lookup.victim_look),
            issue.victim_index.eq(lookup.victim_index),
            lookup.victim.eq(issue.victim),
            lookup.filled.eq(issue.filled),
            lookup.issue_idle.eq(issue.idle),
            lookup.purge.eq(self.purge),
            self.purging.eq(lookup.purging),
            lookup.geometry_write.eq(self.geometry_write),
            lookup.region_update.eq(self.region_update),
            lookup.window_write.eq(self.window_write),
            lookup.ranges.eq(self.ranges),
        ]
        self._tell(m, lookup, issue)
        return m

    def _tell(self, m, lookup, issue):
        """What the oldest packet waits for; the issue stage holds older ones than the lookup. And
        the counters' strobes."""
        own = self._own
        issue_waits = issue.cause != WaitCause.NONE
        waits = Signal(own.name)
        cause = Signal(CAUSE)
        m.d.comb += [
            waits.eq(Mux(issue_waits, issue.waits, lookup.waits)),
            cause.eq(Mux(issue_waits, issue.cause, lookup.cause)),
        ]
        m.d.sync += [
            self.waiting.valid.eq(cause != WaitCause.NONE),
            self.waiting.cause.eq(cause),
            self.waiting.region.eq(waits.region),
            self.waiting.rowid.eq(waits.rowid),
        ]
        strobes = Signal(own.strobes)
        refused = self.o_refused
        m.d.comb += [
            *(strobes[name].eq(lookup.strobes[name]) for name, _ in own.lookup_strobes),
            strobes.refused.eq(refused.valid & refused.ready),
            strobes.reason.eq(refused.payload.reason),
            strobes.reports.eq(refused.valid & refused.ready & refused.payload.report),
            *(
                strobes[f"stall_{each.name.lower()}"].eq(issue.cause == each)
                for each in (
                    WaitCause.PAYLOAD,
                    WaitCause.ALLOC,
                    WaitCause.WRITE,
                    WaitCause.DATA,
                    WaitCause.REFUSED,
                )
            ),
        ]
        m.d.sync += self.strobes.eq(strobes)
