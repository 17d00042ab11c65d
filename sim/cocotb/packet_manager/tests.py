# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager against its golden model: random traffic, and promises on
latency, rate and order."""

import random

from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import SECTOR, PoolRig


@PoolRig.test(grid=GRID, finish=False)
async def random_traffic(rig, cfg, rng, grid):
    """Random stores, with marks and changing limits: golden model on every packet; reset in
    traffic, then all over again."""
    rig.vary(random.Random(GRID.index(grid)))
    depth = cfg.pool_depth
    for again in range(2):
        await rig.anew()
        rig.i_store.put(*rig.traffic.mix(50, window=rng.choice((2, depth, 2 * depth))))
        while rig.i_store.pending:
            await rig.cycles(rng.choice((5, 40, 150)))
            if rng.random() < 0.6:
                await rig.mark(rng.choice((None, *range(min(4, cfg.handles)))))
            if not again and rig.i_store.pending < 60:
                break
        if again:
            await rig.flush()
            await rig.whole_pool()
            rig.judge()
        cover(f"{rig.word}.reset.in_traffic", not again and rig.i_store.pending)
    cover(f"{rig.word}.grid.{'.'.join(grid)}")


@PoolRig.test()
async def latency(rig, cfg, rng):
    """A store that completes a packet: header valid 9 cycles after it was accepted, for first,
    later and full-mask stores."""
    for count in (1, 2, cfg.packet_sectors):
        stores = rig.traffic.bytes_of(rig.traffic.row(full=SECTOR * count), 0, SECTOR * count)
        for store in stores:
            await rig.cycles(7)
            await rig.i_store.send(store)
        await rig.quiet()
        packet = rig.packets[-1]
        cycles = packet.head - rig.i_store.stamps[-1]
        assert cycles <= 9, f"{count} stores: header {cycles} cycles after the last store"
        assert packet.last - packet.head == 2 * count
        cover(f"{rig.word}.latency.9", cycles == 9)
    rig.judge()


@PoolRig.test(cases={"spread": ["one", "all"]})
async def back_to_back(rig, cfg, rng, spread):
    """Packets of 64 bytes and of full size leave without a gap, to one rank or to many: the link is
    busy while data waits."""
    dests = rig.traffic.by_rank
    size = cfg.packet_bytes
    for full in (64, size):
        await rig.start()
        count = 40
        for n in range(count):
            dest = list(dests.values())[n % len(dests) if spread == "all" else 0]
            rig.put_row(full, dest=dest, full=full)
        await rig.emptied()
        flits = 1 + full // 16
        assert rig.output.count and len(rig.output.items) == count * flits
        cycles = rig.output.stamps[-1] - rig.output.stamps[0] + 1
        assert cycles == count * flits, f"{count} packets of {flits} flits took {cycles} cycles"
        cover(f"{rig.word}.back_to_back.{'full' if full == size else '64'}.{spread}")


@PoolRig.test()
async def wire_efficiency(rig, cfg, rng):
    """32-byte stores of as many interleaved rows as the shared pool holds leave as full packets
    only."""
    rows = [rig.traffic.row(dest=next(iter(rig.traffic.dests))) for _ in range(rig.places)]
    blocks = max(2, min(6, cfg.max_row_bytes // cfg.packet_bytes))
    for block in range(blocks):
        parts = [rig.traffic.bytes_of(row | {"block": block}, 0, cfg.packet_bytes) for row in rows]
        for sector in range(cfg.packet_sectors):
            rig.i_store.put(*(part[sector] for part in parts))
    await rig.emptied()
    assert len(rig.packets) == len(rows) * blocks and all(p.full for p in rig.packets)
    payload = len(rows) * blocks * cfg.packet_bytes
    assert payload * (cfg.packet_flits + 1) == 16 * len(rig.output.items) * cfg.packet_flits
    cover(f"{rig.word}.efficiency.interleaved")


@PoolRig.test()
async def sustained(rig, cfg, rng):
    """Full-rate stores that come faster than the link: busy in at least 99 of 100 cycles once the
    first packet has left."""
    rig.i_store.put(*rig.traffic.mix(150, window=1, plain=0.3, styles=("whole",)))
    await rig.emptied()
    packets = rig.packets
    idle = waiting = 0
    for p, q in zip(packets, packets[1:], strict=False):
        if (
            q.eligible is not None and q.eligible <= p.last - 6
        ):  # it could have been ready when p ended
            waiting += q.last - p.last
            idle += q.head - p.last - 1 if p.last - p.head >= 4 else 0
    assert waiting > 100 and idle * 100 <= waiting, f"{idle} of {waiting} cycles idle"
    cover(f"{rig.word}.sustained")


@PoolRig.test(merge_timeout=60, age_limit=3000)
async def order(rig, cfg, rng):
    """Without credit entries gather; then they leave in the promised order: full, normal before
    .nop, kinds in turn, RowID."""
    dest, rank = rig.traffic.first
    size = cfg.packet_bytes
    rig.credits.give(0)
    await rig.cycles(3)
    places = rig.places
    wanted = [
        (f"{full}{nop}", rig.traffic.row(rowid=rowid, dest=dest, cls=nop), size if full else 16)
        for full, nop, rowid in (
            (0, 1, 1),
            (1, 0, 9),
            (1, 0, 7),
            (1, 1, 5),
            (0, 0, 2),
            (0, 0, 8),
            (1, 1, 3),
            (0, 1, 4),
        )
    ]
    wanted = wanted[:places]
    for _, base, count in wanted:
        rig.put(base, 0, count)
    await rig.stored(60 + 3 * cfg.pool_depth)
    rig.credits.left[rank] = 100
    await rig.emptied()
    ranking = sorted(wanted, key=lambda w: (w[2] != size, w[1]["cls"], w[1]["rowid"]))
    assert [p.rowid for p in rig.packets] == [base["rowid"] for _, base, _ in ranking]
    cover(f"{rig.word}.order.class_and_row")

    # Plain and row-sparse packets of equal rank take turns.
    await rig.start()
    rig.credits.give(0)
    await rig.cycles(3)
    half = max(1, places // 2)
    for _ in range(half):
        rig.put_row(size, dest=dest)
    for n in range(half):
        rig.put(rig.traffic.plain(rank, n), 0, size)
    await rig.stored(6)
    rig.credits.left[rank] = 100
    await rig.emptied()
    kinds = [p.plain for p in rig.packets]
    assert all(a != b for a, b in zip(kinds, kinds[1:], strict=False)), kinds
    cover(f"{rig.word}.order.alternate")


@PoolRig.test(cases={"limit": [20, 300]}, merge_timeout=50, credits=1, give_back=0.03)
async def starvation(rig, cfg, rng, limit):
    """A .nop packet with a large RowID leaves in spite of an endless stream of better ones, even if
    those grow old as well."""
    rig.limits["age_limit"] = limit
    for rank in range(min(2, cfg.ranks)):
        await rig.anew()
        dest = rig.traffic.by_rank[rank]
        rig.put_row(16, rowid=0xFFFFFF, dest=dest, cls=1)
        rig.put_blocks(60, dest=dest)
        await rig.emptied()
        victim = next(p for p in rig.packets if p.rowid == 0xFFFFFF)
        old = victim.stores[0].placed + limit + 3 * cfg.pool_depth
        overtaken = [p for p in rig.packets if old <= p.take < victim.take]
        assert len(overtaken) <= 2 * cfg.pool_depth, (
            f"{len(overtaken)} packets left after it had become old"
        )
        assert victim is not rig.packets[-1]
    cover(f"{rig.word}.order.old.{limit}")


@PoolRig.test()
async def timers(rig, cfg, rng):
    """A partial entry leaves within two sweeps after merge timeout or age limit; the oldest entry
    is shown meanwhile."""
    old = rng.getrandbits(16) | 1 << 15
    for timeout, limit in (
        (0, old),
        (50, old),
        (257, old),
        (1024, old),
        (2901, old),
        *((old, n) for n in (72, 55, 200, 411)),
    ):
        rig.limits |= {"merge_timeout": timeout, "age_limit": limit}
        await rig.anew()
        base = rig.traffic.row(epoch=5)
        rig.put(base, 3, 20)
        await rig.stored()
        if timeout == 257:
            await rig.cycles(4 * cfg.pool_depth)
            await rig.sampled()
            oldest = rig.get("oldest")
            assert {
                name: oldest[name]
                for name in ("valid", "plain", "rank", "region", "epoch", "rowid")
            } == {"valid": 1} | {
                name: base[name] for name in ("plain", "rank", "region", "epoch", "rowid")
            }
            assert cfg.pool_depth <= oldest["age"] <= 4 * cfg.pool_depth + 4
            cover(f"{rig.word}.oldest")
        await rig.emptied()
        packet = rig.packets[0]
        late = packet.take - packet.stores[0].placed - min(timeout, limit)
        assert 0 <= late <= rig.late, f"timeout {timeout}, limit {limit}: left {late} cycles late"
        assert rig.counted["packets_timeout"] == (timeout < limit)
        await rig.cycles(2 * rig.late)
        await rig.sampled()
        assert not rig.get("oldest")["valid"]
    cover(f"{rig.word}.timer")
