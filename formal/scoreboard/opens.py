# SPDX-License-Identifier: Apache-2.0
"""Promises about epochs: which ones a bank is opened for, and what becomes of news that is dropped
for its epoch."""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import one_of
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.scoreboard.records import OpKind

from .ledger import BooksSpec

__all__ = ["BanksGoForward", "DroppedNewsTaint"]


class BanksGoForward(BooksSpec):
    """A bank that has had an epoch is opened only for one 2, 4 or 6 ahead of it: never for the
    same, never for one of which early news counts as old. FORGET, which only a FREE bank carries
    out, alone allows any. Told by the ports alone: orders with their answers, and the broadcast of
    states."""

    def promise(self, m):
        dut, update = self.dut, self.dut.region_update
        has_last = Signal()
        last = Signal(4)
        told = update.en & (update.region == self.region) & (update.bank == self.bank)
        free = Signal(init=1)  # as broadcast; an OPEN that ends at once is told as DONE
        with m.If(told):
            m.d.sync += free.eq(update.state == RegionState.FREE)
        opens = told & free & (update.state != RegionState.FREE)
        forgot = self.past(self.does(OpKind.FORGET), "forget") & dut.result.ok
        with m.If(forgot):
            m.d.sync += has_last.eq(0)
        with m.Elif(opens):
            m.d.sync += [
                has_last.eq(1),
                last.eq(update.epoch),
            ]
        ahead = Signal(4)
        m.d.comb += ahead.eq(update.epoch - last)
        forward = one_of(ahead, 2, 4, 6)
        self.always("a bank goes forward", forward, when=opens & has_last)
        self.always(
            "FORGET is for FREE banks",
            self.past(self.state == RegionState.FREE, "was_free"),
            when=forgot,
        )
        self.reach("any epoch after FORGET", opens & ~has_last & (last != 0) & (ahead == 10))
        # What this knows of the bank is what its book knows, one cycle later.
        now_has, now_last = (
            Mux(forgot, 0, has_last | opens),
            Mux(opens & ~forgot, update.epoch, last),
        )
        now_free = Mux(told, update.state == RegionState.FREE, free)
        self.lemma("FREE as told", now_free == (self.state == RegionState.FREE))
        self.lemma("history", now_has == self.book["used"])
        self.lemma("an epoch of the bank", self.epoch[0] == self.bank, when=self.book["used"])
        self.lemma("last epoch", now_last == self.epoch, when=self.book["used"])


class DroppedNewsTaint(BooksSpec):
    """News of an epoch (a close, a primary's tell, refused bytes) is in the totals of that epoch's
    book, or its OPEN ends in ERROR EPOCH_EARLY with the OPEN itself, if it comes to that. One
    arbitrary epoch of one arbitrary bank is followed: news of it is dropped when a book that has it
    does not take it, or gives its place to another epoch or to FORGET. It stays dropped until its
    OPEN, or until a bank with a history is opened for an epoch that it does not lie 2, 4 or 6 ahead
    of: then it is over."""

    def promise(self, m):
        dut, op, b = self.dut, self.op, self.book
        epoch = self.constant(4, "epoch")
        ours = op.epoch == epoch
        named = self.news & ours
        # Not taken: neither of the epoch in use nor of the one kept. A second close is of the
        # epoch, and no news.
        kept = b["held"] & (Cat(self.bank, b["tag"]) == epoch)
        in_use = self.busy & (self.epoch == epoch)
        grew = Signal()
        m.d.comb += grew.eq(
            self.past(named, "named")
            & (dut.counts.close_stale | dut.counts.refused_stale | dut.counts.tainted)
        )
        leaves = kept & ((self.opens & ~ours) | self.forgets)
        dropped = Signal()
        ahead = Signal(4)
        m.d.comb += ahead.eq(epoch - op.epoch)
        over = self.opens & (ours | (b["used"] & ~(one_of(ahead, 2, 4, 6))))
        self.flag(dropped, leaves | (named & ~self.belongs), over, first=0)
        self.suppose("an epoch of the bank", epoch[0] == self.bank)
        self.always(
            "what is not taken is counted as dropped",
            grew == self.past(named & ~self.belongs, "refused"),
        )
        self.always(
            "an epoch takes its own news",
            in_use | (self.early & (kept | ~b["held"])),
            when=named & self.belongs,
        )
        ends = dut.outcome.en & (dut.outcome.index == Cat(self.bank, self.region))
        spoilt = ends & dut.outcome.error & (dut.outcome.word.status == Reason.EPOCH_EARLY)
        self.always(
            "the OPEN of an epoch with dropped news is an ERROR",
            spoilt,
            when=self.opens & ours & dropped,
        )
        self.lemma("dropped news are marked", b["taint"].bit_select(epoch[1:], 1) == dropped)
