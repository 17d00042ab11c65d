# SPDX-License-Identifier: Apache-2.0
"""Received records of one slice: NEWS apart from what goes to memory."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import BYTE, WORD
from hub_rtl.contract.records import news_layout, received_of, types_of
from hub_rtl.parts.mutants import mutant

__all__ = ["NewsSplit"]


class NewsSplit(wiring.Component):
    """Takes records of NEWS packets apart into their entries, and passes on all others.

    Contract: records of rows and plain packets come out at ``o_record`` as they are; of one with
    news each entry, 8 bytes that its mask names, comes out at ``o_news``, in order, with the
    record's source. Entries of a part that is ``lost``, and entries that neither tell nor close,
    are dropped, each with a pulse of ``lost``.

    Latency none; one beat of a record, one entry per cycle. ``i_record.ready`` follows that of
    ``o_record`` in the same cycle, and the last entry of a beat one cycle later: who takes news
    does not decide within a cycle what a receive pool gives next. A record waits for one in front
    of it.

    Input is trusted: whole records, as a receive pool gives them. Parameters: ``cfg``. Ports:
    ``i_record`` In, ``o_record`` Out stream(received record); ``o_news`` Out stream(news); ``lost``
    Out strobe. Source: docs/formats.md, NEWS.
    """

    def __init__(self, cfg):
        t, self._bytes = types_of(cfg), cfg.slice_bytes
        record = received_of(cfg, cfg.slice_bytes)
        super().__init__(
            {
                "i_record": In(stream.Signature(record)),
                "o_record": Out(stream.Signature(record)),
                "o_news": Out(stream.Signature(t.news)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, news, words = self.i_record.p, self.o_news.p, self._bytes * BYTE // WORD
        at = Signal(index_width(words))  # entry of the beat
        named = Signal(words)
        more = Signal()
        entry_here = Signal()
        good = Signal()
        done = Signal()
        ended = Signal()
        entry = Signal(news_layout())
        mask = Signal(self._bytes)
        m.d.comb += [
            entry.eq(beat.data.word_select(at, WORD)),
            mask.eq(beat.mask.word_select(beat.part, self._bytes)),
            named.eq(Cat(mask[n * WORD // BYTE] for n in range(words))),
            more.eq((named >> at >> 1).any()),
            entry_here.eq(self.i_record.valid & beat.header.news & ~ended),
            good.eq(mutant("hub.lost_entry_believed", ~beat.lost, 1) & (entry.tell | entry.close)),
            self.o_record.valid.eq(self.i_record.valid & ~beat.header.news),
            self.o_record.payload.eq(beat),
            self.o_news.valid.eq(entry_here & good),
            self.lost.eq(entry_here & ~good),
            done.eq(self.lost | (self.o_news.valid & self.o_news.ready)),
            *[news[name].eq(entry[name]) for name, _ in news.shape() if name != "src"],
            news.src.eq(beat.header.rank),
            self.i_record.ready.eq(Mux(beat.header.news, ended, self.o_record.ready)),
        ]
        m.d.sync += ended.eq(done & mutant("hub.last_entries_dropped", ~more, 1))
        with m.If(done):
            m.d.sync += at.eq(Mux(more, at + 1, 0))
        return m
