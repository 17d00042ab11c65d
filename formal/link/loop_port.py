# SPDX-License-Identifier: Apache-2.0
"""Promises of a loop slice (``hub_rtl/link/loop_port.py``, docs/interfaces.md section 5)."""

from amaranth import Cat, Const, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.records import header_layout
from hub_rtl.link.loop_port import LOOP_PACKETS, LoopPort

from .tx import at_a_place

__all__ = ["LoopCreditsAreExact", "LoopPassesOn"]


class _Loop(Spec):
    """The loop slice with free inputs: whole packets of the own rank, as the packet manager makes
    them."""

    def build(self, m):
        m.submodules.dut = dut = LoopPort(self._cfg)
        self.free_inputs(dut, but=("rank", "lane"))
        self.rank, self.lane = at_a_place(self, dut, self._cfg)
        self.packet, self.control, self.record_out, self.control_out = (
            moves(port) for port in (dut.i_packet, dut.i_control, dut.o_record, dut.o_control)
        )
        self.specify(m, dut)


class LoopPassesOn(_Loop):
    """Every control flit offered comes out once, in order and unchanged, but for ``src`` and
    ``dst``, the own rank, and ``lane``, the own lane; packets do not hold it up. Each header of a
    packet goes to the deserializer with the next number, and so that it takes it (records: by the
    benches). Shown for bits 31:0."""

    def specify(self, m, dut):
        control = Signal(header_layout())
        m.d.comb += [
            control.eq(dut.i_control.payload),
            control.src.eq(self.rank),
            control.dst.eq(self.rank),
            control.lane.eq(self.lane),
        ]
        self.always_fifo(
            "control",
            self.control,
            control.as_value()[:32],
            self.control_out,
            dut.o_control.payload[:32],
            most=self._cfg.ctl_credits,
        )
        rx, flit = observe(dut).rx, dut.i_packet.payload
        seq = Signal(10)
        with m.If(self.packet & flit.first):
            m.d.sync += seq.eq(seq + 1)
        header = header_layout()(rx.rx.tdata)
        self.always(
            "packets reach the deserializer",
            (rx.rx.tvalid == dut.i_packet.valid) & (rx.rx.tready == dut.i_packet.ready),
        )
        self.always("frames are packets", rx.rx.tlast == flit.last, when=dut.i_packet.valid)
        self.always(
            "headers it takes",
            (header.src == self.rank)
            & (header.dst[: len(self.rank)] == rx.rank)
            & (rx.rank != self.rank)
            & (header.lane == rx.lane)
            & (header.seq == seq),
            when=dut.i_packet.valid & flit.first,
        )
        self.always("others as they are", rx.rx.tdata == flit.data, when=~flit.first)


class LoopCreditsAreExact(_Loop):
    """Credits left + packets taken and not handed out = four, always, for the own rank; other ranks
    have none. The same for control flits and ``ctl_credits``: a flit with a credit is accepted at
    once. The counters' strobes tell what moved in the cycle before, and the slice has no wire to
    tell of."""

    def specify(self, m, dut):
        limit, counts = LOOP_PACKETS, dut.counts
        away, control = Signal(range(limit + 1)), Signal(range(self._cfg.ctl_credits + 1))
        takes = dut.take.en & (dut.take.rank == self.rank)
        ends = self.record_out & dut.o_record.payload.last
        mine = (Const(1, self._cfg.ranks) << self.rank)[: self._cfg.ranks]
        m.d.sync += [
            away.eq(away + takes - ends),
            control.eq(control + self.control - self.control_out),
        ]
        self.suppose("taken only when ready", (dut.dest_ready & mine).any(), when=takes)
        self.suppose("only packets whose credit was taken leave", away != 0, when=ends)
        self.always("data credits exact", dut.dest_ready == Mux(away != limit, mine, 0))
        self.always(
            "control credits exact", dut.ctl_ready == Mux(control != self._cfg.ctl_credits, mine, 0)
        )
        self.always("control accepted with a credit", dut.i_control.ready == (dut.ctl_ready != 0))
        for name, event in (
            ("tx_busy", self.packet),
            ("rx_busy", self.record_out),
            ("tx_idle_waiting", blocked(dut.i_packet)),
            ("credit_stall", blocked(dut.i_control)),
        ):
            self.always(f"count {name}", counts[name] == self.past(event))
        wire = (
            "credits_sent",
            "seq_errors",
            "credit_violations",
            "truncated",
            "bad_totals",
            "control_sunk",
        )
        self.always("nothing of a wire counted", ~Cat(counts[name] for name in wire).any())
