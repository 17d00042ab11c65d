# SPDX-License-Identifier: Apache-2.0
"""Control messages of the hub: CLOSE and REJECT to their links or to the own rank, received ones to
their readers."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.packets import HEADER, PacketType
from hub_rtl.contract.records import REJECT_REPORT, header_layout, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.stream import StreamMerge, StreamStage

__all__ = ["ControlRouter"]


def _some(*names):
    """Layout of these header fields alone: of the others none is read, or the link fills it in."""
    return data.StructLayout({name: HEADER[name][1] for name in names})


class ControlRouter(wiring.Component):
    """Takes control flits from the two senders to link lane 0 or to the own rank, and received ones
    to scoreboard and log.

    Contract: each flit leaves once. A sender offers at most one flit per peer until ``ctl_done``
    for it and never for a peer without a control credit, so ``o_link`` waits for the wire only. The
    own rank always has a place. A sender fills ``type``, ``dst`` and the body; all else is 0 at
    ``o_link``. Latency: one cycle to the link, one to the own rank's readers, one from a received
    flit. One flit per cycle each way. Order: per sender and destination. Local flits of a sender do
    not wait for another sender's. Stalls: received flits wait for the scoreboard alone, which
    always drains. A CLOSE is one entry of news, tell and close. Illegal input: link receivers pass
    CLOSE and REJECT only; anything else is dropped.

    Parameters: ``cfg``. Ports: ``rank`` In; ``i_control`` In, one stream(128) per sender;
    ``o_link`` Out stream(128); ``link_ready`` In ``ranks``, control credits of lane 0;
    ``ctl_ready``, ``ctl_done`` Out ``ranks``, for both senders; ``i_received`` In stream(128), one
    per slice; ``o_news`` Out stream(news); ``reject_valid``, ``reject`` Out, a REJECT in this
    cycle; ``close_taken`` Out, strobe. Source: interfaces sections 3 and 9.
    """

    SENDERS = 2

    def __init__(self, cfg):
        super().__init__(
            {
                "rank": In(cfg.rank_width),
                "i_control": In(stream.Signature(FLIT)).array(self.SENDERS),
                "o_link": Out(stream.Signature(FLIT)),
                "link_ready": In(cfg.ranks),
                "ctl_ready": Out(cfg.ranks),
                "ctl_done": Out(cfg.ranks),
                "i_received": In(stream.Signature(FLIT)).array(cfg.slices),
                "o_news": Out(stream.Signature(types_of(cfg).news)),
                "reject_valid": Out(1),
                "reject": Out(REJECT_REPORT),
                "close_taken": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        header = header_layout()
        # The link decides late whether it takes a flit: towards the senders its answer ends in a
        # register.
        m.submodules.to_link = to_link = StreamMerge(_some("type", "dst", "body"), self.SENDERS)
        m.submodules.received = received = StreamMerge(
            _some("type", "src", "body"), cfg.slices + self.SENDERS, stage=StreamStage
        )
        own_rank, own_done = Signal(cfg.ranks), Signal()
        to_own = received.i[cfg.slices :]
        for n, sender in enumerate(self.i_control):
            flit = header(sender.payload)
            local = Signal(name=f"local{n}")
            m.d.comb += [
                local.eq(flit.dst == self.rank),
                to_link.i[n].valid.eq(sender.valid & ~local),
                to_own[n].valid.eq(sender.valid & local),
                to_own[n].payload.src.eq(
                    mutant(
                        "hub.own_control_keeps_sender",
                        mutant("hub.own_control_says_rank_0", self.rank, 0),
                        flit.src,
                    )
                ),
                to_link.i[n].payload.dst.eq(flit.dst),
                sender.ready.eq(
                    mutant(
                        "hub.control_waits_for_both",
                        Mux(local, to_own[n].ready, to_link.i[n].ready),
                        to_own[n].ready & to_link.i[n].ready,
                    )
                ),
            ]
            m.d.comb += [
                target.payload[name].eq(flit[name])
                for target in (to_link.i[n], to_own[n])
                for name in ("type", "body")
            ]
        link = header(self.o_link.payload)
        m.d.comb += [
            self.o_link.valid.eq(to_link.o.valid),
            to_link.o.ready.eq(self.o_link.ready),
        ]
        m.d.comb += [link[name].eq(to_link.o.payload[name]) for name in ("type", "dst", "body")]
        for n, source in enumerate(self.i_received):
            m.d.comb += [
                received.i[n].valid.eq(source.valid),
                source.ready.eq(received.i[n].ready),
            ]
            m.d.comb += [
                received.i[n].payload[name].eq(header(source.payload)[name])
                for name in ("type", "src", "body")
            ]

        # Credits: those of lane 0, the own rank always. Done: a link took the flit, or the merge of
        # received ones did.
        link_done = self.o_link.valid & self.o_link.ready
        m.d.sync += own_done.eq(
            Cat(
                mutant("hub.control_done_when_offered", own.valid & own.ready, own.valid)
                for own in to_own
            ).any()
        )
        for rank in range(cfg.ranks):
            m.d.comb += [
                own_rank[rank].eq(self.rank == rank),
                self.ctl_done[rank].eq(
                    (link_done & (link.dst == rank)) | (own_done & own_rank[rank])
                ),
            ]
        m.d.comb += self.ctl_ready.eq(self.link_ready | own_rank)

        self._read(m, received.o)
        return m

    def _read(self, m, out):
        """Received flits to their readers: a CLOSE waits for its, a REJECT is shown for a cycle."""
        header = header_layout()
        close, reject = (
            Signal(header_layout(PacketType.CLOSE)),
            Signal(header_layout(PacketType.REJECT)),
        )
        is_close = Signal()
        for flit in (header(close.as_value()), header(reject.as_value())):
            m.d.comb += [flit[name].eq(out.payload[name]) for name in ("type", "src", "body")]
        m.d.comb += [
            is_close.eq(close.type == PacketType.CLOSE),
            self.o_news.valid.eq(out.valid & is_close),
            out.ready.eq(~is_close | self.o_news.ready),
            self.o_news.payload.tell.eq(1),
            self.o_news.payload.close.eq(1),
            self.o_news.payload.bytes16.eq(close.sent16),
            *[
                self.o_news.payload[name].eq(close[name])
                for name in ("region", "epoch", "src", "abort", "ragged")
            ],
            self.close_taken.eq(self.o_news.valid & self.o_news.ready),
            self.reject_valid.eq(out.valid & (reject.type == PacketType.REJECT)),
            *[self.reject[name].eq(reject[name]) for name, _ in self.reject.shape()],
        ]
