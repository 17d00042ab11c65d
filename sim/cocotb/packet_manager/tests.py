# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager against its golden model: random traffic, and promises on
latency, rate and order."""

import random

from hub_rtl.contract.fields import SECTOR_BYTES
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import PoolRig


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
        cover("packet_manager.reset.in_traffic", not again and rig.i_store.pending)
    cover(f"packet_manager.grid.{'.'.join(grid)}")


@PoolRig.test()
async def latency(rig, cfg, rng):
    """A store that completes a packet: its first beat is valid 14 cycles after it was accepted, 20
    if it had to go to a list."""
    for count in range(1, cfg.packet_bytes // cfg.slice_bytes + 1):
        full = cfg.slice_bytes * count
        for store in rig.traffic.bytes_of(rig.traffic.row(full=full), 0, full):
            await rig.cycles(7)
            await rig.i_store.send(store)
        await rig.quiet()
        packet = rig.packets[-1]
        cycles = packet.head - rig.i_store.stamps[-1]
        assert cycles == 14, f"{count} stores: first beat {cycles} cycles after the last store"
        assert packet.last - packet.head == count - 1
    cover("packet_manager.latency.14")

    # Without a credit just when it is ready an entry is hung into its list.
    listed = []
    for late in range(14):
        rig.credits.give(0)
        await rig.cycles(3)
        await rig.i_store.send(rig.traffic.bytes_of(rig.traffic.row(full=16), 0, 16)[0])
        await rig.cycles(late)
        rig.credits.give(1000)
        await rig.quiet()
        listed.append(rig.packets[-1].head - rig.i_store.stamps[-1])
    assert min(cycles for cycles in listed if cycles != 14) == 20, f"through a list: {listed}"
    cover("packet_manager.latency.20")
    rig.judge()


@PoolRig.test(
    cases={"spread": ["one", "all"], "window": [0, 48, 150]},
    fits=lambda cfg: cfg.pool_depth >= 128,
    merge_timeout=2000,
)
async def rate(rig, cfg, rng, spread, window):
    """Stores at full rate, of rows in order or shuffled: a beat in every cycle once the first
    packets have left, to one rank or to many (every second cycle, if a beat is a packet, to
    one)."""
    count = 600
    ranks = [0] if spread == "one" else range(cfg.ranks)
    stores = rig.traffic.rows(count, ranks, window)
    rig.i_store.put(*stores)
    await rig.emptied()
    sent = [p.last for p in rig.packets if p.last <= rig.i_store.stamps[-1]]
    skip = len(sent) // 4
    cycles = (sent[-1] - sent[skip]) / (len(sent) - 1 - skip)
    beats = cfg.packet_bytes // cfg.slice_bytes
    least = max(beats, 2) if spread == "one" else beats
    if figures := rig.params.get("figures"):
        with open(figures, "a") as file:
            file.write(f"{spread} {window} {cycles:.3f}\n")
    assert cycles <= least * 1.025, f"{cycles:.3f} cycles per packet"
    cover(f"packet_manager.rate.{spread}.{window}")


@PoolRig.test()
async def interleaved(rig, cfg, rng):
    """32-byte stores of as many interleaved rows as the shared pool holds leave as full records
    only."""
    rows = [rig.traffic.row(dest=next(iter(rig.traffic.dests))) for _ in range(rig.places)]
    blocks = max(2, min(6, cfg.max_row_bytes // cfg.packet_bytes))
    for block in range(blocks):
        for byte in range(0, cfg.packet_bytes, SECTOR_BYTES):
            for row in rows:
                rig.put(row | {"block": block}, byte, SECTOR_BYTES)
    await rig.emptied()
    assert len(rig.packets) == len(rows) * blocks and all(p.full for p in rig.packets)
    cover("packet_manager.rate.interleaved")


@PoolRig.test()
async def sustained(rig, cfg, rng):
    """Whole blocks of both kinds, stored at full rate: the output is busy in at least 97 of 100
    cycles."""
    for n in range(300):
        plain = rig.traffic.plain(rng.randrange(cfg.ranks), n)
        rig.put(plain if rng.random() < 0.3 else rig.traffic.row(), 0, cfg.packet_bytes)
    await rig.emptied()
    beats = rig.o_record.stamps
    cycles = beats[-1] - beats[0] + 1
    assert len(beats) >= 0.97 * cycles, f"{len(beats)} beats in {cycles} cycles"
    cover("packet_manager.rate.sustained")


#: By priority, RowIDs of the packets of `order`; 0 is the plain one.
ORDERS = {
    "rows": [1, 2, 3, 21, 4, 5, 6, 20, 0],
    "turns": [1, 2, 3, 0, 4, 5, 6, 21, 20],
    "plain": [0, 1, 2, 3, 21, 4, 5, 6, 20],
}


@PoolRig.test(cases={"priority": list(ORDERS)}, merge_timeout=60, age_limit=3000)
async def order(rig, cfg, rng, priority):
    """Without credit entries gather; then they leave in the promised order: full normal rows by
    bucket, one in four from the rest: full plain, full .nop, partial; or plain ones last, or
    first."""
    rig.set_policy(priority=list(ORDERS).index(priority))
    dest, rank = rig.traffic.first
    rig.credits.give(0)
    await rig.cycles(3)
    size = cfg.packet_bytes
    rows = [(rowid, rig.traffic.row(rowid=rowid, dest=dest), size) for rowid in (6, 3, 5, 1, 4, 2)]
    rest = [
        (20, rig.traffic.row(rowid=20, dest=dest), 16),
        (21, rig.traffic.row(rowid=21, dest=dest, cls=1), size),
        (0, rig.traffic.plain(rank, 9), size),
    ]
    for _, base, count in [*rest, *rows]:
        rig.put(base, 0, count)
    await rig.stored(60 + 3 * cfg.pool_depth)
    rig.credits.left[rank] = 100
    await rig.emptied()
    assert [p.rowid for p in rig.packets] == ORDERS[priority]
    cover(f"packet_manager.order.{priority}")

    # The circle goes on from where it stands, and does not jump back to a smaller RowID.
    rig.credits.give(0)
    await rig.cycles(3)
    for rowid in (3, 7, 6, 2):
        rig.put_row(size, rowid=rowid, dest=dest)
    await rig.stored(30)
    rig.credits.left[rank] = 100
    await rig.emptied()
    assert [p.rowid for p in rig.packets[9:]] == [6, 7, 2, 3]
    cover("packet_manager.order.circle")


@PoolRig.test(cases={"limit": [20, 300]}, merge_timeout=50, credits=1, give_back=0.08)
async def starvation(rig, cfg, rng, limit):
    """A .nop packet, and a row of the last bucket, leave in spite of an endless stream of better
    ones, even if those grow old as well."""
    rig.limits["age_limit"] = limit
    for rank in range(min(2, cfg.ranks)):
        await rig.anew()
        dest = rig.traffic.by_rank[rank]
        rig.put_row(cfg.packet_bytes, rowid=7, dest=dest)
        rig.put_row(16, rowid=0xFFFFFF, dest=dest, cls=1)
        for _ in range(200):
            rig.put_row(
                cfg.packet_bytes,
                rowid=1,
                dest=dest,
                block=rng.randrange(cfg.max_row_bytes // cfg.packet_bytes),
                epoch=rng.randrange(16),
            )
        await rig.emptied()
        for rowid in (0xFFFFFF, 7):
            victim = next(p for p in rig.packets if p.rowid == rowid)
            old = victim.stores[0].placed + limit + 2 * rig.golden.sweep
            overtaken = [p for p in rig.packets if old <= p.take < victim.take]
            assert len(overtaken) <= 2 * cfg.pool_depth, (
                f"{len(overtaken)} packets left after it had become old"
            )
            assert victim is not rig.packets[-1]
    cover(f"packet_manager.order.old.{limit}")


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
            cover("packet_manager.oldest")
            await rig.cycles(1)
        await rig.emptied()
        packet = rig.packets[0]
        late = packet.take - packet.stores[0].placed - min(timeout, limit)
        assert 0 <= late <= rig.late, f"timeout {timeout}, limit {limit}: left {late} cycles late"
        assert rig.counted["packets_timeout"] == (timeout < limit)
        await rig.cycles(2 * rig.late)
        await rig.sampled()
        assert not rig.get("oldest")["valid"]
        await rig.cycles(1)
    cover("packet_manager.timer")
