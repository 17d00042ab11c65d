# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: faults between banks, and two events that meet at one
register."""

from itertools import product

from hub_rtl.contract.packets import RegionState
from sim.bench.moments import turning_point
from sim.golden.slot_allocator import fold
from sim.quality.coverage import cover

from .limits import ADDRS, written_again
from .rig import AllocatorRig, in_memory
from .traffic import packet

EPOCHS = (2, 1)  # by bank


def rows_of_set(cfg, region, bank, count):
    """RowIDs of this bank that belong to set 0 of the RAT."""
    rowids = (n for n in range(1 << 16) if fold(n ^ (2 * region + bank) << 12, cfg.rat_sets) == 0)
    return [next(rowids) for _ in range(count)]


async def spill_fault_between(rig, number, victims, others):
    """Rows of bank ``victims`` are spilled for packets of bank ``others`` and the other way round;
    memory answers with errors."""
    await rig.start()
    rig.bad.clear()
    cfg, ways = rig.cfg, rig.cfg.rat_ways
    for region in sorted({victims[0], others[0]}):
        await rig.region(region, capacity=min(cfg.capacity, 1000))
        for epoch in EPOCHS:
            await rig.state(region, RegionState.OPEN, epoch)
    ids = {key: rows_of_set(cfg, *key, ways + 1) for key in (victims, others)}

    def address(key, n):
        region, bank = key
        return rig.model.regions[region]["spill_base"][bank] + 8 * ids[key][n]

    async def part(key, n, unit):
        region, bank = key
        flits = rig.part(ids[key][n], EPOCHS[bank], unit, region=region)
        await rig.run(rig.alone(number, [flits]))

    for n in range(ways):
        await part(victims, n, 0)
    # The oldest row makes place for a row of the other bank; its word is lost: that row's bank is
    # told, not the packet's.
    rig.bad.add(address(victims, 0))
    await part(others, 0, 0)
    assert rig.overlaps[victims] == 1 and not rig.overlaps[others]
    cover("slot_allocator.spill_lost.other_bank", victims[1] != others[1])
    cover("slot_allocator.spill_lost.other_region", victims[0] != others[0])
    # A word that cannot be read: the packet is refused, nobody makes place for it.
    rig.bad.clear()
    await part(others, 1, 0)
    refused = rig.model.counts["refused_MEM_ERROR"]
    spilled = next(n for n in range(1, ways) if address(victims, n) in rig.model.memory)
    rig.bad.add(address(victims, spilled))
    await part(victims, spilled, 1)
    assert rig.model.counts["refused_MEM_ERROR"] == refused + 1
    assert rig.overlaps[victims] == 1 and not rig.overlaps[others]
    cover("slot_allocator.spill_unread.other_bank", victims[1] != others[1])
    # Restored, it makes a row of the other bank go, whose word is lost.
    rig.bad.clear()
    rig.bad.update(address(others, n) for n in range(2))
    for n in range(1, ways):
        await part(victims, n, 2)
    assert rig.overlaps[others] and rig.overlaps[victims] == 1
    cover("slot_allocator.spill_lost.as_restored", rig.model.counts["restores"])


@AllocatorRig.test(fits=in_memory)
async def spill_faults_between_banks(rig, cfg, rng):
    """Spill faults with victim and packet in different banks, of one region and of two, at each
    slice."""
    last = cfg.regions - 1
    pairs = [((0, 1), (0, 0)), ((0, 0), (0, 1)), ((last, 1), (0, 0)), ((0, 0), (last, 0))]
    for number, (victims, others) in product(range(cfg.slices), pairs):
        if victims != others:
            await spill_fault_between(rig, number, victims, others)


@AllocatorRig.test()
async def purge_meets_row(rig, cfg, rng):
    """A bank is purged in each cycle around a new row: the row is forgotten, or was looked up
    behind the purge."""
    await rig.region(0, capacity=min(cfg.capacity, 1000))
    for number in range(cfg.slices):
        await purge_meets_row_of(rig, number)
    await rig.check_rows()
    cover("slot_allocator.purge_meets_row")


async def purge_meets_row_of(rig, number):
    """The same at one slice."""
    forgotten = []
    for at in range(16):
        epoch = 2 * at % 16
        await rig.over(0, (epoch - 2) % 16)
        await rig.state(0, RegionState.OPEN, epoch)
        row = 16 * number + at
        first, second = (rig.alone(number, [rig.part(row, epoch, unit)]) for unit in (0, 1))
        rig.send_all(first)
        await rig.cycles(at)
        await rig.purge(0, 0)
        await rig.purged()
        await rig.settle()
        before = len(rig.obs)
        rig.send_all(second)
        await rig.settle()
        forgotten.append(len(rig.obs) > before)
        if forgotten[-1]:
            rig.expect(first, before)
            rig.model.purge(0, 0)
        else:
            rig.model.purge(0, 0)
            rig.expect(first)
        rig.check(second)
    turning_point(forgotten, False, True)


@AllocatorRig.test()
async def window_changes_in_check(rig, cfg, rng):
    """One bit of a window changes in the cycle in which it is looked up, the last one that counts:
    a packet at that very byte is judged by the new bound. Each bit that a packet can tell."""
    for name, first in (("base", 0), ("limit", 4)):
        for bit in range(first, 48):
            value = rng.getrandbits(48) >> 4 << 4  # packets lie at multiples of 16
            before, after = rng.sample((value, value ^ 1 << bit), 2)
            high, rank = max(before, after), rng.randrange(cfg.ranks)
            whole = {"base": 0, "limit": ADDRS - 1}
            at = (high - 1) // 16 * 16 if name == "base" else high - 16
            queues = [[rig.plain(at, src=rank)] for _ in range(cfg.slices)]
            await rig.window(rank, **whole | {name: before})
            rig.send_all(queues)
            await rig.cycles(2)
            await rig.window(rank, **whole | {name: after})
            await rig.check_settled(queues, 20)
    cover("slot_allocator.window_changes_in_check")


def row_at_bit(rig, name, bit):
    """A region's geometry, and that with one bit of the field changed, in any order; a row and a
    unit of it for which this decides."""
    cfg, rng, draw = rig.cfg, rig.rng, rig.rng.getrandbits
    most = cfg.max_row_bytes
    if name == "row_bytes":
        low = 16 * rng.randrange(1, most // 16) & ~(1 << bit) or 16 << (bit == 4)
        high = low | 1 << bit
        values = [each + (rng.randrange(16) if each < most else 0) for each in (low, high)]
        row, unit = 0, high // 16 - 1
    else:
        low = draw(24) & ~(1 << bit)
        high, unit = low | 1 << bit, 0
        values, row = [low, high], high - 1
    whole = {"row_first": 0, "row_span": 1 << 24, "row_bytes": 16 * rng.randrange(1, most // 16)}
    return [whole | {name: value} for value in rng.sample(values, 2)], row, unit


@AllocatorRig.test()
async def geometry_changes_in_check(rig, cfg, rng):
    """A region's geometry changes in one bit, and its bank opens, in the cycle in which a row is
    looked up: both count. Each bit of what rows are judged by."""
    fields = {"row_first": range(24), "row_span": range(24), "row_bytes": range(4, 8)}
    cases = [(name, bit) for name, bits in fields.items() for bit in bits]
    for turn, ((name, bit), number) in enumerate(product(cases, range(cfg.slices))):
        region, epoch = rng.randrange(cfg.regions), turn % 16
        (before, after), row, unit = row_at_bit(rig, name, bit)
        await rig.over(region, epoch)
        await rig.region(region, **before)
        queues = rig.alone(number, [rig.part(row, epoch, unit, region=region)])
        rig.send_all(queues)
        await rig.cycles(2)
        rig.model.state(region, epoch & 1, RegionState.OPEN, epoch)
        update = {"region": region, "bank": epoch & 1, "epoch": epoch}
        rig.set("region_update", {"en": 1, "state": RegionState.OPEN, **update})
        await rig.region(region, **after)
        rig.set("region_update", 0)
        await rig.check_settled(queues, 20)
        await rig.purge(region, epoch & 1)
        await rig.purged()
        rig.model.purge(region, epoch & 1)
    cover("slot_allocator.geometry_changes_in_check")


@AllocatorRig.test()
async def offsets(rig, cfg, rng):
    """Units of a row, and those that differ in one bit of their number: none beyond the row's end
    is taken for one in it."""
    await rig.region(0, capacity=min(cfg.capacity, 1000))
    await rig.state(0, RegionState.OPEN, 2)
    units = min(rig.row_bytes // 16, cfg.packet_flits)
    await rig.run(
        [
            [
                rig.part(number, 2, unit ^ bit)
                for unit in rng.sample(range(units), 2)
                for bit in (0, *(1 << n for n in range(10)))
            ]
            for number in range(cfg.slices)
        ]
    )
    cover("slot_allocator.offsets")


def some_bytes(rig, rowid, epoch, count):
    """A packet with so many bytes of a row's first block."""
    body = {"region": 0, "epoch": epoch, "rowid": rowid, "row_off": 0}
    mask = sum(1 << n for n in rig.rng.sample(range(rig.cfg.packet_bytes), count))
    masked = {"mask": mask, "mask_flits": rig.cfg.mask_flits}
    return packet(0, rig.traffic.words(rig.cfg.packet_flits), **masked, **body)


