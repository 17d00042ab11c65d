# SPDX-License-Identifier: Apache-2.0
"""Promises of NEWS packets on their way out (``hub_rtl/producer/news.py``, docs/interfaces.md
section 3)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.producer.news import NewsJoin, NewsLanes, NewsPacker

from .doubles import OpenQueue

__all__ = ["CreditsAreTakenOnce", "EntriesArePacked", "NewsGoBetweenPackets", "NewsTakeTheirLane"]


class EntriesArePacked(Spec):
    """The entries between a begin and its end leave as one record: to the rank of the end, with the
    mask of their number, then they, in order; what is left of the last beat is 0. No bubble is in a
    packet; nothing of it changes before it is taken. There is room for two.

    The two queues inside keep the order (``parts.ram_queue``, replaced by its double, and
    ``parts.register_queue``). The user begins with room, puts 1 to 16 entries and then an end,
    which comes alone."""

    def build(self, m):
        m.submodules.dut = dut = NewsPacker(self._cfg)
        inner, per_beat = observe(dut), self._cfg.slice_bytes // 8
        shift = ceil_log2(per_beat)
        queue, heads = OpenQueue(inner.words), observe(inner.heads)
        self.free_inputs(dut)
        put, out, begin = dut.put, dut.o_news, dut.begin
        begun = Signal(2)  # packets without an end
        count = Signal(5)  # entries of the first
        m.d.sync += [
            begun.eq(begun + begin - put.end),
            count.eq(Mux(put.end, 0, count + put.en)),
        ]
        self.suppose("begins with room", dut.room, when=begin)
        self.suppose("entries of a packet", (begun != 0) & (count != 16), when=put.en)
        self.suppose("ends alone, not empty", ~put.en & (count != 0), when=put.end)
        inside = Signal(2)
        m.d.sync += inside.eq(inside + begin - (moves(out) & out.p.last))
        self.always("room for two", inside <= 2)

        def named_of(entries):
            return Cat(entries > n for n in range(NEWS_ENTRIES))

        # What is put into the two queues, and what of them leaves; they keep the order.
        head = inner.heads.o.payload
        self.always(
            "head of a packet",
            inner.heads.i.valid
            & (inner.heads.i.payload.as_value() == Cat(put.rank, count, named_of(count))),
            when=put.end,
        )
        self.always("heads are of ends", put.end & inner.heads.i.ready, when=inner.heads.i.valid)
        named = Cat(entry.replicate(8) for entry in named_of(head.count))
        header = Signal.like(out.p.header)
        m.d.comb += [header.news.eq(1), header.rank.eq(head.rank)]
        self.always(
            "header and mask as its head",
            (out.p.header.as_value() == header.as_value())
            & (out.p.mask == named)
            & inner.heads.o.valid,
            when=out.valid,
        )
        self.always(
            "a head leaves with its last beat",
            moves(inner.heads.o) == (moves(out) & out.p.last),
        )
        # Beats of the packet that leaves.
        part = Signal(5)

        def beats_of(entries):
            return (entries + per_beat - 1)[:6] >> shift

        with m.If(moves(out)):
            m.d.sync += part.eq(Mux(out.p.last, 0, part + 1))
        self.always("parts in order", out.p.part == part, when=out.valid)
        self.always("last", out.p.last == (part + 1 == beats_of(head.count)), when=out.valid)
        self.always("no bubble", out.valid, when=part != 0)
        self.always_held(out, "o_news")
        # Words that wait: of the packet that leaves, the one behind it, the one that is packed.
        lengths = [beats_of(head.count) for head in heads.items]
        waiting = Mux(heads.full[0], lengths[0] - part, 0)
        waiting = waiting + Mux(heads.full[1], lengths[1], 0) + (count >> shift)
        self.lemma("words that wait", queue.level == waiting)
        self.lemma("packets inside", (inside == inner.inside) & (begun <= inside))
        self.lemma("room", inside < 2, when=dut.room)
        self.lemma("entries", (count == inner.count) & (count <= 16))
        self.lemma("none before a begin", begun != 0, when=count != 0)
        self.lemma("beats of the one that leaves", part == inner.part)
        self.lemma("it is there", heads.full[0], when=(part != 0) | heads.full[1])
        self.lemma("ended ones", inside == heads.full[0] + heads.full[1] + begun)
        for n, head in enumerate(heads.items):
            self.lemma(
                f"count of head {n}", (head.count != 0) & (head.count <= 16), when=heads.full[n]
            )
            self.lemma(f"names of head {n}", head.named == named_of(head.count), when=heads.full[n])
        self.lemma("no more beats than the packet has", part < lengths[0], when=part != 0)
        # The entries as they come: a word is complete with its last entry, or at the end.
        at = count[:shift]
        word = Signal(64 * per_beat)
        whole = Signal.like(inner.held)
        m.d.comb += word.eq(whole)
        with m.If(put.en):
            m.d.comb += word.word_select(at, 64).eq(put.entry)
        complete = (put.en & at.all()) | (put.end & at.any())
        m.d.sync += whole.eq(Mux(complete, 0, word))
        self.lemma("the entries before", whole == inner.held)
        for n in range(per_beat):
            self.lemma(f"none at {n} yet", whole.word_select(n, 64) == 0, when=at <= n)
        self.always("a word when it is complete", moves(inner.words.i) == complete)
        self.always("word", inner.words.i.payload == word, when=complete)
        self.always("words leave in turn", moves(inner.words.o) == moves(out))
        self.always("word as it was", out.p.data == inner.words.o.payload, when=out.valid)


class NewsGoBetweenPackets(Spec):
    """Packets and NEWS packets leave whole, in order, not mixed, and nothing else. NEWS have the
    turn from the cycle after one that offers them and leaves no packet begun. When a packet begins,
    two at most have ended whose bytes are not told: they are told two cycles later
    (``packet_manager.packets_are_told``)."""

    def build(self, m):
        m.submodules.dut = dut = NewsJoin(self._cfg)
        self.free_inputs(dut)
        out, inside = dut.o_record, {}
        for name, port in (("packet", dut.i_record), ("news", dut.i_news)):
            inside[name] = Signal(name=f"inside_{name}")
            with m.If(moves(port)):
                m.d.sync += inside[name].eq(~port.p.last)
        self.suppose("news: no bubble", dut.i_news.valid, when=inside["news"])
        takes = [moves(dut.i_record), moves(dut.i_news)]
        self.always("one at a time", moves(out) == (takes[0] ^ takes[1]))
        self.always("nothing twice", ~(takes[0] & takes[1]))
        for name, port, take in zip(inside, (dut.i_record, dut.i_news), takes, strict=True):
            self.always(
                f"{name} unchanged",
                out.payload.as_value() == port.payload.as_value(),
                when=take,
            )
        self.always("a packet is not cut", ~takes[1], when=inside["packet"])
        self.always("news are not cut", ~takes[0], when=inside["news"])
        offered = Signal()  # a packet that waits; its header may not have been taken
        began = inside["packet"] | offered
        turn = Signal()  # of NEWS
        goes = dut.i_record.valid & ~turn & (began | ~dut.hold)
        left = Mux(goes, ~(takes[0] & dut.i_record.p.last), began)
        m.d.sync += [
            offered.eq(goes & ~takes[0]),
            turn.eq(Mux(turn, ~(takes[1] & dut.i_news.p.last), dut.i_news.valid & ~left)),
        ]
        self.always("offered", out.valid == (turn | goes))
        self.always("in turn", Mux(turn, ~takes[0], ~takes[1]))
        self.always("none begins on hold", ~takes[0], when=dut.hold & ~began)
        on_way = Signal(range(4))
        begins = Signal()
        tells = self.past(self.past(takes[0] & dut.i_record.p.last))
        m.d.comb += begins.eq(goes & ~began)
        m.d.sync += on_way.eq(on_way + begins - tells)
        self.always("two on their way", on_way - tells < 2, when=begins)
        self.always("an update of a packet", on_way != 0, when=tells)
        waited = self.past(blocked(dut.i_record) & (out.payload.as_value() == 0))
        self.reach("a packet waits", waited)
        self.always_held(out, "o_record")


class _Lanes(Spec):
    """The lanes with free inputs that keep the rules of their docstring; one (slice, rank), any, is
    followed."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = NewsLanes(cfg)
        self.free_inputs(dut, but=("rank", "dest_ready", "pool_take"))
        m.d.comb += dut.rank.eq(self.constant(cfg.rank_width, "own"))
        self.suppose("rank exists", dut.rank < cfg.ranks)
        self.slice, self.peer = (
            self.constant(range(cfg.slices), "slice"),
            self.constant(cfg.rank_width, "peer"),
        )
        self.suppose("followed exists", (self.slice < cfg.slices) & (self.peer < cfg.ranks))
        claim = dut.claim
        before = self.past(dut.wanted & dut.may_send)
        since = Signal(3)
        m.d.sync += since.eq(Mux(claim.en, 0, since + (since != 7)))
        recent = Signal()
        m.d.sync += recent.eq((recent & (since < 3)) | claim.en)
        self.suppose(
            "claims keep the rules",
            (claim.rank < cfg.ranks) & before.bit_select(claim.rank, 1) & ~recent,
            when=claim.en,
        )
        packets = Signal(2)
        m.d.sync += packets.eq(packets + claim.en - (moves(dut.i_news) & dut.i_news.p.last))
        self.packets = packets
        self.suppose("two packets at most", packets < 2, when=claim.en)
        known = packets - self.past(claim.en)
        self.suppose("a packet after its claim", known != 0, when=dut.i_news.valid)
        self.specify(m, dut)


