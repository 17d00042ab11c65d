# SPDX-License-Identifier: Apache-2.0
"""cocotb test of NewsLanes: which lane a peer's NEWS packets take."""

from hub_rtl.contract.records import record_of
from hub_rtl.producer.news import NewsLanes
from sim.bench.rig import Rig
from sim.quality.coverage import cover

APART = 5  # cycles between claims


class LanesRig(Rig):
    """The lanes, every rank with credits on each."""

    block = NewsLanes

    @property
    def record(self):
        return record_of(self.cfg, self.cfg.slice_bytes)

    async def start(self):
        await self.reset()
        for n in range(self.cfg.slices):
            self.set(f"dest_ready__{n}", (1 << self.cfg.ranks) - 1)

    def beat(self, data, last):
        """A beat of a record with this payload."""
        header = {"header": {name: 0 for name, _ in self.record["header"].shape}}
        return {name: 0 for name, _ in self.record} | header | {"last": int(last), "data": data}


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
        beats = [rig.beat(data, data == n + 1) for data in (n, n + 1)]
        rig.i_news.put(*beats)
        rig.o_record[at].expect(*beats)
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
    for out in rig.o_record:
        out.finish()
    cover("producer.lanes_in_turn")


@LanesRig.test()
async def busy_pools(rig, cfg, rng):
    """A claim meets a packet manager that takes credits of other ranks in every cycle: the claim's
    credit waits for a gap, is offered to nobody meanwhile, and no other claim may come."""
    own = rig.get("rank")
    peer, other = [rank for rank in range(cfg.ranks) if rank != own][:2]
    for gap in range(2, 12):
        rig.set("wanted", (1 << cfg.ranks) - 1)
        await rig.until(lambda: rig.get("may_send") >> peer & 1)
        await rig.pulse("claim", rank=peer)
        rig.set("wanted", 1 << other)
        takes = []
        for n in range(gap + 4):
            busy = n < gap
            for slice in range(cfg.lanes):
                rig.set(f"pool_take__{slice}", {"en": busy, "rank": other})
            await rig.sampled()
            if busy:
                assert any(not rig.get(f"pool_ready__{at}") >> peer & 1 for at in range(cfg.lanes))
                assert n < 2 or not rig.get("may_send"), "a second claim may come"
            takes += [
                n
                for slice in range(cfg.slices)
                if (take := rig.strobe(f"take__{slice}")) and take["rank"] == peer
            ]
            await rig.cycles(1)
        assert takes == [gap], f"the claim's credit was taken at {takes}, the gap is at {gap}"
        rig.i_news.put(rig.beat(gap, True))
        await rig.cycles(4)
    cover("producer.claim_waits")
