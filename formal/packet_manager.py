"""Promises of the packet manager (``hub_rtl/packet_manager.py``) about stores that merge: pool and memories together."""

from amaranth import Array, Cat, Const, Mux, Signal

from hub_rtl.packet_manager import PacketManager

from .pool_parts import cut, look_into, peek
from .spec import Spec

__all__ = ["BytesMerge", "ManagerSpec"]


class ManagerSpec(Spec):
    """The packet manager with a free choice of what leaves and when: what holds here holds for every order.

    Selector, scanner, quota and emitter are cut out. Of them is supposed only what is proved of them alone: an entry that is
    locked is there and not locked yet (``packet_manager.locks_allowed``); an entry that is sunk is there and neither locked
    nor being locked, and gives way to a release (``packet_manager.sinks_dead_only``); a release is of a locked entry
    (``packet_manager.packets_are_entries``); a place is a free entry (``packet_manager.reserve_kept``).
    """

    def __init__(self, cfg):
        super().__init__()
        self._cfg = cfg

    def build(self, m):
        m.submodules.dut = self.dut = dut = PacketManager(self._cfg)
        inner = look_into(dut)
        self.pool, self.memory, quota, timer = inner.pool, inner.memory, inner.quota, inner.timer
        self.types = dut._types
        self.free_inputs(dut)
        for part in (quota, timer, inner.emitter):
            cut(self, part)
        cut(self, inner.selector, but=("lock_onehot", "take"))
        lock, sink, release, pool = inner.selector.lock, timer.sink, inner.emitter.release, self.pool
        m.d.comb += [inner.selector.lock_onehot.eq(Mux(lock.en, 1 << lock.index, 0)), inner.selector.take.en.eq(lock.en),
                     inner.selector.take.rank.eq(0)]
        there = pool.valid & ~pool.locked
        self.just = self.past(lock.en, "just")
        self.suppose("locks what is there", there.bit_select(lock.index, 1), when=lock.en)
        self.suppose("sinks what is there", there.bit_select(sink.index, 1) & ~release.en
                     & ~(lock.en & (lock.index == sink.index)), when=sink.en)
        self.suppose("releases what is locked", (pool.valid & pool.locked).bit_select(release.index, 1), when=release.en)
        self.suppose("a place is a free entry", ~pool.valid.all(), when=quota.place)
        self.lock, self.sink, self.release, self.quota = lock, sink, release, quota
        self.specify(m, dut)