class CreditsAreTakenOnce(_Lanes):
    """However packet manager and news take them, no credit is taken that is not there: each take of
    a (slice, rank) has its own. A take shows in ``dest_ready`` in the next cycle; a packet manager
    takes in the cycle in which it saw ``pool_ready``, or in the next one, but not two of a rank in
    neighbouring cycles."""

    def specify(self, m, dut):
        cfg = self._cfg
        credits = Signal(range(3), init=1)
        gives = Signal()
        self.free(gives)
        self.suppose("two credits at most", credits < 2, when=gives)
        takes = Signal()
        others = Signal(cfg.ranks * cfg.slices)
        self.free(others)
        for n in range(cfg.slices):
            here = self.slice == n
            peer = here.replicate(cfg.ranks) & (1 << self.peer)[: cfg.ranks]
            m.d.comb += dut.dest_ready[n].eq(
                Mux(
                    here,
                    (others.word_select(n, cfg.ranks) & ~peer) | Mux(credits != 0, peer, 0),
                    others.word_select(n, cfg.ranks),
                )
            )
            # The packet manager: it picks a rank that is ready, and takes at once or a cycle later.
            late, late_rank = Signal(name=f"late{n}"), Signal(cfg.rank_width, name=f"late_rank{n}")
            wishes, prompt = Signal(name=f"wishes{n}"), Signal(name=f"prompt{n}")
            wish, before = Signal(cfg.rank_width, name=f"wish{n}"), dut.pool_take[n]
            for each in (wishes, prompt, wish):
                self.free(each)
            self.suppose(f"rank of slice {n}", wish < cfg.ranks)
            pick = wishes & dut.pool_ready[n].bit_select(wish, 1)
            pick = pick & ~(late & (prompt | (late_rank == wish)))
            pick = pick & ~(self.past(before.en) & (self.past(before.rank) == wish))
            m.d.sync += late.eq(pick & ~prompt)
            with m.If(pick):
                m.d.sync += late_rank.eq(wish)
            m.d.comb += [
                before.en.eq(late | (pick & prompt)),
                before.rank.eq(Mux(late, late_rank, wish)),
            ]
            with m.If(here):
                m.d.comb += takes.eq(dut.take[n].en & (dut.take[n].rank == self.peer))
        m.d.sync += credits.eq(credits + gives - (takes & (credits != 0)))
        self.always("a credit for each take", credits != 0, when=takes)


