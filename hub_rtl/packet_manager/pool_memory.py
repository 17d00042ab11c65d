# SPDX-License-Identifier: Apache-2.0
"""Memories of the packet pool: payload, byte masks and identities, the merging of masks, and when
an entry is full."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import SECTOR
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram

from .records import pool_types_of

__all__ = ["PoolMemory"]


class PoolMemory(wiring.Component):
    """What the pool's entries hold, in memories; only what selection needs is kept in registers
    elsewhere.

    Contract: a ``write`` puts its masked bytes into the payload (newer bytes win) and, one cycle
    later, adds its mask to the entry's mask; yet one cycle later it is known which units of 16
    bytes are whole. Nothing needs clearing: words are only looked at for sectors that the pool says
    have bytes (``had`` here, ``sectors`` at the lock). The lock ports give the entry as it is after
    all writes issued before the ``lock`` cycle.

    Latency: ``full`` comes two cycles after ``write``; ``locked`` one cycle after ``lock``, and it
    holds until the next lock; ``payload`` one cycle after ``fetch``, and it holds until the next
    fetch. One write per cycle, also to the same sector.

    Illegal input: a byte that is written twice shows on ``overlap`` (two cycles after the write).

    Parameters: ``cfg``, HubConfig. Ports: ``write`` In; ``find`` In {en, index}, the same entry if
    the write is not ``fresh``, known earlier in the cycle; ``opens`` In {en, index}, the same if it
    is; ``info`` In, identity of a fresh entry; ``full`` Out {en, index}, the entry has all bytes of
    its block; ``overlap`` Out; ``lock`` In {en, index}; ``sectors`` In, sectors with bytes of the
    entry being locked; ``nop`` In, its class; ``locked`` Out; ``fetch`` In {en, index of entry,
    sector}; ``payload`` Out 256; ``look`` In {en, index}, ``looked`` Out identity, one cycle later.

    Memories: payload (one word per sector, byte write enables), masks twice (merging, sending),
    whole sectors (is the entry full?) and units (what does its header say?), identities twice
    (sending, scanner): every memory has one read port.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "find": In(t.entry),
                "opens": In(t.entry),
                "write": In(t.write),
                "info": In(t.info),
                "full": Out(t.entry),
                "overlap": Out(1),
                "lock": In(t.entry),
                "sectors": In(cfg.packet_sectors),
                "nop": In(1),
                "locked": Out(t.locked),
                "fetch": In(t.fetch),
                "payload": Out(SECTOR),
                "look": In(t.entry),
                "looked": Out(t.info),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        words = cfg.pool_depth * cfg.packet_sectors
        write = self.write
        place = Signal(index_width(words))
        m.d.comb += place.eq(Cat(write.sector, write.index))

        # Cycle of the write: payload and identity.
        m.submodules.payload = payload = Ram(256, words, granules=32, bypass=False)
        m.submodules.info = info = Ram(t.info, cfg.pool_depth, bypass=False)
        m.submodules.scan = scan = Ram(t.info, cfg.pool_depth)
        m.d.comb += [
            payload.w_en.eq(Mux(write.en, write.mask, 0)),
            payload.w_addr.eq(place),
            payload.w_data.eq(write.data),
            payload.r_en.eq(self.fetch.en),
            payload.r_addr.eq(Cat(self.fetch.sector, self.fetch.index)),
            self.payload.eq(payload.r_data),
            scan.r_en.eq(self.look.en),
            scan.r_addr.eq(self.look.index),
            self.looked.eq(scan.r_data),
            info.r_en.eq(self.lock.en),
            info.r_addr.eq(self.lock.index),
        ]
        for ram in (info, scan):
            m.d.comb += [
                ram.w_en.eq(self.opens.en),
                ram.w_addr.eq(self.opens.index),
                ram.w_data.eq(self.info),
            ]

        # The cycle after: the sector's old mask is there, the new one is written.
        m.submodules.mask = mask = Ram(
            cfg.packet_bytes, cfg.pool_depth, granules=cfg.packet_sectors, quick=True
        )
        m.submodules.block_mask = block_mask = Ram(
            cfg.packet_bytes, cfg.pool_depth, granules=cfg.packet_sectors
        )
        late, again, twice = Signal(t.write), Signal(cfg.packet_sectors), Signal(32)
        old_mask, new_mask = Signal(32), Signal(32)
        m.d.sync += [
            late.eq(write),
            again.eq(write.had & (1 << write.sector)),
            twice.eq(Mux(late.en, late.mask & old_mask, 0)),
        ]
        m.d.comb += [
            mask.r_en.eq(self.find.en),
            mask.r_addr.eq(self.find.index),
            old_mask.eq(
                select(
                    again, [mask.r_data[32 * n : 32 * (n + 1)] for n in range(cfg.packet_sectors)]
                )
            ),
            new_mask.eq(old_mask | late.mask),
            self.overlap.eq(twice.any()),
        ]
        for ram in (mask, block_mask):
            m.d.comb += [
                ram.w_en.eq(Mux(late.en, 1 << late.sector, 0)),
                ram.w_addr.eq(late.index),
                ram.w_data.eq(new_mask.replicate(cfg.packet_sectors)),
            ]
        units = self._units(m, late, new_mask)

        # The cycle after a lock: everything about that entry, unchanged until the next lock.
        m.d.comb += [
            block_mask.r_en.eq(self.lock.en),
            block_mask.r_addr.eq(self.lock.index),
            self.locked.info.eq(info.r_data),
        ]
        with m.If(self.lock.en):
            m.d.sync += [
                self.locked.index.eq(self.lock.index),
                self.locked.sectors.eq(self.sectors),
                self.locked.nop.eq(self.nop),
            ]
        for sector in range(cfg.packet_sectors):
            part = slice(32 * sector, 32 * (sector + 1))
            here, its_units = self.locked.sectors[sector], units[sector]
            m.d.comb += [
                self.locked.mask[part].eq(Mux(here, block_mask.r_data[part], 0)),
                self.locked.some[2 * sector : 2 * sector + 2].eq(Mux(here, its_units.some, 0)),
                self.locked.all[2 * sector : 2 * sector + 2].eq(Mux(here, its_units.all, 0)),
            ]
        return m

    def _units(self, m, late, new_mask):
        """Two cycles after the write: which units of its sector have bytes, and whether the entry
        is full with it. Returns the units of the locked entry, sectors without bytes aside."""
        cfg, t = self._cfg, self._types
        sectors = cfg.packet_sectors
        wanted = late.full[4:]  # units; rows and blocks are whole units
        last, pair = Signal(t.entry), Signal(t.sector_units)
        onehot, needed, had, own = Signal(sectors), Signal(sectors), Signal(sectors), Signal(2)
        m.d.sync += [
            last.en.eq(late.en),
            last.index.eq(late.index),
            had.eq(late.had),
            onehot.eq(1 << late.sector),
            own.eq(Cat(wanted > Cat(n, late.sector) for n in (Const(0, 1), Const(1, 1)))),
        ]
        m.d.sync += [needed[n].eq(wanted > 2 * n) for n in range(sectors)]
        for n in range(2):
            half = new_mask[16 * n : 16 * n + 16]
            m.d.sync += [
                pair.some[n].eq(half.any()),
                pair.all[n].eq(half.all()),
            ]

        m.submodules.done = done = Ram(sectors, cfg.pool_depth, granules=sectors)
        sector_done, others_done = Signal(), Signal()
        m.d.comb += [
            sector_done.eq((~own | pair.all).all()),
            others_done.eq(
                (
                    onehot
                    | ~needed
                    | (
                        mutant(
                            "packet_manager.old_bytes_count_as_had", had & done.r_data, done.r_data
                        )
                    )
                ).all()
            ),
            done.r_en.eq(late.en),
            done.r_addr.eq(late.index),
            done.w_en.eq(Mux(last.en, onehot, 0)),
            done.w_addr.eq(last.index),
            done.w_data.eq(sector_done.replicate(sectors)),
            self.full.en.eq(last.en & sector_done & others_done),
            self.full.index.eq(last.index),
        ]

        # The write before the lock gets here in the cycle after the lock: it is put over what was
        # read.
        layout = data.ArrayLayout(t.sector_units, sectors)
        m.submodules.units = units = Ram(layout, cfg.pool_depth, granules=sectors)
        m.d.comb += [
            units.w_en.eq(Mux(last.en, onehot, 0)),
            units.w_addr.eq(last.index),
            units.w_data.as_value().eq(pair.as_value().replicate(sectors)),
            units.r_en.eq(self.lock.en),
            units.r_addr.eq(self.lock.index),
        ]
        just, over, kept, found = Signal(), Signal(sectors), Signal(t.sector_units), Signal(layout)
        m.d.sync += just.eq(self.lock.en)
        with m.If(self.lock.en):
            m.d.sync += over.eq(
                Mux(
                    mutant(
                        "packet_manager.lock_misses_late_write",
                        late.en & (late.index == self.lock.index),
                        0,
                    ),
                    1 << late.sector,
                    0,
                )
            )
        with m.If(just):
            m.d.sync += kept.eq(pair)
        newest = Mux(just, pair.as_value(), kept.as_value())
        m.d.comb += [
            found[n].as_value().eq(Mux(over[n], newest, units.r_data[n].as_value()))
            for n in range(sectors)
        ]
        return found
