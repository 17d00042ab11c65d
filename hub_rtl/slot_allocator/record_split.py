# SPDX-License-Identifier: Apache-2.0
"""First part of a slice: what the lookup needs of each record, apart from its beats."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import BYTE, FLIT_BYTES
from hub_rtl.contract.records import received_of
from hub_rtl.parts.arbiter import any_before
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, tree_sum
from hub_rtl.parts.register_queue import RegisterQueue
from hub_rtl.parts.stream import StreamQueue

from .records import slice_types_of

__all__ = ["RecordSplit"]

RECORDS = 16  # that find room, of one beat each: those between here and the answer of a new row
FULL_RECORDS = 4  # the same, of all their parts


class RecordSplitObserve(NamedTuple):
    """What a proof may see of a :class:`RecordSplit`."""

    pieces: StreamQueue  #: the beats
    heads: RegisterQueue
    begins: Signal  #: the next beat is a record's first
    seen: Signal  #: a record was seen whose head is not made yet
    record: data.View  #: its {header, part, groups, units}


class RecordSplit(wiring.Component):
    """Splits a stream of records into heads and beats.

    Contract: of each record a head and its beats, in order. A head's ``bytes`` is the number of
    bytes that the mask names, its ``len`` is that of the span from the first to the last 16-byte
    unit with one; a mask without one counts as the first unit of the part that came. A beat's
    strobes are its part of the mask, none if it is ``lost``.

    Latency: a head is offered two cycles after its record's first beat was there, a beat two cycles
    after it came. A beat and a record per cycle. The input waits for room for its beats (16, or 4
    records) and for the two heads before.

    Parameters: ``cfg``. Ports: ``i`` In, stream(received record); ``enable`` In, 0 stops the input;
    ``o_head``, ``o_piece`` Out, streams.
    """

    observe: RecordSplitObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._own = cfg, slice_types_of(cfg)
        received = received_of(cfg, cfg.slice_bytes)
        super().__init__(
            {
                "i": In(stream.Signature(received)),
                "enable": In(1),
                "o_head": Out(stream.Signature(self._own.head)),
                "o_piece": Out(stream.Signature(self._own.piece)),
            }
        )
        struct = data.StructLayout
        #: A record's first beat. ``groups``: bytes of each 8 of its block; ``units``: with a byte.
        self._seen = struct(
            {
                "header": received["header"].shape,
                "part": received["part"].shape,
                "groups": data.ArrayLayout(BYTE.bit_length(), cfg.packet_bytes // BYTE),
                "units": cfg.packet_flits,
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        beat = self.i.p
        piece = Signal(self._own.piece)
        parts = cfg.packet_bytes // cfg.slice_bytes
        m.submodules.pieces = pieces = StreamQueue(
            self._own.piece, max(RECORDS, FULL_RECORDS * parts)
        )
        m.submodules.heads = heads = RegisterQueue(self._own.head, 2)
        wiring.connect(m, pieces.o, wiring.flipped(self.o_piece))
        wiring.connect(m, heads.o, wiring.flipped(self.o_head))

        begins = Signal(init=1)
        seen = Signal()
        record = Signal(self._seen)
        self.observe = RecordSplitObserve(pieces, heads, begins, seen, record)
        room = Signal()
        took = Signal()
        m.d.comb += [
            room.eq(self.enable & (~begins | ~seen | heads.i.ready)),
            self.i.ready.eq(room & pieces.i.ready),
            pieces.i.valid.eq(self.i.valid & room),
            took.eq(self.i.valid & self.i.ready),
            piece.data.eq(beat.data),
            piece.part.eq(beat.part),
            piece.last.eq(beat.last),
            piece.strb.eq(
                Mux(
                    mutant("slot_allocator.lost_part_is_written", beat.lost, 0),
                    0,
                    beat.mask.word_select(beat.part, cfg.slice_bytes),
                )
            ),
            pieces.i.payload.eq(piece),
        ]
        with m.If(took):
            m.d.sync += begins.eq(beat.last)
        with m.If(heads.i.ready):
            m.d.sync += seen.eq(0)
        with m.If(took & begins):
            m.d.sync += [
                seen.eq(1),
                record.header.eq(beat.header),
                record.part.eq(beat.part),
                *(
                    group.eq(tree_sum(list(beat.mask.word_select(n, BYTE))))
                    for n, group in enumerate(record.groups)
                ),
                *(
                    record.units[n].eq(beat.mask.word_select(n, FLIT_BYTES).any())
                    for n in range(cfg.packet_flits)
                ),
            ]
        m.d.comb += heads.i.valid.eq(seen)
        self._sum_up(m, record, heads.i.p)
        return m

    def _sum_up(self, m, record, head):
        """Head of the record that was seen."""
        cfg, own, header = self._cfg, self._own, record.header
        units = Signal(cfg.packet_flits)
        unit_bits = ceil_log2(cfg.packet_flits)
        per_part = cfg.slice_bytes // FLIT_BYTES
        below = Signal.like(units)  # some unit before this one
        above = Signal.like(units)  # some unit after it
        first = Signal(unit_bits)
        last = Signal(unit_bits)
        row = Signal(own.row_body)
        flat = Signal(own.plain_body)
        unit = Cat(first, header.block)
        m.d.comb += [
            units.eq(
                Mux(
                    mutant("slot_allocator.empty_record_at_first_unit", record.units.any(), 1),
                    record.units,
                    1 << record.part * per_part,
                )
            ),
            below.eq(any_before(m, units, "units_before")),
            above.eq(any_before(m, units[::-1], "units_after")[::-1]),
            first.eq(encode(units & ~below)),
            last.eq(encode(units & ~above)),
            *(row[name].eq(header[name]) for name in ("region", "epoch", "rowid")),
            row.row_off.eq(unit),
            flat.addr16.eq(unit),
            flat.phase.eq(header.phase),
            head.plain.eq(header.plain),
            head.poison.eq(header.poison),
            head.src.eq(header.rank),
            head.len.eq(last - first + 1),
            head.body.eq(Mux(header.plain, flat.as_value(), row.as_value())),
            head.bytes.eq(tree_sum(list(record.groups))),
        ]
