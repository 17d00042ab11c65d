"""cocotb tests of the slot allocator: slices take turns, and nobody waits for what it does not need."""

import cocotb

from hub_rtl.formats import RegionState
from sim.cocotb.slot_allocator_rig import AllocatorBench
from sim.cocotb.slot_allocator_traffic import packet

OPEN, DONE = RegionState.OPEN, RegionState.DONE


@cocotb.test()
async def turns(dut):
    """Slices that ask for slots, spill words or an overlap in the same cycle are served in turn, after the one served last."""
    top = AllocatorBench(dut, salt="turns")
    await top.start()
    rng, traffic, slices = top.rng, top.traffic, top.cfg.slices
    await top.region(0, row_bytes=16)
    last = slices - 1
    for turn in range(12):
        await top.state(0, OPEN, turn)
        chosen = [n for n in range(slices) if rng.random() < 0.7 or turn % 3 == 0] or [rng.randrange(slices)]
        seen = len(top.obs)
        await top.run([[packet(0, traffic.words(1), row_off=0, region=0, epoch=turn, rowid=number)] if number in chosen else []
                       for number in range(slices)])
        order = [each["rowid"] for each in top.obs[seen:]]
        assert order == sorted(chosen, key=lambda n, last=last: (n - last - 1) % slices), f"after slice {last}: {order}"
        last = order[-1]
        await top.state(0, DONE, turn)


@cocotb.test()
async def turns_of_words(dut):
    """The same for the spill engine."""
    top = AllocatorBench(dut, salt="words")
    await top.start()
    cfg, rng, traffic, slices = top.cfg, top.rng, top.traffic, top.cfg.slices
    if cfg.rat_sets > 1:
        return
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    last = slices - 1
    for turn in range(10):
        await top.region(0, row_bytes=row_bytes, row_first=0)
        await top.state(0, OPEN, turn)

        def row(n, number, turn=turn):
            return packet(0, traffic.words(1), row_off=0, region=0, epoch=turn, rowid=slices * n + number)
        for n in range(cfg.rat_ways):
            await top.run([[row(n, number)] for number in range(slices)])
        chosen = [n for n in range(slices) if rng.random() < 0.7 or turn % 3 == 0] or [rng.randrange(slices)]
        seen = len(top.memory.writes)
        await top.run([[row(cfg.rat_ways, number)] if number in chosen else [] for number in range(slices)])
        base = top.model.regions[0]["spill_base"][turn & 1]
        order = [(each["addr"] - base) // 8 % slices for each in top.memory.writes[seen:]]
        if order:
            assert order == sorted(chosen, key=lambda n, last=last: (n - last - 1) % slices), f"after slice {last}: {order}"
            last = order[-1]
        await top.state(0, DONE, turn)


@cocotb.test()
async def turns_of_overlaps(dut):
    """The same for overlaps, each slice in a region of its own."""
    top = AllocatorBench(dut, salt="overlaps")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    count = min(cfg.slices, cfg.regions)
    last = cfg.slices - 1
    for region in range(count):
        await top.region(region, row_bytes=32)
    for turn in range(10):
        for region in range(count):
            await top.state(region, OPEN, turn)
        chosen = [n for n in range(count) if rng.random() < 0.7 or turn % 3 == 0] or [rng.randrange(count)]
        seen = len(top.overlap_order)
        await top.run([[packet(0, traffic.words(units), row_off=0, region=number, epoch=turn, rowid=number) for units in (1, 2)]
                       if number in chosen else [] for number in range(cfg.slices)])
        order = top.overlap_order[seen:]
        assert order == sorted(chosen, key=lambda n, last=last: (n - last - 1) % cfg.slices), f"after slice {last}: {order}"
        last = order[-1]
        for region in range(count):
            await top.state(region, DONE, turn)


@cocotb.test()
async def hits_do_not_wait(dut):
    """While all answers that a slice may wait for are on their way, packets of known rows and plain ones are looked up."""
    top = AllocatorBench(dut, salt="hits")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    end = cfg.regions - 1
    await top.region(0, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
    if not end:
        return
    await top.region(end, row_bytes=16)
    await top.window(0, 0, 4096)
    for number in range(cfg.slices):
        for region in (0, end):
            await top.state(region, OPEN, number)
        top.writes[number].set_pause("stop")

        def part(region, rowid, unit=0, number=number):
            return packet(0, traffic.words(1), row_off=unit, region=region, epoch=number, rowid=rowid)
        # The first write stops at the output; its answer was taken.
        first = [part(end, 0), part(0, 1), *(part(end, 2 + n) for n in range(3))]
        known = [part(0, 1, 1), packet(0, traffic.words(1), addr=64), part(0, 1, 2)]
        top.send(number, first + known)
        await top.bench.cycles(80)
        assert top.counts["stall_lookup"] == 0, f"slice {number}: a packet waited for an answer that it did not need"
        more = [part(end, 6)]
        top.send(number, more)
        await top.bench.cycles(20)
        assert top.counts["stall_lookup"] > 5, f"slice {number}: a fifth answer was asked for"
        top.writes[number].set_pause(None)
        await top.settle()
        top.check([first + known + more if n == number else [] for n in range(cfg.slices)])
        top.counts["stall_lookup"] = 0
        for region in (0, end):
            await top.state(region, DONE, number)
