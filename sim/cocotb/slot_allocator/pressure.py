# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator under pressure: queues that stay full, slices that want the
same thing at once."""

import cocotb

from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.slot_allocator.records import slice_types_of
from sim.bench.runner import needs
from sim.bench.streams import bus_pulse, bus_write

from .rig import AllocatorBench
from .traffic import mixed_traffic, packet, set_up

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE


async def opened(top, epoch, **fields):
    """All regions open in ``epoch``, the one before is over."""
    for region in range(top.cfg.regions):
        if epoch > 1:
            await top.state(region, DONE, epoch - 2)
            await top.state(region, FREE, epoch - 2)
        await top.region(region, **fields)
        await top.state(region, OPEN, epoch)


@cocotb.test()
async def answers_wait(dut):
    """Writes are not taken until every answer that a slice may wait for is there; then now and then
    one."""
    top = AllocatorBench(dut, salt="answers")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    for turn in range(11):
        await opened(
            top,
            turn,
            row_bytes=16,
            log2_tile=rng.randrange(4),
            group_base=rng.randrange(1 << cfg.group_width),
            capacity=rng.randrange(1, min(cfg.capacity, 9) + 1),
            overflow_en=turn & 1,
            overflow=rng.randrange(cfg.regions),
            stride=rng.randrange(1, 4) * cfg.packet_bytes,
        )
        for sink in top.writes + top.refused:
            sink.set_pause("stop")
        packets = [
            [
                packet(
                    0,
                    traffic.words(1),
                    row_off=0,
                    region=rng.randrange(cfg.regions),
                    epoch=turn,
                    rowid=cfg.slices * n + number,
                )
                for n in range(9)
            ]
            for number in range(cfg.slices)
        ]
        for number, queue in enumerate(packets):
            top.send(number, queue)
        await top.bench.cycles(60)
        gap = (
            1 + turn
            # an answer comes some cycles after one was taken: once in the same cycle as the next is
            # taken
        )
        for sink in top.writes + top.refused:
            sink.set_pause(n % gap != 0 for n in range(1 << 20))
        await top.settle()
        top.check(packets)


@cocotb.test()
async def queues_stay_full(dut):
    """Short and full packets while outputs are taken in bursts and singly: queues of commands, ends
    and flits stay full."""
    top = AllocatorBench(dut, salt="queues")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    await set_up(top)
    await top.window(0, traffic.far, traffic.far + 4096)
    for units in (1, cfg.packet_flits, 2):
        packets = [
            [
                packet(
                    0,
                    traffic.words(units),
                    errs=rng.choice(((), (0,))),
                    addr=traffic.far
                    + (16 * cfg.packet_flits * rng.randrange(16) if rng.random() < 0.8 else -4096),
                )
                for _ in range(90 // (units + 2))
            ]
            for _ in range(cfg.slices)
        ]
        for sink in top.writes + top.beats + top.refused:
            sink.set_pause("stop")
        for number, queue in enumerate(packets):
            top.send(number, queue)
        await top.bench.cycles(60)
        for sinks in (top.writes, top.beats, top.refused):
            gap = rng.choice((3, 5, 9)) if units == 1 or sinks == top.beats else 1
            for sink in sinks:
                sink.set_pause(n % gap != 0 for n in range(1 << 20))
        await top.bench.cycles(150)
        for sink in top.writes + top.beats + top.refused:
            sink.set_pause("random", rng)
        await top.settle()
        top.check(packets)


def held(top, packets):
    """Sends ``packets`` (one per slice) but for their last flit; the rest goes with
    :func:`let_go`."""
    for number, flits in enumerate(packets):
        for n, (data, err) in enumerate(flits[:-1]):
            top.sources[number].put({"data": data, "err": err, "first": n == 0, "last": 0})


def let_go(top, packets):
    """The last flits, in the same cycle."""
    for number, flits in enumerate(packets):
        top.sources[number].put({"data": flits[-1][0], "err": flits[-1][1], "first": 0, "last": 1})


@cocotb.test()
async def all_at_once(dut):
    """The same thing happens in all slices in one cycle: refusals of each reason, hits, drops,
    spills, reports."""
    top = AllocatorBench(dut, salt="once")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await top.region(
        0, row_bytes=row_bytes, row_first=100, row_span=1000, capacity=min(cfg.capacity, 8)
    )
    await top.state(0, OPEN, 6)
    await top.window(0, 0, 4096)
    body = {"region": 0, "epoch": 6}

    def parts(first, unit=0, src=0, **more):
        return [
            packet(src, traffic.words(1), row_off=unit, **{**body, "rowid": first + n, **more})
            for n in range(cfg.slices)
        ]

    await top.run([[each] for each in parts(200)])
    base = top.model.regions[0]["spill_base"][0]
    cases = [
        ("hit", parts(200, 1)),
        ("hit", parts(200, 2)),
        (Reason.UNKNOWN, parts(200, region=cfg.regions)),
        (Reason.FOREIGN, parts(200, 3, src=1)),
        (Reason.EPOCH_EARLY, parts(200, epoch=8)),
        (Reason.EPOCH_STALE, parts(200, epoch=4)),
        (Reason.ROW_OVERRUN, parts(200, row_bytes // 16)),
        (Reason.ROW_RANGE, parts(2000)),
        (Reason.WINDOW, [packet(0, traffic.words(1), addr=8192) for _ in range(cfg.slices)]),
    ]
    # Rows that are spilled, and then cannot be read; and more rows than the region has slots.
    many = (
        [
            [
                packet(0, traffic.words(1), row_off=0, rowid=300 + cfg.slices * n + number, **body)
                for n in range(cfg.rat_sets * cfg.rat_ways)
            ]
            for number in range(cfg.slices)
        ]
        if cfg.rat_sets == 1
        else []
    )
    for what, packets in cases + (
        [("many", many), (Reason.MEM_ERROR, parts(200, 4)), (Reason.REGION_FULL, parts(400))]
        if many
        else []
    ):
        if what == "many":
            await top.run(packets)
            top.bad.update(base + 8 * (200 + n - 100) for n in range(cfg.slices))
            continue
        if what == Reason.REGION_FULL:
            for n in range(cfg.capacity):
                await top.run(
                    [
                        [
                            packet(
                                0,
                                traffic.words(
                                    row_bytes // 16 if row_bytes <= cfg.packet_bytes else 1
                                ),
                                row_off=0,
                                rowid=500 + n,
                                **body,
                            )
                        ]
                    ]
                    + [[]] * (cfg.slices - 1)
                )
        peak = top.peak.copy()
        held(top, packets)
        await top.bench.cycles(100)
        let_go(top, packets)
        await top.settle()
        top.check([[each] for each in packets])
        if isinstance(what, Reason):
            assert top.peak[f"refused_{what.name}"] == cfg.slices, (
                f"{what.name}: not at once, {peak}"
            )


@cocotb.test()
async def opened_while_answering(dut):
    """Banks open in successive cycles while rows overflow: no opening is lost, nobody else's slots
    change."""
    top = AllocatorBench(dut, salt="opening")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    last = cfg.regions - 1
    for region in range(cfg.regions):
        await top.region(
            region,
            row_bytes=16,
            capacity=min(cfg.capacity, 7 if region == last else 1),
            overflow_en=int(region != last),
            overflow=last,
        )
    for delay in range(4, 14):
        for region in range(cfg.regions):
            await top.state(region, OPEN, 2 * delay % 16)
        epoch = 2 * delay % 16
        await top.run(
            [[packet(0, traffic.words(1), row_off=0, region=0, epoch=epoch, rowid=0)]]
            + [[]] * (cfg.slices - 1)
        )
        packets = [
            [
                packet(
                    0,
                    traffic.words(1),
                    row_off=0,
                    region=0,
                    epoch=epoch,
                    rowid=1 + cfg.slices * n + number,
                )
                for n in range(2)
            ]
            for number in range(cfg.slices)
        ]
        for number, queue in enumerate(packets):
            top.send(number, queue)
        await top.bench.cycles(delay)
        for n in range(5):
            update = {
                "en": 1,
                "region": n % cfg.regions,
                "bank": 1,
                "state": OPEN,
                "epoch": (epoch + 1) % 16,
            }
            top.model.state(update["region"], 1, OPEN, update["epoch"])
            bus_write(dut, "region_update", update, top.types.region_update)
            await top.bench.cycles(1)
        dut.region_update.value = 0
        await top.settle()
        top.check(packets)
        packets = [
            [
                packet(
                    0,
                    traffic.words(1),
                    row_off=0,
                    region=region,
                    epoch=(epoch + 1) % 16,
                    rowid=number,
                )
                for region in range(cfg.regions)
            ]
            for number in range(cfg.slices)
        ]
        await top.run(packets)
        await top.check_rows()
        for region in range(cfg.regions):
            await top.state(region, DONE, epoch)
            await top.state(region, FREE, epoch)


@cocotb.test()
async def ended_while_answering(dut):
    """The bank of a row that is being placed ends in any cycle: the row is placed as if it had not,
    here or in the overflow."""
    top = AllocatorBench(dut, salt="ended")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    last = cfg.regions - 1
    for region in range(cfg.regions):
        await top.region(
            region,
            row_bytes=16,
            capacity=1 if region != last else min(cfg.capacity, 8),
            overflow_en=int(region != last),
            overflow=last,
        )
    for delay in range(2, 9):
        for epoch in (2 * delay - 1, 2 * delay - 2):
            for region in range(cfg.regions):
                await top.state(region, OPEN, epoch)
            packets = [
                [packet(0, traffic.words(1), row_off=0, region=0, epoch=epoch, rowid=n)]
                for n in range(2)
            ]
            await top.run([packets[0]] + [[]] * (cfg.slices - 1))
            top.send(0, packets[1])
            await top.bench.cycles(delay)
            update = {"en": 1, "region": 0, "bank": epoch & 1, "state": DONE, "epoch": epoch}
            await bus_pulse(top.bench, "region_update", update, top.types.region_update)
            await top.settle()
            top.check([packets[1]] + [[]] * (cfg.slices - 1))
            for region in range(cfg.regions):
                await top.state(region, DONE, epoch)
                await top.state(region, FREE, epoch)


@cocotb.test()
async def purge_each(dut):
    """Each bank purged with rows of all banks in the RAT, on an idle block: two cycles per set,
    only its rows are new again."""
    top = AllocatorBench(dut, salt="each")
    cfg, traffic = top.cfg, top.traffic
    keys = [(region, bank) for region in range(cfg.regions) for bank in (0, 1)][:4]
    for key in keys:
        for other in keys:
            await top.start()
            for region in range(cfg.regions):
                await top.region(region, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
                for epoch in (6, 7):
                    await top.state(region, OPEN, epoch)

            def parts(unit, key=key, other=other):
                return [
                    [
                        packet(
                            0,
                            traffic.words(1),
                            row_off=unit,
                            region=region,
                            epoch=6 + bank,
                            rowid=2 * number + n,
                        )
                        for n, (region, bank) in enumerate((key, other))
                    ]
                    for number in range(cfg.slices)
                ]

            await top.run(parts(0))
            await bus_pulse(
                top.bench,
                "purge",
                {"en": 1, "region": key[0], "bank": key[1]},
                slice_types_of(cfg).purge,
            )
            start = top.bench.cycle
            await top.bench.until(lambda: not int(dut.purging.value), what="purge")
            assert top.bench.cycle - start <= 2 * cfg.rat_sets + 5
            top.model.purge(*key)
            await top.run(parts(1))


@cocotb.test()
async def purge_in_turns(dut):
    """Purges one after the other in mixed traffic of a bank that is not purged: it never
    notices."""
    top = AllocatorBench(dut, "random", "random", salt="in_turns")
    await top.start()
    await set_up(top)
    going = True
    for region in range(top.cfg.regions):
        await top.state(region, OPEN, 2)

    async def purges():
        while going:
            await bus_pulse(
                top.bench,
                "purge",
                {"en": 1, "region": top.rng.randrange(top.cfg.regions), "bank": 1},
                slice_types_of(top.cfg).purge,
            )
            await top.bench.until(lambda: not int(dut.purging.value), what="purge")
            await top.bench.cycles(top.rng.randrange(30))

    purger = cocotb.start_soon(purges())
    await mixed_traffic(top, 8, 2)
    going = False
    await purger


@cocotb.test()
async def purge_waits(dut):
    """A purge with one output stopped, each in turn: it lasts until what was looked up before has
    left there."""
    top = AllocatorBench(dut, salt="purge_waits")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    await top.region(0, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
    await top.state(0, OPEN, 6)
    for turn, sinks in enumerate((top.writes, top.beats, top.refused) * cfg.slices):
        number = turn // 3
        good, bad = (
            packet(0, traffic.words(1), row_off=0, region=0, epoch=epoch, rowid=turn)
            for epoch in (6, 4)
        )
        packets = [
            [bad if sinks is top.refused else good] if n == number else []
            for n in range(cfg.slices)
        ]
        sinks[number].set_pause("stop")
        top.send(number, packets[number])
        await top.bench.cycles(30)
        await bus_pulse(
            top.bench, "purge", {"en": 1, "region": 0, "bank": 1}, slice_types_of(cfg).purge
        )
        for _ in range(40 + 2 * cfg.rat_sets):
            await top.bench.sampled()
            assert int(dut.purging.value), "purging ended with a packet inside"
            await top.bench.cycles(1)
        sinks[number].set_pause(None)
        start = top.bench.cycle
        await top.bench.until(lambda: not int(dut.purging.value), what="purge")
        assert top.bench.cycle - start <= 6
        await top.settle()
        top.check(packets)


@cocotb.test()
@needs(lambda cfg: cfg.regions > 1)
async def overflow_region_opens(dut):
    """The overflow region opens in any cycle around a row that needs it: refused, or in its slot 0,
    never in an old slot."""
    top = AllocatorBench(dut, salt="region_opens")
    await top.start()
    cfg, traffic, end = top.cfg, top.traffic, top.cfg.regions - 1
    for region in range(cfg.regions):
        await top.region(
            region,
            row_bytes=16,
            capacity=min(cfg.capacity, 1 if region != end else 7),
            overflow_en=int(region != end),
            overflow=end,
        )

    async def row(region, epoch, rowid):
        await top.run(
            [[packet(0, traffic.words(1), row_off=0, region=region, epoch=epoch, rowid=rowid)]]
            + [[]] * (cfg.slices - 1)
        )

    for delay in range(2, 11):
        before, now = (2 * delay - 2) % 16, 2 * delay % 16
        await top.state(end, OPEN, before)
        for n in range(3):
            await row(end, before, n)
        await top.state(end, DONE, before)
        await top.state(0, OPEN, now)
        await row(0, now, 0)
        packets = [[packet(0, traffic.words(1), row_off=0, region=0, epoch=now, rowid=1)]] + [
            []
        ] * (cfg.slices - 1)
        seen = len(top.obs)
        top.send(0, packets[0])
        await top.bench.cycles(delay)
        update = {"en": 1, "region": end, "bank": 0, "state": OPEN, "epoch": now}
        await bus_pulse(top.bench, "region_update", update, top.types.region_update)
        await top.settle()
        if len(top.obs) > seen:  # it was open in time
            top.model.state(end, 0, OPEN, now)
            top.check(packets)
        else:
            top.check(packets)
            top.model.state(end, 0, OPEN, now)
        await row(0, now, 2)
        await row(end, now, 3)
        await top.check_rows()
        for region in (0, end):
            await top.state(region, DONE, now)
