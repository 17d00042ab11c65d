# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: every write, beat, refusal, spill access and count against
the golden model."""

import cocotb

from hub_rtl.contract.packets import SPILL_WORD, RegionState, pack, unpack
from hub_rtl.slot_allocator.records import slice_types_of
from sim.bench.streams import GRID, bus_pulse, bus_write
from sim.quality.coverage import cover

from .rig import AllocatorBench
from .traffic import mixed_traffic, packet, set_of, set_up

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def traffic(dut, grid):
    """Mixed traffic over two epochs in both banks, on all idle and back-pressure patterns."""
    top = AllocatorBench(dut, *grid, salt=str(grid))
    await top.start()
    await set_up(top)
    rows = 6 if top.cfg.regions > 4 else 10
    first = 2 * top.rng.randrange(8)
    for epoch in (first, first + 1, (first + 2) % 16):
        for region in range(top.cfg.regions):
            await top.state(region, OPEN, epoch)
        await mixed_traffic(top, rows, epoch)
        await top.check_rows()
        for region in range(top.cfg.regions):
            await top.state(region, DONE, epoch)
            if not epoch & 1:
                await top.state(region, FREE, epoch)
    cover(f"slot_allocator.grid.{grid[0]}.{grid[1]}")
    cover(
        "slot_allocator.overflow",
        any(top.model.moved.values()) or any(e["overflow"] for e in top.obs),
    )


@cocotb.test()
async def thrash(dut):
    """Far more open rows than ways: rows are spilled and restored again and again, the filter
    saturates, nothing is lost."""
    top = AllocatorBench(dut, salt="thrash")
    for _ in range(3):
        await thrash_once(top)
    cover("slot_allocator.thrash")


async def thrash_once(top):
    """From reset on, with new rows and words."""
    await top.start()
    cfg = top.cfg
    row_bytes = min(cfg.max_row_bytes, 4 * cfg.packet_bytes)
    count = min(cfg.capacity, 3 * cfg.rat_sets * cfg.rat_ways)
    first = top.rng.choice((0, top.rng.randrange(1 << 23)))
    for region in range(cfg.regions):
        await top.region(
            region, row_bytes=row_bytes, capacity=count, row_first=first + 100 * region
        )
        await top.state(region, OPEN, 3)
    lists = [[] for _ in range(cfg.slices)]
    for region in range(min(cfg.regions, 3)):
        for n in range(count):
            body = {"region": region, "epoch": 3, "rowid": first + 100 * region + n}
            out = [
                packet(1, top.traffic.words(1), row_off=unit, **body)
                for unit in range(row_bytes // 16)
            ][:12]
            whole = row_bytes // 16 <= 12
            lists[n % cfg.slices].append(
                out
                if whole
                else out
                + [
                    packet(
                        1,
                        top.traffic.words(min(cfg.packet_flits, row_bytes // 16 - unit)),
                        row_off=unit,
                        **body,
                    )
                    for unit in range(
                        cfg.packet_flits * -(-12 // cfg.packet_flits),
                        row_bytes // 16,
                        cfg.packet_flits,
                    )
                ]
            )
    await top.run([top.traffic.weave(each, 4 * cfg.rat_sets * cfg.rat_ways) for each in lists])
    assert top.model.counts["restores"] > 10


@cocotb.test()
async def full_regions(dut):
    """Full regions: own slots, then the overflow region's, then refusals; unusable overflow regions
    are not used."""
    top = AllocatorBench(dut, salt="full")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    last = cfg.regions - 1
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for case in ("usable", "no_slots", "closed", "epoch", "row_bytes", "none"):
        await top.start()
        for region in range(cfg.regions):
            fields = {
                "row_bytes": row_bytes,
                "overflow_en": int(case != "none" and region != last),
                "overflow": last,
                "capacity": 0 if case == "no_slots" and region != last else 2,
            }
            if case == "row_bytes" and region == last:
                fields |= {"row_bytes": 16}
            await top.region(region, **fields)
            if not (case == "closed" and region == last):
                await top.state(region, OPEN, 7 if case == "epoch" and region == last else 5)
        lists = [[] for _ in range(cfg.slices)]
        for region in range(min(last, 3) or 1):
            for n in range(6):
                lists[rng.randrange(cfg.slices)].append(
                    traffic.row(row_bytes, 0, region=region, epoch=5, rowid=n)
                )
        await top.run([traffic.weave(each, 4) for each in lists])
        await top.check_rows()
        assert top.model.counts["refused_REGION_FULL"]
        assert bool(any(top.model.moved.values())) == (case in ("usable", "no_slots") and last > 0)
        cover(f"slot_allocator.full.{case}")


@cocotb.test()
async def spill_faults(dut):
    """Memory errors on spill accesses, damaged words, words of others: the row is refused or the
    bank told."""
    top = AllocatorBench(dut, salt="faults")
    for number in range(top.cfg.slices):
        await spill_faults_of(top, number)
    cover("slot_allocator.spill_faults")


async def spill_faults_of(top, number):
    """The same at one slice."""
    await top.start()
    top.bad.clear()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await top.region(0, row_bytes=row_bytes, capacity=min(cfg.capacity, 1000))
    await top.state(0, OPEN, 1)
    ways = cfg.rat_ways
    ids = [n for n in range(1 << 16) if set_of(cfg, n) == 0][: ways + 2]

    def part(rowid, unit, src=0):
        return packet(src, traffic.words(1), row_off=unit, region=0, epoch=1, rowid=rowid)

    def alone(*packets):
        return [[*packets] if n == number else [] for n in range(cfg.slices)]

    base = top.model.regions[0]["spill_base"][1]
    if len(ids) > cfg.capacity:
        return
    # The first row is spilled by one more row than there are ways; then its word is read, each time
    # in another condition.
    await top.run(alone(*(part(rowid, 0) for rowid in ids[: ways + 1])))
    addr = base + 8 * ids[0]
    assert top.model.counts["spills"] == 1
    top.bad.add(addr)
    await top.run(alone(part(ids[0], 1)))
    assert top.model.counts["refused_MEM_ERROR"] == 1
    top.bad.clear()
    await top.run(alone(part(ids[0], 1, src=1)))
    assert top.model.counts["refused_FOREIGN"] == 1
    word = top.model.memory[addr]
    damaged = word & ~pack(SPILL_WORD, slot=(1 << 20) - 1) | pack(
        SPILL_WORD, slot=(1 << cfg.slot_width) - 1
    )
    assert unpack(SPILL_WORD, damaged)["slot"] >= min(cfg.capacity, 1000)
    top.model.memory[addr] = damaged
    top.memory.memory.write(addr, damaged.to_bytes(8, "little"))
    # Restoring it evicts the next row, whose spill fails: the bank is told.
    top.bad.add(base + 8 * ids[1])
    await top.run(alone(part(ids[0], 1), part(ids[0], 2)))
    assert top.model.counts["refused_MEM_ERROR"] == 3
    assert top.model.overlaps[0, 1] == 1


@cocotb.test()
async def overlap(dut):
    """A row that gets more bytes than it has: the bank is told once, and what follows of other rows
    is not disturbed."""
    top = AllocatorBench(dut, salt="overlap")
    await top.start()
    flits, traffic = top.cfg.packet_flits, top.traffic
    row_bytes = min(top.cfg.max_row_bytes, 2 * top.cfg.packet_bytes)
    await top.region(0, row_bytes=row_bytes, capacity=min(top.cfg.capacity, 1000))
    await top.state(0, OPEN, 1)

    def part(rowid, units, unit):
        return packet(0, traffic.words(units), row_off=unit, region=0, epoch=1, rowid=rowid)

    last = row_bytes // 16 - flits
    slices = top.cfg.slices
    for first in range(slices + 1):  # at all slices at once, then at each
        queues = [[] for _ in range(slices)]
        for number in range(slices):
            if first in (0, number + 1):
                rowid = 2 * (slices * first + number)
                queues[number] = [part(rowid, flits, 0)] * (last > 0) + [
                    part(rowid, flits - 1, last),
                    part(rowid, flits, last),
                ]
                queues[number] += [
                    part(rowid + 1, flits, unit) for unit in range(0, row_bytes // 16, flits)
                ]
        await top.run(queues)
    assert top.model.overlaps[0, 1] == 2 * slices
    cover("slot_allocator.overlap")


@cocotb.test()
async def purge(dut):
    """A purge with packets under way: `purging` lasts until they have left, then the bank's rows
    are new again."""
    top = AllocatorBench(dut, salt="purge")
    await top.start()
    cfg, traffic, bench = top.cfg, top.traffic, top.bench
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes)
        for epoch in (0, 1):
            await top.state(region, OPEN, epoch)

    def parts(unit):
        return [
            [
                packet(0, traffic.words(1), row_off=unit, region=region, epoch=epoch, rowid=number)
                for region in range(cfg.regions)
                for epoch in (0, 1)
            ][: max(2, cfg.rat_ways)]
            for number in range(cfg.slices)
        ]

    for sink in top.writes + top.beats:
        sink.set_pause("stop")
    first = parts(0)
    for number, queue in enumerate(first):
        top.send(number, queue)
    await bench.cycles(60)
    await bus_pulse(bench, "purge", {"en": 1, "region": 0, "bank": 0}, slice_types_of(cfg).purge)
    for _ in range(40 + 2 * cfg.rat_sets):
        await bench.sampled()
        assert int(dut.purging.value), "purging ended with packets inside"
        await bench.cycles(1)
    # More packets come meanwhile, of a bank that is not purged.
    for number, queue in enumerate(first):
        more = [packet(0, traffic.words(1), row_off=2, region=0, epoch=1, rowid=number)]
        top.send(number, more)
        queue += more
    for sink in top.writes + top.beats:
        sink.set_pause(None)
    await bench.until(lambda: not int(dut.purging.value), what="purge")
    await top.settle()
    top.check(first)
    top.model.purge(0, 0)
    hits = top.model.counts["rat_hits"]
    await top.run(parts(1))
    assert top.model.counts["rat_hits"] > hits or cfg.rat_ways == 1
    assert top.model.slots[0, 0] >= 2, "the purged row was not new again"
    cover("slot_allocator.purge")


@cocotb.test()
@cocotb.parametrize(stopped=["writes", "beats", "refused", "all"])
async def blocked_outputs(dut, stopped):
    """Some outputs are not taken for a while: queues fill up; then all comes out as it must."""
    top = AllocatorBench(dut, salt=f"blocked{stopped}")
    await top.start()
    await set_up(top)
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    for region in range(cfg.regions):
        await top.state(region, OPEN, 1)
    kinds = ("writes", "beats", "refused") if stopped == "all" else (stopped,)
    sinks = [sink for kind in kinds for sink in getattr(top, kind)]
    for turn in range(3):
        for sink in sinks:
            sink.set_pause("stop")
        lists = []
        for number in range(cfg.slices):
            rows = [
                traffic.row(
                    top.model.regions[region]["row_bytes"],
                    number % cfg.ranks,
                    region=region,
                    epoch=1,
                    rowid=top.model.regions[region]["row_first"] + 10 * turn + number,
                )
                for region in range(cfg.regions)
            ]
            small = [
                [packet(rng.randrange(cfg.ranks), traffic.words(1), addr=traffic.far + 16 * n)]
                for n in range(12)
            ]
            refused = [
                [
                    packet(
                        0,
                        traffic.words(1),
                        row_off=0,
                        region=rng.randrange(cfg.regions),
                        epoch=9,
                        rowid=n,
                    )
                ]
                for n in range(12)
            ]
            lists.append(traffic.weave(rng.sample(small + refused, 24) + rows, 2))
            top.send(number, lists[-1])
        await top.bench.cycles(400)
        for sink in sinks:
            sink.set_pause(None)
        await top.settle()
        top.check(lists)


@cocotb.test()
async def opened_in_a_row(dut):
    """All banks open in successive cycles, again and again, with rows in between: each starts at
    slot 0."""
    top = AllocatorBench(dut, salt="opened")
    await top.start()
    cfg = top.cfg
    keys = [(region, bank) for region in range(cfg.regions) for bank in (0, 1)]
    for region in range(cfg.regions):
        await top.region(region, row_bytes=16)
    for turn in range(8):
        for state in (OPEN, DONE, FREE):
            for region, bank in top.rng.sample(keys, len(keys)):
                epoch = 2 * turn + bank
                top.model.state(region, bank, state, epoch)
                bus_write(
                    dut,
                    "region_update",
                    {"en": 1, "region": region, "bank": bank, "state": state, "epoch": epoch},
                    top.types.region_update,
                )
                await top.bench.cycles(1)
            dut.region_update.value = 0
            if state == OPEN:
                await top.bench.cycles(10)
                await top.run(
                    [
                        [
                            packet(
                                0,
                                top.traffic.words(1),
                                row_off=0,
                                region=region,
                                epoch=2 * turn + bank,
                                rowid=cfg.slices * turn + number,
                            )
                            for region, bank in keys
                        ]
                        for number in range(cfg.slices)
                    ]
                )
                await top.check_rows()


@cocotb.test()
async def old_rows(dut):
    """Rows left over from an epoch that ended in an error are never hit again, and are dropped
    rather than spilled."""
    top = AllocatorBench(dut, salt="old")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes)
    count = min(cfg.capacity, 2 * cfg.rat_sets * cfg.rat_ways)
    for epoch in (2, 4):
        for region in range(cfg.regions):
            await top.state(region, OPEN, epoch)
        await top.run(
            [
                [
                    packet(
                        0,
                        traffic.words(1),
                        row_off=unit,
                        region=number % cfg.regions,
                        epoch=epoch,
                        rowid=n,
                    )
                    for unit in (0, 1)
                    for n in range(count)
                ]
                for number in range(cfg.slices)
            ]
        )
        for region in range(cfg.regions):
            await top.state(region, DONE, epoch)
    assert top.model.counts["dropped"]
    cover("slot_allocator.old_rows")


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with packets everywhere and memory stopped; afterwards everything is as new."""
    top = AllocatorBench(dut, stall="random", salt="reset")
    await top.start()
    await set_up(top)
    for region in range(top.cfg.regions):
        await top.state(region, OPEN, 1)
    for number in range(top.cfg.slices):
        top.send(
            number,
            [top.traffic.plain(2) for _ in range(10)]
            + [
                flits
                for n in range(4)
                for flits in top.traffic.row(
                    top.model.regions[0]["row_bytes"], 0, region=0, epoch=1, rowid=10 * number + n
                )
            ],
        )
    await top.bench.cycles(45)
    await top.start(1)
    await set_up(top)
    for region in range(top.cfg.regions):
        await top.state(region, OPEN, 1)
    await mixed_traffic(top, 4, 1)
    cover("slot_allocator.reset_in_traffic")


