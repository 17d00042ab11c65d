# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager: sectors with one unit, and two events that meet at one
register.

Each test goes through all distances between the two events, so that they meet in every run,
whatever the seed.
"""

import cocotb

from sim.quality.coverage import cover

from .rig import SECTOR, Env, Traffic

UNIT = SECTOR // 2
LATE = 60000  # cycles: no timer makes an entry leave


def held_back(env, hold):
    """A pause that begins when ``hold["after"]`` flits have been taken, and ends when that is
    None."""
    while True:
        yield hold["after"] is not None and env.sink.count >= hold["after"]


def unit_stores(traffic, base, units, ragged):
    """Stores that write just these 16-byte units of a block; both units of a sector at once or one
    by one."""
    rng, stores = traffic.rng, []
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


def cover_units(units, stores):
    """Notes which sectors with one unit this packet has."""
    first, last, lone = min(units), max(units), {unit for unit in units if unit ^ 1 not in units}
    cover("packet_manager.half.first", first % 2 and first in lone)
    cover("packet_manager.half.last", last % 2 == 0 and last in lone)
    inside = {unit for unit in lone if first // 2 < unit // 2 < last // 2}
    cover("packet_manager.half.inside.upper", any(unit % 2 for unit in inside))
    cover("packet_manager.half.inside.lower", any(unit % 2 == 0 for unit in inside))
    upper = {store["sector"] for store in stores if not store["mask"] & (1 << UNIT) - 1}
    later = [store["sector"] for store in stores if store["mask"] & (1 << UNIT) - 1]
    cover("packet_manager.half.upper_before_lower", upper & set(later))


@cocotb.test()
async def half_sectors(dut):
    """Every set of 16-byte units of four sectors, at both ends of a block: the stores are cut in
    the middle of sectors."""
    env = Env(dut, merge_timeout=LATE, age_limit=LATE, seed="halves")
    await env.start()
    cfg, rng = env.cfg, env.rng
    traffic = Traffic(cfg, rng)
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
                traffic.row(full=full) if row else traffic.plain(rng.randrange(cfg.ranks), number)
            )
            stores = unit_stores(traffic, block, units, ragged)
            before = len(env.golden.packets)
            env.source.put(*stores)
            await env.source.drained()
            await env.bench.cycles(rng.choice((0, 0, 1, 2, 8)))
            await env.mark()
            await env.bench.until(lambda n=before: len(env.golden.packets) > n, 200, "the packet")
            cover_units(units, stores)
            cover("packet_manager.half.full", env.golden.packets[-1].full and full % SECTOR)
    await env.quiet()
    env.finish()
    assert len(env.golden.packets) == len({0, cfg.packet_flits - 8}) * 255


@cocotb.test()
async def tail_marks(dut):
    """A mark in every cycle around a packet's last flit, which waits for the link: it drains until
    the ledger has its bytes."""
    env = Env(dut, merge_timeout=LATE, age_limit=LATE, seed="tail")
    hold = {"after": None}
    env.sink.set_pause(held_back(env, hold))
    cfg = env.cfg
    await env.start()
    traffic = Traffic(cfg, env.rng)
    dest = next(iter(traffic.dests))
    rank, handle = traffic.dests[dest][0], dest // cfg.replicas
    moments = [("held", at) for at in range(-3, 6)] + [("taken", at) for at in range(4)]
    moments += [("free", at) for at in range(-3, 9)]
    for everything in (True, False):
        for how, at in moments:
            units = env.rng.choice((1, 2, cfg.packet_flits))
            row = traffic.row(dest=dest, full=UNIT * units)
            hold["after"] = (
                env.sink.count + units if how != "free" else None
            )  # all but the last flit
            env.source.put(*traffic.bytes_of(row, 0, UNIT * units))
            await env.source.drained()
            # The header comes 9 cycles after the store that completes the packet, the last flit
            # `units` later.
            await env.bench.cycles(8 + units + at)
            if how == "taken":
                hold["after"] = None
            await env.mark(None if everything else handle)
            if how == "held":
                await env.bench.cycles(16)
                await env.bench.sampled()
                assert int(dut.o_packet__valid.value) and env.sink.count == hold["after"]
                word = int(dut.draining.value)
                assert word >> rank & 1, f"mark at {at}: the last flit waits, draining is {word:b}"
                cover("packet_manager.mark.tail_loaded", at == -1)
                cover("packet_manager.mark.tail_waits", at > 0)
                await env.bench.cycles(1)
                hold["after"] = None
            await env.quiet()
            marked, last = env.marks[0][2], env.golden.packets[-1].last
            cover("packet_manager.mark.tail_taken", marked == last)
            cover("packet_manager.mark.tail_gone", 0 < marked - last <= 4)
    env.finish()


@cocotb.test()
async def quota_moments(dut):
    """A place is taken in every cycle around the one in which another is given back, by the same
    rank and by another."""
    env = Env(dut, merge_timeout=LATE, age_limit=LATE, seed="quota")
    cfg = env.cfg
    for same in (True, False):
        for more in (0, 1):  # further entries of the rank whose packet leaves
            for before in (0, 1):  # entries that the other rank has
                for at in range(12):
                    await env.start()
                    traffic = Traffic(cfg, env.rng)
                    by_rank = {rank: dest for dest, (rank, _) in traffic.dests.items()}
                    gives, takes = (sorted(by_rank) * 2)[:2]
                    takes = gives if same else takes
                    first = [gives] * more + [takes] * (before and not same)
                    if len(first) > cfg.pool_depth - cfg.ranks:
                        continue
                    for rank in first:
                        env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[rank]), 0, 8))
                    env.source.put(
                        *traffic.bytes_of(traffic.row(dest=by_rank[gives], full=32), 0, 32)
                    )
                    await env.source.drained()
                    await env.bench.cycles(at)
                    env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[takes]), 0, 8))
                    await env.source.drained()
                    await env.bench.cycles(24)
                    freed = env.golden.packets[0].last - 1
                    placed = max(queue[-1].placed for queue in env.golden.pending.values())
                    cover(f"packet_manager.quota.{'swap' if same else 'both'}", placed == freed)
                    await env.mark()
                    await env.quiet()
                    await env.whole_pool(traffic)
                    env.finish()


@cocotb.test()
async def lock_moments(dut):
    """A store of an entry's block in every cycle around its lock: in this packet or in the next
    one, never in none."""
    env = Env(dut, merge_timeout=LATE, age_limit=LATE, seed="lock")
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    for at in range(16):
        for last in (False, True):  # the store completes the block
            for sector in (0, 1):
                rank = env.rng.randrange(cfg.ranks)
                base = traffic.plain(rank, at)
                size = cfg.packet_bytes - UNIT if last else 40
                stores = (
                    traffic.bytes_of(base, UNIT, size)
                    if sector == 0
                    else traffic.bytes_of(base, 0, size)
                )
                late = traffic.bytes_of(base, 0 if sector == 0 else size, UNIT)
                before = len(env.golden.packets)
                env.source.put(*stores)
                await env.source.drained()
                await env.bench.cycles(3)
                await env.mark()
                await env.bench.cycles(at)
                env.source.put(*late)
                await env.source.drained()
                await env.bench.cycles(30)
                await env.mark()
                await env.quiet()
                packets = env.golden.packets[before:]
                placed = packets[-1].stores[-1].placed
                cover(
                    "packet_manager.lock.merge_before",
                    len(packets) == 1 and placed == packets[0].take - 1,
                )
                cover(
                    "packet_manager.lock.too_late", len(packets) == 2 and placed == packets[0].take
                )
    env.finish()


@cocotb.test()
async def death_moments(dut):
    """A peer dies in every cycle around the lock of its entry: the entry leaves whole or is sunk,
    and it drains."""
    env = Env(dut, merge_timeout=LATE, age_limit=LATE, credits=1, seed="death")
    cfg = env.cfg
    phases = min(cfg.pool_depth, 4)  # of the sweep that sinks
    for at in range(12 * phases):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        dest = next(iter(traffic.dests))
        rank = traffic.dests[dest][0]
        env.credits.left = [0] * cfg.ranks
        await env.bench.cycles(3)
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, cfg.packet_bytes))
        await env.source.drained()
        await env.bench.cycles(10 + at % phases)
        await env.mark()
        env.credits.left[rank] = 1
        await env.bench.cycles(at // phases)
        killed = env.bench.cycle
        env.kill(1 << rank)
        await env.bench.cycles(3 * cfg.pool_depth + 40)
        left, sunk = len(env.golden.packets), env.counted["sunk"]
        assert left + sunk == 1 and len(env.taken) == left, f"at {at}: {left} packets, {sunk} sunk"
        assert not int(dut.draining.value), f"at {at}: drains for ever"
        cover("packet_manager.dead.at_lock", left and killed <= env.taken[0] <= killed + 1)
        cover("packet_manager.dead.before_lock", sunk)
        assert env.credits.left[rank] == 1 - left


@cocotb.test()
async def timer_moments(dut):
    """A block is completed in every cycle around the one in which its merge timer expires: one full
    packet, or two partial."""
    timeout = 40
    env = Env(dut, merge_timeout=timeout, age_limit=LATE, seed="timer")
    cfg = env.cfg
    for at in range(timeout - 8, timeout + 2 * cfg.pool_depth + 8, 1 if cfg.pool_depth < 16 else 3):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        stores = traffic.bytes_of(traffic.row(), 0, cfg.packet_bytes)
        env.source.put(*stores[:-1])
        await env.source.drained()
        await env.bench.cycles(at - len(stores))
        env.source.put(stores[-1])
        await env.source.drained()
        await env.bench.cycles(30)
        await env.mark()
        await env.quiet()
        env.finish()
        packets = env.golden.packets
        assert [packet.full for packet in packets] in ([True], [False, False])
        cover(
            "packet_manager.timer.completed",
            packets[0].full and packets[0].take - packets[0].stores[0].placed >= timeout,
        )
        cover("packet_manager.timer.parted", len(packets) == 2)
