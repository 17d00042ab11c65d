# SPDX-License-Identifier: Apache-2.0
"""Promises of ``hub_rtl/hub/news_split.py``: received NEWS, entry by entry."""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec, moves
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout, news_layout
from hub_rtl.hub.news_split import NewsSplit

__all__ = ["NewsAreSplit"]


class NewsAreSplit(Spec):
    """Of a NEWS packet each entry comes out once, in order, with its fields and the packet's
    source, or is told ``lost``: those of flits that the link padded, and those that neither tell
    nor close. Other packets come out as they are, flit by flit; nothing waits but for its output.

    Input: packets with good headers, ``len`` = half the entries, rounded up."""

    def build(self, m):
        m.submodules.dut = dut = NewsSplit(self._cfg)
        self.free_inputs(dut)
        port, flit, news = dut.i_packet, dut.i_packet.payload, dut.o_news
        header = header_layout(PacketType.NEWS)(flit.data)
        # The packet that goes on: flits to come, entries to come, its source.
        within, flits, entries, is_news = Signal(), Signal(5), Signal(5), Signal()
        src, half = Signal(7), Signal()
        self.suppose("framed", flit.first == ~within, when=port.valid)
        starts_news = flit.first & (header.type == PacketType.NEWS)
        self.suppose(
            "good header of news",
            (header.count >= 1)
            & (header.count <= 16)
            & (header.len == (header.count + 1) >> 1)
            & ~header.masked
            & ~flit.last
            & ~flit.err,
            when=port.valid & starts_news,
        )
        self.suppose(
            "as long as its header says", flit.last == (flits == 1), when=port.valid & within
        )
        with m.If(moves(port)):
            m.d.sync += within.eq(~flit.last)
            with m.If(flit.first):
                m.d.sync += [
                    is_news.eq(starts_news),
                    flits.eq(header.len),
                    src.eq(header.src),
                ]
            with m.Else():
                m.d.sync += flits.eq(flits - 1)
        one = moves(news) | dut.lost
        with m.If(moves(port) & starts_news):
            m.d.sync += [
                entries.eq(header.count),
                half.eq(0),
            ]
        with m.Elif(one):
            m.d.sync += [
                entries.eq(entries - 1),
                half.eq(~half),
            ]
        inside_news = within & is_news
        entry = news_layout()(Mux(half, flit.data[64:], flit.data[:64]))
        self.always(
            "entries of news only", inside_news & (entries != 0), when=news.valid | dut.lost
        )
        self.always("one of the two", ~(news.valid & dut.lost))
        self.always(
            "its fields",
            Cat(
                news.payload[name] == entry[name]
                for name, _ in news.payload.shape()
                if name != "src"
            ).all()
            & (news.payload.src == src)
            & ~flit.err
            & (entry.tell | entry.close),
            when=news.valid,
        )
        self.always("lost", flit.err | ~(entry.tell | entry.close), when=dut.lost)
        self.always("all entries came", entries == 0, when=~within)
        rest = port.valid & ~starts_news & ~inside_news
        self.always("others pass", dut.o_packet.valid == rest)
        self.always(
            "others unchanged",
            (dut.o_packet.payload.as_value() == flit.as_value())
            & (dut.o_packet.ready == port.ready),
            when=rest,
        )
        self.always("a header of news waits for nobody", port.ready, when=port.valid & starts_news)
        self.always(
            "an entry waits for its reader only", one | ~news.ready, when=port.valid & inside_news
        )
        self.always_held(news, "o_news")
        self.always_held(dut.o_packet, "o_packet")