@cocotb.test()
async def latency(dut):
    """Header in to write out on an idle block, in cycles."""
    top = AllocatorBench(dut, salt="latency")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await top.region(0, row_bytes=row_bytes)
    await top.state(0, OPEN, 0)
    await top.window(0, 0, 4096)
    body = {"region": 0, "epoch": 0, "rowid": 9}

    async def measure(flits):
        before, sent = top.writes[0].count, top.sources[0].count
        await top.run([[flits]] + [[]] * (cfg.slices - 1))
        return top.writes[0].stamps[before] - top.sources[0].stamps[sent]

    new = await measure(packet(0, traffic.words(4), row_off=0, **body))
    hit = await measure(packet(0, traffic.words(4), row_off=4, **body))
    full = await measure(
        packet(0, traffic.words(cfg.packet_flits), row_off=0, **{**body, "rowid": 10})
    )
    plain = await measure(packet(0, traffic.words(4), addr=64))
    assert new <= 9, f"new row: {new} cycles"
    assert hit <= 6, f"known row: {hit} cycles"
    assert plain <= 7, f"plain: {plain} cycles"
    assert full <= max(9, cfg.packet_flits + 2), f"new row, full packet: {full} cycles"
    dut._log.info(f"latency: new {new}, hit {hit}, full packet {full}, plain {plain}")
    cover("slot_allocator.latency")


