# SPDX-License-Identifier: Apache-2.0
"""Promise of the sender's end of a remote fence (docs/blocks/remote_fence.md)."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.remote_fence.remote_fence import FenceAsks

from .books import PHASES, book_lemmas, counted

__all__ = ["AskedInTime", "FenceCovers"]

BEAT = "mask", "part", "last", "data"


class FenceCovers(Spec):
    """Of an arbitrary rank, and of an arbitrary plain packet for it: after a ``fence``, in the
    cycle in which the packet is first offered or later, the rank is unanswered from the next cycle
    until it answers a question that came after the packet, about its phase. Each question's total
    is the number of packets of its phase offered since reset; from then until the answer none of
    this phase begins, and nothing else is asked; it is asked only about packets that no question
    was about. Records pass unchanged but for the phase, which rows have not, and which all beats of
    a packet share."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = FenceAsks(cfg)
        self.inner = observe(dut)
        self.free_inputs(dut)
        self.always_held_all(dut)
        self.rank = rank = self.constant(range(cfg.ranks), "rank")
        self.suppose("rank exists", rank < cfg.ranks)
        came, header = dut.i_record, dut.i_record.p.header
        self.within = Signal()
        self.sends = Signal()
        self.phase = dut.o_record.p.header.phase
        m.d.comb += self.sends.eq(came.valid & ~self.within & header.plain & (header.rank == rank))
        with m.If(came.valid):
            m.d.sync += self.within.eq(~(moves(came) & came.p.last))
        self._passes(m, dut)
        self._asks(m, dut)
        self._covers(m, dut)

    def _passes(self, m, dut):
        """Records."""
        came, out, within = dut.i_record, dut.o_record, self.within
        header, passed = came.p.header, out.p.header
        begun, told = Signal.like(header, name="begun"), Signal(name="told")
        with m.If(came.valid):
            m.d.sync += [begun.eq(header), told.eq(passed.phase)]
        self.suppose(
            "one header of a record", header.as_value() == begun.as_value(), came.valid & within
        )
        self.suppose("ranks exist", header.rank < self._cfg.ranks, when=came.valid)
        self.suppose("nothing while it is cleared", ~came.valid, when=dut.clearing)
        fields = [name for name, _ in header.shape() if name != "phase"]
        self.always("at once", (out.valid == came.valid) & (came.ready == out.ready))
        self.always(
            "unchanged",
            (Cat(passed[name] for name in fields) == Cat(header[name] for name in fields))
            & (Cat(out.p[name] for name in BEAT) == Cat(came.p[name] for name in BEAT)),
        )
        self.always("rows have no phase", ~passed.phase, when=~header.plain)
        self.always("one phase of a packet", passed.phase == told, when=came.valid & within)
        spoilt = self.past(dut.answered.en & dut.answered.what.bad)
        self.always("told if incomplete", dut.incomplete == spoilt)
        self.lemma("goes on", self.inner.inside == within)
        self.lemma("phase kept", told == (begun.plain & self.inner.kept), when=within)

    def _asks(self, m, dut):
        """Questions about the rank, and its answers: ``asks``, ``answers``; ``is_open``, ``last``:
        the last one taken."""
        ask, rank, inner, phase = dut.o_ask, self.rank, self.inner, self.phase
        asks = Signal()
        answers = Signal()
        m.d.comb += [
            asks.eq(ask.valid & (ask.p.rank == rank)),
            answers.eq(dut.answered.en & (dut.answered.what.rank == rank)),
        ]
        self.asks, self.answers, taken = asks, answers, asks & ask.ready
        self.is_open = is_open = Signal()
        self.last = last = Signal.like(ask.p)
        self.flag(is_open, taken, answers)
        with m.If(asks):
            m.d.sync += last.eq(ask.p)
        self.suppose("only what was asked is answered", is_open, when=answers)
        of_phase = [self.sends & (phase == n) for n in PHASES]
        sent = Array(
            counted(m, here, f"sent_{n}") for n, here in zip(PHASES, of_phase, strict=True)
        )
        fresh = Signal(len(PHASES))  # by phase: a packet that no question was about
        for n in PHASES:
            self.flag(fresh[n], of_phase[n], taken & (ask.p.phase == n))
        self.always("total of a question", ask.p.total == sent[ask.p.phase], when=asks)
        self.always("asked again when answered", ~is_open, when=asks)
        self.always(
            "none of the phase asked begins",
            phase != Mux(is_open, last.phase, ask.p.phase),
            when=self.sends & (asks | is_open),
        )
        self.always("asked of new packets", fresh.bit_select(ask.p.phase, 1), when=asks)

        book_lemmas(self, inner.book, rank, sent)
        now, owes, todo, asked = (
            each.bit_select(rank, 1) for each in (inner.phase, inner.owes, inner.todo, inner.asked)
        )
        self.now, self.owes, self.todo, self.asked = now, owes, todo, asked
        self.flies = flies = (inner.reads | ask.valid) & (ask.p.rank == rank)
        self.lemma("nothing owed yet", ~(owes | asked), when=dut.clearing)
        self.lemma("one question", ~(inner.reads & ask.valid))
        self.lemma("asked", (asked == (flies | is_open)) & ~(flies & is_open))
        self.lemma("question of the other phase", ask.p.phase != now, when=flies)
        self.lemma("asked of the other phase", last.phase != now, when=is_open)
        self.lemma("owes", owes == fresh.bit_select(now, 1))
        self.lemma("asked of what is new", fresh.bit_select(~now, 1) == flies)
        self.lemma("asks for what it owes", owes, when=todo)

    def _covers(self, m, dut):
        """The packet that is followed."""
        ask, chosen, taken = dut.o_ask, Signal(name="chosen"), self.asks & dut.o_ask.ready
        follows, due, covered, phase = (
            Signal(name=name) for name in ("follows", "due", "covered", "phase_followed")
        )
        self.free(chosen)
        begins = self.sends & chosen & ~follows
        with m.If(self.answers & covered):
            m.d.sync += [follows.eq(0), due.eq(0), covered.eq(0)]
        with m.Else():
            m.d.sync += [
                follows.eq(follows | begins),
                due.eq(due | (dut.fence & (follows | begins))),
                covered.eq(covered | (follows & taken & (ask.p.phase == phase))),
            ]
        with m.If(begins):
            m.d.sync += phase.eq(self.phase)
        unanswered = dut.unanswered.bit_select(self.rank, 1)
        self.always("unanswered until it is covered", unanswered, when=due)
        self.reach("another question first", due & self.is_open & ~covered)
        self.lemma("nothing is followed", ~due & ~covered, when=~follows)
        self.lemma(
            "not asked about",
            self.owes & ~covered & (self.todo | ~due),
            follows & (phase == self.now),
        )
        self.lemma(
            "asked about",
            self.asked
            & (covered == self.is_open)
            & (Mux(self.is_open, self.last.phase, ask.p.phase) == phase),
            follows & (phase != self.now),
        )


class AskedInTime(Spec):
    """A rank that a fence waits for is asked in time, whoever else is: within three cycles for each
    rank, and one more, while questions are taken, it has answered the one before, and no other
    fence begins. What the questions say is cut out."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = FenceAsks(cfg)
        cut(self, observe(dut).book)
        self.free_inputs(dut)
        rank, is_open = self.constant(range(cfg.ranks), "rank"), Signal(name="is_open")
        asks = dut.o_ask.valid & (dut.o_ask.p.rank == rank)
        answers = dut.answered.en & (dut.answered.what.rank == rank)
        self.flag(is_open, asks & dut.o_ask.ready, answers)
        self.suppose("rank exists", rank < cfg.ranks)
        self.suppose("only what was asked is answered", is_open, when=answers)
        most = 3 * cfg.ranks + 1
        since = Signal(range(most + 2))
        waits = dut.unanswered.bit_select(rank, 1) & ~is_open & ~asks
        with m.If(~waits | dut.fence | ~dut.o_ask.ready):
            m.d.sync += since.eq(0)
        with m.Elif(since <= most):
            m.d.sync += since.eq(since + 1)
        self.always("asked in time", since <= most)
        self.reach("last of all", asks & (since >= 3 * cfg.ranks - 1))
