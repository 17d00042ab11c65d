"""Control messages of the hub: CLOSE and REJECT to their links or to the own rank, received ones to their readers."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..formats import PacketType
from ..lib.stream import StreamMerge
from ..types import header_layout, types_of

__all__ = ["ControlRouter"]


class ControlRouter(wiring.Component):
    """Takes control flits from the two senders to link lane 0 or to the own rank, and received ones to scoreboard and log.

    Contract: each flit leaves once. A sender offers at most one flit per peer until ``ctl_done`` for it and never for a peer
    without a control credit, so ``o_link`` waits for the wire only. The own rank always has a place.
    Latency: one cycle to the link, two to the own rank's readers, one from a received flit. One flit per cycle each way.
    Order: per sender and destination. Local flits of a sender do not wait for another sender's.
    Stalls: received flits wait for the scoreboard alone, which always drains.
    Illegal input: link receivers pass CLOSE and REJECT only; anything else is dropped.

    Parameters: ``cfg``. Ports: ``rank`` In; ``i_control`` In, one stream(128) per sender; ``o_link`` Out stream(128);
    ``link_ready`` In ``ranks``, control
    credits of lane 0; ``ctl_ready``, ``ctl_done`` Out ``ranks``, for both senders; ``i_received`` In stream(128), one per
    slice; ``o_close`` Out
    stream(close); ``reject_valid``, ``reject_flit`` Out, a REJECT in this cycle; ``close_taken`` Out, strobe.
    Source: interfaces sections 3 and 9.
    """

    SENDERS = 2

    def __init__(self, cfg):
        super().__init__({
            "rank": In(cfg.rank_width), "i_control": In(stream.Signature(128)).array(self.SENDERS),
            "o_link": Out(stream.Signature(128)),
            "link_ready": In(cfg.ranks), "ctl_ready": Out(cfg.ranks), "ctl_done": Out(cfg.ranks),
            "i_received": In(stream.Signature(128)).array(cfg.slices), "o_close": Out(stream.Signature(types_of(cfg).close)),
            "reject_valid": Out(1), "reject_flit": Out(header_layout(PacketType.REJECT)), "close_taken": Out(1),
        })
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        header = header_layout()
        m.submodules.to_link = to_link = StreamMerge(128, self.SENDERS)
        m.submodules.to_own = to_own = StreamMerge(128, self.SENDERS)
        m.submodules.received = received = StreamMerge(128, cfg.slices + 1)
        own_rank = Signal(cfg.ranks)
        for n, sender in enumerate(self.i_control):
            flit = header(sender.payload)
            local = Signal(name=f"local{n}")
            stamped = Signal(header, name=f"stamped{n}")
            m.d.comb += [
                local.eq(flit.dst == self.rank), stamped.eq(sender.payload), stamped.src.eq(self.rank),
                to_link.i[n].valid.eq(sender.valid & ~local), to_link.i[n].payload.eq(sender.payload),
                to_own.i[n].valid.eq(sender.valid & local), to_own.i[n].payload.eq(stamped),
                sender.ready.eq(Mux(local, to_own.i[n].ready, to_link.i[n].ready)),
            ]
        connect(m, to_link.o, flipped(self.o_link))
        connect(m, to_own.o, received.i[cfg.slices])
        for n, source in enumerate(self.i_received):
            connect(m, flipped(source), received.i[n])

        # Credits: those of lane 0, the own rank always. Done: a link took the flit, or the merge to the own rank did.
        own_done = to_own.o.valid & to_own.o.ready
        link_done, link_dst = self.o_link.valid & self.o_link.ready, header(self.o_link.payload).dst
        for rank in range(cfg.ranks):
            m.d.comb += [
                own_rank[rank].eq(self.rank == rank),
                self.ctl_done[rank].eq((link_done & (link_dst == rank)) | (own_done & own_rank[rank])),
            ]
        m.d.comb += self.ctl_ready.eq(self.link_ready | own_rank)

        # Readers.
        close, reject = Signal(header_layout(PacketType.CLOSE)), Signal(header_layout(PacketType.REJECT))
        out = received.o
        is_close = Signal()
        m.d.comb += [
            close.eq(out.payload), reject.eq(out.payload), is_close.eq(close.type == PacketType.CLOSE),
            self.o_close.valid.eq(out.valid & is_close), out.ready.eq(~is_close | self.o_close.ready),
            self.o_close.payload.region.eq(close.region), self.o_close.payload.epoch.eq(close.epoch),
            self.o_close.payload.src.eq(close.src), self.o_close.payload.sent.eq(Cat(Const(0, 4), close.sent16)),
            self.o_close.payload.ragged.eq(close.ragged), self.o_close.payload.abort.eq(close.abort),
            self.close_taken.eq(self.o_close.valid & self.o_close.ready),
        ]
        m.d.sync += [self.reject_valid.eq(out.valid & (reject.type == PacketType.REJECT)), self.reject_flit.eq(reject)]
        return m
