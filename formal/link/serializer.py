# SPDX-License-Identifier: Apache-2.0
"""Promise of the sending end of a slice's link (``hub_rtl/link/serializer.py``)."""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import NEWS_ENTRIES, PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.link.serializer import Serializer
from hub_rtl.parts.onehot import tree_sum

__all__ = ["RecordsBecomePackets"]


def highest_set(bits):
    """Number of the highest set bit, 0 when none is set."""
    value = 0
    for n in range(len(bits)):
        value = Mux(bits[n], n, value)
    return value


class RecordsBecomePackets(Spec):
    """Each record leaves as one packet, in order, without a bubble: a header with its class, rank,
    place and length; mask flits exactly if a byte between its first and last unit is missing and it
    is no news; the units from the first to the last one with a byte, each byte as it came, and 0
    where the mask has none. News leave as a NEWS packet with the number of their entries.

    An arbitrary record is followed, and an arbitrary byte of it. Records are whole: a beat for each
    part with a byte, in order, all with the same header and mask.
    """

    def __init__(self, cfg, slice_bytes):
        super().__init__(cfg)
        self._slice_bytes = slice_bytes

    def build(self, m):
        cfg, size = self._cfg, self._slice_bytes
        m.submodules.dut = dut = Serializer(cfg, size)
        self.inner = observe(dut)
        self.free_inputs(dut)
        beat, out = dut.i_record, dut.o_packet
        self.place = place = self.constant(range(cfg.packet_bytes), "place")
        self.log2_size = log2_size = ceil_log2(size)
        self.part = place[log2_size:]
        self.came = Signal()
        self._records_are_whole(m, beat)

        # The byte of the record that comes, if its beat has come.
        takes, ends = moves(beat), moves(beat) & beat.p.last
        here = Signal()
        value = Signal(8)
        kind = data.StructLayout(
            {"header": beat.p.header.shape(), "mask": cfg.packet_bytes, "value": 8}
        )
        self.kept = kept = Signal(kind)
        now = Signal(kind)
        m.d.comb += [
            here.eq(takes & (beat.p.part == self.part)),
            now.header.eq(beat.p.header),
            now.mask.eq(beat.p.mask),
            now.value.eq(
                Mux(here, beat.p.data.word_select(place[:log2_size], 8), value),
            ),
        ]
        with m.If(ends):
            m.d.sync += self.came.eq(0)
        with m.Elif(here):
            m.d.sync += [self.came.eq(1), value.eq(now.value)]

        # The followed one, and the packets in front of it.
        self.last = last = moves(out) & out.p.last
        inside = Signal(3)
        self.ahead = Signal(2)
        self.follows = Signal()
        chosen = Signal()
        within = Signal()
        self.sent = Signal(range(cfg.frame_flits + 1))
        self.free(chosen)
        m.d.sync += inside.eq(inside + ends - last)
        with m.If(self.follows):
            m.d.sync += [
                self.ahead.eq(self.ahead - last),
                self.follows.eq(~(last & (self.ahead == 0))),
            ]
        with m.Elif(ends & chosen):
            m.d.sync += [self.ahead.eq(inside - last), self.follows.eq(1), kept.eq(now)]
        with m.If(moves(out)):
            full = self.sent == cfg.frame_flits
            m.d.sync += [
                within.eq(~out.p.last),
                self.sent.eq(Mux(out.p.last, 0, Mux(full, self.sent, self.sent + 1))),
            ]
        self.always("nothing invented", inside != 0, when=out.valid)
        self.always("at most three packets", inside <= 3)
        self.always("no bubble in a packet", out.valid, when=within)
        self.always("first flit marked, and only that", out.p.first == ~within, when=out.valid)
        self.always("no flit marked bad", ~out.p.err)
        self.always_held(out, "o_packet")
        wanted = self._wanted(m)
        self._judge(m, wanted)
        self._lemmas(m, wanted, value, inside, within)

    def _records_are_whole(self, m, beat):
        """Assumptions on what comes."""
        cfg, size = self._cfg, self._slice_bytes
        parts = cfg.packet_bytes // size
        some = Cat(beat.p.mask.word_select(n, size).any() for n in range(parts))
        sent = Signal(parts)
        this = Signal(parts)
        begun = Signal()
        m.d.comb += this.eq(1 << beat.p.part)
        left = some & ~sent
        # Lowest part first.
        self.suppose("records: parts in order", (left & ((this << 1) - 1)) == this, when=beat.valid)
        self.suppose("records: last beat", beat.p.last == (left == this), when=beat.valid)
        before = Signal(len(beat.p.header.as_value()) + cfg.packet_bytes)
        self.mask_before = mask_before = before[-cfg.packet_bytes :]
        beside = Cat(beat.p.header, beat.p.mask)
        with m.If(moves(beat)):
            m.d.sync += [
                before.eq(beside),
                begun.eq(~beat.p.last),
                sent.eq(Mux(beat.p.last, 0, sent | this)),
            ]
        self.suppose("records: one header", beside == before, when=beat.valid & begun)
        entries = Cat(
            beat.p.mask == (1 << 8 * n) - 1
            for n in range(1, min(NEWS_ENTRIES, cfg.packet_bytes // 8) + 1)
        )
        self.suppose("news are entries", entries.any(), when=beat.valid & beat.p.header.news)
        self.lemma("records begin", begun == (sent != 0))
        had = Cat(mask_before.word_select(n, size).any() for n in range(parts))
        self.lemma("parts sent have bytes", (sent & ~had) == 0)
        self.lemma("part sent came", self.came == sent.bit_select(self.part, 1))

    def _wanted(self, m):
        """What the followed one has to look like."""
        cfg, of = self._cfg, self.kept
        count = cfg.packet_flits
        layout = data.StructLayout(
            {
                "begin": ceil_log2(count),
                "end": ceil_log2(count),
                "length": count.bit_length(),
                "masks": 2,
                "flits": range(cfg.frame_flits + 1),
                "some": count,
                "masked": 1,
                "header": 128,
            }
        )
        wanted = Signal(layout)
        units = [of.mask.word_select(n, 16) for n in range(count)]
        whole = Cat(unit.all() for unit in units)
        in_span = Cat((wanted.begin <= n) & (n <= wanted.end) for n in range(count))
        m.d.comb += [
            wanted.some.eq(Cat(unit.any() for unit in units)),
            wanted.begin.eq(count - 1 - highest_set(wanted.some[::-1])),
            wanted.end.eq(highest_set(wanted.some)),
            wanted.length.eq(wanted.end - wanted.begin + 1),
            wanted.masked.eq((in_span & ~whole).any() & ~of.header.news),
            wanted.masks.eq(Mux(wanted.masked, cfg.mask_flits, 0)),
            wanted.flits.eq(1 + wanted.masks + wanted.length),
        ]
        kinds = PacketType.ROW, PacketType.PLAIN, PacketType.NEWS
        row, plain, news = (
            data.View(header_layout(kind), Signal(128, name=kind.name.lower())) for kind in kinds
        )
        for kind, view in zip(kinds, (row, plain, news), strict=True):
            m.d.comb += [
                view.type.eq(kind),
                view.cls.eq(of.header.cls),
                view.masked.eq(wanted.masked),
                view.dst.eq(of.header.rank),
                view.len.eq(wanted.length),
            ]
        unit = Cat(wanted.begin, of.header.block)
        m.d.comb += [
            *(row[name].eq(of.header[name]) for name in ("region", "epoch", "rowid")),
            row.row_off.eq(unit),
            plain.addr16.eq(unit),
            plain.phase.eq(of.header.phase),
            news.count.eq(tree_sum(list(of.mask)) >> 3),
            wanted.header.eq(
                Mux(
                    of.header.news,
                    news.as_value(),
                    Mux(of.header.plain, plain.as_value(), row.as_value()),
                )
            ),
        ]
        return wanted

    def _judge(self, m, wanted):
        """The flits of the followed one."""
        out, sent, of = self.parts[0].o_packet, self.sent, self.kept
        its = Signal()
        m.d.comb += its.eq(out.valid & self.follows & (self.ahead == 0))
        self.always("header as the record", out.p.data == wanted.header, when=its & (sent == 0))
        for n in range(self._cfg.mask_flits):
            self.always(
                f"mask flit {n} as the record",
                out.p.data == of.mask.word_select(n, 128),
                when=its & wanted.masked & (sent == n + 1),
            )
        is_unit = its & (sent > wanted.masks)
        unit = Signal(len(wanted.begin))
        value = Signal(8)
        m.d.comb += [
            unit.eq(wanted.begin + sent - 1 - wanted.masks),
            value.eq(out.p.data.word_select(self.place[:4], 8)),
        ]
        bit = of.mask.bit_select(self.place, 1)
        of_place = is_unit & (unit == self.place[4:])
        self.always("bytes as they came", value == of.value, when=of_place & bit)
        self.always("bytes that did not come are 0", value == 0, when=of_place & ~bit)
        self.always(
            "last flit marked, and only that", out.p.last == (sent == wanted.flits - 1), when=its
        )
        self.reach("masked packet of two units", its & out.p.last & (wanted.flits == 4))
        self.reach("news with an odd entry", its & of.header.news & ~of.mask[8] & out.p.last)
        self.reach("packets back to back", its & (sent == 0) & self.past(self.last, "ended"))

    def _lemmas(self, m, wanted, value, inside, within):
        """What the registers mean."""
        inner, out = self.inner, self.parts[0].o_packet
        heads, sent = observe(inner.heads), self.sent
        of = self.kept
        front = Signal()
        tail = Signal()
        measures = inner.heads.i.valid
        at = Signal(2)  # place of the followed one among the records held
        m.d.comb += [
            tail.eq(out.valid & ~inner.busy),
            at.eq(self.ahead - tail),
            front.eq(self.follows & (self.ahead == 0) & out.valid & inner.busy),
        ]
        held = self.follows & ~(tail & (self.ahead == 0))
        queued = heads.full[0] + heads.full[1]
        self.lemma("heads fill up", heads.full[0] | ~heads.full[1])
        self.lemma("held", inner.held == queued + measures)
        self.lemma("inside", inside == inner.held + tail)
        self.lemma("room", (inner.held <= 2) & (self.parts[0].i_record.ready <= (inner.held != 2)))
        self.lemma("ahead inside", (self.ahead < inside) & (inside <= 3), when=self.follows)
        self.lemma("sends what is there", heads.full[0] & out.valid, when=inner.busy)
        self.lemma("last flit", out.p.last == ~inner.busy, when=out.valid)
        self.lemma("first flit", out.p.first == ~within, when=out.valid)
        self.lemma("sent", (within == (sent != 0)) & (sent <= self._cfg.frame_flits))
        self.lemma("goes on", out.valid, when=within)
        self.lemma("more", (inner.left != 0) & inner.busy, when=out.valid & out.p.first)
        for name, each, there in (
            ("measured", inner.heads.i.payload, measures),
            ("first", heads.items[0], heads.full[0]),
            ("second", heads.items[1], heads.full[1]),
        ):
            length = (each.length != 0) & (each.length <= self._cfg.packet_flits)
            self.lemma(f"{name} has a unit", (each.some != 0) & length, when=there)
        self.lemma("places", inner.filled == (inner.place ^ inner.held[0]))
        head = Signal(heads.items[0].shape())
        m.d.comb += head.eq(Mux(at == queued, inner.heads.i.payload, heads.items[1]))
        with m.If((at == 0) & heads.full[0]):
            m.d.comb += head.eq(heads.items[0])
        self.lemma(
            "its head",
            (head.flit == wanted.header)
            & (head.some == wanted.some)
            & (head.first == wanted.begin)
            & (head.length == wanted.length)
            & (head.masked == wanted.masked),
            when=held,
        )
        self.lemma(
            "last one's end", sent == wanted.flits - 1, self.follows & tail & (self.ahead == 0)
        )
        self.lemma("flits to come", inner.left == wanted.flits - 1 - sent, when=front)
        self.lemma(
            "masks to come",
            inner.masks_left == Mux(wanted.masks > sent, wanted.masks - sent, 0),
            when=front,
        )
        self.lemma(
            "unit next",
            inner.unit
            == Mux(wanted.masks > sent, wanted.begin, wanted.begin + sent - wanted.masks),
            when=front,
        )
        # The mask in its memory, and as it is read.
        word = peek(m, inner.masks, inner.place ^ at[0])
        self.lemma("mask held", word == of.mask, when=held)
        self.lemma("mask read", inner.masks.r_data == of.mask, when=front)
        # The followed byte in the memory, and as it is read.
        part = self.part
        word = peek(m, inner.payload, Cat(part, inner.place ^ at[0]))
        byte = self.place[: self.log2_size]
        bit = of.mask.bit_select(self.place, 1)
        stored = Mux(bit, of.value, 0)
        part_has = of.mask.word_select(part, self._slice_bytes).any()
        self.lemma("byte held", word.word_select(byte, 8) == stored, when=held & part_has)
        self.lemma(
            "byte read",
            inner.payload.r_data.word_select(byte, 8) == stored,
            when=front & part_has & (inner.unit[ceil_log2(self._slice_bytes // 16) :] == part),
        )
        filling = peek(m, inner.payload, Cat(part, inner.filled))
        known = Mux(self.mask_before.bit_select(self.place, 1), value, 0)
        self.lemma("byte came", filling.word_select(byte, 8) == known, when=self.came)
