# SPDX-License-Identifier: Apache-2.0
"""Promises of a loop slice (``hub_rtl/link/loop_port.py``, docs/interfaces.md section 5)."""

from amaranth import Cat, Const, Mux, Signal

from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.records import header_layout
from hub_rtl.link.loop_port import LOOP_PACKETS, LoopPort

__all__ = ["LoopCreditsAreExact", "LoopPassesOn"]


class _Loop(Spec):
    """The loop slice with free inputs: whole records of the own rank, as the packet manager makes
    them."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = LoopPort(cfg)
        self.free_inputs(dut, but=("rank", "i_ask", "i_answer"))
        for said in (dut.i_ask, dut.i_answer):  # they never wait
            self.free(said.valid, said.payload)
        self.rank = self.constant(cfg.rank_width, "rank")
        self.suppose("rank exists", self.rank < cfg.ranks)
        m.d.comb += dut.rank.eq(self.rank)
        self.record, self.control, self.record_out, self.control_out = (
            moves(port) for port in (dut.i_record, dut.i_control, dut.o_record, dut.o_control)
        )
        self.specify(m, dut)


class LoopPassesOn(_Loop):
    """Every beat of a record and every control flit comes out once, in order and unchanged, but for
    the ranks of the flit, which are the own; the two do not hold each other up. Shown for bits 31:0
    of a flit and the lowest bit of each field of a beat. Questions and answers of fences are heard
    as they are said, in the same cycle."""

    def specify(self, m, dut):
        control = Signal(header_layout())
        m.d.comb += [
            control.eq(dut.i_control.payload),
            control.src.eq(self.rank),
            control.dst.eq(self.rank),
        ]
        self.always_fifo(
            "control",
            self.control,
            control.as_value()[:32],
            self.control_out,
            dut.o_control.payload[:32],
            most=self._cfg.ctl_credits,
        )
        came, out = dut.i_record.p, dut.o_record.p

        def seen(beat):
            names = (name for name, _ in came.header.shape() if name != "link")
            fields = [beat.header[name] for name in names]
            return Cat(
                Cat(field)[0] for field in (*fields, beat.mask, beat.part, beat.last, beat.data)
            )

        most = LOOP_PACKETS * self._cfg.packet_bytes // self._cfg.slice_bytes
        self.always_fifo(
            "records", self.record, seen(came), self.record_out, seen(out), most=most + 2
        )
        for name, said, heard in (
            ("question", dut.i_ask, dut.asked),
            ("answer", dut.i_answer, dut.answered),
        ):
            self.always(f"{name} is taken", said.ready)
            self.always(f"{name} is heard", heard.en == said.valid)
            self.always(f"{name} as it is", heard.what.as_value() == said.p.as_value(), heard.en)
        self.always("whole and good", ~(out.lost | out.header.poison), when=dut.o_record.valid)


class LoopCreditsAreExact(_Loop):
    """Credits left + packets taken and not handed out = four, always, for the own rank; other ranks
    have none. The same for control flits and ``ctl_credits``: a flit with a credit is accepted at
    once. The counters' strobes tell what moved in the cycle before, and the slice has no wire to
    tell of."""

    def specify(self, m, dut):
        limit, counts = LOOP_PACKETS, dut.counts
        away = Signal(range(limit + 1))
        control = Signal(range(self._cfg.ctl_credits + 1))
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
            ("tx_busy", self.record),
            ("rx_busy", self.record_out),
            ("tx_idle_waiting", blocked(dut.i_record)),
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
