# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's scanner (``hub_rtl/packet_manager/pool_timer.py``): ages,
batches of old entries, sinking, the oldest."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.spec import Spec
from hub_rtl.packet_manager.pool_timer import AGE_WIDTH, PoolTimer

from .parts import look_into, peek

__all__ = ["AgesAreTrue", "OldComeInBatches", "OldestIsShown", "SinksDeadOnly"]

LONGEST = (1 << AGE_WIDTH) - 1


class TimerSpec(Spec):
    """The scanner with a pool around it: entries come when free, stay until they are sunk or
    released, and keep their identity; ``fresh`` and ``old`` are kept as the pool does. Ends of
    packets (``busy``) are at least one cycle apart."""

    def build(self, m):
        cfg, depth = self._cfg, self._cfg.pool_depth
        m.submodules.dut = self.dut = dut = PoolTimer(cfg)
        self.inner = inner = look_into(dut)
        self.free_inputs(dut, but=("valid", "locked", "fresh", "old", "scanned", "of_dead"))
        t = dut._types
        new, lock, frees = Signal(depth), Signal(depth), Signal(depth)
        self.free(new, lock, frees)
        visited = Signal(depth)
        m.d.comb += visited.eq(Mux(dut.visit.en, 1 << dut.visit.index, 0) & dut.valid)
        sunk = Signal(depth)
        m.d.comb += sunk.eq(Mux(dut.sink.en, 1 << dut.sink.index, 0))
        came = new & ~dut.valid
        valid, locked, fresh, old = (
            Signal(depth, name=f"pool_{name}") for name in ("valid", "locked", "fresh", "old")
        )
        m.d.comb += [
            dut.valid.eq(valid),
            dut.locked.eq(locked),
            dut.fresh.eq(fresh),
            dut.old.eq(old),
        ]
        gone = (frees & locked) | sunk
        m.d.sync += [
            valid.eq((valid | came) & ~gone),
            locked.eq((locked | (lock & valid)) & ~gone & ~came),
            fresh.eq((fresh & ~visited) | came),
            old.eq((old | (visited & dut.visit.old.replicate(depth))) & ~came),
        ]
        self.ranks = [Signal(range(cfg.ranks), name=f"rank_{n}") for n in range(depth)]
        infos = [Signal(t.info, name=f"info_{n}") for n in range(depth)]
        arrives = Signal(t.info)
        self.free(arrives)
        self.suppose("ranks exist", arrives.rank < cfg.ranks, when=came.any())
        shown = Signal(t.info)
        for n, info in enumerate(infos):
            with m.If(came[n]):
                m.d.sync += info.eq(arrives)
            m.d.comb += self.ranks[n].eq(info.rank)
        with m.If(dut.scan.en):  # a memory that shows what is written in the same cycle
            m.d.sync += shown.eq(
                Mux(came.bit_select(dut.scan.index, 1), arrives, Array(infos)[dut.scan.index])
            )
        m.d.comb += dut.scanned.eq(shown)
        self.identity = lambda index: Array([info.as_value() for info in infos])[index]
        self.infos, self.came, self.gone = infos, came, gone
        self.lock = lock & valid & ~locked
        peer_dead, dead = Signal(cfg.ranks), Signal(depth)
        self.free(peer_dead)
        m.d.comb += [
            dead.eq(Cat((peer_dead >> rank)[0] for rank in self.ranks)),
            dut.of_dead.eq(dead),
        ]
        self.dead = dead
        self.suppose("dead entries are not locked", (self.lock & dead) == 0)
        self.suppose("ends of packets are apart", ~self.past(dut.busy, "was_busy"), when=dut.busy)
        self.suppose(
            "dead peers stay dead",
            (self.past(peer_dead, "were_dead") & ~peer_dead) == 0,
            when=self.started,
        )
        # Helpers: what is looked at.
        after = (inner.index + 1)[: len(inner.index)]
        self.lemma(
            "one after the other",
            (inner.ahead == after) | (~self.started & ~valid.any() & (inner.ahead == inner.index)),
        )
        there = valid.bit_select(inner.index, 1)
        self.lemma("one entry at hand", inner.here == 1 << inner.index)
        self.lemma(
            "shown is what is visited", shown.as_value() == self.identity(inner.index), when=there
        )
        self.lemma("existing ranks", Array(self.ranks)[inner.index] < cfg.ranks, when=there)
        self.specify(m, dut)


