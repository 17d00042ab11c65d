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

__all__ = ["KEEP", "CreditPackets", "SliceCredits"]

KEEP = 2  # grants that a source keeps when it is asked to give them back


class SliceCreditsObserve(NamedTuple):
    """What a proof may see of :class:`SliceCredits`."""

    left: list  #: per rank, grants left
    books: Ram  #: per rank {heard, returned}
    told: Signal  #: the message that is applied in this cycle


class SliceCredits(wiring.Component):
    """Grants of all ranks' receive pools to one slice of this hub, a counter per rank.

    Contract: ``ready`` says of which ranks a grant is left. A rank's total that grew adds what it
    grew by; one that is older than the last one, or would leave more than there are places, is
    ignored (the latter ``bad_total``). Who is asked to give back keeps two grants and says in
    ``o_returned`` how many it has given back since reset, if there is room to say so.

    Latency: ``take`` shows in ``ready`` in the next cycle, a message two cycles after it. One take
    and one message per cycle. The messages for a slice come over one of its links, in order: link
    ``rank`` mod ``slice_links`` of the hub that they are for.

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
                "granted": In(strobe({"en": 1, "what": types.grant})),
                "ready": Out(cfg.ranks, init=(1 << cfg.ranks) - 1),
                "o_returned": Out(stream.Signature(types.returned)),
                "bad_total": Out(1),
                "clearing": Out(1),
            }
        )
        self._cfg, self._places = cfg, places
        self._book = strobe({"heard": GRANT, "returned": GRANT})

    def elaborate(self, platform):
        m = Module()
        cfg, places = self._cfg, self._places
        first = first_share(cfg.ranks, places)
        m.submodules.books = books = Ram(self._book, cfg.ranks, clear=True)
        m.submodules.returned = answers = RegisterQueue(types_of(cfg).returned, 2)
        wiring.connect(m, answers.o, wiring.flipped(self.o_returned))
        left = [Signal(range(places + 1), init=first, name=f"left_{n}") for n in range(cfg.ranks)]
        told, book = Signal.like(self.granted), books.r_data
        self.observe = SliceCreditsObserve(left, books, told)
        src = told.what.rank
        here = Signal(range(places + 1))  # left of that rank, before the message
        gain, more, kept = Signal(GRANT), Signal(range(2 << GRANT)), Signal.like(here)
        newer, fits, gives = Signal(), Signal(), Signal()
        m.d.sync += told.eq(self.granted)
        m.d.comb += [
            self.clearing.eq(books.clearing),
            books.r_en.eq(1),
            books.r_addr.eq(self.granted.what.rank),
            here.eq(
                Array([*left, *(Const(0) for _ in range((1 << len(src)) - cfg.ranks))])[src]
                - mutant("link.take_at_grant_lost", self.take.en & (self.take.rank == src), 0)
            ),
            gain.eq(told.what.total - book.heard),
            newer.eq(~gain[-1]),
            more.eq(here + Mux(newer, gain, 0)),
            fits.eq(mutant("link.more_grants_than_places", more <= places, 1)),
            gives.eq(told.en & fits & told.what.back & (more > KEEP) & answers.i.ready),
            kept.eq(Mux(gives, KEEP, more)),
            self.bad_total.eq(told.en & ~fits),
            answers.i.valid.eq(gives),
            answers.i.p.rank.eq(src),
            answers.i.p.total.eq(book.returned + more - KEEP),
            books.w_en.eq(told.en & fits),
            books.w_addr.eq(src),
            books.w_data.heard.eq(Mux(newer, told.what.total, book.heard)),
            books.w_data.returned.eq(Mux(gives, answers.i.p.total, book.returned)),
        ]
        for n, count in enumerate(left):
            with m.If(told.en & fits & (src == n)):
                m.d.sync += [
                    count.eq(mutant("link.returned_grants_kept", kept, more)),
                    self.ready[n].eq(kept.any()),
                ]
            with m.Elif(self.take.en & (self.take.rank == n)):
                m.d.sync += [count.eq(count - 1), self.ready[n].eq(count != 1)]
        return m


class CreditPackets(wiring.Component):
    """CREDIT packets, a flit each, of what a slice grants to others and gives back to them.

    Contract: each message becomes one packet, in order of its kind; the two kinds take turns.
    Latency one cycle, one packet per cycle. ``src``, ``lane``, ``seq`` and the totals of the link's
    own buffers are for the link to fill.

    Parameters: ``cfg``. Ports: ``i_grant`` In stream(grant); ``i_returned`` In stream(returned);
    ``o_packet`` Out stream(flit).
    """

    def __init__(self, cfg):
        types = types_of(cfg)
        super().__init__(
            {
                "i_grant": In(stream.Signature(types.grant)),
                "i_returned": In(stream.Signature(types.returned)),
                "o_packet": Out(stream.Signature(types.flit)),
            }
        )
        self._flit = types.flit

    def elaborate(self, platform):
        m = Module()
        m.submodules.merge = merge = StreamMerge(self._flit, 2)
        wiring.connect(m, merge.o, wiring.flipped(self.o_packet))
        inputs = (self.i_grant, self.i_returned)
        for n, (told, to) in enumerate(zip(inputs, merge.i, strict=True)):
            flit = Signal(header_layout(PacketType.CREDIT), name=f"flit_{n}")
            m.d.comb += [
                flit.type.eq(PacketType.CREDIT),
                flit.dst.eq(told.p.rank),
                to.valid.eq(told.valid),
                told.ready.eq(to.ready),
                to.p.data.eq(flit),
                to.p.first.eq(1),
                to.p.last.eq(1),
            ]
            if told is self.i_grant:
                m.d.comb += [
                    flit.grants.eq(1),
                    flit.granted.eq(told.p.total),
                    flit.back.eq(told.p.back),
                ]
            else:
                m.d.comb += [flit.returns.eq(1), flit.returned.eq(told.p.total)]
        return m
