# SPDX-License-Identifier: Apache-2.0
"""Promises of the books of regions (``hub_rtl/scoreboard/region_books.py``), told with the model of
one bank's book."""

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib.data import View

from formal.kit.spec import same
from hub_rtl.contract.packets import OrderError, RegionState
from hub_rtl.scoreboard.records import OpKind, scoreboard_types

from .ledger import BooksSpec

__all__ = [
    "BooksAnnounceOnce",
    "BooksAnswerOrders",
    "BooksBroadcastStates",
    "BooksKeepTotals",
    "BooksLookForTheEnd",
    "BooksOrphansEnd",
    "BooksReportFaults",
    "BooksReportStalls",
    "BooksTellTheReason",
]


class BooksKeepTotals(BooksSpec):
    """Told, acknowledged, refused and overflowed bytes, tells, closes, rows and state of a bank are
    exactly what its epoch's news and acknowledgements add up to, in any order, news that came
    before their OPEN included, whether the bank was in use or FREE, each source's tell and close
    once, news of other epochs not; a query shows them two cycles later."""

    def promise(self, m):
        dut, book = self.dut, self.book
        asked = self.past(
            same(dut.query, region=self.region, bank=self.bank) & ~dut.clearing,
            "asked",
        )
        # The query reads in the cycle that it is asked; a write of that cycle is in.
        asked_before = self.past(asked, "asked_before")
        shown = View(scoreboard_types(self._cfg).shown, self.past(self.shown(), "shown_before"))
        self.always("a query shows the book", dut.status == shown.status, when=asked_before)
        for name, port, heard in (
            ("missing", dut.missing, shown.closes),
            ("silent", dut.silent, shown.told),
        ):
            owing = Mux(shown.status.state == RegionState.OPEN, ~heard, 0)[: self._cfg.ranks]
            self.always(name, port == owing, when=asked_before)
        result = dut.result.book
        told = self.past(
            self.mine & (self.op.kind >= OpKind.OPEN) & (self.op.kind <= OpKind.FINISH), "told"
        )
        for field in ("account", "over", "touched", "promised", "passed", "tiles", "rest", "aim"):
            self.always(
                f"an answer shows {field}",
                Value.cast(result[field]) == self.past(Value.cast(book[field]), f"{field}_before"),
                when=told,
            )


class BooksAnnounceOnce(BooksSpec):
    """A tile becomes READY exactly when it was hit while its bank is OPEN and nothing is wrong, the
    last one with an AIM or with the verdict and not with both, with the bank's epoch; a bank ends
    at most once per epoch, by ALL or by ERROR, and after that nothing of it is announced until it
    is opened again."""

    def promise(self, m):
        dut, op = self.dut, self.op
        tile = Signal()
        m.d.comb += tile.eq(
            dut.ready.en
            & ~dut.ready.clear
            & ~dut.ready.plain
            & (dut.ready.owner == self.region)
            & (dut.ready.bank == self.bank)
        )
        mine_ends = dut.outcome.en & (dut.outcome.index == Cat(self.bank, self.region))
        last = self.ready_rest
        self.always(
            "READY exactly on a hit, and for the last tile", tile == (self.ready_tile | last)
        )
        self.always(
            "READY names tile and epoch",
            same(dut.ready, group=op.group, epoch=self.epoch),
            when=tile,
        )
        self.always("a full tile has its rows", dut.ready.rows == self.rows, when=self.ready_tile)
        mask = (1 << self.shape.log2_tile) - 1
        self.always("the last tile has the rest", dut.ready.rows == (op.rows & mask), when=last)
        self.always(
            "ALL and ERROR exactly when the bank ends", mine_ends == (self.all | self.error)
        )
        self.always("ERROR or ALL", dut.outcome.error == self.error, when=mine_ends)
        self.always("no end and drop at once", ~dut.outcome.en | ~dut.drop.en)
        ended = Signal(init=1)  # by what the ports have shown alone
        with m.If(self.opens):
            m.d.sync += ended.eq(mine_ends)
        with m.Elif(mine_ends):
            m.d.sync += ended.eq(1)
        self.always("nothing after the end", ~tile & (~mine_ends | self.opens), when=ended)
        self.lemma("an open bank has not ended", ~ended, when=self.state == RegionState.OPEN)
        clears = dut.ready.en & dut.ready.clear & self.mine
        self.always("a tile is forgotten exactly with CLEAR", clears == self.does(OpKind.CLEAR))


