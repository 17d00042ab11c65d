# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the receive pool's policy: shares to the last place, where the page says what
they are."""

from sim.golden.pool_grants import Grants
from sim.golden.receive_pool import RESERVE, TOTALS
from sim.quality.coverage import cover

from .rig import PoolRig

BEAT = {"length": 1, "masked": 0}  # fields of a packet of one beat


async def periods(rig, count, each):
    """So many packets of each of these sources in every period, and nothing is left of them."""
    for _ in range(count):
        for src, packets in each.items():
            rig.want(src, count=packets, **BEAT)
        await rig.cycles(rig.period)
        assert rig.quiet, str(rig)


@PoolRig.test(
    cases={"needs": ["first", "more", "still_more", "most"]},
    fits=lambda cfg: cfg.ranks > 2,
    watchdog=0,
)
async def need_is_met(rig, cfg, rng, needs):
    """A source that sends as many packets in each period has four times that and two, or its first
    share, or the most that one may have; not one place more or less."""
    src, model = rng.choice(rig.sources), rig.model
    first, most = model.first, model.most
    packets = {"first": 1, "more": first // 4 + 1, "still_more": most // 4 - 1}
    count = packets.get(needs, most // 4 + 1)
    wanted = min(most, max(first, 4 * count + RESERVE))
    assert needs in ("first", "most") or first < wanted < most
    await rig.cycles(rig.period // 2)  # not where one period ends and the next one begins
    await periods(rig, 12, {src: count})
    for _ in range(4):
        await periods(rig, 1, {src: count})
        assert model.has(src) == wanted, f"{model.has(src)} places, {wanted} are needed"
    for left in range(wanted):  # what it gives back it gets again, however much
        rig.gives_back(src, rig.books[src].left - left)
        await periods(rig, 2, {src: count})
        assert model.has(src) == wanted, f"{model.has(src)} places after it had {left}"
    cover(f"receive_pool.exact.{needs}")


@PoolRig.test(cases={"needs": ["more", "most"]}, fits=lambda cfg: cfg.ranks > 2, watchdog=0)
async def shared_by_two(rig, cfg, rng, needs):
    """One that needs most has it; two that need more than their first share have that each, also
    one that sends a little, or a little in every third period; the first one has most again when
    the other has been quiet; in the end all have their
    first share."""
    one, other = rng.sample(rig.sources, 2)
    model = rig.model
    much = model.most // 4 + 1
    await rig.cycles(rig.period // 2)
    await periods(rig, 16, {one: much})
    assert model.has(one) == model.most, model.has(one)
    both = much if needs == "most" else model.first // 4 + 1
    await periods(rig, 20, {one: both, other: both})
    shares = [model.has(src) for src in (one, other)]
    assert min(shares) >= model.first, shares
    await periods(rig, 12, {one: much, other: 1})
    assert model.has(other) >= model.first, model.has(other)
    for _ in range(5):
        await periods(rig, 1, {one: much, other: 1})
        for _ in range(2):
            await periods(rig, 1, {one: much})
            assert model.has(other) >= model.first, model.has(other)
    await periods(rig, 20, {one: much})
    assert model.has(one) == model.most, model.has(one)
    await rig.settled(20)
    shares = [model.has(src) for src in rig.sources]
    assert min(shares) >= model.first, shares
    cover("receive_pool.exact.shared")


class Policy:
    """The golden policy beside a pool that is quiet wherever its rounds count: (source, asked to
    give back) of what was told in ``begins``, which are the first rounds of a period."""

    def __init__(self, rig):
        self.rig, self.grants = rig, Grants(rig.sources, rig.params["places"])
        self.back = dict(rig.model.back)

    def begins(self):
        told = self.grants.round(True) + self.grants.round(False)
        self.settles()
        return sorted(source for source, _, back in told if back)

    def settles(self):
        """Rounds until nothing changes; what sources have said that they gave back is known."""
        for src in self.rig.sources:
            part = (self.rig.model.back[src] - self.back.get(src, 0)) % TOTALS
            if part:
                self.grants.returned(src, part)
            self.back[src] = self.rig.model.back[src]
        while self.grants.pending:
            self.grants.round(False)

    def has(self, src):
        """As the source has been told."""
        known = self.grants.sources[src]
        return known.own - known.news


@PoolRig.test(
    fits=lambda cfg: cfg.ranks == 3, cases={"most": ["some", "much", "steady"]}, watchdog=0
)
async def each_period(rig, cfg, rng, most):
    """Two sources send, rest, give back and wait for the consumer as chance has it, ``steady`` ones
    as much for a dozen periods. When a period has begun each has what the policy gives it, to the
    place, and whoever should give back is asked. (Of three sources it may be another one's turn
    when a place becomes free.)"""
    policy, begin, held = Policy(rig), rig.cycle, {}
    edge, much = rig.period // 3, policy.grants.most // 4
    pairs = [(much, 0), (much, 1), (much, much), (much // 2, much)]
    for number in range(1, 360):
        asked = len(rig.grants)
        await rig.cycles(begin + number * rig.period + edge - rig.cycle)
        wanted = policy.begins()
        told = rig.grants[asked:]
        assert sorted(told["rank"] for _, told in told if told["back"]) == wanted, number
        for src in rig.sources:
            has = rig.model.has(src), policy.has(src)
            assert has[0] == has[1], f"period {number}, source {src}: {has[0]}, not {has[1]}"
        quiet = rng.random() < 0.2
        if number % 12 == 1:
            steady = dict(zip(rig.sources, rng.choice(pairs)[:: rng.choice((1, -1))], strict=True))
        for src in rng.sample(rig.sources, len(rig.sources)):
            left = rig.books[src].left
            chance = 0.1 if most == "steady" else 1
            if src in held and rng.random() < 0.4:
                policy.grants.freed(src, held.pop(src))
            elif src not in held and rng.random() < 0.15 * chance:
                held[src] = 0
            rig.set("hold", sum(1 << each for each in held))
            if left and rng.random() < 0.2 * chance:
                rig.gives_back(src, rng.randrange(left) + 1)
            count = rng.choice((0, 1, 2, rng.randrange(9), much - 1, much, much + 1))
            if most == "some":
                count //= 3
            if most == "steady":
                quiet, count = False, steady[src]
            count = min(count, rig.books[src].left)
            if count and not quiet:
                await rig.cycles(4)
                rig.want(src, count=count, **BEAT)
                policy.grants.arrived(src, count)
                if src in held:
                    held[src] += count
                else:
                    policy.grants.freed(src, count)
            await rig.cycles(rig.period // 5)
            policy.settles()
            waiting = {each for each in rig.sources if rig.model.held[each]}
            assert waiting <= held.keys() and rig.all_in, str(rig)
    rig.set("hold", 0)
    cover(f"receive_pool.each_period.{most}")


@PoolRig.test(fits=lambda cfg: cfg.ranks > 2, watchdog=0)
async def returns_wrap(rig, cfg, rng):
    """Sources use some of their grants and give back others, unasked and in any cycle, more of them
    than totals can tell apart; in the end no place is lost."""
    begin, returned = rig.cycle, dict.fromkeys(rig.sources, 0)
    while min(returned.values()) < 4200:
        src = min(returned, key=returned.get)
        left = rig.books[src].left
        if left > RESERVE:
            count = rng.randrange(max(1, left - 4), left)
            rig.gives_back(src, count)
            returned[src] += count
            if rng.random() < 0.1:
                rig.want(src, count=rng.randrange(1, 4), **BEAT)
        await rig.cycles(rng.randrange(1, 9))
    await rig.finish()
    await rig.cycles((rig.period // 2 - (rig.cycle - begin)) % rig.period)  # as in need_is_met
    much = rig.model.most // 4 + 1
    for src in rig.sources:
        await periods(rig, 16, {src: much})
        assert rig.model.has(src) == rig.model.most, rig.model.has(src)
    cover("receive_pool.returns_wrap")


@PoolRig.test(fits=lambda cfg: cfg.ranks > 2)
async def links_take_turns(rig, cfg, rng):
    """Links with beats take turns, beat by beat."""
    for link, src in enumerate(rig.sources[: rig.links]):
        rig.want(src, link, count=rig.model.first, **rig.full())
    await rig.until(lambda: rig.quiet, what="all packets")
    least = min(len(beats.stamps) for beats in rig.i_beat)
    stamps = [beats.stamps[8 : least - 8] for beats in rig.i_beat]
    assert stamps[0], "too few beats"
    for n, taken in enumerate(zip(*stamps, strict=True)):
        assert max(taken) - min(taken) < rig.links, f"beats {n} of the links in {taken}"
    cover("receive_pool.links_take_turns")
