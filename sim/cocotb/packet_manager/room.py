# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager's room: for stores that wait, and ahead of the output."""

from sim.quality.coverage import cover

from .rig import PoolRig

LATE = 60000  # cycles: no timer makes an entry leave


@PoolRig.test(credits=0, merge_timeout=LATE, age_limit=LATE)
async def own_maximum(rig, cfg, rng):
    """A store at its rank's maximum waits for an entry of the rank that is ready; if none is, one
    partial entry leaves, and no more; however many came and went before."""
    for rank in range(cfg.ranks):
        await rig.anew()
        dest = rig.traffic.by_rank[rank]
        counts = [*range(rig.places), 0, 0, 0]
        rng.shuffle(counts)
        for ready in counts:
            most = min(max(ready, 1) + rng.randrange(4), max(ready, rig.places - 1))
            rig.set_policy(max_entries=most)
            before, stalls = len(rig.packets), rig.counted["stall_pool"]
            for number in rng.sample(range(most), most):
                rig.put_row(16 if number < ready else 8, dest=dest, full=16)
            await rig.stored(rig.way)
            assert rig.counted["stall_pool"] == stalls
            rig.put_row(8, dest=dest)
            await rig.cycles(rig.late + rig.way)
            assert rig.counted["stall_pool"] > stalls
            # What is ready leaves, and the store gets its place.
            rig.credits.left[rank] = cfg.pool_depth
            await rig.cycles(4 * rig.way + rig.late)
            packets = rig.packets[before:]
            assert [p.full for p in packets] == ([True] * ready or [False]), (
                f"rank {rank}, {ready} ready of {most}"
            )
            await rig.flush()
            rig.credits.left[rank] = 0
            await rig.cycles(2)
    await rig.emptied()
    cover("packet_manager.pool.own")


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def given_back(rig, cfg, rng):
    """A store that waits for a place goes on two cycles after one is given back: at its rank's
    maximum, and without a shared one; of any rank."""
    waits = set()
    for rank in range(cfg.ranks):
        for most in (1, 2, 3, cfg.pool_depth):
            await rig.anew()
            dest = rig.traffic.by_rank[rank]
            rig.set_policy(max_entries=most)
            rig.o_record.set_pause("stop")
            rig.put_row(16, dest=dest, full=16)
            await rig.stored(2 * rig.way)
            # The first one's record is at the output; the next one of the rank is behind it.
            rig.put_row(16, dest=dest, full=16)
            for _ in range(min(most, rig.places) - 1):
                rig.put_row(8, dest=dest)
            await rig.stored(2 * rig.way)
            rig.put_row(8, dest=dest)
            await rig.cycles(2 * rig.way)
            assert rig.counted["stall_pool"]
            rig.o_record.set_pause(None)
            await rig.cycles(2 * rig.way)
            newest = max(queue[-1].placed for queue in rig.golden.pending.values())
            waits.add(newest - rig.packets[0].last)
            assert len(waits) == 1, f"rank {rank}, maximum {most}: {waits} cycles"
            await rig.flushed()
    cover("packet_manager.pool.given_back")


@PoolRig.test(fits=lambda cfg: cfg.pool_depth >= 8, merge_timeout=LATE, age_limit=LATE)
async def room_for_all(rig, cfg, rng):
    """While half of the pool is free no store waits, whatever leaves meanwhile: at all distances
    of new entries from those that leave."""
    few = cfg.pool_depth // 8
    for wait in range(rig.way):
        await rig.anew()
        dest, _ = rig.traffic.first
        rig.put_rows(1, dest=dest)  # the rank's own one: the others are shared
        for _ in range(few):
            rig.put_row(16, dest=dest, full=16)
        await rig.stored(wait)
        rig.put_rows(few + 1)
        await rig.stored(rig.way)
        assert not rig.counted["stall_pool"], f"a store waited, {wait} cycles behind"
        await rig.flushed()
    cover("packet_manager.pool.half_empty")


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def locked_ahead(rig, cfg, rng):
    """With the link blocked as many entries are locked ahead after traffic as after a reset: no
    room is lost. All of them leave right, whichever places they have."""
    ahead = set()
    for count in (*[rig.places] * 8, 1, 2, 3, rig.places, 1, 1, 1, rig.places):
        rig.credits.give(0)
        await rig.cycles(3)
        for _ in range(count):
            rig.put_row(cfg.packet_bytes, dest=rig.traffic.first[0])
        await rig.stored(rig.way)
        taken = len(rig.taken)
        if count == rig.places:
            rig.o_record.set_pause("stop")
        rig.credits.give(1000)
        await rig.cycles(3 * rig.way)
        if count == rig.places:
            ahead.add(len(rig.taken) - taken)
            assert len(ahead) == 1, f"locked ahead: {ahead}"
            rig.o_record.set_pause(None)
        await rig.emptied()
    cover("packet_manager.ahead")


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def ranks_in_turn(rig, cfg, rng):
    """Ranks with ready entries and credits leave in turn, packet by packet."""
    each = cfg.pool_depth // cfg.ranks
    for _ in range(4):
        rig.credits.give(0)
        await rig.cycles(3)
        ranks = [*range(cfg.ranks)] * each
        rng.shuffle(ranks)
        before = len(rig.packets)
        for rank in ranks:
            rig.put_row(cfg.packet_bytes, dest=rig.traffic.by_rank[rank])
        await rig.stored(rig.way)
        rig.credits.give(1000)
        await rig.emptied()
        order = [p.rank for p in rig.packets[before:]]
        for first in range(0, len(order), cfg.ranks):
            turn = order[first : first + cfg.ranks]
            assert len({*turn}) == cfg.ranks, f"not in turn: {order}"
    cover("packet_manager.order.ranks")


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def lowered_maximum(rig, cfg, rng):
    """A rank that has more entries than its maximum since that was lowered gets another one when it
    has fewer, and not before."""
    for rank in range(cfg.ranks):
        dest = rig.traffic.by_rank[rank]
        for count in range(2, rig.places + 1):
            for most in {count - 1, rng.randrange(1, count)}:
                rig.set_policy(max_entries=cfg.pool_depth)
                rig.put_rows(count, dest=dest)
                await rig.stored(rig.way)
                rig.set_policy(max_entries=most)
                before = len(rig.packets)
                rig.put_rows(1, dest=dest)
                await rig.stored(rig.late)
                await rig.until(lambda: not rig.golden.arriving, 2000, "a place")
                assert len(rig.packets) - before >= count - most
                await rig.flush()
    await rig.emptied()
    cover("packet_manager.pool.lowered")
