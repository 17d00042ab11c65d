# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager's sweep: which entries it visits, how long that takes, what a
visit finds to the cycle."""

from hub_rtl.packet_manager.sweep import GROUP, LEAST_GROUPS
from sim.quality.coverage import cover

from .rig import PoolRig

LATE = 60000  # cycles: no timer makes an entry leave


def group_size(cfg):
    """Entries that a sweep passes over at once when none of them is there."""
    return min(GROUP, cfg.pool_depth // LEAST_GROUPS)


async def occupy(rig, numbers):
    """Right after a reset: partly filled entries in these places of the pool, none in others."""
    for number in range(max(numbers) + 1):
        if number in numbers:
            rig.put_row(8)
        else:
            rig.put_row(16, full=16)  # leaves at once
    await rig.stored(2 * rig.way)


async def next_age(rig):
    """The age that `oldest` shows next, and the cycle since when."""
    await rig.sampled()
    before = rig.get("oldest")["age"]
    for _ in range(4 * rig.cfg.pool_depth):
        await rig.cycles(1)
        await rig.sampled()
        age = rig.get("oldest")["age"]
        if age != before:
            return age
    raise AssertionError("the entry is not visited")


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def sweeps(rig, cfg, rng):
    """Every place is visited, and a group of places with nothing in it takes one cycle: each alone,
    and some together."""
    size = group_size(cfg)
    groups = cfg.pool_depth // size
    alone = [{place} for place in range(cfg.pool_depth)]
    some = [
        {size * group + rng.randrange(size) for group in rng.sample(range(groups), count)}
        for count in range(2, min(groups, rig.places) + 1)
    ]
    for numbers in alone + some:
        await rig.anew()
        await occupy(rig, numbers)
        await next_age(rig)  # the sweep before it may have met what has left
        await next_age(rig)
        met = len({number // size for number in numbers})
        before = await next_age(rig)
        for _ in range(2):
            age = await next_age(rig)
            assert age - before == met * size + groups - met, f"a sweep with {numbers}"
            before = age
        await rig.cycles(1)
        await rig.flushed()
    cover("packet_manager.sweeps")


@PoolRig.test(cases={"limit": ["merge_timeout", "age_limit"]}, merge_timeout=LATE, age_limit=LATE)
async def timer_bounds(rig, cfg, rng, limit):
    """An entry leaves with its first visit at which it is as old as the limit says, to the cycle:
    not with the one before, and not with the one behind."""
    lates = set()
    waits = (20, 60, 150, 1030, 1100, 1300)
    for wait in waits:
        for extra in (0, 1):
            await rig.anew()
            await occupy(rig, {0})
            await rig.cycles(wait + rng.randrange(30))
            before = await next_age(rig)
            age = await next_age(rig)
            sweep = age - before
            await rig.cycles(1)
            limits = {limit: age + 3 * sweep + extra}
            rig.set_policy(**limits)
            await rig.emptied()
            # The visits go on at these distances.
            visit = age + (3 + (extra > 0)) * sweep
            lates.add(rig.packets[-1].take - rig.packets[-1].stores[0].placed - visit)
            assert len(lates) == 1, f"{limits}, visited at {visit}: left late by {lates}"
    cover(f"packet_manager.timer.bound.{limit}")
