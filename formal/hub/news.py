# SPDX-License-Identifier: Apache-2.0
"""Promises of ``hub_rtl/hub/news_split.py``: received NEWS, entry by entry."""

from amaranth import Cat, Signal

from formal.kit.spec import Spec, moves
from hub_rtl.contract.records import news_layout
from hub_rtl.hub.news_split import NewsSplit

__all__ = ["NewsAreSplit"]


class NewsAreSplit(Spec):
    """Of a record with news each entry that the mask names comes out once, in order, with its
    fields and the record's source, or is told ``lost``: those of a lost part, and those that
    neither tell nor close. Other records come out as they are, beat by beat; nothing waits but for
    its output, and for a cycle behind the last entry of a beat.

    Input: the mask of a record with news names some entries of each beat, the first ones of it."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = NewsSplit(cfg)
        self.free_inputs(dut)
        port, beat, news = dut.i_record, dut.i_record.payload, dut.o_news
        words = cfg.slice_bytes // 8
        mask = beat.mask.word_select(beat.part, cfg.slice_bytes)
        here = Signal(range(words + 1))  # entries of the beat
        fits = Cat(mask == (1 << 8 * n) - 1 for n in range(1, words + 1))
        self.suppose("whole entries", fits.any(), when=port.valid & beat.header.news)
        m.d.comb += here.eq(sum(mask[8 * n] for n in range(words)))
        done = Signal(range(words))  # entries of the beat that came or were lost
        one = moves(news) | dut.lost
        ended = Signal()  # the beat's last entry came in the cycle before
        with m.If(moves(port)):
            m.d.sync += done.eq(0)
        with m.Elif(one):
            m.d.sync += done.eq(done + 1)
        entry = news_layout()(beat.data.word_select(done, 64))
        self.always(
            "entries of news only", port.valid & beat.header.news, when=news.valid | dut.lost
        )
        self.always("one of the two", ~(news.valid & dut.lost))
        self.always(
            "its fields",
            Cat(
                news.payload[name] == entry[name]
                for name, _ in news.payload.shape()
                if name != "src"
            ).all()
            & (news.payload.src == beat.header.rank)
            & ~beat.lost
            & (entry.tell | entry.close),
            when=news.valid,
        )
        self.always("lost", beat.lost | ~(entry.tell | entry.close), when=dut.lost)
        ends = one & (done + 1 == here)
        m.d.sync += ended.eq(ends)
        self.always("none behind the last", ~one, when=ended)
        self.always(
            "a beat ends behind its last entry",
            port.ready == ended,
            when=port.valid & beat.header.news,
        )
        others = port.valid & ~beat.header.news
        self.always("others pass", dut.o_record.valid == others)
        self.always(
            "others unchanged",
            (dut.o_record.payload.as_value() == beat.as_value())
            & (dut.o_record.ready == port.ready),
            when=others,
        )
        self.always(
            "an entry waits for its reader only",
            one | ~news.ready,
            when=port.valid & beat.header.news & ~ended,
        )
        self.always_held(news, "o_news")
        self.always_held(dut.o_record, "o_record")
        self.reach("last of a full beat", ends & (done == words - 1))
