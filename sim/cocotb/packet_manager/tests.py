# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager against its golden model: random traffic, and promises on
latency, rate and order."""

import random

import cocotb

from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import SECTOR, Env, Traffic


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_traffic(dut, grid):
    """Random stores, with marks and changing limits: golden model on every packet; reset in
    traffic, then all over again."""
    idle, stall = grid
    number = GRID.index(grid)
    rng = random.Random(number)
    env = Env(
        dut,
        idle=idle,
        stall=stall,
        seed=f"random{number}",
        credits=rng.choice((1, 2, 20)),
        delay=1 + number % 2,
        give_back=rng.choice((0.05, 0.3)),
        merge_timeout=rng.choice((0, 40, 300)),
        age_limit=rng.choice((100, 4000)),
    )
    depth = env.cfg.pool_depth
    env.limits["max_entries"] = env.rng.choice((0, 2, depth // 2, depth))
    for again in range(2):
        await env.start()
        traffic = Traffic(env.cfg, env.rng)
        env.source.put(*traffic.mix(50, window=env.rng.choice((2, depth, 2 * depth))))
        while env.source.pending:
            await env.bench.cycles(env.rng.choice((5, 40, 150)))
            if env.rng.random() < 0.6:
                await env.mark(env.rng.choice((None, *range(min(4, env.cfg.handles)))))
            if not again and env.source.pending < 60:
                break
        if again:
            await env.mark()
            await env.quiet()
            await env.whole_pool(traffic)
            env.finish()
        cover("packet_manager.reset.in_traffic", not again and env.source.pending)
    cover(f"packet_manager.grid.{idle}.{stall}")


@cocotb.test()
async def latency(dut):
    """A store that completes a packet: header valid 9 cycles after it was accepted, for first,
    later and full-mask stores."""
    env = Env(dut)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    for count in (1, 2, env.cfg.packet_sectors):
        stores = traffic.bytes_of(traffic.row(full=SECTOR * count), 0, SECTOR * count)
        for store in stores:
            await env.bench.cycles(7)
            await env.source.send(store)
        await env.quiet()
        packet = env.golden.packets[-1]
        cycles = packet.head - env.source.stamps[-1]
        assert cycles <= 9, f"{count} stores: header {cycles} cycles after the last store"
        assert packet.last - packet.head == 2 * count
        cover("packet_manager.latency.9", cycles == 9)
    env.finish()


@cocotb.test()
@cocotb.parametrize(spread=["one", "all"])
async def back_to_back(dut, spread):
    """Packets of 64 bytes and of full size leave without a gap, to one rank or to many: the link is
    busy while data waits."""
    env = Env(dut, seed=spread)
    traffic = Traffic(env.cfg, env.rng)
    dests = {rank: dest for dest, (rank, _) in traffic.dests.items()}
    size = env.cfg.packet_bytes
    for full in (64, size):
        await env.start()
        count = 40
        for n in range(count):
            dest = list(dests.values())[n % len(dests) if spread == "all" else 0]
            env.source.put(*traffic.bytes_of(traffic.row(dest=dest, full=full), 0, full))
        await env.quiet()
        env.finish()
        flits = 1 + full // 16
        assert env.sink.count and len(env.sink.items) == count * flits
        cycles = env.sink.stamps[-1] - env.sink.stamps[0] + 1
        assert cycles == count * flits, f"{count} packets of {flits} flits took {cycles} cycles"
        cover(f"packet_manager.back_to_back.{'full' if full == size else '64'}.{spread}")


@cocotb.test()
async def wire_efficiency(dut):
    """32-byte stores of as many interleaved rows as the shared pool holds leave as full packets
    only."""
    env = Env(dut)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    cfg = env.cfg
    rows = [
        traffic.row(dest=next(iter(traffic.dests))) for _ in range(cfg.pool_depth - cfg.ranks + 1)
    ]
    blocks = max(2, min(6, cfg.max_row_bytes // cfg.packet_bytes))
    for block in range(blocks):
        parts = [traffic.bytes_of(row | {"block": block}, 0, cfg.packet_bytes) for row in rows]
        for sector in range(cfg.packet_sectors):
            env.source.put(*(part[sector] for part in parts))
    await env.quiet()
    env.finish()
    assert len(env.golden.packets) == len(rows) * blocks and all(p.full for p in env.golden.packets)
    payload = len(rows) * blocks * cfg.packet_bytes
    assert payload * (cfg.packet_flits + 1) == 16 * len(env.sink.items) * cfg.packet_flits
    cover("packet_manager.efficiency.interleaved")


@cocotb.test()
async def sustained(dut):
    """Full-rate stores that come faster than the link: busy in at least 99 of 100 cycles once the
    first packet has left."""
    env = Env(dut)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    env.source.put(*traffic.mix(150, window=1, plain=0.3, styles=("whole",)))
    await env.quiet()
    env.finish()
    packets = env.golden.packets
    idle = waiting = 0
    for p, q in zip(packets, packets[1:], strict=False):
        if (
            q.eligible is not None and q.eligible <= p.last - 6
        ):  # it could have been ready when p ended
            waiting += q.last - p.last
            idle += q.head - p.last - 1 if p.last - p.head >= 4 else 0
    assert waiting > 100 and idle * 100 <= waiting, f"{idle} of {waiting} cycles idle"
    cover("packet_manager.sustained")


@cocotb.test()
async def order(dut):
    """Without credit entries gather; then they leave in the promised order: full, normal before
    .nop, kinds in turn, RowID."""
    env = Env(dut, merge_timeout=60, age_limit=3000)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    dest = next(iter(traffic.dests))
    rank = traffic.dests[dest][0]
    size = cfg.packet_bytes
    env.credits.left = [0] * cfg.ranks
    await env.bench.cycles(3)
    places = cfg.pool_depth - cfg.ranks + 1
    wanted = [
        (f"{full}{nop}", traffic.row(rowid=rowid, dest=dest, cls=nop), size if full else 16)
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
        env.source.put(*traffic.bytes_of(base, 0, count))
    await env.source.drained()
    await env.bench.cycles(60 + 3 * cfg.pool_depth)
    env.credits.left[rank] = 100
    await env.quiet()
    env.finish()
    ranking = sorted(wanted, key=lambda w: (w[2] != size, w[1]["cls"], w[1]["rowid"]))
    assert [p.rowid for p in env.golden.packets] == [base["rowid"] for _, base, _ in ranking]
    cover("packet_manager.order.class_and_row")

    # Plain and row-sparse packets of equal rank take turns.
    await env.start()
    env.credits.left = [0] * cfg.ranks
    await env.bench.cycles(3)
    half = max(1, places // 2)
    for _ in range(half):
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, size))
    for n in range(half):
        env.source.put(*traffic.bytes_of(traffic.plain(rank, n), 0, size))
    await env.source.drained()
    await env.bench.cycles(6)
    env.credits.left[rank] = 100
    await env.quiet()
    env.finish()
    kinds = [p.plain for p in env.golden.packets]
    assert all(a != b for a, b in zip(kinds, kinds[1:], strict=False)), kinds
    cover("packet_manager.order.alternate")


@cocotb.test()
@cocotb.parametrize(limit=[20, 300])
async def starvation(dut, limit):
    """A .nop packet with a large RowID leaves in spite of an endless stream of better ones, even if
    those grow old as well."""
    env = Env(dut, merge_timeout=50, age_limit=limit, seed=limit, credits=1, give_back=0.03)
    cfg = env.cfg
    for rank in range(min(2, cfg.ranks)):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        dest = next(dest for dest, (to, _) in traffic.dests.items() if to == rank)
        env.source.put(*traffic.bytes_of(traffic.row(rowid=0xFFFFFF, dest=dest, cls=1), 0, 16))
        for _ in range(60):
            env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, cfg.packet_bytes))
        await env.quiet()
        env.finish()
        victim = next(p for p in env.golden.packets if p.rowid == 0xFFFFFF)
        old = victim.stores[0].placed + limit + 3 * cfg.pool_depth
        overtaken = [p for p in env.golden.packets if old <= p.take < victim.take]
        assert len(overtaken) <= 2 * cfg.pool_depth, (
            f"{len(overtaken)} packets left after it had become old"
        )
        assert victim is not env.golden.packets[-1]
    cover(f"packet_manager.order.old.{limit}")


@cocotb.test()
async def timers(dut):
    """A partial entry leaves within two sweeps after merge timeout or age limit; the oldest entry
    is shown meanwhile."""
    env = Env(dut)
    cfg = env.cfg
    old = env.rng.getrandbits(16) | 1 << 15
    for timeout, limit in (
        (0, old),
        (50, old),
        (257, old),
        (1024, old),
        (2901, old),
        *((old, n) for n in (72, 55, 200, 411)),
    ):
        env.limits |= {"merge_timeout": timeout, "age_limit": limit}
        await env.start()
        traffic = Traffic(cfg, env.rng)
        base = traffic.row(epoch=5)
        env.source.put(*traffic.bytes_of(base, 3, 20))
        await env.source.drained()
        if timeout == 257:
            await env.bench.cycles(4 * cfg.pool_depth)
            await env.bench.sampled()
            oldest = env.codecs["oldest"].unpack(int(dut.oldest.value))
            assert {
                name: oldest[name]
                for name in ("valid", "plain", "rank", "region", "epoch", "rowid")
            } == {"valid": 1} | {
                name: base[name] for name in ("plain", "rank", "region", "epoch", "rowid")
            }
            assert cfg.pool_depth <= oldest["age"] <= 4 * cfg.pool_depth + 4
            cover("packet_manager.oldest")
        await env.quiet()
        env.finish()
        packet = env.golden.packets[0]
        late = packet.take - packet.stores[0].placed - min(timeout, limit)
        assert 0 <= late <= 2 * cfg.pool_depth + 8, (
            f"timeout {timeout}, limit {limit}: left {late} cycles late"
        )
        assert env.counted["packets_timeout"] == (timeout < limit)
        await env.bench.cycles(2 * cfg.pool_depth + 4)
        await env.bench.sampled()
        assert not env.codecs["oldest"].unpack(int(dut.oldest.value))["valid"]
    cover("packet_manager.timer")
