# SPDX-License-Identifier: Apache-2.0
"""Issue stage of a slice: turns looked-up packets into memory writes, or sinks them."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import CAUSE, EPOCH, FLIT, FLIT_BYTES, LEN, RANK, REGION, ROWID, UNIT
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.ram_queue import RamQueue

from .records import REPLIES, Kind, WaitCause, slice_types_of

__all__ = ["Issue"]


class IssueObserve(NamedTuple):
    """What a proof may see of an :class:`Issue`."""

    replies: RamQueue  #: answers that wait
    rows: Ram  #: the RAT's data part
    is_row: Signal  #: the command, as it was decoded
    is_sink: Signal
    is_fresh: Signal
    keeps: Signal  #: it keeps its answer in the data part
    known: Signal  #: it is decoded and needs no answer
    asks: Signal  #: it is decoded and takes an answer
    next_job: data.View  #: of the packet whose beats are next {sink, masked, len, unit, name}
    next_valid: Signal
    last: data.View  #: whose packet was refused last
    whom: data.View  #: whose the command is
    some: Signal  #: a packet was refused
    repeated: Signal  #: whom is last
    active: Signal  #: a packet's pieces are taken
    sink: Signal  #: and thrown away
    masks: Signal  #: its mask flits to come
    left: Signal  #: its payload flits to come
    unit: Signal  #: of its next payload flit
    plain_strb: Signal  #: it has no mask
    mask: Signal


class Issue(wiring.Component):
    """Works off commands in order: waits for the row's address and for the end of the packet, sends
    the write and its beats.

    Owns the RAT's data part. A `fresh` command takes the next allocation answer (and keeps it in
    the data part if `install`), any other row command reads the data part; both happen here, in
    order, so a row's first packet always fills what the later ones read. A packet is issued once
    its last flit has come, because `poison` must be known when the write goes. Beats follow at one
    per cycle without a bubble to the next packet (one behind a packet of a single piece); commands
    may run one packet ahead of the beats. What is refused goes to `o_refused` and its payload is
    sunk. Strobes: all 16 bytes, the mask's bits, or none for an `err` flit.

    Latency from answer (or packet end) to `o_write`: one cycle; from command to `o_write`: two, as
    a command is decoded in its first cycle here. Waits only for `o_write`, `o_data`, `o_refused`.

    `report`: a row refused at allocation reports with its first packet; other refusals report
    unless the refusal before was for the same (source, region, epoch, RowID), or also for a plain
    packet of this source.

    Parameters: ``cfg``. Ports: ``i_command``, ``i_piece``, ``i_end`` In, streams; ``reply_en``,
    ``reply`` In, allocation answer, at most 4 unasked for; ``alloc_taken`` Out; ``o_write``,
    ``o_data``, ``o_refused`` Out, streams; ``victim_look``, ``victim_index`` In, ``victim`` Out:
    reads the data part while no command waits; ``idle`` Out, nothing is left; ``cause`` Out, the
    WaitCause that holds for the oldest packet that waits, ``waits`` Out, the row of that packet."""

    observe: IssueObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._types, self._own = cfg, types, own
        super().__init__(
            {
                "i_command": In(stream.Signature(own.command)),
                "i_piece": In(stream.Signature(own.piece)),
                "i_end": In(stream.Signature(1)),
                "reply_en": In(1),
                "reply": In(own.alloc_reply),
                "alloc_taken": Out(1),
                "o_write": Out(stream.Signature(types.write)),
                "o_data": Out(stream.Signature(types.beat)),
                "o_refused": Out(stream.Signature(types.refusal)),
                "victim_look": In(1),
                "victim_index": In(own.index_width),
                "victim": Out(own.alloc_reply),
                "idle": Out(1),
                "cause": Out(CAUSE),
                "waits": Out(own.name),
            }
        )

    def elaborate(self, platform):
        m = Module()
        own = self._own
        m.submodules.replies = replies = RamQueue(own.alloc_reply, REPLIES)
        # The command that writes an entry uses the answer itself; what it reads in that cycle is
        # not used.
        m.submodules.rows = rows = Ram(
            own.alloc_reply, own.rat_entries, quick=own.rat_entries <= 64, bypass=False
        )
        command, write, refused = self.i_command.p, self.o_write, self.o_refused
        beat = self.o_data
        answer, use_answer = Signal(own.alloc_reply), Signal()
        m.d.comb += [
            # An answer that finds the queue empty is used at once; it is queued if nobody takes it.
            answer.eq(Mux(replies.o.valid, replies.o.payload, self.reply)),
            replies.i.valid.eq(self.reply_en & (replies.o.valid | ~use_answer)),
            replies.i.payload.eq(self.reply),
            replies.o.ready.eq(use_answer),
            self.victim.eq(rows.r_data),
        ]
        # A command's first cycle decodes it and reads the data part; from the next one on `known`
        # or `asks` is 1.
        is_row, is_sink, is_fresh, keeps = Signal(), Signal(), Signal(), Signal()
        known, asks = Signal(), Signal()  # asks: it takes an answer
        answered, bad, fire, space = Signal(), Signal(), Signal(), Signal()
        row = Signal(own.alloc_reply)
        self._decode(m, fire, is_row, is_sink, is_fresh, keeps, known, asks)
        m.d.comb += [
            rows.r_en.eq(self.victim_look | self.i_command.valid),
            rows.r_addr.eq(Mux(self.victim_look, self.victim_index, command.index)),
            row.eq(Mux(is_fresh, answer, rows.r_data)),
            answered.eq(replies.o.valid | self.reply_en),
            bad.eq(is_sink | (is_row & (row.reason != Reason.OK))),
        ]

        name, write_name = (
            Signal(own.name),
            Signal(own.name),
        )  # of the command; of the packet at o_write
        next_job, next_valid, take_job = Signal(self._job()), Signal(), Signal()
        m.d.comb += [
            # Whether it is refused is known too late to choose between the two. Refusals of all
            # slices are taken in turn: a long way back, so that a slice goes on in the cycle after.
            space.eq(~next_valid & ~refused.valid & (~write.valid | write.ready)),
            fire.eq((known | (asks & answered)) & self.i_end.valid & space),
            self.i_command.ready.eq(fire),
            self.i_end.ready.eq(fire),
            use_answer.eq(fire & asks),
            self.alloc_taken.eq(use_answer),
            rows.w_en.eq(use_answer & keeps),
            rows.w_addr.eq(command.index),
            rows.w_data.eq(answer),
        ]
        self._keep_job(m, fire, bad, is_row, name, next_job, next_valid, take_job)
        self._write(m, fire, bad, is_row, row, name, write_name)
        refusals = self._refuse(m, fire, bad, is_row, is_fresh, row, name)
        beat_name, *packet = self._send(m, next_job, next_valid, take_job)
        active = packet[0]
        m.d.comb += self.idle.eq(
            ~(self.i_command.valid | next_valid | active | write.valid | beat.valid | refused.valid)
        )
        self._tell_cause(m, known, asks, answered, name, write_name, beat_name)
        self.observe = IssueObserve(
            *(replies, rows, is_row, is_sink, is_fresh, keeps, known, asks),
            *(next_job, next_valid, *refusals, *packet),
        )
        return m

    def _job(self):
        """Layout of what the beats of a packet need to know."""
        return data.StructLayout(
            {
                "sink": 1,
                "masked": 1,
                "len": LEN,
                "unit": index_width(self._cfg.packet_flits),
                "name": self._own.name,
            }
        )

    def _decode(self, m, fire, is_row, is_sink, is_fresh, keeps, known, asks):
        """A command's first cycle: what it is, and whether it takes an answer."""
        command = self.i_command.p
        fresh_row = (command.kind == Kind.ROW) & command.fresh
        m.d.sync += [
            is_row.eq(command.kind == Kind.ROW),
            is_sink.eq(command.kind == Kind.SINK),
            is_fresh.eq(command.fresh),
            keeps.eq(fresh_row & command.install),
            known.eq(self.i_command.valid & ~fresh_row & ~fire),
            asks.eq(self.i_command.valid & fresh_row & ~fire),
        ]

    def _keep_job(self, m, fire, bad, is_row, name, next_job, next_valid, take_job):
        """The packet that goes waits for the beats of the one before."""
        command, own = self.i_command.p, self._own
        body = data.View(own.row_body, command.body)
        flat = data.View(own.plain_body, command.body)
        offset = Mux(is_row, body.row_off, flat.addr16)
        with m.If(take_job):
            m.d.sync += next_valid.eq(0)
        with m.If(fire):
            m.d.sync += next_valid.eq(1)
        with m.If(~next_valid):
            m.d.sync += [
                next_job.sink.eq(bad),
                next_job.masked.eq(command.masked),
                next_job.len.eq(command.len),
                next_job.unit.eq(offset),
                next_job.name.eq(name),
            ]

    def _write(self, m, fire, bad, is_row, row, name, write_name):
        """The write of the packet that goes, unless it is refused."""
        command, write, own = self.i_command.p, self.o_write, self._own
        body = data.View(own.row_body, command.body)
        flat = data.View(own.plain_body, command.body)
        with m.If(write.ready):
            m.d.sync += write.valid.eq(0)
        with m.If(fire & ~bad):
            m.d.sync += write.valid.eq(1)
        with m.If(
            ~write.valid | write.ready
        ):  # whether there is one is known later than what it would be
            context = write.p.context
            m.d.sync += [
                write.p.beats.eq(command.len),
                write_name.eq(name),
                write.p.addr.eq(
                    Mux(
                        is_row,
                        row.addr + Cat(Const(0, UNIT), body.row_off),
                        Cat(Const(0, UNIT), flat.addr16),
                    )
                ),
                context.counted.eq(is_row | command.counted),
                context.plain.eq(~is_row),
                context.bytes.eq(command.bytes),
                context.poison.eq(command.poison | self.i_end.payload),
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

    def _refuse(self, m, fire, bad, is_row, is_fresh, row, name):
        """The refusal of the packet that goes, and whose it is: also its name, refused or not.
        Returns {last, whom, some, repeated}."""
        command, refused = self.i_command.p, self.o_refused
        body = data.View(self._own.row_body, command.body)
        who = data.StructLayout(
            {"plain": 1, "src": RANK, "region": REGION, "epoch": EPOCH, "rowid": ROWID}
        )
        last, whom, some = (
            Signal(who),
            Signal(who),
            Signal(),
        )  # last: stays in the registers of the refusal
        repeated = Signal()  # whom is last: known when the command is decoded
        m.d.sync += repeated.eq(some & (last.as_value() == whom.as_value()))
        plain = command.reason == Reason.WINDOW  # only plain packets are refused for their window
        m.d.comb += [
            whom.plain.eq(plain),
            whom.src.eq(command.src),
            *(last[name].eq(refused.p[name]) for name, _ in who),
        ]
        with m.If(~plain & (command.kind != Kind.PLAIN)):
            m.d.comb += [
                whom.region.eq(body.region),
                whom.epoch.eq(body.epoch),
                whom.rowid.eq(body.rowid),
            ]
        m.d.comb += [
            name.region.eq(whom.region),
            name.rowid.eq(whom.rowid),
        ]
        with m.If(refused.ready):
            m.d.sync += refused.valid.eq(0)
        with m.If(fire & bad):
            m.d.sync += [
                some.eq(1),
                refused.valid.eq(1),
                refused.p.known.eq(is_row | command.known),
                refused.p.plain.eq(plain),
                refused.p.report.eq(
                    Mux(
                        is_row,
                        mutant("slot_allocator.each_packet_reported", is_fresh, 1),
                        ~repeated,
                    )
                ),
                refused.p.region.eq(whom.region),
                refused.p.epoch.eq(whom.epoch),
                refused.p.rowid.eq(whom.rowid),
                refused.p.src.eq(command.src),
                refused.p.reason.eq(Mux(is_row, row.reason, command.reason)),
                refused.p.bytes.eq(command.bytes),
            ]
        return last, whom, some, repeated

    def _send(self, m, next_job, next_valid, take_job):
        """The beats of one packet after another. Returns the row of the beat that waits, and of the
        packet whether there is one, {sink, masks, left, unit, plain_strb, mask}."""
        cfg, own = self._cfg, self._own
        active, sink = Signal(), Signal()
        masks, left = Signal(range(cfg.mask_flits + 1)), Signal(LEN)
        unit = Signal(index_width(cfg.packet_flits))
        plain_strb = Signal()  # no mask: all bytes
        piece_name, beat_name = Signal(own.name), Signal(own.name)
        mask = Signal(FLIT * cfg.mask_flits)
        piece, beat = self.i_piece, self.o_data
        take, last_piece = Signal(), Signal()
        m.d.comb += [
            piece.ready.eq(active & (masks.any() | sink | ~beat.valid | beat.ready)),
            take.eq(piece.valid & piece.ready),
            last_piece.eq(~masks.any() & (left == 1)),
            take_job.eq(next_valid & (~active | (take & last_piece))),
        ]
        with m.If(take):
            with m.If(masks.any()):
                m.d.sync += [
                    masks.eq(mutant("slot_allocator.masks_never_end", masks - 1, masks)),
                    mask.eq(Cat(mask, Mux(piece.p.err, 0, piece.p.data))[FLIT:]),
                ]
            with m.Else():
                m.d.sync += [
                    left.eq(left - 1),
                    unit.eq(mutant("slot_allocator.beats_at_one_unit", unit + 1, unit)),
                ]
            with m.If(last_piece):
                m.d.sync += active.eq(0)
        with m.If(take_job):
            m.d.sync += [
                active.eq(1),
                sink.eq(next_job.sink),
                left.eq(next_job.len),
                unit.eq(next_job.unit),
                plain_strb.eq(~next_job.masked),
                masks.eq(Mux(next_job.masked, cfg.mask_flits, 0)),
                piece_name.eq(next_job.name),
            ]
        with m.If(mutant("slot_allocator.beat_overwritten", beat.ready, beat.ready | ~active)):
            m.d.sync += beat.valid.eq(0)
        with m.If(take & ~masks.any() & ~sink):
            m.d.sync += [
                beat.valid.eq(1),
                beat.p.data.eq(piece.p.data),
                beat.p.last.eq(last_piece),
                beat_name.eq(piece_name),
                beat.p.strb.eq(
                    Mux(
                        piece.p.err,
                        0,
                        Mux(plain_strb, (1 << FLIT_BYTES) - 1, mask.word_select(unit, FLIT_BYTES)),
                    )
                ),
            ]
        return beat_name, active, sink, masks, left, unit, plain_strb, mask

    def _tell_cause(self, m, known, asks, answered, name, write_name, beat_name):
        """Why the oldest packet waits."""
        write, beat, refused = self.o_write, self.o_data, self.o_refused
        m.d.comb += self.waits.eq(name)
        with m.If(beat.valid & ~beat.ready):
            m.d.comb += [
                self.cause.eq(WaitCause.DATA),
                self.waits.eq(beat_name),
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
        with m.Elif(asks & ~answered):
            m.d.comb += self.cause.eq(WaitCause.ALLOC)
        with m.Elif((known | asks) & ~self.i_end.valid):
            m.d.comb += self.cause.eq(WaitCause.PAYLOAD)