@cocotb.test()
async def full_rate(dut):
    """One flit per cycle on every slice, without a bubble: 64-byte packets, full packets, plain
    ones; new rows, new regions."""
    top = AllocatorBench(dut, salt="rate")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 1024)
    regions = min(cfg.regions, 4)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes, capacity=cfg.capacity)
        await top.state(region, OPEN, 0)
    await top.window(0, 0, 1 << 20)
    sizes = [4] if cfg.packet_flits < 8 else [4, cfg.packet_flits]
    start = 0
    for size in [*sizes, "plain", "masked"]:
        lists = []
        for number in range(cfg.slices):
            queue = []
            for n in range(24 // max(1, row_bytes // 512)):
                body = {"region": n % regions, "epoch": 0, "rowid": start + n * cfg.slices + number}
                if size == "plain":
                    queue += [packet(0, traffic.words(4), addr=64 * (n + k)) for k in range(4)]
                elif size == "masked":
                    queue += [
                        packet(
                            0,
                            traffic.words(4),
                            row_off=unit,
                            mask=((1 << 64) - 1) << 16 * (unit % cfg.packet_flits),
                            mask_flits=cfg.mask_flits,
                            **body,
                        )
                        for unit in range(0, row_bytes // 16, 4)
                    ]
                else:
                    queue += [
                        packet(0, traffic.words(size), row_off=unit, **body)
                        for unit in range(0, row_bytes // 16, size)
                    ]
            lists.append(queue)
        start += 1000
        before = [source.count for source in top.sources]
        await top.run(lists)
        for n, source in enumerate(top.sources):
            stamps = source.stamps[before[n] :]
            lost = stamps[-1] - stamps[0] + 1 - len(stamps)
            assert lost == 0, f"slice {n}, {size}: {lost} cycles lost in {len(stamps)} flits"
    cover("slot_allocator.full_rate")


@cocotb.test()
async def rows_per_cycle(dut):
    """New rows back to back in one region from all slices: with three slices or more one slot is
    given out per cycle."""
    top = AllocatorBench(dut, salt="rows")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    await top.region(0, row_bytes=16)
    await top.state(0, OPEN, 0)
    each = 1000 // cfg.slices
    await top.run(
        [
            [
                packet(
                    0, traffic.words(1), row_off=0, region=0, epoch=0, rowid=n * cfg.slices + number
                )
                for n in range(each)
            ]
            for number in range(cfg.slices)
        ]
    )
    cycles = top.obs_stamps[-1] - top.obs_stamps[0] + 1
    dut._log.info(f"{len(top.obs)} rows in {cycles} cycles")
    assert len(top.obs) == each * cfg.slices
    assert cycles <= len(top.obs) * 1.02 + 10
    cover("slot_allocator.rows_per_cycle")
