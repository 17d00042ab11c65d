# SPDX-License-Identifier: Apache-2.0
"""One link of a slice: transmitter, receiving end, and the books of its control buffers."""

from typing import NamedTuple

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import (
    BAD_PACKET,
    LINK_COUNTS,
    MESSAGES,
    header_layout,
    received_of,
    types_of,
)
from hub_rtl.parts.early_queue import EarlyQueue
from hub_rtl.parts.mutants import mutant

from .credits import ReceiveCredits, SendCredits
from .deserializer import Deserializer
from .link_tx import PATIENCE, LinkTx

__all__ = ["LinkPort", "slice_ports"]


def slice_ports(cfg):
    """Ports of a link on its slice's side, as :class:`LinkPort` says."""
    types = types_of(cfg)
    return {
        "i_control": In(stream.Signature(FLIT)),
        "i_message": In(stream.Signature(types.flit)),
        "o_source": Out(stream.Signature(cfg.rank_width)),
        "o_beat": Out(stream.Signature(received_of(cfg, cfg.slice_bytes))),
        **{name: Out(shape) for name, shape in types_of(cfg).messages.items()},
        "o_control": Out(stream.Signature(FLIT)),
        "ctl_ready": Out(cfg.ranks),
        "rank": In(cfg.rank_width),
        "peer_dead": In(cfg.ranks),
        "o_bad": Out(BAD_PACKET),
        "counts": Out(LINK_COUNTS),
    }


class LinkPortObserve(NamedTuple):
    """What a proof may see of a :class:`LinkPort`: its parts."""

    tx: LinkTx
    rx: Deserializer
    send: SendCredits
    buffers: ReceiveCredits
    controls: EarlyQueue  #: accepted control flits


class LinkPort(wiring.Component):
    """One link between its slice and the wire.

    Contract: packets, control flits and messages offered here arrive at the named rank's LinkPort
    of the same lane exactly once and in order, if the fabric keeps order and loses nothing; what
    the fabric spoils is dropped or cut short, and counted. No control flit leaves without a buffer
    for it at the far end; packets are the business of the slice, whose receive pool has granted a
    place for each.

    Latency: two cycles from ``i_packet`` to the wire; from the wire three to ``o_source``, four to
    ``o_beat`` and ``o_control``. One flit per cycle each way, no bubble between packets.

    Ordering and stalls: see :class:`~hub_rtl.link.link_tx.LinkTx` and
    :class:`~hub_rtl.link.deserializer.Deserializer`. ``o_control`` must be drained; a source whose
    control flits are not drained runs out of its own credits.

    On illegal input nothing is passed on: the header is reported on ``o_bad``, the rest in
    ``counts``.

    Parameters: ``cfg``, the :class:`~hub_rtl.contract.config.HubConfig`; ``patience``, cycles that
    a due CREDIT lets others go first.

    Ports: ``i_packet`` In stream(flit); ``i_control`` In stream(128), REJECT flits with ``dst`` and
    body, for ranks with ``ctl_ready``; ``i_message`` In stream(flit), CREDIT flits of the slice;
    ``ctl_ready`` Out ``ranks``, credits left, registers; ``o_source`` Out stream(rank), ``o_beat``
    Out stream(received record); ``granted``, ``returned``, ``asked``, ``answered`` Out {en, what},
    messages to the slice; ``o_control`` Out stream(128); ``tx`` Out AXI4-Stream with ``tdest``;
    ``rx`` In AXI4-Stream; ``rank``, ``lane`` In, own numbers; ``peer_dead`` In ``ranks``: control
    flits for these ranks that have no credit are sunk; ``o_bad`` Out {en, header, reason}, strobe;
    ``counts`` Out ``LINK_COUNTS``.

    Source: docs/interfaces.md section 5, docs/formats.md; the paper (arXiv 2605.05888) takes the
    links as given.
    """

    observe: LinkPortObserve  # once elaborated

    def __init__(self, cfg, patience=PATIENCE):
        super().__init__(
            {
                "i_packet": In(stream.Signature(types_of(cfg).flit)),
                **slice_ports(cfg),
                "tx": Out(AxiStream(FLIT, cfg.rank_width)),
                "rx": In(AxiStream(FLIT)),
                "lane": In(cfg.link_width),
            }
        )
        self._cfg, self._patience = cfg, patience

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.tx = tx = LinkTx(cfg, self._patience)
        m.submodules.rx = rx = Deserializer(cfg, cfg.slice_bytes)
        m.submodules.send = send = SendCredits(cfg)
        m.submodules.buffers = buffers = ReceiveCredits(cfg)
        m.submodules.controls = controls = EarlyQueue(FLIT, (cfg.ranks - 1) * cfg.ctl_credits)
        self.observe = LinkPortObserve(tx, rx, send, buffers, controls)
        flipped, connect = wiring.flipped, wiring.connect
        connect(m, flipped(self.i_packet), tx.i_packet)
        connect(m, flipped(self.i_control), tx.i_control)
        connect(m, flipped(self.i_message), tx.i_message)
        connect(m, tx.tx, flipped(self.tx))
        connect(m, flipped(self.rx), rx.rx)
        connect(m, rx.o_source, flipped(self.o_source))
        connect(m, rx.o_beat, flipped(self.o_beat))
        connect(m, controls.o, flipped(self.o_control))
        connect(m, tx.reports, buffers.reports)
        m.d.comb += [
            *(end.rank.eq(self.rank) for end in (tx, rx)),
            *(end.lane.eq(self.lane) for end in (tx, rx)),
            tx.peer_dead.eq(self.peer_dead),
            tx.control_ready.eq(send.ready),
            send.take.eq(tx.control_take),
            send.total.eq(rx.total),
            self.ctl_ready.eq(send.ready),
            *(getattr(self, name).eq(getattr(rx, name)) for name in MESSAGES),
            self.o_bad.eq(rx.bad),
        ]
        violation = self._receive_control(m, rx.control, controls, buffers)
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
            counts.credit_violations.eq(violation),
        ]
        m.d.comb += [
            counts.rx_busy.eq(rx.busy),
            counts.seq_errors.eq(
                mutant("link.bad_flit_hides_seq_error", rx.seq_error, rx.seq_error & ~rx.bad.en)
            ),
            counts.truncated.eq(rx.truncated),
        ]
        return m

    def _receive_control(self, m, control, controls, buffers):
        """A control flit finds its place if its source has one. Returns that it has not."""
        src, room = header_layout()(control.header).src[: self._cfg.rank_width], controls.o
        accepts = mutant(
            "link.control_let_in_without_room",
            control.en & ~buffers.full.bit_select(src, 1),
            control.en,
        )
        m.d.comb += [
            buffers.accept.en.eq(accepts),
            buffers.accept.rank.eq(src),
            controls.early.eq(control.header),
            controls.write.eq(control.en),
        ]
        leaver = header_layout()(room.payload)
        m.d.sync += [
            controls.push.eq(accepts),
            buffers.free.en.eq(room.valid & room.ready),
            buffers.free.rank.eq(
                mutant("link.control_place_freed_of_destination", leaver.src, leaver.dst)
            ),
        ]
        return control.en & ~accepts
