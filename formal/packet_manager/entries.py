# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager (``hub_rtl/packet_manager/packet_manager.py``) about stores that
merge: pool and memories together."""

from amaranth import Array, Cat, Const, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.spec import Spec
from hub_rtl.packet_manager.packet_manager import PacketManager

from .parts import look_into, peek

__all__ = ["BytesMerge", "DrainingEnds", "FencesAreExact", "ManagerSpec"]


class ManagerSpec(Spec):
    """The packet manager with a free choice of what leaves and when: what holds here holds for
    every order.

    Selector, scanner, quota and emitter are cut out. Of them is supposed only what holds in the
    whole: an entry that is locked is there, not locked yet, and not in its first cycle; an entry
    that is sunk is there and neither locked nor being locked, and gives way to a release; releases
    and fetches are of locked entries; a place is an entry that was free in the cycle before.
    """

    def build(self, m):
        m.submodules.dut = self.dut = dut = PacketManager(self._cfg)
        self.inner = inner = look_into(dut)
        self.pool, self.memory, quota, timer = inner.pool, inner.memory, inner.quota, inner.timer
        self.types = dut._types
        self.free_inputs(dut)
        for part in (quota, inner.emitter):
            cut(self, part)
        cut(self, timer, but=("sinks",))
        cut(self, inner.selector, but=("lock_onehot", "locking", "take"))
        lock, sink, release, pool = (
            inner.selector.lock,
            timer.sink,
            inner.emitter.release,
            self.pool,
        )
        gone = Signal(self._cfg.pool_depth)
        self.free(gone)
        m.d.comb += [
            inner.selector.lock_onehot.eq(Mux(lock.en, 1 << lock.index, 0)),
            inner.selector.take.en.eq(lock.en),
            inner.selector.locking.eq(inner.selector.lock_onehot | (gone & ~pool.valid)),
            inner.selector.take.rank.eq(0),
            timer.sinks.eq(Mux(sink.en, 1 << sink.index, 0)),
        ]
        there = pool.valid & ~pool.locked
        self.just = self.past(lock.en, "just")
        self.suppose("locks what is there", there.bit_select(lock.index, 1), when=lock.en)
        opened, opened_index = (
            self.past(pool.opens.en, "was_opened"),
            self.past(pool.opens.index, "opened_index"),
        )
        self.suppose(
            "locks nothing in its first cycle", ~opened | (opened_index != lock.index), when=lock.en
        )
        self.suppose(
            "sinks what is there",
            there.bit_select(sink.index, 1) & ~release.en & ~(lock.en & (lock.index == sink.index)),
            when=sink.en,
        )
        self.suppose(
            "releases what is locked",
            (pool.valid & pool.locked).bit_select(release.index, 1),
            when=release.en,
        )
        fetch = inner.emitter.fetch
        self.suppose(
            "fetches what is locked",
            (pool.valid & pool.locked).bit_select(fetch.index, 1),
            when=fetch.en,
        )
        self.just_freed = self.past(pool.freed, "just_freed")
        self.suppose(
            "a place is a free entry", ~(pool.valid | self.just_freed).all(), when=quota.place
        )
        self.lock, self.sink, self.release, self.quota, self.emitter = (
            lock,
            sink,
            release,
            quota,
            inner.emitter,
        )
        self.specify(m, dut)

    def matches_mean_equal_blocks(self):
        """Helpers for any promise that follows a store into its entry."""
        pool, inner = self.pool, look_into(self.pool)
        there = pool.valid & ~pool.locked
        self.lemma("opened is there and not locked", inner.opened == there)
        free = ~(pool.valid | self.just_freed)
        self.lemma(
            "next entry is the first free one",
            inner.free_entry == (free & (~free + 1))[: len(free)],
        )
        self.lemma("its number", inner.free_entry == Mux(free.any(), 1 << inner.free_index, 0))
        for n in range(self._cfg.pool_depth):
            for k in range(n):
                self.lemma(
                    f"blocks of {k} and {n} differ",
                    (inner.keys[k] != inner.keys[n])
                    | (pool.plain[k] != pool.plain[n])
                    | (inner.ranks[k] != inner.ranks[n]),
                    when=there[k] & there[n],
                )
            equal = (
                (inner.key == inner.keys[n])
                & (inner.store.rank == inner.ranks[n])
                & (inner.store.plain == pool.plain[n])
            )
            match = inner.equal_tag[n] | (inner.front & inner.was_new[n])
            self.lemma(f"match {n}", (match & inner.tries) == (equal & inner.waits & there[n]))
            self.lemma(
                f"was new {n}", inner.was_new[n] == (inner.claimed & (inner.last_index == n))
            )
            self.lemma(f"new is there {n}", there[n], when=inner.was_new[n])
            self.lemma(f"lock only what is there, {n}", pool.valid[n], when=pool.locked[n])


class BytesMerge(ManagerSpec):
    """Every accepted store with a byte is written into one entry, once, in order. For an arbitrary
    byte of an arbitrary block (row or address): stores to it go to the one unlocked entry of its
    block, or open a new one; the next packet of that block has the byte exactly if a store to it
    came since the packet before, with the value of the newest one, which the memory holds until the
    packet's end and shows when it is fetched; and until then the entry stays, unless it is sunk.
    Payload and identity are never read in the cycle in which they are written.

    With ``packet_manager.packets_are_entries``, which takes over at the lock, this is: no byte is
    lost, doubled, invented or altered, and two stores to one place leave in order. Blocks of rows
    are short enough for the longest row, as the decoder checks.
    """

    def specify(self, m, dut):
        cfg, pool, memory, depth = self._cfg, self.pool, self.memory, self._cfg.pool_depth
        inner, stored = look_into(pool), look_into(memory)
        offered, write = dut.i_store.p, pool.write
        self.suppose(
            "blocks of rows are short",
            offered.block >> cfg.row_block_width == 0,
            when=dut.i_store.valid & ~offered.plain,
        )

        # From the port to the entry: one store at a time, as it came.
        accepted = dut.i_store.valid & dut.i_store.ready
        waits, store = Signal(name="inside"), Signal(self.types.resolved, name="store")
        m.d.sync += waits.eq(Mux(accepted, offered.mask.any(), waits & ~write.en))
        with m.If(accepted):
            m.d.sync += store.eq(offered)
        self.always("only accepted stores are written", waits, when=write.en)
        self.always("accepted only where there is room", ~waits | write.en, when=accepted)
        self.always(
            "written as it came",
            (write.data == store.data)
            & (write.mask == store.mask)
            & (write.sector == store.sector)
            & (write.full == store.full),
            when=write.en,
        )

        # An arbitrary block and byte.
        tag, place = (
            self.constant(self.types.info, "tag"),
            self.constant(5 + cfg.sector_width, "place"),
        )
        self.suppose(
            "block of a row is short", tag.block >> cfg.row_block_width == 0, when=~tag.plain
        )

        def same(other):
            return (
                (other.plain == tag.plain)
                & (other.rank == tag.rank)
                & (other.block == tag.block)
                & (
                    tag.plain
                    | (
                        (other.region == tag.region)
                        & (other.epoch == tag.epoch)
                        & (other.rowid == tag.rowid)
                    )
                )
            )

        byte, sector = place[:5], place[5:]
        hits_byte = write.en & (write.sector == sector) & write.mask.bit_select(byte, 1)

        # What each entry has of that byte (of its own block), and which entries are of the followed
        # block.
        has, value = Signal(depth, name="has"), [Signal(8, name=f"value_{n}") for n in range(depth)]
        infos = [Signal(self.types.info, name=f"info_{n}") for n in range(depth)]
        for n in range(depth):
            m.d.comb += infos[n].eq(peek(m, stored.info, n))
            with m.If(write.en & (write.index == n)):
                m.d.sync += has[n].eq(hits_byte | (has[n] & ~write.fresh))
                with m.If(hits_byte):
                    m.d.sync += value[n].eq(write.data.word_select(byte, 8))
        ours = Cat(pool.valid[n] & same(infos[n]) for n in range(depth))
        unlocked = ours & ~pool.locked

        # The books of the followed byte: stored since the last lock of its block, and its newest
        # value.
        unsent, newest = Signal(name="unsent"), Signal(8, name="newest")
        locks_ours = self.lock.en & ours.bit_select(self.lock.index, 1)
        sinks_ours = self.sink.en & ours.bit_select(self.sink.index, 1)
        ours_written = write.en & same(store)
        with m.If(sinks_ours):  # with a store that joins in this very cycle
            m.d.sync += unsent.eq(0)
        with m.Elif(ours_written & hits_byte):
            m.d.sync += [
                unsent.eq(1),
                newest.eq(write.data.word_select(byte, 8)),
            ]
        with m.Elif(locks_ours):
            m.d.sync += unsent.eq(0)

        locked, being_locked = memory.locked, Mux(self.lock.en, 1 << self.lock.index, 0)
        self.always("one unlocked entry of a block", (unlocked & (unlocked - 1)) == 0)
        self.always(
            "a store goes to the entry of its block",
            (unlocked & ~being_locked).bit_select(write.index, 1),
            when=ours_written & ~write.fresh,
        )
        self.always(
            "a new entry only where none is open",
            (unlocked & ~being_locked) == 0,
            when=ours_written & write.fresh,
        )
        self.always(
            "a new entry was free",
            ~pool.valid.bit_select(write.index, 1),
            when=write.en & write.fresh,
        )
        self.always(
            "other stores go elsewhere",
            ~ours.bit_select(write.index, 1),
            when=write.en & ~write.fresh & ~same(store),
        )
        self.always(
            "locked entries are not written",
            ~(pool.locked | being_locked).bit_select(write.index, 1),
            when=write.en,
        )
        self.always("not lost", (unlocked & has).any(), when=unsent)
        self.always("not invented", ~(unlocked & has).any(), when=~unsent)
        was_ours, was_unsent, was_newest = (
            self.past(each, name)
            for each, name in (
                (locks_ours, "was_ours"),
                (unsent, "was_unsent"),
                (newest, "was_newest"),
            )
        )
        self.always("packet is of its block", same(locked.info), when=was_ours)
        self.always(
            "packet of another block is not", ~same(locked.info), when=self.just & ~was_ours
        )
        self.always(
            "packet has the byte", locked.mask.bit_select(place, 1) == was_unsent, when=was_ours
        )
        self.always(
            "packet has the newest value",
            Array(value)[locked.index] == was_newest,
            when=was_ours & was_unsent,
        )
        self.always(
            "locked entry holds",
            locked.as_value() == self.past(locked),
            when=self.started & ~self.just,
        )
        self.always(
            "packet has its sectors",
            locked.sectors.any()
            & (locked.sectors.bit_select(sector, 1) == locked.mask.word_select(sector, 32).any()),
            when=self.just,
        )
        for n in range(depth):
            word = peek(m, stored.payload, Cat(sector, Const(n, self.types.index_width)))
            self.always(f"newest value, {n}", value[n] == newest, when=unsent & unlocked[n])
            self.always(
                f"memory holds the value, {n}",
                word.word_select(byte, 8) == value[n],
                when=pool.valid[n] & has[n],
            )
        for name in ("payload", "info"):  # memories without bypass
            ram = getattr(stored, name)
            self.always(
                f"{name} is not read as it is written",
                ~(ram.r_en & ram.w_en.any() & (ram.r_addr == ram.w_addr)),
            )
        # What the emitter reads: a sector of a locked entry, held until the next fetch.
        fetch, fetched, reads = memory.fetch, Signal(), Signal(self.types.index_width)
        with m.If(fetch.en):
            m.d.sync += [
                reads.eq(fetch.index),
                fetched.eq(
                    (fetch.sector == sector)
                    & (pool.locked & pool.valid & has).bit_select(fetch.index, 1)
                ),
            ]
        with m.Elif(self.release.en & (self.release.index == reads)):
            m.d.sync += fetched.eq(0)
        with m.If(fetch.en & self.release.en & (self.release.index == fetch.index)):
            m.d.sync += fetched.eq(0)
        self.always(
            "fetched byte is the newest",
            (memory.payload.word_select(byte, 8) == Array(value)[reads])
            & (pool.locked & pool.valid).bit_select(reads, 1),
            when=fetched,
        )
        self.reach(
            "a second entry while the first one leaves",
            (ours & pool.locked).any() & unlocked.any() & unsent,
        )
        self._helpers(m, inner, stored, waits, store, infos, has, place)

    def _helpers(self, m, inner, stored, waits, store, infos, has, place):
        """What the registers and memories of the pool mean."""
        cfg, pool, late = self._cfg, self.pool, stored.late
        byte, sector = place[:5], place[5:]

        def key(item):
            return Mux(
                item.plain,
                item.block[: cfg.addr_block_width],
                Cat(item.rowid, item.block[: cfg.row_block_width], item.epoch, item.region),
            )

        self.lemma("store waits", inner.waits == waits)
        self.lemma(
            "its fields wait",
            (inner.store.as_value() == store.as_value())
            & (inner.key == key(store))
            & store.mask.any()
            & (store.plain | (store.block >> cfg.row_block_width == 0)),
            when=waits,
        )
        self.lemma(
            "sector of the late write",
            stored.again == (late.had & (1 << late.sector)),
            when=late.en,
        )
        self.matches_mean_equal_blocks()
        for n, info in enumerate(infos):
            valid = pool.valid[n]
            self.lemma(
                f"identity {n}",
                (key(info) == inner.keys[n])
                & (info.rank == inner.ranks[n])
                & (info.plain == pool.plain[n])
                & (info.plain | (info.block >> cfg.row_block_width == 0)),
                when=valid,
            )
            written = inner.sectors[n].bit_select(sector, 1)
            part = peek(m, stored.mask, n).word_select(sector, 32)
            block = peek(m, stored.block_mask, n).word_select(sector, 32)
            at = late.en & (late.index == n) & (late.sector == sector)
            self.lemma(
                f"sectors with bytes {n}", inner.sectors[n].any() & (written | ~has[n]), when=valid
            )
            self.lemma(
                f"mask on its way {n}",
                (stored.new_mask.bit_select(byte, 1) == has[n]) & late.mask.any(),
                when=at & valid,
            )
            self.lemma(
                f"mask stored {n}",
                (part.bit_select(byte, 1) == has[n])
                & (block.bit_select(byte, 1) == has[n])
                & block.any(),
                when=valid & written & ~at,
            )
            self.lemma(f"sector on its way {n}", written, when=at & valid)


class FencesAreExact(ManagerSpec):
    """An arbitrary accepted store that a ``mark`` covers (of all, or of its handle; accepted in
    that very cycle or before) makes its entry eligible at once, and ``draining`` of its rank is 1
    from the cycle after that mark until its bytes are sunk, or are in the ledger, three cycles
    after ``o_sent``. ``o_sent`` comes one cycle after the last flit of a packet of a row was taken,
    with the packet's destination, bank and bytes, and never else.

    The stores of one block of a row name one destination, as at one producer at most one handle
    names a region.
    """

    def specify(self, m, dut):
        pool, emitter = self.pool, self.emitter
        inner = look_into(pool)
        cut(self, self.memory)  # no contents matter
        offered, write, mark = dut.i_store.p, pool.write, dut.mark
        replicas = self._cfg.replicas.bit_length() - 1
        self.suppose(
            "stores of a row name one destination",
            inner.store.dest == Array(inner.dests)[write.index],
            when=write.en & ~write.fresh & ~inner.store.plain,
        )

        # The tail that the emitter shows: it waits from the cycle after the release until it is
        # taken.
        tail, release = emitter.tail, self.release
        was_released, was_taken = (
            self.past(release.en, "was_released"),
            self.past(emitter.tail_taken, "was_taken"),
        )
        waited = self.past(tail.waiting, "waited")
        self.suppose(
            "tail waits from its release until taken",
            tail.waiting == (was_released | (waited & ~was_taken)),
        )
        self.suppose(
            "tail is of the rank released",
            tail.rank
            == Mux(
                was_released,
                self.past(release.rank, "released_rank"),
                self.past(tail.rank, "tail_rank"),
            ),
            when=tail.waiting,
        )
        self.suppose("only a waiting tail is taken", tail.waiting, when=emitter.tail_taken)
        self.suppose(
            "released when the tail is free", ~tail.waiting | emitter.tail_taken, when=release.en
        )
        for name, way in (("release", release), ("sink", self.sink)):
            self.suppose(
                f"{name} names its rank", way.rank == Array(inner.ranks)[way.index], when=way.en
            )

        # One store: where it is, and whether a mark has covered it.
        chosen, done = Signal(name="chosen"), Signal(name="done")
        self.free(chosen)
        accepts = dut.i_store.valid & dut.i_store.ready & chosen & ~done & offered.mask.any()
        staged, entered, left, late = (
            Signal(name="staged"),
            Signal(name="entered"),
            Signal(name="left"),
            Signal(3, name="late"),
        )
        entry, rank, plain, handle, covered = (
            Signal(shape, name=name)
            for shape, name in (
                (write.index.shape(), "entry"),
                (offered.rank.shape(), "rank"),
                (1, "plain"),
                (offered.dest.shape(), "handle"),
                (1, "covered"),
            )
        )
        with m.If(accepts):
            m.d.sync += [
                done.eq(1),
                staged.eq(1),
                rank.eq(offered.rank),
                plain.eq(offered.plain),
                handle.eq(offered.dest >> replicas),
            ]
        covers = mark.en & (
            mark.all
            | Mux(
                accepts,
                ~offered.plain & ((offered.dest >> replicas) == mark.handle),
                ~plain & (handle == mark.handle),
            )
        )
        with m.If(covers | accepts):
            m.d.sync += covered.eq(covers)
        with m.If(staged & write.en):
            m.d.sync += [
                staged.eq(0),
                entered.eq(1),
                entry.eq(write.index),
            ]
        here = entered & (entry == Mux(release.en, release.index, self.sink.index))
        sunk_at_once = staged & write.en & self.sink.en & (self.sink.index == write.index)
        with m.If((here & self.sink.en) | sunk_at_once):
            m.d.sync += entered.eq(0)
        with m.Elif(here & release.en):
            m.d.sync += [
                entered.eq(0),
                left.eq(1),
            ]
        with m.If(left & emitter.tail_taken):
            m.d.sync += [
                left.eq(0),
                late.eq(1),
            ]
        with m.If(late.any()):
            m.d.sync += late.eq(
                Mux(late == 4, 0, late + 1)
            )  # 1: o_sent; 2, 3, 4: the ledger learns of it
        inside = staged | entered | left | late.any()
        self.always(
            "draining while inside", dut.draining.bit_select(rank, 1), when=inside & covered
        )
        self.always(
            "eligible at once",
            (pool.eligible | pool.locked).bit_select(entry, 1),
            when=entered & covered,
        )
        self.always(
            "all drain in the cycle after a mark",
            dut.draining == (1 << self._cfg.ranks) - 1,
            when=self.past(mark.en, "just_marked_before"),
        )
        self.always(
            "bytes sent are told", dut.o_sent.en == (was_taken & self.past(tail.row, "tail_row"))
        )
        self.always(
            "bytes sent as the packet",
            (dut.o_sent.dest == self.past(tail.dest, "tail_dest"))
            & (dut.o_sent.bank == self.past(tail.bank, "tail_bank"))
            & (dut.o_sent.bytes == self.past(emitter.tail_bytes, "tail_bytes")),
            when=dut.o_sent.en,
        )
        self.reach("drained at last", done & covered & ~inside & ~dut.draining.any())
        # Helpers: what marks and places of the pool mean.
        self.lemma("in one place", (staged + entered + left + late.any() <= done) & (late <= 4))
        self.lemma(
            "chosen store waits",
            inner.waits
            & (inner.store.rank == rank)
            & (inner.store.plain == plain)
            & (inner.store.dest >> replicas == handle),
            when=staged,
        )
        self.lemma("only a store that waits tries", inner.waits, when=inner.tries)
        self.lemma("mark waits with it", inner.marked, when=staged & covered)
        self.lemma(
            "entry of the store",
            pool.valid.bit_select(entry, 1)
            & (pool.plain.bit_select(entry, 1) == plain)
            & (Array(inner.ranks)[entry] == rank)
            & (plain | (Array(inner.dests)[entry] >> replicas == handle)),
            when=entered,
        )
        self.lemma("entry is marked", pool.marked.bit_select(entry, 1), when=entered & covered)
        self.lemma(
            "tail of the store",
            tail.waiting & (tail.rank == rank) & (self.inner.tail_marked | ~covered),
            when=left,
        )
        self.matches_mean_equal_blocks()


class DrainingEnds(ManagerSpec):
    """Six cycles after the last mark, marked store or entry, or waiting last flit of a rank its
    ``draining`` is 0."""

    def specify(self, m, dut):
        pool, tail, inner = self.pool, self.emitter.tail, look_into(self.pool)
        cut(self, self.memory)
        peer = self.constant(range(self._cfg.ranks), "peer")
        entries = Cat(rank == peer for rank in inner.ranks) & pool.valid & pool.marked
        reason = (
            dut.mark.en
            | entries.any()
            | (pool.waiting.en & (pool.waiting.rank == peer))
            | ((tail.waiting | self.emitter.tail_taken) & (tail.rank == peer))
        )
        calm = Signal(range(7))
        m.d.sync += calm.eq(Mux(reason, 0, Mux(calm == 6, 6, calm + 1)))
        self.always("drained", ~dut.draining.bit_select(peer, 1), when=(calm == 6) & ~reason)
