# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: faults between banks, and two events that meet at one
register."""

from itertools import product

import cocotb

from hub_rtl.contract.packets import RegionState
from hub_rtl.slot_allocator.records import slice_types_of
from sim.bench.streams import bus_pulse
from sim.golden.slot_allocator import fold
from sim.quality.coverage import cover

from .rig import AllocatorBench
from .traffic import packet

EPOCHS = (2, 1)  # by bank


def rows_of_set(cfg, region, bank, count):
    """RowIDs of this bank that belong to set 0 of the RAT."""
    rowids = (n for n in range(1 << 16) if fold(n ^ (2 * region + bank) << 12, cfg.rat_sets) == 0)
    return [next(rowids) for _ in range(count)]


async def spill_fault_between(top, number, victims, others):
    """Rows of bank ``victims`` are spilled for packets of bank ``others`` and the other way round;
    memory answers with errors."""
    await top.start()
    top.bad.clear()
    cfg, traffic = top.cfg, top.traffic
    ways, row_bytes = cfg.rat_ways, min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for region in sorted({victims[0], others[0]}):
        await top.region(region, row_bytes=row_bytes, capacity=min(cfg.capacity, 1000))
        for epoch in EPOCHS:
            await top.state(region, RegionState.OPEN, epoch)
    ids = {key: rows_of_set(cfg, *key, ways + 1) for key in (victims, others)}

    def address(key, n):
        region, bank = key
        return top.model.regions[region]["spill_base"][bank] + 8 * ids[key][n]

    async def part(key, n, unit):
        region, bank = key
        flits = packet(
            0, traffic.words(1), row_off=unit, region=region, epoch=EPOCHS[bank], rowid=ids[key][n]
        )
        await top.run([[flits] if number == at else [] for at in range(cfg.slices)])

    for n in range(ways):
        await part(victims, n, 0)
    # The oldest row makes place for a row of the other bank; its word is lost: that row's bank is
    # told, not the packet's.
    top.bad.add(address(victims, 0))
    await part(others, 0, 0)
    assert top.overlaps[victims] == 1 and not top.overlaps[others]
    cover("slot_allocator.spill_lost.other_bank", victims[1] != others[1])
    cover("slot_allocator.spill_lost.other_region", victims[0] != others[0])
    # A word that cannot be read: the packet is refused, nobody makes place for it.
    top.bad.clear()
    await part(others, 1, 0)
    refused = top.model.counts["refused_MEM_ERROR"]
    spilled = next(
        n for n in range(1, ways + 1) if n < ways and address(victims, n) in top.model.memory
    )
    top.bad.add(address(victims, spilled))
    await part(victims, spilled, 1)
    assert top.model.counts["refused_MEM_ERROR"] == refused + 1
    assert top.overlaps[victims] == 1 and not top.overlaps[others]
    cover("slot_allocator.spill_unread.other_bank", victims[1] != others[1])
    # Restored, it makes a row of the other bank go, whose word is lost.
    top.bad.clear()
    top.bad.update(address(others, n) for n in range(2))
    for n in range(1, ways):
        await part(victims, n, 2)
    assert top.overlaps[others] and top.overlaps[victims] == 1
    cover("slot_allocator.spill_lost.as_restored", top.model.counts["restores"])


@cocotb.test()
async def spill_faults_between_banks(dut):
    """Spill faults with victim and packet in different banks, of one region and of two, at each
    slice."""
    top = AllocatorBench(dut, salt="between")
    cfg = top.cfg
    last = cfg.regions - 1
    pairs = [((0, 1), (0, 0)), ((0, 0), (0, 1)), ((last, 1), (0, 0)), ((0, 0), (last, 0))]
    for number, (victims, others) in product(range(cfg.slices), pairs):
        if victims != others:
            await spill_fault_between(top, number, victims, others)


@cocotb.test()
async def purge_meets_row(dut):
    """A bank is purged in each cycle around a new row: the row is forgotten, or was looked up
    behind the purge."""
    top = AllocatorBench(dut, salt="purge_meets")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    await top.region(
        0, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes), capacity=min(cfg.capacity, 1000)
    )
    purge = slice_types_of(cfg).purge
    forgotten = []
    for at in range(16):
        epoch = 2 * at % 16
        if at:
            for state in (RegionState.DONE, RegionState.FREE):
                await top.state(0, state, (epoch - 2) % 16)
        await top.state(0, RegionState.OPEN, epoch)

        def part(unit, epoch=epoch, rowid=at):
            return packet(0, traffic.words(1), row_off=unit, region=0, epoch=epoch, rowid=rowid)

        queues = [[part(0)], *([] for _ in range(cfg.slices - 1))]
        top.send(0, queues[0])
        await top.bench.cycles(at)
        await bus_pulse(top.bench, "purge", {"en": 1, "region": 0, "bank": 0}, purge)
        await top.bench.until(lambda: not int(dut.purging.value), 2000, "the end of the purge")
        await top.settle()
        top.check(queues)
        before = len(top.obs)
        queues = [[part(1)], *([] for _ in range(cfg.slices - 1))]
        top.send(0, queues[0])
        await top.settle()
        forgotten.append(len(top.obs) > before)
        if forgotten[-1]:
            top.model.purge(0, 0)
        top.check(queues)
    first = forgotten.index(True)
    assert first and forgotten == [False] * first + [True] * (len(forgotten) - first), forgotten
    await top.check_rows()
    cover("slot_allocator.purge_meets_row")
