# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the receive pool's policy: shares to the last place, where the page says what
they are."""

from sim.golden.receive_pool import RESERVE
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


@PoolRig.test(fits=lambda cfg: cfg.ranks > 2, watchdog=0)
async def returns_wrap(rig, cfg, rng):
    """Sources use some of their grants and give back others, unasked and in any cycle, more of them
    than totals can tell apart; in the end no place is lost."""
    returned = dict.fromkeys(rig.sources, 0)
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
