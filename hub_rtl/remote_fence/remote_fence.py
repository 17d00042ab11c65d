# SPDX-License-Identifier: Apache-2.0
"""Remote fences: the two ends of a slice's question whether the peers' memories have answered.

A sender counts the plain packets that it sends to each rank, in two *phases* that take turns: a
fence ends one phase, asks the rank whether so many packets of it have been dealt with, and what
follows is of the other phase. So packets behind the fence, which may overtake those before it on
another link, are never taken for them.
"""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import PLAINS
from hub_rtl.contract.records import record_of, types_of
from hub_rtl.parts.arbiter import RoundRobin, lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode
from hub_rtl.parts.ram import Ram

__all__ = ["FenceAnswers", "FenceAsks"]


class PlainBookObserve(NamedTuple):
    """What a proof may see of a :class:`PlainBook`."""

    book: Ram  #: by rank and phase
    shown: Ram  #: the same words
    counted: Signal  #: what came in the cycle before, and is written now


class PlainBook(wiring.Component):
    """Plain packets of one slice since reset, mod 4096, by rank and phase.

    Contract: a packet counts in the second cycle after ``counts``; ``look`` shows in ``total``, a
    cycle later, all that came in a cycle before it. One packet and one look per cycle. Nothing is
    counted while ``clearing``, two cycles per rank after reset.

    Parameters: ``cfg``. Ports: ``counts`` In {en, rank, phase}; ``look`` In, the same; ``total``
    Out, held until the next look; ``clearing`` Out.
    """

    observe: PlainBookObserve  # once elaborated

    def __init__(self, cfg):
        name = data.StructLayout({"en": 1, "rank": cfg.rank_width, "phase": 1})
        super().__init__(
            {"counts": In(name), "look": In(name), "total": Out(PLAINS), "clearing": Out(1)}
        )
        self._words = 2 * cfg.ranks

    def elaborate(self, platform):
        m = Module()
        m.submodules.book = book = Ram(PLAINS, self._words, clear=True)
        m.submodules.shown = shown = Ram(PLAINS, self._words, clear=True)
        counted = Signal.like(self.counts)
        self.observe = PlainBookObserve(book, shown, counted)
        m.d.sync += counted.eq(self.counts)
        for ram, asked in ((book, self.counts), (shown, self.look)):
            m.d.comb += [
                ram.r_en.eq(asked.en),
                ram.r_addr.eq(Cat(asked.phase, asked.rank)),
                ram.w_en.eq(counted.en),
                ram.w_addr.eq(Cat(counted.phase, counted.rank)),
                ram.w_data.eq(book.r_data + 1),
            ]
        m.d.comb += [self.total.eq(shown.r_data), self.clearing.eq(book.clearing)]
        return m


class FenceAsksObserve(NamedTuple):
    """What a proof may see of a :class:`FenceAsks`."""

    book: PlainBook
    phase: Signal  #: by rank, what is sent now
    owes: Signal  #: ranks to which a packet of this phase was sent
    todo: Signal  #: ranks to be asked
    asked: Signal  #: ranks asked that have not answered
    inside: Signal  #: a packet has been offered that has not gone whole
    kept: Signal  #: then its phase
    reads: Signal  #: the total of the ask is looked up


