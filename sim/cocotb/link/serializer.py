# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the serializer: records of every shape, at the link's rate."""

from hub_rtl.contract.packets import HEADER, NEWS_ENTRIES, unpack
from hub_rtl.link.serializer import Serializer
from sim.bench.rig import Rig
from sim.bench.slice_sender import as_stream, random_record
from sim.bench.streams import GRID
from sim.golden.link import packet_of
from sim.quality.coverage import cover


class SerializerRig(Rig):
    """A serializer; each packet is judged against the golden model's."""

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=300)

    def component(self):
        return Serializer(self.cfg, self.params["slice_bytes"])

    def put_news(self, entries):
        """A record with so many entries of announcements."""
        self.put(news=entries)
        cover(f"link.serializer.{'odd' if entries % 2 else 'even'}_news")

    def put(self, mask=None, **fields):
        """A record with this mask, and its packet as expected. Returns the numbers of both."""
        size = self.params["slice_bytes"]
        beats = random_record(self.cfg, size, self.rng, mask, **fields)
        self.i_record.put(*beats)
        flits = packet_of(self.cfg, size, beats)
        self.o_packet.expect(*as_stream(flits))
        return len(beats), len(flits)

    async def finish(self):
        await self.i_record.drained()
        await self.cycles(40 + 3 * self.cfg.frame_flits)
        self.o_packet.finish()


@SerializerRig.test(grid=GRID)
async def records(rig, cfg, rng, grid):
    """Records with any bytes become packets, in order, bit by bit; bytes that are not there are
    0."""
    for n in range(rig.params["records"]):
        rig.put()
        if n % 4 == 0:
            rig.put_news(rng.choice((1, NEWS_ENTRIES, rng.randint(1, NEWS_ENTRIES))))
    await rig.until(lambda: not rig.i_record.pending, limit=20000, what="all records")
    await rig.finish()
    headers = [unpack(HEADER, item["data"]) for item in rig.o_packet.items if item["first"]]
    cover(f"link.serializer.grid.{'.'.join(grid)}")
    cover("link.serializer.masked", any(header["masked"] for header in headers))


@SerializerRig.test()
async def rate(rig, cfg, rng):
    """Whole packets follow one another without a gap, and the first header comes 3 cycles after the
    last beat of its record."""
    whole = (1 << cfg.packet_bytes) - 1
    beats, flits = zip(*(rig.put(whole) for _ in range(8)), strict=True)
    await rig.finish()
    stamps = rig.o_packet.stamps
    assert stamps[0] - rig.i_record.stamps[beats[0] - 1] == 3
    assert stamps[-1] - stamps[0] == sum(flits) - 1, "a gap at the link's rate"
    assert rig.i_record.stamps[2 * beats[0] - 1] < stamps[flits[0] - 1], "room for two"
    cover("link.serializer.rate")


@SerializerRig.test(stall="stop")
async def full(rig, cfg, rng):
    """Two records find room, beside nothing else; then all come; a reset forgets them."""
    for turn in ("kept", "forgotten", "after"):
        rig.pause("stop", rig.o_packet)
        before = rig.i_record.count
        beats = [rig.put((1 << cfg.packet_bytes) - 1)[0] for _ in range(4)]
        await rig.cycles(sum(beats) + 20)
        assert rig.i_record.count - before == sum(beats[:2]), turn
        if turn == "forgotten":
            await rig.reset()
            await rig.cycles(3)
            assert not rig.o_packet.port.is_valid()
            continue
        rig.pause(None, rig.o_packet)
        await rig.finish()
    cover("link.serializer.full")
