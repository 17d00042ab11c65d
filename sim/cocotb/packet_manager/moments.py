# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager: sectors with one unit, and two events that meet at one
register.

Each test goes through all distances between the two events, so that they meet in every run,
whatever the seed.
"""

from sim.quality.coverage import cover

from .rig import SECTOR, PoolRig

UNIT = SECTOR // 2
LATE = 60000  # cycles: no timer makes an entry leave


def held_back(rig, hold):
    """A pause that begins when ``hold["after"]`` flits have been taken, and ends when that is
    None."""
    while True:
        yield hold["after"] is not None and rig.output.count >= hold["after"]


def unit_stores(rig, base, units, ragged):
    """Stores that write just these 16-byte units of a block; both units of a sector at once or one
    by one."""
    rng, stores = rig.rng, []
    for unit in units:
        mask = (1 << UNIT) - 1
        if unit in ragged:
            mask = rng.randrange(1, mask)
        mask <<= UNIT * (unit % 2)
        stores.append(base | {"sector": unit // 2, "mask": mask, "data": rng.getrandbits(256)})
    rng.shuffle(stores)
    joined = []
    for store in stores:
        other = joined[-1] if joined else None
        if other and other["sector"] == store["sector"] and rng.random() < 0.5:
            joined[-1] = other | {"mask": other["mask"] | store["mask"]}
        else:
            joined.append(store)
    return joined


def cover_units(rig, units, stores):
    """Notes which sectors with one unit this packet has."""
    first, last, lone = min(units), max(units), {unit for unit in units if unit ^ 1 not in units}
    cover(f"{rig.word}.half.first", first % 2 and first in lone)
    cover(f"{rig.word}.half.last", last % 2 == 0 and last in lone)
    inside = {unit for unit in lone if first // 2 < unit // 2 < last // 2}
    cover(f"{rig.word}.half.inside.upper", any(unit % 2 for unit in inside))
    cover(f"{rig.word}.half.inside.lower", any(unit % 2 == 0 for unit in inside))
    upper = {store["sector"] for store in stores if not store["mask"] & (1 << UNIT) - 1}
    later = [store["sector"] for store in stores if store["mask"] & (1 << UNIT) - 1]
    cover(f"{rig.word}.half.upper_before_lower", upper & set(later))


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def half_sectors(rig, cfg, rng):
    """Every set of 16-byte units of four sectors, at both ends of a block: the stores are cut in
    the middle of sectors."""
    for base in sorted({0, cfg.packet_flits - 8}):
        for number in range(1, 256):
            units = [base + n for n in range(8) if number >> n & 1]
            ragged = rng.choice(((), (), (rng.choice(units),), units))
            row = rng.random() < 0.6
            # A short block may end with the lower unit of a sector, and is full with it.
            full = UNIT * rng.choice((max(units) + 1, cfg.packet_flits))
            if units == list(range(len(units))):
                row, full, ragged = True, UNIT * len(units), ()
            block = (
                rig.traffic.row(full=full)
                if row
                else rig.traffic.plain(rng.randrange(cfg.ranks), number)
            )
            stores = unit_stores(rig, block, units, ragged)
            before = len(rig.packets)
            rig.i_store.put(*stores)
            await rig.stored(rng.choice((0, 0, 1, 2, 8)))
            await rig.mark()
            await rig.until(lambda n=before: len(rig.packets) > n, 200, "the packet")
            cover_units(rig, units, stores)
            cover(f"{rig.word}.half.full", rig.packets[-1].full and full % SECTOR)
    await rig.emptied()
    assert len(rig.packets) == len({0, cfg.packet_flits - 8}) * 255


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def tail_marks(rig, cfg, rng):
    """A mark in every cycle around a packet's last flit, which waits for the link: it drains until
    the ledger has its bytes."""
    hold = {"after": None}
    rig.output.set_pause(held_back(rig, hold))
    dest, _ = rig.traffic.first
    rank, handle = rig.traffic.dests[dest][0], dest // cfg.replicas
    moments = [("held", at) for at in range(-3, 6)] + [("taken", at) for at in range(4)]
    moments += [("free", at) for at in range(-3, 9)]
    for everything in (True, False):
        for how, at in moments:
            units = rng.choice((1, 2, cfg.packet_flits))
            row = rig.traffic.row(dest=dest, full=UNIT * units)
            hold["after"] = (
                rig.output.count + units if how != "free" else None
            )  # all but the last flit
            rig.put(row, 0, UNIT * units)
            await rig.stored(8 + units + at)
            if how == "taken":
                hold["after"] = None
            await rig.mark(None if everything else handle)
            if how == "held":
                await rig.cycles(16)
                await rig.sampled()
                assert int(rig.output.port.valid.value) and rig.output.count == hold["after"]
                word = rig.get("draining")
                assert word >> rank & 1, f"mark at {at}: the last flit waits, draining is {word:b}"
                cover(f"{rig.word}.mark.tail_loaded", at == -1)
                cover(f"{rig.word}.mark.tail_waits", at > 0)
                await rig.cycles(1)
                hold["after"] = None
            await rig.quiet()
            marked, last = rig.marks[0][2], rig.packets[-1].last
            cover(f"{rig.word}.mark.tail_taken", marked == last)
            cover(f"{rig.word}.mark.tail_gone", 0 < marked - last <= 4)
    rig.judge()


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def quota_moments(rig, cfg, rng):
    """A place is taken in every cycle around the one in which another is given back, by the same
    rank and by another."""
    for same in (True, False):
        for more in (0, 1):  # further entries of the rank whose packet leaves
            for before in (0, 1):  # entries that the other rank has
                for at in range(rig.way):
                    await rig.anew()
                    by_rank = rig.traffic.by_rank
                    gives, takes = (sorted(by_rank) * 2)[:2]
                    takes = gives if same else takes
                    first = [gives] * more + [takes] * (before and not same)
                    if len(first) > cfg.pool_depth - cfg.ranks:
                        continue
                    for rank in first:
                        rig.put_row(8, dest=by_rank[rank])
                    rig.put_row(32, dest=by_rank[gives], full=32)
                    await rig.stored(at)
                    rig.put_row(8, dest=by_rank[takes])
                    await rig.stored(24)
                    freed = rig.packets[0].last - 1
                    placed = max(queue[-1].placed for queue in rig.golden.pending.values())
                    cover(f"{rig.word}.quota.{'swap' if same else 'both'}", placed == freed)
                    await rig.flush()
                    await rig.whole_pool()
                    rig.judge()


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def lock_moments(rig, cfg, rng):
    """A store of an entry's block in every cycle around its lock: in this packet or in the next
    one, never in none."""
    for at in range(rig.way + 4):
        for last in (False, True):  # the store completes the block
            for sector in (0, 1):
                rank = rng.randrange(cfg.ranks)
                base = rig.traffic.plain(rank, at)
                size = cfg.packet_bytes - UNIT if last else 40
                stores = (
                    rig.traffic.bytes_of(base, UNIT, size)
                    if sector == 0
                    else rig.traffic.bytes_of(base, 0, size)
                )
                late = rig.traffic.bytes_of(base, 0 if sector == 0 else size, UNIT)
                before = len(rig.packets)
                rig.i_store.put(*stores)
                await rig.stored(3)
                await rig.mark()
                await rig.cycles(at)
                rig.i_store.put(*late)
                await rig.stored(30)
                await rig.flush()
                packets = rig.packets[before:]
                after = packets[-1].stores[-1].placed - packets[0].take
                cover(f"{rig.word}.lock.merge_before", len(packets) == 1 and after >= rig.merges)
                cover(f"{rig.word}.lock.too_late", len(packets) == 2 and after <= rig.misses)
    rig.judge()


@PoolRig.test(merge_timeout=LATE, age_limit=LATE, credits=1)
async def death_moments(rig, cfg, rng):
    """A peer dies in every cycle around the lock of its entry: the entry leaves whole or is sunk,
    and it drains."""
    phases = min(cfg.pool_depth, 4)  # of the sweep that sinks
    for at in range(-4 * phases, 12 * phases):
        await rig.anew()
        dest, rank = rig.traffic.first
        rig.credits.give(0)
        await rig.cycles(3)
        rig.put_row(cfg.packet_bytes, dest=dest)
        await rig.stored(10 + at % phases)
        await rig.mark()
        if at < 0:
            rig.kill(1 << rank)
            await rig.cycles(-at // phases)
        rig.credits.left[rank] = 1
        await rig.cycles(max(0, at // phases))
        killed = rig.cycle
        rig.kill(1 << rank)
        await rig.cycles(3 * cfg.pool_depth + 40)
        left, sunk = len(rig.packets), rig.counted["sunk"]
        assert left + sunk == 1 and len(rig.taken) == left, f"at {at}: {left} packets, {sunk} sunk"
        assert not rig.get("draining"), f"at {at}: drains for ever"
        cover(f"{rig.word}.dead.at_lock", left and killed <= rig.taken[0] <= killed + 1)
        cover(f"{rig.word}.dead.before_lock", sunk)
        assert rig.credits.left[rank] == 1 - left


@PoolRig.test(merge_timeout=40, age_limit=LATE)
async def timer_moments(rig, cfg, rng):
    """A block is completed in every cycle around the one in which its merge timer expires: one full
    packet, or two partial."""
    timeout = rig.golden.merge_timeout
    for at in range(timeout - 8, timeout + 2 * cfg.pool_depth + 8, 1 if cfg.pool_depth < 16 else 3):
        await rig.anew()
        stores = rig.traffic.bytes_of(rig.traffic.row(), 0, cfg.packet_bytes)
        rig.i_store.put(*stores[:-1])
        await rig.stored(at - len(stores))
        rig.i_store.put(stores[-1])
        await rig.stored(30)
        await rig.flushed()
        packets = rig.packets
        assert [packet.full for packet in packets] in ([True], [False, False])
        cover(
            f"{rig.word}.timer.completed",
            packets[0].full and packets[0].take - packets[0].stores[0].placed >= timeout,
        )
        cover(f"{rig.word}.timer.parted", len(packets) == 2)
