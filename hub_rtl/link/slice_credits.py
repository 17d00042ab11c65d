# SPDX-License-Identifier: Apache-2.0
"""The sending half of a slice's credits: what each rank's receive pool has granted, and how that is
told and given back."""

from typing import NamedTuple

from amaranth import Array, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import first_share
from hub_rtl.contract.fields import GRANT
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue
from hub_rtl.parts.stream import StreamMerge

__all__ = ["CreditPackets", "SliceCredits"]


class SliceCreditsObserve(NamedTuple):
    """What a proof may see of :class:`SliceCredits`."""

    left: list  #: per rank, grants left
    books: Ram  #: per rank {heard, returned}
    now: Signal  #: the message that is applied in this cycle
    answers: RegisterQueue  #: what was given back and is not told yet


class SliceCredits(wiring.Component):
    """Grants of all ranks' receive pools to one slice of this hub, a counter per rank.

    Contract: ``ready`` says of which ranks a grant is left. A rank's total that grew adds what it
    grew by; one that is older than the last one, or would make more than there are places, is
    ignored (the latter ``bad_total``). Who is asked to give back gives a quarter of what is left
    before a take in that cycle, nothing of the reserve, and says in ``o_returned`` how many it has
    given back since reset, if there is room to say so.

    Latency: ``take`` shows in ``ready`` in the next cycle, a message three cycles after it. One
    take and one message per cycle; one that follows a message of the same rank at once is ignored,
    the next one says the same and more. The messages for a slice come over one of its links, in
    order: link ``rank`` mod ``slice_links`` of the hub that they are for.

    Illegal input: ``take`` only while the rank's ready bit is set.

    Parameters: ``cfg``; ``places`` of a pool. Ports: ``take`` In {en, rank}; ``granted`` In {en,
    what}; ``ready`` Out ``ranks``, registers; ``o_returned`` Out stream(returned); ``bad_total``
    Out strobe; ``clearing`` Out, ``ranks`` cycles after reset, while messages are lost.
    Source: docs/formats.md (CREDIT), docs/blocks/receive_pool.md.
    """

    observe: SliceCreditsObserve  # once elaborated

    def __init__(self, cfg, places):
        types, strobe = types_of(cfg), data.StructLayout
        super().__init__(
            {
                "take": In(types.rank_strobe),
                "granted": In(types.messages["granted"]),
                "ready": Out(cfg.ranks, init=(1 << cfg.ranks) - 1),
                "o_returned": Out(stream.Signature(types.returned)),
                "bad_total": Out(1),
                "clearing": Out(1),
            }
        )
        self._cfg, self._places = cfg, places
        self._book = strobe({"heard": GRANT, "returned": GRANT})
        #: A message that is applied: what it adds, if it is no old one, to what is left.
        marks, totals = ("en", "back", "newer", "took"), ("gain", "heard", "returned", "left")
        self._stage = strobe(
            {"rank": cfg.rank_width, **dict.fromkeys(marks, 1), **dict.fromkeys(totals, GRANT)}
        )

    def elaborate(self, platform):
        m = Module()
        cfg, places = self._cfg, self._places
        first = first_share(cfg.ranks, places)
        m.submodules.books = books = Ram(self._book, cfg.ranks, clear=True)
        m.submodules.returned = answers = RegisterQueue(types_of(cfg).returned, 2)
        wiring.connect(m, answers.o, wiring.flipped(self.o_returned))
        left = [Signal(range(places + 1), init=first, name=f"left_{n}") for n in range(cfg.ranks)]
        message = Signal.like(self.granted)
        now = Signal(self._stage)
        self.observe = SliceCreditsObserve(left, books, now, answers)
        self._look_up(m, books, left, message, now)

        src = now.rank
        base = Signal(range(places + 1))
        more = Signal(range(2 << GRANT))
        part = Signal.like(base)
        kept = Signal.like(base)
        fits = Signal()
        gives = Signal()
        m.d.comb += [
            base.eq(now.left - now.took),
            more.eq(base + Mux(now.newer, now.gain, 0)),
            fits.eq(mutant("link.more_grants_than_places", more <= places, 1)),
            part.eq((more + 1) >> 2),  # nothing of two, the reserve
            gives.eq(now.en & fits & now.back & part.any() & answers.i.ready),
            kept.eq(more - Mux(gives, part, 0)),
            self.bad_total.eq(now.en & ~fits),
            answers.i.valid.eq(gives),
            answers.i.p.rank.eq(src),
            answers.i.p.total.eq(now.returned + part),
            books.w_en.eq(now.en & fits),
            books.w_addr.eq(src),
            books.w_data.heard.eq(now.heard),
            books.w_data.returned.eq(Mux(gives, answers.i.p.total, now.returned)),
        ]
        for n, count in enumerate(left):
            # The count without a take and with one; the take chooses, it is not added up.
            applies, before = Signal(name=f"applies_{n}"), Signal.like(count, name=f"before_{n}")
            takes = self._takes(n)
            m.d.comb += [
                applies.eq(now.en & fits & (src == n)),
                before.eq(Mux(applies, mutant("link.returned_grants_kept", kept, more), count)),
            ]
            takes = mutant("link.take_at_grant_lost", takes, takes & ~applies)
            m.d.sync += [
                count.eq(Mux(takes, before - 1, before)),
                self.ready[n].eq(Mux(takes, before != 1, before != 0)),
            ]
        return m

    def _takes(self, rank):
        return self.take.en & (self.take.rank == rank)

    def _look_up(self, m, books, left, message, now):
        """Two steps: the rank's book is read; what the message adds to what is left."""
        src = message.what.rank
        book = books.r_data
        gain = Signal(GRANT)
        unused = [Const(0)] * ((1 << len(src)) - self._cfg.ranks)
        m.d.sync += message.eq(self.granted)
        m.d.comb += [
            self.clearing.eq(books.clearing),
            books.r_en.eq(1),
            books.r_addr.eq(self.granted.what.rank),
            gain.eq(message.what.total - book.heard),
        ]
        m.d.sync += [
            now.en.eq(message.en & ~(now.en & (now.rank == src))),
            now.rank.eq(src),
            now.back.eq(message.what.back),
            now.newer.eq(~gain[-1]),
            now.gain.eq(gain),
            now.heard.eq(Mux(gain[-1], book.heard, message.what.total)),
            now.returned.eq(book.returned),
            now.left.eq(Array([*left, *unused])[src]),
            now.took.eq(self._takes(src)),
        ]


