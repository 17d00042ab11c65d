"""Memories of the packet pool: payload, byte masks, byte counts and identities, and the merging of masks."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import index_width
from ..lib.ram import Ram
from .pool_types import pool_types_of

__all__ = ["PoolMemory"]


def popcount(bits):
    """Number of set bits, an adder tree."""
    parts = list(bits)
    while len(parts) > 1:
        parts = [parts[n] + parts[n + 1] if n + 1 < len(parts) else parts[n] for n in range(0, len(parts), 2)]
    return parts[0]


class PoolMemory(wiring.Component):
    """What the pool's entries hold, in memories; only what selection needs is kept in registers elsewhere.

    Contract: a ``write`` puts its masked bytes into the payload (newer bytes win) and, one cycle later, adds its mask to the
    entry's mask and byte count, each byte counted once. Nothing needs clearing: ``fresh`` starts a new count, and mask words
    are only looked at for sectors that the pool says have bytes (``again`` here, ``locked.sectors`` at the lock). The lock
    ports give the entry as it is after all writes issued before the ``lock`` cycle.

    Latency: ``full`` comes one cycle after ``write``; ``locked`` one cycle after ``lock``, and it holds until the next lock;
    ``payload`` one cycle after ``fetch``, and it holds until the next fetch. One write per cycle, also to the same sector.

    Illegal input: a byte that is written twice shows on ``overlap`` (one cycle after the write).

    Parameters: ``cfg``, HubConfig.
    Ports: ``write`` In; ``info`` In, identity of a fresh entry; ``full`` Out {en, index}, the entry has all bytes of its
    block; ``overlap`` Out; ``lock`` In {en, index}; ``sectors`` In, sectors with bytes of the entry being locked; ``nop`` In,
    its class; ``locked`` Out; ``fetch`` In {en, index of entry, sector}; ``payload`` Out 256; ``look`` In {en, index},
    ``looked`` Out identity, one cycle later.

    Memories: payload (one word per sector, byte write enables), masks twice (per sector for merging, per block for sending),
    byte counts twice, identities twice (sending, scanner), because every memory has one read port.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__({
            "write": In(t.write), "info": In(t.info), "full": Out(t.entry), "overlap": Out(1),
            "lock": In(t.entry), "sectors": In(cfg.packet_sectors), "nop": In(1), "locked": Out(t.locked),
            "fetch": In(t.fetch), "payload": Out(256),
            "look": In(t.entry), "looked": Out(t.info),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        words = cfg.pool_depth * cfg.packet_sectors
        write = self.write
        place = Signal(index_width(words))
        m.d.comb += place.eq(Cat(write.sector, write.index))

        # Cycle of the write: payload and identity.
        m.submodules.payload = payload = Ram(256, words, granules=32)
        m.submodules.info = info = Ram(t.info, cfg.pool_depth)
        m.submodules.scan = scan = Ram(t.info, cfg.pool_depth)
        m.d.comb += [
            payload.w_en.eq(Mux(write.en, write.mask, 0)), payload.w_addr.eq(place), payload.w_data.eq(write.data),
            payload.r_en.eq(self.fetch.en), payload.r_addr.eq(Cat(self.fetch.sector, self.fetch.index)),
            self.payload.eq(payload.r_data),
            scan.r_en.eq(self.look.en), scan.r_addr.eq(self.look.index), self.looked.eq(scan.r_data),
            info.r_en.eq(self.lock.en), info.r_addr.eq(self.lock.index),
        ]
        for ram in (info, scan):
            m.d.comb += [ram.w_en.eq(write.en & write.fresh), ram.w_addr.eq(write.index), ram.w_data.eq(self.info)]

        # The cycle after: old mask and count are there, new ones are written.
        m.submodules.mask = mask = Ram(32, words)
        m.submodules.count = count = Ram(cfg.bytes_width, cfg.pool_depth)
        m.submodules.block_mask = block_mask = Ram(cfg.packet_bytes, cfg.pool_depth, granules=cfg.packet_sectors)
        m.submodules.block_count = block_count = Ram(cfg.bytes_width, cfg.pool_depth)
        late, late_place = Signal(t.write), Signal(index_width(words))
        old_mask, new_mask, total = Signal(32), Signal(32), Signal(cfg.bytes_width)
        m.d.sync += [late.eq(write), late_place.eq(place)]
        m.d.comb += [
            mask.r_en.eq(write.en), mask.r_addr.eq(place),
            count.r_en.eq(write.en), count.r_addr.eq(write.index),
            old_mask.eq(Mux(late.again, mask.r_data, 0)),
            new_mask.eq(old_mask | late.mask),
            total.eq(Mux(late.fresh, 0, count.r_data) + popcount(late.mask & ~old_mask)),
            mask.w_en.eq(late.en), mask.w_addr.eq(late_place), mask.w_data.eq(new_mask),
            count.w_en.eq(late.en), count.w_addr.eq(late.index), count.w_data.eq(total),
            block_count.w_en.eq(late.en), block_count.w_addr.eq(late.index), block_count.w_data.eq(total),
            block_mask.w_addr.eq(late.index), block_mask.w_data.eq(new_mask.replicate(cfg.packet_sectors)),
            self.full.en.eq(late.en & (total == late.full)), self.full.index.eq(late.index),
            self.overlap.eq(late.en & (late.mask & old_mask).any()),
        ]
        for sector in range(cfg.packet_sectors):
            m.d.comb += block_mask.w_en[sector].eq(late.en & (late.sector == sector))

        # The cycle after a lock: everything about that entry, unchanged until the next lock.
        m.d.comb += [
            block_mask.r_en.eq(self.lock.en), block_mask.r_addr.eq(self.lock.index),
            block_count.r_en.eq(self.lock.en), block_count.r_addr.eq(self.lock.index),
            self.locked.info.eq(info.r_data), self.locked.bytes.eq(block_count.r_data),
        ]
        with m.If(self.lock.en):
            m.d.sync += [self.locked.index.eq(self.lock.index), self.locked.sectors.eq(self.sectors),
                         self.locked.nop.eq(self.nop)]
        for sector in range(cfg.packet_sectors):
            part = slice(32 * sector, 32 * (sector + 1))
            m.d.comb += self.locked.mask[part].eq(Mux(self.locked.sectors[sector], block_mask.r_data[part], 0))
        return m
