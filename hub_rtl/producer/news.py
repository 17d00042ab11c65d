# SPDX-License-Identifier: Apache-2.0
"""NewsPacker, NewsLanes: what a producer says of its regions, packed into NEWS packets and put on a
lane that has a credit for them."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import BYTE, NEWS_COUNT, WORD
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.contract.records import record_of, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.register_queue import RegisterQueue

from .records import producer_types_of

__all__ = ["NewsJoin", "NewsLanes", "NewsPacker"]

PACKETS = 2  # begun and not sent


class NewsPackerObserve(NamedTuple):
    """What a proof may see of a :class:`NewsPacker`."""

    words: RamQueue  #: payload of the packets inside
    heads: RegisterQueue  #: {rank, count, named} of the packets that have ended
    part: Signal  #: number of the beat that leaves
    inside: Signal  #: packets begun and not sent
    count: Signal  #: entries of the packet that is packed
    held: Signal  #: those of its last word, if that is not complete


class NewsPacker(wiring.Component):
    """Packs entries into NEWS packets, as many to a beat as it has room for.

    Contract: the entries between a ``begin`` and the ``end`` after it leave as one record to the
    ``rank`` of that end, in order, with ``news``, rank and mask filled and the rest of the header
    0. The user begins only while ``room``, and puts 1 to 16 entries before an end; ``end`` comes
    alone.

    Latency two cycles from ``end`` to the first beat; one beat per cycle and no bubble inside a
    packet. Nothing waits but for ``o_news``. Two packets fit, the one that leaves included.

    Parameters: ``cfg``. Ports: ``begin`` In; ``put`` In, record ``news_put``; ``room`` Out;
    ``o_news`` Out stream(record). Source: docs/formats.md, NEWS.
    """

    observe: NewsPackerObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._record = cfg, record_of(cfg, cfg.slice_bytes)
        super().__init__(
            {
                "begin": In(1),
                "put": In(producer_types_of(cfg).news_put),
                "room": Out(1, init=1),
                "o_news": Out(stream.Signature(self._record)),
            }
        )
        # ``named``: a bit for each entry, as the mask has it; it drives every slice.
        self._head = data.StructLayout(
            {"rank": cfg.rank_width, "count": NEWS_COUNT, "named": NEWS_ENTRIES}
        )

    def elaborate(self, platform):
        m = Module()
        per_beat = self._cfg.slice_bytes * BYTE // WORD
        m.submodules.words = words = RamQueue(
            self._cfg.slice_bytes * BYTE, PACKETS * NEWS_ENTRIES // per_beat
        )
        m.submodules.heads = heads = RegisterQueue(self._head, PACKETS)
        put = self.put
        count = Signal(NEWS_COUNT)
        at = count[: ceil_log2(per_beat)]
        # The entries of a word that is not complete; those to come are 0.
        held = Signal(words.i.payload.shape())
        word = Signal.like(words.o.payload)
        complete = Signal()
        m.d.comb += [
            word.eq(held),
            complete.eq(
                Mux(
                    put.en,
                    at.all(),
                    mutant("producer.odd_entry_missed", put.end & at.any(), 0),
                )
            ),
            words.i.valid.eq(complete),
            words.i.payload.eq(word),
            heads.i.valid.eq(put.end),
            heads.i.payload.rank.eq(put.rank),
            heads.i.payload.count.eq(count),
            heads.i.payload.named.eq(
                mutant(
                    "producer.last_entry_not_named",
                    Cat(count > n for n in range(NEWS_ENTRIES)),
                    Cat(count > n + 1 for n in range(NEWS_ENTRIES)),
                )
            ),
        ]
        m.d.sync += held.eq(Mux(complete, 0, word))
        with m.If(put.en):
            m.d.comb += word.word_select(at, WORD).eq(put.entry)
            m.d.sync += count.eq(count + 1)
        with m.If(put.end):
            m.d.sync += count.eq(0)
        part = Signal(NEWS_COUNT)
        inside = Signal(range(PACKETS + 1))
        self.observe = NewsPackerObserve(words, heads, part, inside, count, held)
        sent = self._send(m, heads.o, words.o, part, per_beat)
        m.d.sync += [
            inside.eq(inside + self.begin - sent),
            self.room.eq(inside + self.begin < PACKETS),
        ]
        return m

    def _send(self, m, head, words, part, per_beat):
        """A beat for each word; returns when the last one leaves."""
        out, count, named = self.o_news, head.payload.count, head.payload.named
        sent = Signal()
        entry_bytes = WORD // BYTE
        m.d.comb += [
            out.valid.eq(head.valid),
            out.p.header.news.eq(1),
            out.p.header.rank.eq(head.payload.rank),
            out.p.mask.eq(Cat(entry.replicate(entry_bytes) for entry in named)),
            out.p.part.eq(part),
            out.p.last.eq(part == (count - 1) >> ceil_log2(per_beat)),
            out.p.data.eq(words.payload),
            sent.eq(out.valid & out.ready & out.p.last),
            words.ready.eq(out.valid & out.ready),
            head.ready.eq(sent),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += part.eq(Mux(sent, 0, part + 1))
        return sent


class NewsJoin(wiring.Component):
    """Puts NEWS packets between the packets of one slice, before a packet that has not begun.

    Contract: packets of both leave whole and in order, one beat per cycle. A NEWS packet goes from
    the cycle after the one in which it was offered and no packet was left begun; until its last
    beat no other goes. Whose turn it is is in a register, all else is combinational. With ``hold``
    no packet of ``i_record`` begins; NEWS go. ``i_news`` comes without gaps in a packet.

    Parameters: ``cfg``. Ports: ``i_record``, ``i_news`` In, ``o_record`` Out, stream(record);
    ``hold`` In.
    """

    def __init__(self, cfg):
        record = stream.Signature(record_of(cfg, cfg.slice_bytes))
        super().__init__(
            {"i_record": In(record), "i_news": In(record), "o_record": Out(record), "hold": In(1)}
        )

    def elaborate(self, platform):
        m = Module()
        packet, news, out = self.i_record, self.i_news, self.o_record
        begun = Signal()
        go_news = Signal()
        offered = Signal()
        m.d.comb += [
            offered.eq(packet.valid & (begun | ~self.hold)),
            out.valid.eq(go_news | offered),
            out.payload.eq(Mux(go_news, news.payload, packet.payload)),
            news.ready.eq(go_news & out.ready),
            packet.ready.eq(~go_news & offered & out.ready),
        ]
        # Offered is begun; a packet has begun until its last beat is taken.
        stays = Signal()
        m.d.comb += stays.eq(Mux(go_news | ~offered, begun, ~(out.ready & packet.p.last)))
        m.d.sync += begun.eq(stays)
        with m.If(go_news):
            m.d.sync += go_news.eq(~(out.ready & news.p.last))
        with m.Else():
            m.d.sync += go_news.eq(
                mutant("producer.news_cuts_packet", news.valid & ~stays, news.valid)
            )
        return m


class NewsLanes(wiring.Component):
    """Finds a data credit for each peer's news, and puts the packets between those of the packet
    managers.

    Contract: while a rank's bit in ``wanted`` is set, its next credit on one lane is kept from that
    lane's packet manager, for NEWS; ``may_send`` says that it is there. ``claim`` takes it: then
    the next packet at ``i_news`` that was not claimed for yet must be for that rank, and goes on
    that lane. The lanes are used in turn, by each peer for itself; the own rank has the loop
    lanes.

    Latency: ``may_send`` 4 cycles after ``wanted``, if the credit is there; it stays until the
    claim or the end of ``wanted``. ``i_news`` to ``o_record`` one cycle, ``dest_ready`` to
    ``pool_ready`` none. A packet manager's takes go first, the claim's follows in the first cycle
    without one; no other claim may come before.

    Order: of the packets of a packet manager that of its slice; NEWS packets as claimed. Stalls:
    ``i_news`` waits for the packet that the slice has begun, and for its wire.

    Input is trusted: a rank is claimed while ``may_send`` and ``wanted`` were set in the cycle
    before, claims come at least 5 cycles apart, at most two packets are claimed and not sent;
    ``pool_take`` comes in the cycle in which ``pool_ready`` was seen set or in the next one, and
    not in every cycle for ever; ``dest_ready`` shows a take in the next cycle; ``rank`` is set a
    cycle before anything is wanted; a packet of ``i_news`` comes without gaps.

    Parameters: ``cfg``. Ports: ``rank`` In; ``wanted`` In, ``may_send`` Out ``ranks``; ``claim`` In
    {en, rank}; ``i_news`` In stream(record); per slice ``i_record`` In, ``o_record`` Out
    stream(record), ``dest_ready`` In, ``pool_ready`` Out ``ranks``, ``pool_take`` In, ``take`` Out
    {en, rank}; ``hold`` In ``slices``: no packet of the packet manager begins.
    """

    SETTLE = 2  # cycles until ``dest_ready`` shows all takes of a packet manager that saw a credit

    def __init__(self, cfg):
        t = types_of(cfg)
        record = stream.Signature(record_of(cfg, cfg.slice_bytes))
        super().__init__(
            {
                "rank": In(cfg.rank_width),
                "wanted": In(cfg.ranks),
                "may_send": Out(cfg.ranks),
                "claim": In(t.rank_strobe),
                "i_news": In(record),
                "i_record": In(record).array(cfg.slices),
                "o_record": Out(record).array(cfg.slices),
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
        own = Signal(cfg.ranks)
        claimed = Signal(cfg.ranks)
        m.d.sync += own.eq(1 << self.rank)
        m.d.comb += claimed.eq(self.claim.en << self.claim.rank)
        turns = self._turns(m, own, claimed)
        chosen = Signal(cfg.slices)  # the slice of the rank that is claimed
        m.d.comb += chosen.eq(Cat((turn & claimed).any() for turn in turns))
        due_slice, due_rank = self._take(m, chosen, claimed)
        wanted = self._settle(m, turns, claimed, due_slice.any())
        for n, turn in enumerate(turns):
            kept = mutant("producer.news_credit_not_kept", (wanted & turn), 0)
            due = mutant("producer.claimed_credit_let_go", Mux(due_slice[n], due_rank, 0), 0)
            m.d.comb += self.pool_ready[n].eq(self.dest_ready[n] & ~(kept | due))
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

    def _settle(self, m, turns, claimed, due):
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
        m.d.sync += self.may_send.eq(Mux(due | self.claim.en, 0, kept[-1] & credit & self.wanted))
        return kept[0]

    def _take(self, m, chosen, claimed):
        """The credit of a claim is taken between those of the packet manager. Returns slice and
        rank, one-hot, for which one is still to be taken: no packet manager may take it."""
        cfg = self._cfg
        due_slice = Signal(cfg.slices)
        due_rank = Signal(cfg.ranks)
        rank = Signal(cfg.rank_width)
        pools = Cat(pool.en for pool in self.pool_take)
        for take, pool, due in zip(self.take, self.pool_take, due_slice, strict=True):
            m.d.comb += [
                take.en.eq(pool.en | mutant("producer.news_takes_no_credit", due, 0)),
                take.rank.eq(Mux(pool.en, pool.rank, rank)),
            ]
        m.d.sync += due_slice.eq(due_slice & pools)
        with m.If(self.claim.en):
            m.d.sync += [
                due_slice.eq(chosen),
                due_rank.eq(claimed),
                rank.eq(self.claim.rank),
            ]
        return due_slice, due_rank

    def _join(self, m, chosen):
        """Each NEWS packet to the slice that was claimed for it."""
        cfg, news = self._cfg, self.i_news
        m.submodules.targets = targets = RegisterQueue(cfg.slices, PACKETS)
        joins = [NewsJoin(cfg) for _ in range(cfg.slices)]
        target = targets.o.payload
        m.d.comb += [
            targets.i.valid.eq(self.claim.en),
            targets.i.payload.eq(chosen),
            targets.o.ready.eq(news.valid & news.ready & news.p.last),
            news.ready.eq(select(target, [join.i_news.ready for join in joins])),
        ]
        for n, join in enumerate(joins):
            m.submodules[f"join{n}"] = join
            wiring.connect(m, wiring.flipped(self.i_record[n]), join.i_record)
            wiring.connect(m, join.o_record, wiring.flipped(self.o_record[n]))
            m.d.comb += [
                join.hold.eq(self.hold[n]),
                join.i_news.valid.eq(news.valid & target[n]),
                join.i_news.payload.eq(news.payload),
            ]
