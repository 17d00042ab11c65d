# SPDX-License-Identifier: Apache-2.0
"""Control messages of the hub: REJECT to its link or to the own rank, received ones to the log."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.packets import HEADER, PacketType
from hub_rtl.contract.records import REJECT_REPORT, header_layout
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.stream import StreamMerge, StreamRegister, StreamStage

__all__ = ["ControlRouter"]


def _some(*names):
    """Layout of these header fields alone: of the others none is read, or the link fills it in."""
    return data.StructLayout({name: HEADER[name][1] for name in names})


class ControlRouter(wiring.Component):
    """Takes control flits from their sender to link lane 0 or to the own rank, and received ones to
    the log.

    Contract: each flit leaves once. The sender offers at most one flit per peer until ``ctl_done``
    for it and never for a peer without a control credit, so ``o_link`` waits for the wire only. The
    own rank always has a place. The sender fills ``type``, ``dst`` and the body; all else is 0 at
    ``o_link``. Latency: one cycle to the link, one to the own rank's log, one from a received flit.
    One flit per cycle each way. Order: per destination. Stalls: received flits wait for one another
    only. Illegal input: link receivers pass REJECT only; anything else is dropped.

    Parameters: ``cfg``. Ports: ``rank`` In; ``i_control`` In stream(128); ``o_link`` Out
    stream(128); ``link_ready`` In ``ranks``, control credits of lane 0; ``ctl_ready``, ``ctl_done``
    Out ``ranks``, for the sender; ``i_received`` In stream(128), one per slice; ``reject_valid``,
    ``reject`` Out, a REJECT in this cycle. Source: interfaces sections 9 and 10.
    """

    def __init__(self, cfg):
        super().__init__(
            {
                "rank": In(cfg.rank_width),
                "i_control": In(stream.Signature(FLIT)),
                "o_link": Out(stream.Signature(FLIT)),
                "link_ready": In(cfg.ranks),
                "ctl_ready": Out(cfg.ranks),
                "ctl_done": Out(cfg.ranks),
                "i_received": In(stream.Signature(FLIT)).array(cfg.slices),
                "reject_valid": Out(1),
                "reject": Out(REJECT_REPORT),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, header = self._cfg, header_layout()
        # The link's choice ends in a register towards the sender: no path goes on from it to the
        # one that the flit is from.
        m.submodules.to_link = to_link = StreamRegister(_some("type", "dst", "body"))
        m.submodules.received = received = StreamMerge(
            _some("type", "src", "body"), cfg.slices + 1, stage=StreamStage
        )
        to_own = received.i[cfg.slices]
        flit = header(self.i_control.payload)
        local = Signal()
        source = mutant("hub.own_control_keeps_sender", self.rank, flit.src)
        ready = mutant(
            "hub.control_waits_for_both",
            Mux(local, to_own.ready, to_link.i.ready),
            to_own.ready & to_link.i.ready,
        )
        m.d.comb += [
            local.eq(flit.dst == self.rank),
            to_link.i.valid.eq(self.i_control.valid & ~local),
            to_link.i.payload.dst.eq(flit.dst),
            to_own.valid.eq(self.i_control.valid & local),
            to_own.payload.src.eq(source),
            self.i_control.ready.eq(ready),
            *[
                target.payload[name].eq(flit[name])
                for target in (to_link.i, to_own)
                for name in ("type", "body")
            ],
        ]
        link = header(self.o_link.payload)
        m.d.comb += [
            self.o_link.valid.eq(to_link.o.valid),
            to_link.o.ready.eq(self.o_link.ready),
            *[link[name].eq(to_link.o.payload[name]) for name in ("type", "dst", "body")],
        ]
        for n, each in enumerate(self.i_received):
            m.d.comb += [
                received.i[n].valid.eq(each.valid),
                each.ready.eq(received.i[n].ready),
                *[
                    received.i[n].payload[name].eq(header(each.payload)[name])
                    for name in ("type", "src", "body")
                ],
            ]
        self._done(m, to_own)
        self._read(m, received.o)
        return m

    def _done(self, m, to_own):
        """Credits: those of lane 0, the own rank always. Done: a link took the flit, or the merge
        of received ones did."""
        cfg = self._cfg
        link = header_layout()(self.o_link.payload)
        own_rank = Signal(cfg.ranks)
        own_done = Signal()
        link_done = self.o_link.valid & self.o_link.ready
        m.d.sync += own_done.eq(
            mutant("hub.control_done_when_offered", to_own.valid & to_own.ready, to_own.valid)
        )
        for rank in range(cfg.ranks):
            m.d.comb += [
                own_rank[rank].eq(self.rank == rank),
                self.ctl_done[rank].eq(
                    (link_done & (link.dst == rank)) | (own_done & own_rank[rank])
                ),
            ]
        m.d.comb += self.ctl_ready.eq(self.link_ready | own_rank)

    def _read(self, m, out):
        """A received REJECT is shown for a cycle."""
        reject = Signal(header_layout(PacketType.REJECT))
        flit = header_layout()(reject.as_value())
        m.d.comb += [
            *[flit[name].eq(out.payload[name]) for name in ("type", "src", "body")],
            out.ready.eq(1),
            self.reject_valid.eq(out.valid & (reject.type == PacketType.REJECT)),
            *[self.reject[name].eq(reject[name]) for name, _ in self.reject.shape()],
        ]