class SinksDeadOnly(TimerSpec):
    """An entry is sunk only if it is there, not locked, of a dead peer, and no packet ends in this
    cycle; its rank is told. One of a dead peer that is not locked is sunk within two sweeps, also
    when each visit meets the end of a packet."""

    def specify(self, m, dut):
        depth, inner, sink = self._cfg.pool_depth, self.inner, dut.sink
        self.always(
            "sunk entry is there and not locked",
            (dut.valid & ~dut.locked).bit_select(sink.index, 1),
            when=sink.en,
        )
        self.always("rank told", sink.rank == Array(self.ranks)[sink.index], when=sink.en)
        self.always("peer is dead", self.dead.bit_select(sink.index, 1), when=sink.en)
        self.always("not as a packet ends", ~dut.busy, when=sink.en)
        self.always(
            "sunk one way or the other",
            dut.sinks == Mux(sink.en, 1 << sink.index, 0),
            when=~dut.busy,
        )
        entry = self.constant(range(depth), "entry")
        waits = (dut.valid & ~dut.locked & self.dead).bit_select(entry, 1)
        waited = Signal(range(4 * depth))
        m.d.sync += waited.eq(Mux(waits & ~(sink.en & (sink.index == entry)), waited + 1, 0))
        self.always("sunk within two sweeps", waited < 2 * depth)
        # Helper: each visit before its own takes at most two cycles.
        ahead, held = Signal(range(depth)), Signal()
        m.d.comb += [
            ahead.eq(entry - inner.index),
            held.eq(self.past(~dut.scan.en, "stood")),
        ]
        self.lemma("its visit comes nearer", waited + 2 * ahead <= 2 * depth - 2 + held, when=waits)


class AgesAreTrue(TimerSpec):
    """An entry is called expired, or old, at a visit only when it has been there for
    ``merge_timeout``, or ``age_limit``, cycles (of the cycle before), and it has been called
    expired when it has been there for the time-out and two sweeps more. A sweep is ``pool_depth``
    cycles; for the latter, cycles in which a sink waits for the end of a packet are not counted."""

    def specify(self, m, dut):
        depth, inner = self._cfg.pool_depth, self.inner
        entry = self.constant(range(depth), "entry")
        there, fresh = dut.valid.bit_select(entry, 1), dut.fresh.bit_select(entry, 1)
        here = there & (dut.visit.index == entry)
        visited = here & dut.visit.en
        # Cycles since it came, without and with the pauses, and its age at the last visit, as the
        # memory holds it.
        age, full_age, told = Signal(20), Signal(20), Signal(name="told")
        comes = self.came.bit_select(entry, 1)
        most = (1 << 20) - 1
        m.d.sync += [
            age.eq(Mux(comes, 0, Mux(age != most, age + dut.scan.en, age))),
            full_age.eq(Mux(comes, 0, Mux(full_age != most, full_age + 1, full_age))),
        ]
        m.d.sync += told.eq(~comes & (told | (visited & dut.visit.expired)))
        for name, happens, limit in (
            ("expired", dut.visit.expired, dut.policy.merge_timeout),
            ("old", dut.visit.old, dut.policy.age_limit),
        ):
            self.always(
                f"{name} not early",
                full_age >= self.past(limit, f"limit_{name}"),
                when=visited & happens,
            )
        self.suppose(
            "timeout stands still",
            dut.policy.merge_timeout == self.past(dut.policy.merge_timeout),
            when=self.started,
        )
        self.always(
            "expired not late", told, when=there & (age >= dut.policy.merge_timeout + 2 * depth)
        )
        ages = inner.ages  # without bypass
        self.always(
            "no age is read as it is written",
            ~(ages.r_en & ages.w_en & (ages.r_addr == ages.w_addr)),
        )
        # Helpers: the stored age against the true one.
        stored, first, since = (
            peek(m, inner.ages, entry),
            Signal(range(depth + 1)),
            Signal(range(depth + 1)),
        )
        m.d.comb += since.eq((inner.index - entry - 1)[: len(inner.index)] + 1)
        with m.If(visited & fresh):
            m.d.sync += first.eq(age)
        exact = stored + since + first == age
        met = there & ~fresh & ~((inner.index == entry) & inner.first)  # its first visit is over
        self.lemma("stored age", exact | ((stored == LONGEST) & (age >= LONGEST)), when=met)
        self.lemma(
            "first visit goes on",
            (age == first) & (told | (dut.policy.merge_timeout != 0)),
            when=there & ~fresh & ~met,
        )
        self.lemma(
            "first visit soon",
            age + (entry - inner.index)[: len(inner.index)] < depth,
            when=there & fresh,
        )
        self.lemma("first visit was soon", first < depth, when=there & ~fresh)
        self.lemma("pauses add", full_age >= age)
        self.lemma("age at hand", inner.ages.r_data == stored, when=here & met)
        self.lemma("told in time", told | (stored < dut.policy.merge_timeout), when=met)
        self.lemma("nothing told before the first visit", ~told, when=there & fresh)


