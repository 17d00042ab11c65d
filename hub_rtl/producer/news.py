# SPDX-License-Identifier: Apache-2.0
"""NewsPacker, NewsLanes: what a producer says of its regions, packed into NEWS packets and put on a
lane that has a credit for them."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT, LEN, NEWS_COUNT
from hub_rtl.contract.packets import NEWS_ENTRIES, PacketType
from hub_rtl.contract.records import header_layout, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.register_queue import RegisterQueue

from .records import producer_types_of

__all__ = ["NewsJoin", "NewsLanes", "NewsPacker"]

PACKETS = 2  # begun and not sent


class NewsPackerObserve(NamedTuple):
    """What a proof may see of a :class:`NewsPacker`."""

    flits: RamQueue  #: payload flits of the packets inside
    heads: RegisterQueue  #: {rank, count} of the packets that have ended
    left: Signal  #: flits to come of the packet that leaves
    inside: Signal  #: packets begun and not sent
    count: Signal  #: entries of the packet that is packed
    low: Signal  #: the last of them


class NewsPacker(wiring.Component):
    """Packs entries into NEWS packets, two to a flit.

    Contract: the entries between a ``begin`` and the ``end`` after it leave as one packet to the
    ``rank`` of that end, in order, with type, dst, len and count filled and all else 0. The user
    begins only while ``room``, and puts 1 to 16 entries before an end; ``end`` comes alone.

    Latency two cycles from ``end`` to the header; one flit per cycle and no bubble inside a packet.
    Nothing waits but for ``o_news``. Two packets fit, the one that leaves included.

    Parameters: ``cfg``. Ports: ``begin`` In; ``put`` In, record ``news_put``; ``room`` Out;
    ``o_news`` Out stream(flit). Source: docs/formats.md, NEWS.
    """

    observe: NewsPackerObserve  # once elaborated

    def __init__(self, cfg):
        super().__init__(
            {
                "begin": In(1),
                "put": In(producer_types_of(cfg).news_put),
                "room": Out(1, init=1),
                "o_news": Out(stream.Signature(types_of(cfg).flit)),
            }
        )
        self._head = data.StructLayout({"rank": cfg.rank_width, "count": NEWS_COUNT})

    def elaborate(self, platform):
        m = Module()
        m.submodules.flits = flits = RamQueue(FLIT, PACKETS * NEWS_ENTRIES // 2)
        m.submodules.heads = heads = RegisterQueue(self._head, PACKETS)
        put, low, count = self.put, Signal(FLIT // 2), Signal(NEWS_COUNT)
        odd = count[0]
        m.d.comb += [
            flits.i.valid.eq(
                odd & (put.en | mutant("producer.odd_entry_missed", put.end, 0)),
            ),
            flits.i.payload.eq(Cat(low, Mux(put.en, put.entry, 0))),
            heads.i.valid.eq(put.end),
            heads.i.payload.rank.eq(put.rank),
            heads.i.payload.count.eq(count),
        ]
        with m.If(put.en):
            m.d.sync += [
                low.eq(put.entry),
                count.eq(count + 1),
            ]
        with m.If(put.end):
            m.d.sync += count.eq(0)
        left, inside = Signal(LEN), Signal(range(PACKETS + 1))
        self.observe = NewsPackerObserve(flits, heads, left, inside, count, low)
        sent = self._send(m, heads.o, flits.o, left)
        m.d.sync += [
            inside.eq(inside + self.begin - sent),
            self.room.eq(inside + self.begin < PACKETS),
        ]
        return m

    def _send(self, m, head, flits, left):
        """Header, then the flits; returns when the last one leaves."""
        out = self.o_news
        header = Signal(header_layout(PacketType.NEWS))
        sent = Signal()
        m.d.comb += [
            header.type.eq(PacketType.NEWS),
            header.dst.eq(head.payload.rank),
            header.len.eq((head.payload.count + 1) >> 1),
            header.count.eq(head.payload.count),
            out.valid.eq(head.valid),
            out.payload.first.eq(left == 0),
            out.payload.last.eq(left == 1),
            out.payload.data.eq(Mux(left == 0, header, flits.payload)),
            sent.eq(out.valid & out.ready & out.payload.last),
            flits.ready.eq(out.valid & out.ready & (left != 0)),
            head.ready.eq(sent),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += left.eq(Mux(left == 0, header.len, left - 1))
        return sent


class NewsJoin(wiring.Component):
    """Puts NEWS packets between the packets of one slice, before a packet that has not begun.

    Contract: packets of both leave whole and in order; combinational, one flit per cycle. Neither
    input has a bubble inside a packet. With ``hold`` no packet of ``i_packet`` begins; NEWS go.
    Parameters: ``cfg``. Ports: ``i_packet``, ``i_news`` In, ``o_packet`` Out, stream(flit);
    ``hold`` In.
    """

    def __init__(self, cfg):
        flit = stream.Signature(types_of(cfg).flit)
        super().__init__(
            {"i_packet": In(flit), "i_news": In(flit), "o_packet": Out(flit), "hold": In(1)}
        )

    def elaborate(self, platform):
        m = Module()
        packet, news, out = self.i_packet, self.i_news, self.o_packet
        going, go_news = Signal(), Signal()  # a packet was offered and has not ended
        offered = Signal()
        m.d.comb += [
            go_news.eq(mutant("producer.news_cuts_packet", news.valid & ~going, news.valid)),
            offered.eq(packet.valid & (going | ~self.hold)),
            out.valid.eq(news.valid | offered),
            out.payload.eq(Mux(go_news, news.payload, packet.payload)),
            news.ready.eq(go_news & out.ready),
            packet.ready.eq(~go_news & offered & out.ready),
        ]
        m.d.sync += going.eq(~go_news & offered & ~(out.ready & packet.payload.last))
        return m


class NewsLanes(wiring.Component):
    """Finds a data credit for each peer's news, and puts the packets between those of the packet
    managers.

    Contract: while a rank's bit in ``wanted`` is set, its next credit on one lane is kept from that
    lane's packet manager, for NEWS; ``may_send`` says that it is there. ``claim`` takes it: then
    the next packet at ``i_news`` that was not claimed for yet must be for that rank, and goes on
    that lane. The lanes are used in turn, by each peer for itself; the own rank has the loop
    lanes.

    Latency: ``may_send`` 6 cycles after ``wanted``, if the credit is there; it stays until the
    claim or the end of ``wanted``. ``i_news`` to ``o_packet``, ``dest_ready`` to ``pool_ready``:
    combinational. A packet manager's take goes first, the claim's follows in the next cycle.

    Order: of the packets of a packet manager that of its slice; NEWS packets as claimed. Stalls:
    ``i_news`` waits for the packet that the slice has begun, and for its wire.

    Input is trusted: a rank is claimed while ``may_send`` and ``wanted`` were set in the cycle
    before, claims come at least 5 cycles apart, at most two packets are claimed and not sent;
    ``pool_take`` comes at least two cycles apart, 4 cycles at most after ``pool_ready`` was seen
    set; ``dest_ready`` shows a take at most two cycles later.

    Parameters: ``cfg``. Ports: ``rank`` In; ``wanted`` In, ``may_send`` Out ``ranks``; ``claim`` In
    {en, rank}; ``i_news`` In stream(flit); per slice ``i_packet`` In, ``o_packet`` Out
    stream(flit), ``dest_ready`` In, ``pool_ready`` Out ``ranks``, ``pool_take`` In, ``take`` Out
    {en, rank}; ``hold`` In ``slices``: no packet of the packet manager begins.
    """

    SETTLE = 4  # cycles until ``dest_ready`` shows all takes of a packet manager that saw a credit

    def __init__(self, cfg):
        t = types_of(cfg)
        flit = stream.Signature(t.flit)
        super().__init__(
            {
                "rank": In(cfg.rank_width),
                "wanted": In(cfg.ranks),
                "may_send": Out(cfg.ranks),
                "claim": In(t.rank_strobe),
                "i_news": In(flit),
                "i_packet": In(flit).array(cfg.slices),
                "o_packet": Out(flit).array(cfg.slices),
                "dest_ready": In(cfg.ranks).array(cfg.slices),
                "pool_ready": Out(cfg.ranks).array(cfg.slices),
                "pool_take": In(t.rank_strobe).array(cfg.slices),
                "take": Out(t.rank_strobe).array(cfg.slices),
                "hold": In(cfg.slices),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        own, claimed = Signal(cfg.ranks), Signal(cfg.ranks)
        m.d.comb += [
            own.eq(1 << self.rank),
            claimed.eq(self.claim.en << self.claim.rank),
        ]
        turns = self._turns(m, own, claimed)
        wanted = self._settle(m, turns, claimed)
        chosen = Signal(cfg.slices)  # the slice of the rank that is claimed
        m.d.comb += chosen.eq(Cat((turn & claimed).any() for turn in turns))
        held_slice, held_rank = self._take(m, chosen, claimed)
        for n, turn in enumerate(turns):
            kept = mutant("producer.news_credit_not_kept", (wanted & turn), 0)
            held = Mux(held_slice[n], held_rank, 0)
            m.d.comb += self.pool_ready[n].eq(self.dest_ready[n] & ~(kept | held))
        self._join(m, chosen)
        return m

    def _turns(self, m, own, claimed):
        """By slice, the ranks whose turn it has."""
        cfg = self._cfg
        turns = [Signal(cfg.ranks, name=f"turn{n}") for n in range(cfg.slices)]
        for r in range(cfg.ranks):
            number = Signal(range(max(2, cfg.lanes)), name=f"lane_of{r}")
            last = Mux(own[r], cfg.loop_lanes - 1, cfg.lanes - 1)
            with m.If(claimed[r]):
                m.d.sync += number.eq(
                    mutant(
                        "producer.news_on_first_lane_only", Mux(number == last, 0, number + 1), 0
                    )
                )
            m.d.comb += [turns[n][r].eq(~own[r] & (number == n)) for n in range(cfg.lanes)]
            m.d.comb += [
                turns[cfg.lanes + n][r].eq(own[r] & (number == n)) for n in range(cfg.loop_lanes)
            ]
        return turns

    def _settle(self, m, turns, claimed):
        """When a rank's lane is looked at: its credit has been kept for so long that no packet
        manager is about to take it. Returns the ranks for which one is kept."""
        credit = Signal(self._cfg.ranks)
        ready = [ready & turn for ready, turn in zip(self.dest_ready, turns, strict=True)]
        together = ready[0]
        for one in ready[1:]:
            together = together | one
        m.d.comb += credit.eq(together)
        kept = [Signal(self._cfg.ranks, name=f"kept{n}") for n in range(self.SETTLE + 1)]
        m.d.sync += kept[0].eq(self.wanted)
        for early, late in zip(kept, kept[1:], strict=False):
            m.d.sync += late.eq(early & self.wanted & ~claimed)
        m.d.sync += self.may_send.eq(kept[-1] & credit & self.wanted & ~claimed)
        return kept[0]

    def _take(self, m, chosen, claimed):
        """The credit of a claim is taken between those of the packet manager. Returns slice and
        rank, one-hot, of which no packet manager may take one until ``dest_ready`` shows it."""
        cfg = self._cfg
        due, timer = Signal(), Signal(range(self.SETTLE + 1))
        held_slice, held_rank = Signal(cfg.slices), Signal(cfg.ranks)
        held = data.StructLayout({"slice": cfg.slices, "rank": cfg.rank_width})
        last, free = Signal(held), Signal(cfg.slices)
        for n, (take, pool) in enumerate(zip(self.take, self.pool_take, strict=True)):
            mine = due & last.slice[n]
            m.d.comb += [
                free[n].eq(mine & ~pool.en),
                take.en.eq(pool.en | mutant("producer.news_takes_no_credit", mine, 0)),
                take.rank.eq(Mux(pool.en, pool.rank, last.rank)),
            ]
        with m.If(timer.any()):
            m.d.sync += timer.eq(timer - 1)
            m.d.comb += held_slice.eq(last.slice)
        with m.If(free.any()):
            m.d.sync += due.eq(0)
        with m.If(self.claim.en):
            m.d.sync += [
                due.eq(1),
                timer.eq(self.SETTLE),
                last.slice.eq(chosen),
                last.rank.eq(self.claim.rank),
                held_rank.eq(claimed),
            ]
        return held_slice, held_rank

    def _join(self, m, chosen):
        """Each NEWS packet to the slice that was claimed for it."""
        cfg, news = self._cfg, self.i_news
        m.submodules.targets = targets = RegisterQueue(cfg.slices, PACKETS)
        joins = [NewsJoin(cfg) for _ in range(cfg.slices)]
        target = targets.o.payload
        m.d.comb += [
            targets.i.valid.eq(self.claim.en),
            targets.i.payload.eq(chosen),
            targets.o.ready.eq(news.valid & news.ready & news.payload.last),
            news.ready.eq(select(target, [join.i_news.ready for join in joins])),
        ]
        for n, join in enumerate(joins):
            m.submodules[f"join{n}"] = join
            wiring.connect(m, wiring.flipped(self.i_packet[n]), join.i_packet)
            wiring.connect(m, join.o_packet, wiring.flipped(self.o_packet[n]))
            m.d.comb += [
                join.hold.eq(self.hold[n]),
                join.i_news.valid.eq(news.valid & target[n]),
                join.i_news.payload.eq(news.payload),
            ]
