# SPDX-License-Identifier: Apache-2.0
"""Promises of the sending side of a link (``hub_rtl/link/link_tx.py``, docs/interfaces.md
section 5)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves, same
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.link.link import LinkPort
from hub_rtl.link.link_tx import LinkTx

__all__ = [
    "HeadersAreFilled",
    "NothingStarves",
    "PacketsLeaveWhole",
    "PacketsReachTheWire",
    "at_a_place",
]

DATA_TYPES = (PacketType.ROW, PacketType.PLAIN, PacketType.NEWS)
CONTROL_TYPES = (PacketType.REJECT,)


def at_a_place(spec, dut, cfg, exists=True):
    """``(rank, lane)`` of the part, any, which stay as they are; ``exists``: a rank there is."""
    rank, lane = spec.constant(cfg.rank_width, "rank"), spec.constant(cfg.lane_width, "lane")
    if exists:
        spec.suppose("rank exists", rank < cfg.ranks)
    spec.m.d.comb += [
        dut.rank.eq(rank),
        dut.lane.eq(lane),
    ]
    return rank, lane


def is_type(header, *types):
    """1 if the header's type is one of ``types``."""
    return Cat(header.type == each for each in types).any()


class _Transmitter(Spec):
    """The transmitter, the shape of its inputs, and what leaves: ``kind`` of the frame on ``tx``,
    ``first``, ``moves``."""

    part = LinkTx

    def __init__(self, cfg, patience=4):
        super().__init__(cfg)
        self._patience = patience

    def build(self, m):
        m.submodules.dut = dut = self.part(self._cfg, self._patience)
        control_sunk = self.prepare(dut)
        self.free_inputs(dut, but=("rank", "lane"))
        self.rank, self.lane = at_a_place(self, dut, self._cfg, exists=False)
        packet, control, told, tx = dut.i_packet, dut.i_control, dut.i_message, dut.tx
        within = Signal()
        self.first = Signal()
        self.moves = tx.tvalid & tx.tready
        self.packet = moves(packet)
        self.control = moves(control) & ~control_sunk
        self.message = moves(told)
        said = header_layout(PacketType.CREDIT)(told.payload.data)
        self.suppose(
            "messages are CREDIT flits",
            (said.type == PacketType.CREDIT)
            & (said.grants | said.returns | said.asks | said.answers),
            when=told.valid,
        )
        with m.If(self.packet):
            m.d.sync += within.eq(~packet.payload.last)
        header = header_layout()(packet.payload.data)
        self.within = within
        self.suppose("packets are whole", packet.payload.first == ~within, when=packet.valid)
        self.suppose(
            "packets have more flits than one", ~packet.payload.last, when=packet.valid & ~within
        )
        self.suppose("packets are data", is_type(header, *DATA_TYPES), when=packet.valid & ~within)
        self.suppose(
            "control flits are control",
            is_type(header_layout()(control.payload), *CONTROL_TYPES),
            when=control.valid,
        )
        self.out = out = header_layout()(tx.tdata)
        on_wire = Signal()
        kind = Signal(3)  # one-hot: data, control, CREDIT
        self.kind = Signal(3)
        m.d.comb += [
            self.first.eq(~on_wire),
            self.kind.eq(
                Mux(
                    on_wire,
                    kind,
                    Cat(
                        is_type(out, *DATA_TYPES),
                        is_type(out, *CONTROL_TYPES),
                        is_type(out, PacketType.CREDIT),
                    ),
                )
            ),
        ]
        with m.If(self.moves):
            m.d.sync += [
                on_wire.eq(~tx.tlast),
                kind.eq(self.kind),
            ]
        self.specify(m, dut)

    def prepare(self, dut):
        """Tells when a control flit is sunk, not sent."""
        return dut.control_sunk


def own_fields_blank(m, name, flit, is_header):
    """``flit`` without the fields that the transmitter fills, if it is a header."""
    blank = Signal(header_layout(), name=name)
    m.d.comb += blank.eq(flit)
    with m.If(is_header):
        m.d.comb += [blank[field].eq(0) for field in ("src", "lane", "seq", "credit")]
    return blank.as_value()


