# SPDX-License-Identifier: Apache-2.0
"""Rig of the wide packet manager's bench: that of today's, with records and stores of a slice."""

from hub_rtl.wide_packet_manager.wide_packet_manager import WidePacketManager
from sim.cocotb.packet_manager import rig
from sim.golden.wide_packet_manager import WidePacketManagerGolden

from .checks import SidePorts

__all__ = ["PoolRig"]


class PoolRig(rig.PoolRig):
    """The block with its drivers, its golden model and a watcher of all side ports."""

    block = WidePacketManager
    word = "wide_packet_manager"
    out = "o_record"
    ports_like = SidePorts
    delays = (1,)
    settles, way = 30, 20
    merges, misses = 1, 6

    def component(self):
        return self.block(self.cfg, self.slice_bytes)

    @property
    def slice_bytes(self):
        return self.params["slice_bytes"]

    @property
    def late(self):
        return self.golden.sweep + 16

    def new_traffic(self):
        return Traffic(self.cfg, self.slice_bytes, self.rng)

    def new_golden(self):
        return WidePacketManagerGolden(self.cfg, self.slice_bytes, **self.limits)

    def vary(self, rng):
        super().vary(rng)
        self.limits["bucket_shift"] = rng.choice((0, 1, 3))

    def stalled(self):
        return bool(self.get("counts")["stall_pool"])

    async def sunk(self, rank):
        await self.cycles(4 * self.golden.sweep + 20 * self.cfg.pool_depth)
        found = self.golden.sunk(rank)
        await self.quiet()
        return found


class Traffic(rig.Traffic):
    """Stores of one part of a slice's width."""

    place = "part"

    def __init__(self, cfg, slice_bytes, rng):
        self.size = slice_bytes
        super().__init__(cfg, rng)

    def rows(self, count, ranks, window):
        """Stores of ``count`` whole packets, rows of eight blocks, each store moved by less than
        ``window`` places."""
        blocks = min(8, self.cfg.max_row_bytes // self.cfg.packet_bytes)
        stores = []
        for number in range(count):
            if number % blocks == 0:
                row = self.row(dest=self.by_rank[self.rng.choice(list(ranks))])
            block = row | {"block": number % blocks}
            stores += self.bytes_of(block, 0, self.cfg.packet_bytes)
        for n in range(len(stores) if window else 0):
            other = min(len(stores) - 1, n + self.rng.randrange(window))
            stores[n], stores[other] = stores[other], stores[n]
        return stores
