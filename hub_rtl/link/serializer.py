# SPDX-License-Identifier: Apache-2.0
"""Records to packets of 16-byte flits: between a slice and one of its links."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import BYTE, FLIT, FLIT_BYTES, WORD
from hub_rtl.contract.packets import NEWS_ENTRIES, PacketType
from hub_rtl.contract.records import header_layout, record_of, types_of
from hub_rtl.parts.arbiter import any_before
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, tree_sum
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue

__all__ = ["Serializer"]

PLACES = 2  # records that find room


class SerializerObserve(NamedTuple):
    """What a proof may see of a :class:`Serializer`."""

    payload: Ram
    masks: Ram  #: of each record
    heads: RegisterQueue  #: of the records that are there to their end
    held: Signal  #: records there to their end
    filled: Signal  #: place of the record that comes
    place: Signal  #: ... of the one that leaves
    busy: Signal  #: more flits of it come behind the one at the output:
    left: Signal  #: so many,
    masks_left: Signal  #: so many of them of its mask,
    unit: Signal  #: then this unit


class Serializer(wiring.Component):
    """Sends records as packets, one flit per cycle.

    Contract: each record becomes one packet, in order. It spans from the first to the last 16-byte
    unit with a byte in it; if a byte of the span is missing, the packet is ``masked``: mask flits
    for the whole block follow the header. Entries of announcements become a NEWS packet, never
    masked. Bytes that the mask does not name are sent as 0. ``src``,
    ``lane``, ``seq``, credits and ``crc`` of the header are 0, for the link to fill.

    Latency: the header is valid 3 cycles after the record's last beat, when idle. Throughput: never
    a gap inside a packet, nor between two when records come fast enough; a beat per cycle in.
    Ordering and stalls: room for two records, one is filled while the other leaves; ``ready`` is a
    register. Illegal input: none is checked; a mask has a byte, and beats are there for just the
    parts that have one.

    Parameters: ``cfg``; ``slice_bytes``, 16 to ``packet_bytes``, a power of two. Ports:
    ``i_record`` In stream(record), ``o_packet`` Out stream(flit). Source: docs/formats.md (header),
    docs/interfaces.md section 4 (masked packets).
    """

    observe: SerializerObserve  # once elaborated

    def __init__(self, cfg, slice_bytes):
        super().__init__(
            {
                "i_record": In(stream.Signature(record_of(cfg, slice_bytes))),
                "o_packet": Out(stream.Signature(types_of(cfg).flit)),
            }
        )
        self._cfg, self._slice_bytes = cfg, slice_bytes
        units = cfg.packet_flits
        #: What a packet is made of, beside its payload. ``length``: units of the span.
        self._head = data.StructLayout(
            {
                "flit": FLIT,
                "some": units,
                "first": ceil_log2(units),
                "length": units.bit_length(),
                "masked": 1,
            }
        )

    def elaborate(self, platform):
        m = Module()
        parts = self._cfg.packet_bytes // self._slice_bytes
        m.submodules.payload = payload = Ram(
            self._slice_bytes * BYTE, PLACES * parts, bypass=False, quick=True
        )
        m.submodules.masks = masks = Ram(self._cfg.packet_bytes, PLACES, bypass=False, quick=True)
        m.submodules.heads = heads = RegisterQueue(self._head, PLACES)
        held = Signal(range(PLACES + 1))
        leaves = Signal()
        ends, filled = self._take(m, payload, masks)
        m.d.sync += heads.i.valid.eq(ends)
        self._measure(m, ends, heads.i.payload)
        sending = self._send(m, heads.o, payload, masks, leaves)
        self.observe = SerializerObserve(payload, masks, heads, held, filled, *sending)

        held_next = Signal.like(held)
        m.d.comb += held_next.eq(held + ends - leaves)
        m.d.sync += [
            held.eq(held_next),
            self.i_record.ready.eq(
                held_next != mutant("link.third_record_let_in", PLACES, PLACES + 1)
            ),
        ]
        return m

    def _at(self, place, part):
        """Address of a record's part in the payload memory."""
        return Cat(part[: ceil_log2(self._cfg.packet_bytes // self._slice_bytes)], place)

    def _take(self, m, payload, masks):
        """Stores beats, 0 for the bytes that are not there, and with the last one the mask.
        Returns: a record ends, its place."""
        beat = self.i_record.p
        place = Signal()
        ends = Signal()
        mask = Signal(self._slice_bytes)
        there = Cat(bit.replicate(BYTE) for bit in mask)
        m.d.comb += [
            mask.eq(beat.mask.word_select(beat.part, self._slice_bytes)),
            payload.w_en.eq(self.i_record.valid & self.i_record.ready),
            payload.w_addr.eq(self._at(place, beat.part)),
            payload.w_data.eq(beat.data & mutant("link.bytes_without_mask", there, -1)),
            ends.eq(payload.w_en & beat.last),
            masks.w_en.eq(ends),
            masks.w_addr.eq(place),
            masks.w_data.eq(beat.mask),
        ]
        with m.If(ends):
            m.d.sync += place.eq(~place)
        return ends, place

    def _measure(self, m, ends, head):
        """First step: which units have a byte, and all. Second: span and header."""
        beat, units, entry_bytes = self.i_record.p, self._cfg.packet_flits, WORD // BYTE
        header = Signal.like(beat.header)
        some = Signal(units)
        whole = Signal(units)
        entries = Signal(min(NEWS_ENTRIES, self._cfg.packet_bytes // entry_bytes))
        with m.If(ends):
            m.d.sync += [
                header.eq(beat.header),
                entries.eq(Cat(beat.mask[n * entry_bytes] for n in range(len(entries)))),
                *(
                    bits[n].eq(kind(beat.mask.word_select(n, FLIT_BYTES)))
                    for n in range(units)
                    for bits, kind in ((some, lambda unit: unit.any()), (whole, lambda u: u.all()))
                ),
            ]
        below = Signal(units)  # some unit before this one
        above = Signal(units)  # some unit after it
        m.d.comb += [
            below.eq(any_before(m, some, "some_before")),
            above.eq(any_before(m, some[::-1], "some_after")[::-1]),
        ]
        last = Signal(ceil_log2(units))
        missing = (some | (below & above)) & mutant("link.holes_of_units_only", ~whole, ~some)
        m.d.comb += [
            head.some.eq(some),
            head.first.eq(encode(some & ~below)),
            last.eq(encode(some & ~above)),
            head.length.eq(last - head.first + 1),
            head.masked.eq(
                mutant("link.odd_news_masked", missing.any() & ~header.news, missing.any())
            ),
        ]
        kinds = {
            kind: Signal(header_layout(kind), name=f"header_{kind.name.lower()}")
            for kind in (PacketType.ROW, PacketType.PLAIN, PacketType.NEWS)
        }
        row, plain, news = kinds.values()
        for kind, view in kinds.items():
            m.d.comb += [
                view.type.eq(kind),
                view.cls.eq(header.cls),
                view.masked.eq(head.masked),
                view.dst.eq(header.rank),
                view.len.eq(head.length),
            ]
        unit = Cat(head.first, header.block)
        m.d.comb += [
            *(row[name].eq(header[name]) for name in ("region", "epoch", "rowid")),
            row.row_off.eq(unit),
            plain.addr16.eq(unit),
            plain.phase.eq(header.phase),
            news.count.eq(tree_sum(list(entries))),
            head.flit.eq(
                Mux(
                    header.news,
                    news.as_value(),
                    Mux(header.plain, plain.as_value(), row.as_value()),
                )
            ),
        ]

    def _send(self, m, heads, payload, masks, leaves):
        """Header, mask flits, units; what stands behind the flit being loaded is read ahead."""
        head, flit, mask_flits = heads.payload, self.o_packet.p, self._cfg.mask_flits
        units_per_part = self._slice_bytes // FLIT_BYTES
        busy = Signal()
        place = Signal()
        masks_left = Signal(range(mask_flits + 1))
        left = Signal(range(self._cfg.frame_flits))
        unit = Signal(len(head.first))
        ahead = Signal(len(head.first))
        load = Signal()
        of_unit = Signal()
        last = Signal()
        m.d.comb += [
            load.eq(self.o_packet.ready | ~self.o_packet.valid),
            of_unit.eq(load & busy & (masks_left == 0)),
            last.eq(left == 1),
            leaves.eq(load & busy & last),
            heads.ready.eq(leaves),
            ahead.eq(Mux(busy, unit + of_unit, head.first)),
            payload.r_en.eq(1),
            payload.r_addr.eq(self._at(place, ahead[ceil_log2(units_per_part) :])),
            masks.r_en.eq(1),
            masks.r_addr.eq(mutant("link.mask_of_other_record", place, ~place)),
        ]
        word = payload.r_data.word_select(unit[: ceil_log2(units_per_part)], FLIT)
        there = mutant("link.absent_unit_is_old", head.some.bit_select(unit, 1), 1)
        number = (mask_flits - masks_left)[: ceil_log2(mask_flits)]
        mask = masks.r_data.word_select(number, FLIT)
        with m.If(load):
            m.d.sync += [
                self.o_packet.valid.eq(busy | heads.valid),
                flit.first.eq(~busy),
                flit.last.eq(busy & last),
            ]
            with m.If(~busy):
                m.d.sync += [
                    flit.data.eq(head.flit),
                    busy.eq(heads.valid),
                    masks_left.eq(Mux(head.masked, mask_flits, 0)),
                    left.eq(head.length + Mux(head.masked, mask_flits, 0)),
                    unit.eq(head.first),
                ]
            with m.Else():
                m.d.sync += [
                    flit.data.eq(Mux(of_unit, Mux(there, word, 0), mask)),
                    masks_left.eq(masks_left - ~of_unit),
                    left.eq(left - 1),
                    unit.eq(ahead),
                    busy.eq(~last),
                    place.eq(mutant("link.next_from_same_place", place ^ last, place)),
                ]
        return place, busy, left, masks_left, unit
