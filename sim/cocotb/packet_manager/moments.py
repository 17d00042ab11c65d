# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager: units of 16 bytes, and two events that meet at one register.

Each test goes through all distances between the two events, so that they meet in every run,
whatever the seed.
"""

from sim.quality.coverage import cover

from .rig import PoolRig

UNIT = 16
LATE = 60000  # cycles: no timer makes an entry leave


def held_back(rig, hold):
    """A pause that begins when ``hold["after"]`` beats have been taken, and ends when that is
    None."""
    while True:
        yield hold["after"] is not None and rig.o_record.count >= hold["after"]


def unit_stores(rig, base, units, ragged):
    """Stores that write just these 16-byte units of a block, in any order; units of one part at
    once or one by one."""
    rng, size, joined = rig.rng, rig.cfg.slice_bytes, []
    for unit in rng.sample(units, len(units)):
        part, place = divmod(unit * UNIT, size)
        mask = rng.randrange(1, 0xFFFF) if unit in ragged else 0xFFFF
        store = base | {"part": part, "mask": mask << place, "data": rng.getrandbits(8 * size)}
        if joined and joined[-1]["part"] == part and rng.random() < 0.5:
            store["mask"] |= joined.pop()["mask"]
        joined.append(store)
    return joined


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def units(rig, cfg, rng):
    """Every set of eight 16-byte units, at both ends of a block; stores are cut within parts."""
    ends = sorted({0, cfg.packet_flits - 8})
    for base in ends:
        for number in range(1, 256):
            units = [base + n for n in range(8) if number >> n & 1]
            ragged = rng.choice(((), (), (rng.choice(units),), units))
            row = rng.random() < 0.6
            # A short block may end within a part, and is full with its last unit.
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
            falls = any(
                a["part"] == b["part"] and a["mask"] > b["mask"]
                for a, b in zip(stores, stores[1:], strict=False)
            )
            cover("packet_manager.units.upper_before_lower", falls)
            short = rig.packets[-1].full and full % cfg.slice_bytes
            cover("packet_manager.units.full_within_part", short)
    await rig.emptied()
    assert len(rig.packets) == len(ends) * 255


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def mark_moments(rig, cfg, rng):
    """A mark in every cycle of a packet's way, whose last beat is held up or not: it drains until
    the ledger has its bytes."""
    hold = {"after": None}
    rig.o_record.set_pause(held_back(rig, hold))
    dest, rank = rig.traffic.first
    for everything in (True, False):
        for held in (True, False):
            for at in range(26):
                parts = rng.choice((1, cfg.packet_bytes // cfg.slice_bytes))
                full = cfg.slice_bytes * parts
                hold["after"] = rig.o_record.count + parts - 1 if held else None
                rig.put(rig.traffic.row(dest=dest, full=full), 0, full)
                await rig.stored(at)
                await rig.mark(None if everything else dest // cfg.replicas)
                if held:
                    await rig.cycles(40)
                    await rig.sampled()
                    assert rig.o_record.port.is_valid()
                    assert rig.o_record.count == hold["after"]
                    assert rig.get("draining") >> rank & 1, f"mark at {at}: the last beat waits"
                    cover("packet_manager.mark.tail_waits", at > 20)
                    await rig.cycles(1)
                    hold["after"] = None
                await rig.quiet()
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
                    cover(f"packet_manager.quota.{'swap' if same else 'both'}", placed == freed)
                    await rig.flush()
                    await rig.whole_pool()
                    rig.judge()


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def lock_moments(rig, cfg, rng):
    """A store of an entry's block in every cycle around its lock: in this packet or in the next
    one, never in none."""
    for at in range(rig.way + 4):
        for last in (False, True):  # the store completes the block
            for first in (0, 1):  # the late store is in front of the others, or behind
                rank = rng.randrange(cfg.ranks)
                base = rig.traffic.plain(rank, at)
                size = cfg.packet_bytes - UNIT if last else 40
                stores = rig.traffic.bytes_of(base, 0 if first else UNIT, size)
                late = rig.traffic.bytes_of(base, size if first else 0, UNIT)
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
                cover("packet_manager.lock.merge_before", len(packets) == 1 and after > 0)
                cover("packet_manager.lock.too_late", len(packets) == 2 and after <= 6)
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
        cover("packet_manager.dead.at_lock", left and killed <= rig.taken[0] <= killed + 1)
        cover("packet_manager.dead.before_lock", sunk)
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
            "packet_manager.timer.completed",
            packets[0].full and packets[0].take - packets[0].stores[0].placed >= timeout,
        )
        cover("packet_manager.timer.parted", len(packets) == 2)


@PoolRig.test(fits=lambda cfg: cfg.pool_depth - cfg.ranks >= 4, merge_timeout=LATE, age_limit=LATE)
async def marks_meet(rig, cfg, rng):
    """A mark that comes before another one has drained is one with it: of their handle, if it is
    the same, else of all."""
    for one in range(min(4, cfg.handles)):
        for other in range(min(4, cfg.handles)):
            await rig.anew()
            by_handle = {dest // cfg.replicas: dest for dest in rig.traffic.dests}
            handles = [one, *{other, *by_handle} - {one}][:4]
            rig.o_record.set_pause("stop")
            for handle in handles:
                rig.put_row(20, dest=by_handle[handle])
            await rig.stored(rng.randrange(rig.way))
            await rig.mark(one)
            await rig.cycles(rng.randrange(2 * rig.way))
            await rig.mark(other)
            await rig.cycles(rng.randrange(2 * rig.way))
            rig.o_record.set_pause(None)
            await rig.cycles(3 * rig.late)
            left = {p.stores[0].dest // cfg.replicas for p in rig.packets}
            assert left == ({one} if one == other else {*handles}), f"marks of {one} and {other}"
            await rig.flushed()
    cover("packet_manager.mark.meets")


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def behind_a_marked_one(rig, cfg, rng):
    """The last beat of a marked packet waits, and behind it a packet that no mark covers: it drains
    until its own bytes are in the ledger."""
    for other in range(cfg.ranks):
        for wait in range(rig.way):
            await rig.anew()
            dest, rank = rig.traffic.first
            rig.put_row(20, dest=dest)
            behind = rig.traffic.plain(other, 5)
            rig.put(behind, 0, cfg.packet_bytes - UNIT)
            await rig.stored(rig.way)
            rig.o_record.set_pause("stop")
            await rig.mark(dest // cfg.replicas)
            await rig.cycles(rig.late + wait)  # the other one is found innocent
            rig.put(behind, cfg.packet_bytes - UNIT, UNIT)
            await rig.stored(rig.way)
            assert not rig.packets and len(rig.taken) == 2
            assert rig.get("draining") >> rank & 1
            rig.o_record.set_pause(None)
            await rig.emptied()
    cover("packet_manager.mark.behind")