class OldComeInBatches(TimerSpec):
    """While an old entry of a rank waits, two sweeps after it became old no other entry of this
    rank becomes old before it is locked: it is overtaken by no more than those that became old
    before or with it. When no old entry of a rank has waited during a sweep, the entries of this
    rank that have reached ``age_limit`` become old at their visits in the next sweep."""

    def specify(self, m, dut):
        depth, inner = self._cfg.pool_depth, self.inner
        entry = self.constant(range(depth), "entry")
        rank = Array(self.ranks)[entry]
        waits = (dut.valid & ~dut.locked & dut.old).bit_select(entry, 1)
        sweeps, met = Signal(2), Signal()
        at_it, ends = dut.scan.en & (inner.index == entry), dut.scan.en & (inner.index == depth - 1)
        m.d.sync += [
            met.eq(waits & ~ends & (met | at_it)),
            sweeps.eq(Mux(waits, Mux(ends & (sweeps != 2), sweeps + 1, sweeps), 0)),
        ]
        names = (
            dut.visit.en
            & dut.visit.old
            & (Array(self.ranks)[dut.visit.index] == rank)
            & (dut.visit.index != entry)
        )
        self.always("no other becomes old", ~names, when=waits & (sweeps == 2))
        self.reach(
            "another one of its rank is old too",
            waits & (sweeps == 2) & dut.old.all() & (rank == 1),
        )
        some = self.constant(range(self._cfg.ranks), "some_rank")
        none_waits = (
            dut.valid & ~dut.locked & dut.old & Cat(each == some for each in self.ranks)
        ) == 0
        quiet, was_quiet = Signal(), Signal()
        m.d.sync += quiet.eq(ends | (quiet & none_waits))
        with m.If(ends):
            m.d.sync += was_quiet.eq(quiet & none_waits)
        self.always(
            "the next batch becomes old",
            dut.visit.old,
            when=was_quiet
            & dut.visit.en
            & (inner.age >= self.past(dut.policy.age_limit, "limit"))
            & (Array(self.ranks)[dut.visit.index] == some),
        )
        # Helpers: met in this sweep, it closes the batch of the next one.
        self.lemma("none noted in a quiet sweep", ~inner.old_seen.bit_select(some, 1), when=quiet)
        self.lemma(
            "batch open after a quiet sweep", inner.batch_open.bit_select(some, 1), when=was_quiet
        )
        self.lemma("met and noted", inner.old_seen.bit_select(rank, 1), when=waits & met)
        self.lemma("met when passed", met | (inner.index <= entry), when=waits & (sweeps != 0))
        self.lemma(
            "batch closed", ~inner.batch_open.bit_select(rank, 1), when=waits & (sweeps == 2)
        )