class _Frames(_Transmitter):
    """What leaves, as frames."""

    def frames(self, m, dut):
        """Asserts of packets and control flits that they leave whole, in order, unchanged but for
        the fields filled here, and that nothing else leaves but CREDIT flits; returns when a flit
        of each kind leaves. Bits 14:0 are looked at."""
        tx = dut.tx
        out = own_fields_blank(m, "out", tx.tdata, self.first)
        data = own_fields_blank(m, "data", dut.i_packet.payload.data, dut.i_packet.payload.first)
        control = own_fields_blank(m, "control", dut.i_control.payload, 1)
        body = header_layout(PacketType.CREDIT)(tx.tdata)
        said = self.kind[2] & (body.grants | body.returns | body.asks | body.answers)
        leaves = [
            self.moves & which for which in (self.kind[0], self.kind[1], self.kind[2] & ~said, said)
        ]
        message = own_fields_blank(m, "message", dut.i_message.payload.data, 1)
        low = slice(15)
        self.always_fifo("message", self.message, message[low], leaves[3], out[low], most=3)
        self.always_fifo(
            "data",
            self.packet,
            Cat(data[low], dut.i_packet.payload.last),
            leaves[0],
            Cat(out[low], tx.tlast),
            most=3,
        )
        self.always_fifo("control", self.control, control[low], leaves[1], out[low], most=3)
        self.always("of a known kind", self.kind.any(), when=tx.tvalid)
        self.always("control and CREDIT are one flit", tx.tlast, when=tx.tvalid & ~self.kind[0])
        return leaves


class PacketsLeaveWhole(_Frames):
    """Packets leave whole, in order and unchanged but for the fields filled here; so do control
    flits and messages, each a frame of its own, between packets; nothing else leaves but CREDIT
    flits, one for each that was due and taken, for its rank. Shown for bits 14:0 of the flits:
    type, flags, dst."""

    def specify(self, m, dut):
        leaves = self.frames(m, dut)
        self.always_fifo(
            "credit", dut.reports.due_take, dut.reports.due_rank, leaves[2], self.out.dst, most=3
        )


class PacketsReachTheWire(_Frames):
    """Of the whole port: each flit taken at ``i_packet`` is on the wire, in order, its packet whole
    and unchanged but for the fields filled here, with no other flit between; control flits
    likewise. A packet once begun is taken flit by flit unless the wire took nothing in the cycle
    before; one that has not begun waits for the wire, for control flits and CREDITs alone. Whatever
    arrives. Shown for bits 14:0 of the flits, with the patience cut from 64 to 4 cycles, the
    receiver and its books cut out."""

    part = LinkPort

    def prepare(self, dut):
        port = observe(dut)
        for part in (port.rx, port.buffers):
            cut(self, part)
        control = dut.i_control
        dst = header_layout()(control.payload).dst[: self._cfg.rank_width]
        return control.valid & ~dut.ctl_ready.bit_select(dst, 1) & dut.peer_dead.bit_select(dst, 1)

    def specify(self, m, dut):
        self.frames(m, dut)
        packet, tx = dut.i_packet, dut.tx
        waits = blocked(packet) & ~self.past(tx.tvalid & ~tx.tready, "stalled")
        self.always("a packet goes on", ~waits | ~self.within)
        self.always(
            "waits for a control flit or a CREDIT",
            dut.counts.credits_sent,
            when=self.past(waits & ~self.control, "passed_over"),
        )
        self.reach("passed over by a control flit", waits & self.control)


