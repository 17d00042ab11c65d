# SPDX-License-Identifier: Apache-2.0
"""NewsEngine: tells and closes go to their peers, up to 16 in a NEWS packet."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import NEWS_COUNT, UNIT
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.contract.records import record_of, types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant, variant
from hub_rtl.parts.onehot import encode

from .close_list import CloseList
from .ledger import LEDGER_CYCLES
from .news import NewsPacker
from .records import producer_types_of
from .tell_list import TellList

__all__ = ["NewsEngine"]


class NewsEngineObserve(NamedTuple):
    """What a proof may see of a :class:`NewsEngine`: its parts, and the packet that is made."""

    tells: TellList
    closes: CloseList
    packer: NewsPacker  #: entries on their way to a packet
    batch: data.View  #: whether there is one, whether it is dropped, and its peer
    count: Signal  #: its entries that left their lists
    step: Signal  #: cycles since one did, 0 behind the second


class NewsEngine(wiring.Component):
    """Sends tells and closes of those peers that are ready: first tells, then closes, up to 16 to a
    packet.

    Contract: a tell leaves exactly once, as an entry with the bytes told. A close leaves exactly
    once, when its peer was ready (:class:`~hub_rtl.producer.close_list.CloseList`), and clears its
    (dest, epoch[0]) in the ledger. It says ``short`` or ``over`` if it was told and less or more
    was sent; if it was told nothing, it tells the bytes sent, or 0 if it was one of the rest that
    were told 0. A dead peer's are counted and dropped. ``unpend`` follows each. A packet's data
    credit is claimed before its first entry is taken, so a packet that is packed waits for nothing
    but its lane.

    Latency: 12 cycles from the choice of a peer with one entry to ``o_news``; one entry per 3
    cycles, a packet 4 more. While closes are being listed only urged tells go, so that packets get
    full.

    Order: per peer, tells as told and closes as staged; peers round-robin, each for a packet. A
    peer that drains, has no credit or is slow holds up only its own news.

    Parameters: ``cfg``. Ports: those of TellList and CloseList but for ``pop``; ``peer_dead`` In
    ``ranks``; ``wanted`` Out ``ranks``, a packet waits for a data credit; ``may_send`` In
    ``ranks``, it is there; ``claim`` Out {en, rank}, it is taken: only if both bits were set in the
    cycle before; ``ledger_read`` Out record ``ledger_read``, ``ledger_word`` In, 2 cycles later;
    ``unpend`` Out record ``unpend``, ``unpend_granted`` In; ``o_news`` Out stream(record), one
    packet per claim; ``pending`` Out ``ranks``: closes are listed; ``sent``, ``dropped``, ``told``,
    ``told_dropped`` Out strobes, per close and per tell.
    """

    observe: NewsEngineObserve  # once elaborated

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i_tell": In(stream.Signature(own.tell)),
                "o_announce": Out(stream.Signature(own.ledger_announce)),
                "telling": Out(1),
                "urge": In(1),
                "i_close": In(stream.Signature(own.staged_close)),
                "staged": Out(1),
                "cut": In(1),
                "release": In(1),
                "left": Out(1),
                "mark": Out(own.close_mark),
                "draining": In(cfg.ranks),
                "peer_dead": In(cfg.ranks),
                "wanted": Out(cfg.ranks),
                "may_send": In(cfg.ranks),
                "claim": Out(types_of(cfg).rank_strobe),
                "ledger_flush": Out(1),
                "ledger_flushing": In(1),
                "ledger_read": Out(own.ledger_read),
                "ledger_word": In(own.ledger_word),
                "unpend": Out(own.unpend),
                "unpend_granted": In(1),
                "o_news": Out(stream.Signature(record_of(cfg, cfg.slice_bytes))),
                "pending": Out(cfg.ranks),
                "sent": Out(1),
                "dropped": Out(1),
                "told": Out(1),
                "told_dropped": Out(1),
            }
        )
        self._cfg = cfg
        #: An entry that was taken, or the end of its packet; ``drop``: there is no packet.
        self._job = data.StructLayout(
            {"popped": own.popped, "tell": 1, "end": 1, "drop": 1, "rank": cfg.rank_width}
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.tells = tells = TellList(cfg)
        m.submodules.closes = closes = CloseList(cfg)
        m.submodules.packer = packer = NewsPacker(cfg)
        self._join(m, tells, closes, packer)
        batch = Signal(data.StructLayout({"busy": 1, "drop": 1, "rank": cfg.rank_width}))
        # Tells go while closes are being listed; a packet with closes waits until all are.
        ready = Signal(cfg.ranks)
        listing = self.release & self.left
        m.d.comb += ready.eq(tells.ready | Mux(listing, 0, closes.ready))
        m.d.sync += self.wanted.eq((tells.ready | closes.ready) & ~self.peer_dead)
        self._choose(m, ready, batch, packer)
        job, count, step = self._take(m, tells, closes, batch)
        self.observe = NewsEngineObserve(tells, closes, packer, batch, count, step)
        self._read(m, tells.popped, closes.popped)
        self._send(m, job, packer, tells.bytes16)
        return m

    def _join(self, m, tells, closes, packer):
        """Ports of the parts."""
        wiring.connect(m, wiring.flipped(self.i_tell), tells.i_tell)
        wiring.connect(m, tells.o_announce, wiring.flipped(self.o_announce))
        wiring.connect(m, wiring.flipped(self.i_close), closes.i_close)
        wiring.connect(m, packer.o_news, wiring.flipped(self.o_news))
        m.d.comb += [
            tells.urge.eq(self.urge),
            self.telling.eq(tells.busy),
            closes.cut.eq(self.cut),
            closes.release.eq(self.release),
            closes.draining.eq(self.draining),
            closes.ledger_flushing.eq(self.ledger_flushing),
            self.pending.eq(closes.filled),
            *[
                getattr(self, name).eq(getattr(closes, name))
                for name in ("staged", "left", "mark", "ledger_flush")
            ],
        ]

    def _choose(self, m, ready, batch, packer):
        """A peer that may be served, for one packet, whose credit is claimed."""
        cfg = self._cfg
        m.submodules.arbiter = arbiter = RoundRobin(cfg.ranks)
        eligible = Signal(cfg.ranks)
        dead = Signal(cfg.ranks)
        choose = Signal()
        with_credit = mutant(
            "producer.news_without_credit", self.may_send & self.wanted, self.wanted
        )
        m.d.sync += [
            dead.eq(self.peer_dead),
            eligible.eq(ready & (self.peer_dead | with_credit)),
        ]
        m.d.comb += [
            arbiter.requests.eq(eligible & ready),
            arbiter.advance.eq(choose),
            choose.eq(arbiter.requests.any() & ~batch.busy & packer.room),
            self.claim.en.eq(choose & ~(arbiter.grant_onehot & dead).any()),
            self.claim.rank.eq(encode(arbiter.grant_onehot)),
            packer.begin.eq(self.claim.en),
        ]
        with m.If(choose):
            m.d.sync += [
                batch.busy.eq(1),
                batch.drop.eq(mutant("producer.dropped_for_the_living", ~self.claim.en, 1)),
                batch.rank.eq(self.claim.rank),
            ]

    def _take(self, m, tells, closes, batch):
        """The entries of one packet leave their lists, one per 3 cycles; returns them, one cycle
        after the read of the ledger, with how many left and the cycle since one did."""
        step = Signal(2)
        count = Signal(NEWS_COUNT)
        more = Signal()
        end = Signal()
        tell = Signal()
        close = Signal()
        go = Signal()
        m.d.comb += [
            tell.eq(tells.filled.bit_select(batch.rank, 1)),
            close.eq(closes.ready.bit_select(batch.rank, 1)),
            # A close listed while the first one waits for `unpend` does not end the packet.
            more.eq(
                mutant("producer.packet_without_entry", ~count.any(), 0)
                | (
                    (tell | close)
                    & mutant("producer.packet_of_17_entries", count != NEWS_ENTRIES, 1)
                )
            ),
            end.eq(batch.busy & (step == 0) & ~more),
            go.eq(batch.busy & (step == 0) & more & (~self.unpend.valid | self.unpend_granted)),
            tells.pop.en.eq(go & tell),
            tells.pop.rank.eq(batch.rank),
            closes.pop.en.eq(go & ~tell),
            closes.pop.rank.eq(batch.rank),
        ]
        with m.If(go | (step != 0)):
            m.d.sync += step.eq(Mux(step == 2, 0, step + 1))
        with m.If(go):
            m.d.sync += count.eq(count + 1)
        with m.If(end):
            m.d.sync += [
                batch.busy.eq(0),
                count.eq(0),
            ]
        job = Signal(self._job)
        m.d.sync += [
            job.popped.eq(Mux(tells.popped.en, tells.popped, closes.popped)),
            job.tell.eq(tells.popped.en),
            job.end.eq(end),
            job.drop.eq(batch.drop),
            job.rank.eq(batch.rank),
        ]
        return job, count, step

    def _read(self, m, tell, close):
        """A close reads the ledger; then the table learns that it, or the tell, is not listed any
        more."""
        m.d.comb += [
            self.ledger_read.en.eq(close.en),
            self.ledger_read.dest.eq(close.dest),
            self.ledger_read.bank.eq(
                mutant("producer.word_of_other_bank", close.bank, close.body.epoch[1])
            ),
        ]
        with m.If(tell.en | close.en):
            m.d.sync += [
                self.unpend.valid.eq(1),
                self.unpend.tell.eq(tell.en),
                self.unpend.dest.eq(Mux(tell.en, tell.dest, close.dest)),
                self.unpend.bank.eq(close.bank),
            ]
        with m.Elif(self.unpend_granted):
            m.d.sync += self.unpend.valid.eq(0)

    def _send(self, m, job, packer, bytes16):
        """Gives the entry to the packer, with what was told, or what the ledger says of it."""
        for n in range(
            variant("producer.entry_before_its_word", LEDGER_CYCLES - 1, LEDGER_CYCLES - 2)
        ):  # the job is one cycle behind the read
            later = Signal(self._job, name=f"job{n}")
            m.d.sync += later.eq(job)
            job = later
        entry, word, body = packer.put.entry, self.ledger_word, job.popped.body
        told = Signal()
        sent = Signal(self._cfg.total_width)
        m.d.comb += [
            told.eq(word.told | body.zero),
            sent.eq(mutant("producer.left_told_as_sent", -word.left, word.left)),
            packer.put.en.eq(job.popped.en & ~job.drop),
            packer.put.end.eq(job.end & ~job.drop),
            packer.put.rank.eq(job.rank),
            entry.region.eq(body.region),
            entry.epoch.eq(body.epoch),
            entry.tell.eq(job.tell | ~word.told),
            entry.close.eq(~job.tell),
            entry.abort.eq(body.abort & ~job.tell),
            entry.short.eq(~job.tell & told & mutant("producer.short_not_said", word.left > 0, 0)),
            entry.over.eq(~job.tell & told & mutant("producer.over_not_said", word.left < 0, 0)),
            entry.bytes16.eq(Mux(job.tell, bytes16, Mux(told, 0, sent[UNIT:]))),
            entry.ragged.eq(~job.tell & ~told & sent[:UNIT].any()),
            self.told_dropped.eq(job.popped.en & job.drop & job.tell),
            self.told.eq(job.popped.en & ~job.drop & job.tell),
            self.dropped.eq(job.popped.en & job.drop & ~job.tell),
            self.sent.eq(job.popped.en & ~job.drop & ~job.tell),
        ]
