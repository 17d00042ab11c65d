# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator at the limits of its tables: each bound, each bit, tables
written while they are read."""

from itertools import product

import cocotb

from hub_rtl.contract.packets import SPILL_WORD, RegionState
from sim.bench.runner import needs
from sim.bench.streams import bus_write

from .rig import AllocatorBench
from .traffic import mixed_traffic, packet, set_up

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE
ADDRS = 1 << 48


def near(rng, value, low=0):
    """``value`` with nothing or one thing changed: one unit of 16 bytes up or down, or one bit from
    bit ``low`` on."""
    return rng.choice(
        (
            value,
            value - 16,
            value + 16,
            value ^ 1 << rng.randrange(low, 48),
            value ^ 1 << rng.randrange(low, 48),
        )
    )


async def written_again(top, traffic):
    """Awaits ``traffic``; in every cycle of it tables are written with what they hold: no read must
    notice."""
    cfg, rng, going = top.cfg, top.rng, [True]

    async def write():
        while going[0]:
            model, values = top.model, {}
            if model.regions:
                region = rng.choice(list(model.regions))
                values["geometry_write"] = {"region": region, "geometry": model.regions[region]}
            rank, index = rng.randrange(cfg.ranks), rng.randrange(cfg.dep_ranges)
            base, limit = model.windows.get(rank, (0, 0))
            values["window_write"] = {"rank": rank, "window": {"base": base, "limit": limit}}
            if model.deps[index]:
                values["dep_write"] = {"index": index, "range": model.deps[index]}
            still = [
                key for key, bank in model.banks.items() if bank["state"] != OPEN
            ]  # OPEN would clear its pointers
            if still:
                region, bank = rng.choice(still)
                values["region_update"] = {
                    "region": region,
                    "bank": bank,
                    **model.banks[region, bank],
                }
            for name, fields in values.items():
                bus_write(top.dut, name, {"en": 1, **fields}, getattr(top.types, name))
            await top.bench.cycles(1)

    writer = cocotb.start_soon(write())
    await traffic
    going[0] = False
    await writer
    for name in ("geometry_write", "region_update", "window_write", "dep_write"):
        getattr(top.dut, name).value = 0


@cocotb.test()
async def plain_bounds(dut):
    """Windows and dependency ranges anywhere in memory, plain packets at their first and last bytes
    and a bit away."""
    top = AllocatorBench(dut, salt="bounds")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    for turn in range(16):
        bounds, points = [], []
        wide = turn % cfg.ranks
        for rank in range(cfg.ranks):
            base = rng.randrange(ADDRS - (1 << 20))
            limit = min(ADDRS - 1, base + rng.choice((16, 256, 1 << 20, 1 << 44)))
            bounds.append((base, limit))
            await top.window(rank, *((0, ADDRS - 1) if rank == wide else bounds[rank]))
        for index in range(cfg.dep_ranges):
            shift = rng.choice((rng.randrange(44), rng.randrange(4, 12), 63))
            base = rng.randrange(ADDRS)
            limit = min(
                ADDRS - 1, base + rng.choice((5, 11)) * 2 ** min(shift, 44) + rng.randrange(64)
            )
            await top.dep(
                index,
                armed=int(rng.random() < 0.85),
                base=base,
                limit=limit,
                log2_stride=shift,
                group_base=rng.randrange(1 << cfg.group_width),
                threshold=rng.getrandbits(24),
            )
            points += [
                near(rng, base, 4),
                near(rng, limit, 4),
                rng.randrange(base, limit),
                rng.randrange(base, limit),
            ]
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
                (rng.randrange(cfg.ranks, 128), rng.choice(points), 1),
            ]
            lists.append(
                [packet(src, traffic.words(count), addr=at % ADDRS) for src, at, count in queue]
            )
        await (written_again(top, top.run(lists)) if turn % 4 > 1 else top.run(lists))


@cocotb.test()
async def range_groups(dut):
    """Every tile size of a dependency range that an address can tell apart, in every range."""
    top = AllocatorBench(dut, salt="groups")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    await top.window(0, 0, ADDRS - 1)
    for shift in range(52):
        points = []
        for index in range(cfg.dep_ranges):
            at = (shift + 26 * index) % 52
            size = min(ADDRS >> 1, 4 << max(4, at))
            base = rng.randrange(ADDRS - size)
            await top.dep(
                index,
                armed=1,
                base=base,
                limit=base + size,
                log2_stride=at,
                group_base=rng.randrange(1 << cfg.group_width),
                threshold=0,
            )
            points += [base + rng.randrange(size) for _ in range(6)] + [base + 16, base + size - 1]
        await top.run(
            [
                [packet(0, traffic.words(1), addr=at) for at in rng.sample(points, len(points))]
                for _ in range(cfg.slices)
            ]
        )


@cocotb.test()
async def refusals_told_apart(dut):
    """Refusals whose packets differ in one bit of source, region, epoch or RowID, and twice the
    same."""
    top = AllocatorBench(dut, salt="apart")
    await top.start()
    rng, widths = top.rng, {"src": 7, "region": 11, "epoch": 4, "rowid": 24}
    lists = []
    for _ in range(top.cfg.slices):
        body, queue = {name: rng.getrandbits(width) for name, width in widths.items()}, []
        bits = [(name, bit) for name, width in widths.items() for bit in range(width)]
        for name, bit in rng.sample(bits, len(bits)):
            body = {**body, name: body[name] ^ 1 << bit}
            queue += [packet(data=[0], row_off=0, **body)] * rng.randrange(1, 3)
            if rng.random() < 0.3:
                queue += [packet(body["src"], [0], addr=rng.getrandbits(47))] * rng.randrange(1, 3)
        lists.append(queue)
    await top.run(lists)


@cocotb.test()
async def row_bounds(dut):
    """Row ranges and geometry anywhere, rows at their bounds and a bit away, spans at the end of
    the row."""
    top = AllocatorBench(dut, salt="rows")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    for turn in range(8):
        lists, owners = [[] for _ in range(cfg.slices)], {}
        for region in range(cfg.regions):
            units = rng.randrange(1, min(cfg.max_row_bytes // 16, 4 * cfg.packet_flits) + 1)
            least, most = (
                -(-units // cfg.packet_flits),
                ((1 << cfg.stride_width) - 1) // cfg.packet_bytes,
            )
            first = rng.randrange(1 << 24)
            span = rng.choice((1, rng.randrange(1, 64), rng.randrange(1 << 24), 1 << 24))
            odd = (
                rng.choice((0, rng.randrange(16))) if 16 * units < cfg.max_row_bytes else 0
            )  # only whole units can come
            await top.region(
                region,
                row_bytes=16 * units + odd,
                row_first=first,
                row_span=min(span, (1 << 24) - first),
                stride=rng.randrange(least, most + 1) * cfg.packet_bytes,
                log2_tile=rng.randrange(16),
                group_base=rng.randrange(1 << cfg.group_width),
                capacity=rng.randrange(1, cfg.capacity + 1),
            )
            for epoch in (2 * turn % 16, 2 * turn % 16 + 1):
                await top.state(region, OPEN, epoch)
            last = first + top.model.regions[region]["row_span"] - 1
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
                    count = rng.randrange(1, min(units, cfg.packet_flits) + 1)
                    unit = rng.choice(
                        (0, units - count, units - count + 1, rng.randrange(1024 - count))
                    )
                    unit += max(
                        0, unit % cfg.packet_flits + count - cfg.packet_flits
                    )  # a packet stays in its block
                    body = {
                        "region": region,
                        "rowid": rowid % (1 << 24),
                        "epoch": (2 * turn + rng.randrange(2)) % 16,
                    }
                    owner = owners.setdefault(
                        tuple(body.values()), number
                    )  # a row comes on one lane
                    lists[owner].append(
                        packet(rng.randrange(128), traffic.words(count), row_off=unit, **body)
                    )
        for queue in lists:
            rng.shuffle(queue)
        await (written_again(top, top.run(lists)) if turn % 2 else top.run(lists))
        await top.check_rows()
        for region in range(cfg.regions):
            for epoch in (2 * turn % 16, 2 * turn % 16 + 1):
                await top.state(region, DONE, epoch)
                await top.state(region, FREE, epoch)


@cocotb.test()
async def epochs(dut):
    """Packets of every epoch, with banks never opened, open, done and free, at each epoch."""
    top = AllocatorBench(dut, salt="epochs")
    await top.start()
    cfg = top.cfg

    async def all_epochs(region):
        lists = []
        for number in range(cfg.slices):
            queue = [
                packet(
                    n,
                    top.traffic.words(1),
                    row_off=0,
                    region=region,
                    epoch=epoch,
                    rowid=cfg.slices * epoch + number,
                )
                for n in (0, 1)
                for epoch in range(16)
            ]
            lists.append(top.rng.sample(queue, len(queue)))
        await (written_again(top, top.run(lists)) if region else top.run(lists))

    for region in range(cfg.regions):
        await top.region(region, row_bytes=16)
        await all_epochs(region)
    for epoch in range(0, 16, 2):
        for region in range(cfg.regions):
            await top.state(region, OPEN, epoch)
            await top.state(region, OPEN, (epoch + 5) % 16)
        await all_epochs(epoch // 2 % cfg.regions)
        for region in range(cfg.regions):
            await top.state(region, DONE, epoch)
            await top.state(region, DONE, (epoch + 5) % 16)
            if epoch % 3:
                await top.state(region, FREE, epoch)
        await all_epochs((epoch // 2 + 1) % cfg.regions)


@cocotb.test()
async def state_changes_in_check(dut):
    """A packet's check starts in the cycle after its header: a change of state up to then counts, a
    later one does not."""
    top = AllocatorBench(dut, salt="changes")
    await top.start()
    cfg = top.cfg
    await top.region(0, row_bytes=16)
    for epoch in range(16):
        for delay in (1, 2):
            for state in (OPEN, DONE):
                packets = [
                    [
                        packet(
                            0, top.traffic.words(1), row_off=0, region=0, epoch=epoch, rowid=number
                        )
                    ]
                    for number in range(cfg.slices)
                ]
                for number, queue in enumerate(packets):
                    top.send(number, queue)
                await top.bench.cycles(delay)
                update = {"en": 1, "region": 0, "bank": epoch & 1, "state": state, "epoch": epoch}
                bus_write(dut, "region_update", update, top.types.region_update)
                if delay == 1:
                    top.model.state(0, epoch & 1, state, epoch)
                await top.bench.cycles(1)
                dut.region_update.value = 0
                await top.settle(30)
                top.check(packets)
                if delay == 2:
                    top.model.state(0, epoch & 1, state, epoch)


@cocotb.test()
async def tables_written_again(dut):
    """Mixed traffic while all tables are written with what they hold."""
    top = AllocatorBench(dut, salt="again")
    for turn in range(3):
        await top.start()
        await set_up(top)
        epochs = [(2 * top.rng.randrange(8)), (2 * top.rng.randrange(8) + 1)]
        for region in range(top.cfg.regions):
            for epoch in epochs:
                if turn < 2 or (region, epoch & 1) == (0, 1):
                    await top.state(region, OPEN, epoch)
        for epoch in epochs:
            await written_again(top, mixed_traffic(top, 6, epoch, faults=0.2))
        await top.check_rows()


@cocotb.test()
async def every_slot(dut):
    """All slots of a region and all of its overflow region, one row at a time; counts after
    each."""
    top = AllocatorBench(dut, salt="slots")
    await top.start()
    cfg = top.cfg
    end, rows = cfg.regions - 1, min(cfg.capacity, 15)
    most = ((1 << cfg.stride_width) - 1) // cfg.packet_bytes
    for epoch, foreign, first, last in ((4, 0, 0, end), (5, 3, end, 0)):
        for region in range(cfg.regions):
            await top.region(
                region,
                row_bytes=16,
                capacity=rows,
                overflow_en=int(region != last),
                overflow=last,
                stride=(most - region) * cfg.packet_bytes,
            )
            await top.state(region, OPEN, epoch)
        for n in range(2 * rows + 2):
            region = last if n < foreign else first
            queue = [
                packet(n, top.traffic.words(1), row_off=0, region=region, epoch=epoch, rowid=n)
            ]
            await top.run(
                [queue if number == n % cfg.slices else [] for number in range(cfg.slices)]
            )
            await top.check_rows()
        assert (
            top.model.slots[first, epoch & 1] == rows and top.model.slots[last, epoch & 1] == rows
        )


@cocotb.test()
@needs(lambda cfg: cfg.rat_sets * cfg.rat_ways <= 4)
async def damaged_words(dut):
    """Spill words with one bit changed: what does not name the row is none; a slot outside the
    region is a memory error."""
    top = AllocatorBench(dut, salt="words")
    cfg = top.cfg
    for number, row_bytes in product(
        range(cfg.slices), (min(cfg.max_row_bytes, 2 * cfg.packet_bytes), 80)
    ):
        await damage_each_bit(top, number, row_bytes)


async def damage_each_bit(top, number, row_bytes):
    """One slice; rows of this length."""
    cfg, traffic, rng = top.cfg, top.traffic, top.rng
    low, width = SPILL_WORD["missing"]
    bits = [
        bit for bit in range(64) if not low <= bit < low + width
    ]  # with another missing count a word is good, too
    rng.shuffle(bits)

    async def alone(queue):
        await top.run([queue if n == number else [] for n in range(cfg.slices)])

    while bits:
        await top.start()
        first, epoch, src = rng.randrange(1 << 23), rng.randrange(16), rng.randrange(128)
        await top.region(0, row_bytes=row_bytes, row_first=first)
        await top.state(0, OPEN, epoch)
        body = {"src": src, "region": 0, "epoch": epoch}
        await alone(
            [
                packet(data=traffic.words(1), row_off=0, rowid=first + n, **body)
                for n in range(min(cfg.capacity, 4 * cfg.rat_ways))
            ]
        )
        base, again = top.model.regions[0]["spill_base"][epoch & 1], []
        for addr, word in list(top.model.memory.items()):
            if word and bits:
                top.model.memory[addr] = word = word ^ 1 << bits.pop()
                top.memory.memory.write(addr, word.to_bytes(8, "little"))
                again.append(
                    packet(
                        data=traffic.words(1), row_off=1, rowid=first + (addr - base) // 8, **body
                    )
                )
        await alone(again)


@cocotb.test()
async def reset_forgets(dut):
    """All tables are filled, then reset: regions, states, windows, ranges, rows, spill counts, row
    counts, the last refusal."""
    top = AllocatorBench(dut, salt="forgets")
    cfg, traffic = top.cfg, top.traffic

    async def fill():
        for region in range(cfg.regions):
            await top.region(region, row_bytes=256 if cfg.max_row_bytes >= 256 else 16)
            for epoch in (10, 11):
                await top.state(region, OPEN, epoch)
        for rank in range(cfg.ranks):
            await top.window(rank, 0, 1 << 40)

    async def send(unit):
        rows = min(cfg.capacity, 4 * cfg.rat_ways)
        await top.run(
            [
                [
                    packet(
                        0,
                        traffic.words(1),
                        row_off=unit,
                        region=region,
                        epoch=epoch,
                        rowid=cfg.slices * n + number,
                    )
                    for n in range(rows)
                    for region in range(cfg.regions)
                    for epoch in (10, 11)
                ]
                + [
                    packet(rank, traffic.words(1), addr=16 * n)
                    for n in range(8)
                    for rank in range(cfg.ranks)
                ]
                + [packet(0, traffic.words(1), row_off=0, region=0, epoch=9, rowid=1)]
                for number in range(cfg.slices)
            ]
        )
        await top.check_rows()

    for _ in range(2):
        await top.start()
        await top.check_rows()
        await send(0)  # nothing is known: no region, no window
        for region in range(cfg.regions):
            await top.region(region, row_bytes=16)
        await send(0)  # no bank was ever opened
        await fill()
        for index in range(cfg.dep_ranges):
            await top.dep(
                index,
                armed=1,
                base=64 * index,
                limit=64 * index + 64,
                log2_stride=4,
                group_base=1,
                threshold=0,
            )
        await send(0)
    await top.start()
    await fill()
    await send(1)


@cocotb.test()
@needs(lambda cfg: cfg.rat_sets == 1)
async def overflow_region_ends_first(dut):
    """Rows in an overflow region are spilled; that region's bank ends, theirs does not: they are
    found again and placed."""
    top = AllocatorBench(dut, salt="first")
    cfg, traffic = top.cfg, top.traffic
    row_bytes, end = min(cfg.max_row_bytes, 2 * cfg.packet_bytes), cfg.regions - 1
    for own, other in ((0, end), (end, 0)):
        await top.start()
        for region in range(cfg.regions):
            await top.region(
                region,
                row_bytes=row_bytes,
                capacity=1 if region == own else min(cfg.capacity, 5),
                overflow_en=int(region == own),
                overflow=other,
            )
            await top.state(region, OPEN, 3)

        async def send(unit, own=own):
            await top.run(
                [
                    [
                        packet(
                            0,
                            traffic.words(1),
                            row_off=unit,
                            region=own,
                            epoch=3,
                            rowid=cfg.slices * n + number,
                        )
                        for n in range(cfg.rat_ways + 1)
                    ]
                    for number in range(cfg.slices)
                ]
            )

        await send(0)
        await top.state(other, DONE, 3)
        await send(1)


@cocotb.test()
async def header_alone(dut):
    """A header without payload is dropped, between other packets and in a row."""
    top = AllocatorBench(dut, salt="alone")
    await top.start()
    await set_up(top)
    await top.state(0, OPEN, 1)
    body = {"region": 0, "epoch": 1, "rowid": top.model.regions[0]["row_first"]}
    lone = [packet(1, **body), packet(0, addr=top.traffic.far)]
    wholes = [
        [
            packet(0, top.traffic.words(1), row_off=0, **{**body, "rowid": body["rowid"] + number}),
            top.traffic.plain(1),
        ]
        for number in range(top.cfg.slices)
    ]
    for number, (row, plain) in enumerate(wholes):
        top.send(number, [lone[0], row, lone[0], lone[1], plain, lone[1]])
    await top.settle()
    top.check(wholes)


@cocotb.test()
async def sources(dut):
    """Rows of any source in every way of the RAT, and packets of another source that differs in one
    bit."""
    top = AllocatorBench(dut, salt="sources")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    await top.region(0, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
    for turn in range(16):
        await top.state(0, OPEN, turn)
        lists = []
        for number in range(cfg.slices):
            rows = [(rng.randrange(128), cfg.slices * n + number) for n in range(cfg.rat_ways)]
            queue = [
                packet(src, traffic.words(1), row_off=0, region=0, epoch=turn, rowid=rowid)
                for src, rowid in rows
            ]
            for src, rowid in rng.sample(rows, len(rows)):
                bits = rng.sample(range(7), 3)
                queue += [
                    packet(
                        src ^ change, traffic.words(1), row_off=1, region=0, epoch=turn, rowid=rowid
                    )
                    for change in (1 << bits[0], 0, 1 << bits[1], 1 << bits[2])
                ]
            lists.append(queue)
        await top.run(lists)
        await top.state(0, DONE, turn)
