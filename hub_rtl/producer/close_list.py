# SPDX-License-Identifier: Apache-2.0
"""CloseList: accepted closes wait here, listed by peer, until their bytes are out and in the
ledger."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.records import types_of
from hub_rtl.parts.multi_queue import MultiQueue
from hub_rtl.parts.mutants import mutant, variant
from hub_rtl.parts.ram_queue import RamQueue

from .records import producer_types_of

__all__ = ["SETTLE", "CloseList"]

SETTLE = 6  # cycles from a flush or mark until its status shows, with registers of the hub


class CloseListObserve(NamedTuple):
    """What a proof may see of a :class:`CloseList`: its storage."""

    lists: MultiQueue  #: per peer, the closes to be sent; a node is (dest, bank)
    queue: RamQueue  #: staged closes


class CloseList(wiring.Component):
    """Keeps one list of pending closes per peer, in memory, and says which peers' are ready.

    Contract: ``cut`` says that the closes staged before it are those that ``release`` lists; each
    is marked in the packet managers as it is listed. A peer is ``ready`` while all of its listed
    closes were listed before its ``draining`` was seen 0 (``SETTLE`` cycles after a mark at least)
    and that before a flush of the ledger that has ended. Only ready peers are popped.

    Latency: one replica is listed per cycle; ``popped`` 2 cycles after ``pop``; pops at least 3
    cycles apart, ``ready`` is right from the third cycle after one on. Order: per peer as staged.
    Stalls: ``i_close`` never, as each (handle, bank) has one close at most until that is popped.

    Parameters: ``cfg``. Ports: ``i_close`` In stream(``staged_close``); ``staged`` Out, some
    are not listed; ``cut`` In strobe; ``release`` In; ``left`` Out, of those that are
    released some are not listed; ``mark`` Out {en, handle}; ``draining`` In ``ranks``, of all
    packet managers; ``ledger_flush`` Out strobe, ``ledger_flushing`` In; ``filled``, ``ready`` Out
    ``ranks``; ``pop`` In {en, rank}; ``popped`` Out {en, bank, dest, body}.
    """

    observe: CloseListObserve  # once elaborated

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i_close": In(stream.Signature(own.staged_close)),
                "staged": Out(1),
                "cut": In(1),
                "release": In(1),
                "left": Out(1),
                "mark": Out(own.close_mark),
                "draining": In(cfg.ranks),
                "ledger_flush": Out(1),
                "ledger_flushing": In(1),
                "filled": Out(cfg.ranks),
                "ready": Out(cfg.ranks),
                "pop": In(types_of(cfg).rank_strobe),
                "popped": Out(own.popped),
            }
        )
        self._cfg, self._body = cfg, own.news_body

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.lists = lists = MultiQueue(self._body, cfg.ranks, 2 * cfg.dests)
        close = producer_types_of(cfg).staged_close
        m.submodules.queue = queue = RamQueue(close, 2 * cfg.handles)
        self.observe = CloseListObserve(lists, queue)
        wiring.connect(m, wiring.flipped(self.i_close), queue.i)
        m.d.comb += [
            self.filled.eq(lists.filled),
            lists.pop.en.eq(self.pop.en),
            lists.pop.queue.eq(self.pop.rank),
            self.popped.en.eq(lists.popped.en),
            Cat(self.popped.bank, self.popped.dest).eq(lists.popped.node),
            self.popped.body.eq(lists.popped.body),
        ]
        taken = self._list(m, queue.o, lists)
        self._count(m, taken)
        self._ready(m, lists, taken)
        return m

    def _count(self, m, taken):
        """How many are staged, and how many of them are released."""
        most = 2 * self._cfg.handles
        level = Signal(range(most + 1))
        left = Signal(range(most + 1))
        m.d.sync += level.eq(level + self.i_close.valid - taken)
        with m.If(self.cut):
            m.d.sync += left.eq(
                mutant("producer.new_close_with_old", level, level + self.i_close.valid)
            )
        with m.Elif(taken):
            m.d.sync += left.eq(left - 1)
        m.d.comb += [
            self.staged.eq(level != 0),
            self.left.eq(left != 0),
        ]

    def _list(self, m, staged, lists):
        """Takes staged closes apart into replicas and appends each to the list of its peer.
        Returns when one is done."""
        cfg = self._cfg
        close, append = staged.payload, lists.append
        go = Signal()
        taken = Signal()
        if cfg.replicas == 1:
            pair, dest, last, zero = close.replica[0], close.index, 1, close.zero
        else:
            which = Signal(ceil_log2(cfg.replicas))
            pair, dest, last, zero = (
                close.replica[which],
                Cat(which, close.index),
                which == (1 << close.log2_replicas) - 1,
                close.zero.bit_select(which, 1),
            )
            with m.If(go):
                m.d.sync += which.eq(Mux(last, 0, which + 1))
        m.d.comb += [
            go.eq(staged.valid & self.release & self.left & lists.may_append),
            taken.eq(go & last),
            staged.ready.eq(taken),
            append.en.eq(go),
            append.queue.eq(pair.rank),
            append.node.eq(Cat(close.epoch[0], dest)),
            append.body.region.eq(pair.region),
            append.body.epoch.eq(close.epoch),
            append.body.abort.eq(close.abort),
            append.body.zero.eq(zero),
            self.mark.en.eq(mutant("producer.close_not_marked", taken, 0)),
            self.mark.handle.eq(close.index),
        ]
        return taken

    def _ready(self, m, lists, taken):
        """The peers with closes that were listed before a cycle in which they did not drain, and
        that before a flush of the ledger."""
        cfg = self._cfg
        drained = Signal(cfg.ranks)
        listed = Signal(cfg.ranks)
        shown = Signal(cfg.ranks)
        caught = Signal(cfg.ranks)
        flushing = Signal()
        asked = Signal()  # in the cycle before: `ledger_flushing` does not show it yet
        settle = Signal(range(SETTLE + 3))
        with m.If(lists.append.en):
            m.d.comb += listed.eq(1 << lists.append.queue)
        with m.If(lists.append.en):
            m.d.sync += settle.eq(variant("producer.drain_read_at_mark", SETTLE + 2, 0))
        with m.Elif(settle.any()):
            m.d.sync += settle.eq(settle - 1)
        empty = ~self.draining & ~settle.any().replicate(cfg.ranks)
        seen = mutant("producer.close_while_draining", drained, drained | self.draining) | mutant(
            "producer.peer_waits_for_all", empty, ~settle.any() & ~self.draining.any()
        )
        m.d.sync += [
            # A newly listed close makes its peer wait for "drained" once more: closes are finite,
            # so this ends.
            drained.eq(
                seen & lists.filled & mutant("producer.close_read_early", ~listed, lists.filled)
            ),
            self.ready.eq(
                mutant("producer.ready_after_the_last", lists.filled, -1) & shown & ~listed
            ),
            asked.eq(self.ledger_flush),
            flushing.eq(self.ledger_flush | (flushing & (asked | self.ledger_flushing))),
        ]
        m.d.comb += self.ledger_flush.eq(~flushing & (drained & ~shown).any())
        with m.If(self.ledger_flush):
            m.d.sync += caught.eq(drained & ~listed)
        with m.Else():
            m.d.sync += caught.eq(caught & ~listed)
        done = flushing & ~asked & ~self.ledger_flushing
        flushed = mutant("producer.ledger_not_flushed", Mux(done, caught, 0), drained)
        m.d.sync += shown.eq((shown | flushed) & lists.filled & ~listed)
