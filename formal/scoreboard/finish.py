# SPDX-License-Identifier: Apache-2.0
"""Promises of the finisher (``hub_rtl/scoreboard/region_finish.py``): what it says is true."""

from types import SimpleNamespace

from amaranth import Cat, Mux, Signal, Value

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, one_of, same
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.region_finish import RegionFinisher

from .divider import divides

__all__ = ["Finisher", "FinisherTellsTheTruth", "complete_book", "told_all"]


class Finisher(Spec):
    """RegionFinisher with free checks, rows and answers; an answer comes only after a question."""

    def build(self, m):
        cfg = self._cfg
        self.types = scoreboard_types(cfg)
        self.dut = dut = RegionFinisher(cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.is_in = self.inside.is_in
        self.free_inputs(dut)
        self.suppose("nothing comes while clearing", ~dut.check.en, when=dut.clearing)
        kind = dut.o_op.payload.kind
        self.taken = Signal()
        asked = Signal()
        answer = dut.result.valid & (dut.result.source == 0)
        m.d.comb += self.taken.eq(moves(dut.o_op))
        questions = self.taken & one_of(kind, OpKind.LOOK, OpKind.FINISH, OpKind.AIM)
        m.d.sync += asked.eq(questions | (asked & ~answer))
        self.suppose("an answer follows a question", asked, when=answer)
        self.asked, self.answer = asked, answer
        self.lemma("states", self.among(*self.is_in))
        self.lemma("a question is open", self.among("ANSWER", "AIMED", "JUDGED"), when=asked)
        self.promise(m)

    def among(self, *names):
        """1 in one of these states."""
        return Cat(self.is_in[name] for name in names).any()


def told_all(book, shape):
    """All expected producers have told what they send."""
    return (book.state == RegionState.OPEN) & (book.account.num_told >= shape.expected)


def rest_of(rows, shape):
    """Rows of the last tile, if it is not full."""
    return rows & ((1 << shape.log2_tile) - 1)


def complete_book(book, shape):
    """All have told and closed, and no byte is missing."""
    closed = book.account.num_closes >= shape.expected
    return told_all(book, shape) & closed & (book.acked + book.account.refused >= book.account.sent)


class FinisherTellsTheTruth(Finisher):
    """A bank gets an aim only if it is OPEN and all tells are in. The aim names rows: those told
    and not refused, exactly, or the capacity if that is less; and of them the tile that is not
    full, with its bytes, or none if the rows are no whole number. It announces only if the
    allocator has given out that many slots. The overflow region is told that nothing comes only if
    the rows fit.

    A bank is given ALL only if it is OPEN, all tells and closes are in, acked + refused = sent, the
    bytes here are those of exactly the announced rows and all full tiles were announced, the
    allocator's other rows lie in the overflow region; a bank of which all this holds is not given
    ERROR. ERROR is OVERLAP if it has more bytes than were sent, else INCOMPLETE. After ALL, and
    only then, the overflow region is told what lies there."""

    def promise(self, m):
        dut, types, cfg = self.dut, self.types, self._cfg
        op = dut.o_op.payload
        book = Signal(types.book)
        shape = Signal(types.geometry)
        row16 = dut.result.geometry.row_bytes
        self.suppose(
            "an open bank has whole rows of 16 bytes",
            (row16[:4] == 0) & (row16 != 0),
            when=self.answer,
        )
        self.suppose(
            "capacities are those of the hub", dut.result.geometry.capacity <= cfg.capacity
        )
        looked = self.answer & self.is_in["ANSWER"]
        with m.If(looked):
            m.d.sync += [
                book.eq(dut.result.book),
                shape.eq(dut.result.geometry),
            ]
        finishes = dut.o_op.valid & (op.kind == OpKind.FINISH)
        aims = dut.o_op.valid & (op.kind == OpKind.AIM)
        passes = dut.o_op.valid & (op.kind == OpKind.PASS)
        good = finishes & (op.status == 0)
        rows = Signal.like(dut.rows)
        with m.If(self.is_in["FOUND"]):
            m.d.sync += rows.eq(dut.rows)
        total = Signal(cfg.total_width + 1)
        due = Signal(cfg.total_width + 1)
        m.d.comb += [
            total.eq(book.acked + book.account.refused),
            due.eq(book.account.sent - book.account.refused),
        ]
        shown = dut.result.book
        shown_due = Signal(cfg.total_width + 1)
        m.d.comb += shown_due.eq(shown.account.sent - shown.account.refused)
        self.any_rows = self.constant(cfg.slot_width, "any_rows")
        self.suppose(
            "a known aim is of its account",
            self.true_aim(shown.aim, shown_due, dut.result.geometry)
            & self.full_aim(shown.aim, shown_due, dut.result.geometry),
            when=looked & shown.aim.known,
        )
        self._aims(book, shape, aims, due)
        self._verdicts(book, shape, finishes, good, rows, total)
        self._words(m, book, shape, good, aims, passes)
        self.always(
            "only the word to it names the overflow region",
            same(op, region=dut.at.region, bank=dut.at.bank),
            when=dut.o_op.valid & ~passes,
        )
        self.always("a verdict names its epoch", op.epoch == book.epoch, when=finishes | aims)
        self.always(
            "operations come as they should",
            finishes | aims | passes | (op.kind == OpKind.LOOK),
            when=dut.o_op.valid,
        )
        self._lemmas(m, book, shape, total, due)

    def true_aim(self, aim, due, shape):
        """What is said of the last tile follows from the bytes that are due."""
        some = ~due[-1]  # not less than nothing
        exact = some & (aim.rows * shape.row_bytes == due) & (aim.rows <= shape.capacity)
        full = some & (aim.rows == shape.capacity) & (due >= shape.capacity * shape.row_bytes)
        tile = (shape.group_base + (aim.rows >> shape.log2_tile))[: self._cfg.group_width]
        rest = rest_of(aim.rows, shape)
        sound = (exact | full) & (aim.group == tile) & (aim.bytes == rest * shape.row_bytes)
        said = Value.cast(aim.bytes).any()
        return (~aim.exact | exact) & (~(aim.exact | said) | sound)

    def full_aim(self, aim, due, shape):
        """What can be said is said: whole rows that fit, and a region that gets full."""
        whole = (self.any_rows * shape.row_bytes == due) & (self.any_rows <= shape.capacity)
        beyond = ~due[-1] & (due >= shape.capacity * shape.row_bytes)
        said = Value.cast(aim.bytes).any() == rest_of(aim.rows, shape).any()
        return (~whole | (aim.exact & (aim.rows == self.any_rows))) & (
            ~beyond | ((aim.rows == shape.capacity) & said)
        )

    def _aims(self, book, shape, aims, due):
        op = self.dut.o_op.payload
        self.always("an aim: all have told", told_all(book, shape), when=aims)
        self.always("an aim follows from the account", self.true_aim(op, due, shape), when=aims)
        self.always("and says what can be said", self.full_aim(op, due, shape), when=aims)
        placed = self.dut.rows
        final = Mux(op.rows == shape.capacity, placed >= op.rows, placed == op.rows)
        self.always(
            "it announces when all slots are given out",
            op.part == (final & op.bytes.any() & ~book.rest),
            when=aims,
        )
        fits = due[-1] | (due <= shape.capacity * shape.row_bytes)
        self.always(
            "what may overflow is not told as nothing",
            fits & shape.overflow_en & ~book.promised & ~book.passed,
            when=aims & op.tell,
        )

    def _verdicts(self, book, shape, finishes, good, rows, total):
        cfg, op = self._cfg, self.dut.o_op.payload
        here = Signal(cfg.total_width)
        self.m.d.comb += here.eq(book.acked - book.over)
        complete = told_all(book, shape) & (book.account.num_closes >= shape.expected)
        sent = book.account.sent

        def exact(placed):
            return (
                (here == placed * shape.row_bytes)
                & (book.over == (rows - placed)[: len(rows)] * shape.row_bytes)
                & (rows >= placed)
                & (book.tiles == placed >> shape.log2_tile)
            )

        self.always("the bank is complete", complete & (total >= sent), when=finishes)
        self.always("ALL: every byte", total == sent, when=good)
        self.always("ALL: every row", exact(op.rows), when=good)
        self.always(
            "ALL: the last tile",
            same(
                op,
                part=rest_of(op.rows, shape).any(),
                group=(shape.group_base + (op.rows >> shape.log2_tile))[: cfg.group_width],
            ),
            when=good,
        )
        fits = (self.any_rows <= cfg.capacity) & (rows - self.any_rows <= cfg.capacity)
        self.exact, self.lacks = exact, ~(exact(self.any_rows) & fits)
        self.always(
            "ERROR: INCOMPLETE only if rows or tiles are missing",
            self.lacks & (total == sent),
            when=finishes & (op.status == Reason.INCOMPLETE),
        )
        self.always(
            "ERROR: OVERLAP if more than was sent",
            (op.status == Reason.OVERLAP) == (total > sent),
            when=finishes,
        )
        self.always(
            "no other verdict",
            one_of(op.status, 0, Reason.OVERLAP, Reason.INCOMPLETE),
            when=finishes,
        )

    def _words(self, m, book, shape, good, aims, passes):
        """What the overflow region is told, and when."""
        dut, op = self.dut, self.dut.o_op.payload
        self.won = Signal()
        gave = Signal()
        self.ends = Signal()
        self.confirmed = Signal()
        with m.If(self.taken):
            m.d.sync += [
                self.won.eq(good),
                gave.eq(aims & op.tell),
            ]
        agreed = self.answer & dut.result.ok
        over = self.is_in["JUDGED"] & self.won & shape.overflow_en
        owed = agreed & (over | (self.is_in["AIMED"] & gave))
        m.d.sync += self.confirmed.eq(owed | (self.confirmed & ~(self.taken & passes)))
        self.flag(self.ends, agreed & over, self.is_in["ANSWER"])
        self.always(
            "the overflow region is told after ALL or with the aim", passes == self.confirmed
        )
        self.always(
            "the overflow region is told its bytes and rows",
            same(op, bytes=book.over, close=1, tell=~book.promised)
            & (op.rows * shape.row_bytes == book.over)
            & (op.exceeds == (book.promised & book.over.any())),
            when=passes & self.ends,
        )
        self.always(
            "or that nothing comes",
            same(op, bytes=0, rows=0, close=0, tell=1, exceeds=0),
            when=passes & ~self.ends,
        )
        self.always(
            "it is named",
            same(op, region=shape.overflow, bank=dut.at.bank, epoch=book.epoch) & ~op.abort,
            when=passes,
        )
        self.gave = gave

    def _lemmas(self, m, book, shape, total, due):
        """What the registers hold."""
        cfg, inside, verdict = self._cfg, self.inside, self.inside.verdict
        later = ~self.among("IDLE", "LOOK", "ANSWER")
        self.lemma("the book", same(inside, book=book, shape=shape), when=later)
        self.lemma("whole rows", (shape.row_bytes[:4] == 0) & (shape.row_bytes != 0), when=later)
        self.lemma("capacity", shape.capacity <= cfg.capacity, when=later)
        self.lemma(
            "the aim that was known",
            self.true_aim(book.aim, due, shape) & self.full_aim(book.aim, due, shape),
            when=later & book.aim.known,
        )
        closed = book.account.num_closes >= shape.expected
        sent, deciding = book.account.sent, later & ~self.is_in["WEIGH"]
        self.lemma("sums", same(inside, due=due, total=total), when=later)
        self.lemma("weighed", told_all(book, shape), when=deciding)
        verdicts = self.among("VERDICT", "JUDGED")
        self.lemma("judged", closed & (total >= sent), when=verdicts)
        judges = inside.judges
        self.lemma("judges", judges == (closed & (total == sent)), when=deciding)
        self.lemma(
            "not yet complete",
            ~closed | (total <= sent),
            when=deciding & ~verdicts & ~self.is_in["PASS"],
        )
        quick = book.aim.known & book.aim.exact & ~book.over.any()
        self.lemma("quick", inside.quick == quick, when=deciding)
        aiming = self.among("FOUND", "SUM", "AIM", "AIMED", "PASS")
        found = deciding & ~self.is_in["DIVIDE"] & (judges | (aiming & ~book.aim.known))
        known_sum = self.is_in["SUM"] & book.aim.known
        self.lemma("nothing is added to a known aim", inside.left == 0, when=known_sum)
        self.lemma("a known aim stays", inside.aim == book.aim, when=later & book.aim.known)
        steps = observe(inside.all_rows).left
        for name, dividend in (("all_rows", due), ("over_rows", book.over)):
            divider = getattr(inside, name)
            left, quotient = observe(divider).left, divider.quotient
            width = len(quotient)
            divides(
                self,
                m,
                name,
                dividend[4 : 4 + width],
                shape.row_bytes[4:],
                quotient,
                divider.remainder,
                left,
                later,
            )
            self.lemma(f"{name} done", left == 0, when=found & ~quick)
            self.lemma(f"{name} has begun", left == width, when=self.is_in["WEIGH"])
            self.lemma(f"{name} in step", left == steps)
        rows = Mux(quick, book.aim.rows, inside.all_rows.quotient[: cfg.slot_width + 1])
        over = Mux(quick, 0, inside.over_rows.quotient[: cfg.slot_width])
        placed = (rows - over)[: cfg.slot_width + 1]
        self.lemma(
            "what the quotients say",
            same(
                inside,
                full=placed[: cfg.slot_width] >> shape.log2_tile,
                rows=rows,
                part=rest_of(placed, shape).any(),
            ),
            when=found,
        )
        aim = SimpleNamespace(
            rows=inside.aim.rows,
            exact=inside.aim.exact,
            group=inside.aim.group,
            bytes=inside.aim.bytes + Mux(self.is_in["SUM"], inside.left * inside.factor, 0),
        )
        self.lemma(
            "the aim so far",
            self.true_aim(aim, due, shape) & self.full_aim(aim, due, shape),
            when=self.among("SUM", "AIM", "AIMED"),
        )
        told, fits = (
            self.among("SUM", "AIM", "AIMED"),
            due[-1] | (due <= shape.capacity * shape.row_bytes),
        )
        self.lemma(
            "nothing comes",
            fits & shape.overflow_en & ~book.promised & ~book.passed,
            when=told & inside.spares,
        )
        self.lemma("nothing to be told", ~inside.spares, when=~told)
        late = verdicts | self.is_in["PASS"]
        self.lemma(
            "INCOMPLETE: rows are missing",
            self.lacks,
            when=judges & (told | (late & (verdict == Reason.INCOMPLETE))),
        )
        lacking = told | (self.is_in["PASS"] & ~self.ends)
        self.lemma("INCOMPLETE", verdict == Reason.INCOMPLETE, when=lacking & judges)
        either = one_of(verdict, 0, Reason.INCOMPLETE)
        self.lemma("ALL or INCOMPLETE", either, when=verdicts & judges)
        self.lemma("ALL: the rows", self.exact(placed) & judges, when=verdicts & (verdict == 0))
        ending = self.is_in["PASS"] & self.ends
        self.lemma("the end was ALL", (verdict == 0) & judges, when=ending)
        self.lemma(
            "whole rows there",
            over * shape.row_bytes == book.over,
            when=(verdicts | ending) & (verdict == 0),
        )
        self.lemma("OVERLAP", (verdict == Reason.OVERLAP) & (total > sent), when=verdicts & ~judges)
        self.lemma("won", self.won == (verdict == 0), when=self.is_in["JUDGED"])
        self.lemma("gave", self.gave == inside.spares, when=self.is_in["AIMED"])
        self.lemma("telling", self.confirmed == self.is_in["PASS"])
        self.lemma("ends", self.ends == inside.closing, when=later)
        self.lemma("only its last word", ~self.ends, when=later & ~self.is_in["PASS"])
