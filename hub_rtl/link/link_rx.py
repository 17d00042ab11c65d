# SPDX-License-Identifier: Apache-2.0
"""Receive side of a link lane: checks what arrives, buffers it, hands out packets that keep their
word."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import CLASSES, FLIT, LEN
from hub_rtl.contract.packets import (
    Reason,
)
from hub_rtl.contract.records import BAD_PACKET, header_layout, types_of
from hub_rtl.parts.early_queue import EarlyQueue
from hub_rtl.parts.mutants import mutant, variant

from .credits import CONTROL, DATA
from .judge import judge
from .records import link_types_of

__all__ = ["LinkRx"]


class LinkRxObserve(NamedTuple):
    """What a proof may see of a :class:`LinkRx`."""

    packets: EarlyQueue  #: flits of accepted packets {data, last}
    controls: EarlyQueue  #: accepted control flits
    first: Signal  #: first stage {valid, data, last}, the flit as it came
    arrived: Signal  #: second stage, the same flit
    checked: Signal  #: what it is, if a header
    within: Signal  #: the flit before ``first`` was not the last of its frame
    expected: Signal  #: number of the next frame
    arriving: Signal  #: an accepted packet goes on
    to_arrive: Signal  #: its flits to come
    leaving: Signal  #: a packet goes on at ``o_packet``
    leaver: Signal  #: its source
    masks_to_leave: Signal  #: its flits to come: of the mask
    data_to_leave: Signal  #: and then of data
    padding: Signal  #: those are not in the queue


class LinkRx(wiring.Component):
    """Takes every flit of the wire at once, checks headers and credits, queues packets and control
    flits.

    Contract: ``o_packet`` carries ROW, PLAIN and NEWS packets in order of arrival, each exactly 1 +
    mask flits + ``len`` flits long, with headers that hold (type, len, span within its packet-sized
    block, number of entries, src, dst, lane, fan); ``o_control`` REJECT. Totals in good headers go
    to ``totals``, in the cycle of ``accept``. ``rx.tready`` is 1 from the first cycle after reset:
    credits guarantee the place.

    Latency from a flit on the wire to ``o_packet`` three cycles, to ``o_control`` four; one flit
    per cycle, no gap added.

    Order: within packets and within control flits that of the wire; control never waits for
    packets. Packets are handed out while they arrive: a packet that the wire delivers with gaps has
    gaps here.

    On illegal input: a bad header drops the packet to its ``tlast`` (``bad``); so do a repeated
    sequence number (``seq_error``) and a source without credit (``violation``). A packet that ends
    early is padded with ``err`` flits, one that does not end loses what is too much
    (``truncated``). IDLE flits and ACK are skipped; an IDLE flit without ``tlast`` is a bad header.

    Parameters: ``cfg``. Ports: ``rx`` In AXI4-Stream; ``o_packet`` Out stream(flit); ``o_control``
    Out stream(128); ``rank``, ``lane`` In; ``full``, ``control_full`` In ``ranks``; ``accept`` Out
    {en per class, src}; ``free``, ``control_free`` Out {en, rank}; ``totals`` Out
    record ``totals``; ``bad`` Out ``BAD_PACKET``; ``seq_error``,
    ``violation``, ``truncated``, ``busy`` Out strobes. Source: docs/interfaces.md section 5,
    docs/formats.md.
    """

    observe: LinkRxObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, rank = cfg, cfg.rank_width
        strobe, own = types_of(cfg).rank_strobe, link_types_of(cfg)
        super().__init__(
            {
                "rx": In(AxiStream(FLIT)),
                "o_packet": Out(stream.Signature(types_of(cfg).flit)),
                "o_control": Out(stream.Signature(FLIT)),
                "rank": In(rank),
                "lane": In(cfg.lane_width),
                "full": In(cfg.ranks),
                "control_full": In(cfg.ranks),
                "accept": Out(own.accept),
                "free": Out(strobe),
                "control_free": Out(strobe),
                "totals": Out(own.totals),
                "bad": Out(BAD_PACKET),
                "seq_error": Out(1),
                "violation": Out(1),
                "truncated": Out(1),
                "busy": Out(1),
            }
        )
        self._own = own
        self._count_width = (cfg.packet_flits + cfg.mask_flits).bit_length()

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.packets = packets = EarlyQueue(
            self._own.queued,
            variant(
                "link.packet_queue_two_short",
                (cfg.ranks - 1) * cfg.rx_credits * cfg.frame_flits,
                (cfg.ranks - 1) * cfg.rx_credits * cfg.frame_flits - 2,
            ),
        )
        m.submodules.controls = controls = EarlyQueue(FLIT, (cfg.ranks - 1) * cfg.ctl_credits)
        m.d.sync += self.rx.tready.eq(1)
        first, arrived, checked, *numbering = judge(m, cfg, self.rx, self.rank, self.lane)
        m.d.comb += self.busy.eq(first.valid)
        m.d.comb += [
            packets.early.data.eq(first.data),
            packets.early.last.eq(first.last),
            packets.write.eq(first.valid),
            controls.early.eq(arrived.data),
            controls.write.eq(arrived.valid),
        ]
        receiving = self._receive(m, arrived, checked, packets, controls)
        leaving = self._hand_out(m, packets.o)
        self.observe = LinkRxObserve(
            packets, controls, first, arrived, checked, *numbering, *receiving, *leaving
        )
        wiring.connect(m, controls.o, wiring.flipped(self.o_control))
        m.d.sync += [
            self.control_free.en.eq(controls.o.valid & controls.o.ready),
            self.control_free.rank.eq(
                mutant(
                    "link.control_place_freed_of_destination",
                    header_layout()(controls.o.payload).src,
                    header_layout()(controls.o.payload).dst,
                )
            ),
        ]
        return m

    def _flits(self, header):
        """Flits after the header, by the header."""
        return (header.len + Mux(header.masked, self._cfg.mask_flits, 0))[: self._count_width]

    def _receive(self, m, arrived, checked, packets, controls):
        """Third stage: credits, and where the packet goes. Returns whether one goes on, and its
        flits to come."""
        cfg, totals = self._cfg, self.totals
        header = header_layout()(arrived.data)
        src = header.src[: cfg.rank_width]
        inside, left = (
            Signal(),
            Signal(self._count_width),
        )  # of an accepted packet: it goes on, flits to come
        has_room, accepted = Signal(CLASSES), Signal(CLASSES)
        m.d.comb += [
            has_room[DATA].eq(~self.full.bit_select(src, 1)),
            has_room[CONTROL].eq(~self.control_full.bit_select(src, 1)),
            accepted[DATA].eq(checked.data & has_room[DATA]),
            accepted[CONTROL].eq(
                checked.control
                & mutant("link.control_let_in_on_data_room", has_room[CONTROL], has_room.any())
            ),
            self.accept.en.eq(accepted),
            self.accept.src.eq(src),
            packets.push.eq(accepted[DATA] | (arrived.valid & inside)),
            self.bad.en.eq(checked.bad),
            self.bad.header.eq(arrived.data),
            self.bad.reason.eq(Mux(checked.bad_lane, Reason.BAD_LANE, Reason.BAD_HEADER)),
            totals.src.eq(src),
            totals.en.eq(checked.totals_en),
            totals.total.eq(checked.total),
        ]
        m.d.sync += [
            self.seq_error.eq(checked.off_sequence),
            self.violation.eq(
                (checked.data & ~has_room[DATA]) | (checked.control & ~has_room[CONTROL])
            ),
            controls.push.eq(accepted[CONTROL]),
        ]

        m.d.sync += self.truncated.eq(0)
        with m.If(checked.begins):
            m.d.sync += [
                left.eq(self._flits(header)),
                inside.eq(accepted[DATA] & ~arrived.last),
                self.truncated.eq(
                    (accepted[DATA] & arrived.last)
                    | (~arrived.last & (accepted[CONTROL] | checked.credit))
                ),
            ]
        with m.Elif(arrived.valid & inside):
            m.d.sync += left.eq(left - 1)
            with m.If(arrived.last | (left == 1)):
                m.d.sync += [
                    inside.eq(0),
                    self.truncated.eq((left != 1) | ~arrived.last),
                ]
        return inside, left

    def _hand_out(self, m, packets):
        """Queue to ``o_packet``: marks first and last, pads what is missing, frees the buffer with
        the last flit. Returns what is kept of the packet that leaves."""
        out, header = self.o_packet, header_layout()(packets.payload.data)
        inside, padding, src, taken = Signal(), Signal(), Signal(self._cfg.rank_width), Signal()
        masks, left = (
            Signal(range(self._cfg.mask_flits + 1)),
            Signal(LEN),
        )  # flits to come: of the mask, then of data
        m.d.comb += [
            out.valid.eq(packets.valid | padding),
            packets.ready.eq(out.ready & ~padding),
            taken.eq(out.valid & out.ready),
            out.payload.data.eq(Mux(padding, 0, packets.payload.data)),
            out.payload.first.eq(~inside),
            out.payload.last.eq((left == 1) & (masks == 0)),
            out.payload.err.eq(padding),  # 0 between packets
        ]
        m.d.sync += [
            self.free.en.eq(
                taken
                & mutant("link.place_freed_at_first_flit", out.payload.last, out.payload.first)
            ),
            self.free.rank.eq(src),
        ]
        with m.If(taken & ~inside):
            m.d.sync += [
                inside.eq(1),
                left.eq(header.len),
                masks.eq(Mux(header.masked, self._cfg.mask_flits, 0)),
                src.eq(header.src),
                padding.eq(packets.payload.last),
            ]
        with m.Elif(taken & masks.any()):
            m.d.sync += masks.eq(masks - 1)
        with m.Elif(taken):
            m.d.sync += left.eq(left - 1)
        with m.If(taken & inside):
            with m.If(out.payload.last):
                m.d.sync += [
                    inside.eq(0),
                    padding.eq(0),
                ]
            with m.Elif(
                mutant(
                    "link.last_flit_missed_with_room_left",
                    packets.payload.last,
                    packets.payload.last & (left == 2),
                )
            ):
                m.d.sync += padding.eq(1)
        return inside, src, masks, left, padding
