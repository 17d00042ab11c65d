# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager: places of the pool filled and emptied, and stores whose tags
differ in one bit."""

import cocotb

from sim.quality.coverage import cover

from .rig import Env, Traffic


@cocotb.test()
async def places(dut):
    """Entries come and go one by one, for all maxima: the side ports follow while nothing else
    moves."""
    env = Env(dut, credits=0, merge_timeout=60000, age_limit=60000, seed="places", watchdog=6000)
    cfg, rng = env.cfg, env.rng
    still = 16 + 3 * min(cfg.pool_depth, 32)
    for most in (0, 2, cfg.pool_depth - 1, cfg.pool_depth):
        env.limits |= {
            "max_entries": most,
            "age_limit": 200 if most == cfg.pool_depth else 60000,
        }  # all are old at last
        await env.start()
        traffic = Traffic(cfg, rng)
        dests = list(traffic.dests)
        # As many as fit: one for each rank, others by turns up to the maximum.
        counts, spare = {}, cfg.pool_depth - cfg.ranks
        for _ in range(4 * cfg.pool_depth):
            dest = rng.choice(dests)
            rank = traffic.dests[dest][0]
            count = counts.get(rank, 0)
            shared = spare - sum(count - 1 for count in counts.values() if count)
            if count and (count >= max(1, most) or not shared):
                continue
            counts[rank] = count + 1
            plain = rng.random() < 0.3
            base = (
                traffic.plain(rank, rng.getrandbits(30))
                if plain
                else traffic.row(dest=dest, epoch=rng.randrange(16))
            )
            env.source.put(*traffic.bytes_of(base, 0, 8))
            await env.source.drained()
            await env.bench.cycles(still if rng.random() < 0.7 else rng.randrange(8))
        assert not env.counted["stall_pool"]
        # Marked they may leave, and do when a credit comes, one at a time.
        await env.mark()
        await env.bench.cycles(still)
        while env.golden.pending:
            env.credits.left[rng.choice([tag[1] for tag in env.golden.pending])] += 1
            await env.bench.cycles(still if rng.random() < 0.7 else 30)
        await env.quiet()
        env.finish()
    cover("packet_manager.places")


@cocotb.test()
async def neighbours(dut):
    """Two stores whose tags differ in one bit, whichever, leave apart; two that differ elsewhere
    leave together."""
    env = Env(dut, merge_timeout=60000, age_limit=60000, seed="neighbours")
    await env.start()
    cfg, rng = env.cfg, env.rng
    traffic = Traffic(cfg, rng)
    fields = {"rowid": 24, "epoch": 4, "block": cfg.row_block_width, "region": cfg.region_width}
    pairs = []
    for name, width in fields.items():
        for bit in range(width):
            row = traffic.row(rowid=rng.getrandbits(24), epoch=rng.randrange(16))
            other = row | {name: row[name] ^ 1 << bit}
            if other["region"] < cfg.regions and other["block"] < max(
                1, cfg.max_row_bytes // cfg.packet_bytes
            ):
                pairs.append((row, other))
    for bit in range(cfg.addr_block_width):
        block = rng.getrandbits(cfg.addr_block_width)
        pairs.append((traffic.plain(0, block), traffic.plain(0, block ^ 1 << bit)))
    for rank in range(cfg.ranks):
        pairs.append((traffic.plain(rank, 3), traffic.plain((rank + 1) % cfg.ranks, 3)))
    for one, other in pairs:
        before = len(env.golden.packets)
        for base, first in rng.sample([(one, 0), (other, 40), (one, 70), (other, 100)], 4):
            env.source.put(*traffic.bytes_of(base, first, 6))
        await env.source.drained()
        await env.mark()
        await env.quiet()
        assert len(env.golden.packets) == before + 2, f"{one}\n {other}"
    env.finish()
    cover("packet_manager.neighbours")


@cocotb.test()
async def marks_of_one(dut):
    """A mark of a handle is for its rows only: stores to addresses, and other handles' rows, stay
    where they are."""
    env = Env(dut, merge_timeout=60000, age_limit=60000, seed="marks")
    cfg, rng = env.cfg, env.rng
    for _ in range(12):
        await env.start()
        traffic = Traffic(cfg, rng)
        by_handle = {}
        for dest in traffic.dests:
            by_handle.setdefault(dest // cfg.replicas, dest)
        rows = rng.sample(list(by_handle.values()), min(2, len(by_handle)))
        bases = [traffic.row(dest=dest) for dest in rows] + [
            traffic.plain(rank, 9) for rank in range(min(2, cfg.ranks))
        ]
        for base in rng.sample(bases, len(bases)):
            env.source.put(*traffic.bytes_of(base, 0, 20))
        await env.source.drained()
        await env.bench.cycles(rng.randrange(4))
        for count, dest in enumerate(rng.sample(rows, len(rows)), 1):
            await env.mark(dest // cfg.replicas)
            await env.bench.cycles(60)
            assert (
                len(env.golden.packets) == count and env.golden.packets[-1].stores[0].dest == dest
            )
        await env.mark()
        await env.quiet()
        env.finish()
    cover("packet_manager.mark.one")


@cocotb.test()
async def place_in_a_moment(dut):
    """A store waits for the place of an entry that is leaving: no other one is squeezed out for it,
    also in the cycle in which that entry has left and its place is not yet given."""
    timeout = 60
    env = Env(dut, merge_timeout=timeout, age_limit=60000, credits=0)
    cfg = env.cfg
    waited = 0
    for wait in range(24):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        dest = next(iter(traffic.dests))
        rank = traffic.dests[dest][0]
        young, expired, whole = (traffic.row(rowid=rowid, dest=dest) for rowid in (1, 2, 3))
        env.source.put(*traffic.bytes_of(expired, 0, 8))
        await env.source.drained()
        await env.bench.cycles(timeout + 3 * cfg.pool_depth)
        # The whole one is locked and held at the output; then one more store than the rank has
        # places for.
        env.sink.set_pause("stop")
        env.source.put(*traffic.bytes_of(whole, 0, cfg.packet_bytes))
        await env.source.drained()
        await env.bench.cycles(6)
        env.credits.left[rank] = 1
        await env.bench.cycles(10)
        fillers = [
            traffic.row(rowid=100 + n, dest=dest) for n in range(cfg.pool_depth - cfg.ranks - 1)
        ]
        for base in (young, *fillers):
            env.source.put(*traffic.bytes_of(base, 0, 8))
        await env.bench.cycles(cfg.pool_depth + 4)
        env.sink.set_pause(None)
        await env.bench.cycles(wait)
        env.credits.left[rank] = 1
        await env.bench.cycles(14)
        waited += env.counted["stall_pool"] > 0
        env.credits.left[rank] = 1000
        await env.quiet()
        env.finish()
        assert [p.rowid for p in env.golden.packets[:2]] == [3, 2], (
            f"wait {wait}: not the expired one"
        )
    assert waited
    cover("packet_manager.pool.in_a_moment")


@cocotb.test()
async def old_at_once(dut):
    """A shorter age limit makes all entries of a full pool old in one sweep; all leave, in an order
    that the rules allow."""
    env = Env(dut, credits=0, merge_timeout=60000, age_limit=60000, seed="old", watchdog=6000)
    cfg = env.cfg
    env.limits |= {"max_entries": cfg.pool_depth}
    await env.start()
    traffic = Traffic(cfg, env.rng)
    for block, rank in enumerate([*(cfg.pool_depth - cfg.ranks) * [0], *range(cfg.ranks)]):
        env.source.put(*traffic.bytes_of(traffic.plain(rank, block), 0, 8))
        await env.source.drained()
    await env.bench.cycles(300)
    env.golden.age_limit = dut.age_limit.value = 200
    await env.bench.cycles(3 * cfg.pool_depth + 8)
    env.credits.left = [cfg.pool_depth] * cfg.ranks
    await env.quiet()
    env.finish()
    assert len(env.golden.packets) == cfg.pool_depth
