# SPDX-License-Identifier: Apache-2.0
"""Loop slice: the own rank's packets, from the packet manager straight to the slot allocator."""

from typing import NamedTuple

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT, SEQ
from hub_rtl.contract.records import LINK_COUNTS, header_layout, received_of, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram_queue import RamQueue

from .deserializer import Deserializer

__all__ = ["LoopPort", "inner_ports"]

LOOP_PACKETS = 4  # on their way: covers the packet manager's choosing time with short packets


def inner_ports(cfg):
    """Ports of a slice on the hub's side, common to those with links and to loop slices."""
    types = types_of(cfg)
    return {
        "i_packet": In(stream.Signature(types.flit)),
        "i_control": In(stream.Signature(FLIT)),
        "o_record": Out(stream.Signature(received_of(cfg, cfg.slice_bytes))),
        "o_control": Out(stream.Signature(FLIT)),
        "dest_ready": Out(cfg.ranks),
        "ctl_ready": Out(cfg.ranks),
        "take": In(types.rank_strobe),
        "rank": In(cfg.rank_width),
        "lane": In(cfg.lane_width),
        "counts": Out(LINK_COUNTS),
    }


class LoopPortObserve(NamedTuple):
    """What a proof may see of a :class:`LoopPort`: its part."""

    rx: Deserializer


class LoopPort(wiring.Component):
    """The inner ports of a slice with links, without a wire.

    Contract: everything offered comes out once, in order, as from the own rank. The only
    destination with credits is the own rank: four data credits, ``ctl_credits`` control credits,
    given back as the record's last beat (the control flit) leaves.

    Latency: a beat 4 cycles after its last flit, a control flit one. One flit per cycle, no bubble.
    Control and packets do not wait for each other. Input is trusted, it comes from this hub.

    Parameters: ``cfg``. Ports: :func:`inner_ports`; of ``counts`` only tx_busy, tx_idle_waiting,
    credit_stall and rx_busy ever rise. Source: our specification, section 3.
    """

    observe: LoopPortObserve  # once elaborated

    def __init__(self, cfg):
        super().__init__(inner_ports(cfg))
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.rx = rx = Deserializer(cfg, cfg.slice_bytes)
        m.submodules.controls = controls = RamQueue(FLIT, cfg.ctl_credits)
        self.observe = LoopPortObserve(rx)
        wiring.connect(m, rx.o_beat, wiring.flipped(self.o_record))
        wiring.connect(m, controls.o, wiring.flipped(self.o_control))
        self._send(m, rx)

        control = header_layout()(controls.i.payload)
        m.d.comb += [
            controls.i.payload.eq(self.i_control.payload),
            control.src.eq(self.rank),
            control.dst.eq(self.rank),
            control.lane.eq(self.lane),
        ]
        left = Signal(range(LOOP_PACKETS + 1), init=LOOP_PACKETS)
        control_left = Signal(range(cfg.ctl_credits + 1), init=cfg.ctl_credits)
        freed, control_taken = Signal(), Signal()
        takes = self.take.en & (self.take.rank == self.rank)
        m.d.sync += [
            left.eq(
                left - mutant("link.loop_place_taken_by_any_rank", takes, self.take.en) + freed
            ),
            control_left.eq(
                control_left - control_taken + (self.o_control.valid & self.o_control.ready)
            ),
        ]
        m.d.comb += [
            freed.eq(self.o_record.valid & self.o_record.ready & self.o_record.p.last),
            controls.i.valid.eq(self.i_control.valid & control_left.any()),
            self.i_control.ready.eq(control_left.any()),
            control_taken.eq(self.i_control.valid & self.i_control.ready),
            self.dest_ready.eq(left.any() << self.rank),
            self.ctl_ready.eq(control_left.any() << self.rank),
        ]
        moved, came = (
            self.i_packet.valid & self.i_packet.ready,
            self.o_record.valid & self.o_record.ready,
        )
        m.d.sync += [
            self.counts.tx_busy.eq(moved),
            self.counts.rx_busy.eq(came),
            self.counts.tx_idle_waiting.eq(self.i_packet.valid & ~self.i_packet.ready),
            self.counts.credit_stall.eq(self.i_control.valid & ~self.i_control.ready),
        ]
        return m

    def _send(self, m, rx):
        """Packets to the deserializer, which takes none of its own rank: here it has another."""
        flit, seq, other = self.i_packet.p, Signal(SEQ), ~self.rank
        header = header_layout()(rx.rx.tdata)
        m.d.comb += [
            rx.rank.eq(other),
            rx.lane.eq(self.lane),
            rx.o_source.ready.eq(1),
            rx.rx.tvalid.eq(self.i_packet.valid),
            rx.rx.tlast.eq(flit.last),
            rx.rx.tdata.eq(flit.data),
            self.i_packet.ready.eq(rx.rx.tready),
        ]
        with m.If(mutant("link.loop_packet_starts_at_last", flit.first, flit.last)):
            m.d.comb += [
                header.src.eq(self.rank),
                header.dst.eq(other[: self._cfg.rank_width]),
                header.lane.eq(self.lane),
                header.seq.eq(seq),
            ]
        with m.If(self.i_packet.valid & self.i_packet.ready & flit.first):
            m.d.sync += seq.eq(seq + 1)
