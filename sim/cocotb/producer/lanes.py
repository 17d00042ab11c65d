# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of NewsLanes: which lane a peer's NEWS packets take, whose credit, and that packets
stay whole."""

from collections import Counter, deque

from hub_rtl.contract.records import record_of
from hub_rtl.producer.news import NewsLanes
from sim.bench.rig import Rig
from sim.bench.streams import GRID
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

    def packet(self):
        """Beats of any record."""
        codec, count = self.i_news.port.codec, self.rng.randint(1, 4)
        return [
            codec.unpack(self.rng.getrandbits(codec.width)) | {"last": int(n == count)}
            for n in range(1, count + 1)
        ]

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


class Surroundings:
    """Packet managers, news and credits of all slices as chance has them, a cycle at a time, and
    what must come of it."""

    def __init__(self, rig, own):
        self.rig, self.own, slices = rig, own, range(rig.cfg.slices)
        self.credits = [Counter() for _ in slices]
        self.took = [None for _ in slices]  # rank of the packet manager's last take
        self.ready, self.may_send = [0 for _ in slices], 0  # as shown in the cycle before
        self.wanted = self.wants = self.held = 0  # wanted: in the cycle before; wants: now
        self.waited = Counter()  # cycles in which a wanted credit was there
        self.turn, self.due, self.claimed_at = Counter(), None, -APART
        self.news, self.packets = [deque() for _ in slices], [deque() for _ in slices]
        self.targets = deque()  # lanes of the news not sent, the oldest first
        self.unsent = deque()  # packets of claimed news
        self.inside = [None for _ in slices]  # the queue whose packet has begun
        self.shown = [False for _ in slices]  # news had no packet before them, in the cycle before
        self.ended = [None for _ in slices]  # when the last beat of news left
        for n in slices:
            rig.o_record[n].on_item(lambda beat, cycle, n=n: self._came(n, beat, cycle))

    def lane(self, rank):
        """The lane of its next news."""
        if rank == self.own:
            return self.rig.cfg.lanes + self.turn[rank] % self.rig.cfg.loop_lanes
        return self.turn[rank] % self.rig.cfg.lanes

    def _came(self, n, beat, cycle):
        if self.inside[n] is None:
            news = self.news[n] and beat == self.news[n][0]
            assert news or not self.held >> n & 1, "a packet has begun on a lane that is held"
            self.inside[n] = self.news[n] if news else self.packets[n]
        assert beat == self.inside[n].popleft(), f"lane {n}"
        if beat["last"]:
            if self.inside[n] is self.news[n]:
                assert self.targets.popleft() == n, "news overtake news"
                self.ended[n] = cycle
            self.inside[n] = None

    def drive(self, calm):
        """A cycle's inputs. ``calm``: credits come seldom, packet managers rest."""
        rig, rng, ranks = self.rig, self.rig.rng, range(self.rig.cfg.ranks)
        for n, credits in enumerate(self.credits):
            if rng.random() < (0.1 if calm else 0.4):
                credits[rng.randrange(len(ranks))] += 1
            rig.set(f"dest_ready__{n}", sum(1 << r for r in ranks if credits[r]))
            free = [r for r in ranks if self.ready[n] >> r & 1 and r != self.took[n]]
            take = rng.choice(free) if free and rng.random() < (0.1 if calm else 0.8) else None
            self.took[n] = take
            rig.set(f"pool_take__{n}", 0 if take is None else {"en": 1, "rank": take})
            if rig.i_record[n].pending < 3:
                packet = rig.packet()
                self.packets[n].extend(packet)
                rig.i_record[n].put(*packet)
        if self.unsent and rng.random() < 0.3:
            rig.i_news.put(*self.unsent.popleft())
        self.held ^= sum(1 << n for n in range(rig.cfg.slices) if rng.random() < 0.1)
        rig.set("hold", self.held)
        may = [r for r in ranks if (self.may_send & self.wants) >> r & 1]
        self.first = self.targets[0] if self.targets else None
        self.claim = None
        if may and not self.due and rig.cycle - self.claimed_at >= APART and len(self.targets) < 2:
            self.claim = rng.choice(may) if rng.random() < 0.5 else None
        self.wanted = self.wants
        self.wants ^= sum(1 << r for r in ranks if rng.random() < 0.05)
        rig.set("wanted", self.wants)
        rig.set("claim", 0 if self.claim is None else {"en": 1, "rank": self.claim})

    def check(self):
        """What the cycle shows."""
        rig, ranks = self.rig, range(self.rig.cfg.ranks)
        self.may_send = rig.get("may_send")
        for rank in ranks:
            credit = self.credits[self.lane(rank)][rank]
            self.waited[rank] = self.waited[rank] + 1 if credit and self.wanted >> rank & 1 else 0
            if self.due or rig.cycle - self.claimed_at < APART:
                self.waited[rank] = 0
            assert self.waited[rank] < APART + 1 or self.may_send >> rank & 1, "it may send"
            assert not self.may_send >> rank & 1 or credit, "there is no credit"
        for n, credits in enumerate(self.credits):
            self.ready[n] = rig.get(f"pool_ready__{n}")
            for rank in ranks:
                kept = self.lane(rank) == n and self.wanted >> rank & 1
                free = credits[rank] and not kept and self.due != (n, rank)
                assert self.ready[n] >> rank & 1 == bool(free), f"lane {n}, rank {rank}"
            take = rig.strobe(f"take__{n}")
            wanted = self.took[n]
            if wanted is None and self.due and self.due[0] == n:
                wanted, self.due = self.due[1], None
                cover("producer.claim_waits")
            assert (take["rank"] if take else None) == wanted, f"lane {n}"
            if take:
                credits[wanted] -= 1
                assert credits[wanted] >= 0, f"lane {n} has no credit for {wanted}"
            self._offered(n)
        if self.claim is not None:
            self._claimed(self.claim)

    def _offered(self, n):
        """Nothing waits that may go."""
        rig, begun = self.rig, self.inside[n] is not None
        packet = rig.i_record[n].port.is_valid() and (begun or not self.held >> n & 1)
        news = (
            rig.i_news.port.is_valid() and self.first == n and self.inside[n] is not self.packets[n]
        )
        out = rig.o_record[n].port
        due = news and self.shown[n] and self.ended[n] != rig.cycle - 1
        assert out.is_valid() or not (packet or due), f"lane {n}"
        if out.is_valid() and not begun and out.unpack(out.read()) in (*self.packets[n],)[:1]:
            self.inside[n] = self.packets[n]  # what is offered has begun
        self.shown[n] = news and self.inside[n] is not self.packets[n]

    def _claimed(self, rank):
        n, beats = self.lane(rank), self.rig.packet()
        self.due, self.claimed_at = (n, rank), self.rig.cycle
        self.turn[rank] += 1
        self.targets.append(n)
        self.news[n].extend(beats)
        self.unsent.append(beats)


@LanesRig.test(grid=GRID)
async def everything_at_once(rig, cfg, rng, grid):
    """Credits come and go, packet managers take them, packets of any length wait for the wire, are
    held, and news of all ranks go between them: packets stay whole and in order, a credit is taken
    once, on the lane whose turn it is, and is kept from the packet manager meanwhile."""
    own = rng.randrange(cfg.ranks)
    rig.set("rank", own)
    for n in range(cfg.slices):
        rig.set(f"dest_ready__{n}", 0)
    rig.i_news.set_pause(None)
    await rig.cycles(2)
    around = Surroundings(rig, own)
    for cycle in range(1500):
        around.drive(calm=cycle % 500 < 150)
        await rig.sampled()
        around.check()
        await rig.cycles(1)
    assert min(around.turn[rank] for rank in range(cfg.ranks)) > 10, around.turn
    cover(f"producer.lanes.grid.{'.'.join(grid)}")