class NewsTakeTheirLane(_Lanes):
    """A claim of a rank takes a credit of one slice within two cycles, a loop lane's for the own
    rank and a link's for another; and the packet that was claimed for goes there, whole, to that
    slice alone."""

    def specify(self, m, dut):
        cfg = self._cfg
        here = Signal()
        for n in range(cfg.slices):
            self.free(dut.dest_ready[n])
            self.free(dut.pool_take[n].rank)
            m.d.comb += dut.pool_take[n].en.eq(0)
        claim = dut.claim
        took = Cat(take.en for take in dut.take)
        rank = self.past(claim.rank)
        m.d.comb += here.eq(took.bit_select(self.slice, 1))
        self.always("one take for a claim", sum(took) == self.past(claim.en))
        self.always(
            "of its rank",
            Cat((take.rank == rank) | ~take.en for take in dut.take).all()
            & ((self.slice >= cfg.lanes) == (rank == dut.rank)),
            when=here,
        )
        goes = Cat(moves(out) for out in dut.o_record) & ~Cat(moves(i) for i in dut.i_record)
        chosen, news = here, moves(dut.i_news)
        self.always_fifo(
            "packet",
            self.past(claim.en),
            chosen,
            news & dut.i_news.p.last,
            goes.bit_select(self.slice, 1),
            most=2,
        )