class FenceAsks(wiring.Component):
    """The sender's end: names the phase of each plain packet, and asks.

    Contract: after ``fence`` a rank is ``unanswered`` until its slice has dealt with every plain
    packet that was offered for it up to then; ranks to which none went since the fence before are
    not asked. A rank that has not answered an earlier question is asked anew when it has. Records
    pass unchanged but for the phase of plain ones; all beats of a packet name the same.

    Latency: none for records; ``unanswered`` shows a ``fence`` in the next cycle; the first
    question is offered three cycles after it, the next ones three cycles after the one before was
    taken. One beat per cycle. Stalls: only those of ``o_record``; questions wait for ``o_ask``.

    Parameters: ``cfg``. Ports: ``i_record`` In, ``o_record`` Out stream(record); ``fence`` In
    strobe; ``unanswered`` Out ``ranks``; ``o_ask`` Out stream(ask); ``answered`` In {en, what};
    ``incomplete`` Out strobe, a rank's answer says that some packet did not reach its memory;
    ``clearing`` Out, as of :class:`PlainBook`. Source: docs/blocks/remote_fence.md.
    """

    observe: FenceAsksObserve  # once elaborated

    def __init__(self, cfg):
        types, record = types_of(cfg), record_of(cfg, cfg.slice_bytes)
        super().__init__(
            {
                "i_record": In(stream.Signature(record)),
                "o_record": Out(stream.Signature(record)),
                "fence": In(1),
                "unanswered": Out(cfg.ranks),
                "o_ask": Out(stream.Signature(types.ask)),
                "answered": In(types.messages["answered"]),
                "incomplete": Out(1),
                "clearing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        ranks = self._cfg.ranks
        m.submodules.book = book = PlainBook(self._cfg)
        phase, owes, todo, asked = (
            Signal(ranks, name=name) for name in ("phase", "owes", "todo", "asked")
        )
        inside, kept, reads = (Signal(name=name) for name in ("inside", "kept", "reads"))
        self.observe = FenceAsksObserve(book, phase, owes, todo, asked, inside, kept, reads)
        sends = self._send(m, book, phase, inside, kept)
        # Of a rank: its phase ends; it has answered.
        turns, answers = (Signal(ranks, name=name) for name in ("turns", "answers"))
        self._ask(m, book, phase, todo & ~asked, turns, reads)
        m.d.comb += [
            answers.eq(Mux(self.answered.en, 1 << self.answered.what.rank, 0)),
            self.unanswered.eq(todo | asked),
            self.clearing.eq(book.clearing),
        ]
        m.d.sync += [
            phase.eq(phase ^ turns),
            owes.eq(mutant("remote_fence.owes_for_ever", (owes | sends) & ~turns, owes | sends)),
            todo.eq(
                (todo & ~turns)
                | Mux(
                    self.fence,
                    mutant("remote_fence.sent_at_begin_missed", owes | sends, owes) & ~turns,
                    0,
                )
            ),
            asked.eq((asked | turns) & ~mutant("remote_fence.answer_not_heard", answers, 0)),
            self.incomplete.eq(self.answered.en & self.answered.what.bad),
        ]
        return m

    def _send(self, m, book, phase, inside, kept):
        """Records pass; plain packets are counted. Returns the rank to which one begins."""
        came, out = self.i_record, self.o_record
        header, now = came.p.header, Signal(name="now")
        begins = came.valid & ~inside & header.plain
        m.d.comb += [
            now.eq(
                Mux(
                    mutant("remote_fence.phase_of_each_beat", inside, 0),
                    kept,
                    phase.bit_select(header.rank, 1),
                )
            ),
            out.valid.eq(came.valid),
            came.ready.eq(out.ready),
            out.p.eq(came.p),
            out.p.header.phase.eq(header.plain & now),
            book.counts.en.eq(begins),
            book.counts.rank.eq(header.rank),
            book.counts.phase.eq(now),
        ]
        with m.If(came.valid):
            m.d.sync += [inside.eq(~(came.p.last & out.ready)), kept.eq(now)]
        return Mux(begins, 1 << header.rank, 0)

    def _ask(self, m, book, phase, able, turns, reads):
        """One rank after the other: its phase ends, the total is looked up, and it is asked."""
        ask, chosen = self.o_ask, Signal(self._cfg.ranks, name="chosen")
        m.d.comb += [
            chosen.eq(Mux(reads | ask.valid, 0, lowest_set(m, able, "able"))),
            turns.eq(chosen),
            book.look.en.eq(reads),
            book.look.rank.eq(ask.p.rank),
            book.look.phase.eq(ask.p.phase),
            ask.p.total.eq(book.total),
        ]
        with m.If(chosen.any()):
            m.d.sync += [
                ask.p.rank.eq(encode(chosen)),
                ask.p.phase.eq((phase & chosen).any()),
            ]
        m.d.sync += reads.eq(chosen.any())
        with m.If(reads):
            m.d.sync += ask.valid.eq(1)
        with m.Elif(ask.ready):
            m.d.sync += ask.valid.eq(0)


class FenceAnswersObserve(NamedTuple):
    """What a proof may see of a :class:`FenceAnswers`."""

    book: PlainBook
    wants: Ram  #: by rank, what it has asked last {total, phase}
    pending: Signal  #: ranks that have asked and are not answered
    bad: Signal  #: by phase and rank: some packet of it did not reach memory
    who: Signal  #: the rank that is looked at
    wanted: Signal  #: what it has asked
    turns: RoundRobin  #: of those who wait
    counted: Signal  #: the refusal that is offered has been counted


class FenceAnswers(wiring.Component):
    """The receiver's end: counts plain packets when they are dealt with, and answers.

    Contract: a rank's question is answered once, when as many packets of its phase as it says were
    acknowledged by memory or refused; ``bad`` if one of them since the last answer about this phase
    was refused, or its acknowledgement says ``bad``. Refusals pass unchanged.

    Latency: none for refusals of rows, a cycle for plain ones; an answer is offered 5 cycles after
    the last packet or the question at the earliest, 3 more for each other rank that waits. An
    acknowledgement per cycle. Stalls: a plain refusal waits for a cycle in which no plain packet is
    acknowledged; answers wait for ``o_answer``, meanwhile nobody is looked at.

    Illegal input: a rank asks again only when it was answered.

    Parameters: ``cfg``. Ports: ``asked`` In {en, what}; ``acked`` In {en, rank, phase, bad}, a
    plain packet; ``i_refused`` In, ``o_refused`` Out stream(refusal); ``o_answer`` Out
    stream(answer); ``clearing`` Out, as of :class:`PlainBook`. Source:
    docs/blocks/remote_fence.md.
    """

    observe: FenceAnswersObserve  # once elaborated

    def __init__(self, cfg):
        types, struct = types_of(cfg), data.StructLayout
        super().__init__(
            {
                "asked": In(types.messages["asked"]),
                "acked": In(struct({"en": 1, "rank": cfg.rank_width, "phase": 1, "bad": 1})),
                "i_refused": In(stream.Signature(types.refusal)),
                "o_refused": Out(stream.Signature(types.refusal)),
                "o_answer": Out(stream.Signature(types.answer)),
                "clearing": Out(1),
            }
        )
        self._cfg, self._want = cfg, struct({"total": PLAINS, "phase": 1})

    def elaborate(self, platform):
        m = Module()
        ranks, what = self._cfg.ranks, self.asked.what
        m.submodules.book = book = PlainBook(self._cfg)
        m.submodules.wants = wants = Ram(self._want, ranks)
        pending, who = (Signal(ranks, name=name) for name in ("pending", "who"))
        bad = Signal(data.ArrayLayout(ranks, 2))
        wanted = Signal(self._want)
        turns = RoundRobin(ranks)
        spoilt, counted = self._count(m, book)
        self.observe = FenceAnswersObserve(book, wants, pending, bad, who, wanted, turns, counted)
        answers = self._look(m, book, wants, pending, bad, who, wanted, turns)
        m.d.comb += [
            wants.w_en.eq(self.asked.en),
            wants.w_addr.eq(what.rank),
            wants.w_data.total.eq(what.total),
            wants.w_data.phase.eq(what.phase),
            self.clearing.eq(book.clearing),
        ]
        m.d.sync += pending.eq((pending & ~answers) | Mux(self.asked.en, 1 << what.rank, 0))
        for phase in range(2):
            told = Mux(wanted.phase == phase, answers, 0)
            m.d.sync += bad[phase].eq(
                (bad[phase] & ~told) | Mux(book.counts.phase == phase, spoilt, 0)
            )
        return m

    def _count(self, m, book):
        """Packets that are dealt with, one per cycle: a refusal counts while it is offered, in a
        cycle without an acknowledgement, and goes on then. Returns whose did not reach memory, and
        ``counted``."""
        acked, came, out = self.acked, self.i_refused, self.o_refused
        counted, counts, goes = (Signal(name=name) for name in ("counted", "counts", "goes"))
        m.d.comb += [
            counts.eq(
                came.valid
                & came.p.plain
                & ~counted
                & mutant("remote_fence.refusal_beside_ack_lost", ~acked.en, 1)
            ),
            goes.eq(~came.p.plain | counted),
            out.valid.eq(came.valid & goes),
            came.ready.eq(out.ready & goes),
            out.p.eq(came.p),
            book.counts.en.eq(acked.en | mutant("remote_fence.refused_never_counted", counts, 0)),
            book.counts.rank.eq(Mux(acked.en, acked.rank, came.p.src)),
            book.counts.phase.eq(
                mutant(
                    "remote_fence.phases_counted_together",
                    Mux(acked.en, acked.phase, came.p.phase),
                    0,
                )
            ),
        ]
        m.d.sync += counted.eq((counted | counts) & ~(came.valid & came.ready))
        spoils = mutant("remote_fence.bad_ack_is_good", acked.en & acked.bad, 0) | counts
        return Mux(spoils, 1 << book.counts.rank, 0), counted

    def _look(self, m, book, wants, pending, bad, who, wanted, turns):
        """Those who wait in turn: what was asked, the total, the answer. Returns who is told."""
        m.submodules.turns = turns
        answer, told = self.o_answer, Signal(len(pending), name="told")
        m.d.comb += [
            turns.requests.eq(pending),
            wants.r_addr.eq(encode(turns.grant_onehot)),
            book.look.rank.eq(answer.p.rank),
            book.look.phase.eq(wants.r_data.phase),
            answer.p.bad.eq((bad[wanted.phase] & who).any()),
        ]
        with m.FSM():
            with m.State("WHO"):
                m.d.comb += [wants.r_en.eq(1), turns.advance.eq(pending.any())]
                m.d.sync += [who.eq(turns.grant_onehot), answer.p.rank.eq(wants.r_addr)]
                with m.If(pending.any()):
                    m.next = "WHAT"
            with m.State("WHAT"):
                m.d.comb += book.look.en.eq(1)
                m.d.sync += wanted.eq(wants.r_data)
                m.next = "TOTAL"
            with m.State("TOTAL"):
                m.next = "WHO"
                with m.If(
                    mutant(
                        "remote_fence.answered_one_early",
                        book.total == wanted.total,
                        (book.total == wanted.total) | (book.total + 1 == wanted.total),
                    )
                ):
                    m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += answer.valid.eq(1)
                with m.If(answer.ready):
                    m.d.comb += told.eq(who)
                    m.next = "WHO"
        return told
