# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager at its limits: pool full, drain, a dead peer, one address
again and again."""

from sim.quality.coverage import cover

from .rig import PoolRig


@PoolRig.test(merge_timeout=60000, age_limit=60000)
async def pool_full(rig, cfg, rng):
    """Partial rows fill the pool: stores stall, the pool makes room by itself; a rank without
    entries gets its reserve."""
    by_rank = rig.traffic.by_rank
    rig.put_rows(3 * cfg.pool_depth)
    await rig.stored()
    await rig.flush()
    assert rig.counted["stall_pool"] > 0
    rig.judge()

    # All shared entries belong to a rank without credit: others still pass, each with the entry
    # reserved for it.
    await rig.start()
    stuck, *others = by_rank
    rig.credits.left[stuck] = 0
    await rig.cycles(3)
    rig.put_rows(rig.places, dest=by_rank[stuck])
    for rank in others:
        rig.put_rows(3, dest=by_rank[rank])
    await rig.stored(20)
    assert rig.get("can_accept") >> stuck & 1 == 0
    rig.credits.left[stuck] = 1000
    await rig.flushed()
    cover("packet_manager.pool.full")
    cover("packet_manager.pool.reserve")

    # The maximum of one rank holds only that rank up.
    rig.limits["max_entries"] = 2
    for place in range(3):  # in each entry of the pool once
        await rig.start()
        rig.credits.left[stuck] = 0
        await rig.cycles(3)
        ranks = [stuck, stuck]
        ranks[place:place] = others
        rig.i_store.put(
            *(rig.traffic.bytes_of(rig.traffic.row(dest=by_rank[rank]), 0, 8)[0] for rank in ranks)
        )
        await rig.stored(8)
        assert not rig.packets and rig.counted["stall_pool"] == 0
        rig.put_row(8, dest=by_rank[stuck])
        await rig.cycles(40)
        assert rig.counted["stall_pool"] > 0 and not rig.packets, (
            "others must not be squeezed for this rank's maximum"
        )
        rig.credits.left[stuck] = 1000
        await rig.cycles(100)
        assert len(rig.packets) == 1 and rig.packets[0].rank == stuck, (
            "one entry is enough to make room"
        )
        await rig.flushed()
    cover("packet_manager.pool.maximum")


@PoolRig.test(
    fits=lambda cfg: cfg.pool_depth - cfg.ranks >= 16,
    merge_timeout=60,
    age_limit=2000,
    give_back=0.2,
    credits=2,
)
async def can_accept(rig, cfg, rng):
    """A crossbar that stops at ``can_accept`` and has up to 8 stores on the way never meets a stall
    (pool large enough)."""
    rank = 0  # one rank: others could use their reserve, for which the promise is one place
    dests = [dest for dest, (to, _) in rig.traffic.dests.items() if to == rank]
    stopped, way = 0, []
    for _ in range(1200):
        await rig.sampled()
        go = rig.get("can_accept") >> rank & 1
        await rig.cycles(1)
        stopped += not go
        way.append(go)
        if len(way) > 7 and way.pop(0):
            rig.put_row(rng.choice((8, 32)), dest=rng.choice(dests))
    assert stopped > 100
    await rig.flushed()
    assert rig.counted["stall_pool"] == 0
    cover("packet_manager.can_accept")


@PoolRig.test(merge_timeout=60000, age_limit=60000)
async def fence_and_close(rig, cfg, rng):
    """Marks: of one handle only its entries leave; of all, everything; also with the link blocked,
    and with stores going on."""
    handles = sorted({dest // cfg.replicas for dest in rig.traffic.dests})
    dests = [handle * cfg.replicas for handle in handles][: max(1, cfg.pool_depth - cfg.ranks)]
    for dest in dests:
        rig.put(rig.traffic.row(dest=dest), 5, 30)
    await rig.stored(20)
    assert not rig.packets
    await rig.mark(dests[0] // cfg.replicas)
    await rig.cycles(60)
    assert [p.stores[0].dest for p in rig.packets] == dests[:1]
    assert rig.get("draining") == 0
    cover("packet_manager.mark.handle")

    # Mark in the very cycle in which a store is accepted, in which a last beat waits, and around
    # it.
    for wait in range(26):
        await rig.flush()
        rig.o_record.set_pause([False] * 9 + [True] * 3 + [False] * 500)
        rig.put_row(32, dest=dests[0], full=32)
        rig.put_row(16, dest=dests[-1])
        await rig.cycles(1 + wait)
        await rig.mark()
        await rig.stored(40)
        rig.o_record.set_pause(None)
    cover("packet_manager.mark.every_stage")
    await rig.flushed()

    # A blocked link: draining holds until the bytes are out.
    await rig.start()
    rig.o_record.set_pause("stop")
    rig.i_store.put(
        *rig.traffic.bytes_of(rig.traffic.row(dest=dests[0]), 0, 16),
        *rig.traffic.bytes_of(rig.traffic.row(dest=dests[0]), 0, 16),
    )
    await rig.stored()
    await rig.mark()
    await rig.cycles(100)
    assert rig.get("draining") == 1 << rig.traffic.dests[dests[0]][0]
    rig.o_record.set_pause(None)
    await rig.emptied()
    cover("packet_manager.mark.blocked")


@PoolRig.test(merge_timeout=500, age_limit=4000)
async def dead_peer(rig, cfg, rng):
    """A peer dies with entries in the pool, at the output and still arriving: they are sunk and
    counted, others go on."""
    for victim in range(min(2, cfg.ranks)):
        await rig.anew()
        rig.i_store.put(*rig.traffic.mix(60, window=cfg.pool_depth))
        await rig.cycles(60)
        await rig.mark()
        rig.kill(1 << victim)
        await rig.stored()
        await rig.mark()
        least, most = await rig.sunk(victim)
        golden = rig.golden
        golden.finish()
        assert least <= rig.counted["sunk"] <= most, "sunk entries"
        others = [p for p in golden.packets if p.rank != victim]
        assert others
        cover("packet_manager.dead.sunk", rig.counted["sunk"] > 0)
        cover("packet_manager.count.sunk", rig.counted["sunk"] > 0)

        # Alive again: works as before.
        rig.kill(0)
        before = len(golden.packets)
        dest = next(dest for dest, (rank, _) in rig.traffic.dests.items() if rank == victim)
        rig.put_row(cfg.packet_bytes, dest=dest)
        await rig.quiet()
        assert len(golden.packets) == before + 1
    cover("packet_manager.dead.back")


@PoolRig.test(stall="random", merge_timeout=20, age_limit=4000, credits=2, give_back=0.1)
async def same_address(rig, cfg, rng):
    """Stores to one address, without pause: the bytes leave in order, the newest last, whatever is
    locked meanwhile."""
    for _ in range(120):
        base = rig.traffic.plain(rng.randrange(cfg.ranks), 7)
        rig.put(base, rng.randrange(4), rng.choice((1, 8, cfg.packet_bytes - 4)))
    await rig.emptied()
    assert rig.counted["overlaps"] > 20
    cover("packet_manager.same_address")


@PoolRig.test(credits=0, merge_timeout=60000, age_limit=60000, watchdog=0)
async def ages_saturate(rig, cfg, rng):
    """Entries that wait for a credit longer than ages can count show the largest age until they
    leave, and only they."""
    dest, rank = rig.traffic.first
    old = min(rig.places, 7)
    for _ in range(old):
        rig.put_row(1, dest=dest)
        await rig.stored(rng.randrange(cfg.pool_depth, 3 * cfg.pool_depth))
    for cycles in (1 << 16, 50, 50):
        await rig.cycles(cycles + 3 * cfg.pool_depth)
        await rig.sampled()
        assert rig.get("oldest")["age"] == 0xFFFF
        await rig.cycles(1)
    # Young ones in the places of the first that have left.
    young = old // 2
    rig.credits.left[rank] = young
    await rig.cycles(100)
    rig.put_rows(rig.places - old + young, dest=dest)
    await rig.stored(8 * cfg.pool_depth)
    rig.credits.give(cfg.pool_depth)
    await rig.cycles(10 * cfg.pool_depth)
    assert len(rig.packets) == old, "a young one has left"
    await rig.flushed()


@PoolRig.test(merge_timeout=60000, age_limit=50)
async def next_batch(rig, cfg, rng):
    """Old entries that have left close no batch: one that comes later grows old as soon, whatever
    places they had."""
    dest, _ = rig.traffic.first
    for count in (rig.places, 1):
        before = len(rig.packets)
        rig.put_rows(count, dest=dest)
        await rig.stored(50 + 4 * cfg.pool_depth + 8 * count)
        assert len(rig.packets) == before + count, "not old in time"
    await rig.emptied()
    cover("packet_manager.order.next_batch")


@PoolRig.test(merge_timeout=60000, age_limit=60000)
async def young_and_dead(rig, cfg, rng):
    """Entries of a dead peer that are first visited just as a packet ends are as young as they are,
    not as old as those before."""
    held = 300
    places = rig.places  # of one rank
    for wait in range(32):
        await rig.anew()
        by_rank = rig.traffic.by_rank
        victim, other = sorted(by_rank)[:2]
        rig.credits.give(0)
        for rank, count in ((victim, places), (other, 1)):
            rig.put_rows(count, dest=by_rank[rank])
        await rig.cycles(held)
        rig.credits.give(1000)
        await rig.flush()
        # Its first packet ends in any phase of a sweep, some cycles after the dead peer's store has
        # got the last place.
        await rig.cycles(3 * cfg.pool_depth + wait % 4)
        rig.kill(1 << victim)
        rig.i_store.put(
            *(
                rig.traffic.bytes_of(rig.traffic.row(dest=by_rank[other], full=16), 0, 16)[0]
                for _ in range(places)
            )
        )
        await rig.cycles(places + wait // 4)
        rig.put_row(8, dest=by_rank[victim])
        for _ in range(40):
            await rig.sampled()
            shown = rig.get("oldest")
            assert not shown["valid"] or shown["age"] < held // 2, f"{shown} is too old"
            await rig.cycles(1)
        await rig.sunk(victim)
    cover("packet_manager.dead.young")
