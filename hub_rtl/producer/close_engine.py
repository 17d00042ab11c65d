# SPDX-License-Identifier: Apache-2.0
"""CloseEngine: accepted closes wait here, listed by peer, until their bytes are out and a NEWS
packet may go."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import EPOCH, NEWS_COUNT, UNIT
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.multi_queue import MultiQueue
from hub_rtl.parts.mutants import mutant, variant
from hub_rtl.parts.onehot import encode
from hub_rtl.parts.ram_queue import RamQueue

from .ledger import LEDGER_CYCLES
from .news import NewsPacker
from .records import producer_types_of

__all__ = ["CloseEngine", "sum_cycles"]

ADDED = 4  # totals that are added in one cycle


def sum_cycles(cfg):
    """Cycles from the read of the ledgers to the sum of their totals."""
    cycles, parts = LEDGER_CYCLES, cfg.slices
    while parts > 1:
        cycles, parts = cycles + 1, -(-parts // ADDED)
    return cycles


class CloseEngineObserve(NamedTuple):
    """What a proof may see of a :class:`CloseEngine`: its storage."""

    lists: MultiQueue  #: per peer, the closes to be sent; a node is (dest, bank)
    queue: RamQueue  #: staged closes
    packer: NewsPacker  #: entries on their way to a packet


class CloseEngine(wiring.Component):
    """Keeps one list of pending closes per peer, in memory, and sends from those peers that are
    ready, up to 16 closes to a packet.

    Contract: a close staged before ``release`` is sent exactly once, after its peer's ``draining``
    was seen 0 once since it was listed, as an entry with tell and close and the sum of all ledgers'
    totals of (dest, epoch[0]), which are cleared by the same reads. A dead peer's closes are
    counted and dropped, their totals cleared. ``unpend`` follows the clearing reads. A packet's
    data credit is claimed before its first close is read, so a packet that is packed waits for
    nothing but its lane.

    Latency: 10 cycles + log4(slices), rounded up, from the choice of a peer with one close to
    ``o_news``; one close per 3 cycles, a packet 4 more. One replica is listed per cycle; nobody is
    chosen meanwhile, so that packets get full.

    Order: per peer as staged; peers round-robin, each for a packet. A peer that drains, has no
    credit or is slow holds up only its own list.

    Parameters: ``cfg``. Ports: ``i_close`` In stream(``staged_close``), never stalls;
    ``release`` In, staged closes may be listed; ``staged`` Out, some are not listed yet;
    ``draining`` In ``ranks``, of all packet managers; ``peer_dead`` In ``ranks``; ``wanted`` Out
    ``ranks``, a packet waits for a data credit; ``may_send`` In ``ranks``, it is there; ``claim``
    Out {en, rank}, it is taken: only if both bits were set in the cycle before; ``ledger_read`` Out
    record ``ledger_read``, ``ledger_total`` In, one per slice; ``unpend`` Out {valid, index, bank},
    ``unpend_granted`` In; ``o_news`` Out stream(flit), one packet per claim; ``pending`` Out
    ``ranks``: closes are listed; ``sent``, ``dropped`` Out strobes, per close.
    """

    observe: CloseEngineObserve  # once elaborated

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i_close": In(stream.Signature(own.staged_close)),
                "release": In(1),
                "staged": Out(1),
                "draining": In(cfg.ranks),
                "peer_dead": In(cfg.ranks),
                "wanted": Out(cfg.ranks),
                "may_send": In(cfg.ranks),
                "claim": Out(types_of(cfg).rank_strobe),
                "ledger_read": Out(own.ledger_read),
                "ledger_total": In(cfg.total_width).array(cfg.slices),
                "unpend": Out(own.unpend),
                "unpend_granted": In(1),
                "o_news": Out(stream.Signature(types_of(cfg).flit)),
                "pending": Out(cfg.ranks),
                "sent": Out(1),
                "dropped": Out(1),
            }
        )
        self._cfg = cfg
        #: What is kept of a pending close; its node number is dest and bank.
        self._body = data.StructLayout({"region": cfg.region_width, "epoch": EPOCH})
        #: A close that was read, or the end of its packet; ``drop``: there is no packet.
        self._job = data.StructLayout(
            {"valid": 1, "end": 1, "drop": 1, "rank": cfg.rank_width, "body": self._body}
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.lists = lists = MultiQueue(self._body, cfg.ranks, 2 * cfg.dests)
        m.submodules.packer = packer = NewsPacker(cfg)
        wiring.connect(m, packer.o_news, wiring.flipped(self.o_news))
        m.d.comb += self.pending.eq(lists.filled)
        queue = self._list(m, lists)
        self.observe = CloseEngineObserve(lists, queue, packer)
        ready = self._ready(m, lists)
        batch = Signal(data.StructLayout({"busy": 1, "drop": 1, "rank": cfg.rank_width}))
        self._choose(m, ready, batch, packer, queue.o.valid & self.release)
        job = self._take(m, lists, ready, batch)
        self._read(m, lists.popped)
        self._send(m, job, packer)
        return m

    def _list(self, m, lists):
        """Takes staged closes apart into replicas and appends each to the list of its peer.
        Returns their queue."""
        cfg = self._cfg
        m.submodules.queue = queue = RamQueue(producer_types_of(cfg).staged_close, cfg.handles)
        wiring.connect(m, wiring.flipped(self.i_close), queue.i)
        close, append = queue.o.payload, lists.append
        go, listing = Signal(), Signal()
        m.d.comb += [
            go.eq(queue.o.valid & self.release & lists.may_append),
            append.en.eq(go),
            append.body.epoch.eq(close.epoch),
            self.staged.eq(queue.o.valid | listing),
        ]
        m.d.sync += listing.eq(go)  # until `filled` shows it
        if cfg.replicas == 1:
            pair, dest, last = close.replica[0], close.index, 1
        else:
            which = Signal(ceil_log2(cfg.replicas))
            pair, dest, last = (
                close.replica[which],
                Cat(which, close.index),
                which == (1 << close.log2_replicas) - 1,
            )
            with m.If(go):
                m.d.sync += which.eq(Mux(last, 0, which + 1))
        m.d.comb += [
            queue.o.ready.eq(go & last),
            append.queue.eq(pair.rank),
            append.body.region.eq(pair.region),
            append.node.eq(Cat(close.epoch[0], dest)),
        ]
        return queue

    def _ready(self, m, lists):
        """The peers with closes that were listed before a cycle in which they did not drain; it may
        be used from the third cycle after a pop on."""
        cfg = self._cfg
        drained, ready, listed = Signal(cfg.ranks), Signal(cfg.ranks), Signal(cfg.ranks)
        with m.If(lists.append.en):
            m.d.comb += listed.eq(1 << lists.append.queue)
        seen = mutant("producer.close_while_draining", drained, drained | self.draining) | mutant(
            "producer.peer_waits_for_all", ~self.draining, ~self.draining.any()
        )
        m.d.sync += [
            # A newly listed close makes its peer wait for "drained" once more: closes are finite,
            # so this ends.
            drained.eq(
                mutant(
                    "producer.close_read_twice",
                    seen & lists.filled & ~listed,
                    (drained | ~self.draining) & lists.filled,
                )
            ),
            ready.eq(lists.filled & drained & ~listed),
            self.wanted.eq(lists.filled & drained & ~listed & ~self.peer_dead),
        ]
        return ready

    def _choose(self, m, ready, batch, packer, listing):
        """A peer that may be served, for one packet, whose credit is claimed."""
        cfg = self._cfg
        m.submodules.arbiter = arbiter = RoundRobin(cfg.ranks)
        eligible, dead, choose = Signal(cfg.ranks), Signal(cfg.ranks), Signal()
        with_credit = mutant(
            "producer.news_without_credit", self.may_send & self.wanted, self.wanted
        )
        m.d.sync += [
            dead.eq(self.peer_dead),
            eligible.eq(ready & (self.peer_dead | with_credit)),
        ]
        m.d.comb += [
            arbiter.requests.eq(eligible & ready),
            arbiter.advance.eq(choose),
            choose.eq(arbiter.requests.any() & ~batch.busy & packer.room & ~listing),
            self.claim.en.eq(choose & ~(arbiter.grant_onehot & dead).any()),
            self.claim.rank.eq(encode(arbiter.grant_onehot)),
            packer.begin.eq(self.claim.en),
        ]
        with m.If(choose):
            m.d.sync += [
                batch.busy.eq(1),
                batch.drop.eq(~self.claim.en),
                batch.rank.eq(self.claim.rank),
            ]

    def _take(self, m, lists, ready, batch):
        """The closes of one packet leave their list, one per 3 cycles; returns them, one cycle
        after the read of the ledgers."""
        step, count, more, end = Signal(2), Signal(NEWS_COUNT), Signal(), Signal()
        m.d.comb += [
            # A close listed while the first one waits for `unpend` does not end the packet.
            more.eq(
                mutant("producer.packet_without_close", ~count.any(), 0)
                | (
                    ready.bit_select(batch.rank, 1)
                    & mutant("producer.packet_of_17_closes", count != NEWS_ENTRIES, 1)
                )
            ),
            end.eq(batch.busy & (step == 0) & ~more),
            lists.pop.en.eq(
                batch.busy & (step == 0) & more & (~self.unpend.valid | self.unpend_granted)
            ),
            lists.pop.queue.eq(batch.rank),
        ]
        with m.If(lists.pop.en | (step != 0)):
            m.d.sync += step.eq(Mux(step == 2, 0, step + 1))
        with m.If(lists.pop.en):
            m.d.sync += count.eq(count + 1)
        with m.If(end):
            m.d.sync += [
                batch.busy.eq(0),
                count.eq(0),
            ]
        job = Signal(self._job)
        m.d.sync += [
            job.valid.eq(lists.popped.en),
            job.end.eq(end),
            job.drop.eq(batch.drop),
            job.rank.eq(batch.rank),
            job.body.eq(lists.popped.body),
        ]
        return job

    def _read(self, m, popped):
        """The ledgers are read; then the handle's count of unsent closes goes down."""
        dest = popped.node[1:]
        m.d.comb += [
            self.ledger_read.en.eq(popped.en),
            self.ledger_read.clear.eq(1),
            self.ledger_read.dest.eq(dest),
            self.ledger_read.bank.eq(
                mutant("producer.total_of_other_bank", popped.node[0], popped.body.epoch[1])
            ),
        ]
        with m.If(popped.en):
            m.d.sync += [
                self.unpend.valid.eq(1),
                self.unpend.index.eq(dest >> ceil_log2(self._cfg.replicas) if len(dest) else 0),
                self.unpend.bank.eq(popped.node[0]),
            ]
        with m.Elif(self.unpend_granted):
            m.d.sync += self.unpend.valid.eq(0)

    def _send(self, m, job, packer):
        """Adds the ledgers' totals, four at a time, and gives the entry to the packer."""
        cfg = self._cfg
        for n in range(
            variant("producer.message_before_its_total", sum_cycles(cfg) - 1, sum_cycles(cfg) - 2)
        ):  # the job is one cycle behind the read
            later = Signal(self._job, name=f"job{n}")
            m.d.sync += later.eq(job)
            job = later
        parts, level = list(self.ledger_total), 0
        while len(parts) > 1:
            sums = [
                Signal(cfg.total_width, name=f"total{level}_{n}")
                for n in range(-(-len(parts) // ADDED))
            ]
            m.d.sync += [
                each.eq(sum(parts[n * ADDED : (n + 1) * ADDED])) for n, each in enumerate(sums)
            ]
            parts, level = sums, level + 1
        (total,) = parts
        entry = packer.put.entry
        m.d.comb += [
            packer.put.en.eq(job.valid & ~job.drop),
            packer.put.end.eq(job.end & ~job.drop),
            packer.put.rank.eq(job.rank),
            entry.region.eq(job.body.region),
            entry.epoch.eq(job.body.epoch),
            entry.tell.eq(1),
            entry.close.eq(1),
            entry.bytes16.eq(total[UNIT:]),
            entry.ragged.eq(total[:UNIT].any()),
            self.dropped.eq(job.valid & job.drop),
            self.sent.eq(job.valid & ~job.drop),
        ]
