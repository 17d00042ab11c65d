# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of NewsSplit: packets of every kind, padded flits and empty entries among them."""

from hub_rtl.contract.packets import BODIES, HEADER, NEWS_ENTRY, PacketType, unpack
from hub_rtl.hub.news_split import NewsSplit
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.cocotb.link.rig import as_stream, random_packet
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
        await self.i_packet.drained()
        await self.cycles(20)
        self.o_packet.finish()
        self.o_news.finish()
        assert self.seen == self.lost, f"{self.seen} entries lost, of {self.lost}"

    def put(self, packet, padded=()):
        """A packet, those of its flits ``padded`` by the link, and what is expected of it."""
        flits = as_stream(packet)
        for n in padded:
            flits[n]["err"] = 1
        self.i_packet.put(*flits)
        header = unpack(HEADER, packet[0])
        if header["type"] != PacketType.NEWS:
            self.o_packet.expect(*flits)
            return
        for n in range(unpack(BODIES[PacketType.NEWS], packet[0])["count"]):
            flit = flits[1 + n // 2]
            entry = unpack(NEWS_ENTRY, flit["data"] >> 64 * (n % 2) & (1 << 64) - 1)
            if flit["err"] or not entry["tell"] | entry["close"]:
                self.lost += 1
                cover("hub.news_padded", flit["err"])
                cover("hub.news_empty", not flit["err"])
            else:
                self.o_news.expect(entry | {"src": header["src"]})

    def random(self):
        """Any packet, its last flits padded in one of four."""
        packet = random_packet(self.cfg, self.rng, self.rng.randrange(64), self.rng.randrange(64))
        from_ = self.rng.randrange(1, 4 * len(packet))
        self.put(packet, range(from_, len(packet)))


@SplitRig.test(grid=GRID)
async def splits(rig, cfg, rng, grid):
    """Entries and packets come out as they went in, each in its order; what is padded, and what
    says nothing, is dropped and counted."""
    for _ in range(60):
        rig.random()
    await rig.i_packet.drained()


@SplitRig.test()
async def split_reset(rig, cfg, rng):
    """After a reset in the middle of a packet the next one begins with its header."""
    for _ in range(12):
        for _ in range(4):
            rig.random()
        await rig.cycles(rng.randrange(1, 16))
        await rig.reset()
        rig.lost = rig.seen = 0
    rig.random()
