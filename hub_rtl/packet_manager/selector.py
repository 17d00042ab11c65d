# SPDX-License-Identifier: Apache-2.0
"""Chooses which pool entry leaves next: round-robin over destinations, then the best of one
destination's entries."""

from itertools import combinations

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import ROWID
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select

from .records import by_rank, decode, encode, pool_types_of

__all__ = ["Selector"]

FAN = 4  # entries that are compared each with each
MERIT_WIDTH = ROWID + 4  # old, full, class, kind, RowID; smaller is better


class Selector(wiring.Component):
    """Picks the rank, then the best entry of that rank, and locks it.

    Contract: among ranks with an eligible entry, ``dest_ready`` and not dead: round-robin. Within a
    rank: old entries first, then full, then normal before ``.nop``, then plain and row-sparse in
    turn, then the smallest RowID, then the lowest entry number. An entry is never locked while a
    better one of its rank has been eligible for 4 cycles or more: what is eligible in the cycle of
    the pick takes part, and the lock comes 3 cycles after the pick.

    Latency: pick (cycle 0), the best one of each four entries (1), the best of these (2), lock and
    ``take`` (3). A rank's entry shows to the pick one cycle after it became eligible, or at once
    through ``hint``. One lock per 5 cycles at most.

    Stalls: picks only while ``go``. ``dest_ready`` may answer to a ``take`` one cycle later (it is
    looked at again two cycles after the take), so a single credit is never taken twice.

    Parameters: ``cfg``, HubConfig. Ports: ``valid``, ``eligible``, ``old``, ``full``, ``nop``,
    ``plain`` In, one bit per entry; ``rank_onehot``, ``rowid`` In, per entry; ``hint`` In {en,
    rank}, an entry of this rank has just become full; ``dest_ready`` In ranks; ``peer_dead`` In
    ranks, one cycle ahead: no rank is locked for in the cycle after its bit was set; ``go`` In;
    ``lock`` Out {en, index}, ``lock_onehot`` Out, ``locking`` Out: the same, or an entry that is
    gone; ``take`` Out {en, rank}; ``starved`` Out, eligible entries wait and none has a credit.

    Source: docs/interfaces.md section 4 (order); the paper's priority queue, with a bounded age
    added.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t, depth = self._types, cfg.pool_depth
        super().__init__(
            {name: In(depth) for name in ("valid", "eligible", "old", "full", "nop", "plain")}
            | {
                "rank_onehot": In(cfg.ranks).array(depth),
                "rowid": In(ROWID).array(depth),
                "hint": In(t.take),
                "dest_ready": In(cfg.ranks),
                "peer_dead": In(cfg.ranks),
                "go": In(1),
                "lock": Out(t.entry),
                "locking": Out(depth),
                "lock_onehot": Out(depth),
                "take": Out(t.take),
                "starved": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, depth = self._cfg, self._cfg.pool_depth

        # Cycle 0: the rank.
        has, has_now, could, picked = (
            Signal(cfg.ranks, name=name) for name in ("has", "has_now", "could", "picked")
        )
        pick, dead = Signal(), Signal(cfg.ranks)
        step = Signal(3)  # one-hot: cycles 1, 2, 3 of a selection
        m.submodules.ranks = ranks = RoundRobin(cfg.ranks)
        m.d.sync += [
            has.eq(by_rank(m, self.eligible, self.rank_onehot, cfg.ranks, "has")),
            dead.eq(self.peer_dead),
        ]
        m.d.comb += [
            has_now.eq(
                (has | decode(m, self.hint.rank, cfg.ranks, self.hint.en, "hinted")) & ~dead
            ),
            could.eq(
                mutant("packet_manager.taken_without_credit", has_now & self.dest_ready, has_now)
            ),
            ranks.requests.eq(could),
            pick.eq(self.go & (step == 0) & could.any()),
            ranks.advance.eq(pick),
            self.starved.eq(self.go & (step == 0) & has_now.any() & ~could.any()),
        ]
        m.d.sync += step.eq(Cat(pick, step[:2]))
        with m.If(pick):
            m.d.sync += picked.eq(ranks.grant_onehot)

        # Of the entries as they are in cycle 0: who beats whom, within fours.
        last_plain = Signal()  # kind of the entry locked last: the other kind is preferred
        could_run = Signal(depth)
        m.d.sync += could_run.eq(self.eligible)
        merits = []
        for n in range(depth):
            merit = Signal(MERIT_WIDTH, name=f"merit_{n}")
            m.d.comb += merit.eq(
                mutant(
                    "packet_manager.full_before_old",
                    Cat(
                        Mux(self.plain[n], 0, self.rowid[n]),
                        self.plain[n] == last_plain,
                        self.nop[n],
                        ~self.full[n],
                        ~self.old[n],
                    ),
                    Cat(
                        Mux(self.plain[n], 0, self.rowid[n]),
                        self.plain[n] == last_plain,
                        self.nop[n],
                        ~self.old[n],
                        ~self.full[n],
                    ),
                )
            )
            merits.append(merit)
        fours = [range(n, min(n + FAN, depth)) for n in range(0, depth, FAN)]
        ahead = [
            self._compare(m, [merits[n] for n in four], f"four_{four[0]}", m.d.sync)
            for four in fours
        ]

        # Cycle 1: the best one of each four, among those of the rank. Cycle 2: the best of these.
        runners = Signal(depth)
        m.d.comb += [
            runners[n].eq(could_run[n] & (self.rank_onehot[n] & picked).any()) for n in range(depth)
        ]
        field = []
        for four, lead in zip(fours, ahead, strict=True):
            runs, merit, onehot = self._best(
                [(runners[n], merits[n], Const(1 << n, depth)) for n in four], lead
            )
            candidate = [
                Signal(len(each), name=f"{name}_{four[0]}")
                for name, each in (("runs", runs), ("best_merit", merit), ("best", onehot))
            ]
            m.d.sync += [
                signal.eq(each)
                for signal, each in zip(candidate, (runs, merit, onehot), strict=True)
            ]
            field.append(candidate)
        level = 0
        while len(field) > 1:
            groups, level = [field[n : n + FAN] for n in range(0, len(field), FAN)], level + 1
            field = [
                self._best(
                    group,
                    self._compare(
                        m, [merit for _, merit, _ in group], f"level_{level}_{n}", m.d.comb
                    ),
                )
                for n, group in enumerate(groups)
            ]
        winner = Signal(depth)  # one-hot
        alive = Signal(depth)  # a runner that was sunk meanwhile has lost its place
        m.d.sync += [
            alive.eq(runners & self.valid),
            winner.eq(
                Mux(
                    step[1] & ~(picked & self.peer_dead).any(),
                    mutant("packet_manager.dead_entry_locked", field[0][2] & alive, field[0][2])
                    & self.valid,
                    0,
                )
            ),
        ]

        # Cycle 3: the lock.
        m.d.comb += [
            self.locking.eq(winner),
            self.lock_onehot.eq(winner & self.valid),
            self.lock.en.eq(self.lock_onehot.any()),
            self.lock.index.eq(Cat(encode(winner, self._types.index_width))),
            self.take.en.eq(self.lock.en),
            self.take.rank.eq(Cat(encode(picked, cfg.rank_width))),
        ]
        with m.If(self.lock.en):
            m.d.sync += last_plain.eq((self.plain & winner).any())
        return m

    @staticmethod
    def _compare(m, merits, name, domain):
        """{(i, j), i < j: bit, i goes before j}: the smaller merit does, on a tie the lower
        number."""
        found = {}
        for i, j in combinations(range(len(merits)), 2):
            found[i, j] = Signal(name=f"{name}_{i}_before_{j}")
            domain += found[i, j].eq(merits[i] <= merits[j])
        return found

    @staticmethod
    def _best(candidates, before):
        """The first of up to FAN candidates (runs, merit, one-hot): the same of the one that runs
        and has none before it."""
        wins = []
        for i, (runs, _, _) in enumerate(candidates):
            lost = [
                others[0] & (~before[i, j] if i < j else before[j, i])
                for j, others in enumerate(candidates)
                if j != i
            ]
            wins.append(runs & ~Cat(lost).any() if lost else runs)
        runs, merits, onehots = zip(*candidates, strict=True)
        return Cat(runs).any(), select(Cat(wins), merits), select(Cat(wins), onehots)
