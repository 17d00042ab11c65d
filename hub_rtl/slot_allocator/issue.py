# SPDX-License-Identifier: Apache-2.0
"""Issue stage of a slice: turns looked-up packets into memory writes, or sinks them."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import CAUSE, EPOCH, FLIT_BYTES, RANK, REGION, ROWID, UNIT
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.register_queue import RegisterQueue

from .records import REPLIES, Kind, WaitCause, slice_types_of

__all__ = ["Issue"]

JOBS = 2  # packets that went and whose beats have not


class IssueObserve(NamedTuple):
    """What a proof may see of an :class:`Issue`."""

    replies: RamQueue  #: answers that wait
    rows: Ram  #: the RAT's data part
    held: Signal  #: there is a command
    now: data.View  #: {command, row, beats}
    asks: Signal  #: it takes an answer
    whom: data.View  #: whose it is
    some: Signal  #: a packet was refused
    last: data.View  #: whose packet was refused last
    repeated: Signal  #: whom is last
    jobs: RegisterQueue  #: packets whose beats have not all gone {sink, name}
    inside: Signal  #: the next beat is not its packet's first
    part: Signal  #: then its number


class Issue(wiring.Component):
    """Works off commands in order: waits for the row's address, sends the write and its beats.

    Owns the RAT's data part. A `fresh` command takes the next allocation answer (and keeps it in
    the data part if `install`), any other row command reads the data part; both happen here, in
    order, so a row's first packet always fills what the later ones read. Beats follow their write,
    one per cycle, without a bubble from packet to packet; commands may run two packets ahead of
    them. A burst has a beat for each part from the packet's first to its last: one without strobes
    stands for a part that did not come. What is refused goes to `o_refused` and its beats are sunk;
    the next command goes when it was taken.

    Latency from answer to `o_write`: one cycle; from command to `o_write`: two, as a command is
    decoded in its first cycle here. One command per cycle. Waits only for `o_write`, `o_data`,
    `o_refused`.

    `report`: a row refused at allocation reports with its first packet; other refusals report
    unless the refusal before was for the same (source, region, epoch, RowID), or also for a plain
    packet of this source.

    Parameters: ``cfg``. Ports: ``i_command``, ``i_piece`` In, streams; ``reply_en``, ``reply`` In,
    allocation answer, at most ``REPLIES`` unused; ``alloc_taken`` Out; ``o_write``, ``o_data``,
    ``o_refused`` Out, streams; ``filled`` Out, no command waits; ``victim_look``, ``victim_index``
    In, ``victim`` Out: reads the data part while ``filled``; ``idle`` Out, nothing is left;
    ``cause`` Out, the WaitCause that holds for the oldest packet that waits, ``waits`` Out, the row
    of that packet."""

    observe: IssueObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._types, self._own = cfg, types, own
        super().__init__(
            {
                "i_command": In(stream.Signature(own.command)),
                "i_piece": In(stream.Signature(own.piece)),
                "reply_en": In(1),
                "reply": In(own.alloc_reply),
                "alloc_taken": Out(1),
                "o_write": Out(stream.Signature(types.write)),
                "o_data": Out(stream.Signature(types.beat)),
                "o_refused": Out(stream.Signature(types.refusal)),
                "filled": Out(1),
                "victim_look": In(1),
                "victim_index": In(own.index_width),
                "victim": Out(own.alloc_reply),
                "idle": Out(1),
                "cause": Out(CAUSE),
                "waits": Out(own.name),
            }
        )
        struct = data.StructLayout
        #: A decoded command: it is of a row; parts of its packet, from the first to the last.
        self._now = struct({"command": own.command, "row": 1, "beats": types.write["beats"].shape})
        self._who = struct(
            {"plain": 1, "src": RANK, "region": REGION, "epoch": EPOCH, "rowid": ROWID}
        )
        self._job = struct({"sink": 1, "name": own.name})

    def elaborate(self, platform):
        m = Module()
        own = self._own
        m.submodules.replies = replies = RamQueue(own.alloc_reply, REPLIES)
        # An answer kept by one command is read by the next in the same cycle: the memory's bypass.
        m.submodules.rows = rows = Ram(
            own.alloc_reply, own.rat_entries, quick=own.rat_entries <= 64
        )
        m.submodules.jobs = jobs = RegisterQueue(self._job, JOBS)
        write, refused = self.o_write, self.o_refused
        answer = Signal(own.alloc_reply)
        use_answer = Signal()
        m.d.comb += [
            # An answer that finds the queue empty is used at once; it is queued if nobody takes it.
            answer.eq(Mux(replies.o.valid, replies.o.payload, self.reply)),
            replies.i.valid.eq(self.reply_en & (replies.o.valid | ~use_answer)),
            replies.i.payload.eq(self.reply),
            replies.o.ready.eq(use_answer),
            self.victim.eq(rows.r_data),
        ]
        held = Signal()
        asks = Signal()
        now = Signal(self._now)
        answered, bad, fire, load = (
            Signal(name=name) for name in ("answered", "bad", "fire", "load")
        )
        row = Signal(own.alloc_reply)
        whom = Signal(self._who)
        comer = self._decode(m, load, held, asks, now, whom)
        m.d.comb += [
            rows.r_en.eq(self.victim_look | (load & self.i_command.valid)),
            rows.r_addr.eq(Mux(self.victim_look, self.victim_index, self.i_command.p.index)),
            row.eq(Mux(asks, answer, rows.r_data)),
            answered.eq(replies.o.valid | self.reply_en),
            bad.eq((now.command.kind == Kind.SINK) | (now.row & (row.reason != Reason.OK))),
            # It goes when both outputs have room, whichever it takes. Refusals of all slices are
            # taken in turn: a long way back, so that a slice goes on in the cycle after.
            fire.eq(
                held
                & (~asks | answered)
                & jobs.i.ready
                & ~refused.valid
                & (~write.valid | write.ready)
            ),
            load.eq(~held | fire),
            self.i_command.ready.eq(load),
            use_answer.eq(fire & asks),
            self.alloc_taken.eq(use_answer),
            rows.w_en.eq(use_answer & now.command.install),
            rows.w_addr.eq(now.command.index),
            rows.w_data.eq(answer),
            jobs.i.valid.eq(fire),
            jobs.i.p.sink.eq(bad),
            jobs.i.p.name.region.eq(whom.region),
            jobs.i.p.name.rowid.eq(whom.rowid),
            self.filled.eq(~(self.i_command.valid | mutant("slot_allocator.held_missed", held, 0))),
            self.idle.eq(self.filled & ~(jobs.o.valid | write.valid | refused.valid)),
        ]
        write_name = Signal(own.name)
        self._write(m, fire & ~bad, now, row, whom, write_name)
        refusals = self._refuse(m, fire & bad, load, now, row, whom, comer)
        beats = self._send(m, jobs.o)
        self._tell_cause(m, held & asks & ~answered, whom, jobs.o, write_name)
        self.observe = IssueObserve(replies, rows, held, now, asks, whom, *refusals, jobs, *beats)
        return m

    def _decode(self, m, load, held, asks, now, whom):
        """A command's first cycle: what it is, and of whom. Returns whose the next one is."""
        cfg, own, command = self._cfg, self._own, self.i_command.p
        body = data.View(own.row_body, command.body)
        flat = data.View(own.plain_body, command.body)
        first = Signal(ceil_log2(cfg.packet_flits))
        last = Signal(ceil_log2(cfg.packet_flits))
        parts = ceil_log2(cfg.slice_bytes // FLIT_BYTES)
        comer = Signal(self._who)
        is_row = Signal()
        plain = command.reason == Reason.WINDOW  # only plain packets are refused for their window
        m.d.comb += [
            is_row.eq(command.kind == Kind.ROW),
            first.eq(Mux(command.kind == Kind.PLAIN, flat.addr16, body.row_off)),
            last.eq(first + command.len - 1),
            comer.plain.eq(plain),
            comer.src.eq(command.src),
        ]
        with m.If(~plain & (command.kind != Kind.PLAIN)):
            m.d.comb += [
                comer.region.eq(body.region),
                comer.epoch.eq(body.epoch),
                comer.rowid.eq(body.rowid),
            ]
        with m.If(load):
            m.d.sync += [
                held.eq(self.i_command.valid),
                asks.eq(is_row & command.fresh),
                now.command.eq(command),
                now.row.eq(is_row),
                now.beats.eq(last[parts:] - first[parts:] + 1),
                whom.eq(comer),
            ]
        return comer

    def _write(self, m, goes, now, row, whom, name):
        """The write of the packet that goes."""
        command, write, own = now.command, self.o_write, self._own
        is_row, body = now.row, data.View(own.row_body, command.body)
        flat, zeros = data.View(own.plain_body, command.body), ceil_log2(self._cfg.slice_bytes)
        with m.If(write.ready):
            m.d.sync += write.valid.eq(0)
        with m.If(goes):
            m.d.sync += write.valid.eq(1)
        # Taken over whether there is one or not: without ``valid`` it says nothing.
        with m.If(~write.valid | write.ready):
            context = write.p.context
            m.d.sync += [
                name.region.eq(whom.region),
                name.rowid.eq(whom.rowid),
                write.p.beats.eq(now.beats),
                write.p.addr.eq(
                    Mux(
                        is_row,
                        row.addr + Cat(Const(0, zeros), body.row_off[zeros - UNIT :]),
                        Cat(Const(0, zeros), flat.addr16[zeros - UNIT :]),
                    )
                ),
                context.counted.eq(is_row | command.counted),
                context.plain.eq(~is_row),
                context.bytes.eq(command.bytes),
                context.poison.eq(command.poison),
                context.src.eq(Mux(is_row, 0, whom.src)),
                context.phase.eq(~is_row & flat.phase),
                context.dep.eq(Mux(is_row, 0, command.dep)),
                context.region.eq(Mux(is_row, body.region, 0)),
                context.place.eq(Mux(is_row, row.place, 0)),
                context.bank.eq(is_row & body.epoch[0]),
                context.group.eq(
                    Mux(
                        is_row,
                        row.group,
                        Mux(command.counted, command.group_base + command.group_step, 0),
                    )
                ),
            ]

    def _refuse(self, m, goes, load, now, row, whom, comer):
        """The refusal of the packet that goes. Returns {some, last, repeated}."""
        command, refused = now.command, self.o_refused
        some = Signal()
        last = Signal(self._who)  # stays in the registers of the refusal
        repeated = Signal()  # whom is last: compared as the command is decoded
        m.d.comb += [last[name].eq(refused.p[name]) for name, _ in self._who]
        # A refusal in this very cycle is not seen; but while it waits nothing goes.
        m.d.sync += repeated.eq(some & (last.as_value() == Mux(load, comer, whom)))
        with m.If(refused.ready):
            m.d.sync += refused.valid.eq(0)
        with m.If(goes):
            m.d.sync += [
                some.eq(1),
                refused.valid.eq(1),
                refused.p.known.eq(now.row | command.known),
                refused.p.report.eq(
                    Mux(
                        now.row,
                        mutant("slot_allocator.each_packet_reported", command.fresh, 1),
                        ~repeated,
                    )
                ),
                *(refused.p[name].eq(whom[name]) for name, _ in self._who),
                refused.p.phase.eq(
                    whom.plain & data.View(self._own.plain_body, command.body).phase
                ),
                refused.p.reason.eq(Mux(now.row, row.reason, command.reason)),
                refused.p.bytes.eq(command.bytes),
            ]
        return some, last, repeated

    def _send(self, m, job):
        """The beats of one packet after another, as its pieces come: the writer has the register.
        Returns {inside, part} of the next one."""
        piece, beat = self.i_piece, self.o_data
        inside = Signal()
        part = Signal(self._own.part_width)
        hole = Signal()
        goes = Signal()
        last = Signal()
        sink = job.p.sink
        m.d.comb += [
            hole.eq(
                mutant(
                    "slot_allocator.missing_parts_left_out",
                    inside & ~sink & (piece.p.part != part),
                    0,
                )
            ),
            beat.valid.eq(job.valid & piece.valid & ~sink),
            beat.p.data.eq(piece.p.data),
            beat.p.strb.eq(
                Mux(mutant("slot_allocator.missing_part_written", hole, 0), 0, piece.p.strb)
            ),
            beat.p.last.eq(last),
            goes.eq(
                job.valid
                & piece.valid
                & mutant("slot_allocator.beat_not_awaited", sink | beat.ready, 1)
            ),
            last.eq(piece.p.last & ~hole),
            piece.ready.eq(goes & ~hole),
            job.ready.eq(goes & last),
        ]
        with m.If(goes):
            m.d.sync += [
                inside.eq(~last),
                part.eq(
                    mutant(
                        "slot_allocator.holes_never_end", Mux(inside, part, piece.p.part) + 1, part
                    )
                ),
            ]
        return inside, part

    def _tell_cause(self, m, asks, whom, job, write_name):
        """Why the oldest packet waits."""
        write, beat, refused = self.o_write, self.o_data, self.o_refused
        m.d.comb += [self.waits[name].eq(whom[name]) for name, _ in self._own.name]
        with m.If(beat.valid & ~beat.ready):
            m.d.comb += [
                self.cause.eq(WaitCause.DATA),
                self.waits.eq(job.p.name),
            ]
        with m.Elif(write.valid & ~write.ready):
            m.d.comb += [
                self.cause.eq(WaitCause.WRITE),
                self.waits.eq(write_name),
            ]
        with m.Elif(refused.valid):
            m.d.comb += [
                self.cause.eq(WaitCause.REFUSED),
                self.waits.region.eq(refused.p.region),
                self.waits.rowid.eq(refused.p.rowid),
            ]
        with m.Elif(asks):
            m.d.comb += self.cause.eq(WaitCause.ALLOC)
        with m.Elif(job.valid & ~self.i_piece.valid):
            m.d.comb += [
                self.cause.eq(WaitCause.PAYLOAD),
                self.waits.eq(job.p.name),
            ]