class BooksTellTheReason(BooksSpec):
    """The ERROR of a bank names the reason (memory error before overlap before the rest; news that
    were lost before the bank's OPEN: EPOCH_EARLY), ALL its rows, and both whether bytes were
    refused; both name the epoch."""

    def promise(self, m):
        dut = self.dut
        ends = dut.outcome.en & (dut.outcome.index == Cat(self.bank, self.region))
        word = dut.outcome.word
        self.always("the reason", word.status == self.reason, when=ends & self.error)
        self.always(
            "ALL has no reason, and its rows",
            same(word, status=0, rows=self.op.rows),
            when=ends & self.all,
        )
        self.always(
            "the epoch", word.epoch == Mux(self.opens, self.op.epoch, self.epoch), when=ends
        )
        kept, account = self.book["next"], self.book["account"]
        refused = Mux(self.opens, self.kept & kept.refused.any(), account.refused.any())
        self.always("refused bytes show", word.refused == refused, when=ends)
        self.always("news that were lost end the epoch", ends & self.error, when=self.late)
        self.always("a late OPEN is EPOCH_EARLY", word.status == 5, when=self.late)


class BooksBroadcastStates(BooksSpec):
    """Every change of a bank's state and epoch is broadcast in the next cycle, and nothing else is;
    the tile counters learn it at once."""

    def promise(self, m):
        dut, update = self.dut, self.dut.region_update
        mine = update.en & (update.region == self.region) & (update.bank == self.bank)
        known = Signal(2)  # what the listeners believe
        epoch = Signal(4)
        now = Signal(2)
        now_epoch = Signal(4)
        m.d.comb += [
            now.eq(Mux(mine, update.state, known)),
            now_epoch.eq(Mux(mine, update.epoch, epoch)),
        ]
        m.d.sync += [
            known.eq(now),
            epoch.eq(now_epoch),
        ]
        # An update is in the registers of the port while the model already has it.
        self.always("listeners know the state", now == self.state)
        self.always(
            "listeners know the epoch", now_epoch == self.epoch, when=self.state != RegionState.FREE
        )
        self.always(
            "only changes are told",
            (update.state != known) | (update.state == RegionState.OPEN),
            when=mine,
        )
        legal = Mux(
            update.state == RegionState.FREE,
            known == RegionState.DONE,
            Mux(
                update.state == RegionState.OPEN,
                known == RegionState.FREE,
                known != RegionState.DONE,
            ),
        )
        self.always("FREE, OPEN, DONE, FREE", legal, when=mine)
        lives = (
            dut.live_write.en
            & (dut.live_write.region == self.region)
            & (dut.live_write.bank == self.bank)
        )
        self.always("counters learn a change at once", self.past(lives, "lives_before") == mine)
        self.always(
            "counters live unless FREE",
            self.past(dut.live_value, "live_before") == (update.state != RegionState.FREE),
            when=mine,
        )


