# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: every write, beat, refusal, spill access and count against
the golden model."""

from hub_rtl.contract.packets import SPILL_WORD, RegionState, pack, unpack
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import AllocatorRig, in_memory
from .traffic import mixed_traffic, set_of, set_up

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE


@AllocatorRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Mixed traffic over two epochs in both banks, on all idle and back-pressure patterns."""
    await set_up(rig)
    rows = 6 if cfg.regions > 4 else 10
    first = 2 * rng.randrange(8)
    for epoch in (first, first + 1, (first + 2) % 16):
        await rig.states(OPEN, epoch)
        await mixed_traffic(rig, rows, epoch)
        await rig.check_rows()
        for region in range(cfg.regions):
            await rig.state(region, DONE, epoch)
            if not epoch & 1:
                await rig.state(region, FREE, epoch)
    cover(f"slot_allocator.grid.{'.'.join(grid)}")
    cover(
        "slot_allocator.overflow",
        any(rig.model.moved.values()) or any(e["overflow"] for e in rig.obs),
    )


@AllocatorRig.test()
async def thrash(rig, cfg, rng):
    """Far more open rows than ways: rows are spilled and restored again and again, the filter
    saturates, nothing is lost."""
    few = cfg.rat_sets * cfg.rat_ways <= 8
    for _ in range(3 if few else 1):
        await rig.start()
        await thrash_once(rig, cfg, 12 if few else 4)
    cover("slot_allocator.thrash")


