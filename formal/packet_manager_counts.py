"""Promises of the packet manager about what its entries count, and about stores that wait for a place."""

from amaranth import Array, Cat, Const, Mux, Signal

from hub_rtl.pool.pool_memory import popcount

from .packet_manager import ManagerSpec
from .pool_parts import look_into, peek

__all__ = ["BytesAreCounted", "RoomIsMade"]


class BytesAreCounted(ManagerSpec):
    """The packet of an arbitrary entry has exactly the bytes that its stores wrote, counted once each, and is ``.nop`` only if
    all of them were; it counts as full exactly if its count has reached ``full`` of a store, else as partial, and as timed out
    if its merge timer had expired too. Every store that joins an entry counts as a merge, and as an overlap exactly if it wrote
    a byte that was there. The other counters follow their strobes.
    """

    def specify(self, m, dut):
        cfg, pool, write, locked = self._cfg, self.pool, self.pool.write, self.memory.locked
        stored, inner = look_into(self.memory), look_into(pool)
        entry = self.constant(write.index.shape(), "entry")
        mine = write.en & (write.index == entry)

        # The books: bytes of the entry, their number, whether it reached `full`, whether all stores were .nop.
        mask, count, reached = Signal(cfg.packet_bytes, name="books_mask"), Signal(cfg.bytes_width, name="books"), Signal()
        nop, overlaps = Signal(name="books_nop"), Signal()
        kept, placed, more = Signal(cfg.packet_bytes), Signal(cfg.packet_bytes), Signal(cfg.bytes_width)
        m.d.comb += [kept.eq(Mux(write.fresh, 0, mask)), placed.word_select(write.sector, 32).eq(write.mask),
                     more.eq(Mux(write.fresh, 0, count)
                             + popcount(write.mask & ~kept.word_select(write.sector, 32)))]
        cls = inner.store.cls
        with m.If(mine):
            m.d.sync += [mask.eq(kept | placed), count.eq(more), reached.eq((reached & ~write.fresh) | (more == write.full)),
                         nop.eq((nop | write.fresh) & cls)]
        m.d.sync += overlaps.eq(mine & (placed & kept).any())

        there, just = pool.valid.bit_select(entry, 1), self.just & (locked.index == entry)
        self.always("packet has the bytes written", locked.mask == mask, when=just)
        self.always("bytes counted once each", locked.bytes == count, when=just)
        self.always("class is the higher one", locked.nop == nop, when=just)
        counts = dut.counts
        was_just, was_reached, was_expired = (self.past(each, name) for each, name in (
            (just, "was_just"), (reached, "was_reached"), (pool.expired.bit_select(entry, 1), "was_expired")))
        self.always("full packets counted", (counts.packets_full == was_reached) & (counts.packets_partial == ~was_reached)
                    & (counts.packets_timeout == (was_expired & ~was_reached)), when=was_just)
        self.always("merges counted", counts.merges == self.past(write.en & ~write.fresh, "joined"))
        self.always("overlaps counted", counts.overlaps == self.past(overlaps, "overlapped"),
                    when=self.past(self.past(mine, "was_mine"), "was_mine_before"))
        packets = counts.packets_full | counts.packets_partial | counts.packets_timeout
        self.always("no packet counted without a lock", ~packets, when=~self.past(self.just, "was_locked"))
        self.always("sunk entries counted", counts.sunk == self.past(self.sink.en, "sank"))
        self.always("stalls counted", counts.stall_pool == self.past(pool.stalled, "stalled"))
        self.always("waits for credit counted", counts.stall_credit == self.past(self.inner.selector.starved, "starved"))

        # Helpers: the books against the memories.
        late = stored.late
        at = late.en & (late.index == entry)
        self.lemma("place of the late write", stored.late_place == Cat(late.sector, late.index))
        sectors = Array(inner.sectors)[entry]
        for n in range(cfg.packet_sectors):
            word, here = mask.word_select(n, 32), at & (late.sector == n)
            part = peek(m, stored.mask, Cat(Const(n, cfg.sector_width), entry))
            block = peek(m, stored.block_mask, entry).word_select(n, 32)
            self.lemma(f"no byte without sector {n}", word == 0, when=there & ~sectors[n])
            self.lemma(f"masks stored {n}", (part == word) & (block == word), when=there & sectors[n] & ~here)
            self.lemma(f"mask on its way {n}", (stored.new_mask == word) & sectors[n], when=there & here)
        for name in ("count", "block_count"):
            self.lemma(f"{name} stored", peek(m, getattr(stored, name), entry) == count, when=there & ~at)
        self.lemma("count on its way", stored.total == count, when=there & at)
        self.lemma("full is known", pool.full.bit_select(entry, 1) == reached, when=there & ~at)
        self.lemma("full is on its way", (pool.full.bit_select(entry, 1) | (stored.total == late.full)) == reached,
                    when=there & at)
        self.always("class is known", pool.nop.bit_select(entry, 1) == nop, when=there)
        self.always("store has a byte", inner.store.mask.any(), when=inner.waits)
        self.matches_mean_equal_blocks()


class RoomIsMade(ManagerSpec):
    """``i_store`` stalls only while a store has neither an open entry of its block nor a place. While it waits and no entry
    that could make room is being sent, each of them is eligible in the next cycle: any entry, or any of its rank if that is at
    its maximum. An entry that expires, grows old or is marked is eligible in the next cycle; a full one, one cycle after its
    last byte was merged; nothing else is eligible.
    """

    def specify(self, m, dut):
        pool, quota = self.pool, self.quota
        inner, stored = look_into(pool), look_into(self.memory)
        entry = self.constant(pool.write.index.shape(), "entry")

        def of(bits):
            return bits.bit_select(entry, 1)
        others = Cat(pool.valid[n] & (~quota.at_max | (inner.ranks[n] == inner.store.rank)) for n in range(len(pool.valid)))
        self.always("stalls only for a place", inner.waits & ~quota.place & ~pool.write.en, when=~dut.i_store.ready)
        there = of(pool.valid) & ~of(pool.locked)
        makes_room = self.past(pool.stalled & ((others & pool.locked) == 0) & of(others), "makes_room")
        self.always("room is made", of(pool.eligible), when=makes_room & there & self.past(of(pool.valid), "was_there"))
        visit, new = pool.visit, self.past(pool.write.en & pool.write.fresh & (pool.write.index == entry), "is_new")
        visited = visit.en & (visit.index == entry)
        turns = self.past(visited & (visit.expired | visit.old) & of(pool.valid), "turns")
        self.always("expired and old ones leave", of(pool.eligible), when=turns & there)
        fills = self.past(stored.late.en & (stored.late.index == entry) & (stored.total == stored.late.full), "fills")
        self.always("full ones leave", of(pool.eligible), when=fills & there & ~new)
        self.always("marked ones leave", of(pool.eligible), when=there & self.past(
            of(pool.valid) & self.dut.mark.en & self.dut.mark.all, "all_marked"))
        reasons = of(pool.full | pool.expired | pool.old | pool.marked) | self.past(pool.stalled, "was_stalled")
        self.always("nothing else leaves", there & reasons, when=of(pool.eligible))
        self.always("a new entry is not old, full or expired", ~of(pool.full | pool.expired | pool.old | pool.locked), when=new)
        # Helpers.
        for n, rank in enumerate(inner.ranks):
            self.lemma(f"rank {n} compared", inner.same_rank[n] == (rank == inner.store.rank),
                        when=inner.waits & pool.valid[n])
        self.matches_mean_equal_blocks()