class BytesMerge(ManagerSpec):
    """Every accepted store with a byte is written into one entry, once, in order. For an arbitrary byte of an arbitrary block
    (row or address): stores to it go to the one unlocked entry of its block, or open a new one; the next packet of that block
    has the byte exactly if a store to it came since the packet before, with the value of the newest one, which the memory holds
    until the packet's end; and until then the entry stays, unless it is sunk.

    With ``packet_manager.packets_are_entries``, which takes over at the lock, this is: no byte is lost, doubled, invented or
    altered, and two stores to one place leave in order. Blocks of rows are short enough for the longest row, as the
    decoder checks.
    """

    def specify(self, m, dut):
        cfg, pool, memory, depth = self._cfg, self.pool, self.memory, self._cfg.pool_depth
        inner, stored = look_into(pool), look_into(memory)
        offered, write = dut.i_store.p, pool.write
        self.suppose("blocks of rows are short", offered.block >> cfg.row_block_width == 0,
                     when=dut.i_store.valid & ~offered.plain)

        # From the port to the entry: one store at a time, as it came.
        accepted = dut.i_store.valid & dut.i_store.ready
        waits, store = Signal(name="inside"), Signal(self.types.resolved, name="store")
        m.d.sync += waits.eq(Mux(accepted, offered.mask.any(), waits & ~write.en))
        with m.If(accepted):
            m.d.sync += store.eq(offered)
        self.always("only accepted stores are written", waits, when=write.en)
        self.always("accepted only where there is room", ~waits | write.en, when=accepted)
        self.always("written as it came", (write.data == store.data) & (write.mask == store.mask)
                    & (write.sector == store.sector) & (write.full == store.full), when=write.en)

        # An arbitrary block and byte.
        tag, place = self.constant(self.types.info, "tag"), self.constant(5 + cfg.sector_width, "place")
        self.suppose("block of a row is short", tag.block >> cfg.row_block_width == 0, when=~tag.plain)

        def same(other):
            return (other.plain == tag.plain) & (other.rank == tag.rank) & (other.block == tag.block) & (
                tag.plain | ((other.region == tag.region) & (other.epoch == tag.epoch) & (other.rowid == tag.rowid)))
        byte, sector = place[:5], place[5:]
        hits_byte = write.en & (write.sector == sector) & write.mask.bit_select(byte, 1)

        # What each entry has of that byte (of its own block), and which entries are of the followed block.
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

        # The books of the followed byte: stored since the last lock of its block, and its newest value.
        unsent, newest = Signal(name="unsent"), Signal(8, name="newest")
        locks_ours = self.lock.en & ours.bit_select(self.lock.index, 1)
        sinks_ours = self.sink.en & ours.bit_select(self.sink.index, 1)
        ours_written = write.en & same(store)
        with m.If(sinks_ours):                  # with a store that joins in this very cycle
            m.d.sync += unsent.eq(0)
        with m.Elif(ours_written & hits_byte):
            m.d.sync += [unsent.eq(1), newest.eq(write.data.word_select(byte, 8))]
        with m.Elif(locks_ours):
            m.d.sync += unsent.eq(0)

        locked, being_locked = memory.locked, Mux(self.lock.en, 1 << self.lock.index, 0)
        self.always("one unlocked entry of a block", (unlocked & (unlocked - 1)) == 0)
        self.always("a store goes to the entry of its block", (unlocked & ~being_locked).bit_select(write.index, 1),
                    when=ours_written & ~write.fresh)
        self.always("a new entry only where none is open", (unlocked & ~being_locked) == 0, when=ours_written & write.fresh)
        self.always("a new entry was free", ~pool.valid.bit_select(write.index, 1), when=write.en & write.fresh)
        self.always("other stores go elsewhere", ~ours.bit_select(write.index, 1), when=write.en & ~write.fresh & ~same(store))
        self.always("locked entries are not written", ~(pool.locked | being_locked).bit_select(write.index, 1), when=write.en)
        self.always("not lost", (unlocked & has).any(), when=unsent)
        self.always("not invented", ~(unlocked & has).any(), when=~unsent)
        was_ours, was_unsent, was_newest = (self.past(each, name) for each, name in (
            (locks_ours, "was_ours"), (unsent, "was_unsent"), (newest, "was_newest")))
        self.always("packet is of its block", same(locked.info), when=was_ours)
        self.always("packet of another block is not", ~same(locked.info), when=self.just & ~was_ours)
        self.always("packet has the byte", locked.mask.bit_select(place, 1) == was_unsent, when=was_ours)
        self.always("packet has the newest value", Array(value)[locked.index] == was_newest, when=was_ours & was_unsent)
        self.always("locked entry holds", locked.as_value() == self.past(locked), when=self.started & ~self.just)
        self.always("packet has its sectors", locked.sectors.any() & (
            locked.sectors.bit_select(sector, 1) == locked.mask.word_select(sector, 32).any()), when=self.just)
        for n in range(depth):
            word = peek(m, stored.payload, Cat(sector, Const(n, self.types.index_width)))
            self.always(f"newest value, {n}", value[n] == newest, when=unsent & unlocked[n])
            self.always(f"memory holds the value, {n}", word.word_select(byte, 8) == value[n], when=pool.valid[n] & has[n])
        self.reach("a second entry while the first one leaves", (ours & pool.locked).any() & unlocked.any() & unsent)
        self._helpers(m, inner, stored, waits, store, infos, has, place)

    def _helpers(self, m, inner, stored, waits, store, infos, has, place):
        """What the registers and memories of the pool mean."""
        cfg, pool, late = self._cfg, self.pool, stored.late
        byte, sector = place[:5], place[5:]

        def key(item):
            return Mux(item.plain, item.block[:cfg.addr_block_width],
                       Cat(item.rowid, item.block[:cfg.row_block_width], item.epoch, item.region))
        self.always("store waits", inner.waits == waits)
        self.always("its fields wait", (inner.store.as_value() == store.as_value()) & (inner.key == key(store))
                    & store.mask.any() & (store.plain | (store.block >> cfg.row_block_width == 0)), when=waits)
        self.always("place of the late write", stored.late_place == Cat(stored.late.sector, stored.late.index))
        there = pool.valid & ~pool.locked
        for n, info in enumerate(infos):
            valid = pool.valid[n]
            for k in range(n):
                self.always(f"blocks of {k} and {n} differ", (inner.keys[k] != inner.keys[n]) | (inner.ranks[k] != inner.ranks[n])
                            | (pool.plain[k] != pool.plain[n]), when=there[k] & there[n])
            equal = (key(store) == inner.keys[n]) & (store.rank == inner.ranks[n]) & (store.plain == pool.plain[n])
            self.always(f"match {n}", inner.match[n] == equal, when=waits & valid & ~pool.locked[n])
            self.always(f"identity {n}", (key(info) == inner.keys[n]) & (info.rank == inner.ranks[n])
                        & (info.plain == pool.plain[n]) & (info.plain | (info.block >> cfg.row_block_width == 0)), when=valid)
            self.always(f"lock only what is there, {n}", valid, when=pool.locked[n])
            written = inner.sectors[n].bit_select(sector, 1)
            part = peek(m, stored.mask, Cat(sector, Const(n, self.types.index_width)))
            block = peek(m, stored.block_mask, n).word_select(sector, 32)
            at = late.en & (late.index == n) & (late.sector == sector)
            self.always(f"sectors with bytes {n}", inner.sectors[n].any() & (written | ~has[n]), when=valid)
            self.always(f"mask on its way {n}", (stored.new_mask.bit_select(byte, 1) == has[n]) & late.mask.any(),
                        when=at & valid)
            self.always(f"mask stored {n}", (part.bit_select(byte, 1) == has[n]) & (block.bit_select(byte, 1) == has[n])
                        & block.any(), when=valid & written & ~at)
            self.always(f"sector on its way {n}", written, when=at & valid)
