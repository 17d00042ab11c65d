# SPDX-License-Identifier: Apache-2.0
"""Promises of a slice's credits, and of what slices tell each other
(docs/blocks/receive_pool.md)."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import first_share
from hub_rtl.contract.fields import GRANT
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.link.slice_credits import CreditPackets, SliceCredits

__all__ = ["MessagesBecomePackets", "SliceCreditsKept"]


class SliceCreditsKept(Spec):
    """Of an arbitrary rank: a grant is shown as left exactly while one is, by the first share, the
    newest total that can be, what was taken, and what the answers say was given back; never more
    than there are places. Messages and takes of all ranks come in any cycles."""

    def __init__(self, cfg, places):
        super().__init__(cfg)
        self._places = places

    def build(self, m):
        cfg, places = self._cfg, self._places
        first = first_share(cfg.ranks, places)
        m.submodules.dut = dut = SliceCredits(cfg, places)
        inner = observe(dut)
        self.free_inputs(dut)
        rank = self.constant(range(cfg.ranks), "rank")
        self.suppose("ranks exist", dut.granted.what.rank < cfg.ranks)
        self.suppose("rank exists", rank < cfg.ranks)
        self.suppose("takes what is left", dut.ready.bit_select(dut.take.rank, 1), when=dut.take.en)
        self.suppose("ranks that exist take", dut.take.rank < cfg.ranks)
        self.suppose("no message while it is cleared", ~dut.granted.en, when=dut.clearing)
        cleared = Signal(range(cfg.ranks + 1))
        given = Signal(GRANT)
        with m.If(cleared != cfg.ranks):
            m.d.sync += cleared.eq(cleared + 1)
        # A message counts three cycles after it came, if none of its rank counts just before.
        came = dut.granted.shape()(self.past(dut.granted, "came"))
        waits = Signal.like(came)
        m.d.sync += [
            waits.eq(came),
            waits.en.eq(came.en & ~(waits.en & (waits.what.rank == came.what.rank))),
        ]
        heard, taken, back, gain, left = (
            Signal(GRANT, name=name) for name in ("heard", "taken", "back", "gain", "left")
        )
        applies = waits.en & (waits.what.rank == rank)
        takes = dut.take.en & (dut.take.rank == rank)
        newer = applies & ~gain[-1] & (left + gain <= places)
        m.d.comb += [gain.eq(waits.what.total - heard), left.eq(first + heard - taken - given)]
        m.d.sync += taken.eq(taken + takes)
        with m.If(newer):
            m.d.sync += heard.eq(waits.what.total)
        with m.If(moves(dut.o_returned) & (dut.o_returned.p.rank == rank)):
            m.d.sync += back.eq(dut.o_returned.p.total)
        queue = observe(inner.answers)
        queued = [queue.full[n] & (item.rank == rank) for n, item in enumerate(queue.items)]
        m.d.comb += given.eq(back)
        for here, item in zip(queued, queue.items, strict=True):
            with m.If(here):
                m.d.comb += given.eq(item.total)
        told = ~dut.o_returned.valid
        self.always(
            "shown while one is left", dut.ready.bit_select(rank, 1) == left.any(), when=told
        )
        self.always("no more than places", left <= places, when=told)

        word, known = known_word(self, inner.books, rank, "book")
        book, now = inner.books.r_data.shape()(word), inner.now
        count = Array(inner.left)[rank]
        self.lemma("cleared", inner.books.observe.walk == cleared)
        self.lemma("heard", book.heard == heard, known)
        self.lemma("nothing heard", (heard == 0) & (back == 0) & ~queue.full.any(), dut.clearing)
        self.lemma("empty", word == 0, dut.clearing & known)
        self.lemma("left", (count == left) & (count <= places))
        self.lemma("ready", dut.ready.bit_select(rank, 1) == count.any())
        self.lemma("answers fill up", queue.full[0] | ~queue.full[1])
        self.lemma("given", given == book.returned, ~dut.clearing)
        self.lemma(
            "applied",
            (now.en == waits.en) & (now.rank == waits.what.rank) & (now.back == waits.what.back),
            self.started,
        )
        self.lemma(
            "of the rank",
            (now.newer == ~gain[-1])
            & (now.gain == gain)
            & (now.heard == Mux(gain[-1], heard, waits.what.total))
            & (now.left - now.took == count)
            & (now.returned == book.returned),
            applies,
        )


class MessagesBecomePackets(Spec):
    """Each message of a slice becomes one CREDIT packet of one flit for its rank, in order of its
    kind, which says that message and nothing else."""

    def build(self, m):
        m.submodules.dut = dut = CreditPackets(self._cfg)
        self.free_inputs(dut)
        self.always_held_all(dut)
        out = dut.o_packet
        says = header_layout(PacketType.CREDIT)(out.p.data)
        kinds = {
            "grants": (dut.i_grant, ("granted", "back")),
            "returns": (dut.i_returned, ("returned",)),
            "asks": (dut.i_ask, ("plains", "phase")),
            "answers": (dut.i_answer, ("bad",)),
        }
        for name, (told, fields) in kinds.items():
            here = says[name]
            rank = says.dst[: self._cfg.rank_width]
            body = Cat(rank, *(says[field] for field in fields))
            self.always_fifo(name, moves(told), told.p, moves(out) & here, body, most=2)
            others = [says[field] for kind in kinds if kind != name for field in kinds[kind][1]]
            self.always(f"{name}: nothing else", ~Cat(others).any(), when=out.valid & here)
        flags = Cat(says[name] for name in kinds)
        self.always("one message", flags.any() & ~(flags & (flags - 1)).any(), when=out.valid)
        self.always(
            "one flit",
            out.p.first
            & out.p.last
            & ~out.p.err
            & (says.type == PacketType.CREDIT)
            & (says.len == 0),
            when=out.valid,
        )
