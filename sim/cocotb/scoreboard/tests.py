# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard against the golden model: epochs, rates, overflow,
dependency ranges."""

from itertools import product

import cocotb

from hub_rtl.contract.packets import EventKind, Reason, RegionState
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import ScoreboardRig
from .traffic import (
    FAULTS,
    all_banks,
    begin_full,
    feed,
    one_region,
    plan_epoch,
    row_acks,
    setup_regions,
)


@ScoreboardRig.test(grid=GRID)
async def random_epochs(rig, cfg, rng, grid):
    """Good epochs on all banks at once: exact events, rows and counters on all idle and
    back-pressure patterns."""
    await setup_regions(rig)
    await all_banks(rig, rig.params["epochs"])
    assert not rig.counts["error"] and rig.counts["all"]
    cover(f"scoreboard.grid.{'.'.join(grid)}")
    cover("scoreboard.merged", rig.counts["merges"] > 0)


@ScoreboardRig.test(idle="random", stall="random")
async def random_errors(rig, cfg, rng):
    """Epochs with faults between good ones: one ERROR with a true cause, never ALL; the others are
    not disturbed."""
    rig.set("timeout", 16)  # the stall clock looks at all banks as fast as it can
    await setup_regions(rig)
    await all_banks(rig, rig.params["epochs"], faults=FAULTS, early=True)
    assert rig.counts["error"] and rig.counts["all"]


@ScoreboardRig.test(stall="cyclic")
async def early_news(rig, cfg, rng):
    """Closes and refusals before OPEN, over all sixteen epoch numbers and beyond: the same
    events."""
    await setup_regions(rig, row_bytes=min(32, cfg.max_row_bytes))
    await all_banks(rig, 10, early=True)
    assert rig.counts["early_kept"] and not rig.counts["error"]


@ScoreboardRig.test()
async def latency_of_ready(rig, cfg, rng):
    """On an idle hub: READY seven cycles after the last acknowledgement, ALL within the stated time
    after the last close."""
    await one_region(rig)
    await rig.open(0, 0)
    await rig.drained()
    tile = 1 << rig.geometry[0]["log2_tile"]
    for slot in range(tile):
        for ack in row_acks(rig, rig.geometry[0], 0, 0, slot):
            rig.put_ack(**ack, slice_=cfg.slices - 1)
    await rig.until(lambda: rig.o_event.count, 100, "READY")
    taken, valid = rig.i_ack[-1].stamps[-1], rig.o_event.stamps[0]
    assert valid - taken <= 7, f"READY after {valid - taken} cycles"
    rig.model.rows[0, 0] = tile
    await rig.drained()
    rig.put_close(0, 0, sent=tile * rig.geometry[0]["row_bytes"])
    await rig.final(0, 0)
    waited = rig.o_event.stamps[-1] - rig.i_news.stamps[-1]
    limit = 30 + min(30, cfg.slot_width + cfg.row_bytes_width - 3)
    assert waited <= limit, f"ALL after {waited} cycles, at most {limit}"
    rig.dut._log.info(f"READY after {valid - taken} cycles, ALL after {waited} (limit {limit})")
    cover("scoreboard.latency")


@ScoreboardRig.test()
async def latency_of_books(rig, cfg, rng):
    """News taken is in the book five cycles later: a query then shows it after two more."""
    await one_region(rig, expected=cfg.ranks, log2_tile=min(3, cfg.capacity.bit_length() - 1))
    for epoch in range(8):
        await rig.open(0, epoch)
        bank = epoch & 1
        for _ in range(3):
            await rig.drained()
            source = rng.choice((rig.i_ack[0], rig.i_refused, rig.i_news))
            if source is rig.i_ack[0]:
                rig.put_ack(bank=bank, bytes=rng.randint(1, 8), slice_=0)
            elif source is rig.i_refused:
                rig.refuse(0, epoch, rng.randint(1, 127))
            else:
                free = set(range(cfg.ranks)) - rig.model.banks[0, bank].epoch.closed
                rig.put_close(
                    0, epoch, min(free, default=0), 16 * (rng.getrandbits(30) // cfg.ranks)
                )
            await source.drained()
            await rig.cycles(4)
            await rig.check_status(0, bank)
        await rig.abort(0, epoch)


@ScoreboardRig.test()
async def throughput(rig, cfg, rng):
    """All slices at once, one acknowledgement per cycle each: merging keeps up; without it the
    shared pipeline limits."""
    await rig.set_geometry(0, row_bytes=cfg.max_row_bytes, log2_tile=0, capacity=1, expected=1)
    await rig.open(0, 0)
    await rig.drained()
    rig.model.rows[0, 0] = 1
    count = cfg.max_row_bytes // 4
    start = rig.cycle
    for n in range(count):
        rig.put_ack(bytes=4, slice_=n % cfg.slices)
    rig.put_close(0, 0, sent=cfg.max_row_bytes)
    await rig.drained()
    await rig.final(0, 0)
    took = rig.i_ack[0].stamps[-1] - start
    each = -(-count // cfg.slices)
    # With depth 1 an accumulator takes every other cycle, and looks at the book, now that all have
    # closed, take their share.
    limit = each + 4 if cfg.combine_depth > 1 else max(2 * each, count) * 5 // 4
    assert took <= limit, f"{each} acknowledgements per slice took {took} cycles, at most {limit}"
    cover("scoreboard.throughput")
    # What waits merges, whatever its tile.
    for _ in range(12):
        keys = [
            {
                "plain": rng.randrange(2),
                "region": rng.randrange(cfg.regions),
                "bank": rng.randrange(2),
                "bytes": 1,
                "group": rng.randrange(cfg.groups),
                "dep": rng.randrange(cfg.dep_ranges),
            }
            for _ in range(cfg.slices)
        ]
        start = rig.cycle
        for n in range(40 * cfg.slices):
            rig.put_ack(**keys[n % cfg.slices], slice_=n % cfg.slices)
        await rig.drained()
        took = max(source.stamps[-1] for source in rig.i_ack) - start
        assert cfg.combine_depth == 1 or took <= 44, (
            f"40 acknowledgements per slice of {keys} took {took} cycles"
        )


@ScoreboardRig.test()
async def bad_news_survives_merging(rig, cfg, rng):
    """A memory error or poison inside a burst of some tiles, from all slices at once, is never
    lost, whatever it is merged with. Where there is an overflow region the tiles lie there: each
    sum leaves twice, and what comes waits."""
    rows, burst, place = min(4, cfg.capacity, cfg.groups), 8 * cfg.slices, cfg.regions - 1
    for region in {0, place}:
        await rig.set_geometry(
            region, row_bytes=cfg.max_row_bytes, log2_tile=0, capacity=rows, expected=1
        )
    for turn, (poison, at) in enumerate(product((False, True), range(burst))):
        epoch = 2 * turn % 16
        for region in {0, place}:
            await rig.open(region, epoch, rows)
        for n in range(burst):
            bad = n == at
            rig.put_ack(
                place=place,
                group=rng.randrange(rows),
                bytes=1,
                poison=int(bad and poison),
                ok=int(not bad or poison),
                slice_=n % cfg.slices,
            )
        rig.put_close(0, epoch, sent=16 * burst)
        for region in {0, place}:
            await rig.ends_in(Reason.INCOMPLETE if poison else Reason.MEM_ERROR, region, epoch)
    cover("scoreboard.merged.bad", rig.counts["merges"] > 0)


@ScoreboardRig.test(idle="cyclic", stall="stop")
async def stalled_events(rig, cfg, rng):
    """The event stream is never taken: everything still goes on; then each event comes out once."""
    await setup_regions(rig, flag_en=0)
    for region, bank in rig.keys:
        await begin_full(rig, region, bank)
    await rig.drained()
    await rig.cycles(600)
    assert rig.o_event.count == 0 and rig.o_event.port.is_valid(), (
        "an event must not wait for its ready"
    )
    for key in rig.model.banks:
        await rig.check_status(*key)
        assert rig.state[key] == RegionState.DONE
    cover("scoreboard.stalled")
    rig.o_event.set_pause(None)


@ScoreboardRig.test(idle="random", stall="cyclic")
async def overflowed_rows(rig, cfg, rng):
    """Primaries whose rows overflow tell their overflow region, which completes with exactly those
    rows, or with an ERROR."""
    over, row_bytes = cfg.regions - 1, min(48, cfg.max_row_bytes)
    primaries = list(range(min(over, 3)))
    share = cfg.groups // cfg.regions
    log2_tile = 1 if share << 1 <= cfg.capacity else 0
    for region in range(cfg.regions):
        await rig.set_geometry(
            region,
            row_bytes=row_bytes,
            log2_tile=log2_tile,
            group_base=region * share,
            capacity=min(cfg.capacity, share << log2_tile) if region == over else 1,
            flag_en=1,
            flag_base=region << 12,
            expected=len(primaries) + 1 if region == over else 1,
            overflow_en=int(region != over),
            overflow=over,
        )
    for turn in range(10):
        epoch = turn % 16
        bank = epoch & 1
        failing = bool(primaries) and turn % 5 == 3
        room = share << log2_tile
        await rig.open(over, epoch)
        used = 0
        tasks = []
        for region in primaries:
            rows = rng.randint(0, room - used) + 1
            plan = plan_epoch(rig, region, epoch, rows=1)
            tell = next(each for each in plan.news if each["tell"])
            for slot in range(used, used + rows - 1):
                plan.acks += row_acks(rig, rig.geometry[over], region, bank, slot, over)
                tell["bytes16"] += row_bytes // 16
            used += rows - 1
            rig.model.rows[over, bank] = used
            rig.model.rows[region, bank] = rows
            rng.shuffle(plan.acks)
            if failing and region == primaries[0]:
                plan.acks[-1]["ok"] = 0
            await rig.open(region, epoch)
            tasks.append(cocotb.start_soon(feed(rig, plan)))
            cover("scoreboard.overflow.rows", rows > 1)
        for task in tasks:
            await task
        spoilt = False
        for region in primaries:
            spoilt |= (await rig.final(region, bank))["kind"] == EventKind.ERROR
            await rig.release(region, epoch)
        assert spoilt == failing
        await rig.drained()
        await rig.check_status(over, bank)  # what the primaries have told
        rig.put_close(over, epoch)
        final = await rig.final(over, bank)
        assert final["kind"] == EventKind.ALL or failing
        assert final["kind"] == EventKind.ERROR or final["rows"] == used
        cover("scoreboard.overflow.error", final["kind"] == EventKind.ERROR)
        await rig.release(over, epoch)


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1 and cfg.capacity <= 64)
async def both_regions_full(rig, cfg, rng):
    """As many rows as a region and its overflow region have slots, as many as a hub can have: ALL
    of both."""
    over, log2_tile = cfg.regions - 1, 0
    while 2 * -(-cfg.capacity >> log2_tile) > cfg.groups:
        log2_tile += 1
    shape = {"row_bytes": 16, "log2_tile": log2_tile, "capacity": cfg.capacity, "expected": 1}
    tiles = -(-cfg.capacity >> log2_tile)
    await rig.set_geometry(over, group_base=tiles, **shape)
    await rig.set_geometry(0, group_base=0, overflow_en=1, overflow=over, **shape)
    for epoch in (0, 1):
        await rig.open(over, epoch)
        plan = plan_epoch(rig, 0, epoch, rows=cfg.capacity)
        tell = next(each for each in plan.news if each["tell"])
        for slot in range(cfg.capacity):
            plan.acks += row_acks(rig, rig.geometry[over], 0, epoch, slot, over)
            tell["bytes16"] += 1
        rig.model.rows[over, epoch], rig.model.rows[0, epoch] = cfg.capacity, 2 * cfg.capacity
        rng.shuffle(plan.acks)
        await rig.open(0, epoch)
        await feed(rig, plan)
        assert (await rig.final(0, epoch))["kind"] == EventKind.ALL
        assert (await rig.final(over, epoch))["rows"] == cfg.capacity
        for region in (0, over):
            await rig.release(region, epoch)
    cover("scoreboard.overflow.both_full")


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def told_before_open(rig, cfg, rng):
    """A primary that ends before its overflow region is opened: what it tells is kept for the
    OPEN."""
    over = cfg.regions - 1
    await rig.one_row(over, group_base=cfg.groups - 1)
    await rig.one_row(0, overflow_en=1, overflow=over)
    for epoch in range(12):
        bank, touched = epoch & 1, epoch % 3 == 2
        await rig.open(0, epoch, 0)
        if touched:
            rig.put_ack(region=0, place=over, bank=bank, group=cfg.groups - 1, bytes=16)
        elif epoch % 3:
            rig.put_close(0, epoch)
            await rig.final(0, bank)
        await rig.drained()
        await rig.abort(0, epoch)
        await rig.open(over, epoch)
        assert (await rig.end(over, epoch))["kind"] == (
            EventKind.ERROR if touched else EventKind.ALL
        )


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def told_another_epoch(rig, cfg, rng):
    """A primary that ends while its overflow region is open for another epoch: one early it is kept
    for the next OPEN, two early it taints, too late it is stale."""
    over = cfg.regions - 1
    await rig.one_row(over, group_base=cfg.groups - 1)
    await rig.one_row(0, overflow_en=1, overflow=over)
    for epoch in (2, 10):
        await rig.open(over, epoch)
        for other in (epoch - 2, epoch + 2, epoch + 4):
            await rig.open(0, other)
            await rig.drained()
            await rig.abort(0, other)
        rig.put_close(over, epoch)
        await rig.ends_well(over, epoch)
        await rig.open(over, epoch + 2)
        await rig.ends_well(over, epoch + 2)
        await rig.open(over, epoch + 4)
        await rig.ends_in(Reason.EPOCH_EARLY, over, epoch + 4)


@ScoreboardRig.test(cases={"first": [True, False]}, idle="random")
async def plain_ranges(rig, cfg, rng, first):
    """Dependency ranges: READY at the threshold, again and again; ERROR once; disarming clears."""
    for _ in range(40):  # as wide as the fields are; nothing counts in them
        log2 = rng.randrange(4, 46)
        base = rng.randrange(1 << 46 - log2) << log2
        for armed in (1, 0):
            await rig.set_dep(
                rng.randrange(cfg.dep_ranges),
                armed=armed,
                base=base,
                limit=base + (3 << log2),
                log2_stride=log2,
                group_base=rng.randrange(cfg.groups),
                threshold=rng.getrandbits(24),
            )
    span = {
        "base": 0x1000,
        "limit": 0x1000 + 4 * 64,
        "log2_stride": 6,
        "group_base": 0,
        "threshold": 64,
    }
    last = 0 if first else cfg.dep_ranges - 1
    context = {"plain": 1, "dep": last}
    await rig.set_dep(last, armed=1, **span)
    for _ in range(3):
        for group in range(4):
            for size in (32, 16, 16):
                rig.put_ack(**context, group=group, bytes=size)
        await rig.drained()
        await rig.cycles(60)
    assert rig.counts["ready"] == 12
    rig.put_ack(**context, group=1, bytes=16)
    await rig.drained()
    await rig.set_dep(last, armed=0, **span)  # forgets the 16 bytes
    rig.put_ack(**context, group=1, bytes=32)
    await rig.drained()
    assert rig.counts["acks_stray"] == 1
    await rig.set_dep(last, armed=1, **span)
    for _ in range(2):
        rig.put_ack(**context, group=1, bytes=32, slice_=0)
    await rig.drained()
    assert rig.counts["ready"] == 13
    rig.put_ack(**context, group=2, bytes=32, ok=0)
    rig.put_ack(**context, group=3, bytes=100)
    await rig.drained()
    assert rig.counts["error"] == 1
    rig.model.deps[last]["causes"].clear()
    await rig.set_dep(last, armed=0, **span)
    await rig.set_dep(last, armed=1, **span)
    rig.put_ack(**context, group=3, bytes=100)
    rig.put_ack(**context, counted=0, group=0, bytes=64)
    await rig.drained()
    assert rig.counts["error"] == 2
    cover("scoreboard.plain.ready")
    cover("scoreboard.plain.error")
    cover("scoreboard.plain.disarm")
