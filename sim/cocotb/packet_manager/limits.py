# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager at its limits: pool full, drain, a dead peer, one address
again and again."""

import cocotb

from sim.quality.coverage import cover

from .rig import Env, Traffic


@cocotb.test()
async def pool_full(dut):
    """Partial rows fill the pool: stores stall, the pool makes room by itself; a rank without
    entries gets its reserve."""
    env = Env(dut, merge_timeout=60000, age_limit=60000)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    by_rank = {}
    for dest, (rank, _) in traffic.dests.items():
        by_rank.setdefault(rank, dest)
    env.source.put(*(traffic.bytes_of(traffic.row(), 0, 8)[0] for _ in range(3 * cfg.pool_depth)))
    await env.source.drained()
    await env.mark()
    await env.quiet()
    assert env.counted["stall_pool"] > 0
    env.finish()

    # All shared entries belong to a rank without credit: others still pass, each with the entry
    # reserved for it.
    await env.start()
    stuck, *others = by_rank
    env.credits.left[stuck] = 0
    await env.bench.cycles(3)
    for _ in range(cfg.pool_depth - cfg.ranks + 1):
        env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[stuck]), 0, 8))
    for rank in others:
        for _ in range(3):
            env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[rank]), 0, 8))
    await env.source.drained()
    await env.bench.cycles(20)
    assert int(dut.can_accept.value) >> stuck & 1 == 0
    env.credits.left[stuck] = 1000
    await env.mark()
    await env.quiet()
    env.finish()
    cover("packet_manager.pool.full")
    cover("packet_manager.pool.reserve")

    # The maximum of one rank holds only that rank up.
    env.limits["max_entries"] = 2
    for place in range(3):  # in each entry of the pool once
        await env.start()
        env.credits.left[stuck] = 0
        await env.bench.cycles(3)
        ranks = [stuck, stuck]
        ranks[place:place] = others
        env.source.put(
            *(traffic.bytes_of(traffic.row(dest=by_rank[rank]), 0, 8)[0] for rank in ranks)
        )
        await env.source.drained()
        await env.bench.cycles(8)
        assert not env.golden.packets and env.counted["stall_pool"] == 0
        env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[stuck]), 0, 8))
        await env.bench.cycles(40)
        assert env.counted["stall_pool"] > 0 and not env.golden.packets, (
            "others must not be squeezed for this rank's maximum"
        )
        env.credits.left[stuck] = 1000
        await env.bench.cycles(100)
        assert len(env.golden.packets) == 1 and env.golden.packets[0].rank == stuck, (
            "one entry is enough to make room"
        )
        await env.mark()
        await env.quiet()
        env.finish()
    cover("packet_manager.pool.maximum")


@cocotb.test()
async def can_accept(dut):
    """A crossbar that stops at ``can_accept`` and has up to 8 stores on the way never meets a stall
    (pool large enough)."""
    env = Env(dut, merge_timeout=60, age_limit=2000, give_back=0.2, credits=2)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    assert cfg.pool_depth - cfg.ranks >= 11, "this test needs a larger pool"
    rank = 0  # one rank: others could use their reserve, for which the promise is one place
    dests = [dest for dest, (to, _) in traffic.dests.items() if to == rank]
    stopped, way = 0, []
    for _ in range(1200):
        await env.bench.sampled()
        go = int(dut.can_accept.value) >> rank & 1
        await env.bench.cycles(1)
        stopped += not go
        way.append(go)
        if len(way) > 7 and way.pop(0):
            env.source.put(
                *traffic.bytes_of(
                    traffic.row(dest=env.rng.choice(dests)), 0, env.rng.choice((8, 32))
                )
            )
    assert stopped > 100
    await env.mark()
    await env.quiet()
    env.finish()
    assert env.counted["stall_pool"] == 0
    cover("packet_manager.can_accept")


@cocotb.test()
async def fence_and_close(dut):
    """Marks: of one handle only its entries leave; of all, everything; also with the link blocked,
    and with stores going on."""
    env = Env(dut, merge_timeout=60000, age_limit=60000)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    handles = sorted({dest // cfg.replicas for dest in traffic.dests})
    dests = [handle * cfg.replicas for handle in handles][: max(1, cfg.pool_depth - cfg.ranks)]
    for dest in dests:
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 5, 30))
    await env.source.drained()
    await env.bench.cycles(20)
    assert not env.golden.packets
    await env.mark(dests[0] // cfg.replicas)
    await env.bench.cycles(60)
    assert [p.stores[0].dest for p in env.golden.packets] == dests[:1]
    assert int(dut.draining.value) == 0
    cover("packet_manager.mark.handle")

    # Mark in the very cycle in which a store is accepted, in which a last flit waits, and around
    # it.
    for wait in range(26):
        await env.mark()
        await env.quiet()
        env.sink.set_pause([False] * 9 + [True] * 3 + [False] * 500)
        env.source.put(*traffic.bytes_of(traffic.row(dest=dests[0], full=32), 0, 32))
        env.source.put(*traffic.bytes_of(traffic.row(dest=dests[-1]), 0, 16))
        await env.bench.cycles(1 + wait)
        await env.mark()
        await env.source.drained()
        await env.bench.cycles(40)
        env.sink.set_pause(None)
    cover("packet_manager.mark.every_stage")
    await env.mark()
    await env.quiet()
    env.finish()

    # A blocked link: draining holds until the bytes are out.
    await env.start()
    env.sink.set_pause("stop")
    env.source.put(
        *traffic.bytes_of(traffic.row(dest=dests[0]), 0, 16),
        *traffic.bytes_of(traffic.row(dest=dests[0]), 0, 16),
    )
    await env.source.drained()
    await env.mark()
    await env.bench.cycles(100)
    assert int(dut.draining.value) == 1 << traffic.dests[dests[0]][0]
    env.sink.set_pause(None)
    await env.quiet()
    env.finish()
    cover("packet_manager.mark.blocked")


@cocotb.test()
async def dead_peer(dut):
    """A peer dies with entries in the pool, at the output and still arriving: they are sunk and
    counted, others go on."""
    env = Env(dut, merge_timeout=500, age_limit=4000)
    cfg = env.cfg
    for victim in range(min(2, cfg.ranks)):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        env.source.put(*traffic.mix(60, window=cfg.pool_depth))
        await env.bench.cycles(60)
        await env.mark()
        env.kill(1 << victim)
        await env.source.drained()
        await env.mark()
        await env.quiet()
        golden = env.golden
        golden.finish()
        assert len(golden.sunk_tags) <= env.counted["sunk"] <= golden.sunk_stores, "sunk entries"
        others = [p for p in golden.packets if p.rank != victim]
        assert others
        cover("packet_manager.dead.sunk", env.counted["sunk"] > 0)
        cover("packet_manager.count.sunk", env.counted["sunk"] > 0)

        # Alive again: works as before.
        env.kill(0)
        golden.dead_since[victim] = None
        before = len(golden.packets)
        dest = next(dest for dest, (rank, _) in traffic.dests.items() if rank == victim)
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, cfg.packet_bytes))
        await env.quiet()
        assert len(golden.packets) == before + 1
    cover("packet_manager.dead.back")


@cocotb.test()
async def same_address(dut):
    """Stores to one address, without pause: the bytes leave in order, the newest last, whatever is
    locked meanwhile."""
    env = Env(
        dut, stall="random", seed="same", merge_timeout=20, age_limit=4000, credits=2, give_back=0.1
    )
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    for _ in range(120):
        base = traffic.plain(env.rng.randrange(env.cfg.ranks), 7)
        env.source.put(
            *traffic.bytes_of(
                base, env.rng.randrange(4), env.rng.choice((1, 8, env.cfg.packet_bytes - 4))
            )
        )
    await env.quiet()
    env.finish()
    assert env.counted["overlaps"] > 20
    cover("packet_manager.same_address")


@cocotb.test()
async def ages_saturate(dut):
    """An entry that waits for a credit longer than ages can count shows the largest age until it
    leaves."""
    env = Env(dut, credits=0, merge_timeout=60000, age_limit=60000, watchdog=0)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    env.source.put(*traffic.bytes_of(traffic.row(), 3, 20))
    await env.source.drained()
    for cycles in (1 << 16, 50, 50):
        await env.bench.cycles(cycles + 3 * env.cfg.pool_depth)
        await env.bench.sampled()
        assert env.codecs["oldest"].unpack(int(dut.oldest.value))["age"] == 0xFFFF
        await env.bench.cycles(1)
    env.credits.left = [1] * env.cfg.ranks
    await env.quiet()
    env.finish()


@cocotb.test()
async def next_batch(dut):
    """Old entries that have left close no batch: one that comes later grows old as soon, whatever
    places they had."""
    limit = 50
    env = Env(dut, merge_timeout=60000, age_limit=limit)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    dest = next(iter(traffic.dests))
    for count in (cfg.pool_depth - cfg.ranks + 1, 1):
        before = len(env.golden.packets)
        env.source.put(*(traffic.bytes_of(traffic.row(dest=dest), 0, 8)[0] for _ in range(count)))
        await env.source.drained()
        await env.bench.cycles(limit + 4 * cfg.pool_depth + 8 * count)
        assert len(env.golden.packets) == before + count, "not old in time"
    await env.quiet()
    env.finish()
    cover("packet_manager.order.next_batch")


@cocotb.test()
async def young_and_dead(dut):
    """Entries of a dead peer that are first visited just as a packet ends are as young as they are,
    not as old as those before."""
    held = 300
    env = Env(dut, merge_timeout=60000, age_limit=60000)
    cfg = env.cfg
    places = cfg.pool_depth - cfg.ranks + 1  # of one rank
    for wait in range(32):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        by_rank = {rank: dest for dest, (rank, _) in traffic.dests.items()}
        victim, other = sorted(by_rank)[:2]
        env.credits.left = [0] * cfg.ranks
        for rank, count in ((victim, places), (other, 1)):
            env.source.put(
                *(traffic.bytes_of(traffic.row(dest=by_rank[rank]), 0, 8)[0] for _ in range(count))
            )
        await env.bench.cycles(held)
        env.credits.left = [1000] * cfg.ranks
        await env.mark()
        await env.quiet()
        # Its first packet ends in any phase of a sweep, some cycles after the dead peer's store has
        # got the last place.
        await env.bench.cycles(3 * cfg.pool_depth + wait % 4)
        env.kill(1 << victim)
        env.source.put(
            *(
                traffic.bytes_of(traffic.row(dest=by_rank[other], full=16), 0, 16)[0]
                for _ in range(places)
            )
        )
        await env.bench.cycles(places + wait // 4)
        env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[victim]), 0, 8))
        for _ in range(40):
            await env.bench.sampled()
            shown = env.codecs["oldest"].unpack(int(dut.oldest.value))
            assert not shown["valid"] or shown["age"] < held // 2, f"{shown} is too old"
            await env.bench.cycles(1)
        await env.quiet()
    cover("packet_manager.dead.young")