class BooksLookForTheEnd(BooksSpec):
    """A tell, a refusal, an OPEN, the byte that completes the last tile, and whatever comes when as
    many closes as expected are in and no byte is missing, ask the finisher to look, in the next
    cycle, if as many tells as expected are in; nothing else does. So neither an aim nor an end is
    missed."""

    def promise(self, m):
        dut = self.dut
        account, aim = self.book["account"], self.book["aim"]
        rest = (
            self.does(OpKind.ACK)
            & aim.known
            & ~self.book["rest"]
            & (self.op.group == aim.group)
            & (self.held == aim.bytes)
        )
        grew = self.past(self.moves | self.opens, "grew")
        news = self.past(self.restates | self.opens | rest, "news_or_rest")
        expected = self.past(self.shape.expected, "expected_before")
        there = self.book["acked"] + account.refused >= account.sent
        ended = (account.num_closes >= expected) & there
        complete = (account.num_told >= expected) & (news | ended)
        asks = dut.check.en & (dut.check.region == self.region) & (dut.check.bank == self.bank)
        self.always(
            "a bank that may be complete is looked at",
            asks,
            when=grew & complete & (self.state == RegionState.OPEN),
        )
        self.always(
            "only a complete one is", complete & (self.state == RegionState.OPEN), when=asks
        )


class BooksOrphansEnd(BooksSpec):
    """Once an ORPHAN of a region and an epoch has passed, a bank that overflows into that region is
    not OPEN in that epoch, by what was broadcast before the answer to any later question, until an
    OPEN; and nothing of it is told to that region then but what had been. Assumed: its geometry
    rests while the bank is in use (proved by hub.geometry_of_busy_region_stays)."""

    def promise(self, m):
        op, update = self.op, self.dut.region_update
        place, number = self.constant(self._cfg.region_width, "place"), self.constant(4, "number")
        passed = Signal()
        known = Signal(2)
        epoch = Signal(4)
        mine = update.en & (update.region == self.region) & (update.bank == self.bank)
        now = Signal(2)  # what the listeners believe
        now_epoch = Signal(4)
        m.d.comb += [
            now.eq(Mux(mine, update.state, known)),
            now_epoch.eq(Mux(mine, update.epoch, epoch)),
        ]
        m.d.sync += [
            known.eq(now),
            epoch.eq(now_epoch),
        ]
        orphan = (
            self.does(OpKind.ORPHAN)
            & (op.epoch == number)
            & (op.bytes[: self._cfg.region_width] == place)
        )
        self.flag(passed, orphan, self.opens)
        # The geometry that the bank's operations find, for as long as it is in use.
        there = self.shape.overflow_en & (self.shape.overflow == place)
        moved = self.started & (self.past(there, "there_before") != there)
        self.suppose("geometry rests while its bank is in use", ~moved, when=self.busy)
        open_there = (now == RegionState.OPEN) & (now_epoch == number) & there
        self.always("nobody overflows there in that epoch", ~open_there, when=passed)
        self.reach("one that did", self.past(orphan & self.open & (self.epoch == number) & there))
        ended = passed & there & self.busy & (self.epoch == number)
        self.always("it has nothing to tell", self.book["passed"], when=ended)
        self.lemma("listeners know the state", now == self.state)
        self.lemma("listeners know the epoch", now_epoch == self.epoch, when=self.busy)


class BooksReportFaults(BooksSpec):
    """A producer's second close is reported once with its name and changes nothing, nor does a
    second tell; stray acknowledgements, stale, kept and lost news, and bad news are each
    counted."""

    def promise(self, m):
        dut, counts, op = self.dut, self.dut.counts, self.op
        bad = dut.bad_close
        twice = self.past(self.twice, "second_close")
        mine = bad.en & (bad.region == self.region) & (bad.epoch[0] == self.bank)
        self.always("a second close is reported", mine, when=twice)
        named = same(
            bad, src=self.past(op.src, "src_before"), epoch=self.past(op.epoch, "epoch_before")
        )
        self.always("with its name", named, when=twice)
        self.always("nothing else is", twice, when=mine)
        acks = self.does(OpKind.ACK, OpKind.OVER)
        told = {
            "acks_stray": acks & ~self.busy,
            "told_twice": self.told_twice,
            "close_twice": self.twice,
            "refused_stale": self.does(OpKind.REFUSE) & ~self.belongs & ~self.early,
            "close_stale": self.does(OpKind.NEWS, OpKind.PASS) & ~self.belongs & ~self.early,
            "early_kept": self.belongs & ~self.current,
            "tainted": (self.lost & self.early) | self.ousted,
            "mem_errors": self.does(OpKind.ACK) & op.mem,
            "poisoned": self.does(OpKind.ACK) & op.poison,
            "overlaps": acks & self.over | self.does(OpKind.OVERLAP),
        }
        mine_before = self.past(self.mine, "mine_before")
        for name, happens in told.items():
            self.always(
                f"counts {name}",
                counts[name] == self.past(happens, f"{name}_before"),
                when=mine_before,
            )
            self.reach(f"some {name}", self.past(happens, f"{name}_before") & mine_before)


