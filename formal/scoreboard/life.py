# SPDX-License-Identifier: Apache-2.0
"""The promise of the RegionBooks as a concept: what one epoch's whole life adds up to, and that
nothing of it is forgotten."""

from types import SimpleNamespace

from amaranth import Cat, Mux, Signal
from amaranth.lib.data import View

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.region_books import RegionBooks

__all__ = ["AnEpochIsTheSumOfItsNews"]

NEWS = (OpKind.REFUSE, OpKind.NEWS, OpKind.PASS)
#: What an account adds up of them.
NEWS_SUMS = ("told", "num_told", "closes", "num_closes", "sent", "refused")
NAMES_EPOCH = (*NEWS, OpKind.OPEN, OpKind.RELEASE, OpKind.ABORT, OpKind.FORGET)


class AnEpochIsTheSumOfItsNews(Spec):
    """For any epoch of any region, from the end of its last use to the end of the next: all that
    came and names it is in its book when it is OPEN, whether it came early or in time. (An epoch
    that an OPEN of its bank leaves more than seven ahead is over for that bank, unless it is the
    bank's first OPEN, or the first after FORGET: what came until then was of the past.) `sent` is
    the sum of the closes of distinct producers and of the primaries, `refused` of the refusals,
    `acked` of what was acknowledged in this use. If anything of it was dropped, its OPEN is not
    carried out, or ends it with ERROR at once; and ERROR EPOCH_EARLY comes only if something of it
    came before. ALL comes only if all expected producers had closed and acked + refused = sent, in
    these sums.

    The ledger knows no rule of the books: it adds what comes and forgets when the bank becomes FREE
    after this epoch. An operation's effects show two cycles after the books took it, states and
    answers in the third."""

    def build(self, m):
        cfg, types = self._cfg, scoreboard_types(self._cfg)
        self.dut = dut = RegionBooks(cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.free_inputs(dut)
        self.region, self.epoch = (
            self.constant(cfg.region_width, "region"),
            self.constant(4, "epoch"),
        )
        self.bank = self.epoch[0]
        came = dut.i_op
        self.suppose(
            "the bank is the epoch's lowest bit",
            came.bank == came.epoch[0],
            when=dut.i_valid & ~came.plain & self.kind(came, *NAMES_EPOCH),
        )
        self.suppose(
            "news come from ranks",
            came.src < cfg.ranks,
            when=dut.i_valid & (came.kind == OpKind.NEWS),
        )
        self.suppose(
            "only acknowledgements and CLEAR are plain",
            self.kind(came, OpKind.ACK, OpKind.CLEAR),
            when=dut.i_valid & came.plain,
        )
        self.suppose(
            "nothing comes while clearing", ~dut.i_valid & ~dut.geometry_write.en, when=dut.clearing
        )
        here = dut.i_valid & ~came.plain & (came.region == self.region) & (came.bank == self.bank)
        between = Signal(types.op)
        self.op = Signal(types.op)
        m.d.sync += [
            between.eq(came),
            self.op.eq(between),
        ]
        self.mine = self.past(self.past(here, "read"), "mine")
        self.of_epoch = self.mine & (self.op.epoch == self.epoch)
        self._states(m)
        self._ledger(m)
        self._promises(m)
        self._lemmas(m)

    @staticmethod
    def kind(op, *kinds):
        return Cat(op.kind == kind for kind in kinds).any()

    def _states(self, m):
        """The bank as its broadcasts tell it, that of the last operation included."""
        told = self.dut.region_update
        before = Signal(RegionState)
        now = Signal(RegionState)
        last = Signal(4)
        opened = Signal(4)
        mine = told.en & (told.region == self.region) & (told.bank == self.bank)
        used = Signal()
        ahead = Signal(4)
        with m.If(self.mine & (self.op.kind == OpKind.FORGET) & (now == RegionState.FREE)):
            m.d.sync += used.eq(0)
        with m.Elif(mine):
            m.d.sync += used.eq(1)
        m.d.comb += ahead.eq(self.epoch - told.epoch)
        self.used = used
        self.passed = (
            mine & used & (before == RegionState.FREE) & (ahead > 7)
        )  # by an OPEN of another epoch
        m.d.comb += [
            now.eq(Mux(mine, told.state, before)),
            opened.eq(Mux(mine, told.epoch, last)),
        ]
        m.d.sync += [
            before.eq(now),
            last.eq(opened),
        ]
        self.state, self.last = now, opened
        self.in_use = (now != RegionState.FREE) & (opened == self.epoch)
        self.is_open = (now == RegionState.OPEN) & (opened == self.epoch)
        self.suppose(
            "FREE is given to banks that are DONE",
            now == RegionState.DONE,
            when=self.mine & (self.op.kind == OpKind.FREE),
        )

    def _ledger(self, m):
        """Sums and sets over a life."""
        cfg, op, of_epoch = self._cfg, self.op, self.of_epoch
        types = scoreboard_types(cfg)
        widths = {name: types.account[name].width for name in NEWS_SUMS}
        widths |= {"came": 1, "acked": types.book["acked"].width}  # came: some news of it
        sums = {name: Signal(width, name=f"ledger_{name}") for name, width in widths.items()}
        kept = {name: Signal(width, name=f"kept_{name}") for name, width in widths.items()}
        for name, total in sums.items():
            m.d.comb += total.eq(Mux(self.passed, 0, kept[name]))
            m.d.sync += kept[name].eq(total)
        self.came = sums.pop("came")
        self.ledger, later = SimpleNamespace(**sums), SimpleNamespace(**kept)
        ledger, outer, source = self.ledger, op.kind == OpKind.NEWS, (1 << op.src)[: cfg.ranks]
        tells = Signal()
        closes = Signal()
        m.d.comb += [
            tells.eq(op.tell & ~(outer & (ledger.told & source).any())),
            closes.eq(op.close & ~(outer & (ledger.closes & source).any())),
        ]
        with m.If(of_epoch & self.kind(op, *NEWS)):
            m.d.sync += later.came.eq(1)
            with m.If(op.kind == OpKind.REFUSE):
                m.d.sync += later.refused.eq(ledger.refused + op.bytes)
            with m.Else():
                m.d.sync += [
                    later.sent.eq(ledger.sent + Mux(tells, op.bytes, 0)),
                    later.num_told.eq(ledger.num_told + tells),
                    later.num_closes.eq(ledger.num_closes + closes),
                ]
            with m.If(outer & tells):
                m.d.sync += later.told.eq(ledger.told | source)
            with m.If(outer & closes):
                m.d.sync += later.closes.eq(ledger.closes | source)
        with m.If(self.mine & self.in_use & self.kind(op, OpKind.ACK, OpKind.OVER)):
            m.d.sync += later.acked.eq(ledger.acked + op.bytes)
        with m.If(self.mine & self.in_use & (op.kind == OpKind.FREE)):
            m.d.sync += [each.eq(0) for each in kept.values()]

    def _promises(self, m):
        dut, op, ledger = self.dut, self.op, self.ledger
        ends = dut.outcome.en & (dut.outcome.index == Cat(self.bank, self.region))
        shown = dut.result.book
        asked = self.mine & self.kind(op, OpKind.LOOK, OpKind.FINISH)
        looked = self.past(asked & self.is_open, "looked")
        for name, total in vars(ledger).items():
            self.always(
                f"an open epoch has all its news: {name}",
                (shown.account[name] if name in NEWS_SUMS else shown[name])
                == self.past(total, f"{name}_before"),
                when=looked,
            )
        was_told = self.past(Cat(ends, dut.outcome.error, dut.outcome.word.status), "ended")
        ended, error, status = was_told[0], was_told[1], was_told[2:]
        opens = self.past(
            self.mine
            & (op.kind == OpKind.OPEN)
            & (self.op.epoch == self.epoch)
            & (self.state == RegionState.FREE),
            "opens",
        ) & (self.state != RegionState.FREE)
        self.always(
            "an opening is OPEN, or told as ERROR", self.is_open | (ended & error), when=opens
        )
        self.always(
            "EPOCH_EARLY only if something came early",
            self.came,
            when=opens & ended & (status == Reason.EPOCH_EARLY),
        )

        # ALL: what the finisher was shown last, and what the ledger was then.
        expected = dut.result.geometry.expected

        def agree(told, closes, acked, refused, sent):
            return (told >= expected) & (closes >= expected) & (acked + refused == sent)

        fair = Signal()
        true = Signal()
        was_open = self.past(self.is_open, "was_open")
        sums = [
            self.past(getattr(ledger, name), f"{name}_shown")
            for name in ("num_told", "num_closes", "acked", "refused", "sent")
        ]
        account = shown.account
        with m.If(self.past(self.mine & (op.kind == OpKind.LOOK), "a_look")):
            m.d.sync += [
                fair.eq(
                    agree(
                        account.num_told,
                        account.num_closes,
                        shown.acked,
                        account.refused,
                        account.sent,
                    )
                    & (shown.epoch == self.epoch)
                    & (shown.state == RegionState.OPEN)
                ),
                true.eq(was_open & agree(*sums)),
            ]
        self.lemma("the finisher was shown the ledger", true, when=fair)
        verdict = self.of_epoch & (op.kind == OpKind.FINISH) & (op.status == 0)
        self.suppose("a verdict is true of what the finisher was shown", fair, when=verdict)
        self.always(
            "ALL only if all have told and closed and the sums agree",
            true,
            when=self.of_epoch & ends & ~dut.outcome.error,
        )
        for name, happens in {
            "ALL": ends & ~dut.outcome.error & (ledger.sent != 0) & (ledger.refused != 0),
            "kept early": opens & self.is_open & (ledger.sent != 0),
            "lost": opens & ~self.is_open,
        }.items():
            self.reach(name, happens)

    def _lemmas(self, m):
        """Helper invariants: what the book in memory is to the ledger."""
        types, inside = scoreboard_types(self._cfg), self.inside
        word, known = known_word(self, inside.books, Cat(self.bank, self.region), "books")
        known_word(self, inside.shapes, self.region, "shapes")
        book = View(types.book, Mux(known, word, 0))
        ledger, tag = self.ledger, self.epoch[1:]
        state, last = self.state, self.last
        news_sums = {name: total for name, total in vars(ledger).items() if name in NEWS_SUMS}
        sums, next_sums = (
            Cat((account[name] == total) for name, total in news_sums.items()).all()
            for account in (book.account, book.next)
        )
        kept_here = ~self.in_use & book.held & (book.tag == tag)
        nothing = ~Cat(self.came, *vars(ledger).values()).any()
        lost = book.taint.bit_select(tag, 1)
        busy = book.state != RegionState.FREE
        told = self.dut.region_update
        self.lemma("state as told", (book.state == state) & (book.epoch == last) | ~book.used)
        used = self.used | (told.en & (told.region == self.region) & (told.bank == self.bank))
        self.lemma("used as told", book.used == used)
        self.lemma("never used", ~busy & (state == RegionState.FREE), when=~book.used)
        acked = book.acked == ledger.acked
        self.lemma("in use: all its news", sums & acked, when=self.is_open)
        self.lemma("kept: all its news", next_sums | lost, when=kept_here)
        self.lemma("not kept: nothing, or lost", nothing | lost, when=~self.in_use & ~kept_here)
        ahead = Signal(4)
        m.d.comb += ahead.eq(Cat(self.bank, book.tag) - book.epoch)
        self.lemma(
            "what is kept is to come", (ahead >= 1) & (ahead <= 7), when=book.held & book.used
        )
        self.lemma("no acknowledgement before its use", ledger.acked == 0, when=~self.in_use)
        self.lemma("a taint has a cause", self.came, when=lost)
        self.lemma("something kept has a cause", self.came, when=kept_here)
        news = Cat(*news_sums.values())
        self.lemma("nothing came, nothing summed", self.came | ~news.any())
        self.lemma("an epoch in use has no taint", ~lost, when=self.in_use)
        self.lemma("a FREE bank has nothing", ~Cat(book.account, book.acked).any(), when=~busy)
        self.lemma("nothing of the next epoch", ~book.next.as_value().any(), when=~book.held)
        self.lemma("a state", book.state <= RegionState.DONE)
        kept = inside.at.was.as_value()
        self.lemma("the book at the change", kept == book.as_value(), when=self.mine)
