# SPDX-License-Identifier: Apache-2.0
"""Visits the entries in turn: ages, the merge timer, marks, dead peers, room for a store that
waits."""

from typing import NamedTuple

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import AGE
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import REMNANT, TAIL, covers, pool_types_of

__all__ = ["Sweep"]

GROUP = 8  # entries that a sweep passes over at once when none of them is there, at most
LEAST_GROUPS = 4  # what a visit told of an entry counts when the next one looks at it
LONGEST = (1 << AGE) - 1
PATIENCE = 15  # cycles that a visit gives way to full entries
LEFT_CYCLES = 3  # from an entry's end until a store that waits has seen it


class SweepObserve(NamedTuple):
    """What a proof may see of a :class:`Sweep`."""

    looks: Ram  #: who each entry is
    present: Signal  #: entries that are not locked
    visits: tuple  #: under way: whose words are read, whose age is found, who is judged
    goes: Signal  #: ... and go a step on
    best: data.View  #: the oldest one that this sweep has met


class Sweep(wiring.Component):
    """Says once of each entry that it is ready: because it is full, or because a visit finds a
    reason to send it partly filled.

    Contract: reasons are its age (``merge_timeout``, ``age_limit``), a mark, a dead peer, and a
    store that waits: for a shared entry while none is leaving (any entry, up to four before the
    first of them is on its way), for one of its rank's own while none of these is ready (one of
    them), or for a way (the one in its rank's own). A rank is ``old`` while the last sweep met an
    entry of it of age ``age_limit`` that had not been locked. Of covered entries those that the
    mark is not for are told ``innocent``.

    Latency: a sweep takes ``pool_depth`` cycles at most, and one more for every full entry that
    comes meanwhile and for every second cycle that a store waits for a way. A visit: address, words
    (1), age (2), judged (3). A full entry goes first; a visit that has given way PATIENCE times
    asks for a store's place (``pause``). An age is true to the cycle of its visit and saturates.

    Parameters: ``cfg``. Ports: ``opened`` In; ``full`` In; ``lock`` In; ``leaves``
    In; ``ready`` Out; ``marks`` In strobe, visits under way are void; ``mark_now``, ``covered`` In;
    ``innocent`` Out; ``dead`` In ranks; ``waits`` In; ``idle`` In, no entry is leaving or could;
    ``policy`` In; ``old`` Out ranks; ``oldest`` Out; ``pause`` Out.
    """

    observe: SweepObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        self._log2_replicas = ceil_log2(cfg.replicas)
        t = self._types
        super().__init__(
            {
                "opened": In(t.opened),
                "full": In(t.ready),
                "lock": In(t.lock),
                "leaves": In(t.leaves),
                "ready": Out(t.ready),
                "marks": In(1),
                "mark_now": In(t.mark),
                "covered": In(cfg.pool_depth),
                "innocent": Out(t.innocent),
                "dead": In(cfg.ranks),
                "waits": In(t.waits),
                "idle": In(1),
                "policy": In(t.policy),
                "old": Out(cfg.ranks),
                "oldest": Out(t.oldest),
                "pause": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self._cfg.pool_depth
        full = Signal(self._types.ready)
        # Entries that were not yet said to be ready; that are not locked; whose age has saturated.
        asleep, present, aged = (Signal(depth, name=n) for n in ("asleep", "present", "aged"))
        goes = Signal()
        wanted = Signal()
        is_full = Signal()
        waits = Signal(self._types.waits)
        visits = self._visits(m, goes, waits, asleep, present, aged)
        visit = visits[-1]
        m.d.sync += full.eq(self.full)
        full_sleeps = Signal()
        m.d.sync += full_sleeps.eq(self._still(asleep, self.full.index, self.ready))
        room = self._makes_room(m, visit, waits, wanted & goes)
        m.d.comb += [
            is_full.eq(full.en & full_sleeps),
            wanted.eq(visit.en & visit.sleeps & (visit.reason | room)),
            goes.eq(~(wanted & is_full)),
            self.ready.en.eq(is_full | wanted),
            self.ready.index.eq(Mux(is_full, full.index, visit.index)),
            self.ready.expired.eq(~is_full & visit.expired),
            self.ready.list.rank.eq(Mux(is_full, full.list.rank, visit.look.rank)),
            self.ready.list.number.eq(
                Mux(is_full, full.list.number, Mux(visit.look.plain, REMNANT, TAIL))
            ),
        ]
        # Told a cycle later: a sweep does not come back so soon, a rival may.
        tells = visit.en & visit.here & visit.innocent & ~visit.rival
        m.d.sync += [
            self.innocent.en.eq(tells & goes & ~self.marks),
            self.innocent.index.eq(visit.index),
            self.innocent.rank.eq(visit.look.rank),
            waits.eq(self.waits),
        ]
        with m.If(self.ready.en):
            m.d.sync += asleep.bit_select(self.ready.index, 1).eq(
                mutant("packet_manager.ready_twice", 0, ~is_full)
            )
        with m.If(self.lock.en):
            m.d.sync += present.bit_select(self.lock.index, 1).eq(0)
        with m.If(visit.en & visit.here & visit.long):
            m.d.sync += aged.bit_select(visit.index, 1).eq(1)
        with m.If(self.opened.en):
            m.d.sync += [
                asleep.bit_select(self.opened.index, 1).eq(1),
                present.bit_select(self.opened.index, 1).eq(1),
                aged.bit_select(self.opened.index, 1).eq(0),
            ]
        patience = Signal(range(PATIENCE + 1))
        m.d.sync += [
            patience.eq(Mux(goes | self.pause, 0, patience + 1)),
            self.pause.eq(patience == PATIENCE - 1),
        ]
        best = self._find_oldest(m, visit, goes)
        self.observe = SweepObserve(m.submodules.looks, present, visits, goes, best)
        return m

    @staticmethod
    def _still(bits, index, ends):
        """The bit of an entry, as it is in the next cycle."""
        return bits.bit_select(index, 1) & ~(ends.en & (ends.index == index))

    def _visits(self, m, goes, waits, asleep, present, aged):
        """The entries that are visited, the last one judged in this cycle, with its age and the
        reasons that it brings."""
        t, depth = self._types, self._cfg.pool_depth
        m.submodules.births = births = Ram(t.clock, depth, bypass=False, quick=depth <= 64)
        m.submodules.looks = looks = Ram(t.look, depth, bypass=False, quick=depth <= 64)
        now = Signal(t.clock)
        at = Signal(t.index_width)
        to_rival = Signal()
        words, aging, judged = (Signal(t.visit, name=name) for name in ("words", "aging", "judged"))
        step = self._step(m, goes & ~to_rival, present)
        long = Signal()
        birth = Signal(t.clock)
        look, key = aging.look, self.opened.info.key
        m.d.sync += now.eq(now + 1)
        m.d.comb += [
            at.eq(Mux(to_rival, waits.rival, step)),
            births.r_en.eq(goes),
            births.r_addr.eq(at),
            births.w_en.eq(self.opened.en),
            births.w_addr.eq(self.opened.index),
            births.w_data.eq(now),
            birth.eq(births.r_data),
            looks.r_en.eq(goes),
            looks.r_addr.eq(at),
            looks.w_en.eq(self.opened.en),
            looks.w_addr.eq(self.opened.index),
            looks.w_data.plain.eq(key.plain),
            looks.w_data.rank.eq(key.rank),
            looks.w_data.dest.eq(self.opened.info.dest),
            *(
                looks.w_data.name[name].eq(Mux(key.plain, 0, key.body.row[name]))
                for name, _ in looks.w_data.name.shape()
            ),
            long.eq(aging.long | (aging.age >= LONGEST)),
        ]
        age = Signal(AGE)
        expired = Signal()
        old = Signal()
        dead = Signal()
        covered = self.covered.bit_select(aging.index, 1)
        marked = Signal()
        m.d.comb += [
            age.eq(Mux(long, LONGEST, aging.age)),
            expired.eq(age >= self.policy.merge_timeout),
            old.eq(age >= self.policy.age_limit),
            dead.eq(self.dead.bit_select(look.rank, 1)),
            marked.eq(covers(self.mark_now, self._log2_replicas, look.plain, look.dest)),
        ]
        with m.If(goes):
            m.d.sync += [
                to_rival.eq(waits.way & ~to_rival),
                words.en.eq(1),
                words.index.eq(at),
                words.rival.eq(to_rival),
                words.turn.eq(~to_rival & (step == 0)),
                aging.eq(words),
                aging.look.eq(looks.r_data),
                aging.age.eq(now - birth),
                aging.long.eq(aged.bit_select(words.index, 1)),
                judged.eq(aging),
                judged.long.eq(long),
                judged.age.eq(age),
                judged.expired.eq(expired),
                judged.old.eq(old),
                judged.innocent.eq(covered & ~marked),
                judged.reason.eq(expired | old | dead | (covered & marked)),
                judged.sleeps.eq(self._still(asleep, aging.index, self.ready)),
                judged.here.eq(self._still(present, aging.index, self.lock)),
            ]
        with m.Else():
            m.d.sync += [
                judged.sleeps.eq(
                    judged.sleeps & ~(self.ready.en & (self.ready.index == judged.index))
                ),
                judged.here.eq(judged.here & ~(self.lock.en & (self.lock.index == judged.index))),
            ]
        # What was read of an entry that is opened anew, or before a mark, is not looked at.
        for after, index in ((words, at), (aging, words.index), (judged, aging.index)):
            moved, held = (self.opened.index == each for each in (index, after.index))
            anew = self.opened.en & Mux(goes, moved, held)
            with m.If(self.marks | mutant("packet_manager.judged_by_entry_before", anew, 0)):
                m.d.sync += after.en.eq(0)
        return words, aging, judged

    def _step(self, m, steps, present):
        """The entries in turn; groups of which none is there count as one."""
        depth = self._cfg.pool_depth
        size = min(GROUP, depth // LEAST_GROUPS)
        groups, low = depth // size, ceil_log2(size)
        step = Signal(self._types.index_width)
        occupied = Signal(groups)
        m.d.sync += occupied.eq(Cat(present.word_select(n, size).any() for n in range(groups)))
        with m.If(steps & occupied.bit_select(step >> low, 1)):
            m.d.sync += step.eq(step + 1)
        with m.Elif(steps):
            m.d.sync += step.eq(((step >> low) + 1) << low)
        return step

    def _makes_room(self, m, visit, waits, takes):
        """The visited entry shall leave because a store waits."""
        ranks, t = self._cfg.ranks, self._types
        left = Signal(LEFT_CYCLES)
        recent = Signal()
        coming = Array(Signal(t.count_width, name=f"coming_{r}") for r in range(ranks))
        for r in range(ranks):
            comes = self.ready.en & (self.ready.list.rank == r)
            m.d.sync += coming[r].eq(coming[r] + comes - (self.leaves.en & (self.leaves.rank == r)))
        any_one = Signal()
        own = Signal()
        own_rank = Signal()
        done = Signal()
        m.d.comb += [
            recent.eq(mutant("packet_manager.squeezes_in_vain", self.leaves.en | left.any(), 0)),
            own_rank.eq(own & ~done & (visit.look.rank == waits.rank)),
        ]
        m.d.sync += [
            left.eq(Cat(self.leaves.en, left)),
            any_one.eq(waits.shared & self.idle & ~recent),
            own.eq(waits.own & (coming[waits.rank] == 0) & ~recent),
            done.eq(waits.own & ~self.leaves.en & (done | (takes & own_rank))),
        ]
        return any_one | own_rank | (visit.rival & waits.way)

    def _find_oldest(self, m, visit, goes):
        """The oldest entry of a sweep, which is returned, and the ranks that have an old one."""
        best = Signal(self._types.oldest)
        best_now = Signal(self._types.oldest)
        old = Signal(self._cfg.ranks)
        here, name = visit.en & visit.here, visit.look.name
        rank = Mux(here & visit.old, 1 << visit.look.rank, 0)
        met = Signal()  # some in this sweep
        m.d.comb += [met.eq(best.valid & ~visit.turn), best_now.eq(best), best_now.valid.eq(met)]
        with m.If(here & (~met | (visit.age > best.age))):
            m.d.comb += [
                best_now.valid.eq(1),
                best_now.plain.eq(visit.look.plain),
                best_now.rank.eq(visit.look.rank),
                best_now.age.eq(visit.age),
                *(best_now[field].eq(name[field]) for field in ("region", "epoch", "rowid")),
            ]
        with m.If(goes):
            m.d.sync += [best.eq(best_now), old.eq(Mux(visit.turn, 0, old) | rank)]
            with m.If(visit.turn):
                m.d.sync += [self.oldest.eq(best), self.old.eq(old)]
        return best