class BooksReportStalls(BooksSpec):
    """An OPEN bank that has seen a close or a byte is reported with the fourth tick after the one
    that saw its last motion, once until it moves again; a second close is no motion."""

    def promise(self, m):
        out = self.dut.timeout
        self.always(
            "a stall is reported once",
            (out.en & (out.region == self.region) & (out.bank == self.bank)) == self.stalled,
        )
        self.reach("a stall", self.stalled)


class BooksAnswerOrders(BooksSpec):
    """OPEN succeeds exactly for a FREE bank with a geometry and an epoch ahead of the bank's last,
    FORGET for a FREE bank, RELEASE for a DONE bank and ABORT for a busy one with that epoch; the
    answer is there in the next cycle with book, geometry and the reason of a refusal, and pending
    news are dropped with RELEASE and ABORT."""

    def promise(self, m):
        dut, result, op = self.dut, self.dut.result, self.op
        order = self.does(OpKind.OPEN, OpKind.RELEASE, OpKind.ABORT, OpKind.FORGET)
        granted = self.opens | self.releases | self.aborts | self.forgets
        answered = self.past(order, "order_before")
        self.always(
            "each order is answered",
            result.valid & (result.ok == self.past(granted, "granted")),
            when=answered,
        )
        does, named = self.does, self.busy & self.same
        starts = does(OpKind.OPEN, OpKind.FORGET)
        reasons = {
            OrderError.UNKNOWN: does(OpKind.OPEN) & ~self.shape.valid,
            OrderError.IN_USE: starts & self.busy & (self.shape.valid | does(OpKind.FORGET)),
            OrderError.EPOCH: does(OpKind.OPEN) & self.shape.valid & ~self.busy & ~self.early,
            OrderError.NOT_IN_USE: does(OpKind.RELEASE, OpKind.ABORT) & ~named,
            OrderError.NOT_DONE: does(OpKind.RELEASE) & named & self.open,
        }
        for reason, applies in reasons.items():
            self.always(
                f"refused for {reason.name}",
                ~result.ok & (result.reason == reason),
                when=self.past(applies, f"refused_{reason.name.lower()}"),
            )
        told = self.past(self.does(OpKind.LOOK, OpKind.FINISH, OpKind.FREE, OpKind.AIM), "looked")
        self.always("looks and verdicts are answered", result.valid, when=told)
        self.always(
            "to the one who asked",
            result.source == self.past(op.source, "source_before"),
            when=answered | told,
        )
        self.always(
            "with the geometry",
            result.geometry.as_value() == self.past(self.shape, "shape_before"),
            when=answered | told,
        )
        self.always(
            "a verdict tells whether it came true",
            result.ok == self.past(self.all | self.error, "verdict_before"),
            when=self.past(self.does(OpKind.FINISH), "finish_before"),
        )
        self.always(
            "an aim tells whether it was for an open bank",
            result.ok == self.past(self.aims, "aims_before"),
            when=self.past(self.does(OpKind.AIM), "aim_before"),
        )
        drops = dut.drop.en & (dut.drop.region == self.region) & (dut.drop.bank == self.bank)
        self.always(
            "pending news are dropped with the order", drops == (self.releases | self.aborts)
        )