class OldestIsShown(TimerSpec):
    """``oldest`` is refreshed once per sweep, two cycles after its last visit: it is valid if an
    entry was there at its visit in this sweep, none of them was older, by its age then, and
    identity and age are those of one of them. Ages are as the memory shows them, whatever that is
    (``packet_manager.ages_true``)."""

    def specify(self, m, dut):
        depth, inner, oldest = self._cfg.pool_depth, self.inner, dut.oldest
        cut(self, inner.ages)
        self.suppose(
            "memory holds what was read",
            inner.ages.r_data == self.past(inner.ages.r_data, "data_before"),
            when=self.started & ~self.past(inner.ages.r_en, "was_read"),
        )
        ends = dut.scan.en & (inner.index == depth - 1)
        shape = oldest.shape()
        met, met_before = Signal(depth), Signal(depth)
        seen, seen_before = (
            [Signal(shape, name=f"{name}_{n}") for n in range(depth)] for name in ("seen", "before")
        )
        leader, leader_before, leader_now = (
            Signal(range(depth), name=name) for name in ("leader", "led", "now_leads")
        )
        now = Signal(shape)
        m.d.comb += [
            now.valid.eq(1),
            now.age.eq(inner.age),
        ]
        m.d.comb += [
            now[name].eq(dut.scanned[name])
            for name in ("plain", "rank", "region", "epoch", "rowid")
        ]
        there = dut.valid.bit_select(inner.index, 1)
        ages = Array([each.age for each in seen])
        m.d.comb += leader_now.eq(
            Mux(there & (~met.any() | (inner.age > ages[leader])), inner.index, leader)
        )
        m.d.sync += leader.eq(leader_now)
        for n in range(depth):
            here = inner.index == n
            with m.If(here):
                m.d.sync += seen[n].eq(now)
            with m.If(ends):
                m.d.sync += [
                    seen_before[n].eq(Mux(here, now, seen[n])),
                    met_before[n].eq(Mux(here, there, met[n])),
                    met[n].eq(0),
                ]
            with m.Elif(here):
                m.d.sync += met[n].eq(there)
        with m.If(ends):
            m.d.sync += leader_before.eq(leader_now)
        # The port shows a sweep two cycles after its last visit.
        were, led = self.past(met_before, "were_met"), self.past(leader_before, "had_led")
        records = Array([self.past(each, f"record_{n}") for n, each in enumerate(seen_before)])
        self.always("valid if any was there", oldest.valid == were.any())
        for n in range(depth):
            self.always(
                f"entry {n} is not older",
                self.past(seen_before[n].age, f"age_{n}") <= oldest.age,
                when=were[n],
            )
        self.always(
            "one that was there",
            were.bit_select(led, 1) & (records[led] == oldest.as_value()),
            when=oldest.valid,
        )
        # Helpers: the best so far, of this sweep or of the one that has just ended. `leader` is the
        # entry whose record it is.
        best = inner.best_now
        self.lemma("sweep has just ended", inner.wrapped == self.past(ends, "ended"))
        for name, among, of_each, first, when in (
            ("", met, seen, leader, ~inner.wrapped),
            (" in the sweep before", met_before, seen_before, leader_before, inner.wrapped),
        ):
            kept = Array([each.as_value() for each in of_each])
            self.lemma(f"best of any met{name}", best.valid == among.any(), when=when)
            self.lemma(
                f"best was met{name}",
                among.bit_select(first, 1) & (kept[first] == best.as_value()),
                when=when & best.valid,
            )
            for n in range(depth):
                self.lemma(
                    f"best is not younger than {n}{name}",
                    of_each[n].age <= best.age,
                    when=when & among[n],
                )
        for n in range(depth):
            self.lemma(
                f"entry {n} is the same while the sweep stands",
                (seen[n].as_value() == now.as_value())
                & dut.valid[n]
                & ~dut.locked[n]
                & self.dead[n],
                when=met[n] & (inner.index == n),
            )
            self.lemma(f"only passed ones are met, {n}", inner.index >= n, when=met[n])
