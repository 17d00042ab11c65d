"""Receive side of a link lane: checks what arrives, buffers it, hands out packets that keep their word."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi import AxiStream
from ..config import ceil_log2
from .credits import CONTROL, DATA, RankStrobe, TotalsReport
from ..formats import PacketType, Reason
from ..lib.early_queue import EarlyQueue
from ..types import header_layout, types_of

__all__ = ["LinkRx", "BadHeader"]

DATA_TYPES = (PacketType.ROW, PacketType.PLAIN)
CONTROL_TYPES = (PacketType.CLOSE, PacketType.REJECT)


def BadHeader():
    """Layout {en, header, reason}: a packet was dropped for its header."""
    return data.StructLayout({"en": 1, "header": 128, "reason": 4})


class LinkRx(wiring.Component):
    """Takes every flit of the wire at once, checks headers and credits, queues packets and control flits.

    Contract: ``o_packet`` carries ROW and PLAIN packets in order of arrival, each exactly 1 + mask flits + ``len`` flits long,
    with headers that hold (type, len, span within its packet-sized block, src, dst, lane, fan); ``o_control`` CLOSE and REJECT.
    Totals in good headers go to ``totals``, in the cycle of ``accept``. ``rx.tready`` is 1 from the first cycle after reset:
    credits guarantee the place.

    Latency from a flit on the wire to ``o_packet`` three cycles, to ``o_control`` four; one flit per cycle, no gap added.

    Order: within packets and within control flits that of the wire; control never waits for packets. Packets are handed out
    while they arrive: a packet that the wire delivers with gaps has gaps here.

    On illegal input: a bad header drops the packet to its ``tlast`` (``bad``); so do a repeated sequence number (``seq_error``)
    and a source without credit (``violation``). A packet that ends early is padded with ``err`` flits, one that does not
    end loses what is too much (``truncated``). IDLE flits and ACK are skipped; an IDLE flit without ``tlast`` is a bad header.

    Parameters: ``cfg``. Ports: ``rx`` In AXI4-Stream; ``o_packet`` Out stream(flit); ``o_control`` Out stream(128); ``rank``,
    ``lane`` In; ``full``, ``control_full`` In ``ranks``; ``accept`` Out {en per class, src}; ``free``, ``control_free`` Out
    {en, rank}; ``totals`` Out :func:`~hub_rtl.links.credits.TotalsReport`; ``bad`` Out :func:`BadHeader`; ``seq_error``,
    ``violation``, ``truncated``, ``busy`` Out strobes. Source: docs/interfaces.md section 5, docs/formats.md.
    """

    def __init__(self, cfg):
        self._cfg, rank = cfg, cfg.rank_width
        strobe = RankStrobe(cfg)
        super().__init__({
            "rx": In(AxiStream(128)), "o_packet": Out(stream.Signature(types_of(cfg).flit)),
            "o_control": Out(stream.Signature(128)),
            "rank": In(rank), "lane": In(cfg.lane_width), "full": In(cfg.ranks), "control_full": In(cfg.ranks),
            "accept": Out(data.StructLayout({"en": 2, "src": rank})), "free": Out(strobe), "control_free": Out(strobe),
            "totals": Out(TotalsReport(cfg)), "bad": Out(BadHeader()),
            "seq_error": Out(1), "violation": Out(1), "truncated": Out(1), "busy": Out(1)})
        self._queue_shape = data.StructLayout({"data": 128, "last": 1})
        self._count_width = (cfg.packet_flits + cfg.mask_flits).bit_length()

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.packets = packets = EarlyQueue(self._queue_shape, (cfg.ranks - 1) * cfg.rx_credits * cfg.frame_flits)
        m.submodules.controls = controls = EarlyQueue(128, (cfg.ranks - 1) * cfg.ctl_credits)
        first, arrived, checked = self._check(m)
        m.d.comb += [packets.early.data.eq(first.data), packets.early.last.eq(first.last), packets.write.eq(first.valid),
                     controls.early.eq(arrived.data), controls.write.eq(arrived.valid)]
        self._receive(m, arrived, checked, packets, controls)
        self._hand_out(m, packets.o)
        wiring.connect(m, controls.o, wiring.flipped(self.o_control))
        m.d.sync += [
            self.control_free.en.eq(controls.o.valid & controls.o.ready),
            self.control_free.rank.eq(header_layout()(controls.o.payload).src),
        ]
        return m

    def _flits(self, header):
        """Flits after the header, by the header."""
        return (header.len + Mux(header.masked, self._cfg.mask_flits, 0))[:self._count_width]

    def _check(self, m):
        """Two register stages: the flit as it came; then the flit and, for a header, its number and its fields judged."""
        cfg = self._cfg
        flit_shape = data.StructLayout({"valid": 1, "data": 128, "last": 1})
        first = Signal(flit_shape)
        m.d.sync += [self.rx.tready.eq(1), first.valid.eq(self.rx.tvalid & self.rx.tready), first.data.eq(self.rx.tdata),
                     first.last.eq(self.rx.tlast)]
        m.d.comb += self.busy.eq(first.valid)

        header, credit_body = header_layout()(first.data), header_layout(PacketType.CREDIT)(first.data)
        kinds = {name: Signal(name=f"is_{name}") for name in ("idle", "data", "control", "credit", "ack")}
        types = {"idle": (PacketType.IDLE,), "data": DATA_TYPES, "control": CONTROL_TYPES, "credit": (PacketType.CREDIT,),
                 "ack": (PacketType.ACK,)}
        for name, values in types.items():
            m.d.comb += kinds[name].eq(sum((header.type == value for value in values), Const(0, 1)) != 0)
        # A span is good when it stays inside its packet-sized block of `packet_flits` 16-byte units.
        unit_bits = ceil_log2(cfg.packet_flits)
        unit, span, good_len, good = Signal(unit_bits), Signal(6), Signal(), Signal()
        m.d.comb += [
            unit.eq(Mux(header.type == PacketType.ROW, header_layout(PacketType.ROW)(first.data).row_off[:unit_bits],
                        header_layout(PacketType.PLAIN)(first.data).addr16[:unit_bits])),
            span.eq(unit + header.len),
            good_len.eq(Mux(kinds["data"], header.len.any() & (span <= cfg.packet_flits), ~header.len.any() & ~header.masked)),
            good.eq((kinds["data"] | kinds["control"] | kinds["credit"] | kinds["ack"]) & good_len & ~header.fan
                    & (header.src < cfg.ranks) & (header.src != self.rank) & (header.dst == self.rank)),
        ]
        # What delimits frames is ``tlast`` alone, so which flit is a header, and its number, are known before it is judged.
        within, begins, fresh, right = Signal(), Signal(), Signal(), Signal()
        expected, ahead = Signal(10), Signal(10)
        m.d.comb += [
            begins.eq(first.valid & ~within & ~(kinds["idle"] & first.last)),
            ahead.eq(header.seq - expected),
            fresh.eq(begins & ~ahead[-1]),      # less than half the numbers ahead: not a repeat
            right.eq(fresh & good & (header.lane == self.lane)),
        ]
        with m.If(first.valid):
            m.d.sync += within.eq(~first.last)
        with m.If(begins):
            m.d.sync += expected.eq(header.seq + 1)
        arrived = Signal(flit_shape)
        checked = Signal(data.StructLayout(dict.fromkeys(
            ("begins", "off_sequence", "bad", "bad_lane", "data", "control", "credit"), 1)
            | {"totals_en": 2, "total": data.ArrayLayout(8, 2)}))
        m.d.sync += [
            arrived.eq(first),
            checked.begins.eq(begins), checked.off_sequence.eq(begins & (header.seq != expected)),
            checked.bad.eq(fresh & ~(good & (header.lane == self.lane))), checked.bad_lane.eq(good),
            *(checked[name].eq(right & kinds[name]) for name in ("data", "control", "credit")),
            # Totals of a CREDIT are in its body, those of the others in the common field.
            checked.totals_en.eq(Mux(kinds["credit"], 3, (kinds["data"] | kinds["control"]) << header.credit_cls)
                                 & right.replicate(2)),
            checked.total[DATA].eq(Mux(kinds["credit"], credit_body.total0, header.credit)),
            checked.total[CONTROL].eq(Mux(kinds["credit"], credit_body.total1, header.credit)),
        ]
        return first, arrived, checked

    def _receive(self, m, arrived, checked, packets, controls):
        """Third stage: credits, and where the packet goes."""
        cfg, totals = self._cfg, self.totals
        header = header_layout()(arrived.data)
        src = header.src[:cfg.rank_width]
        inside, left = Signal(), Signal(self._count_width)      # of an accepted packet: it goes on, flits to come
        has_room, accepted = Signal(2), Signal(2)
        m.d.comb += [
            has_room[DATA].eq(~self.full.bit_select(src, 1)), has_room[CONTROL].eq(~self.control_full.bit_select(src, 1)),
            accepted[DATA].eq(checked.data & has_room[DATA]),
            accepted[CONTROL].eq(checked.control & has_room[CONTROL]),
            self.accept.en.eq(accepted), self.accept.src.eq(src),
            packets.push.eq(accepted[DATA] | (arrived.valid & inside)),
            self.bad.en.eq(checked.bad), self.bad.header.eq(arrived.data),
            self.bad.reason.eq(Mux(checked.bad_lane, Reason.BAD_LANE, Reason.BAD_HEADER)),
            totals.src.eq(src), totals.en.eq(checked.totals_en), totals.total.eq(checked.total),
        ]
        m.d.sync += [
            self.seq_error.eq(checked.off_sequence),
            self.violation.eq((checked.data & ~has_room[DATA]) | (checked.control & ~has_room[CONTROL])),
            controls.push.eq(accepted[CONTROL]),
        ]

        m.d.sync += self.truncated.eq(0)
        with m.If(checked.begins):
            m.d.sync += [left.eq(self._flits(header)), inside.eq(accepted[DATA] & ~arrived.last),
                         self.truncated.eq((accepted[DATA] & arrived.last)
                                           | (~arrived.last & (accepted[CONTROL] | checked.credit)))]
        with m.Elif(arrived.valid & inside):
            m.d.sync += left.eq(left - 1)
            with m.If(arrived.last | (left == 1)):
                m.d.sync += [inside.eq(0), self.truncated.eq((left != 1) | ~arrived.last)]

    def _hand_out(self, m, packets):
        """Queue to ``o_packet``: marks first and last, pads what is missing, frees the buffer with the last flit."""
        out, header = self.o_packet, header_layout()(packets.payload.data)
        inside, padding, src, taken = Signal(), Signal(), Signal(self._cfg.rank_width), Signal()
        masks, left = Signal(range(self._cfg.mask_flits + 1)), Signal(5)       # flits to come: of the mask, then of data
        m.d.comb += [
            out.valid.eq(packets.valid | padding), packets.ready.eq(out.ready & ~padding), taken.eq(out.valid & out.ready),
            out.payload.data.eq(Mux(padding, 0, packets.payload.data)), out.payload.first.eq(~inside),
            out.payload.last.eq((left == 1) & (masks == 0)), out.payload.err.eq(padding),       # 0 between packets
        ]
        m.d.sync += [self.free.en.eq(taken & out.payload.last), self.free.rank.eq(src)]
        with m.If(taken & ~inside):
            m.d.sync += [inside.eq(1), left.eq(header.len), masks.eq(Mux(header.masked, self._cfg.mask_flits, 0)),
                         src.eq(header.src), padding.eq(packets.payload.last)]
        with m.Elif(taken & masks.any()):
            m.d.sync += masks.eq(masks - 1)
        with m.Elif(taken):
            m.d.sync += left.eq(left - 1)
        with m.If(taken & inside):
            with m.If(out.payload.last):
                m.d.sync += [inside.eq(0), padding.eq(0)]
            with m.Elif(packets.payload.last):
                m.d.sync += padding.eq(1)
