# SPDX-License-Identifier: Apache-2.0
"""Promise of the receiver's end of a remote fence (docs/blocks/remote_fence.md)."""

from amaranth import Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.fields import PLAINS
from hub_rtl.remote_fence.remote_fence import FenceAnswers

from .books import PHASES, book_lemmas, counted

__all__ = ["AnswersAreTrue", "AnswersComeInTime"]


class AnswersAreTrue(Spec):
    """Of an arbitrary rank: an answer for it is given only while its question is open, once, and
    only when exactly as many packets of the question's phase as it says were acknowledged or
    refused since reset; ``bad`` exactly if one of them since the last answer about that phase was
    bad or refused. A refusal counts once, in the first cycle without an acknowledgement, and passes
    unchanged, a plain one after it was counted, in the next cycle."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = FenceAnswers(cfg)
        self.inner = observe(dut)
        self.free_inputs(dut)
        self.always_held(dut.o_refused, "o_refused")
        self.rank = rank = self.constant(range(cfg.ranks), "rank")
        asked, acked, refused = dut.asked, dut.acked, dut.i_refused
        self.suppose("rank exists", rank < cfg.ranks)
        self.suppose("ranks ask", asked.what.rank < cfg.ranks, when=asked.en)
        self.suppose("packets of ranks", acked.rank < cfg.ranks, when=acked.en)
        self.suppose("refusals of ranks", refused.p.src < cfg.ranks, when=refused.valid)
        self.suppose(
            "nothing while it is cleared",
            ~asked.en & ~acked.en & ~refused.valid,
            when=dut.clearing,
        )
        self._refusals(m, dut)
        self._answers(m, dut)

    def _refusals(self, m, dut):
        """``refuses``: a plain refusal counts in this cycle."""
        came, out = dut.i_refused, dut.o_refused
        done, plain = Signal(name="refusal_counted"), came.valid & came.p.plain
        self.refuses = Signal()
        m.d.comb += self.refuses.eq(plain & ~done & ~dut.acked.en)
        self.flag(done, self.refuses, moves(came), first=0)
        self.lemma("counted", self.inner.counted == done)
        self.always("passes when counted", out.valid == came.valid & (~came.p.plain | done))
        self.always("leaves when it passes", moves(came) == moves(out))
        self.always("unchanged", out.p.as_value() == came.p.as_value(), when=out.valid)

    def _answers(self, m, dut):
        """Packets of the rank, its question, its answer."""
        rank, inner, ask, answer = self.rank, self.inner, dut.asked, dut.o_answer
        acked, refused = dut.acked, dut.i_refused.p
        asks = Signal()
        tells = Signal()
        is_open = Signal(name="is_open")
        question = Signal.like(ask.what)
        m.d.comb += [
            asks.eq(ask.en & (ask.what.rank == rank)),
            tells.eq(answer.valid & (answer.p.rank == rank)),
        ]
        self.always("o_answer: valid held", answer.valid, when=self.past(blocked(answer)))
        self.always(
            "o_answer: payload held",
            answer.p.as_value() == self.past(answer.p, "answer_before"),
            when=self.past(tells & ~answer.ready),
        )
        self.flag(is_open, asks, tells & answer.ready)
        with m.If(asks):
            m.d.sync += question.eq(ask.what)
        self.suppose("asks again when answered", ~is_open, when=asks)
        done, bads = [], []
        for n in PHASES:
            acknowledged = acked.en & (acked.rank == rank) & (acked.phase == n)
            sunk = self.refuses & (refused.src == rank) & (refused.phase == n)
            dealt, bad = Signal(name=f"dealt_{n}"), Signal(name=f"bad_{n}")
            m.d.comb += dealt.eq(acknowledged | sunk)
            done.append(counted(m, dealt, f"done_{n}"))
            bads.append(bad)
            about, spoils = question.phase == n, (acknowledged & acked.bad) | sunk
            self.flag(bad, spoils, tells & answer.ready & about)
            self.suppose(
                f"no more of phase {n} than were sent before",
                done[n] != question.total,
                when=dealt & is_open & about,
            )
            self.always(f"all of phase {n}", done[n] == question.total, when=tells & about)
            self.always(f"bad in phase {n}", answer.p.bad == bad, when=tells & about)
            self.lemma(f"bad {n}", inner.bad[n].bit_select(rank, 1) == bad)
        self.always("only while a question is open", is_open, when=tells)
        self._lemmas(dut, is_open, question, done)

    def _lemmas(self, dut, is_open, question, done):
        rank, inner = self.rank, self.inner
        book_lemmas(self, inner.book, rank, done)
        wants, _ = known_word(self, inner.wants, rank, "wants")
        told = inner.wanted.shape()
        looks, tells = inner.book.look.en, dut.o_answer.valid
        compares = ~inner.wants.r_en & ~looks & ~tells
        here = ~inner.wants.r_en & (inner.who.bit_select(rank, 1))
        due = Mux(question.phase, done[1], done[0])
        wanted = inner.wanted
        self.lemma("open", inner.pending.bit_select(rank, 1) == is_open)
        self.lemma(
            "question kept",
            (told(wants).total == question.total) & (told(wants).phase == question.phase),
            when=is_open,
        )
        self.lemma("who", inner.who == 1 << dut.o_answer.p.rank, when=~inner.wants.r_en)
        self.lemma("looked at while it is open", is_open, when=here)
        self.lemma("nobody asks yet", ~is_open & ~here, when=dut.clearing)
        self.lemma(
            "wanted",
            (wanted.total == question.total) & (wanted.phase == question.phase),
            when=here & (compares | tells),
        )
        late = inner.book.observe.counted
        one = late.en & (late.rank == rank) & (late.phase == wanted.phase)
        self.lemma("total", (inner.book.total + one)[:PLAINS] == due, when=here & compares)
        self.lemma("due", due == question.total, when=here & tells)


class AnswersComeInTime(Spec):
    """A question all of whose packets have been dealt with is answered in time, whoever else asks:
    within four cycles for each rank, and three more, while answers are taken. What the questions
    say and how many packets came is cut out; supposed is that who is looked at with all its packets
    there is found so."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = FenceAnswers(cfg)
        inner = observe(dut)
        for part in (inner.book, inner.wants):
            cut(self, part)
        self.free_inputs(dut)
        rank, told = self.constant(range(cfg.ranks), "rank"), dut.o_answer
        is_open, due, came = Signal(name="is_open"), Signal(name="due"), Signal(name="came")
        asks = dut.asked.en & (dut.asked.what.rank == rank)
        tells = told.valid & (told.p.rank == rank)
        self.flag(is_open, asks, tells & told.ready)
        self.free(came)
        with m.If(tells & told.ready):
            m.d.sync += due.eq(0)
        with m.Elif(is_open & came):
            m.d.sync += due.eq(1)
        self.suppose("rank exists", rank < cfg.ranks)
        self.suppose("ranks ask", dut.asked.what.rank < cfg.ranks, when=dut.asked.en)
        self.suppose("asks again when answered", ~is_open, when=asks)
        compares = self.past(inner.book.look.en & due & (inner.book.look.rank == rank))
        self.suppose("all packets are there", inner.book.total == inner.wanted.total, when=compares)
        most = 4 * cfg.ranks + 3
        since = Signal(range(most + 2))
        with m.If(~due | ~told.ready):
            m.d.sync += since.eq(0)
        with m.Elif(since <= most):
            m.d.sync += since.eq(since + 1)
        self.always("answered in time", since <= most)
        self.reach("last of all", moves(told) & tells & (since >= 4 * cfg.ranks - 1))
