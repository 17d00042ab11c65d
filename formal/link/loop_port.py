# SPDX-License-Identifier: Apache-2.0
"""Promises of a loop lane (``hub_rtl/link/loop_port.py``, docs/interfaces.md section 5)."""

from amaranth import Cat, Const, Mux, Signal

from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.records import header_layout
from hub_rtl.link.loop_port import LOOP_PACKETS, LoopPort

from .tx import at_a_place

__all__ = ["LoopCreditsAreExact", "LoopPassesOn"]


class _Loop(Spec):
    """The loop lane with free inputs; its packet queue cut to ``words``."""

    def __init__(self, cfg, words=3):
        super().__init__(cfg)
        self._words = words

    def build(self, m):
        m.submodules.dut = dut = LoopPort(self._cfg, self._words)
        self.free_inputs(dut, but=("rank", "lane"))
        self.rank, self.lane = at_a_place(self, dut, self._cfg)
        self.packet, self.control, self.packet_out, self.control_out = (
            moves(port) for port in (dut.i_packet, dut.i_control, dut.o_packet, dut.o_control)
        )
        self.specify(m, dut)


class LoopPassesOn(_Loop):
    """Every flit and every control flit offered comes out once, in order and unchanged, but for
    ``src`` and ``dst``, the own rank, and ``lane``, the own lane, of headers; packets and control
    flits do not wait for each other. The packet queue is cut to three words (any depth:
    parts.ram_queue). Shown for bits 31:0."""

    def specify(self, m, dut):
        def addressed(name, flit, is_header):
            header = Signal(header_layout(), name=name)
            m.d.comb += header.eq(flit)
            with m.If(is_header):
                m.d.comb += [
                    header.src.eq(self.rank),
                    header.dst.eq(self.rank),
                    header.lane.eq(self.lane),
                ]
            return header.as_value()[:32]

        flit, out = dut.i_packet.payload, dut.o_packet.payload
        self.always_fifo(
            "data",
            self.packet,
            Cat(addressed("flit", flit.data, flit.first), flit.first, flit.last, flit.err),
            self.packet_out,
            Cat(out.data[:32], out.first, out.last, out.err),
            most=self._words + 1,
        )
        self.always_fifo(
            "control",
            self.control,
            addressed("flit_of_control", dut.i_control.payload, 1),
            self.control_out,
            dut.o_control.payload[:32],
            most=self._cfg.ctl_credits,
        )


class LoopCreditsAreExact(_Loop):
    """Credits left + packets taken and not handed out = four, always, for the own rank; other ranks
    have none. The same for control flits and ``ctl_credits``: a flit with a credit is accepted at
    once. A packet is accepted while the queue has a place. The counters' strobes tell what moved in
    the cycle before, and the lane has no wire to tell of."""

    def specify(self, m, dut):
        limit, counts = LOOP_PACKETS, dut.counts
        away, control = Signal(range(limit + 1)), Signal(range(self._cfg.ctl_credits + 1))
        takes = dut.take.en & (dut.take.rank == self.rank)
        ends = self.packet_out & dut.o_packet.payload.last
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
        inside = Signal(range(self._words + 2))
        m.d.sync += inside.eq(inside + self.packet - self.packet_out)
        self.always("packet accepted with a place", dut.i_packet.ready, when=inside < self._words)
        self.always("packet offered", dut.o_packet.valid == (inside != 0))
        for name, event in (
            ("tx_busy", self.packet),
            ("rx_busy", self.packet_out),
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