@AllocatorRig.test(fits=lambda cfg: cfg.rat_ways < cfg.capacity)
async def restored_rows_end(rig, cfg, rng):
    """A spilled row gets all but one of the bytes that it misses, all, or one too many, then one
    more: it ends with the last one, and what is too much is told."""
    row_bytes, size = cfg.packet_bytes, cfg.packet_bytes
    rows = rows_of_set(cfg, 0, 0, cfg.rat_ways + 1)
    for turn in range(30):
        number, epoch = turn % cfg.slices, 2 * turn % 16
        await rig.over(0, (epoch - 2) % 16)
        await rig.region(0, row_bytes=row_bytes, capacity=min(cfg.capacity, 1000))
        await rig.state(0, RegionState.OPEN, epoch)
        missing = rng.randrange(2, size)
        counts = (size - missing, min(size, missing + turn % 3 - 1), 1)
        first, *more = (some_bytes(rig, rows[0], epoch, count) for count in counts)
        others = [rig.part(rowid, epoch) for rowid in rows[1:]]
        await rig.run(rig.alone(number, [first, *others, *more]))
        await rig.purge(0, 0)
        await rig.purged()
        rig.model.purge(0, 0)
    assert rig.model.counts["restores"] >= 20 and rig.overlaps[0, 0] >= 8
    cover("slot_allocator.restored_rows_end")


