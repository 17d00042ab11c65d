# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of a slice's credits: none is lost, none invented, whatever happens at once."""

from hub_rtl.contract.config import first_share
from hub_rtl.link.slice_credits import SliceCredits
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.quality.coverage import cover

TOTALS = 4096


class CreditRig(Rig):
    """All ranks' pools, that grant; this hub, that takes; totals of both, by rank."""

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=0)
        self.places, self.bad, self.ready = self.params["places"], 0, 0
        self.o_returned.on_item(self._returned)
        self.on_sample(self._look)

    def component(self):
        return SliceCredits(self.cfg, self.params["places"])

    async def start(self):
        for port in ("take", "granted"):
            self.set(port, 0)
        await super().start()
        ranks = range(self.cfg.ranks)
        self.first = first_share(self.cfg.ranks, self.places)
        self.granted, self.taken, self.returned = ([0 for _ in ranks] for _ in range(3))

    def _look(self, cycle):
        self.bad += self.get("bad_total")
        self.ready = self.get("ready")

    def _returned(self, item, cycle):
        rank = item["rank"]
        given = (item["total"] - self.returned[rank]) % TOTALS
        assert given, f"rank {rank} gives nothing back, and says so"
        self.returned[rank] += given
        assert self.left(rank) >= 0

    def left(self, rank):
        return self.first + self.granted[rank] - self.taken[rank] - self.returned[rank]

    def grant(self, rank, count, back=0):
        """The pool grants so many more, and says so."""
        self.granted[rank] += count
        self.tell(rank, self.granted[rank], back)

    def tell(self, rank, total, back=0):
        what = {"rank": rank, "total": total % TOTALS, "back": back}
        self.set("granted", {"en": 1, "what": what})

    def take(self, rank):
        self.taken[rank] += 1
        self.set("take", {"en": 1, "rank": rank})

    async def drain(self, rank):
        """Takes what is left; that is what should be."""
        for port in ("take", "granted"):
            self.set(port, 0)
        await self.cycles(8)  # what was told last has been heard, and an answer is there
        await self.until(lambda: not self.o_returned.port.is_valid(), what="answers")
        await self.cycles(1)
        for _ in range(self.left(rank)):
            await self.sampled()
            assert self.get("ready") >> rank & 1, f"{self.left(rank)} left of {rank}, none shown"
            await self.cycles(1)
            await self.pulse("take", rank=rank)
            self.taken[rank] += 1
            await self.sampled()
            assert self.get("ready") >> rank & 1 == (self.left(rank) > 0), f"{self.left(rank)} left"
            await self.cycles(1)
        await self.sampled()
        assert not self.get("ready") >> rank & 1, f"none left of {rank}, one shown"
        await self.cycles(1)


@CreditRig.test(grid=GRID)
async def credits(rig, cfg, rng, grid):
    """Grants and takes in any cycles, of any ranks, asked back or not; then all that is left is
    taken, and that is what should be left."""
    for _ in range(4):
        told, just = None, None  # what is sampled shows a take two cycles later
        for _ in range(rig.params["events"]):
            able = [rank for rank in range(cfg.ranks) if rig.ready >> rank & 1 and rank != just]
            just = rng.choice(able) if able and rng.random() < 0.6 else None
            if just is not None:
                rig.take(just)
            if rng.random() < 0.6:
                # Not twice the same in neighbouring cycles; often the one that is taken.
                others = [rank for rank in range(cfg.ranks) if rank != told]
                told = just if just in others and rng.random() < 0.5 else rng.choice(others)
                most = max(0, rig.places - rig.left(told))
                rig.grant(told, rng.randint(0, min(most, 5)), rng.random() < 0.1)
            else:
                told = None
            await rig.cycles(1)
            rig.set("take", 0)
            rig.set("granted", 0)
        for rank in range(cfg.ranks):
            await rig.drain(rank)
    assert not rig.bad
    cover("link.slice_credits.returned", any(rig.returned))
    cover(f"link.slice_credits.grid.{'.'.join(grid)}")


