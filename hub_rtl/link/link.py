# SPDX-License-Identifier: Apache-2.0
"""One lane's link: transmitter, receiver and their common credit books."""

from typing import NamedTuple

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import BAD_PACKET, LINK_COUNTS, types_of
from hub_rtl.parts.mutants import bug, mutant

from .credits import ReceiveCredits, SendCredits
from .link_rx import LinkRx
from .link_tx import PATIENCE, LinkTx

__all__ = ["LinkPort", "inner_ports"]


def inner_ports(cfg):
    """Ports on the hub's side, common to link lanes and loop lanes."""
    flit = types_of(cfg).flit
    return {
        "i_packet": In(stream.Signature(flit)),
        "i_control": In(stream.Signature(FLIT)),
        "o_packet": Out(stream.Signature(flit)),
        "o_control": Out(stream.Signature(FLIT)),
        "dest_ready": Out(cfg.ranks),
        "ctl_ready": Out(cfg.ranks),
        "take": In(types_of(cfg).rank_strobe),
        "rank": In(cfg.rank_width),
        "lane": In(cfg.lane_width),
        "counts": Out(LINK_COUNTS),
    }


class LinkPortObserve(NamedTuple):
    """What a proof may see of a :class:`LinkPort`: its parts."""

    tx: LinkTx
    rx: LinkRx
    send: SendCredits
    buffers: ReceiveCredits


class LinkPort(wiring.Component):
    """One link lane between the packet manager, the slot allocator and the wire.

    Contract: packets and control flits offered here arrive at the named rank's LinkPort of the same
    lane exactly once and in order, if the fabric keeps order and loses nothing; what the fabric
    spoils is dropped or padded, and counted. No packet leaves without a buffer for it at the far
    end.

    Latency: two cycles from ``i_packet`` to the wire, three from the wire to ``o_packet``, four to
    ``o_control``. One flit per cycle each way, no
    bubble between packets.

    Ordering and stalls: see :class:`~hub_rtl.link.link_tx.LinkTx` and
    :class:`~hub_rtl.link.link_rx.LinkRx`. A packet is offered only after its credit was taken, so
    ``i_packet`` waits for the wire alone. ``o_packet`` and ``o_control`` must be drained by a
    consumer that waits for memory only; a source whose packets are not drained runs out of its own
    credits.

    On illegal input nothing is passed on: the header is reported on ``o_bad``, the rest in
    ``counts``.

    Parameters: ``cfg``, the :class:`~hub_rtl.contract.config.HubConfig`; ``patience``, cycles that
    a due CREDIT lets others go first.

    Ports: ``i_packet`` In stream(flit); ``i_control`` In stream(128), REJECT flits with
    ``dst`` and body, for ranks with ``ctl_ready``; ``dest_ready``, ``ctl_ready`` Out ``ranks``,
    credits left, from registers; ``take`` In {en, rank}, a data credit is taken, shown in the next
    cycle; ``o_packet`` Out stream(flit); ``o_control`` Out stream(128); ``tx`` Out AXI4-Stream with
    ``tdest``; ``rx`` In AXI4-Stream, always ready out of reset; ``rank``, ``lane`` In, own numbers;
    ``peer_dead`` In ``ranks``: control flits for these ranks that have no credit are sunk;
    ``o_bad`` Out {en, header, reason}, strobe; ``counts`` Out ``LINK_COUNTS``.

    Source: docs/interfaces.md section 5, docs/formats.md; the paper (arXiv 2605.05888) takes the
    links as given.
    """

    observe: LinkPortObserve  # once elaborated

    def __init__(self, cfg, patience=PATIENCE):
        super().__init__(
            {
                **inner_ports(cfg),
                "tx": Out(AxiStream(FLIT, cfg.rank_width)),
                "rx": In(AxiStream(FLIT)),
                "peer_dead": In(cfg.ranks),
                "o_bad": Out(BAD_PACKET),
            }
        )
        self._cfg, self._patience = cfg, patience

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx = tx = LinkTx(self._cfg, self._patience)
        m.submodules.rx = rx = LinkRx(self._cfg)
        m.submodules.send = send = SendCredits(self._cfg)
        m.submodules.buffers = buffers = ReceiveCredits(self._cfg)
        self.observe = LinkPortObserve(tx, rx, send, buffers)
        flipped, connect = wiring.flipped, wiring.connect
        connect(m, flipped(self.i_packet), tx.i_packet)
        connect(m, flipped(self.i_control), tx.i_control)
        connect(m, tx.tx, flipped(self.tx))
        connect(m, flipped(self.rx), rx.rx)
        connect(m, rx.o_packet, flipped(self.o_packet))
        if (asked := bug("link.packet_withdrawn_while_sending")) is not None:
            with m.If(asked & tx.tx.tvalid):
                m.d.comb += self.o_packet.valid.eq(0)
        connect(m, rx.o_control, flipped(self.o_control))
        connect(m, tx.reports, buffers.reports)
        m.d.comb += [
            tx.rank.eq(self.rank),
            tx.lane.eq(self.lane),
            rx.rank.eq(self.rank),
            rx.lane.eq(self.lane),
            tx.peer_dead.eq(self.peer_dead),
            tx.control_ready.eq(send.control_ready),
            send.take.eq(self.take),
            send.control_take.eq(tx.control_take),
            send.totals.eq(rx.totals),
            buffers.accept.eq(rx.accept),
            buffers.free.eq(rx.free),
            buffers.control_free.eq(rx.control_free),
            rx.full.eq(buffers.full),
            rx.control_full.eq(buffers.control_full),
            self.dest_ready.eq(send.ready),
            self.ctl_ready.eq(send.control_ready),
            self.o_bad.eq(rx.bad),
        ]
        if (asked := bug("link.control_total_taken_from_data")) is not None:
            with m.If(asked):
                m.d.comb += send.totals.en[1].eq(rx.totals.en[0])
        moved, counts = self.tx.tvalid & self.tx.tready, self.counts
        m.d.sync += [
            counts.tx_busy.eq(moved),
            counts.tx_idle_waiting.eq(tx.waiting & ~moved),
            counts.bad_totals.eq(send.bad_total),
            counts.credit_stall.eq(tx.credit_stall),
            counts.credits_sent.eq(tx.credit_sent),
            counts.control_sunk.eq(
                mutant(
                    "link.sunk_counted_when_ready",
                    tx.control_sunk,
                    tx.control_sunk & self.tx.tready,
                )
            ),
        ]
        m.d.comb += [
            counts.rx_busy.eq(rx.busy),
            counts.seq_errors.eq(
                mutant("link.bad_flit_hides_seq_error", rx.seq_error, rx.seq_error & ~rx.bad.en)
            ),
            counts.credit_violations.eq(rx.violation),
            counts.truncated.eq(rx.truncated),
        ]
        return m
