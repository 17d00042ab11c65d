# SPDX-License-Identifier: Apache-2.0
"""Promises of the finisher (``hub_rtl/scoreboard/region_finish.py``): it looks at every bank."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import blocked
from hub_rtl.scoreboard.records import OpKind

from .finish import Finisher, complete_book, told_all
from .sources import queue_lemmas

__all__ = ["FinisherJudgesEachBank"]


class FinisherJudgesEachBank(Finisher):
    """Each bank that is to be looked at is looked at after at most as many others as there are; a
    look that shows a complete bank ends in a verdict or in another look, because the bank has moved
    since; one that shows all tells without an aim ends in an aim or a verdict. No verdict is older
    than the last move. A judgement takes so many cycles as the quotient and the rows have bits and
    twelve more, beside those in which it waits for the pipeline."""

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
        due = Signal()
        stale = Signal()
        others = Signal(8)
        open_ = Signal()
        steps = Signal(8)
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
        complete = complete_book(book, shape)
        with m.If(self.answer & self.is_in["ANSWER"] & here):
            m.d.sync += open_.eq(complete & ~stale & ~asks)
        with m.Elif(asks | (finishes & here)):
            m.d.sync += open_.eq(0)
        self.always("no verdict is forgotten", ~open_, when=~dut.busy | ~here)
        aimless = Signal()
        aims = self.taken & (op.kind == OpKind.AIM)
        shown = self.answer & self.is_in["ANSWER"] & here
        lacks = told_all(book, shape) & ~book.aim.known & ~stale & ~asks
        self.flag(aimless, shown & lacks, aims | finishes | asks)
        self.always("no aim is forgotten", ~aimless, when=~dut.busy | ~here)
        waits = blocked(dut.o_op) | (self.asked & ~self.answer)
        with m.If(~dut.busy):
            m.d.sync += steps.eq(0)
        with m.Elif(~waits):
            m.d.sync += steps.eq(steps + 1)
        inside, again = self.inside, self.inside.again
        left, width = observe(inside.all_rows).left, len(inside.all_rows.quotient)
        most = width + len(inside.left) + 12
        self.always("a judgement ends", steps <= most)

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
        aiming = self.among("WEIGH", "DIVIDE", "FOUND", "SUM", "AIM")
        self.lemma(
            "still to be judged",
            here & (aiming | self.among("AIMED", "PASS", "VERDICT")) & ~stale,
            when=open_,
        )
        own, geometry = inside.book, inside.shape
        self.lemma("still complete", complete_book(own, geometry), when=open_)
        over = own.acked + own.account.refused > own.account.sent
        beyond = self.among("DIVIDE", "FOUND", "SUM", "AIM", "AIMED", "PASS")
        self.lemma("as many as were sent", inside.judges & ~over, when=open_ & beyond)
        self.lemma("not after ALL", ~inside.closing, when=open_)
        self.lemma(
            "still to be aimed at",
            here
            & (aiming | self.is_in["VERDICT"])
            & told_all(own, geometry)
            & ~own.aim.known
            & ~stale,
            when=aimless,
        )
        sums = ~self.among("IDLE", "LOOK", "ANSWER")
        self.lemma("sum", inside.total == own.acked + own.account.refused, when=sums)
        self.lemma("both divide", left == observe(inside.over_rows).left)
        self.lemma("width", left <= width)
        summing = self.is_in["SUM"]
        limits = {
            "LOOK": 0,
            "ANSWER": 1,
            "WEIGH": 2,
            "FOUND": width + 4,
            "AIM": most - 6,
            "AIMED": most - 5,
            "VERDICT": most - 3,
            "JUDGED": most - 2,
            "PASS": most - 1,
        }
        for state, limit in limits.items():
            self.lemma(f"steps in state {state}", steps <= limit, when=self.is_in[state])
        for bit in range(len(inside.left) + 1):  # what is to be added has less bits in each step
            more = Cat(inside.left, 0) >> bit == 0
            self.lemma(f"steps of the sum, {bit}", more | (steps < most - 7 - bit), when=summing)
        self.lemma("steps of the sum", steps <= most - 7, when=summing)
        self.lemma(
            "steps of the first word", steps < most - 3, when=self.is_in["PASS"] & ~inside.closing
        )
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
            self.asked == self.among("ANSWER", "AIMED", "JUDGED"),
        )
