# SPDX-License-Identifier: Apache-2.0
"""Who gets the places: a visit per source, in turn."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import GRANT
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import QUIET, RESERVE

__all__ = ["Grants"]

BATCH = 16  # grants that are told at once at the latest


class Step(enum.Enum):
    """Of a visit, a cycle each."""

    READ = 0  # after reset only
    BOOK = 1  # what the books say
    CLAIM = 2  # the source says that it gave grants back: its limit falls at once
    SETTLE = 3  # a packet that was judged by the old limit is counted now
    BACK = 4  # they were not used: they are free
    NEED = 5  # what came of it in the last period
    SHARE = 6  # places that it should have
    GIVE = 7  # it gets them
    TELL = 8  # it is told, and the next one's books are read


class Turn(NamedTuple):
    """The clock of the policy and what it knows of a period."""

    measures: Signal  #: the first round of a period
    asks: Signal  #: the second
    level: Signal  #: nobody should have more
    unmet: Signal  #: somebody cannot have what it needs
    short: Signal  #: so it was in the period before, or is
    denied: Signal  #: somebody cannot have what it should
    hungry: Signal  #: somebody who sends cannot have its first share


class GrantsObserve(NamedTuple):
    """What a proof may see of :class:`Grants`."""

    book: Ram  #: by source
    counted: Ram  #: by source, its places that became free
    seen: Ram  #: the same, as the visits read it
    step: Signal
    who: Signal  #: the source that is visited
    now: Signal  #: what is known of it, as far as this visit has come
    free: Signal  #: places that are nobody's
    level: Signal  #: nobody should have more
    wanted: Signal  #: the source should have ``want`` more
    want: Signal


class Grants(wiring.Component):
    """Grants places to sources, by need.

    Contract: the sum of what all sources have, held or granted, and of what is free is the number
    of places, always. Every source has its two reserved places at the end of each visit. What a
    source gives back it cannot use any more.

    Policy: a source *needs* four times what came from it in the last period and its reserve, and
    its first share at least if anything came in the last three. While everybody can have what it
    needs, everybody has its first share at least, used or not. Where a need cannot be met, the pool
    is *short* until a period has passed in which all were: a source then should have no more than
    it needs. Nobody should have more than the *level*: it falls to the first share when a source
    that sends could not have that, and rises by a half, to ``most``, after a period in which all
    needs were met. A source that has more than it should is granted nothing while its places become
    free, and if others lack theirs it is asked to give back of what it does not use. Before
    anything has come nothing is granted, and nobody told: the own rank may not be set yet.

    Latency: a visit takes 5 cycles, 8 if the source gave something back. A source is told when an
    eighth of what it has, or 16, is new to it, and anything in the first round of a period; a round
    later if ``o_grant`` waits.

    Parameters: ``cfg``, ``types``; ``period``, cycles, about a round trip and more than a round of
    visits. Ports: ``rank`` In, own number, for ever; ``freed`` In {en, src}, a packet has left;
    ``returned`` In {en, what}; ``look`` Out, ``arrived`` In, packets of a source, a cycle later;
    ``limit_write`` Out {en, rank, total}; ``o_grant`` Out stream(grant); ``impossible`` Out, strobe
    per visit, a source says it gave back more than it has; ``clearing`` In.
    """

    observe: GrantsObserve  # once elaborated

    def __init__(self, cfg, types, period):
        struct, rank = data.StructLayout, cfg.rank_width
        shared = types_of(cfg)
        super().__init__(
            {
                "rank": In(rank),
                "freed": In(struct({"en": 1, "src": rank})),
                "returned": In(shared.messages["returned"]),
                "look": Out(rank),
                "arrived": In(GRANT),
                "limit_write": Out(struct({"en": 1, "rank": rank, "total": GRANT})),
                "o_grant": Out(stream.Signature(shared.grant)),
                "impossible": Out(1),
                "clearing": In(1),
            }
        )
        self._cfg, self._types, self._period = cfg, types, period
        more = ("arrived", "own", "gained", "claimed")
        book = {name: field.shape for name, field in types.book}
        self._visit = struct({**book, **dict.fromkeys(more, GRANT)})

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        m.submodules.book = book = Ram(t.book, cfg.ranks, clear=True)
        m.submodules.returned = returned = Ram(GRANT, cfg.ranks, clear=True)
        counted, freed = self._count_freed(m)
        step = Signal(Step)
        now = Signal(self._visit)
        who, after, second = (Signal(cfg.rank_width, name=n) for n in ("who", "after", "second"))
        free = Signal(range(t.places + 1), init=t.places - t.first * (cfg.ranks - 1))
        reads = Signal()

        def wrapped(n):
            return Mux(n == cfg.ranks - 1, 0, n + 1)

        m.d.comb += [
            second.eq(wrapped(who)),
            after.eq(
                Mux(
                    mutant("receive_pool.own_rank_visited", second == self.rank, 0),
                    wrapped(second),
                    second,
                )
            ),
            reads.eq((step == Step.TELL) | ((step == Step.READ) & ~self.clearing)),
            self.look.eq(Mux(reads, after, who)),
            returned.w_en.eq(self.returned.en),
            returned.w_addr.eq(self.returned.what.rank),
            returned.w_data.eq(self.returned.what.total),
            *(ram.r_en.eq(reads) for ram in (book, freed, returned)),
            *(ram.r_addr.eq(after) for ram in (book, freed, returned)),
            self.limit_write.rank.eq(who),
        ]
        with m.If(reads):
            m.d.sync += [who.eq(after), step.eq(Step.BOOK)]
        with m.If(step == Step.BOOK):
            old = book.r_data
            m.d.sync += [
                *(
                    now[name].eq(old[name])
                    for name in ("granted", "told", "back", "then", "recent", "quiet")
                ),
                now.freed.eq(freed.r_data),
                now.gained.eq(freed.r_data - old.freed),
                now.claimed.eq(returned.r_data - old.back),
                now.own.eq(t.first + old.granted - freed.r_data - old.back),
                now.arrived.eq(self.arrived),
                step.eq(Mux(returned.r_data == old.back, Step.NEED, Step.CLAIM)),
            ]
        self._take_back(m, step, now)
        turn = self._turn(m, reads, after <= who)
        wanted, want, beyond = self._give(m, step, now, free, turn)
        self.observe = GrantsObserve(
            book, counted, freed, step, who, now, free, turn.level, wanted, want
        )
        self._tell(m, step, now, beyond, turn, book, who)
        return m

    def _count_freed(self, m):
        """Places of each source that became free. Returns the memory that counts and its double,
        which the visits read."""
        count = Ram(GRANT, self._cfg.ranks, clear=True)
        seen = Ram(GRANT, self._cfg.ranks, clear=True)
        m.submodules.freed, m.submodules.freed_seen = count, seen
        before = Signal.like(self.freed)
        m.d.sync += before.eq(self.freed)
        m.d.comb += [
            count.r_en.eq(self.freed.en),
            count.r_addr.eq(self.freed.src),
            *(ram.w_en.eq(before.en) for ram in (count, seen)),
            *(ram.w_addr.eq(before.src) for ram in (count, seen)),
            *(ram.w_data.eq(count.r_data + 1) for ram in (count, seen)),
        ]
        return count, seen

    def _take_back(self, m, step, now):
        """What the source gave back is free once it is sure that it was not used."""
        before = Signal(GRANT)
        lower = Signal(GRANT)
        room = Signal(GRANT)
        m.d.comb += [
            before.eq(now.granted - now.back),
            lower.eq(before - now.claimed),
            room.eq(lower + self._types.first - self.arrived),
        ]
        with m.If(step == Step.CLAIM):
            with m.If(mutant("receive_pool.any_claim_is_tried", now.claimed > now.own, 0)):
                m.d.sync += step.eq(Step.NEED)
                m.d.comb += self.impossible.eq(1)
            with m.Else():
                m.d.sync += step.eq(Step.SETTLE)
                m.d.comb += [
                    self.limit_write.en.eq(1),
                    self.limit_write.total.eq(lower),
                ]
        with m.If(step == Step.SETTLE):
            m.d.sync += step.eq(Step.BACK)
        with m.If(step == Step.BACK):
            m.d.sync += [step.eq(Step.NEED), now.arrived.eq(self.arrived)]
            with m.If(mutant("receive_pool.used_grants_taken_back", room[-1], 0)):
                m.d.comb += [
                    self.impossible.eq(1),
                    self.limit_write.en.eq(1),
                    self.limit_write.total.eq(before),
                ]
            with m.Else():
                m.d.sync += [
                    now.back.eq(now.back + now.claimed),
                    now.own.eq(now.own - now.claimed),
                    now.gained.eq(now.gained + now.claimed),
                ]

    def _turn(self, m, reads, wraps):
        """The clock of the policy: rounds of visits, periods. Returns its state."""
        t = self._types
        clock = Signal(range(self._period), init=self._period - 1)
        due = Signal()
        names = ("measures", "asks", "unmet", "short", "denied", "hungry")
        level = Signal(range(t.most + 1), init=t.most)
        turn = Turn(level=level, **{name: Signal(name=name) for name in names})
        higher = Signal(range(2 * t.most))
        rise = mutant("receive_pool.level_rises_slowly", level >> 1, (level >> 2) << 1)
        m.d.comb += higher.eq(level + rise)
        m.d.sync += clock.eq(Mux(clock == 0, self._period - 1, clock - 1))
        with m.If(clock == 0):
            m.d.sync += due.eq(1)
        with m.If(reads & wraps):
            m.d.sync += [turn.measures.eq(due), turn.asks.eq(turn.measures)]
            with m.If(due):
                m.d.sync += [
                    due.eq(clock == 0),
                    turn.short.eq(turn.unmet),
                    Cat(turn.unmet, turn.denied, turn.hungry).eq(0),
                ]
                with m.If(mutant("receive_pool.hunger_not_noticed", turn.hungry, 0)):
                    m.d.sync += level.eq(t.first)
                with m.Elif(~turn.unmet):
                    m.d.sync += level.eq(Mux(higher > t.most, t.most, higher))
        return turn

    def _give(self, m, step, now, free, turn):
        """What the source should have, and what it gets of that."""
        t = self._types
        level, width = turn.level, len(turn.level) + 1
        need = Signal(width)
        fair = Signal(width)
        floor = Signal(width)
        wanted = Signal()
        want = Signal(width)
        lacks = Signal()
        lack = Signal(width)
        active = Signal()
        starved = Signal()
        short_of = Signal(width)
        beyond = Signal()
        give = Signal.like(free)
        much = now.recent >= mutant("receive_pool.idle_one_needs_most", max(1, t.most // 4), 0)
        few = 0
        if t.first > RESERVE:  # four times so few are not the first share
            few = active & (now.recent < -(-(t.first - RESERVE) // 4))
        many = Mux(much, t.most, (now.recent << 2) + RESERVE)
        m.d.comb += [
            active.eq(now.quiet != QUIET),
            need.eq(mutant("receive_pool.few_need_little", Mux(few, t.first, many), many)),
            fair.eq(mutant("receive_pool.level_ignored", Mux(need < level, need, level), need)),
            floor.eq(Mux(turn.short | (need > t.first), fair, t.first)),
            give.eq(Mux(~wanted, 0, Mux(want > free, free, want))),
        ]
        with m.If(step == Step.NEED):
            m.d.sync += [
                free.eq(mutant("receive_pool.freed_places_lost", free + now.gained, free)),
                step.eq(Step.SHARE),
            ]
            with m.If(turn.measures):
                m.d.sync += [
                    now.recent.eq(now.arrived - now.then),
                    now.then.eq(now.arrived),
                    now.quiet.eq(Mux(now.arrived == now.then, now.quiet + active, 0)),
                ]
        with m.If(step == Step.SHARE):
            m.d.sync += [
                wanted.eq(floor > now.own),
                want.eq(floor - now.own),
                lacks.eq(fair > now.own),
                lack.eq(fair - now.own),
                starved.eq(active & (t.first > now.own)),
                short_of.eq(t.first - now.own),
                beyond.eq(now.own > floor),
                step.eq(Step.GIVE),
            ]
        with m.If(step == Step.GIVE):
            m.d.sync += [
                free.eq(mutant("receive_pool.places_given_twice", free - give, free)),
                now.granted.eq(now.granted + give),
                now.own.eq(now.own + give),
                step.eq(Step.TELL),
            ]
            m.d.comb += [
                self.limit_write.en.eq(1),
                self.limit_write.total.eq(
                    now.granted + give - mutant("receive_pool.limit_ignores_returns", now.back, 0)
                ),
            ]
            with m.If(lacks & (lack > free)):
                m.d.sync += [
                    turn.short.eq(mutant("receive_pool.need_not_noticed", 1, 0)),
                    turn.unmet.eq(1),
                ]
            with m.If(wanted & (want > free)):
                m.d.sync += turn.denied.eq(mutant("receive_pool.idle_ones_forgotten", 1, 0))
            with m.If(starved & (short_of > free)):
                m.d.sync += turn.hungry.eq(1)
        return wanted, want, beyond

    def _tell(self, m, step, now, beyond, turn, book, who):
        """The source is told if it is worth a message; the books are written."""
        out = self.o_grant
        news = Signal(GRANT)
        back = Signal()
        tells = Signal()
        m.d.comb += [
            news.eq(now.granted - now.told),
            back.eq(
                turn.asks
                & beyond
                & mutant("receive_pool.never_asks_back", turn.short | turn.denied, 0)
            ),
            tells.eq(
                (step == Step.TELL)
                & (out.ready | ~out.valid)
                & (back | (news.any() & ((news >= now.own >> 3) | (news >= BATCH) | turn.measures)))
            ),
            book.w_en.eq(step == Step.TELL),
            book.w_addr.eq(who),
            *(book.w_data[name].eq(now[name]) for name in ("granted", "freed", "back")),
            *(book.w_data[name].eq(now[name]) for name in ("then", "recent", "quiet")),
            book.w_data.told.eq(Mux(tells, now.granted, now.told)),
        ]
        with m.If(tells):
            m.d.sync += [
                out.valid.eq(1),
                out.p.rank.eq(who),
                out.p.total.eq(now.granted),
                out.p.back.eq(back),
            ]
        with m.Elif(out.ready):
            m.d.sync += out.valid.eq(0)
