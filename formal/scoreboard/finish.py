# SPDX-License-Identifier: Apache-2.0
"""Promises of the finisher and its divider (``hub_rtl/scoreboard/region_finish.py``)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves, one_of, same
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.region_finish import Divider, RegionFinisher

from .sources import queue_lemmas

__all__ = ["DividerDivides", "FinisherJudgesEachBank", "FinisherTellsTheTruth"]


def divides(spec, m, name, dividend, divisor, quotient, remainder, left, runs):
    """Lemma: what the divider has so far. ``runs``: it works, or has worked, on ``dividend``."""
    width = len(quotient)
    mask, part = Signal(width, name=f"{name}_mask"), Signal(width, name=f"{name}_part")
    m.d.comb += [
        mask.eq((1 << width) - 1 >> left),
        part.eq(quotient & mask),
    ]
    spec.lemma(
        f"{name} so far",
        (part * divisor + remainder == dividend >> left) & (remainder < divisor),
        when=runs,
    )
    rest = (dividend << (width - left)[: width.bit_length()])[:width]
    spec.lemma(f"{name} to come", (quotient & ~mask) == rest, when=runs)
    spec.lemma(f"{name} steps", left <= width)


class DividerDivides(Spec):
    """``width`` cycles after ``start``, quotient * divisor + remainder = dividend and remainder <
    divisor."""

    def __init__(self, width, divisor_width):
        super().__init__()
        self._width, self._divisor_width = width, divisor_width

    def build(self, m):
        dut = Divider(self._width, self._divisor_width)
        m.submodules.dut = dut
        left = observe(dut).left
        self.free(dut.start, dut.dividend)
        dividend, known, age = Signal(self._width), Signal(), Signal(range(self._width + 2))
        divisor = self.constant(self._divisor_width, "divisor")
        m.d.comb += dut.divisor.eq(divisor)
        self.suppose("the divisor is not 0", divisor != 0)
        with m.If(dut.start):
            m.d.sync += [
                dividend.eq(dut.dividend),
                known.eq(1),
                age.eq(0),
            ]
        with m.Elif(age <= self._width):
            m.d.sync += age.eq(age + 1)
        self.always("busy for so many cycles", dut.busy == (age < self._width), when=known)
        self.always(
            "the quotient",
            (dut.quotient * divisor + dut.remainder == dividend) & (dut.remainder < divisor),
            when=known & (age >= self._width),
        )
        divides(self, m, "division", dividend, divisor, dut.quotient, dut.remainder, left, known)
        self.lemma("age", (left == Mux(age < self._width, self._width - age, 0)), when=known)


class _Finisher(Spec):
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
        self.taken, asked = Signal(), Signal()
        answer = dut.result.valid & (dut.result.source == 0)
        m.d.comb += self.taken.eq(moves(dut.o_op))
        questions = self.taken & (one_of(kind, OpKind.LOOK, OpKind.FINISH))
        m.d.sync += asked.eq(questions | (asked & ~answer))
        self.suppose("an answer follows a question", asked, when=answer)
        self.asked, self.answer = asked, answer
        self.lemma("states", self.among(*self.is_in))
        self.lemma("a question is open", self.among("ANSWER", "JUDGED"), when=asked)
        self.promise(m)

    def among(self, *names):
        """1 in one of these states."""
        return Cat(self.is_in[name] for name in names).any()


class FinisherTellsTheTruth(_Finisher):
    """A bank is given ALL only if it is OPEN, all closes are in, acked + refused = sent, the bytes
    here are those of exactly the announced rows and all full tiles were announced, the allocator's
    other rows lie in the overflow region; a bank of which all this holds is not given ERROR. ERROR
    is OVERLAP if it has more bytes than were sent, else INCOMPLETE. After ALL, and only then, the
    overflow region is told what lies there."""

    def promise(self, m):
        dut, types, cfg = self.dut, self.types, self._cfg
        op, book, shape = dut.o_op.payload, Signal(types.book), Signal(types.geometry)
        row16 = dut.result.geometry.row_bytes
        self.suppose(
            "an open bank has whole rows of 16 bytes",
            (row16[:4] == 0) & (row16 != 0),
            when=self.answer,
        )
        looked = self.answer & self.is_in["ANSWER"]
        with m.If(looked):
            m.d.sync += [
                book.eq(dut.result.book),
                shape.eq(dut.result.geometry),
            ]
        finishes = dut.o_op.valid & (op.kind == OpKind.FINISH)
        good, rows = finishes & (op.status == 0), Signal.like(dut.rows)
        with m.If(~finishes):
            m.d.sync += rows.eq(dut.rows)
        here, total = Signal(cfg.total_width), Signal(cfg.total_width + 1)
        m.d.comb += [
            here.eq(book.acked - book.over),
            total.eq(book.acked + book.refused),
        ]
        complete = (book.state == RegionState.OPEN) & (book.num_closes >= shape.expected)

        def exact(placed):
            return (
                (here == placed * shape.row_bytes)
                & (book.over == (rows - placed)[: len(rows)] * shape.row_bytes)
                & (rows >= placed)
                & (book.tiles == placed >> shape.log2_tile)
            )

        self.always("the bank is complete", complete & (total >= book.sent), when=finishes)
        self.always("ALL: every byte", total == book.sent, when=good)
        self.always("ALL: every row", exact(op.rows), when=good)
        self.always(
            "ALL: the last tile",
            same(
                op,
                part=(op.rows & ((1 << shape.log2_tile) - 1)).any(),
                group=(shape.group_base + (op.rows >> shape.log2_tile))[: cfg.group_width],
            ),
            when=good,
        )
        any_rows = self.constant(cfg.slot_width, "any_rows")
        fits = (any_rows <= cfg.capacity) & (rows - any_rows <= cfg.capacity)
        self.always(
            "ERROR: INCOMPLETE only if rows or tiles are missing",
            ~(exact(any_rows) & fits) & (total == book.sent),
            when=finishes & (op.status == Reason.INCOMPLETE),
        )
        self.always(
            "ERROR: OVERLAP if more than was sent",
            (op.status == Reason.OVERLAP) == (total > book.sent),
            when=finishes,
        )
        self.always(
            "no other verdict",
            one_of(op.status, 0, Reason.OVERLAP, Reason.INCOMPLETE),
            when=finishes,
        )
        passes = dut.o_op.valid & (op.kind == OpKind.PASS)
        won = Signal()
        with m.If(self.taken):
            m.d.sync += won.eq(good)
        confirmed = Signal()
        m.d.sync += confirmed.eq(
            (self.answer & self.is_in["JUDGED"] & won & dut.result.ok & shape.overflow_en)
            | (confirmed & ~(self.taken & passes))
        )
        self.always("the overflow region is told after ALL", passes == confirmed)
        self.always(
            "the overflow region is told its bytes and rows",
            same(op, bytes=book.over, region=shape.overflow)
            & (op.rows * shape.row_bytes == book.over)
            & ~op.abort
            & (op.bank == dut.at.bank)
            & (op.epoch == book.epoch),
            when=passes,
        )
        self.always(
            "only the verdict names the region",
            same(op, region=dut.at.region, bank=dut.at.bank),
            when=dut.o_op.valid & ~passes,
        )
        self.always("a verdict names its epoch", op.epoch == book.epoch, when=finishes)
        self.always(
            "operations come as they should",
            finishes | passes | (op.kind == OpKind.LOOK),
            when=dut.o_op.valid,
        )

        # Lemmas: what the registers hold.
        inside, verdict = self.inside, self.inside.verdict
        later = ~self.among("IDLE", "LOOK", "ANSWER")
        self.lemma("the book", same(inside, book=book, shape=shape), when=later)
        self.lemma("whole rows", (shape.row_bytes[:4] == 0) & (shape.row_bytes != 0), when=later)
        dividing = self.among("DIVIDE", "EXACT")
        deciding = later & ~self.is_in["WEIGH"]
        self.lemma("sums", same(inside, here=here, total=total), when=later)
        self.lemma("weighed", complete & (total >= book.sent), when=deciding)
        self.lemma("dividing", total == book.sent, when=dividing)
        divided = deciding & (total == book.sent)
        steps = observe(inside.own_rows).left
        for name, dividend in (("own_rows", here), ("over_rows", book.over)):
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
            self.lemma(f"{name} done", left == 0, when=divided & ~self.is_in["DIVIDE"])
            self.lemma(f"{name} has begun", left == width, when=self.is_in["WEIGH"])
            self.lemma(f"{name} in step", left == steps)
        placed, over = (
            each.quotient[: cfg.slot_width] for each in (inside.own_rows, inside.over_rows)
        )
        self.lemma(
            "what the quotients say",
            same(
                inside,
                full=placed >> shape.log2_tile,
                rows=placed + over,
                part=(placed & ((1 << shape.log2_tile) - 1)).any(),
            ),
            when=divided & ~self.is_in["DIVIDE"],
        )
        self.lemma("won", won == (verdict == 0), when=self.is_in["JUDGED"])
        self.lemma("telling", confirmed == self.is_in["PASS"])
        self.lemma("told after ALL", (verdict == 0) & (total == book.sent), when=self.is_in["PASS"])
        self.lemma(
            "whole rows there",
            over * shape.row_bytes == book.over,
            when=self.among("VERDICT", "JUDGED", "PASS") & (verdict == 0),
        )
        self.lemma(
            "ALL of what was sent",
            total == book.sent,
            when=self.among("VERDICT", "JUDGED") & (verdict == 0),
        )


class FinisherJudgesEachBank(_Finisher):
    """Each bank that is to be looked at is looked at after at most as many others as there are; a
    look that shows a complete bank ends in a verdict or in another look, because the bank has moved
    since. No verdict is older than the last move. A judgement takes so many cycles as the quotient
    has bits and eight more, beside those in which it waits for the pipeline."""

    def promise(self, m):
        dut, types = self.dut, self.types
        op, check = dut.o_op.payload, dut.check
        name = self.constant(types.bank_width, "name")
        self.suppose("it is a bank", name < types.banks)
        asks = check.en & (Cat(check.bank, check.region) == name)
        here = Cat(dut.at.bank, dut.at.region) == name
        looks, finishes = (
            self.taken & (op.kind == OpKind.LOOK),
            self.taken & (op.kind == OpKind.FINISH),
        )
        due, stale, others, open_, steps = Signal(), Signal(), Signal(8), Signal(), Signal(8)
        m.d.sync += [
            due.eq(asks | (due & ~(looks & here))),
            stale.eq(asks | (stale & dut.busy & ~looks)),
            others.eq(Mux(due & ~(looks & here), others + (looks & ~here), 0)),
        ]
        self.always("looked at in its turn", others < types.banks, when=due)
        self.always(
            "no stale verdict", ~stale, when=dut.o_op.valid & (op.kind == OpKind.FINISH) & here
        )
        book, shape = dut.result.book, dut.result.geometry
        complete = (
            (book.state == RegionState.OPEN)
            & (book.num_closes >= shape.expected)
            & (book.acked + book.refused >= book.sent)
        )
        with m.If(self.answer & self.is_in["ANSWER"] & here):
            m.d.sync += open_.eq(complete & ~stale & ~asks)
        with m.Elif(asks | (finishes & here)):
            m.d.sync += open_.eq(0)
        self.always("no verdict is forgotten", ~open_, when=~dut.busy | ~here)
        waits = blocked(dut.o_op) | (self.asked & ~self.answer)
        with m.If(~dut.busy):
            m.d.sync += steps.eq(0)
        with m.Elif(~waits):
            m.d.sync += steps.eq(steps + 1)
        inside, again = self.inside, self.inside.again
        left, width = observe(inside.own_rows).left, len(inside.own_rows.quotient)
        self.always("a judgement ends", steps <= width + 8)

        # Lemmas.
        number, first = Cat(dut.at.bank, dut.at.region), inside.queue.o
        queued, arrives, place = queue_lemmas(self, inside.queue, self._cfg, name)
        self.lemma(
            "the first one is looked at",
            first.valid & (first.payload == number),
            when=self.is_in["LOOK"],
        )
        self.lemma("not lost", queued | arrives, when=due)
        self.lemma("its turn comes", others + place < types.banks, when=due & queued)
        self.lemma("others before it", others < types.banks, when=due)
        self.lemma("nobody before it yet", others == 0, when=due & ~queued)
        self.lemma(
            "a move is remembered", again == stale, when=here & dut.busy & ~self.is_in["LOOK"]
        )
        judging = self.among("WEIGH", "DIVIDE", "EXACT", "VERDICT")
        self.lemma("still to be judged", here & judging & ~stale, when=open_)
        own, geometry = inside.book, inside.shape
        self.lemma(
            "still complete",
            (own.state == RegionState.OPEN)
            & (own.num_closes >= geometry.expected)
            & (own.acked + own.refused >= own.sent),
            when=open_,
        )
        self.lemma("both divide", left == observe(inside.over_rows).left)
        self.lemma("width", left <= width)
        limits = {
            "LOOK": 0,
            "ANSWER": 1,
            "WEIGH": 2,
            "EXACT": width + 4,
            "VERDICT": width + 5,
            "JUDGED": width + 6,
            "PASS": width + 7,
        }
        for state, limit in limits.items():
            self.lemma(f"steps in state {state}", steps <= limit, when=self.is_in[state])
        self.lemma(
            "steps while it divides",
            steps + left <= width + 3,
            when=self.among("DIVIDE", "WEIGH"),
        )
        self.lemma(
            "rest",
            steps == 0,
            when=self.is_in["IDLE"] & self.past(self.is_in["IDLE"], "idle_before"),
        )
        self.lemma(
            "a question is being answered",
            self.asked == self.among("ANSWER", "JUDGED"),
        )