class CreditPackets(wiring.Component):
    """CREDIT packets, a flit each, of what a slice tells the other ranks' slices.

    Contract: each message becomes one packet, in order of its kind; the kinds take turns.
    Latency one cycle, one packet per cycle. ``src``, ``lane``, ``seq`` and the totals of the link's
    own buffers are for the link to fill.

    Parameters: ``cfg``. Ports: ``i_grant`` In stream(grant); ``i_returned`` In stream(returned);
    ``i_ask`` In stream(ask); ``i_answer`` In stream(answer); ``o_packet`` Out stream(flit).
    """

    def __init__(self, cfg):
        types = types_of(cfg)
        super().__init__(
            {
                "i_grant": In(stream.Signature(types.grant)),
                "i_returned": In(stream.Signature(types.returned)),
                "i_ask": In(stream.Signature(types.ask)),
                "i_answer": In(stream.Signature(types.answer)),
                "o_packet": Out(stream.Signature(types.flit)),
            }
        )
        self._flit = types.flit

    def elaborate(self, platform):
        m = Module()
        grant, returned, ask, answer = self.i_grant, self.i_returned, self.i_ask, self.i_answer
        phase = mutant("link.questions_of_first_phase", ask.p.phase, 0)
        says = (
            (grant, {"grants": 1, "granted": grant.p.total, "back": grant.p.back}),
            (returned, {"returns": 1, "returned": returned.p.total}),
            (ask, {"asks": 1, "plains": ask.p.total, "phase": phase}),
            (answer, {"answers": 1, "bad": answer.p.bad}),
        )
        m.submodules.merge = merge = StreamMerge(self._flit, len(says))
        wiring.connect(m, merge.o, wiring.flipped(self.o_packet))
        for n, ((told, body), to) in enumerate(zip(says, merge.i, strict=True)):
            flit = Signal(header_layout(PacketType.CREDIT), name=f"flit_{n}")
            m.d.comb += [
                flit.type.eq(PacketType.CREDIT),
                flit.dst.eq(told.p.rank),
                *(flit[name].eq(value) for name, value in body.items()),
                to.valid.eq(told.valid),
                told.ready.eq(to.ready),
                to.p.data.eq(flit),
                to.p.first.eq(1),
                to.p.last.eq(1),
            ]
        return m
