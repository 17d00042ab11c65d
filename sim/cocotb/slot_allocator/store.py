# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator with a victim store: what stays on chip, what is written out,
lost or forgotten."""

from itertools import product

from hub_rtl.contract.packets import SPILL_WORD, RegionState, unpack
from hub_rtl.slot_allocator.victim_store import STORE_WAYS
from sim.bench.axi import ByteMemory
from sim.golden.slot_allocator import fold
from sim.quality.coverage import cover

from .rig import AllocatorRig

OPEN = RegionState.OPEN


def in_set(cfg, region, epoch, count):
    """RowIDs of set 0 of the RAT."""
    key = (2 * region + (epoch & 1)) << 12
    rowids = (n for n in range(1 << 16) if fold(n ^ key, cfg.rat_sets) == 0)
    return [next(rowids) for _ in range(count)]


async def send(rig, number, region, epoch, rowids, unit=0):
    """A unit of each row, through one slice."""
    parts = [rig.part(rowid, epoch, unit, region=region) for rowid in rowids]
    await rig.run(rig.alone(number, parts))


async def zero_table(rig, region, bank):
    """Software zeroes the spill table of a bank that was aborted."""
    g = rig.model.regions[region]
    base = g["spill_base"][bank]
    for addr in [addr for addr in rig.model.memory if 0 <= addr - base < 8 * g["row_span"]]:
        rig.model.memory[addr] = 0
        rig.memory.memory.write(addr, bytes(8))


@AllocatorRig.test()
async def words_stay(rig, cfg, rng):
    """As many spilled rows as a set of the store holds, but one (a victim comes before the restored
    row's word goes), are kept, found and erased without memory."""
    for number in range(cfg.slices):
        await rig.start()
        await rig.region(0)
        await rig.state(0, OPEN, 1)
        rows = in_set(cfg, 0, 1, cfg.rat_ways + STORE_WAYS - 1)
        for unit in range(rig.row_bytes // 16):
            await send(rig, number, 0, 1, rows, unit)
        assert rig.model.counts["restores"] >= STORE_WAYS
        assert not rig.memory.writes and not rig.memory.reads
        cover("slot_allocator.store.words_stay")


@AllocatorRig.test(fits=lambda cfg: cfg.capacity > 50)
async def rows_alike(rig, cfg, rng):
    """Rows whose numbers differ in one bit, more of them than the store holds, restored in another
    order; then all again as new rows: what was erased is gone."""
    await rig.region(0, row_bytes=32)
    rows = [0, *(1 << bit for bit in range(24))]
    await rig.state(0, OPEN, 1)
    for _ in range(2):
        for number in range(cfg.slices):
            mine = rows[number :: cfg.slices]
            await send(rig, number, 0, 1, mine)
            rng.shuffle(mine)
            await send(rig, number, 0, 1, mine, 1)
    if len(rows) > cfg.slices * (STORE_WAYS + cfg.rat_sets * cfg.rat_ways):
        assert rig.memory.writes and rig.memory.reads
        cover("slot_allocator.store.written_out")


@AllocatorRig.test(fits=lambda cfg: cfg.capacity > 32, cases={"latency": [(1, 12), (60, 60)]})
async def words_are_lost(rig, cfg, rng, latency):
    """Memory takes no word of a bank: each one that is written out is told to that bank, whoever
    made it go, also when the next one already waits; words that are overwritten there are only
    counted."""
    rig.memory.later_b.latency = latency
    banks = [(0, 1), (cfg.regions - 1, 0)]
    for numbers in (*([n] for n in range(cfg.slices)), range(cfg.slices)):
        for bad in banks:
            await rig.start()
            rig.bad.clear()
            await rig.regions()
            for region, bank in banks:
                await rig.state(region, OPEN, 4 + bank)
            region, bank = bad
            base = rig.model.regions[region]["spill_base"][bank]
            rig.bad.update(range(base, base + (8 << 16), 8))
            queue = [
                rig.part(rowid, 4 + at, region=of)
                for n in range(cfg.rat_ways + 2 * STORE_WAYS)
                for of, at in banks
                for rowid in in_set(cfg, of, 4 + at, cfg.rat_ways + 2 * STORE_WAYS)[n : n + 1]
            ]
            for n, flits in enumerate(queue):
                rig.send(numbers[n // 2 % len(numbers)], [flits])
            await rig.settle()
            failed = [each for each in rig.memory.writes if each["addr"] in rig.bad]
            assert failed and all(unpack(SPILL_WORD, each["word"])["valid"] for each in failed)
            lost = {each["addr"] for each in failed}  # a row is lost once, however often refused
            assert +rig.overlaps == {bad: len(lost)}, f"{rig.overlaps}, {len(lost)} lost"
            unread = [each for each in rig.memory.reads if each["addr"] in rig.bad]
            assert rig.counts["spill_errors"] == len(lost) + len(unread)
    rig.bad.clear()
    cover("slot_allocator.store.words_are_lost")


@AllocatorRig.test(fits=lambda cfg: cfg.victim_sets == 1)
async def purge_waits_for_loss(rig, cfg, rng):
    """A bank is purged while memory still works at one of its words, which it refuses: `purging`
    ends when the bank is told."""
    await rig.region(0)
    await rig.state(0, OPEN, 2)
    rows = in_set(cfg, 0, 2, cfg.rat_ways + STORE_WAYS + 1)
    base = rig.model.regions[0]["spill_base"][0]
    rig.bad.update(range(base, base + (8 << 16), 8))
    later = rig.memory.later_b
    usual, later.latency = later.latency, (400, 400)
    rig.send_all(rig.alone(0, [rig.part(rowid, 2) for rowid in rows]))
    await rig.until(lambda: len(rig.obs) == len(rows), what="slots")
    await rig.cycles(40)
    assert not rig.overlaps
    await rig.purge(0, 0)
    await rig.purged()
    assert rig.overlaps[0, 0] == 1
    await rig.settle()
    later.latency = usual
    rig.bad.clear()
    cover("slot_allocator.store.purge_waits")


@AllocatorRig.test(fits=lambda cfg: cfg.capacity > 32)
async def purge_forgets_words(rig, cfg, rng):
    """Rows of a purged bank are in the RAT, in the store and in memory; when its epoch number comes
    round they are new. Those of the other bank are found."""
    for purged in range(2):
        await rig.start()
        await rig.region(0)
        rows = {at: in_set(cfg, 0, at, cfg.rat_ways + 2 * STORE_WAYS) for at in range(2)}
        for epoch in (6, 7):
            await rig.state(0, OPEN, epoch)
        for rowids in zip(*rows.values(), strict=True):
            for at, rowid in enumerate(rowids):
                await send(rig, 0, 0, 6 + at, [rowid])
        await rig.purge(0, purged)
        await rig.purged()
        rig.model.purge(0, purged)
        await zero_table(rig, 0, purged)
        await rig.over(0, 6 + purged)
        await rig.state(0, OPEN, 6 + purged)
        fresh = len(rig.obs)
        for at in range(2):
            await send(rig, 0, 0, 6 + at, rows[at], 1)
        assert len(rig.obs) - fresh == len(rows[purged])
    cover("slot_allocator.store.purge_forgets")


@AllocatorRig.test(fits=lambda cfg: cfg.capacity > 32)
async def purge_keeps_others(rig, cfg, rng):
    """Every bank has words in the store. One is purged, or a run of two: only its rows are new."""
    for (first, bank), run in product(rig.keys, (0, 1)):
        last = min(first + run, cfg.regions - 1)
        await rig.start()
        await rig.regions()
        for epoch in (6, 7):
            await rig.states(OPEN, epoch)
        rows = {key: in_set(cfg, *key, 1 + cfg.rat_ways) for key in rig.keys}
        for region, at in rng.sample(rig.keys, len(rig.keys)):
            await send(rig, 0, region, 6 + at, rows[region, at])
        await rig.purge(first, bank, last)
        await rig.purged()
        purged = [(region, bank) for region in range(first, last + 1)]
        for key in purged:
            rig.model.purge(*key)
            await zero_table(rig, *key)
        fresh = len(rig.obs)
        for region, at in rng.sample(rig.keys, len(rig.keys)):
            await send(rig, 0, region, 6 + at, rows[region, at], 1)
        assert len(rig.obs) - fresh == len(purged) * (1 + cfg.rat_ways)
    cover("slot_allocator.store.purge_keeps_others")


@AllocatorRig.test(fits=lambda cfg: cfg.victim_sets == 1 and cfg.capacity > 32)
async def damaged_in_memory(rig, cfg, rng):
    """A word that was written out comes back with another slot: one outside the region is a memory
    error."""
    capacity, (low, width) = cfg.capacity - 3, SPILL_WORD["slot"]
    rows = in_set(cfg, 0, 1, cfg.rat_ways + 3 * STORE_WAYS)
    for number in range(cfg.slices):
        await rig.start()
        rig.memory.memory = ByteMemory(0)
        await rig.region(0, capacity=capacity)
        await rig.state(0, OPEN, 1)
        await send(rig, number, 0, 1, rows)
        base = rig.model.regions[0]["spill_base"][1]
        written = {each["addr"] for each in rig.memory.writes}
        slots = [capacity, capacity - 1, 1 << width - 1, *(1 << bit for bit in range(width - 1))]
        damaged = []
        for addr, slot in zip(sorted(written), slots, strict=False):
            word = rig.model.memory[addr] & ~(((1 << width) - 1) << low) | slot << low
            rig.model.memory[addr] = word
            rig.memory.memory.write(addr, word.to_bytes(8, "little"))
            damaged.append((addr - base) // 8)
        await send(rig, number, 0, 1, damaged, 1)
        assert rig.model.counts["refused_MEM_ERROR"]
    cover("slot_allocator.store.damaged_in_memory")


@AllocatorRig.test(fits=lambda cfg: cfg.victim_sets == 1 and cfg.capacity > 32)
async def losses_meet_overlaps(rig, cfg, rng):
    """Memory refuses a word of one region when rows of another get too many bytes, at every
    distance: all of it is told, once."""
    good, bad, last = (cfg.regions - 1, 3), (0, 2), cfg.slices - 1
    for region in (0, cfg.regions - 1):
        await rig.region(region, row_bytes=32)
    for region, epoch in (good, bad):
        await rig.state(region, OPEN, epoch)
    base = rig.model.regions[0]["spill_base"][0]
    fillers = iter(in_set(cfg, *bad, cfg.rat_ways + STORE_WAYS + 24))
    rows = iter(in_set(cfg, *good, 24 * cfg.slices))

    async def fill():
        """Another row of the bad region; once it has been looked for, its word is refused."""
        rig.send(last, [rig.part(rowid := next(fillers), bad[1], region=bad[0])])
        await rig.cycles(60)
        rig.bad.add(base + 8 * rowid)

    for _ in range(cfg.rat_ways + STORE_WAYS + 1):
        await fill()
    for distance in range(20):
        mine = [next(rows) for _ in range(cfg.slices)]
        for number, rowid in enumerate(mine):
            rig.send(number, [rig.part(rowid, good[1], region=good[0])])
        await rig.settle(20)
        rig.pause("stop", rig.memory.b)
        await fill()
        for number, rowid in enumerate(mine):
            rig.send(number, [rig.part(rowid, good[1], 0, 2, region=good[0])])
        await rig.cycles(distance)
        rig.pause(None, rig.memory.b)
        await rig.settle(20)
        lost = sum(each["error"] for each in rig.memory.writes)
        told = {(bad[0], 0): lost, (good[0], 1): cfg.slices * (distance + 1)}
        assert lost > distance and +rig.overlaps == told, f"{rig.overlaps}, not {told}"
    rig.bad.clear()
    cover("slot_allocator.store.losses_meet_overlaps")
