# SPDX-License-Identifier: Apache-2.0
"""Promises of NEWS packets on their way out (``hub_rtl/producer/news.py``, docs/interfaces.md
section 3)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.producer.news import NewsJoin, NewsLanes, NewsPacker

from .doubles import OpenQueue

__all__ = ["CreditsAreTakenOnce", "EntriesArePacked", "NewsGoBetweenPackets", "NewsTakeTheirLane"]


class EntriesArePacked(Spec):
    """The entries between a begin and its end leave as one packet: a NEWS header to the rank of the
    end, with their number, then they two by two, in order; the other half of the last flit is 0. No
    bubble is in a packet; nothing of it changes before it is taken. There is room for two.

    The two queues inside keep the order (``parts.ram_queue``, replaced by its double, and
    ``parts.register_queue``). The user begins with room, puts 1 to 16 entries and then an end,
    which comes alone."""

    def build(self, m):
        m.submodules.dut = dut = NewsPacker(self._cfg)
        inner = observe(dut)
        queue, heads = OpenQueue(inner.flits), observe(inner.heads)
        self.free_inputs(dut)
        put, out, begin = dut.put, dut.o_news, dut.begin
        header = header_layout(PacketType.NEWS)(out.payload.data)
        begun, count = Signal(2), Signal(5)  # packets without an end; entries of the first
        m.d.sync += [
            begun.eq(begun + begin - put.end),
            count.eq(Mux(put.end, 0, count + put.en)),
        ]
        self.suppose("begins with room", dut.room, when=begin)
        self.suppose("entries of a packet", (begun != 0) & (count != 16), when=put.en)
        self.suppose("ends alone, not empty", ~put.en & (count != 0), when=put.end)
        inside = Signal(2)
        m.d.sync += inside.eq(inside + begin - (moves(out) & out.payload.last))
        self.always("room for two", inside <= 2)
        # What is put into the two queues, and what of them leaves; they keep the order.
        head = inner.heads.o.payload
        self.always(
            "head of a packet",
            inner.heads.i.valid & (inner.heads.i.payload.as_value() == Cat(put.rank, count)),
            when=put.end,
        )
        self.always("heads are of ends", put.end & inner.heads.i.ready, when=inner.heads.i.valid)
        self.always(
            "header as its head",
            (header.dst == head.rank) & (header.count == head.count) & inner.heads.o.valid,
            when=out.valid & out.payload.first,
        )
        self.always(
            "a head leaves with its last flit",
            moves(inner.heads.o) == (moves(out) & out.payload.last),
        )
        # Flits of the packet that leaves.
        flits = Signal(4)
        with m.If(moves(out)):
            m.d.sync += flits.eq(Mux(out.payload.first, header.len, flits - 1))
        self.always("framing", (out.payload.first == (flits == 0)), when=out.valid)
        self.always("last", out.payload.last == (flits == 1), when=out.valid)
        self.always("no bubble", out.valid, when=flits != 0)
        self.always(
            "header",
            (header.type == PacketType.NEWS) & (header.len == (header.count + 1) >> 1),
            when=out.valid & out.payload.first,
        )
        self.always_held(out, "o_news")
        # Flits that wait: of the packet that leaves, the one behind it, the one that is packed.
        lengths = [((head.count + 1) >> 1)[:4] for head in heads.items]
        waiting = Mux(heads.full[0], Mux(inner.left == 0, lengths[0], inner.left), 0)
        waiting = waiting + Mux(heads.full[1], lengths[1], 0) + (count >> 1)
        self.lemma("flits that wait", queue.level == waiting)
        self.lemma("packets inside", (inside == inner.inside) & (begun <= inside))
        self.lemma("room", inside < 2, when=dut.room)
        self.lemma("entries", (count == inner.count) & (count <= 16))
        self.lemma("none before a begin", begun != 0, when=count != 0)
        self.lemma("flits of the one that leaves", flits == inner.left)
        self.lemma("it is there", heads.full[0], when=(flits != 0) | heads.full[1])
        self.lemma("ended ones", inside == heads.full[0] + heads.full[1] + begun)
        for n, head in enumerate(heads.items):
            self.lemma(
                f"count of head {n}", (head.count != 0) & (head.count <= 16), when=heads.full[n]
            )
        self.lemma("no more flits than the packet has", flits <= lengths[0], when=flits != 0)
        # The entries as they come, two to a flit: it is complete with its second entry, or at the
        # end.
        odd, first, put_flit = count[0], Signal(64), Signal()
        with m.If(put.en):
            m.d.sync += first.eq(put.entry)
        m.d.comb += put_flit.eq(odd & (put.en | put.end))
        self.lemma("the last entry", first == inner.low)
        self.always("a flit for two entries", moves(inner.flits.i) == put_flit)
        self.always(
            "flit",
            inner.flits.i.payload == Cat(first, Mux(put.en, put.entry.as_value(), 0)),
            when=put_flit,
        )
        self.always(
            "flits leave in turn",
            moves(inner.flits.o) == (moves(out) & ~out.payload.first),
        )
        self.always(
            "flit as it was",
            out.payload.data == inner.flits.o.payload,
            when=out.valid & (flits != 0),
        )


class NewsGoBetweenPackets(Spec):
    """Packets and NEWS packets leave whole, in order, not mixed, and nothing else; NEWS packets go
    before a packet that was not offered yet. Inputs: whole packets without a bubble."""

    def build(self, m):
        m.submodules.dut = dut = NewsJoin(self._cfg)
        self.free_inputs(dut)
        out, inside = dut.o_packet, {}
        for name, port in (("packet", dut.i_packet), ("news", dut.i_news)):
            inside[name] = Signal(name=f"inside_{name}")
            with m.If(moves(port)):
                m.d.sync += inside[name].eq(~port.payload.last)
            self.suppose(f"{name}: whole", port.payload.first == ~inside[name], when=port.valid)
            self.suppose(f"{name}: no bubble", port.valid, when=inside[name])
        takes = [moves(dut.i_packet), moves(dut.i_news)]
        self.always("one at a time", moves(out) == (takes[0] ^ takes[1]))
        self.always("nothing twice", ~(takes[0] & takes[1]))
        for name, port, take in zip(inside, (dut.i_packet, dut.i_news), takes, strict=True):
            self.always(
                f"{name} unchanged",
                out.payload.as_value() == port.payload.as_value(),
                when=take,
            )
        self.always("a packet is not cut", ~takes[1], when=inside["packet"])
        self.always("news are not cut", ~takes[0], when=inside["news"])
        offered = Signal()  # a packet that waits; its header may not have been taken
        m.d.sync += offered.eq(blocked(out) & (offered | inside["packet"] | ~dut.i_news.valid))
        began = inside["packet"] | offered
        self.always(
            "offered", out.valid == (dut.i_news.valid | (dut.i_packet.valid & (began | ~dut.hold)))
        )
        self.always("none begins on hold", ~takes[0], when=dut.hold & ~began)
        waited = self.past(blocked(dut.i_packet) & (out.payload.as_value() == 0))
        self.reach("a packet waits", waited)
        self.always_held(out, "o_packet")
        self.always(
            "news first",
            ~takes[0],
            when=dut.i_news.valid & ~inside["packet"] & ~self.past(blocked(dut.i_packet)),
        )


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
        m.d.sync += packets.eq(packets + claim.en - (moves(dut.i_news) & dut.i_news.payload.last))
        self.packets = packets
        self.suppose("two packets at most", packets < 2, when=claim.en)
        known = packets - self.past(claim.en)
        self.suppose("a packet after its claim", known != 0, when=dut.i_news.valid)
        self.specify(m, dut)


class CreditsAreTakenOnce(_Lanes):
    """However packet manager and news take them, no credit is taken that is not there: each take of
    a (slice, rank) has its own. A take shows in ``dest_ready`` two cycles later, as with the
    register of the hub; a packet manager picks at ``pool_ready`` and takes 3 cycles later, at most
    every fifth cycle."""

    def specify(self, m, dut):
        cfg = self._cfg
        credits, gives = Signal(range(3), init=1), Signal()
        self.free(gives)
        self.suppose("two credits at most", credits < 2, when=gives)
        takes, others = Signal(), Signal(cfg.ranks * cfg.slices)
        self.free(others)
        pick_any = Signal(cfg.slices)
        self.free(pick_any)
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
            # The packet manager: it picks a rank that is ready, and takes three cycles later.
            step, rank = Signal(4, name=f"step{n}"), Signal(cfg.rank_width, name=f"rank{n}")
            wish = Signal(cfg.rank_width, name=f"wish{n}")
            self.free(wish)
            pick = pick_any[n] & (step == 0) & dut.pool_ready[n].bit_select(wish, 1)
            m.d.sync += step.eq(Cat(pick, step[:3]))
            with m.If(pick):
                m.d.sync += rank.eq(wish)
            m.d.comb += [
                dut.pool_take[n].en.eq(step[2]),
                dut.pool_take[n].rank.eq(rank),
            ]
            with m.If(here):
                m.d.comb += takes.eq(dut.take[n].en & (dut.take[n].rank == self.peer))
        late = self.past(takes)
        m.d.sync += credits.eq(credits + gives - (late & (credits != 0)))
        self.always("a credit for each take", credits != 0, when=late)


class NewsTakeTheirLane(_Lanes):
    """A claim of a rank takes a credit of one slice within two cycles, a loop lane's for the own
    rank and a link's for another; and the packet that was claimed for goes there, whole, to that
    slice alone."""

    def specify(self, m, dut):
        cfg, here = self._cfg, Signal()
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
        goes = Cat(moves(out) for out in dut.o_packet) & ~Cat(moves(i) for i in dut.i_packet)
        chosen, news = here, moves(dut.i_news)
        self.always_fifo(
            "packet",
            self.past(claim.en),
            chosen,
            news & dut.i_news.payload.last,
            goes.bit_select(self.slice, 1),
            most=2,
        )
