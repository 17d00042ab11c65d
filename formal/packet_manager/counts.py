# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager about what its entries count, and about stores that wait for a
place."""

from amaranth import Array, Cat, Mux, Signal

from .entries import ManagerSpec
from .parts import look_into, peek

__all__ = ["BytesAreCounted", "RoomIsMade"]


class BytesAreCounted(ManagerSpec):
    """The packet of an arbitrary entry has exactly the bytes that its stores wrote, tells which of
    its 16-byte units have bytes and which have all, and is ``.nop`` only if all stores were; it
    counts as full exactly if they wrote every byte below ``full``, else as partial, and as timed
    out if its merge timer had expired too. Every store that joins an entry counts as a merge, and
    as an overlap exactly if it wrote a byte that was there. The other counters follow their
    strobes.

    ``full`` of a store is a whole number of units and its bytes lie below (``decoder.places``,
    ``decoder.reasons``); the stores of one entry name the same one, as the geometry of a busy
    region stands still (``hub.geometry_of_busy_region_stays``).
    """

    def specify(self, m, dut):
        cfg, pool, write, locked = self._cfg, self.pool, self.pool.write, self.memory.locked
        stored, inner, offered = look_into(self.memory), look_into(pool), dut.i_store.p
        entry = self.constant(write.index.shape(), "entry")
        mine = write.en & (write.index == entry)

        def beyond(store):
            """The store has a byte at or above its ``full``."""
            bytes_of = Signal(cfg.packet_bytes)
            m.d.comb += bytes_of.word_select(store.sector, 32).eq(store.mask)
            return Cat(bytes_of[n] & (store.full <= n) for n in range(cfg.packet_bytes)).any()

        def in_units(full):
            return (full[:4] == 0) & (full <= cfg.packet_bytes) & (full != 0)

        self.suppose("blocks are whole units", in_units(offered.full), when=dut.i_store.valid)
        self.suppose("bytes lie in their block", ~beyond(offered), when=dut.i_store.valid)

        # The books: bytes of the entry, whether all stores were .nop, how long its block is.
        mask, length = (
            Signal(cfg.packet_bytes, name="books_mask"),
            Signal(cfg.bytes_width, name="books_length"),
        )
        nop, overlaps = Signal(name="books_nop"), Signal()
        kept, placed = Signal(cfg.packet_bytes), Signal(cfg.packet_bytes)
        m.d.comb += [
            kept.eq(Mux(write.fresh, 0, mask)),
            placed.word_select(write.sector, 32).eq(write.mask),
        ]
        cls = inner.store.cls
        with m.If(mine):
            m.d.sync += [
                mask.eq(kept | placed),
                nop.eq((nop | write.fresh) & cls),
                length.eq(write.full),
            ]
        self.suppose(
            "stores of an entry name one length", write.full == length, when=mine & ~write.fresh
        )
        m.d.sync += overlaps.eq(mine & (placed & kept).any())
        reached = Signal()
        m.d.comb += reached.eq(Cat(mask[n] | (length <= n) for n in range(cfg.packet_bytes)).all())

        there, just = pool.valid.bit_select(entry, 1), self.just & (locked.index == entry)
        self.always("packet has the bytes written", locked.mask == mask, when=just)
        units = [mask.word_select(n, 16) for n in range(len(locked.some))]
        some, whole = Cat(unit.any() for unit in units), Cat(unit.all() for unit in units)
        self.always("units with bytes told", locked.some == some, when=just)
        self.always("whole units told", locked.all == whole, when=just)
        self.always("class is the higher one", locked.nop == nop, when=just)
        counts = dut.counts
        was_just, was_reached, was_expired = (
            self.past(each, name)
            for each, name in (
                (self.past(just, "was_locked_before"), "was_just"),
                (reached, "was_reached"),
                (pool.expired.bit_select(entry, 1), "was_expired"),
            )
        )
        self.always(
            "full packets counted",
            (counts.packets_full == was_reached)
            & (counts.packets_partial == ~was_reached)
            & (counts.packets_timeout == (was_expired & ~was_reached)),
            when=was_just,
        )
        self.always("merges counted", counts.merges == self.past(write.en & ~write.fresh, "joined"))
        was_mine = self.past(
            self.past(self.past(mine, "was_mine"), "was_mine_before"), "was_mine_then"
        )
        self.always(
            "overlaps counted",
            counts.overlaps == self.past(self.past(overlaps, "overlapped"), "overlapped_before"),
            when=was_mine,
        )
        packets = counts.packets_full | counts.packets_partial | counts.packets_timeout
        was_lock = self.past(self.past(self.just, "was_locked"), "was_lock")
        self.always("no packet counted without a lock", ~packets, when=~was_lock)
        self.always("sunk entries counted", counts.sunk == self.past(self.sink.en, "sank"))
        self.always("stalls counted", counts.stall_pool == self.past(pool.stalled, "stalled"))
        self.always(
            "waits for credit counted",
            counts.stall_credit == self.past(self.inner.selector.starved, "starved"),
        )

        # Helpers: the books against the memories. A store is late, then last, then in all of them.
        late, last = stored.late, stored.last
        at, then = late.en & (late.index == entry), last.en & (last.index == entry)
        done, unit_ram = (getattr(stored.m.submodules, name) for name in ("done", "units"))
        sectors, books = Array(inner.sectors)[entry], self.past(mask, "books_before")
        wanted = length[4:]

        def units_of(of, n):
            return [of.word_select(2 * n + half, 16) for half in (0, 1)]

        def pair_of(of, n):
            return Cat(
                *(unit.any() for unit in units_of(of, n)), *(unit.all() for unit in units_of(of, n))
            )

        def done_of(of, n):
            return Cat(
                unit.all() | (wanted <= 2 * n + half) for half, unit in enumerate(units_of(of, n))
            ).all()

        for n in range(cfg.packet_sectors):
            word, here, there_then = (
                mask.word_select(n, 32),
                at & (late.sector == n),
                then & stored.onehot[n],
            )
            part, block = (
                peek(m, ram, entry).word_select(n, 32) for ram in (stored.mask, stored.block_mask)
            )
            self.lemma(f"no byte without sector {n}", word == 0, when=there & ~sectors[n])
            self.lemma(
                f"masks stored {n}",
                (part == word) & (block == word),
                when=there & sectors[n] & ~here,
            )
            self.lemma(
                f"mask on its way {n}", (stored.new_mask == word) & sectors[n], when=there & here
            )
            self.lemma(
                f"units on their way {n}",
                stored.pair.as_value() == pair_of(books, n),
                when=there & there_then,
            )
            known = there & sectors[n] & ~here & ~there_then
            self.lemma(
                f"units stored {n}",
                peek(m, unit_ram, entry).word_select(n, 4) == pair_of(mask, n),
                when=known,
            )
            self.lemma(
                f"sector done {n}",
                peek(m, done, entry).bit_select(n, 1) == done_of(mask, n),
                when=known,
            )
        self.lemma(
            "sector of the late write",
            stored.again == (late.had & (1 << late.sector)),
            when=late.en,
        )
        self.lemma(
            "length of the late write",
            (late.full == length) & ((late.had | (1 << late.sector)) == sectors),
            when=there & at,
        )
        self.lemma("length in units", in_units(length), when=there)
        self.lemma(
            "store in its block",
            in_units(inner.store.full) & ~beyond(inner.store),
            when=inner.waits,
        )
        self.lemma(
            "bytes in their block",
            ~Cat(mask[n] & (length <= n) for n in range(cfg.packet_bytes)).any(),
            when=there,
        )
        # What the pool knows of it, two cycles after a store, one after: nothing of a new entry.
        reached_then, seen = Signal(), Signal()
        begins = mine & write.fresh
        m.d.sync += [
            reached_then.eq(reached & ~begins),
            seen.eq(reached_then & ~begins),
        ]
        self.lemma("full is known", pool.full.bit_select(entry, 1) == seen, when=there)
        full = self.memory.full
        self.lemma(
            "full is on its way",
            ((full.en & (full.index == entry)) | seen) == reached_then,
            when=there,
        )
        self.always("class is known", pool.nop.bit_select(entry, 1) == nop, when=there)
        self.always("store has a byte", inner.store.mask.any(), when=inner.waits)
        self.matches_mean_equal_blocks()


class RoomIsMade(ManagerSpec):
    """``i_store`` stalls only while a store has neither an open entry of its block nor a place.
    While it waits and no entry that could make room is being sent or has just left, each of them is
    eligible in the next cycle: any entry, or any of its rank if that is at its maximum. An entry
    that expires, grows old or is marked is eligible in the next cycle; a full one, one cycle after
    the memories tell it (``packet_manager.bytes_counted``); nothing else is eligible, partial
    entries in particular not for the sake of a store that finds a place as soon as the entry that
    has just left is counted.
    """

    def specify(self, m, dut):
        pool, quota = self.pool, self.quota
        inner = look_into(pool)
        entry = self.constant(pool.write.index.shape(), "entry")

        def of(bits):
            return bits.bit_select(entry, 1)

        others = Cat(
            pool.valid[n] & (~quota.at_max | (inner.ranks[n] == inner.store.rank))
            for n in range(len(pool.valid))
        )
        self.always(
            "stalls only for a place",
            inner.waits & ~quota.place & ~pool.write.en,
            when=~dut.i_store.ready,
        )
        there = of(pool.valid) & ~of(pool.locked)
        coming = (others & pool.locked) | (
            self.just_freed
            & Cat(~quota.at_max | (rank == inner.store.rank) for rank in inner.ranks)
        )
        makes_room = self.past(pool.stalled & (coming == 0) & of(others), "makes_room")
        self.always(
            "room is made",
            of(pool.eligible),
            when=makes_room & there & self.past(of(pool.valid), "was_there"),
        )
        visit, new = (
            pool.visit,
            self.past(pool.write.en & pool.write.fresh & (pool.write.index == entry), "is_new"),
        )
        visited = visit.en & (visit.index == entry)
        turns = self.past(visited & (visit.expired | visit.old) & of(pool.valid), "turns")
        self.always("expired and old ones leave", of(pool.eligible), when=turns & there)
        full = self.memory.full
        fills = self.past(full.en & (full.index == entry), "fills")
        self.always("full ones leave", of(pool.eligible), when=fills & there & ~new)
        self.always(
            "marked ones leave",
            of(pool.eligible),
            when=there
            & self.past(of(pool.valid) & self.dut.mark.en & self.dut.mark.all, "all_marked"),
        )
        reasons = of(pool.full | pool.expired | pool.old | pool.marked) | self.past(
            pool.stalled & (coming == 0), "was_stalled"
        )
        self.always("nothing else leaves", there & reasons, when=of(pool.eligible))
        were = {
            name: self.past(getattr(pool, name), f"were_{name}")
            for name in ("valid", "old", "full", "nop", "plain")
        }
        self.always(
            "entries grow no worse",
            of((~were["old"] | pool.old) & (~were["full"] | pool.full) & (were["nop"] | ~pool.nop)),
            when=of(were["valid"]),
        )
        self.always(
            "entries stay what they are",
            (of(were["plain"]) == of(pool.plain))
            & (
                Cat(Array(pool.rowid)[entry], Array(pool.rank_onehot)[entry])
                == self.past(
                    Cat(Array(pool.rowid)[entry], Array(pool.rank_onehot)[entry]), "were_identity"
                )
            ),
            when=of(were["valid"]),
        )
        self.always(
            "a new entry is not old, full or expired",
            ~of(pool.full | pool.expired | pool.old | pool.locked),
            when=new,
        )
        self.matches_mean_equal_blocks()
