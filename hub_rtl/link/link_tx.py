# SPDX-License-Identifier: Apache-2.0
"""Transmit side of a link: chooses what leaves next, fills the headers, holds the flit until
the wire takes it."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT, SEQ
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.stream import StreamRegister

from .credits import ReportSignature
from .records import link_types_of

__all__ = ["LinkTx"]

PATIENCE = 64  # cycles a due CREDIT lets others go first


class LinkTx(wiring.Component):
    """Joins packets, control flits and CREDIT flits of one link into the stream on the wire.

    Contract: packets leave whole and in order, control flits and messages in order; ``src``,
    ``lane``, ``seq`` and the credit total of every header are filled here, all other bits are kept.
    ``seq`` counts all headers from 0, mod 1024.

    Latency two cycles, one flit per cycle, no bubble between packets.

    Order between packets: CREDIT flits with a slice's messages, control flits, packets, CREDIT
    flits for the link's own total; one of the latter that has waited 64 cycles goes first at the
    next boundary. One CREDIT flit per boundary goes before others that wait, so that neither they
    nor the packets starve. A control flit without a credit of its destination waits, the packets
    pass it; those behind it wait too, hence its senders look at ``ctl_ready`` first. If the
    destination is ``peer_dead`` it is sunk. ``tx`` holds valid and payload until taken.

    Input is trusted: whole packets, ``dst`` of another rank, a credit taken for each packet.

    Parameters: ``cfg``. Ports: ``i_packet`` In stream(flit); ``i_control`` In stream(128);
    ``i_message`` In stream(flit), CREDIT flits with what a slice tells another; ``tx`` Out
    AXI4-Stream with ``tdest``; ``rank``, ``lane`` In; ``peer_dead`` In ``ranks``; ``control_ready``
    In ``ranks``, ``control_take`` Out {en, rank}; ``reports`` Out
    :class:`~hub_rtl.link.credits.ReportSignature`; ``credit_stall``, ``control_sunk``,
    ``credit_sent``, ``waiting`` (some flit is in here or offered) Out strobes. Source:
    docs/interfaces.md section 5.
    """

    def __init__(self, cfg, patience=PATIENCE):
        self._types = types_of(cfg)
        super().__init__(
            {
                "i_packet": In(stream.Signature(self._types.flit)),
                "i_control": In(stream.Signature(FLIT)),
                "i_message": In(stream.Signature(self._types.flit)),
                "tx": Out(AxiStream(FLIT, cfg.rank_width)),
                "rank": In(cfg.rank_width),
                "lane": In(cfg.link_width),
                "peer_dead": In(cfg.ranks),
                "control_ready": In(cfg.ranks),
                "control_take": Out(types_of(cfg).rank_strobe),
                "reports": Out(ReportSignature(cfg)),
                "credit_stall": Out(1),
                "control_sunk": Out(1),
                "credit_sent": Out(1),
                "waiting": Out(1),
            }
        )
        self._cfg, self._patience = cfg, patience

    def elaborate(self, platform):
        m = Module()
        chosen = Signal(link_types_of(self._cfg).chosen)
        chosen_valid = Signal()
        advance = Signal()
        self._choose(m, chosen, chosen_valid, advance)
        m.submodules.output = output = StreamRegister(link_types_of(self._cfg).wire)
        m.d.comb += [
            output.i.valid.eq(chosen_valid),
            output.i.payload.last.eq(chosen.last),
            advance.eq(output.i.ready | ~chosen_valid),
            self.tx.tvalid.eq(output.o.valid),
            self.tx.tdata.eq(output.o.payload.data),
            self.tx.tlast.eq(output.o.payload.last),
            self.tx.tdest.eq(output.o.payload.dest),
            output.o.ready.eq(self.tx.tready),
            self.waiting.eq(
                self.tx.tvalid
                | chosen_valid
                | self.i_packet.valid
                | self.i_control.valid
                | self.i_message.valid
            ),
        ]
        self._fill(m, chosen, chosen_valid & output.i.ready, output.i.payload)
        return m

    def _choose(self, m, chosen, chosen_valid, advance):
        """First stage: what goes next. Only its register's state decides, never the wire's
        ready."""
        cfg, reports = self._cfg, self.reports
        control = header_layout()(self.i_control.payload)
        control_dst = control.dst[: cfg.rank_width]
        inside = Signal()
        paced = Signal()
        patience = Signal(range(self._patience))
        urgent = Signal()
        has_credit = Signal()
        is_dead = Signal()
        others = Signal()
        go_control = Signal()
        go_packet = Signal()
        go_credit = Signal()
        go_message = Signal()
        pushes_in = Signal()
        told = self.i_message
        m.d.comb += [
            has_credit.eq(self.control_ready.bit_select(control_dst, 1)),
            is_dead.eq(self.peer_dead.bit_select(control_dst, 1)),
            others.eq(self.i_packet.valid | (self.i_control.valid & has_credit)),
            pushes_in.eq(
                mutant(
                    "link.credit_flit_never_pushes_in",
                    (told.valid | (reports.due & urgent)) & ~paced,
                    0,
                )
            ),
            go_credit.eq(
                mutant("link.credit_flit_splits_packet", ~inside & reports.due, reports.due)
                & (~told.valid | (urgent & ~paced))
                & (pushes_in | ~others)
            ),
            go_message.eq(~inside & told.valid & ~go_credit & (pushes_in | ~others)),
            told.ready.eq(advance & go_message),
            go_control.eq(~inside & self.i_control.valid & has_credit & ~pushes_in),
            go_packet.eq(inside | (self.i_packet.valid & ~go_credit & ~go_message & ~go_control)),
            self.i_packet.ready.eq(
                mutant("link.packet_taken_under_credit_flit", advance, advance | reports.due)
                & go_packet
            ),
            self.control_sunk.eq(self.i_control.valid & ~has_credit & is_dead),
            self.i_control.ready.eq((advance & go_control) | self.control_sunk),
            self.control_take.en.eq(advance & go_control),
            self.control_take.rank.eq(control_dst),
            reports.due_take.eq(advance & go_credit),
            self.credit_stall.eq(self.i_control.valid & ~has_credit),
            self.credit_sent.eq(advance & (go_credit | go_message)),
        ]
        credit = Signal(header_layout())
        m.d.comb += [
            credit.type.eq(PacketType.CREDIT),
            credit.dst.eq(reports.due_rank),
        ]
        with m.If(advance):
            m.d.sync += [
                chosen_valid.eq(
                    go_credit | go_message | go_control | (go_packet & self.i_packet.valid)
                ),
                chosen.data.eq(
                    Mux(
                        go_credit,
                        credit,
                        Mux(
                            go_message,
                            told.p.data,
                            Mux(go_control, control, self.i_packet.payload.data),
                        ),
                    )
                ),
                chosen.first.eq(~inside),
                chosen.last.eq(~go_packet | self.i_packet.payload.last),
            ]
            with m.If(go_packet & self.i_packet.valid):
                m.d.sync += inside.eq(~self.i_packet.payload.last)
            # After a CREDIT that pushed in, one packet or control flit goes before the next.
            with m.If(go_credit | go_message):
                m.d.sync += paced.eq(mutant("link.credit_flits_not_paced", 1, 0))
            with m.Elif(~inside):
                m.d.sync += paced.eq(0)
        with m.If(~reports.due):
            m.d.sync += [
                patience.eq(0),
                urgent.eq(0),
            ]
        with m.Else():
            m.d.sync += [
                patience.eq(patience + 1),
                urgent.eq(urgent | (patience == self._patience - 1)),
            ]

    def _fill(self, m, chosen, moves, flit):
        """Second stage: own fields into headers; the total is that of this very cycle."""
        cfg, reports = self._cfg, self.reports
        header = header_layout()(chosen.data)
        filled = Signal(header_layout())
        dest = Signal(cfg.rank_width)
        seq = Signal(SEQ)
        is_credit = header.type == PacketType.CREDIT
        m.d.comb += [
            reports.dst.eq(header.dst[: cfg.rank_width]),
            filled.eq(chosen.data),
            flit.dest.eq(dest),
        ]
        with m.If(chosen.first):
            m.d.comb += [
                filled.src.eq(self.rank),
                filled.lane.eq(self.lane),
                filled.seq.eq(seq),
                filled.credit.eq(reports.total),
                flit.dest.eq(reports.dst),
            ]
            with m.If(moves):
                m.d.sync += [
                    dest.eq(reports.dst),
                    seq.eq(mutant("link.credit_flit_has_no_number", seq + 1, seq + ~is_credit)),
                ]
                m.d.comb += reports.report.eq(1)
        m.d.comb += flit.data.eq(filled)
