# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of NewsSplit: records of every kind, cut ones and empty entries among them."""

from hub_rtl.contract.packets import NEWS_ENTRY, unpack
from hub_rtl.hub.news_split import NewsSplit
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.cocotb.link.rig import random_packet
from sim.golden.link import beats_of
from sim.golden.receive_pool import whole_record
from sim.quality.coverage import cover


class SplitRig(Rig):
    """A splitter; what comes out of it is judged from docs/formats.md."""

    block = NewsSplit

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=300)
        self.lost = self.seen = 0
        self.on_sample(self._count)

    def _count(self, cycle):
        self.seen += self.get("lost")

    async def finish(self):
        await self.i_record.drained()
        await self.cycles(20)
        self.o_record.finish()
        self.o_news.finish()
        assert self.seen == self.lost, f"{self.seen} entries lost, of {self.lost}"

    def put(self, record):
        """A record, and what is expected of it."""
        self.i_record.put(*record)
        header, mask = record[0]["header"], record[0]["mask"]
        if not header["news"]:
            self.o_record.expect(*record)
            return
        for n in range(mask.bit_count() // 8):
            beat = record[8 * n // self.cfg.slice_bytes]
            entry = unpack(
                NEWS_ENTRY, beat["data"] >> 8 * (8 * n % self.cfg.slice_bytes) & (1 << 64) - 1
            )
            if beat["lost"] or not entry["tell"] | entry["close"]:
                self.lost += 1
                cover("hub.news_lost", beat["lost"])
                cover("hub.news_empty", not beat["lost"])
            else:
                self.o_news.expect(entry | {"src": header["rank"]})

    def random(self):
        """The record of any packet, one in four cut."""
        rng, cfg = self.rng, self.cfg
        packet = random_packet(cfg, rng, rng.randrange(cfg.ranks), 0)
        end = rng.randrange(1, 4 * len(packet))
        flits = [{"data": data * (n < end), "err": int(n >= end)} for n, data in enumerate(packet)]
        record = whole_record(beats_of(cfg, cfg.slice_bytes, flits), cfg.slice_bytes)
        bits = 8 * cfg.slice_bytes
        self.put(
            [beat | {"data": rng.getrandbits(bits)} if beat["lost"] else beat for beat in record]
        )


@SplitRig.test(grid=GRID)
async def splits(rig, cfg, rng, grid):
    """Entries and records come out as they went in, each in its order; what was lost, and what says
    nothing, is dropped and counted."""
    for _ in range(60):
        rig.random()
    await rig.i_record.drained()


@SplitRig.test()
async def split_reset(rig, cfg, rng):
    """After a reset in the middle of a record the next one begins with its first entry."""
    for _ in range(12):
        for _ in range(4):
            rig.random()
        await rig.cycles(rng.randrange(1, 16))
        await rig.reset()
        rig.lost = rig.seen = 0
    rig.random()
