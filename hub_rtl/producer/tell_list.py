# SPDX-License-Identifier: Apache-2.0
"""TellList: accepted tells wait here, listed by peer, until a NEWS packet takes them."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import SENT16
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.contract.records import types_of
from hub_rtl.parts.multi_queue import MultiQueue
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue

from .records import producer_types_of

__all__ = ["TellList"]

PATIENCE = 64  # cycles that a tell waits for others to its peer


class TellListObserve(NamedTuple):
    """What a proof may see of a :class:`TellList`: its storage."""

    lists: MultiQueue  #: per peer, the tells to be sent; a node is a destination
    promises: Ram  #: by destination, bytes / 16
    announces: RegisterQueue  #: tells that the ledger does not have yet


class TellList(wiring.Component):
    """Keeps one list of tells per peer, in memory, and tells the ledger of each.

    Contract: a tell that is taken is given to the ledger and listed, both once. A peer's list is
    ``ready`` after ``urge``, when the last 16 tells were all for it, or 64 cycles after it began to
    wait, until it is empty; ``filled`` lists may be popped, ready or not. A destination is told
    again only after its node was popped.

    Latency: a tell is listed in the cycle after it comes, and may be popped 3 cycles later;
    ``popped`` 2 cycles after ``pop``, ``bytes16`` 2 cycles after that, held until the next; pops at
    least 3 cycles apart. Order per peer is kept. ``i_tell`` waits for pops and for the ledger.

    Parameters: ``cfg``. Ports: ``i_tell`` In stream(``tell``); ``o_announce`` Out
    stream(``ledger_announce``); ``busy`` Out, the ledger does not have all yet, or a list does not
    show it; ``urge`` In strobe: what is listed goes; ``filled``, ``ready`` Out ``ranks``; ``pop``
    In {en, rank}; ``popped`` Out {en, dest, body}; ``bytes16`` Out.
    """

    observe: TellListObserve  # once elaborated

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i_tell": In(stream.Signature(own.tell)),
                "o_announce": Out(stream.Signature(own.ledger_announce)),
                "busy": Out(1),
                "urge": In(1),
                "filled": Out(cfg.ranks),
                "ready": Out(cfg.ranks),
                "pop": In(types_of(cfg).rank_strobe),
                "popped": Out(own.popped),
                "bytes16": Out(SENT16),
            }
        )
        self._cfg, self._body = cfg, own.news_body

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.lists = lists = MultiQueue(self._body, cfg.ranks, cfg.dests)
        m.submodules.promises = promises = Ram(SENT16, cfg.dests)
        announce = producer_types_of(cfg).ledger_announce
        m.submodules.announces = announces = RegisterQueue(announce, 2)
        self.observe = TellListObserve(lists, promises, announces)
        wiring.connect(m, announces.o, wiring.flipped(self.o_announce))
        tell = self.i_tell.payload
        append = lists.append
        told = Signal()
        recent = Signal(2)
        m.d.comb += [
            self.i_tell.ready.eq(lists.may_append & announces.i.ready),
            told.eq(self.i_tell.valid & self.i_tell.ready),
            announces.i.valid.eq(told),
            announces.i.payload.dest.eq(tell.dest),
            announces.i.payload.bank.eq(tell.epoch[0]),
            announces.i.payload.turn.eq(tell.epoch[1]),
            announces.i.payload.bytes16.eq(tell.bytes16),
            append.en.eq(told),
            append.queue.eq(tell.target.rank),
            append.node.eq(tell.dest),
            append.body.region.eq(tell.target.region),
            append.body.epoch.eq(tell.epoch),
            promises.w_en.eq(told),
            promises.w_addr.eq(tell.dest),
            promises.w_data.eq(tell.bytes16),
            self.busy.eq(self.i_tell.valid | announces.o.valid | recent.any()),
            lists.pop.en.eq(self.pop.en),
            lists.pop.queue.eq(self.pop.rank),
            self.popped.en.eq(lists.popped.en),
            self.popped.dest.eq(lists.popped.node),
            self.popped.body.eq(lists.popped.body),
            promises.r_en.eq(lists.popped.en),
            promises.r_addr.eq(lists.popped.node),
        ]
        m.d.sync += [
            recent.eq(recent << 1 | told),  # until ``filled`` shows it
            self.bytes16.eq(promises.r_data),
            self.filled.eq(lists.filled),
        ]
        self._urge(m, lists.filled, told, tell.target.rank)
        return m

    def _urge(self, m, filled, told, rank):
        """Whose list goes."""
        urged = Signal(self._cfg.ranks)
        age = Signal(range(PATIENCE))
        last = Signal(self._cfg.rank_width)
        run = Signal(range(NEWS_ENTRIES))  # tells for ``last`` in a row, less one
        full = Signal()
        goes = Signal()
        late = Signal()
        m.d.comb += [
            late.eq(mutant("producer.tells_wait_for_urge", age == PATIENCE - 1, 0)),
            goes.eq(self.urge | late),
            full.eq(told & (rank == last) & (run == NEWS_ENTRIES - 2)),
        ]
        m.d.sync += [
            age.eq(Mux((filled & ~urged).any() & ~late, age + 1, 0)),
            urged.eq(
                mutant("producer.list_unready_while_filled", urged, 0) & filled
                | (Mux(goes, filled, 0) | (full << rank)) & filled
            ),
            self.ready.eq(urged & filled),
        ]
        with m.If(told):
            m.d.sync += [
                last.eq(rank),
                run.eq(Mux((rank == last) & ~full, run + 1, 0)),
            ]
