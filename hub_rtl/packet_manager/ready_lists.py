# SPDX-License-Identifier: Apache-2.0
"""Who leaves next: ranks in turn, then the list that the rank chooses, first in first out."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, select
from hub_rtl.parts.ram import Ram

from .rank_lists import RankLists
from .records import LISTS, pool_types_of

__all__ = ["ReadyLists"]


class ReadyLists(wiring.Component):
    """Lists of ready entries in memory, one per rank and kind.

    Contract: an entry that came by ``ready`` is locked once, after those that were in its list
    before. A rank is picked in turn if it has one and a credit, or is dead; then its entry is
    locked without a ``take``. When no rank is picked or on its way, an entry is locked as it comes
    and sees no list.

    Latency: a push is hung behind its list's tail (U0 to U2) and can be chosen two cycles later. A
    pop: rank (P0), list and its heads read (P1, ``take``), head and whether it is the last (P2),
    locked, next head (P3). One lock per cycle, one of a rank every second cycle. Heads that pushes
    write and heads that pops write are two memories: neither waits for the other.

    Stalls: picks only while ``room``. ``dest_ready`` shows a ``take`` in the very next cycle.

    Parameters: ``cfg``. Ports: ``ready`` In; ``room`` In; ``dest_ready``, ``dead``, ``old`` In
    ranks; ``policy`` In; ``take`` Out; ``lock`` Out; ``granted`` Out strobe: room was used,
    ``missed`` Out strobe: it was not needed; ``asking`` Out, a rank could be picked; ``starved``
    Out, ranks have entries and none of them a credit.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "ready": In(t.ready),
                "room": In(1),
                "dest_ready": In(cfg.ranks),
                "dead": In(cfg.ranks),
                "old": In(cfg.ranks),
                "policy": In(t.policy),
                "take": Out(t.take),
                "lock": Out(t.lock),
                "granted": Out(1),
                "missed": Out(1),
                "asking": Out(1),
                "starved": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        ranks = [RankLists() for _ in range(cfg.ranks)]
        for r, lists in enumerate(ranks):
            m.submodules[f"rank_{r}"] = lists
            m.d.comb += [lists.old.eq(self.old[r]), lists.priority.eq(self.policy.priority)]
        new = Signal(t.ready)  # U0
        new_rank = Signal(cfg.ranks)
        lock = Signal(t.lock)
        p1 = Signal()
        p1_rank = Signal(cfg.ranks)
        p1_dead = Signal()
        just = Signal(cfg.ranks)
        passes = Signal()
        p2 = Signal()
        m.submodules.turn = turn = RoundRobin(cfg.ranks)
        has = Cat(lists.some for lists in ranks)
        m.d.sync += [new.eq(self.ready), new_rank.eq(1 << self.ready.list.rank)]

        # P0
        m.d.comb += [
            turn.requests.eq(
                has
                & mutant("packet_manager.taken_without_credit", self.dest_ready | self.dead, has)
                & ~mutant("packet_manager.picked_too_soon", just, 0)
            ),
            self.asking.eq(turn.requests.any()),
            turn.advance.eq(self.room & self.asking),
            passes.eq(
                new.en
                & mutant("packet_manager.picked_without_room", self.room, 1)
                & ~self.asking
                & ~(p1 | p2 | lock.en)
                & (new_rank & self.dest_ready & ~just & ~self.dead).any()
            ),
            self.granted.eq(turn.advance | passes),
            self.starved.eq(self.room & ~self.asking & (has & ~self.dead & ~just).any()),
        ]
        m.d.sync += [
            p1.eq(turn.advance),
            p1_rank.eq(turn.grant_onehot),
            p1_dead.eq((turn.grant_onehot & self.dead).any()),
            just.eq(Mux(turn.advance, turn.grant_onehot, 0)),
        ]

        # P1
        found = Signal()
        chosen = Signal(t.list)
        m.d.comb += [
            found.eq(p1 & (p1_rank & has).any()),
            chosen.rank.eq(encode(p1_rank)),
            chosen.number.eq(select(p1_rank, [lists.choice for lists in ranks])),
            self.missed.eq(p1 & ~found),
            self.take.en.eq((found & ~p1_dead) | passes),
            self.take.rank.eq(Mux(p1, chosen.rank, new.list.rank)),
            *(lists.picked.eq(found & p1_rank[r]) for r, lists in enumerate(ranks)),
        ]
        head = Signal(t.index_width)
        m.d.sync += [p2.eq(found), lock.en.eq(p2), lock.index.eq(head)]
        dead = Signal()
        m.d.sync += [dead.eq(p1_dead), lock.dead.eq(dead)]
        self._lists(m, ranks, new, passes, p1_rank, chosen, p2, head)
        m.d.comb += [
            self.lock.eq(lock),
            self.lock.en.eq(lock.en | passes),
            self.lock.dead.eq(lock.en & lock.dead),
            self.lock.index.eq(Mux(lock.en, lock.index, new.index)),
        ]
        return m

    def _lists(self, m, ranks, new, passes, p1_rank, chosen, p2, head):
        """P1 to P3 and U0 to U2: what is in the lists' memories."""
        t = self._types
        names = ("heads_pushed", "heads_left", "tails", "tails_pop")
        rams = {name: Ram(t.index_width, t.lists, quick=True) for name in names}
        nexts = Ram(t.index_width, self._cfg.pool_depth, quick=True)
        for name, ram in (rams | {"nexts": nexts}).items():
            m.submodules[name] = ram
            m.d.comb += ram.r_en.eq(1)
        heads_pushed, heads_left, tails, tails_pop = rams.values()
        # P2: both heads are compared with the tail, ``which`` chooses.
        at = Signal(t.list)
        which = Signal()
        last = Signal()
        onehot = Signal(LISTS)
        rank = Signal(self._cfg.ranks)
        m.d.sync += which.eq((p1_rank & Cat(lists.left for lists in ranks)).any())
        m.d.sync += [at.eq(chosen), rank.eq(1 << chosen.rank), onehot.eq(1 << chosen.number)]
        tail = tails_pop.r_data
        m.d.comb += [
            *(ram.r_addr.eq(chosen) for ram in (heads_pushed, heads_left, tails_pop)),
            head.eq(Mux(which, heads_left.r_data, heads_pushed.r_data)),
            last.eq(Mux(which, heads_left.r_data == tail, heads_pushed.r_data == tail)),
            nexts.r_addr.eq(head),
        ]
        # P3
        moves = Signal()
        moved = Signal(t.list)
        moved_rank = Signal.like(rank)
        moved_list = Signal(LISTS)
        m.d.sync += [
            moves.eq(p2 & ~last),
            moved.eq(at),
            moved_rank.eq(rank),
            moved_list.eq(onehot),
        ]
        # U1
        hung = Signal(t.ready)
        hung_rank = Signal.like(rank)
        hung_list = Signal(LISTS)
        starts = Signal()
        m.d.sync += [
            hung.eq(new),
            hung.en.eq(new.en & ~passes),
            hung_rank.eq(1 << new.list.rank),
            hung_list.eq(1 << new.list.number),
        ]
        # U2
        linked = Signal(t.ready)
        behind = Signal(t.index_width)
        started = Signal()
        m.d.sync += [linked.eq(hung), behind.eq(tails.r_data), started.eq(starts)]
        m.d.comb += [
            heads_left.w_en.eq(moves),
            heads_left.w_addr.eq(moved),
            heads_left.w_data.eq(nexts.r_data),
            tails.r_addr.eq(new.list),
            starts.eq(Cat(lists.starts for lists in ranks).any()),
            heads_pushed.w_en.eq(linked.en & started),
            heads_pushed.w_addr.eq(linked.list),
            heads_pushed.w_data.eq(linked.index),
            nexts.w_en.eq(linked.en & ~started),
            nexts.w_addr.eq(behind),
            nexts.w_data.eq(linked.index),
        ]
        for ram in (tails, tails_pop):
            m.d.comb += [
                ram.w_en.eq(hung.en),
                ram.w_addr.eq(hung.list),
                ram.w_data.eq(hung.index),
            ]
        for r, lists in enumerate(ranks):
            m.d.comb += [
                lists.fills.eq(Mux(hung.en & hung_rank[r], hung_list, 0)),
                lists.pops.eq(Mux(p2 & rank[r], onehot, 0)),
                lists.last.eq(last),
                lists.moves.eq(Mux(moves & moved_rank[r], moved_list, 0)),
            ]