@AllocatorRig.test(fits=lambda cfg: cfg.capacity // cfg.slices > cfg.rat_sets * cfg.rat_ways)
async def tables_written_in_thrash(rig, cfg, rng):
    """Rows are spilled and restored while all tables are written with what they hold."""
    await rig.regions(row_bytes=rig.row_bytes)
    await rig.states(RegionState.OPEN, 3)
    entries = cfg.slices * cfg.rat_sets * cfg.rat_ways
    rows, units = min(cfg.capacity, 6 * entries), rig.row_bytes // 16
    queues = [
        [
            rig.part(n, 3, unit, region=n // cfg.slices % cfg.regions)
            for unit in range(min(units, 6))
            for n in range(number, rows, cfg.slices)
        ]
        for number in range(cfg.slices)
    ]
    await written_again(rig, rig.run(queues))
    assert rig.model.counts["restores"]
    cover("slot_allocator.tables_written_in_thrash")


def thrashing_rows(rig, epochs, count):
    """Per slice, packets of one beat of so many rows, of any number, bank and source, some rows at
    a time; a few packets say to be of another source."""
    cfg, rng = rig.cfg, rig.rng
    units = cfg.slice_bytes // 16
    parts = range(0, rig.row_bytes // 16, units)

    def row(rowid):
        body = {"epoch": rng.choice(epochs), "region": rng.randrange(cfg.regions)}
        src = rng.randrange(cfg.ranks)
        return [
            rig.part(rowid, unit=unit, count=units, src=src ^ (rng.random() < 0.04), **body)
            for unit in rng.sample(parts, min(4, len(parts)))
        ]

    rowids = rng.sample(range(1 << 24), count * cfg.slices)
    lists = [[row(rowid) for rowid in rowids[n :: cfg.slices]] for n in range(cfg.slices)]
    return [rig.traffic.weave(rows, 2 + cfg.rat_sets * cfg.rat_ways) for rows in lists]


@AllocatorRig.test(cases={"again": [False, True]})
async def any_rows_thrash(rig, cfg, rng, again):
    """Rows of any number, bank and source are spilled and restored, packets of one beat in each
    cycle; then while all tables are written with what they hold."""
    for turn in range(4):
        await rig.start()
        await rig.regions(log2_tile=turn)
        epochs = [2 * rng.randrange(8), 2 * rng.randrange(8) + 1]
        for epoch in epochs:
            await rig.states(RegionState.OPEN, epoch)
        count = min(60, 6 * cfg.rat_sets * cfg.rat_ways)
        await written_again(rig, rig.run(thrashing_rows(rig, epochs, count)), again)
        await rig.check_rows()
    cover("slot_allocator.any_rows_thrash")


@AllocatorRig.test()
async def row_range_bits(rig, cfg, rng):
    """Ranges of rows that end anywhere, or with the last RowID: the first and the last row, and
    those that differ from them in one bit."""
    last = (1 << 24) - 1
    for turn, number, region in product(range(2), range(cfg.slices), range(cfg.regions)):
        epoch, first = (2 * number + turn) % 16, rng.randrange(last)
        end = last if turn else rng.randrange(first, last)
        few = {"row_bytes": 16, "capacity": cfg.capacity}
        await rig.region(region, row_first=first, row_span=end - first + 1, **few)
        await rig.state(region, RegionState.OPEN, epoch)
        rows = [row ^ bit for row in (first, end) for bit in (0, *(1 << n for n in range(24)))]
        queue = [rig.part(row, epoch, region=region) for row in set(rows)]
        await rig.run(rig.alone(number, rng.sample(queue, len(queue))))
        await rig.over(region, epoch)
    cover("slot_allocator.row_range_bits")
