# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: faults between banks, and two events that meet at one
register."""

from itertools import product

from hub_rtl.contract.packets import RegionState
from sim.bench.moments import turning_point
from sim.golden.slot_allocator import fold
from sim.quality.coverage import cover

from .rig import AllocatorRig, in_memory

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
    forgotten = []
    for at in range(16):
        epoch = 2 * at % 16
        if at:
            await rig.over(0, (epoch - 2) % 16)
        await rig.state(0, RegionState.OPEN, epoch)
        first, second = (rig.alone(0, [rig.part(at, epoch, unit)]) for unit in (0, 1))
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
    await rig.check_rows()
    cover("slot_allocator.purge_meets_row")
