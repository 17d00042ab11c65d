# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager: places of the pool filled and emptied, and stores whose tags
differ in one bit."""

from hub_rtl.packet_manager.quota import ON_THE_WAY
from sim.quality.coverage import cover

from .rig import PoolRig


@PoolRig.test(credits=0, merge_timeout=60000, age_limit=60000, watchdog=6000)
async def places(rig, cfg, rng):
    """Entries come and go one by one, for all maxima: the side ports follow while nothing else
    moves."""
    still = 16 + 3 * min(cfg.pool_depth, 32)
    room = min(ON_THE_WAY, cfg.pool_depth - cfg.ranks)  # that `can_accept` promises
    for most in sorted({0, 2, room, cfg.pool_depth - 1, cfg.pool_depth}):
        rig.limits |= {
            "max_entries": most,
            "age_limit": 200 if most == cfg.pool_depth else 60000,
        }  # all are old at last
        await rig.anew()
        dests = list(rig.traffic.dests)
        # As many as fit: one for each rank, others by turns up to the maximum.
        counts, spare = {}, cfg.pool_depth - cfg.ranks
        for _ in range(4 * cfg.pool_depth):
            dest = rng.choice(dests)
            rank = rig.traffic.dests[dest][0]
            count = counts.get(rank, 0)
            shared = spare - sum(count - 1 for count in counts.values() if count)
            if count and (count >= max(1, most) or not shared):
                continue
            counts[rank] = count + 1
            plain = rng.random() < 0.3
            base = (
                rig.traffic.plain(rank, rng.getrandbits(30))
                if plain
                else rig.traffic.row(dest=dest, epoch=rng.randrange(16))
            )
            rig.put(base, 0, 8)
            await rig.stored(still if rng.random() < 0.7 else rng.randrange(8))
        assert not rig.counted["stall_pool"]
        # Marked they may leave, and do when a credit comes, one at a time.
        await rig.mark()
        await rig.cycles(still)
        while rig.golden.pending:
            rig.credits.left[rng.choice([tag[1] for tag in rig.golden.pending])] += 1
            await rig.cycles(still if rng.random() < 0.7 else 30)
        await rig.emptied()
    cover("packet_manager.places")


@PoolRig.test(merge_timeout=60000, age_limit=60000)
async def neighbours(rig, cfg, rng):
    """Two stores whose tags differ in one bit, whichever, leave apart; two that differ elsewhere
    leave together."""
    fields = {"rowid": 24, "epoch": 4, "block": cfg.row_block_width, "region": cfg.region_width}
    pairs = []
    for name, width in fields.items():
        for bit in range(width):
            row = rig.traffic.row(rowid=rng.getrandbits(24), epoch=rng.randrange(16))
            other = row | {name: row[name] ^ 1 << bit}
            if other["region"] < cfg.regions and other["block"] < max(
                1, cfg.max_row_bytes // cfg.packet_bytes
            ):
                pairs.append((row, other))
    for bit in range(cfg.addr_block_width):
        block = rng.getrandbits(cfg.addr_block_width)
        pairs.append((rig.traffic.plain(0, block), rig.traffic.plain(0, block ^ 1 << bit)))
    for rank in range(cfg.ranks):
        pairs.append((rig.traffic.plain(rank, 3), rig.traffic.plain((rank + 1) % cfg.ranks, 3)))
    for one, other in pairs:
        before = len(rig.packets)
        for base, first in rng.sample([(one, 0), (other, 40), (one, 70), (other, 100)], 4):
            rig.put(base, first, 6)
        await rig.stored()
        await rig.flush()
        assert len(rig.packets) == before + 2, f"{one}\n {other}"
    rig.judge()
    cover("packet_manager.neighbours")


@PoolRig.test(merge_timeout=60000, age_limit=60000)
async def marks_of_one(rig, cfg, rng):
    """A mark of a handle is for its rows only: stores to addresses, and other handles' rows, stay
    where they are."""
    for _ in range(12):
        await rig.anew()
        by_handle = {}
        for dest in rig.traffic.dests:
            by_handle.setdefault(dest // cfg.replicas, dest)
        rows = rng.sample(list(by_handle.values()), min(2, len(by_handle)))
        bases = [rig.traffic.row(dest=dest) for dest in rows] + [
            rig.traffic.plain(rank, 9) for rank in range(min(2, cfg.ranks))
        ]
        for base in rng.sample(bases, len(bases)):
            rig.put(base, 0, 20)
        await rig.stored(rng.randrange(4))
        for count, dest in enumerate(rng.sample(rows, len(rows)), 1):
            await rig.mark(dest // cfg.replicas)
            await rig.cycles(60)
            assert len(rig.packets) == count and rig.packets[-1].stores[0].dest == dest
        await rig.flushed()
    cover("packet_manager.mark.one")


@PoolRig.test(merge_timeout=60, age_limit=60000, credits=0)
async def place_in_a_moment(rig, cfg, rng):
    """A store waits for the place of an entry that is leaving: no other one is squeezed out for it,
    also in the cycle in which that entry has left and its place is not yet given."""
    waited = 0
    for wait in range(24):
        await rig.anew()
        dest, rank = rig.traffic.first
        young, expired, whole = (rig.traffic.row(rowid=rowid, dest=dest) for rowid in (1, 2, 3))
        rig.put(expired, 0, 8)
        await rig.stored(rig.golden.merge_timeout + 3 * cfg.pool_depth)
        # The whole one is locked and held at the output; then one more store than the rank has
        # places for.
        rig.o_record.set_pause("stop")
        rig.put(whole, 0, cfg.packet_bytes)
        await rig.stored(rig.way)
        rig.credits.left[rank] = 1
        await rig.cycles(rig.way)
        fillers = [
            rig.traffic.row(rowid=100 + n, dest=dest) for n in range(cfg.pool_depth - cfg.ranks - 1)
        ]
        for base in (young, *fillers):
            rig.put(base, 0, 8)
        await rig.cycles(cfg.pool_depth + rig.way)
        rig.o_record.set_pause(None)
        await rig.cycles(wait)
        rig.credits.left[rank] = 1
        await rig.cycles(2 * rig.way)
        waited += rig.counted["stall_pool"] > 0
        rig.credits.left[rank] = 1000
        await rig.emptied()
        assert [p.rowid for p in rig.packets[:2]] == [3, 2], f"wait {wait}: not the expired one"
    assert waited
    cover("packet_manager.pool.in_a_moment")


@PoolRig.test(credits=0, merge_timeout=60000, age_limit=60000, watchdog=6000)
async def old_at_once(rig, cfg, rng):
    """A shorter age limit makes all entries of a full pool old in one sweep; all leave, in an order
    that the rules allow."""
    rig.limits["max_entries"] = cfg.pool_depth
    await rig.start()
    for block, rank in enumerate([*(cfg.pool_depth - cfg.ranks) * [0], *range(cfg.ranks)]):
        rig.put(rig.traffic.plain(rank, block), 0, 8)
        await rig.stored()
    await rig.cycles(300)
    rig.set_policy(age_limit=200)
    await rig.cycles(3 * cfg.pool_depth + 8)
    rig.credits.give(cfg.pool_depth)
    await rig.emptied()
    assert len(rig.packets) == cfg.pool_depth


@PoolRig.test(merge_timeout=60000, age_limit=60000)
async def leaving_is_enough(rig, cfg, rng):
    """A store waits while an entry is leaving: room enough, nothing else is squeezed out."""
    for wait in range(4):
        await rig.anew()
        dest, _ = rig.traffic.first
        rig.o_record.set_pause("stop")
        rig.put_row(cfg.packet_bytes, dest=dest)
        await rig.stored(2 * rig.way)
        rig.put_rows(rig.places, dest=dest)
        await rig.cycles(rig.places + 2 * rig.way + wait)
        assert rig.counted["stall_pool"] and not rig.packets
        rig.o_record.set_pause(None)
        await rig.cycles(4 * rig.way + cfg.pool_depth)
        assert len(rig.packets) == 1, "another one was squeezed out"
        await rig.flushed()
    cover("packet_manager.pool.leaving")