async def thrash_once(rig, cfg, single):
    """From reset on, with new rows and words; of each row so many units come one by one."""
    row_bytes = min(cfg.max_row_bytes, 4 * cfg.packet_bytes)
    count = min(cfg.capacity, 3 * cfg.rat_sets * cfg.rat_ways)
    first = rig.rng.choice((0, rig.rng.randrange(1 << 23)))
    for region in range(cfg.regions):
        await rig.region(
            region, row_bytes=row_bytes, capacity=count, row_first=first + 100 * region
        )
        await rig.state(region, OPEN, 3)
    lists = [[] for _ in range(cfg.slices)]
    for region in range(min(cfg.regions, 3)):
        for n in range(count):
            units, flits = row_bytes // 16, cfg.packet_flits
            parts = [(unit, 1) for unit in range(min(units, single))]
            if units > single:
                later = range(flits * -(-single // flits), units, flits)
                parts += [(unit, min(flits, units - unit)) for unit in later]
            rowid = first + 100 * region + n
            lists[n % cfg.slices].append(
                [rig.part(rowid, 3, *part, src=1, region=region) for part in parts]
            )
    await rig.run([rig.traffic.weave(each, 4 * cfg.rat_sets * cfg.rat_ways) for each in lists])
    assert rig.model.counts["restores"] > 10


@AllocatorRig.test()
async def full_regions(rig, cfg, rng):
    """Full regions: own slots, then the overflow region's, then refusals; unusable overflow regions
    are not used."""
    traffic = rig.traffic
    last = cfg.regions - 1
    for case in ("usable", "no_slots", "closed", "epoch", "row_bytes", "none"):
        await rig.start()
        for region in range(cfg.regions):
            other = case if region == last else None
            await rig.region(
                region,
                row_bytes=16 if other == "row_bytes" else rig.row_bytes,
                overflow_en=int(case != "none" and region != last),
                overflow=last,
                capacity=0 if case == "no_slots" and region != last else 2,
            )
            if other != "closed":
                await rig.state(region, OPEN, 7 if other == "epoch" else 5)
        lists = [[] for _ in range(cfg.slices)]
        for region in range(min(last, 3) or 1):
            for n in range(6):
                lists[rng.randrange(cfg.slices)].append(
                    traffic.row(rig.row_bytes, 0, region=region, epoch=5, rowid=n)
                )
        await rig.run([traffic.weave(each, 4) for each in lists])
        await rig.check_rows()
        assert rig.model.counts["refused_REGION_FULL"]
        assert bool(any(rig.model.moved.values())) == (case in ("usable", "no_slots") and last > 0)
        cover(f"slot_allocator.full.{case}")


@AllocatorRig.test(fits=in_memory)
async def spill_faults(rig, cfg, rng):
    """Memory errors on spill accesses, damaged words, words of others: the row is refused or the
    bank told."""
    for number in range(cfg.slices):
        await rig.start()
        rig.bad.clear()
        await spill_faults_of(rig, cfg, number)
    cover("slot_allocator.spill_faults")


async def spill_faults_of(rig, cfg, number):
    """The same at one slice."""
    await rig.region(0, capacity=min(cfg.capacity, 1000))
    await rig.state(0, OPEN, 1)
    ways = cfg.rat_ways
    ids = [n for n in range(1 << 16) if set_of(cfg, n) == 0][: ways + 2]

    async def run(*parts, **more):
        await rig.run(rig.alone(number, [rig.part(ids[n], 1, unit, **more) for n, unit in parts]))

    base = rig.model.regions[0]["spill_base"][1]
    if len(ids) > cfg.capacity:
        return
    # The first row is spilled by one more row than there are ways; then its word is read, each time
    # in another condition.
    await run(*((n, 0) for n in range(ways + 1)))
    addr = base + 8 * ids[0]
    assert rig.model.counts["spills"] == 1
    rig.bad.add(addr)
    await run((0, 1))
    assert rig.model.counts["refused_MEM_ERROR"] == 1
    rig.bad.clear()
    await run((0, 1), src=1)
    assert rig.model.counts["refused_FOREIGN"] == 1
    word = rig.model.memory[addr]
    damaged = word & ~pack(SPILL_WORD, slot=(1 << 20) - 1) | pack(
        SPILL_WORD, slot=(1 << cfg.slot_width) - 1
    )
    assert unpack(SPILL_WORD, damaged)["slot"] >= min(cfg.capacity, 1000)
    rig.model.memory[addr] = damaged
    rig.memory.memory.write(addr, damaged.to_bytes(8, "little"))
    # Restoring it evicts the next row, whose spill fails: the bank is told.
    rig.bad.add(base + 8 * ids[1])
    await run((0, 1), (0, 2))
    assert rig.model.counts["refused_MEM_ERROR"] == 3
    assert rig.model.overlaps[0, 1] == 1


@AllocatorRig.test()
async def overlap(rig, cfg, rng):
    """A row that gets more bytes than it has: the bank is told once, and what follows of other rows
    is not disturbed."""
    flits, slices = cfg.packet_flits, cfg.slices
    units = rig.row_bytes // 16
    last = units - flits
    await rig.region(0, capacity=min(cfg.capacity, 1000))
    await rig.state(0, OPEN, 1)

    for first in range(slices + 1):  # at all slices at once, then at each
        queues = [[] for _ in range(slices)]
        for number in range(slices):
            if first in (0, number + 1):
                rowid = 2 * (slices * first + number)
                parts = [(rowid, 0, flits)] * (last > 0)
                parts += [(rowid, last, flits - 1), (rowid, last, flits)]
                parts += [(rowid + 1, unit, flits) for unit in range(0, units, flits)]
                queues[number] = [rig.part(rowid, 1, *part) for rowid, *part in parts]
        await rig.run(queues)
    assert rig.model.overlaps[0, 1] == 2 * slices
    cover("slot_allocator.overlap")


@AllocatorRig.test()
async def purge(rig, cfg, rng):
    """A purge with packets under way: `purging` lasts until they have left, then the bank's rows
    are new again."""
    await rig.regions()
    for epoch in (0, 1):
        await rig.states(OPEN, epoch)

    def parts(unit):
        return [
            [rig.part(number, epoch, unit, region=region) for region, epoch in rig.keys][
                : max(2, cfg.rat_ways)
            ]
            for number in range(cfg.slices)
        ]

    rig.pause("stop", *rig.o_write + rig.o_data)
    first = parts(0)
    rig.send_all(first)
    await rig.cycles(60)
    await rig.purge(0, 0)
    await rig.still_purging()
    # More packets come meanwhile, of a bank that is not purged.
    for number, queue in enumerate(first):
        more = [rig.part(number, 1, 2)]
        rig.send(number, more)
        queue += more
    rig.pause(None, *rig.o_write + rig.o_data)
    await rig.purged()
    await rig.check_settled(first)
    rig.model.purge(0, 0)
    hits = rig.model.counts["rat_hits"]
    await rig.run(parts(1))
    assert rig.model.counts["rat_hits"] > hits or cfg.rat_ways == 1
    assert rig.model.slots[0, 0] >= 2, "the purged row was not new again"
    cover("slot_allocator.purge")


@AllocatorRig.test(
    cases={"stopped": [["o_write"], ["o_data"], ["o_refused"], ["o_write", "o_data", "o_refused"]]}
)
async def blocked_outputs(rig, cfg, rng, stopped):
    """Some outputs are not taken for a while: queues fill up; then all comes out as it must."""
    await set_up(rig)
    traffic = rig.traffic
    await rig.states(OPEN, 1)
    sinks = [sink for kind in stopped for sink in getattr(rig, kind)]
    for turn in range(3):
        rig.pause("stop", *sinks)
        lists = []
        for number in range(cfg.slices):
            rows = [
                traffic.row(
                    rig.model.regions[region]["row_bytes"],
                    number % cfg.ranks,
                    region=region,
                    epoch=1,
                    rowid=rig.model.regions[region]["row_first"] + 10 * turn + number,
                )
                for region in range(cfg.regions)
            ]
            small = [
                [rig.plain(traffic.far + 16 * n, src=rng.randrange(cfg.ranks))] for n in range(12)
            ]
            refused = [[rig.part(n, 9, region=rng.randrange(cfg.regions))] for n in range(12)]
            lists.append(traffic.weave(rng.sample(small + refused, 24) + rows, 2))
            rig.send(number, lists[-1])
        await rig.cycles(400)
        rig.pause(None, *sinks)
        await rig.check_settled(lists)


@AllocatorRig.test()
async def opened_in_a_row(rig, cfg, rng):
    """All banks open in successive cycles, again and again, with rows in between: each starts at
    slot 0."""
    await rig.regions(row_bytes=16)
    for turn in range(8):
        for state in (OPEN, DONE, FREE):
            for region, bank in rng.sample(rig.keys, len(rig.keys)):
                epoch = 2 * turn + bank
                rig.model.state(region, bank, state, epoch)
                await rig.update(region, state, epoch)
            if state == OPEN:
                await rig.cycles(10)
                await rig.run(
                    [
                        [
                            rig.part(cfg.slices * turn + number, 2 * turn + bank, region=region)
                            for region, bank in rig.keys
                        ]
                        for number in range(cfg.slices)
                    ]
                )
                await rig.check_rows()


@AllocatorRig.test()
async def old_rows(rig, cfg, rng):
    """Rows left over from an epoch that ended in an error are never hit again, and are dropped
    rather than spilled."""
    await rig.regions()
    count = min(cfg.capacity, 2 * cfg.rat_sets * cfg.rat_ways)
    for epoch in (2, 4):
        await rig.states(OPEN, epoch)
        await rig.run(
            [
                [
                    rig.part(n, epoch, unit, region=number % cfg.regions)
                    for unit in (0, 1)
                    for n in range(count)
                ]
                for number in range(cfg.slices)
            ]
        )
        await rig.states(DONE, epoch)
    assert rig.model.counts["dropped"]
    cover("slot_allocator.old_rows")


@AllocatorRig.test(stall="random")
async def reset_in_traffic(rig, cfg, rng):
    """Reset with packets everywhere and memory stopped; afterwards everything is as new."""
    await set_up(rig)
    await rig.states(OPEN, 1)
    for number in range(cfg.slices):
        rig.send(
            number,
            [rig.traffic.plain(2) for _ in range(10)]
            + [
                flits
                for n in range(4)
                for flits in rig.traffic.row(
                    rig.model.regions[0]["row_bytes"], 0, region=0, epoch=1, rowid=10 * number + n
                )
            ],
        )
    await rig.cycles(45)
    await rig.start(1)
    await set_up(rig)
    await rig.states(OPEN, 1)
    await mixed_traffic(rig, 4, 1)
    cover("slot_allocator.reset_in_traffic")


@AllocatorRig.test()
async def latency(rig, cfg, rng):
    """First beat in to write out on an idle block, in cycles."""
    await rig.region(0)
    await rig.state(0, OPEN, 0)
    await rig.window(0, 0, 4096)

    async def measure(flits):
        before, sent = rig.o_write[0].count, rig.i_record[0].count
        await rig.run(rig.alone(0, [flits]))
        return rig.o_write[0].stamps[before] - rig.i_record[0].stamps[sent]

    new = await measure(rig.part(9, 0, 0, 4))
    hit = await measure(rig.part(9, 0, 4, 4))
    full = await measure(rig.part(10, 0, 0, cfg.packet_flits))
    plain = await measure(rig.plain(64, 4))
    assert new <= 11, f"new row: {new} cycles"
    assert hit <= 8, f"known row: {hit} cycles"
    assert plain <= 8, f"plain: {plain} cycles"
    assert full <= 11, f"new row, full packet: {full} cycles"
    rig.dut._log.info(f"latency: new {new}, hit {hit}, full packet {full}, plain {plain}")
    cover("slot_allocator.latency")


@AllocatorRig.test()
async def full_rate(rig, cfg, rng):
    """One beat per cycle on every slice, without a bubble: full packets of rows and plain ones, new
    rows, new regions."""
    row_bytes = min(cfg.max_row_bytes, 1024)
    await rig.regions(row_bytes=row_bytes, capacity=cfg.capacity)
    await rig.states(OPEN, 0)
    await rig.window(0, 0, 1 << 20)
    start = 0
    for kind in ("row", "plain"):
        size = cfg.packet_flits
        lists = []
        for number in range(cfg.slices):
            queue = []
            for n in range(24 // max(1, row_bytes // 512)):
                if kind == "plain":
                    queue += [rig.plain(cfg.packet_bytes * (n + k), size) for k in range(4)]
                    continue
                for unit in range(0, row_bytes // 16, size):
                    queue.append(
                        rig.part(
                            start + n * cfg.slices + number,
                            0,
                            unit,
                            size,
                            region=n % min(cfg.regions, 4),
                        )
                    )
            lists.append(queue)
        start += 1000
        before = [source.count for source in rig.i_record]
        await rig.run(lists)
        for n, source in enumerate(rig.i_record):
            stamps = source.stamps[before[n] :]
            lost = stamps[-1] - stamps[0] + 1 - len(stamps)
            assert lost == 0, f"slice {n}, {kind}: {lost} cycles lost in {len(stamps)} beats"
    cover("slot_allocator.full_rate")


@AllocatorRig.test(fits=lambda cfg: cfg.rat_sets > 1)
async def packet_per_cycle(rig, cfg, rng):
    """A slice takes a packet of one beat in each cycle and gives a write in each: rows, new and
    known, plain ones, and all in turn."""
    units = cfg.slice_bytes // 16
    await rig.regions(row_bytes=8 * cfg.slice_bytes)
    await rig.states(OPEN, 0)
    await rig.window(0, 0, 1 << 20)
    end = cfg.regions - 1
    await rig.region(end, row_bytes=cfg.slice_bytes)
    for number in range(cfg.slices):
        rowids = iter(range(number << 10, 1 << 20))

        def known(rowids=rowids):
            """Two rows in turn."""
            pair = [next(rowids) for _ in range(2)]
            return [rig.part(rowid, 0, units * n, units) for n in range(8) for rowid in pair]

        new = [rig.part(next(rowids), 0, 0, units, region=end) for _ in range(96)]
        plain = [rig.plain(cfg.slice_bytes * n, units) for n in range(96)]
        known = [part for _ in range(6) for part in known()]
        for kind, queue in {
            "new": new[:64],
            "known": known[:64],
            "plain": plain[:64],
            "in turn": [
                packet
                for each in zip(new[64:], known[64:], plain[64:], strict=True)
                for packet in each
            ],
        }.items():
            source, sink = rig.i_record[number], rig.o_write[number]
            before, written = source.count, sink.count
            await rig.run(rig.alone(number, queue))
            for name, stamps in (
                ("in", source.stamps[before:]),
                ("out", sink.stamps[written:]),
            ):
                cycles = stamps[-1] - stamps[0] + 1
                assert len(stamps) == len(queue), f"{kind}, {name}: {len(stamps)} packets"
                assert cycles == len(queue), f"slice {number}, {kind}: {cycles} cycles {name}"
    cover("slot_allocator.packet_per_cycle")


@AllocatorRig.test(fits=lambda cfg: cfg.slices > 2)
async def rows_per_cycle(rig, cfg, rng):
    """New rows back to back in one region from all slices: with three slices or more one slot is
    given out per cycle."""
    await rig.region(0, row_bytes=16)
    await rig.state(0, OPEN, 0)
    each = 1000 // cfg.slices
    await rig.run(
        [
            [rig.part(n * cfg.slices + number, 0) for n in range(each)]
            for number in range(cfg.slices)
        ]
    )
    cycles = rig.obs_stamps[-1] - rig.obs_stamps[0] + 1
    rig.dut._log.info(f"{len(rig.obs)} rows in {cycles} cycles")
    assert len(rig.obs) == each * cfg.slices
    assert cycles <= len(rig.obs) * 1.02 + 10
    cover("slot_allocator.rows_per_cycle")
