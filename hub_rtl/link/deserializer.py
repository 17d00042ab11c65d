# SPDX-License-Identifier: Apache-2.0
"""Packets of 16-byte flits to records: between one of its links and a slice."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.config import ceil_log2, index_width
from hub_rtl.contract.fields import BYTE, FLIT, FLIT_BYTES, LEN, WORD
from hub_rtl.contract.packets import NEWS_ENTRIES, PacketType, Reason
from hub_rtl.contract.records import BAD_PACKET, MESSAGES, header_layout, received_of, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue

from .judge import judge
from .records import link_types_of

__all__ = ["Deserializer"]

PLACES = 8  # beats that find room; a packet has one at least
IN_FLIGHT = 4  # beats that the flits behind the one which is being written may become


class DeserializerObserve(NamedTuple):
    """What a proof may see of a :class:`Deserializer`."""

    beats: RegisterQueue  #: the beats that are there, {part, last, lost}
    sources: RegisterQueue  #: sources of the packets
    first: Signal  #: first stage {valid, data, last}, the flit as it came
    arrived: Signal  #: second stage, the flit that is being written
    checked: Signal  #: what it is, if a header
    within: Signal  #: the flit before ``first`` was not the last of its frame
    expected: Signal  #: number of the next frame
    inside: Signal  #: a packet goes on
    masks_to_come: Signal  #: its flits of the mask
    data_to_come: Signal  #: and of data
    held: Signal  #: beats that are there, not read yet


class Deserializer(wiring.Component):
    """Receiving end of one of a slice's links: checks flits as they come, makes records of packets.

    Contract: of each ROW, PLAIN and NEWS packet with a good header its source comes at
    ``o_source`` and its record's beats at ``o_beat``, both in the order of arrival: a beat as soon
    as its part is there, so a packet that the wire stops in has no last beat yet. The mask of a
    packet without mask flits is its span, that of NEWS its entries; a masked packet's is cut to its
    span. Credits are not looked at: the receive pool does. Control flits pass by as strobes.

    Latency: the source 3 cycles after its header was taken from the wire; a beat 4 cycles after its
    last flit. One flit per cycle, a beat per cycle, no gap added.

    Ordering and stalls: a source is taken before its packet's first beat. Eight beats find room.
    ``rx.tready`` is a register, and 0 only while they are not taken: the pool takes a beat per
    cycle and slice, whatever its consumer does.

    Illegal input: a bad header drops the packet to its ``tlast`` (``bad``), so does a repeated
    sequence number (``seq_error``). A packet that ends early ends in a beat that is ``lost``; one
    that does not end loses what is too much (``truncated``).

    Parameters: ``cfg``; ``slice_bytes``, 16 to ``packet_bytes``, a power of two. Ports: ``rx`` In
    AXI4-Stream; ``o_source`` Out stream(rank); ``o_beat`` Out stream(received record); ``rank``,
    ``lane`` In, own numbers; ``control`` Out {en, header}, a good control flit; ``total`` Out {en,
    rank, total}, of each good header but ACK; ``granted``, ``returned``, ``asked``, ``answered``
    Out {en, what}, what a slice told this one; ``bad`` Out ``BAD_PACKET``; ``seq_error``,
    ``truncated``, ``busy`` Out strobes. Source: docs/interfaces.md section 5, docs/formats.md.
    """

    observe: DeserializerObserve  # once elaborated

    def __init__(self, cfg, slice_bytes):
        self._cfg, self._slice_bytes = cfg, slice_bytes
        self._own = link_types_of(cfg)
        self._record = received_of(cfg, slice_bytes)
        strobe = data.StructLayout
        super().__init__(
            {
                "rx": In(AxiStream(FLIT)),
                "o_source": Out(stream.Signature(cfg.rank_width)),
                "o_beat": Out(stream.Signature(self._record)),
                "rank": In(cfg.rank_width),
                "lane": In(cfg.link_width),
                "control": Out(strobe({"en": 1, "header": FLIT})),
                "total": Out(self._own.total),
                **{name: Out(shape) for name, shape in types_of(cfg).messages.items()},
                "bad": Out(BAD_PACKET),
                "seq_error": Out(1),
                "truncated": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, size = self._cfg, self._slice_bytes
        header = self._record["header"].shape
        m.submodules.payload = payload = Ram(
            size * BYTE, PLACES, granules=size // FLIT_BYTES, bypass=False, quick=True
        )
        m.submodules.headers = headers = Ram(header, PLACES, bypass=False, quick=True)
        m.submodules.masks = masks = Ram(
            cfg.packet_bytes, PLACES, granules=cfg.mask_flits, bypass=False, quick=True
        )
        mark = {"part": self._record["part"].width, "last": 1, "lost": 1}
        m.submodules.beats = beats = RegisterQueue(data.StructLayout(mark), PLACES)
        m.submodules.sources = sources = RegisterQueue(cfg.rank_width, PLACES)
        wiring.connect(m, sources.o, wiring.flipped(self.o_source))

        first, arrived, checked, within, expected = judge(m, cfg, self.rx, self.rank, self.lane)
        m.d.comb += self.busy.eq(first.valid)
        self._tell(m, arrived, checked)
        packet_left = self._write(m, arrived, checked, payload, headers, masks, beats.i, sources.i)
        held = self._hand_out(m, payload, headers, masks, beats)
        self.observe = DeserializerObserve(
            beats, sources, first, arrived, checked, within, expected, *packet_left, held
        )
        return m

    def _tell(self, m, arrived, checked):
        """What a header says that belongs to no packet."""
        header = header_layout()(arrived.data)
        credit = header_layout(PacketType.CREDIT)(arrived.data)
        src = header.src[: self._cfg.rank_width]
        m.d.comb += [
            self.total.en.eq(checked.data | checked.control | checked.credit),
            self.total.rank.eq(src),
            self.total.total.eq(header.credit),
            self.control.en.eq(checked.control),
            self.control.header.eq(arrived.data),
            self.granted.en.eq(checked.credit & credit.grants),
            self.granted.what.total.eq(credit.granted),
            self.granted.what.back.eq(credit.back),
            self.returned.en.eq(checked.credit & credit.returns),
            self.returned.what.total.eq(credit.returned),
            self.asked.en.eq(checked.credit & credit.asks),
            self.asked.what.total.eq(credit.plains),
            self.asked.what.phase.eq(credit.phase),
            self.answered.en.eq(checked.credit & credit.answers),
            self.answered.what.bad.eq(credit.bad),
            *(getattr(self, name).what.rank.eq(src) for name in MESSAGES),
            self.bad.en.eq(checked.bad),
            self.bad.header.eq(arrived.data),
            self.bad.reason.eq(Mux(checked.bad_lane, Reason.BAD_LANE, Reason.BAD_HEADER)),
        ]
        m.d.sync += self.seq_error.eq(checked.off_sequence)

    def _fields(self, m, flit):
        """The record's header, the first unit and the mask of a packet without mask flits."""
        cfg, units = self._cfg, self._cfg.packet_flits
        row, plain, news = (
            header_layout(kind)(flit)
            for kind in (PacketType.ROW, PacketType.PLAIN, PacketType.NEWS)
        )
        fields = Signal(self._record["header"].shape)
        first = Signal(ceil_log2(units))
        span = Signal(units)
        entries = Signal(cfg.packet_bytes)
        is_plain, is_news = row.type == PacketType.PLAIN, row.type == PacketType.NEWS
        m.d.comb += [
            fields.rank.eq(row.src),
            fields.news.eq(is_news),
            fields.poison.eq(row.poison),
            fields.plain.eq(is_plain),
            fields.phase.eq(is_plain & plain.phase),
            fields.cls.eq(row.cls),
            *(fields[name].eq(row[name]) for name in ("region", "epoch", "rowid")),
            fields.block.eq(Mux(is_plain, plain.addr16, row.row_off)[len(first) :]),
            first.eq(Mux(is_news, 0, Mux(is_plain, plain.addr16, row.row_off))),
            span.eq(((1 << row.len) - 1) << first),
            entries.eq(Cat((news.count > n).replicate(WORD // BYTE) for n in range(NEWS_ENTRIES))),
        ]
        whole = Cat(bit.replicate(FLIT_BYTES) for bit in span)
        return fields, first, span, Mux(is_news, entries, whole)

    def _write(self, m, arrived, checked, payload, headers, masks, beats, sources):
        """Each flit to its place; a beat when a part is there. Returns whether a packet goes on
        and its flits to come."""
        cfg, size = self._cfg, self._slice_bytes
        header, per_part = header_layout()(arrived.data), size // FLIT_BYTES
        parts_of_flit = FLIT // size  # that a mask flit is about
        fields, first, span_now, whole = self._fields(m, arrived.data)
        inside = Signal()
        place = Signal(range(PLACES))
        packet = Signal(range(PLACES))
        masks_left = Signal(range(cfg.mask_flits + 1))
        left = Signal(LEN)
        unit = Signal.like(first)
        span = Signal.like(span_now)
        some = Signal(cfg.packet_bytes // size)  # parts of which the mask names a byte
        begins, of_mask, of_data, ends, cut = (
            Signal(name=name) for name in ("begins", "of_mask", "of_data", "ends", "cut")
        )
        number = (cfg.mask_flits - masks_left)[: index_width(cfg.mask_flits)]
        units = Signal(FLIT // FLIT_BYTES)  # of the span, those that the mask flit is about
        cover = Cat(bit.replicate(FLIT_BYTES) for bit in units)
        mask = arrived.data & mutant("link.mask_beyond_span", cover, -1)
        now = Mux(begins, first, unit)
        part = now[ceil_log2(per_part) :] if size < cfg.packet_bytes else Const(0, 1)
        m.d.comb += [
            begins.eq(checked.data),
            of_mask.eq(arrived.valid & inside & masks_left.any()),
            of_data.eq(arrived.valid & inside & ~masks_left.any()),
            units.eq(span.word_select(number, len(units))),
            ends.eq(of_data & (left == 1)),
            cut.eq((begins | of_mask | of_data) & ~ends & arrived.last),
            headers.w_en.eq(begins),
            headers.w_addr.eq(packet),
            headers.w_data.eq(fields),
            masks.w_en.eq(Mux(begins, -1, of_mask << number)),
            masks.w_addr.eq(packet),
            masks.w_data.eq(
                Mux(begins, Mux(header.masked, 0, whole), mask.replicate(cfg.mask_flits))
            ),
            payload.w_en.eq(of_data << (unit[: ceil_log2(per_part)] if per_part > 1 else 0)),
            payload.w_addr.eq(place),
            payload.w_data.eq(arrived.data.replicate(per_part)),
            sources.valid.eq(begins),
            sources.payload.eq(fields.rank),
            beats.p.part.eq(part),
            beats.p.last.eq(ends | cut),
            beats.p.lost.eq(mutant("link.cut_packet_is_whole", cut, 0)),
            beats.valid.eq(
                ends
                | mutant("link.cut_packet_never_ends", cut, 0)
                | (of_data & ~(~unit[: ceil_log2(per_part)]).any() & some.bit_select(part, 1))
            ),
        ]
        m.d.sync += [
            place.eq(place + beats.valid),
            packet.eq(packet + (beats.valid & beats.p.last)),
            self.truncated.eq(cut | ((ends | checked.control | checked.credit) & ~arrived.last)),
        ]
        with m.If(ends | cut):
            m.d.sync += inside.eq(0)
        with m.Elif(begins):
            m.d.sync += [
                inside.eq(1),
                masks_left.eq(Mux(header.masked, cfg.mask_flits, 0)),
                left.eq(header.len),
                unit.eq(first),
                span.eq(span_now),
                some.eq(
                    Cat(
                        (span_now.word_select(n, per_part)).any() & ~header.masked
                        for n in range(len(some))
                    )
                ),
            ]
        with m.If(of_mask):
            m.d.sync += [
                masks_left.eq(masks_left - 1),
                some.word_select(number, parts_of_flit).eq(
                    Cat(mask.word_select(n, size).any() for n in range(parts_of_flit))
                ),
            ]
        with m.If(of_data):
            m.d.sync += [left.eq(left - 1), unit.eq(unit + 1)]
        return inside, masks_left, left

    def _hand_out(self, m, payload, headers, masks, beats):
        """Reads the next beat when the last one has gone; keeps room for what is on its way.
        Returns the beats not read yet."""
        out = self.o_beat
        load = Signal()
        place = Signal(range(PLACES))
        packet = Signal(range(PLACES))
        held = Signal(range(PLACES + 1))  # beats that are there, not read yet
        m.d.comb += [
            load.eq(beats.o.valid & (out.ready | ~out.valid)),
            beats.o.ready.eq(load),
            *(ram.r_en.eq(load) for ram in (payload, headers, masks)),
            payload.r_addr.eq(place),
            *(ram.r_addr.eq(packet) for ram in (headers, masks)),
            out.p.data.eq(payload.r_data),
            out.p.header.eq(headers.r_data),
            out.p.mask.eq(masks.r_data),
        ]
        m.d.sync += [
            held.eq(held + beats.i.valid - load),
            # One place is being filled.
            self.rx.tready.eq(
                held < mutant("link.room_for_flits_on_their_way", PLACES - IN_FLIGHT, PLACES)
            ),
        ]
        with m.If(out.ready | ~out.valid):
            m.d.sync += out.valid.eq(load)
        with m.If(load):
            m.d.sync += [
                *(out.p[name].eq(beats.o.p[name]) for name in ("part", "last", "lost")),
                place.eq(place + 1),
                packet.eq(packet + beats.o.p.last),
            ]
        return held