class HeadersAreFilled(_Transmitter):
    """Every header has the own rank and lane, numbers from 0 mod 1024, and the total that was read
    and reported as the header left; ``tdest`` is the destination, throughout the packet."""

    def specify(self, m, dut):
        tx, out, reports = dut.tx, self.out, dut.reports
        header = tx.tvalid & self.first
        seq = Signal(10)
        dest = Signal(self._cfg.rank_width)
        with m.If(self.moves & self.first):
            m.d.sync += [
                seq.eq(seq + 1),
                dest.eq(out.dst),
            ]
        self.always("source and lane", same(out, src=self.rank, lane=self.lane), when=header)
        self.always("numbers", out.seq == seq, when=header)
        self.always(
            "tdest",
            tx.tdest == Mux(self.first, out.dst[: self._cfg.rank_width], dest),
            when=tx.tvalid,
        )
        self.always_fifo(
            "total",
            reports.report,
            Cat(reports.dst, reports.total),
            self.moves & self.first,
            Cat(out.dst[: self._cfg.rank_width], out.credit),
            most=2,
        )


class NothingStarves(_Transmitter):
    """A control flit goes before a packet that has not begun, a packet before a CREDIT while
    CREDITs have been due for less than the patience; a message is never too young. Unless the wire
    took nothing in the cycle before, something that may go is accepted: a packet waits only for
    control flits and for every second time a CREDIT or a message, a CREDIT for the patience and
    then for one packet, control flit or message, a message for one packet, control flit or CREDIT,
    a control flit for its credit, the packet under way and one CREDIT or message. Without credit a
    control flit waits, or is sunk if its destination is dead. Shown with the patience cut from 64
    to 4 cycles."""

    def specify(self, m, dut):
        packet, control, reports, tx = dut.i_packet, dut.i_control, dut.reports, dut.tx
        told = dut.i_message
        dst = header_layout()(control.payload).dst[: self._cfg.rank_width]
        has_credit, dead = dut.control_ready.bit_select(dst, 1), dut.peer_dead.bit_select(dst, 1)
        may_control = control.valid & has_credit
        others = packet.valid | may_control
        waited = Signal(range(self._patience + 2))
        m.d.sync += waited.eq(Mux(reports.due, waited + (waited != self._patience + 1), 0))
        credit = reports.due_take | self.message
        self.always("control before packets", ~may_control, when=self.packet & ~self.within)
        self.always(
            "a young CREDIT lets others go first",
            ~(others | told.valid),
            when=reports.due_take & (waited < self._patience),
        )
        self.always("nothing within a packet", ~self.within, when=self.control | credit)
        self.always("only with credit", has_credit, when=self.control)
        self.always("credit taken with the flit", dut.control_take.en == self.control)
        self.always("credit taken of its rank", dut.control_take.rank == dst, when=self.control)
        self.always(
            "sunk exactly without credit of a dead peer",
            dut.control_sunk == (control.valid & ~has_credit & dead),
        )
        self.always("sunk at once", control.ready, when=dut.control_sunk)
        self.always("stall told", dut.credit_stall == (control.valid & ~has_credit))
        self.always("CREDIT told", dut.credit_sent == credit)
        offered = tx.tvalid | packet.valid | control.valid | told.valid
        self.always("waiting told", dut.waiting, when=offered)
        may_go = packet.valid | (~self.within & (may_control | reports.due | told.valid))
        free_wire = ~self.past(tx.tvalid & ~tx.tready, "stalled")
        goes = self.packet | self.control | credit
        self.always("something that may go goes", goes, when=may_go & free_wire)
        # Of the last choice: a CREDIT flit while others waited; any CREDIT flit, which of the two.
        pushed = Signal()
        after = Signal()
        after_message = Signal()
        with m.If(goes):
            m.d.sync += [
                pushed.eq(credit & others),
                after.eq(credit),
                after_message.eq(self.message),
            ]
        with m.Elif(~others):
            m.d.sync += pushed.eq(0)
        self.always("no two CREDITs before others", ~pushed, when=credit & others)
        at_boundary = ~self.within & free_wire
        self.always(
            "an old CREDIT goes next",
            reports.due_take,
            when=reports.due & (waited > self._patience) & ~after & at_boundary,
        )
        self.always(
            "a message goes next, or an old CREDIT",
            credit,
            when=told.valid & ~after & at_boundary,
        )
        self.always(
            "a message waits for one CREDIT",
            self.message,
            when=told.valid & after & ~after_message & ~others & at_boundary,
        )
