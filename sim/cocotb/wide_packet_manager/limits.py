# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the wide packet manager at its limits: pool full, drain, a dead peer, one address
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
    cover("wide_packet_manager.pool.full")
    cover("wide_packet_manager.pool.reserve")

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
    cover("wide_packet_manager.pool.maximum")


@PoolRig.test(merge_timeout=60, age_limit=2000, give_back=0.2, credits=2)
async def can_accept(rig, cfg, rng):
    """A crossbar that stops at ``can_accept`` and has up to 8 stores on the way never meets a stall
    (pool large enough)."""
    assert cfg.pool_depth - cfg.ranks >= 11, "this test needs a larger pool"
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
    cover("wide_packet_manager.can_accept")


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
    cover("wide_packet_manager.mark.handle")

    # Mark in the very cycle in which a store is accepted, in which a last flit waits, and around
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
    cover("wide_packet_manager.mark.every_stage")
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
    cover("wide_packet_manager.mark.blocked")


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
        golden = rig.golden
        await rig.cycles(4 * golden.sweep + 20 * cfg.pool_depth)
        tags, stores = golden.sunk(victim)
        await rig.quiet()
        golden.finish()
        assert tags <= rig.counted["sunk"] <= stores, "sunk entries"
        others = [p for p in golden.packets if p.rank != victim]
        assert others
        cover("wide_packet_manager.dead.sunk", rig.counted["sunk"] > 0)
        cover("wide_packet_manager.count.sunk", rig.counted["sunk"] > 0)

        # Alive again: works as before.
        rig.kill(0)
        before = len(golden.packets)
        dest = next(dest for dest, (rank, _) in rig.traffic.dests.items() if rank == victim)
        rig.put_row(cfg.packet_bytes, dest=dest)
        await rig.quiet()
        assert len(golden.packets) == before + 1
    cover("wide_packet_manager.dead.back")


@PoolRig.test(stall="random", merge_timeout=20, age_limit=4000, credits=2, give_back=0.1)
async def same_address(rig, cfg, rng):
    """Stores to one address, without pause: the bytes leave in order, the newest last, whatever is
    locked meanwhile."""
    for _ in range(120):
        base = rig.traffic.plain(rng.randrange(cfg.ranks), 7)
        rig.put(base, rng.randrange(4), rng.choice((1, 8, cfg.packet_bytes - 4)))
    await rig.emptied()
    assert rig.counted["overlaps"] > 20
    cover("wide_packet_manager.same_address")


@PoolRig.test(credits=0, merge_timeout=60000, age_limit=60000, watchdog=0)
async def ages_saturate(rig, cfg, rng):
    """An entry that waits for a credit longer than ages can count shows the largest age until it
    leaves."""
    rig.put(rig.traffic.row(), 3, 20)
    await rig.stored()
    for cycles in (1 << 16, 50, 50):
        await rig.cycles(cycles + 3 * cfg.pool_depth)
        await rig.sampled()
        assert rig.get("oldest")["age"] == 0xFFFF
        await rig.cycles(1)
    rig.credits.give(1)
    await rig.emptied()


@PoolRig.test(credits=0, merge_timeout=60000, age_limit=60000, watchdog=6000)
async def places(rig, cfg, rng):
    """Entries come and go one by one, for all maxima: the side ports follow while nothing else
    moves."""
    still = 16 + 3 * min(cfg.pool_depth, 32)
    for most in (0, 2, cfg.pool_depth - 1, cfg.pool_depth):
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
    cover("wide_packet_manager.places")


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
    cover("wide_packet_manager.neighbours")


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
    cover("wide_packet_manager.mark.one")


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
        await rig.stored(10)
        rig.credits.left[rank] = 1
        await rig.cycles(20)
        fillers = [
            rig.traffic.row(rowid=100 + n, dest=dest) for n in range(cfg.pool_depth - cfg.ranks - 1)
        ]
        for base in (young, *fillers):
            rig.put(base, 0, 8)
        await rig.cycles(cfg.pool_depth + 8)
        rig.o_record.set_pause(None)
        await rig.cycles(wait)
        rig.credits.left[rank] = 1
        await rig.cycles(40)
        waited += rig.counted["stall_pool"] > 0
        rig.credits.left[rank] = 1000
        await rig.emptied()
        assert [p.rowid for p in rig.packets[:2]] == [3, 2], f"wait {wait}: not the expired one"
    assert waited
    cover("wide_packet_manager.pool.in_a_moment")
