# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator under pressure: queues that stay full, slices that want the
same thing at once."""

from itertools import product

import cocotb

from hub_rtl.contract.packets import Reason, RegionState
from sim.quality.coverage import cover

from .rig import AllocatorRig, in_memory
from .traffic import mixed_traffic, packet, set_up

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE


def once_in(gap):
    """A pause that lets one item of ``gap`` cycles go."""
    return [n % gap != 0 for n in range(1 << 18)]


async def opened(rig, epoch, **fields):
    """All regions open in ``epoch``, the one before is over."""
    for region in range(rig.cfg.regions):
        if epoch > 1:
            await rig.over(region, epoch - 2)
        await rig.region(region, **fields)
        await rig.state(region, OPEN, epoch)


@AllocatorRig.test()
async def answers_wait(rig, cfg, rng):
    """Writes are not taken until every answer that a slice may wait for is there; then now and then
    one."""
    for turn in range(11):
        await opened(
            rig,
            turn,
            row_bytes=16,
            log2_tile=rng.randrange(4),
            group_base=rng.randrange(1 << cfg.group_width),
            capacity=rng.randrange(1, min(cfg.capacity, 9) + 1),
            overflow_en=turn & 1,
            overflow=rng.randrange(cfg.regions),
            stride=rng.randrange(1, 4) * cfg.packet_bytes,
        )
        rig.pause("stop", *rig.o_write + rig.o_refused)
        packets = [
            [
                rig.part(cfg.slices * n + number, turn, region=rng.randrange(cfg.regions))
                for n in range(9)
            ]
            for number in range(cfg.slices)
        ]
        rig.send_all(packets)
        await rig.cycles(60)
        # An answer comes some cycles after one was taken: once in the same cycle as the next is
        # taken.
        rig.pause(once_in(1 + turn), *rig.o_write + rig.o_refused)
        await rig.check_settled(packets)


@AllocatorRig.test()
async def queues_stay_full(rig, cfg, rng):
    """Short and full packets while outputs are taken in bursts and singly: queues of commands, ends
    and flits stay full."""
    await set_up(rig)
    far, outputs = rig.traffic.far, rig.o_write + rig.o_data + rig.o_refused
    await rig.window(0, far, far + 4096)
    for units in (1, cfg.packet_flits, 2):
        packets = [
            [
                packet(
                    0,
                    rig.traffic.words(units),
                    came=rng.choice((None, 0)),
                    addr=far
                    + (cfg.packet_bytes * rng.randrange(16) if rng.random() < 0.8 else -4096),
                )
                for _ in range(90 // (units + 2))
            ]
            for _ in range(cfg.slices)
        ]
        rig.pause("stop", *outputs)
        rig.send_all(packets)
        await rig.cycles(60)
        for sinks in (rig.o_write, rig.o_data, rig.o_refused):
            gap = rng.choice((3, 5, 9)) if units == 1 or sinks == rig.o_data else 1
            rig.pause(once_in(gap), *sinks)
        await rig.cycles(150)
        rig.pause("random", *outputs)
        await rig.check_settled(packets)


@AllocatorRig.test(fits=in_memory)
async def all_at_once(rig, cfg, rng):
    """The same thing happens in all slices in one cycle: refusals of each reason, hits, drops,
    spills, reports."""
    units = rig.row_bytes // 16
    await rig.region(0, row_first=100, row_span=1000, capacity=min(cfg.capacity, 8))
    await rig.state(0, OPEN, 6)
    await rig.window(0, 0, 4096)

    def parts(first, unit=0, epoch=6, **more):
        return [rig.part(first + n, epoch, unit, **more) for n in range(cfg.slices)]

    await rig.run([[each] for each in parts(200)])
    base = rig.model.regions[0]["spill_base"][0]
    cases = [
        ("hit", parts(200, 1)),
        ("hit", parts(200, 2)),
        (Reason.UNKNOWN, parts(200, region=cfg.regions)),
        (Reason.FOREIGN, parts(200, 3, src=1)),
        (Reason.EPOCH_EARLY, parts(200, epoch=8)),
        (Reason.EPOCH_STALE, parts(200, epoch=4)),
        (Reason.ROW_OVERRUN, parts(200, units)),
        (Reason.ROW_RANGE, parts(2000)),
        (Reason.WINDOW, [rig.plain(8192) for _ in range(cfg.slices)]),
    ]
    if cfg.rat_sets == 1:
        cases += [(Reason.MEM_ERROR, parts(200, 4)), (Reason.REGION_FULL, parts(400))]
    for what, packets in cases:
        if what == Reason.MEM_ERROR:  # rows that are spilled, and then cannot be read
            rowids = range(300, 300 + cfg.slices * cfg.rat_sets * cfg.rat_ways)
            await rig.run(
                [
                    [rig.part(rowid, 6) for rowid in rowids[number :: cfg.slices]]
                    for number in range(cfg.slices)
                ]
            )
            rig.bad.update(base + 8 * (200 + n - 100) for n in range(cfg.slices))
        if what == Reason.REGION_FULL:  # more rows than the region has slots
            for n in range(cfg.capacity):
                count = units if units <= cfg.packet_flits else 1
                await rig.run(rig.alone(0, [rig.part(500 + n, 6, 0, count)]))
        peak = rig.peak.copy()
        await rig.run([[each] for each in packets])
        # Words and slots are given out one after the other.
        if what not in ("hit", Reason.MEM_ERROR, Reason.REGION_FULL):
            assert rig.peak[f"refused_{what.name}"] == cfg.slices, (
                f"{what.name}: not at once, {peak}"
            )


@AllocatorRig.test()
async def opened_while_answering(rig, cfg, rng):
    """Banks open in successive cycles while rows overflow: no opening is lost, nobody else's slots
    change."""
    await rig.overflow_into(cfg.regions - 1, 7, 1)
    for delay in range(4, 14):
        epoch = 2 * delay % 16
        later = epoch + 1
        await rig.states(OPEN, epoch)
        await rig.run(rig.alone(0, [rig.part(0, epoch)]))
        packets = [
            [rig.part(1 + cfg.slices * n + number, epoch) for n in range(2)]
            for number in range(cfg.slices)
        ]
        rig.send_all(packets)
        await rig.cycles(delay)
        for n in range(5):
            await rig.state(n % cfg.regions, OPEN, later)
        await rig.check_settled(packets)
        await rig.run(
            [
                [rig.part(number, later, region=region) for region in range(cfg.regions)]
                for number in range(cfg.slices)
            ]
        )
        await rig.check_rows()
        for region in range(cfg.regions):
            await rig.over(region, epoch)


@AllocatorRig.test()
async def ended_while_answering(rig, cfg, rng):
    """The bank of a row that is being placed ends in any cycle: the row is placed as if it had not,
    here or in the overflow."""
    await rig.overflow_into(cfg.regions - 1, 8, 1)
    for delay in range(3, 10):
        for epoch in (2 * delay - 3, 2 * delay - 4):
            await rig.states(OPEN, epoch)
            packets = [[rig.part(n, epoch)] for n in range(2)]
            await rig.run(rig.alone(0, packets[0]))
            rig.send(0, packets[1])
            await rig.cycles(delay)
            await rig.update(0, DONE, epoch)
            await rig.check_settled(rig.alone(0, packets[1]))
            for region in range(cfg.regions):
                await rig.over(region, epoch)


@AllocatorRig.test()
async def purge_each(rig, cfg, rng):
    """Each bank, and each run of banks, purged with rows of all banks in the RAT, on an idle block:
    two cycles per set, one per set of a victim store, only their rows are new again."""
    for keys, turned in product(product(rig.keys[:4], repeat=2), (0, 1)):
        (first, purged), last = keys[turned], max(keys[0][0], keys[1][0])
        await rig.start()
        await rig.regions()
        for epoch in (6, 7):
            await rig.states(OPEN, epoch)
        for unit in (0, 1):
            await rig.run(
                [
                    [
                        rig.part(2 * number + n, 6 + bank, unit, region=region)
                        for n, (region, bank) in enumerate(keys)
                    ]
                    for number in range(cfg.slices)
                ]
            )
            if not unit:
                await rig.purge(first, purged, last)
                start = rig.cycle
                await rig.purged()
                assert rig.cycle - start <= 2 * cfg.rat_sets + 5 + rig.store_purge
                for region in range(first, last + 1):
                    rig.model.purge(region, purged)
                cover("slot_allocator.purge_run", last > first)


@AllocatorRig.test(idle="random", stall="random")
async def purge_in_turns(rig, cfg, rng):
    """Purges one after the other in mixed traffic of a bank that is not purged: it never
    notices."""
    await set_up(rig)
    going = True
    await rig.states(OPEN, 2)

    async def purges():
        while going:
            first = rng.randrange(cfg.regions)
            await rig.purge(first, 1, rng.randrange(first, cfg.regions))
            await rig.purged()
            await rig.cycles(rng.randrange(30))

    purger = cocotb.start_soon(purges())
    await mixed_traffic(rig, 8, 2)
    going = False
    await purger


@AllocatorRig.test()
async def purge_waits(rig, cfg, rng):
    """A purge with one output stopped, each in turn: it lasts until what was looked up before has
    left there."""
    await rig.region(0)
    await rig.state(0, OPEN, 6)
    for turn, sinks in enumerate((rig.o_write, rig.o_data, rig.o_refused) * cfg.slices):
        number = turn // 3
        good, bad = (rig.part(turn, epoch) for epoch in (6, 4))
        packets = rig.alone(number, [bad if sinks is rig.o_refused else good])
        sinks[number].set_pause("stop")
        rig.send(number, packets[number])
        await rig.cycles(30)
        await rig.purge(0, 1)
        await rig.still_purging()
        sinks[number].set_pause(None)
        start = rig.cycle
        await rig.purged()
        assert rig.cycle - start <= 6 + rig.store_purge
        await rig.check_settled(packets)


@AllocatorRig.test(fits=lambda cfg: cfg.regions > 1)
async def overflow_region_opens(rig, cfg, rng):
    """The overflow region opens in any cycle around a row that needs it: refused, or in its slot 0,
    never in an old slot."""
    end = cfg.regions - 1
    await rig.overflow_into(end, 7, 1)

    async def row(region, epoch, rowid):
        await rig.run(rig.alone(0, [rig.part(rowid, epoch, region=region)]))

    for delay in range(2, 11):
        before, now = (2 * delay - 2) % 16, 2 * delay % 16
        await rig.state(end, OPEN, before)
        for n in range(3):
            await row(end, before, n)
        await rig.state(end, DONE, before)
        await rig.state(0, OPEN, now)
        await row(0, now, 0)
        packets = rig.alone(0, [rig.part(1, now)])
        seen = len(rig.obs)
        rig.send_all(packets)
        await rig.cycles(delay)
        await rig.update(end, OPEN, now)
        await rig.settle()
        in_time = len(rig.obs) > seen
        if in_time:
            rig.model.state(end, 0, OPEN, now)
        rig.check(packets)
        if not in_time:
            rig.model.state(end, 0, OPEN, now)
        await row(0, now, 2)
        await row(end, now, 3)
        await rig.check_rows()
        for region in (0, end):
            await rig.state(region, DONE, now)


@AllocatorRig.test()
async def reset_when_full(rig, cfg, rng):
    """Reset with every queue behind a stopped output full: afterwards packets pass, and a row of
    no region, number 0, is reported as the first refusal."""
    for stopped in (rig.o_write, rig.o_data, rig.o_refused):
        await set_up(rig)
        await rig.states(OPEN, 2)
        rig.pause("stop", *stopped)
        for number in range(cfg.slices):
            refused = [rig.part(0, 9) for _ in range(2)]
            plain = [rig.traffic.plain(2) for _ in range(40)]
            rig.send(number, refused + plain)
        await rig.cycles(150)
        rig.pause(None, *stopped)
        await rig.start(1)
        await rig.run([[rig.part(0, 0)] for _ in range(cfg.slices)])
        assert all(sink.items[-1]["report"] for sink in rig.o_refused)
        await set_up(rig)
        await rig.states(OPEN, 1)
        await mixed_traffic(rig, 3, 1)
    cover("slot_allocator.reset_when_full")


@AllocatorRig.test(fits=lambda cfg: cfg.rat_sets == 1)
async def spilled_row_waits(rig, cfg, rng):
    """A packet of a spilled row stands anywhere in a pipe that is held up, packets of others before
    and behind it: its row is found."""
    await rig.region(0)
    await rig.window(0, 0, 1 << 40)
    rows, units = cfg.rat_ways + 1, rig.row_bytes // 16
    for number in range(cfg.slices):
        await rig.state(0, OPEN, number)
        mine = [cfg.slices * n + number for n in range(rows)]
        await rig.run(rig.alone(number, [rig.part(rowid, number) for rowid in mine]))
        for turn in range(min(12, rows * (units - 1))):
            rig.pause("stop", rig.o_write[number])
            # The oldest row has always just made place for the one before.
            spilled = rig.part(mine[turn % rows], number, 1 + turn // rows)
            queue = [rig.plain(rng.getrandbits(30)) for _ in range(18)]
            queue.insert(6 + turn, spilled)
            rig.send(number, queue)
            await rig.cycles(60)
            rig.pause(None, rig.o_write[number])
            await rig.check_settled(rig.alone(number, queue))
        await rig.state(0, DONE, number)
    cover("slot_allocator.spilled_row_waits")


@AllocatorRig.test()
async def many_moved(rig, cfg, rng):
    """As many rows in an overflow region as it holds: both counts have all their bits."""
    if cfg.regions > 1:
        most = min(cfg.capacity, 70)
        await rig.overflow_into(cfg.regions - 1, most, 1)
        await rig.states(OPEN, 3)
        rows = [rig.part(n, 3) for n in range(most + 3)]
        await rig.run([rows[number :: cfg.slices] for number in range(cfg.slices)])
        await rig.check_rows()
    cover("slot_allocator.many_moved")


@AllocatorRig.test(fits=lambda cfg: cfg.regions > 1)
async def overflow_region_differs(rig, cfg, rng):
    """An overflow region whose rows are as long, or differ in one bit of their length: used, or
    not; nor once its bank has ended. Then, after a reset, one that nobody has told its geometry:
    not used."""
    end, epoch = cfg.regions - 1, 0
    for bit in range(cfg.max_row_bytes.bit_length()):
        length = rng.randrange(16, cfg.max_row_bytes // 2) | 1 << bit if bit < 8 else 1 << bit
        for other in (max(length ^ 1 << bit, 1), length):
            epoch = (epoch + 1) % 16
            for region in range(cfg.regions):
                await rig.over(region, epoch)
                await rig.region(
                    region,
                    row_bytes=other if region == end else length,
                    capacity=cfg.capacity if region == end else 0,
                    overflow_en=int(region != end),
                    overflow=end,
                )
            await rig.states(OPEN, epoch)
            await rig.run([[rig.part(number, epoch)] for number in range(cfg.slices)])
            assert rig.model.moved[0, epoch & 1] == (cfg.slices if other == length else 0)
        for state in (DONE, FREE):
            await rig.state(end, state, epoch)
            row = cfg.slices * state
            await rig.run([[rig.part(row + number, epoch)] for number in range(cfg.slices)])
        assert rig.model.moved[0, epoch & 1] == cfg.slices, "moved to a bank that has ended"
    await rig.start()
    await rig.region(0, row_bytes=length, capacity=0, overflow_en=1, overflow=end)
    await rig.states(OPEN, 1)
    await rig.run([[rig.part(number, 1)] for number in range(cfg.slices)])
    assert rig.model.counts["refused_REGION_FULL"] == cfg.slices
    cover("slot_allocator.overflow_region_differs")
