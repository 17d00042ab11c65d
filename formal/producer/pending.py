# SPDX-License-Identifier: Apache-2.0
"""A pending close from its acceptance to the read of its totals
(``hub_rtl/producer/close_engine.py``)."""

from amaranth import Cat, Mux, Signal

from .closes import _Engine
from .doubles import AnyLists, OpenLists, OpenQueue

__all__ = [
    "ClaimsHaveTheirCredit",
    "ClosesAreReadOnce",
    "EntriesTellTheClose",
    "PeersDoNotWaitForEachOther",
]


class _Pending(_Engine):
    """The engine with doubles for its queue and lists."""

    lists_like = OpenLists

    def replace(self, engine):
        self.lists = self.lists_like(engine.lists)
        OpenQueue(engine.queue)

    def follow(self, m, dut):
        """An arbitrary (handle, bank): when its close comes, when its totals are read, whether it
        waits."""
        close, read = dut.i_close.payload, dut.ledger_read
        index, bank = self.constant(self._cfg.handle_width, "index"), self.constant(1, "bank")
        self.suppose("handle exists", index < self._cfg.handles)
        self.mine = self.put & (close.index == index) & (close.epoch[0] == bank)
        self.reads = read.en & (read.dest == index) & (read.bank == bank)
        self.asks = dut.unpend.valid & (dut.unpend.index == index) & (dut.unpend.bank == bank)
        self.waiting = Signal(name="waiting")
        self.rank = Signal(self._cfg.rank_width, name="close_rank")
        with m.If(self.mine):
            m.d.sync += [
                self.waiting.eq(1),
                self.rank.eq(close.replica[0].rank),
            ]
        with m.Elif(self.reads):
            m.d.sync += self.waiting.eq(0)


class ClosesAreReadOnce(_Pending):
    """An accepted close is never stalled; its totals are read and cleared exactly once, and only
    after ``release`` and then a cycle in which its peer's ``draining`` was 0; until then it is
    staged or its peer pending. ``unpend`` follows each read, once. The lists are used as
    ``parts.multi_queue`` wants it."""

    def specify(self, m, dut):
        self.follow(m, dut)
        released, drained, owes = Signal(), Signal(), Signal()
        with m.If(self.mine):
            m.d.sync += [
                released.eq(0),
                drained.eq(0),
            ]
        with m.Elif(self.waiting):
            m.d.sync += [
                released.eq(released | dut.release),
                drained.eq(drained | (released & ~dut.draining.bit_select(self.rank, 1))),
            ]
        m.d.sync += owes.eq((owes | self.reads) & ~(self.asks & dut.unpend_granted))
        self.always("never stalled", dut.i_close.ready, when=dut.i_close.valid)
        self.always("read once", self.waiting, when=self.reads)
        self.always("read after it has drained", drained, when=self.reads)
        self.always("every read clears", dut.ledger_read.clear, when=dut.ledger_read.en)
        self.always("unpend asked from the cycle after the read until granted", self.asks == owes)
        self.always(
            "staged or pending until the read",
            dut.staged | dut.pending.bit_select(self.rank, 1),
            when=self.waiting & ~self.reads,
        )

        append, pop = self.lists.append, self.lists.pop
        recent = self.past(pop.en) | self.past(self.past(pop.en))
        self.always("a node is in one list", ~self.lists.has(append.node), when=append.en)
        self.always("append when allowed", self.lists.may_append, when=append.en)
        self.always(
            "only filled lists are popped",
            self.lists.filled.bit_select(pop.queue, 1) & ~recent,
            when=pop.en,
        )


class EntriesTellTheClose(_Pending):
    """While no peer is dead, the entries carry rank, region and epoch of the closes whose totals
    were read, in the order of the reads, one for each. Any one bit of them is followed."""

    lists_like = AnyLists

    def specify(self, m, dut):
        cfg, close, read, out = self._cfg, dut.i_close.payload, dut.ledger_read, self.entry
        self.suppose("no peer is dead", dut.peer_dead == 0)

        def told(rank, region, epoch):
            return Cat(rank[: cfg.rank_width], region[: cfg.region_width], epoch[:4]).bit_select(
                bit, 1
            )

        bit = self.constant(range(cfg.rank_width + cfg.region_width + 4), "bit")
        known = Signal(2 * cfg.handles)  # that bit of each close, by handle and bank
        with m.If(self.put):
            m.d.sync += known.bit_select(Cat(close.epoch[0], close.index), 1).eq(
                told(close.replica[0].rank, close.replica[0].region, close.epoch)
            )
        self.always_fifo(
            "message",
            read.en,
            known.bit_select(Cat(read.bank, read.dest), 1),
            self.sent,
            told(self.packer.put.rank, out.region, out.epoch),
            most=2,
        )


class PeersDoNotWaitForEachOther(_Pending):
    """A peer with pending closes that does not drain and is shown a credit is chosen within 3
    cycles for each close that others may have and 8 more for each peer, whatever the other peers
    are like: dead, draining, or without credits.

    Counted while nothing is listed, ``unpend`` is granted at once, and the packer has room."""

    def specify(self, m, dut):
        cfg, peer = self._cfg, self.constant(self._cfg.rank_width, "peer")
        self.suppose("peer exists", peer < cfg.ranks)

        def of(bits):
            return bits.bit_select(peer, 1)

        may = of(dut.may_send & ~dut.peer_dead)
        free = ~dut.release & (dut.unpend.valid == dut.unpend_granted) & self.packer.room
        most = 3 * 2 * cfg.dests + 8 * cfg.ranks
        waits, chosen = Signal(range(most + 2)), dut.claim.en & (dut.claim.rank == peer)
        m.d.sync += waits.eq(
            Mux(of(dut.pending) & ~of(dut.draining) & may & free & ~chosen, waits + 1, 0)
        )
        self.always("served in turn", waits <= most)
        self.reach("another first", waits > 8)


class ClaimsHaveTheirCredit(_Pending):
    """A credit is claimed only for a rank that wanted one and was shown one in the cycle before,
    and while the packer has room. Each claim begins a packet of 1 to 16 entries, which ends for
    that rank, in the order of the claims. Every read is followed by one entry or, of a dead peer,
    one drop."""

    lists_like = AnyLists

    def specify(self, m, dut):
        packer, claim, past = self.packer, dut.claim, self.past
        put = packer.put
        self.always(
            "claimed with a credit",
            past(dut.wanted & dut.may_send).bit_select(claim.rank, 1) & packer.room,
            when=claim.en,
        )
        self.always("a claim begins a packet", packer.begin == claim.en)
        self.always_fifo("packet", claim.en, claim.rank, put.end, put.rank, most=3)
        count = Signal(5)
        m.d.sync += count.eq(Mux(put.end, 0, count + put.en))
        self.always("an end comes alone, after an entry", ~put.en & (count != 0), when=put.end)
        self.always("at most 16 entries", count != 16, when=put.en)
        inside = Signal(4)
        m.d.sync += inside.eq(inside + dut.ledger_read.en - self.sent - dut.dropped)
        self.always("an entry or a drop for every read", inside != 0, when=self.sent | dut.dropped)
        self.always("at most two inside", inside <= 2)
