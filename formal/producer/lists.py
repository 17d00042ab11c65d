# SPDX-License-Identifier: Apache-2.0
"""Tells and closes that wait in their lists (``hub_rtl/producer/tell_list.py``, ``close_list.py``,
docs/interfaces.md section 3)."""

from amaranth import Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.producer.close_list import SETTLE, CloseList
from hub_rtl.producer.tell_list import TellList

from .doubles import OpenLists, OpenQueue
from .tables import OpenRam

__all__ = ["ClosesWaitForTheirBytes", "TellsAreKept"]


def pops_apart(spec, pop):
    """Pops are at least 3 cycles apart. Returns whether one of the last two cycles had one."""
    recent = spec.past(pop.en) | spec.past(spec.past(pop.en))
    spec.suppose("pops at least 3 cycles apart", ~recent, when=pop.en)
    return recent


class ClosesWaitForTheirBytes(Spec):
    """An accepted close is never stalled and is popped exactly once, and only after a ``cut`` that
    came after it, then its mark, then, six cycles later or more, a cycle in which its peer's
    ``draining`` was 0, then a flush of the ledger that has ended; until then it is staged or
    listed. Marks come for nothing else. The lists are used as ``parts.multi_queue`` wants it.

    Closes of one replica, each (handle, bank) again only after its pop; a peer is popped only if it
    was ready since its pop before."""

    def build(self, m):
        cfg, past = self._cfg, self.past
        m.submodules.dut = dut = CloseList(cfg)
        inner = observe(dut)
        lists = OpenLists(inner.lists)
        OpenQueue(inner.queue)
        self.free_inputs(dut, but=("i_close",))
        self.free(dut.i_close.valid, dut.i_close.payload)  # never stalled, so nothing to hold
        close, put, popped = dut.i_close.payload, dut.i_close.valid, dut.popped
        self.suppose(
            "handles and ranks exist",
            (close.index < cfg.handles)
            & (close.replica[0].rank < cfg.ranks)
            & (close.log2_replicas == 0),
            when=put,
        )
        self.suppose("no cut while some are left", ~dut.left, when=dut.cut)
        inside = Signal(2 * cfg.handles)
        node = close.index << 1 | close.epoch[0]
        for n in range(len(inside)):
            self.flag(
                inside[n],
                put & (node == n),
                popped.en & ((popped.dest << 1 | popped.bank) == n),
            )
        self.suppose("one close of a bank at a time", ~inside.bit_select(node, 1), when=put)
        recent = pops_apart(self, dut.pop)
        was_ready = Signal(cfg.ranks)
        for n in range(cfg.ranks):
            popping = dut.pop.en & (dut.pop.rank == n)
            self.flag(was_ready[n], dut.ready[n] & ~recent & ~popping, popping)
        may_pop = was_ready | Mux(recent, 0, dut.ready)
        self.suppose("pop what was ready", may_pop.bit_select(dut.pop.rank, 1), when=dut.pop.en)

        index, bank = self.constant(cfg.handle_width, "index"), self.constant(1, "bank")
        self.suppose("handle exists", index < cfg.handles)
        mine = put & (close.index == index) & (close.epoch[0] == bank)
        pops = popped.en & (popped.dest == index) & (popped.bank == bank)
        marks = dut.mark.en & (dut.mark.handle == index)
        waiting = Signal()
        covered = Signal()
        rank = Signal(cfg.rank_width)
        age = Signal(3)
        drained = Signal()
        ends = Signal()
        flushed = Signal()
        asked = past(dut.ledger_flush)
        # The other bank's close may be staged too: its mark is not taken for this one's.
        appended = lists.append.en & (lists.append.node == (index << 1 | bank))
        with m.If(mine):
            m.d.sync += [
                waiting.eq(1),
                rank.eq(close.replica[0].rank),
                *[each.eq(0) for each in (covered, age, drained, ends, flushed)],
            ]
        with m.Elif(waiting):
            m.d.sync += [
                waiting.eq(~pops),
                covered.eq(covered | dut.cut),
                age.eq(Mux((age != 0) | (marks & appended), age + (age != SETTLE), 0)),
                drained.eq(drained | ((age == SETTLE) & ~dut.draining.bit_select(rank, 1))),
                ends.eq(ends | (drained & dut.ledger_flush)),
                flushed.eq(flushed | (ends & ~asked & ~dut.ledger_flushing)),
            ]
        self.always("never stalled", dut.i_close.ready, when=put)
        self.always("popped once", waiting, when=pops)
        self.always("popped after it has drained", drained & flushed, when=pops)
        self.always("marked after a cut, as it is listed", waiting & covered, when=appended)
        self.always("a mark with every close that is listed", dut.mark.en == lists.append.en)
        self.always("marks of what is left", dut.release & dut.left, when=dut.mark.en)
        key = index << 1 | bank
        self.always(
            "staged or listed until it is popped", dut.staged | lists.has(key), when=waiting
        )
        self.always("a node is in one list", ~lists.has(lists.append.node), when=lists.append.en)
        self.always("append when allowed", lists.may_append, when=lists.append.en)
        self.reach("popped", pops)


class TellsAreKept(Spec):
    """Each tell that is taken is given to the ledger once, as it came, in order. Two cycles after
    its destination is popped ``bytes16`` is what was told. A ready list is filled; it stays ready
    until it is empty. The lists are used as ``parts.multi_queue`` wants it.

    A destination is told again only two cycles after it was popped; only filled lists are
    popped."""

    def build(self, m):
        cfg, past = self._cfg, self.past
        m.submodules.dut = dut = TellList(cfg)
        inner = observe(dut)
        lists = OpenLists(inner.lists)
        OpenRam(inner.promises)
        self.free_inputs(dut)
        tell, taken, popped = dut.i_tell.payload, moves(dut.i_tell), dut.popped
        self.suppose(
            "dests and ranks exist",
            (tell.dest < cfg.dests) & (tell.target.rank < cfg.ranks),
            when=dut.i_tell.valid,
        )
        inside = Signal(cfg.dests)
        for n in range(cfg.dests):
            self.flag(inside[n], taken & (tell.dest == n), past(popped.en & (popped.dest == n)))
        self.suppose(
            "told again when it was popped",
            ~inside.bit_select(tell.dest, 1),
            when=dut.i_tell.valid,
        )
        pops_apart(self, dut.pop)
        self.suppose("pop what is filled", dut.filled.bit_select(dut.pop.rank, 1), when=dut.pop.en)
        given = dut.o_announce.payload
        self.always_fifo(
            "announcement",
            taken,
            tell.dest ^ tell.bytes16 ^ tell.epoch[:2],
            moves(dut.o_announce),
            given.dest ^ given.bytes16 ^ (given.turn << 1 | given.bank),
            most=2,
        )
        dest = self.constant(cfg.dest_width, "dest")
        promise = Signal(len(tell.bytes16))
        with m.If(taken & (tell.dest == dest)):
            m.d.sync += promise.eq(tell.bytes16)
        self.always(
            "what was told",
            dut.bytes16 == past(past(promise)),
            when=past(past(popped.en & (popped.dest == dest))),
        )
        peer = self.constant(cfg.rank_width, "peer")
        ready, filled = (each.bit_select(peer, 1) for each in (dut.ready, dut.filled))
        self.always("a ready list is filled", filled, when=ready)
        self.always("ready until it is empty", ready, when=past(ready) & filled)
        self.always("append when allowed", lists.may_append, when=lists.append.en)
        self.always("a node is in one list", ~lists.has(lists.append.node), when=lists.append.en)
        self.reach("told again", past(past(popped.en & (popped.dest == dest))) & taken)
