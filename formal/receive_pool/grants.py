# SPDX-License-Identifier: Apache-2.0
"""Promises of the receive pool's grants (docs/blocks/receive_pool.md)."""

from amaranth import Array, Mux, Signal

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec
from hub_rtl.contract.fields import GRANT
from hub_rtl.parts.onehot import tree_sum
from hub_rtl.receive_pool.grants import Grants, Step
from hub_rtl.receive_pool.records import RESERVE, pool_types_of

__all__ = ["PlacesForGrants", "VisitsInTime"]

SLICE, PERIOD, OWN = 64, 8, 0


class PlacesForGrants(Spec):
    """What all sources hold or may still send never exceeds the places, whatever they say that they
    gave back; what is granted, held and free is the number of places, so none is lost; each source
    has its reserve after every visit. The admission of packets is modelled: it lets a source in as
    long as the limit of the cycle before is not reached."""

    def __init__(self, cfg, places):
        super().__init__(cfg)
        self._types = pool_types_of(cfg, SLICE, places)

    def build(self, m):
        cfg, t = self._cfg, self._types
        m.submodules.dut = dut = Grants(cfg, t, PERIOD)
        inner = observe(dut)
        self.free_inputs(dut, but=("rank", "arrived", "clearing"))
        m.d.comb += dut.rank.eq(OWN)
        cleared = Signal(range(cfg.ranks + 1))
        with m.If(cleared != cfg.ranks):
            m.d.sync += cleared.eq(cleared + 1)
        m.d.comb += dut.clearing.eq(cleared != cfg.ranks)

        sources = range(1, cfg.ranks)
        limits, arrived, freed = (
            [Signal(GRANT, name=f"{name}_{s}") for s in range(cfg.ranks)]
            for name in ("limit", "arrived", "freed")
        )
        asks = Signal(range(cfg.ranks))
        asked = Signal(range(cfg.ranks))
        room = Signal(GRANT)
        wishes = Signal()
        self.free(asks, wishes)
        comes = Signal()
        m.d.comb += comes.eq(wishes & room.any() & ~room[-1] & (asked != OWN) & ~dut.clearing)
        m.d.sync += asked.eq(asks)
        for s in range(cfg.ranks):
            now_limit = Signal(GRANT)
            now_arrived = Signal(GRANT)
            write, event = dut.limit_write, dut.freed
            m.d.comb += [
                now_limit.eq(Mux(write.en & (write.rank == s), write.total, limits[s])),
                now_arrived.eq(arrived[s] + (comes & (asked == s))),
            ]
            m.d.sync += [
                limits[s].eq(now_limit),
                arrived[s].eq(now_arrived),
                freed[s].eq(freed[s] + (event.en & (event.src == s))),
            ]
            with m.If(asks == s):
                m.d.sync += room.eq(t.first + now_limit - now_arrived)
            with m.If(dut.look == s):
                m.d.sync += dut.arrived.eq(now_arrived)
        held = [arrived[s] - freed[s] for s in range(cfg.ranks)]
        self.suppose("sources exist", (asks < cfg.ranks) & (dut.freed.src < cfg.ranks))
        self.suppose("returned by a source", dut.returned.what.rank < cfg.ranks)
        self.suppose(
            "only what is held becomes free",
            Array(held)[dut.freed.src] != 0,
            when=dut.freed.en,
        )
        self.suppose(
            "nothing moves while tables are cleared",
            ~dut.freed.en & ~dut.returned.en,
            when=dut.clearing,
        )
        may, use = [], []
        for s in sources:
            limit = Signal(GRANT, name=f"room_{s}")
            in_use = Signal(GRANT, name=f"in_use_{s}")
            m.d.comb += [
                limit.eq(t.first + limits[s] - arrived[s]),
                in_use.eq(held[s] + Mux(limit[-1], 0, limit)),
            ]
            may.append(limit)
            use.append(in_use)
        self.always("a place for each that may come", tree_sum(use) <= t.places)
        for ram in ("book", "seen", "counted"):
            walk = observe(getattr(inner, ram)).walk
            self.lemma(f"{ram} is cleared", walk == cleared)
        self._lemmas(m, inner, limits, arrived, freed, asked, room, dut)

    def _lemmas(self, m, inner, limits, arrived, freed, asked, room, dut):
        t, cfg = self._types, self._cfg
        step, who, now, free = inner.step, inner.who, inner.now, inner.free
        loaded = (step != Step.READ) & (step != Step.BOOK)
        settling = (step == Step.SETTLE) | (step == Step.BACK)
        early = settling | (step == Step.CLAIM) | (step == Step.NEED)
        pending, running = self.past(dut.freed, "pending"), ~dut.clearing
        pending = dut.freed.shape()(pending)
        looked = self.past(dut.look, "looked")
        self.lemma(
            "somebody else is visited", (who != OWN) & (who < cfg.ranks), when=step != Step.READ
        )
        self.lemma("steps", (step <= Step.TELL) & (running | (step == Step.READ)))
        self.lemma("free at first", free == t.places - t.first * (cfg.ranks - 1), dut.clearing)
        self.lemma("numbers of sources", (asked < cfg.ranks) & (looked < cfg.ranks))
        self.lemma(
            "room",
            room == (t.first + Array(limits)[asked] - Array(arrived)[asked])[:GRANT],
            self.started,
        )
        self.lemma("looked", dut.arrived == Array(arrived)[looked], self.started)
        self.lemma("level", (inner.level >= t.first) & (inner.level <= t.most))
        self.lemma("gained", now.gained <= t.places, early)
        self.lemma("claim", now.claimed <= now.own, settling)
        self.lemma(
            "reserve at hand", now.own + free >= RESERVE, (step == Step.SHARE) | (step == Step.GIVE)
        )
        self.lemma(
            "reserve is wanted",
            Mux(inner.wanted, now.own + inner.want, now.own) >= RESERVE,
            step == Step.GIVE,
        )
        self.lemma("reserve is given", now.own >= RESERVE, step == Step.TELL)
        owned = []
        for s in range(1, cfg.ranks):
            word, known = known_word(self, inner.book, s, f"book_{s}")
            seen, seen_known = known_word(self, inner.seen, s, f"seen_{s}")
            count, _ = known_word(self, inner.counted, s, f"count_{s}")
            book = t.book(word)
            here = loaded & (who == s)
            of_book, own, lag, committed, left = (
                Signal(GRANT, name=f"{name}_{s}")
                for name in ("of_book", "own", "lag", "committed", "left")
            )
            m.d.comb += [
                of_book.eq(t.first + book.granted - book.freed - book.back),
                own.eq(Mux(here, now.own, of_book)),
                committed.eq(Mux(here, now.granted - now.back, book.granted - book.back)),
                lag.eq(freed[s] - Mux(here, now.freed, book.freed)),
                left.eq(t.first + committed - arrived[s]),
            ]
            owned.append(own)
            self.lemma(f"books {s} empty", (word == 0) & (seen == 0), dut.clearing & known)
            self.lemma(
                f"nothing yet {s}",
                (freed[s] == 0) & (arrived[s] == 0) & (limits[s] == 0),
                dut.clearing,
            )
            self.lemma(
                f"counted {s}",
                (count == seen) & (freed[s] == (seen + (pending.en & (pending.src == s)))[:GRANT]),
                running,
            )
            self.lemma(f"own {s}", own == (t.first + committed - freed[s] + lag)[:GRANT], running)
            self.lemma(
                f"limit {s}",
                limits[s] == (committed - Mux(here & settling, now.claimed, 0))[:GRANT],
                running,
            )
            self.lemma(f"held {s}", (arrived[s] - freed[s])[:GRANT] <= t.places, running)
            self.lemma(f"lag {s}", lag <= t.places, running)
            self.lemma(f"left {s}", left <= t.places, running)
            self.always(f"reserve of {s} after each visit", of_book >= RESERVE, when=running)
            self.lemma(f"had {s}", now.own + now.gained == of_book, here & early)
            self.lemma(f"same book {s}", now.granted == book.granted, here & (step != Step.TELL))
        gained = Mux(early, now.gained, 0)
        self.always(
            "all places are held, granted or free",
            free + tree_sum(owned) + gained == t.places,
            when=running,
        )


class VisitsInTime(Spec):
    """Each source is visited in time, whatever it says: every 8 cycles for each of them, so its
    reserve is granted again that soon after its place became free. Messages do not hold visits
    up. Limits are of sources that exist."""

    def __init__(self, cfg, places):
        super().__init__(cfg)
        self._types = pool_types_of(cfg, SLICE, places)

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = Grants(cfg, self._types, PERIOD)
        inner = observe(dut)
        self.free_inputs(dut, but=("rank", "clearing"))
        m.d.comb += [dut.rank.eq(OWN), dut.clearing.eq(0)]
        source, most = self.constant(range(1, cfg.ranks), "source"), 8 * (cfg.ranks - 1)
        since = Signal(range(most + 2))
        given = (inner.step == Step.GIVE) & (inner.who == source)
        with m.If(given):
            m.d.sync += since.eq(0)
        with m.Elif(since <= most):
            m.d.sync += since.eq(since + 1)
        self.suppose("source exists", (source != OWN) & (source < cfg.ranks))
        self.always("visited in time", since <= most)
        self.always("limits of sources", dut.limit_write.rank < cfg.ranks, when=dut.limit_write.en)