@CreditRig.test()
async def false_totals(rig, cfg, rng):
    """A total that cannot be is told and changes nothing, an old one changes nothing; the next
    honest one counts."""
    for rank in range(cfg.ranks):
        rig.grant(rank, rig.places - rig.first)
        await rig.cycles(1)
        for total in (rig.places, TOTALS - 1, TOTALS // 2 - 1, rig.granted[rank] - 1):
            rig.set("granted", 0)
            await rig.cycles(1)
            rig.tell(rank, total)
            await rig.cycles(1)
        rig.tell(rank, total + 1)  # in the cycle behind it: nobody looks at it
        await rig.cycles(1)
        rig.set("granted", 0)
        await rig.drain(rank)
        rig.grant(rank, 1)
        await rig.cycles(1)
        await rig.drain(rank)
    assert rig.bad == 2 * cfg.ranks
    cover("link.slice_credits.bad_total")


@CreditRig.test()
async def every_distance(rig, cfg, rng):
    """A total any distance ahead of the last one, a take beside it or not: what there is room for
    counts, what there is not is told, half of all totals and more are old."""
    distances = {d + n for d in (0, *(1 << n for n in range(12))) for n in (-1, 0, 1, 2)}
    for rank in range(cfg.ranks):
        for distance in sorted(distances & {*range(TOTALS)}):
            for takes in (0, 1):
                for at in range(4):
                    await rig.drain(rank)
                    held = rng.randint(takes, rig.places)
                    rig.grant(rank, held)
                    await rig.cycles(1)
                    rig.set("granted", 0)
                    await rig.cycles(5)
                    await _tell_far(rig, rank, distance, takes, at)
    cover("link.slice_credits.every_distance")


async def _tell_far(rig, rank, distance, takes, at):
    """The total, with a take so many cycles later."""
    bad, left = rig.bad, rig.left(rank)
    new, fits = distance < TOTALS // 2, left + distance <= rig.places
    if takes and left + distance == rig.places + 1:
        return  # the take decides whether it fits
    rig.tell(rank, rig.granted[rank] + distance)
    for cycle in range(6):
        if takes and cycle == at:
            rig.take(rank)
        await rig.cycles(1)
        rig.set("granted", 0)
        rig.set("take", 0)
    if new and fits:
        rig.granted[rank] += distance
    assert rig.bad - bad == (new and not fits), f"{distance} more, {left} left, {takes} at {at}"


@CreditRig.test()
async def asked_at_every_count(rig, cfg, rng):
    """Asked back, a rank with any number of places gives a quarter of them, until all totals have
    wrapped."""
    for rank in range(cfg.ranks):
        count = 0
        while rig.returned[rank] < TOTALS + rig.places:
            if rng.random() < 0.02:
                await rig.drain(rank)
            held, before = rig.left(rank), rig.returned[rank]
            more = min(count % (rig.places + 1), rig.places - held)
            count += 1
            rig.grant(rank, more, back=1)
            await rig.cycles(1)
            rig.set("granted", 0)
            await rig.cycles(5)
            assert rig.returned[rank] - before == (held + more + 1) // 4, f"{held} + {more}"
        await rig.drain(rank)
    cover("link.slice_credits.asked_at_every_count")


@CreditRig.test(stall="stop")
async def asked_back(rig, cfg, rng):
    """Who is asked gives a quarter; while two answers wait, nothing more is given back."""
    rank, left = rng.randrange(cfg.ranks), rig.first
    for n in range(4):
        rig.grant(rank, 3, back=1)
        left += 3
        left -= (left + 1) // 4 if n < 2 else 0
        await rig.cycles(1)
        rig.set("granted", 0)
        await rig.cycles(4)
    rig.pause(None, rig.o_returned)
    await rig.cycles(6)
    assert rig.o_returned.count == 2
    assert rig.left(rank) == left
    await rig.drain(rank)
    cover("link.slice_credits.answers_wait")


@CreditRig.test(stall="stop")
async def answers_in_order(rig, cfg, rng):
    """Ranks are asked while the answers of others wait, or leave: each answers for itself, in the
    order in which they were asked."""
    for stall in ("stop", "cyclic", "random", None) * 6:
        ranks = rng.sample(range(cfg.ranks), 2)
        first = rig.o_returned.count
        rig.pause(stall, rig.o_returned)
        for rank in ranks:
            rig.grant(rank, rng.randint(0, rig.places - rig.left(rank)), back=1)
            await rig.cycles(1)
            rig.set("granted", 0)
            await rig.cycles(rng.randrange(3))
        await rig.cycles(6)
        rig.pause(None, rig.o_returned)
        await rig.cycles(6)
        came = [item["rank"] for item in rig.o_returned.items[first:]]
        assert came == ranks, f"{came} answered, {ranks} asked"
        for rank in ranks:
            await rig.drain(rank)
            rig.grant(rank, rng.randint(3, rig.places))
            await rig.cycles(1)
            rig.set("granted", 0)
            await rig.cycles(4)
    cover("link.slice_credits.answers_in_order")
