# SPDX-License-Identifier: Apache-2.0
"""cocotb test of NewsLanes: which lane a peer's NEWS packets take."""

from hub_rtl.producer.news import NewsLanes
from sim.bench.rig import Rig
from sim.bench.slice_sender import as_stream
from sim.quality.coverage import cover

APART = 5  # cycles between claims


class LanesRig(Rig):
    """The lanes, every rank with credits on each."""

    block = NewsLanes

    async def start(self):
        await self.reset()
        for n in range(self.cfg.slices):
            self.set(f"dest_ready__{n}", (1 << self.cfg.ranks) - 1)


@LanesRig.test()
async def lanes_in_turn(rig, cfg, rng):
    """The packets of each peer go over its lanes in turn, whoever else's are between them; those of
    the own rank over the loop lanes. Their credits are taken there."""
    own = rng.randrange(cfg.ranks)
    rig.set("rank", own)
    due = dict.fromkeys(range(cfg.ranks), 0)
    for n in range(30):
        rank = rng.randrange(cfg.ranks)
        lane, lanes = due[rank], cfg.loop_lanes if rank == own else cfg.lanes
        due[rank] = (lane + 1) % lanes
        at = lane + (cfg.lanes if rank == own else 0)
        rig.set("wanted", 1 << rank)
        await rig.until(lambda rank=rank: rig.get("may_send") >> rank & 1)
        await rig.pulse("claim", rank=rank)
        rig.set("wanted", 0)
        rig.i_news.put(*as_stream([n, n + 1]))
        rig.o_packet[at].expect(*as_stream([n, n + 1]))
        takes = []
        for _ in range(APART):
            await rig.sampled()
            takes += [
                (slice, take["rank"])
                for slice in range(cfg.slices)
                if (take := rig.strobe(f"take__{slice}"))
            ]
            await rig.cycles(1)
        assert takes == [(at, rank)], f"credits taken: {takes}, claimed: {(at, rank)}"
    await rig.cycles(20)
    for out in rig.o_packet:
        out.finish()
    cover("producer.lanes_in_turn")
