# SPDX-License-Identifier: Apache-2.0
"""Received packets of one slice: NEWS apart from what goes to memory."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT, NEWS_COUNT, RANK
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout, news_layout, types_of
from hub_rtl.parts.mutants import mutant

__all__ = ["NewsSplit"]


class NewsSplit(wiring.Component):
    """Takes NEWS packets apart into their entries, and passes on all others.

    Contract: ROW and PLAIN packets come out at ``o_packet`` as they are; of a NEWS packet each of
    its ``count`` entries comes out at ``o_news``, in order, with the packet's source. Entries of a
    flit that the link padded (``err``), and entries that neither tell nor close, are dropped, each
    with a pulse of ``lost``.

    Latency none; one flit of a packet, one entry of a NEWS packet per cycle. ``i_packet.ready``
    follows that of the output in the same cycle. A packet waits for one in front of it.

    Input is trusted: whole packets with good headers, as a link's receiver gives them. Parameters:
    ``cfg``. Ports: ``i_packet`` In, ``o_packet`` Out stream(flit); ``o_news`` Out stream(news);
    ``lost`` Out strobe. Source: docs/formats.md, NEWS.
    """

    def __init__(self, cfg):
        t = types_of(cfg)
        super().__init__(
            {
                "i_packet": In(stream.Signature(t.flit)),
                "o_packet": Out(stream.Signature(t.flit)),
                "o_news": Out(stream.Signature(t.news)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        flit, news = self.i_packet.payload, self.o_news.payload
        header, head = header_layout()(flit.data), header_layout(PacketType.NEWS)(flit.data)
        left, high, src = Signal(NEWS_COUNT), Signal(), Signal(RANK)  # entries to come; which half
        is_news, entry_here, good, done = Signal(), Signal(), Signal(), Signal()
        entry = news_layout()(flit.data.word_select(high, FLIT // 2))
        m.d.comb += [
            is_news.eq(Mux(flit.first, header.type == PacketType.NEWS, left.any())),
            entry_here.eq(self.i_packet.valid & is_news & ~flit.first),
            good.eq(mutant("hub.padded_entry_believed", ~flit.err, 1) & (entry.tell | entry.close)),
            self.o_packet.valid.eq(self.i_packet.valid & ~is_news),
            self.o_packet.payload.eq(flit),
            self.o_news.valid.eq(entry_here & good),
            self.lost.eq(entry_here & ~good),
            done.eq(self.lost | (self.o_news.valid & self.o_news.ready)),
            news.src.eq(src),
            *[news[name].eq(entry[name]) for name, _ in news.shape() if name != "src"],
            self.i_packet.ready.eq(
                Mux(
                    is_news,
                    flit.first
                    | (done & (high | mutant("hub.last_entry_waits", left == 1, flit.last))),
                    self.o_packet.ready,
                )
            ),
        ]
        with m.If(self.i_packet.valid & is_news & flit.first):
            m.d.sync += [
                left.eq(head.count),
                high.eq(0),
                src.eq(mutant("hub.news_of_destination", header.src, header.dst)),
            ]
        with m.Elif(done):
            m.d.sync += [
                left.eq(left - 1),
                high.eq(~high),
            ]
        return m
