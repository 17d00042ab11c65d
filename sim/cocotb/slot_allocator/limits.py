# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator at the limits of its tables: each bound, each bit, tables
written while they are read."""

from itertools import product

import cocotb

from hub_rtl.contract.packets import SPILL_WORD, RegionState

from .rig import AllocatorRig, in_memory
from .traffic import mixed_traffic, packet, set_up

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE
ADDRS = 1 << 48


def near(rng, value, low=0):
    """``value`` with nothing or one thing changed: one unit of 16 bytes up or down, or one bit from
    bit ``low`` on."""
    bit = 1 << rng.randrange(low, 48)
    return rng.choice((value, value - 16, value + 16, value ^ bit, value ^ bit))


async def any_dep(rig, index, base, limit, log2_stride, armed=1):
    """A dependency range with any groups and threshold."""
    await rig.dep(
        index,
        armed=armed,
        base=base,
        limit=limit,
        log2_stride=log2_stride,
        group_base=rig.rng.randrange(1 << rig.cfg.group_width),
        threshold=rig.rng.getrandbits(24),
    )


async def written_again(rig, traffic, again=True):
    """Awaits ``traffic``; in every cycle of it tables are written with what they hold, if
    ``again``: no read must notice."""
    cfg, rng, going = rig.cfg, rig.rng, True

    async def write():
        while going and again:
            model, values = rig.model, {}
            if model.regions:
                region = rng.choice(list(model.regions))
                values["geometry_write"] = {"region": region, "geometry": model.regions[region]}
            rank, index = rng.randrange(cfg.ranks), rng.randrange(cfg.dep_ranges)
            base, limit = model.windows.get(rank, (0, 0))
            values["window_write"] = {"rank": rank, "window": {"base": base, "limit": limit}}
            if model.deps[index]:
                values["dep_write"] = {"index": index, "range": model.deps[index]}
            # OPEN would clear its pointers.
            still = [key for key, bank in model.banks.items() if bank["state"] != OPEN]
            if still:
                region, bank = key = rng.choice(still)
                values["region_update"] = {"region": region, "bank": bank, **model.banks[key]}
            for name, fields in values.items():
                rig.set(name, {"en": 1, **fields})
            await rig.cycles(1)

    writer = cocotb.start_soon(write())
    await traffic
    going = False
    await writer
    for name in ("geometry_write", "region_update", "window_write", "dep_write"):
        rig.set(name, 0)


def plain_in_block(rig, addr, count, src):
    """A plain packet of so many units, or of those that its block has from there on."""
    flits = rig.cfg.packet_flits
    return rig.plain(addr, min(count, flits - addr // 16 % flits), src)


@AllocatorRig.test()
async def plain_bounds(rig, cfg, rng):
    """Windows and dependency ranges anywhere in memory, plain packets at their first and last bytes
    and a bit away."""
    for turn in range(16):
        bounds, points = [], []
        wide = turn % cfg.ranks
        for rank in range(cfg.ranks):
            base = rng.randrange(ADDRS - (1 << 20))
            limit = min(ADDRS - 1, base + rng.choice((16, 256, 1 << 20, 1 << 44)))
            bounds.append((base, limit))
            await rig.window(rank, *((0, ADDRS - 1) if rank == wide else bounds[rank]))
        for index in range(cfg.dep_ranges):
            shift = rng.choice((rng.randrange(44), rng.randrange(4, 12), 63))
            base = rng.randrange(ADDRS)
            limit = min(
                ADDRS - 1, base + rng.choice((5, 11)) * 2 ** min(shift, 44) + rng.randrange(64)
            )
            await any_dep(rig, index, base, limit, shift, armed=int(rng.random() < 0.85))
            points += [near(rng, base, 4), near(rng, limit, 4)]
            points += [rng.randrange(base, limit) for _ in range(2)]
        lists = []
        for _ in range(cfg.slices):
            queue = [(wide, rng.choice(points), 1) for _ in range(16)]
            for src, (base, limit) in enumerate(bounds):
                count = rng.randrange(1, 4)
                queue += [
                    (src, at, count)
                    for at in (
                        near(rng, base),
                        -(-base // 16) * 16,
                        near(rng, limit) - 16 * count,
                        limit // 16 * 16 - 16 * count,
                    )
                ]
            queue += [
                (wide, ADDRS - 16 * rng.randrange(1, 3), 1),
                (rng.randrange(1 << cfg.rank_width), rng.choice(points), 1),
            ]
            lists.append([plain_in_block(rig, at % ADDRS, count, src) for src, at, count in queue])
        await (written_again(rig, rig.run(lists)) if turn % 4 > 1 else rig.run(lists))


@AllocatorRig.test()
async def range_groups(rig, cfg, rng):
    """Every tile size of a dependency range that an address can tell apart, in every range."""
    await rig.window(0, 0, ADDRS - 1)
    for shift in range(52):
        points = []
        for index in range(cfg.dep_ranges):
            at = (shift + 26 * index) % 52
            size = rng.choice((min(ADDRS >> 1, 4 << max(4, at)), ADDRS >> 1))
            base = rng.randrange(ADDRS - size)
            await any_dep(rig, index, base, base + size, at)
            points += [base + rng.randrange(size) for _ in range(6)] + [base + 16, base + size - 1]
        await rig.run(
            [[rig.plain(at) for at in rng.sample(points, len(points))] for _ in range(cfg.slices)]
        )


@AllocatorRig.test()
async def refusals_told_apart(rig, cfg, rng):
    """Refusals whose packets differ in one bit of source, region, epoch or RowID, and twice the
    same."""
    widths = {"src": cfg.rank_width, "region": 11, "epoch": 4, "rowid": 24}
    lists = []
    for _ in range(cfg.slices):
        body, queue = {name: rng.getrandbits(width) for name, width in widths.items()}, []
        bits = [(name, bit) for name, width in widths.items() for bit in range(width)]
        for name, bit in rng.sample(bits, len(bits)):
            body = {**body, name: body[name] ^ 1 << bit}
            queue += [packet(data=[0], row_off=0, **body)] * rng.randrange(1, 3)
            if rng.random() < 0.3:
                queue += [packet(body["src"], [0], addr=rng.getrandbits(47))] * rng.randrange(1, 3)
        lists.append(queue)
    await rig.run(lists)


@AllocatorRig.test()
async def row_bounds(rig, cfg, rng):
    """Row ranges and geometry anywhere, rows at their bounds and a bit away, spans at the end of
    the row."""
    flits = cfg.packet_flits
    for turn in range(8):
        epochs = (2 * turn % 16, 2 * turn % 16 + 1)
        lists, owners = [[] for _ in range(cfg.slices)], {}
        for region in range(cfg.regions):
            units = rng.randrange(1, min(cfg.max_row_bytes // 16, 4 * flits) + 1)
            least, most = -(-units // flits), ((1 << cfg.stride_width) - 1) // cfg.packet_bytes
            first = rng.randrange(1 << 24)
            span = rng.choice((1, rng.randrange(1, 64), rng.randrange(1 << 24), 1 << 24))
            # Only whole units can come.
            odd = rng.choice((0, rng.randrange(16))) if 16 * units < cfg.max_row_bytes else 0
            await rig.region(
                region,
                row_bytes=16 * units + odd,
                row_first=first,
                row_span=min(span, (1 << 24) - first),
                stride=rng.randrange(least, most + 1) * cfg.packet_bytes,
                log2_tile=rng.randrange(16),
                group_base=rng.randrange(1 << cfg.group_width),
                capacity=rng.randrange(1, cfg.capacity + 1),
            )
            for epoch in epochs:
                await rig.state(region, OPEN, epoch)
            last = first + rig.model.regions[region]["row_span"] - 1
            for number in range(cfg.slices):
                for rowid in (
                    first,
                    last,
                    first - 1,
                    last + 1,
                    first ^ 1 << rng.randrange(24),
                    last ^ 1 << rng.randrange(24),
                    rng.randrange(first, last + 1),
                ):
                    count = rng.randrange(1, min(units, flits) + 1)
                    end = units - count
                    unit = rng.choice((0, end, end + 1, rng.randrange(1024 - count)))
                    if unit % flits + count > flits:  # a packet stays in its block
                        unit += -unit % flits
                    row = rowid % (1 << 24), rng.choice(epochs)
                    owner = owners.setdefault((region, *row), number)  # a row comes on one lane
                    src = rng.randrange(1 << cfg.rank_width)
                    lists[owner].append(rig.part(*row, unit, count, src=src, region=region))
        for queue in lists:
            rng.shuffle(queue)
        await written_again(rig, rig.run(lists), turn % 2)
        await rig.check_rows()
        for region in range(cfg.regions):
            for epoch in epochs:
                await rig.over(region, epoch)
        if not in_memory(cfg):  # a store knows rows by number: of another geometry they are others
            for bank in (0, 1):
                await rig.purge(0, bank, cfg.regions - 1)
                await rig.purged()
                for region in range(cfg.regions):
                    rig.model.purge(region, bank)


@AllocatorRig.test()
async def epochs(rig, cfg, rng):
    """Packets of every epoch, with banks never opened, open, done and free, at each epoch."""

    async def all_epochs(region):
        lists = []
        for number in range(cfg.slices):
            queue = [
                rig.part(cfg.slices * epoch + number, epoch, region=region, src=n)
                for n in (0, 1)
                for epoch in range(16)
            ]
            lists.append(rng.sample(queue, len(queue)))
        await written_again(rig, rig.run(lists), region > 0)

    for region in range(cfg.regions):
        await rig.region(region, row_bytes=16)
        await all_epochs(region)
    for epoch in range(0, 16, 2):
        for number in (epoch, (epoch + 5) % 16):
            await rig.states(OPEN, number)
        await all_epochs(epoch // 2 % cfg.regions)
        for number in (epoch, (epoch + 5) % 16):
            await rig.states(DONE, number)
        if epoch % 3:
            await rig.states(FREE, epoch)
        await all_epochs((epoch // 2 + 1) % cfg.regions)


@AllocatorRig.test()
async def state_changes_in_check(rig, cfg, rng):
    """A packet's check starts two cycles after its first beat: a change of state up to then counts,
    a later one does not."""
    await rig.region(0, row_bytes=16)
    for epoch, delay, state in product(range(16), (2, 3), (OPEN, DONE)):
        packets = [[rig.part(number, epoch)] for number in range(cfg.slices)]
        rig.send_all(packets)
        await rig.cycles(delay)
        if delay == 2:
            rig.model.state(0, epoch & 1, state, epoch)
        await rig.update(0, state, epoch)
        await rig.check_settled(packets, 30)
        if delay == 3:
            rig.model.state(0, epoch & 1, state, epoch)


@AllocatorRig.test()
async def tables_written_again(rig, cfg, rng):
    """Mixed traffic while all tables are written with what they hold."""
    for turn in range(3):
        await rig.start()
        await set_up(rig)
        epochs = [(2 * rng.randrange(8)), (2 * rng.randrange(8) + 1)]
        for region, bank in rig.keys:
            if turn < 2 or (region, bank) == (0, 1):
                await rig.state(region, OPEN, epochs[bank])
        for epoch in epochs:
            await written_again(rig, mixed_traffic(rig, 6, epoch, faults=0.2))
        await rig.check_rows()


@AllocatorRig.test()
async def every_slot(rig, cfg, rng):
    """All slots of a region and all of its overflow region, one row at a time; counts after
    each."""
    end, rows = cfg.regions - 1, min(cfg.capacity, 15)
    most = ((1 << cfg.stride_width) - 1) // cfg.packet_bytes
    for epoch, foreign, first, last in ((4, 0, 0, end), (5, 3, end, 0)):
        for region in range(cfg.regions):
            await rig.region(
                region,
                row_bytes=16,
                capacity=rows,
                overflow_en=int(region != last),
                overflow=last,
                stride=(most - region) * cfg.packet_bytes,
            )
            await rig.state(region, OPEN, epoch)
        for n in range(2 * rows + 2):
            region = last if n < foreign else first
            queue = [rig.part(n, epoch, region=region, src=n % cfg.ranks)]
            await rig.run(rig.alone(n % cfg.slices, queue))
            await rig.check_rows()
        assert (
            rig.model.slots[first, epoch & 1] == rows and rig.model.slots[last, epoch & 1] == rows
        )


@AllocatorRig.test(fits=lambda cfg: cfg.rat_sets * cfg.rat_ways <= 4 and in_memory(cfg))
async def damaged_words(rig, cfg, rng):
    """Spill words with one bit changed: what does not name the row is none; a slot outside the
    region is a memory error."""
    for number, row_bytes in product(range(cfg.slices), (rig.row_bytes, 80)):
        await damage_each_bit(rig, number, row_bytes)


async def damage_each_bit(rig, number, row_bytes):
    """One slice; rows of this length."""
    cfg, rng = rig.cfg, rig.rng
    low, width = SPILL_WORD["missing"]
    # With another missing count a word is good, too.
    bits = [bit for bit in range(64) if not low <= bit < low + width]
    rng.shuffle(bits)

    async def alone(queue):
        await rig.run(rig.alone(number, queue))

    while bits:
        await rig.start()
        first, epoch = rng.randrange(1 << 23), rng.randrange(16)
        src = rng.randrange(1 << cfg.rank_width)
        await rig.region(0, row_bytes=row_bytes, row_first=first)
        await rig.state(0, OPEN, epoch)
        rows = range(min(cfg.capacity, 4 * cfg.rat_ways))
        await alone([rig.part(first + n, epoch, src=src) for n in rows])
        base, again = rig.model.regions[0]["spill_base"][epoch & 1], []
        for addr, word in list(rig.model.memory.items()):
            if word and bits:
                rig.model.memory[addr] = word = word ^ 1 << bits.pop()
                rig.memory.memory.write(addr, word.to_bytes(8, "little"))
                again.append(rig.part(first + (addr - base) // 8, epoch, 1, src=src))
        await alone(again)


@AllocatorRig.test()
async def reset_forgets(rig, cfg, rng):
    """All tables are filled, then reset: regions, states, windows, ranges, rows, spill counts, row
    counts, the last refusal."""

    async def fill():
        await rig.regions(row_bytes=256 if cfg.max_row_bytes >= 256 else 16)
        for epoch in (10, 11):
            await rig.states(OPEN, epoch)
        for rank in range(cfg.ranks):
            await rig.window(rank, 0, 1 << 40)

    async def send(unit):
        rows = min(cfg.capacity, 4 * cfg.rat_ways)
        await rig.run(
            [
                [
                    rig.part(cfg.slices * n + number, 10 + bank, unit, region=region)
                    for n in range(rows)
                    for region, bank in rig.keys
                ]
                + [rig.plain(16 * n, src=rank) for n in range(8) for rank in range(cfg.ranks)]
                + [rig.part(1, 9)]
                for number in range(cfg.slices)
            ]
        )
        await rig.check_rows()

    for _ in range(2):
        await rig.start()
        await rig.check_rows()
        await send(0)  # nothing is known: no region, no window
        await rig.regions(row_bytes=16)
        await send(0)  # no bank was ever opened
        await fill()
        for index in range(cfg.dep_ranges):
            await any_dep(rig, index, 64 * index, 64 * index + 64, 4)
        await send(0)
    await rig.start()
    await fill()
    await send(1)


@AllocatorRig.test(fits=lambda cfg: cfg.rat_sets == 1)
async def overflow_region_ends_first(rig, cfg, rng):
    """Rows in an overflow region are spilled; that region's bank ends, theirs does not: they are
    found again and placed."""
    row_bytes, end = rig.row_bytes, cfg.regions - 1
    for own, other in ((0, end), (end, 0)):
        await rig.start()
        for region in range(cfg.regions):
            await rig.region(
                region,
                row_bytes=row_bytes,
                capacity=1 if region == own else min(cfg.capacity, 5),
                overflow_en=int(region == own),
                overflow=other,
            )
            await rig.state(region, OPEN, 3)

        async def send(unit, own=own):
            await rig.run(
                [
                    [
                        rig.part(cfg.slices * n + number, 3, unit, region=own)
                        for n in range(cfg.rat_ways + 1)
                    ]
                    for number in range(cfg.slices)
                ]
            )

        await send(0)
        await rig.state(other, DONE, 3)
        await send(1)


@AllocatorRig.test()
async def sources(rig, cfg, rng):
    """Rows of any source in every way of the RAT, and packets of another source that differs in one
    bit."""
    await rig.region(0)
    for turn in range(16):
        await rig.state(0, OPEN, turn)
        lists = []
        for number in range(cfg.slices):
            rows = [
                (rng.randrange(1 << cfg.rank_width), cfg.slices * n + number)
                for n in range(cfg.rat_ways)
            ]
            queue = [rig.part(rowid, turn, src=src) for src, rowid in rows]
            for src, rowid in rng.sample(rows, len(rows)):
                bits = [rng.randrange(cfg.rank_width) for _ in range(3)]
                queue += [
                    rig.part(rowid, turn, 1, src=src ^ change)
                    for change in (1 << bits[0], 0, 1 << bits[1], 1 << bits[2])
                ]
            lists.append(queue)
        await rig.run(lists)
        await rig.state(0, DONE, turn)
