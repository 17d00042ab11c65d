"""cocotb tests of the readiness scoreboard against the golden model."""

import cocotb

from hub_rtl.formats import EventKind, Reason, RegionOp, RegionState
from sim.bench.coverage import cover
from sim.bench.runner import bench_params
from sim.bench.streams import GRID
from sim.cocotb.scoreboard_rig import Rig
from sim.cocotb.scoreboard_traffic import FAULTS, feed, live, plan_epoch, row_acks, setup_regions


def make(dut, salt="", **more):
    cfg, params, rng = bench_params(salt)
    return Rig(dut, cfg, rng, **more), cfg, params, rng


async def all_banks(rig, rng, epochs, **more):
    """Every bank of every region lives at the same time."""
    tasks = [cocotb.start_soon(live(rig, rng, region, bank, epochs, **more))
             for region in range(rig.cfg.regions) for bank in (0, 1)]
    for task in tasks:
        await task
    await rig.finish()


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_epochs(dut, grid):
    """Good epochs on all banks at once: exact events, rows and counters on all idle and back-pressure patterns."""
    idle, stall = grid
    rig, _, params, rng = make(dut, str(grid), idle=idle, stall=stall)
    await rig.start()
    await setup_regions(rig, rng)
    await all_banks(rig, rng, params["epochs"])
    assert not rig.counts["error"] and rig.counts["all"]
    cover(f"sb.grid.{idle}.{stall}")
    cover("sb.merged", rig.counts["merges"] > 0)


@cocotb.test()
async def random_errors(dut):
    """Epochs with faults between good ones: one ERROR with a true cause, never ALL; the others are not disturbed."""
    rig, _, params, rng = make(dut, "errors", idle="random", stall="random")
    await rig.start()
    await setup_regions(rig, rng)
    await all_banks(rig, rng, params["epochs"], faults=FAULTS, early=True)
    assert rig.counts["error"] and rig.counts["all"]


@cocotb.test()
async def early_news(dut):
    """Closes and refusals before OPEN, over all sixteen epoch numbers and beyond: the same events."""
    rig, _, params, rng = make(dut, "early", stall="cyclic")
    await rig.start()
    await setup_regions(rig, rng, row_bytes=min(32, rig.cfg.max_row_bytes))
    await all_banks(rig, rng, 10, early=True)
    assert rig.counts["early_kept"] and not rig.counts["error"]


async def one_region(rig, **fields):
    """Region 0 with two-row tiles and one producer."""
    await rig.set_geometry(0, **{"row_bytes": min(32, rig.cfg.max_row_bytes), "log2_tile": 1 if rig.cfg.capacity > 1 else 0,
                                 "capacity": min(4, rig.cfg.capacity), "expected": 1, **fields})


@cocotb.test()
async def latency_of_ready(dut):
    """On an idle hub: READY six cycles after the last acknowledgement, ALL within the stated time after the last close."""
    rig, cfg, _, rng = make(dut, "latency")
    await rig.start()
    await one_region(rig)
    await rig.open(0, 0)
    await rig.drained()
    tile = 1 << rig.model.geometry[0]["log2_tile"]
    for slot in range(tile):
        for context, ok in row_acks(cfg, rng, rig.model.geometry[0], 0, 0, slot):
            rig.put_ack(context, ok, slice_=cfg.slices - 1)
    await rig.bench.until(lambda: rig.events.count, 100, "READY")
    taken, valid = rig.acks[-1].stamps[-1], rig.events.stamps[0]
    assert valid - taken <= 6, f"READY after {valid - taken} cycles"
    rig.model.rows[0, 0] = tile
    await rig.drained()
    rig.closes.put({"region": 0, "epoch": 0, "src": 0, "sent": tile * rig.model.geometry[0]["row_bytes"]})
    await rig.final(0, 0)
    waited = rig.events.stamps[-1] - rig.closes.stamps[-1]
    limit = 25 + min(30, cfg.slot_width + cfg.row_bytes_width - 4)
    assert waited <= limit, f"ALL after {waited} cycles, at most {limit}"
    dut._log.info(f"READY after {valid - taken} cycles, ALL after {waited} (limit {limit})")
    cover("sb.latency")
    await rig.finish()


@cocotb.test()
async def throughput(dut):
    """All slices at once, one acknowledgement per cycle each: merging keeps up; without it the shared pipeline limits."""
    rig, cfg, _, rng = make(dut, "throughput")
    await rig.start()
    await rig.set_geometry(0, row_bytes=cfg.max_row_bytes, log2_tile=0, capacity=1, expected=1)
    await rig.open(0, 0)
    await rig.drained()
    rig.model.rows[0, 0] = 1
    count = cfg.max_row_bytes // 4
    context = {"plain": 0, "region": 0, "place": 0, "bank": 0, "group": 0, "dep": 0, "bytes": 4, "poison": 0}
    start = rig.bench.cycle
    for n in range(count):
        rig.put_ack(context, slice_=n % cfg.slices)
    rig.closes.put({"region": 0, "epoch": 0, "src": 0, "sent": cfg.max_row_bytes})
    await rig.drained()
    await rig.final(0, 0)
    took = rig.acks[0].stamps[-1] - start
    each = -(-count // cfg.slices)
    # With depth 1 an accumulator takes every other cycle, and looks at the book, now that all have closed, take their share.
    limit = each + 4 if cfg.combine_depth > 1 else max(2 * each, count) * 5 // 4
    assert took <= limit, f"{each} acknowledgements per slice took {took} cycles, at most {limit}"
    cover("sb.throughput")
    await rig.finish()


@cocotb.test()
async def bad_news_survives_merging(dut):
    """A memory error or poison inside a burst of one tile is never lost, whatever it is merged with."""
    rig, cfg, _, rng = make(dut, "merge")
    await rig.start()
    size = min(4, cfg.max_row_bytes // 16)
    row_bytes = 16 * size
    await rig.set_geometry(0, row_bytes=row_bytes, log2_tile=0, capacity=1, expected=1)
    context = {"plain": 0, "region": 0, "place": 0, "bank": 0, "group": 0, "dep": 0, "bytes": size, "poison": 0}
    for at in range(16):
        epoch = 2 * at % 16
        rig.model.rows[0, 0] = 1
        await rig.open(0, epoch)
        for n in range(16):
            bad = n == at
            rig.put_ack({**context, "poison": int(bad and at & 1)}, int(not bad or at & 1), slice_=n * cfg.slices // 16)
        rig.closes.put({"region": 0, "epoch": epoch, "src": 0, "sent": row_bytes})
        final = await rig.final(0, 0)
        assert final["status"] == (Reason.INCOMPLETE if at & 1 else Reason.MEM_ERROR)
        await rig.drained()
        await rig.give_back(RegionOp.RELEASE, 0, epoch)
    cover("sb.merged.bad", rig.counts["merges"] > 0)
    await rig.finish()


@cocotb.test()
async def stalled_events(dut):
    """The event stream is never taken: everything still goes on; then each event comes out once."""
    rig, cfg, _, rng = make(dut, "stalled", idle="cyclic", stall="stop")
    await rig.start()
    await setup_regions(rig, rng, flag_en=0)
    for region in range(cfg.regions):
        for bank in (0, 1):
            rows = rig.model.geometry[region]["capacity"]
            plan = plan_epoch(rig, rng, region, bank, rows=rows)
            rig.model.rows[region, bank] = rows
            await rig.open(region, bank)
            await feed(rig, rng, plan)
    await rig.drained()
    await rig.bench.cycles(600)
    assert rig.events.count == 0
    for key in rig.model.banks:
        await rig.check_status(*key)
        assert rig.state[key] == RegionState.DONE
    cover("sb.stalled")
    rig.events.set_pause(None)
    await rig.finish()


@cocotb.test()
async def aborts_in_traffic(dut):
    """ABORT with bytes on their way and events pending: the bank is clean afterwards, the others do not notice."""
    rig, cfg, params, rng = make(dut, "abort", idle="random", stall="random")
    await rig.start()
    await setup_regions(rig, rng)
    quiet = [cocotb.start_soon(live(rig, rng, region, bank, params["epochs"]))
             for region in range(1, cfg.regions) for bank in (0, 1)]
    for turn in range(12):
        epoch = 2 * turn % 16
        good = turn % 3 == 2
        plan = plan_epoch(rig, rng, 0, epoch, rows=None if good else rig.model.geometry[0]["capacity"])
        rig.model.rows[0, 0] = plan.rows
        await rig.open(0, epoch)
        await feed(rig, rng, plan, 1.0 if good else rng.random())
        if good:
            await rig.final(0, 0)
            await rig.drained()
            await rig.give_back(RegionOp.RELEASE, 0, epoch)
        else:
            await rig.give_back(RegionOp.ABORT, 0, epoch)
            cover("sb.abort")
            for source in (rig.closes, rig.refusals):
                await source.drained()
            await rig.bench.cycles(10)
    for task in quiet:
        await task
    await rig.finish()


@cocotb.test()
async def abort_drops_pending(dut):
    """Pending READY and ALL of an aborted bank do not come out, but for one that was already offered."""
    rig, cfg, _, rng = make(dut, "abort_pending", stall="stop")
    await rig.start()
    await setup_regions(rig, rng, flag_en=0)
    region = cfg.regions - 1
    for epoch in (0, 1):
        plan = plan_epoch(rig, rng, region, epoch, rows=rig.model.geometry[region]["capacity"])
        rig.model.rows[region, epoch] = plan.rows
        await rig.open(region, epoch)
        await feed(rig, rng, plan)
    await rig.drained()
    await rig.bench.cycles(200)
    for epoch in (0, 1):
        await rig.give_back(RegionOp.ABORT, region, epoch)
    rig.events.set_pause(None)
    await rig.bench.cycles(100)
    assert rig.events.count <= 1
    await rig.open(region, 2)
    rig.closes.put(*({"region": region, "epoch": 2, "src": n, "sent": 0}
                     for n in range(rig.model.geometry[region]["expected"])))
    assert (await rig.final(region, 0))["kind"] == EventKind.ALL
    await rig.finish()


@cocotb.test()
async def taints_and_stale(dut):
    """News of an epoch that is not open while the bank is busy: its OPEN is an ERROR. News of a past epoch change nothing."""
    rig, cfg, _, rng = make(dut, "taint")
    await rig.start()
    await one_region(rig, expected=2)
    refusal = {"known": 1, "region": 0, "src": 1, "reason": Reason.EPOCH_EARLY, "bytes": 16}
    await rig.open(0, 4)
    await rig.drained()
    rig.refusals.put({**refusal, "epoch": 6}, {**refusal, "epoch": 2}, {**refusal, "epoch": 10}, {**refusal, "epoch": 14})
    rig.closes.put({"region": 0, "epoch": 2, "src": 1, "sent": 64}, {"region": 0, "epoch": 8, "src": 1, "sent": 64})
    await rig.drained()
    assert (rig.counts["tainted"], rig.counts["refused_stale"], rig.counts["close_stale"]) == (3, 2, 1)
    rig.closes.put(*({"region": 0, "epoch": 4, "src": n, "sent": 0} for n in (0, 1)))
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    await rig.give_back(RegionOp.RELEASE, 0, 4)
    for epoch in (6, 8):
        await rig.open(0, epoch)
        final = await rig.final(0, 0)
        assert (final["kind"], final["status"]) == (EventKind.ERROR, Reason.EPOCH_EARLY)
        await rig.give_back(RegionOp.RELEASE, 0, epoch)
    # 10 was tainted too. What is kept for 12 is lost when 10 is opened in its place, and taints it.
    rig.closes.put({"region": 0, "epoch": 12, "src": 0, "sent": 0}, {"region": 0, "epoch": 14, "src": 0, "sent": 0})
    await rig.drained()
    for epoch, status in ((10, Reason.EPOCH_EARLY), (12, Reason.EPOCH_EARLY), (14, Reason.EPOCH_EARLY)):
        await rig.open(0, epoch)
        assert (await rig.final(0, 0))["status"] == status
        await rig.give_back(RegionOp.RELEASE, 0, epoch)
    await rig.open(0, 0)
    rig.closes.put(*({"region": 0, "epoch": 0, "src": n, "sent": 0} for n in (0, 1)))
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    cover("sb.taint")
    cover("sb.stale")
    await rig.finish()


@cocotb.test()
async def second_close(dut):
    """A producer's second close counts as its error and changes nothing; closes of unknown regions and ranks are dropped."""
    rig, cfg, _, rng = make(dut, "twice")
    await rig.start()
    await one_region(rig, expected=2)
    await rig.open(0, 0)
    rig.closes.put({"region": 0, "epoch": 0, "src": 1, "sent": 0}, {"region": 0, "epoch": 0, "src": 1, "sent": 0, "abort": 1},
                   {"region": cfg.regions, "epoch": 0, "src": 0, "sent": 16},
                   {"region": 0, "epoch": 0, "src": cfg.ranks, "sent": 16})
    await rig.drained()
    assert [found["src"] for _, found in rig.bad_closes] == [1]
    _, missing = await rig.status(0, 0)
    assert missing == (1 << cfg.ranks) - 1 & ~2
    rig.closes.put({"region": 0, "epoch": 0, "src": 0, "sent": 0})
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    cover("sb.close.twice")
    cover("sb.close.bad")
    await rig.finish()


@cocotb.test()
async def wrong_commands(dut):
    """Commands that do not fit change nothing and are reported."""
    rig, cfg, _, rng = make(dut, "commands")
    await rig.start()
    await rig.order(RegionOp.OPEN, 0, 0)                    # no geometry yet
    await rig.drained()
    await one_region(rig)
    await rig.order(RegionOp.RELEASE, 0, 0)
    await rig.order(RegionOp.ABORT, 0, 0)
    await rig.open(0, 0)
    await rig.order(RegionOp.OPEN, 0, 2)
    await rig.order(RegionOp.RELEASE, 0, 0)                 # not DONE
    await rig.order(RegionOp.ABORT, 0, 2)                   # another epoch
    await rig.drained()
    wanted = 6
    if cfg.regions < 1 << cfg.region_width:
        await rig.order(RegionOp.OPEN, cfg.regions, 0)
        await rig.drained()
        wanted += 1
    assert rig.errors.count("reported") == wanted and rig.errors.count(None) == 1, rig.errors
    await rig.give_back(RegionOp.ABORT, 0, 0)
    cover("sb.command.wrong")
    await rig.finish()


@cocotb.test()
async def overflowed_rows(dut):
    """Primaries whose rows overflow tell their overflow region, which completes with exactly those rows, or with an ERROR."""
    rig, cfg, _, rng = make(dut, "overflow", idle="random", stall="cyclic")
    await rig.start()
    over, row_bytes = cfg.regions - 1, min(48, cfg.max_row_bytes)
    primaries = list(range(min(over, 3)))
    share = cfg.groups // cfg.regions
    log2_tile = 1 if share << 1 <= cfg.capacity else 0
    for region in range(cfg.regions):
        await rig.set_geometry(region, row_bytes=row_bytes, log2_tile=log2_tile, group_base=region * share,
                               capacity=min(cfg.capacity, share << log2_tile) if region == over else 1, flag_en=1,
                               flag_base=region << 12, expected=len(primaries) if region == over else 1,
                               overflow_en=int(region != over), overflow=over)
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
            plan = plan_epoch(rig, rng, region, epoch, rows=1)
            for slot in range(used, used + rows - 1):
                plan.acks += row_acks(cfg, rng, rig.model.geometry[over], region, bank, slot, over)
                plan.closes[0]["sent"] += row_bytes
            used += rows - 1
            rig.model.rows[over, bank] = used
            rig.model.rows[region, bank] = rows
            rng.shuffle(plan.acks)
            if failing and region == primaries[0]:
                plan.acks[-1] = (plan.acks[-1][0], 0)
            await rig.open(region, epoch)
            tasks.append(cocotb.start_soon(feed(rig, rng, plan)))
            cover("sb.overflow.rows", rows > 1)
        for task in tasks:
            await task
        spoilt = False
        for region in primaries:
            spoilt |= (await rig.final(region, bank))["kind"] == EventKind.ERROR
            await rig.give_back(RegionOp.RELEASE, region, epoch)
        assert spoilt == failing
        final = await rig.final(over, bank)
        assert final["kind"] == EventKind.ALL or failing
        assert final["kind"] == EventKind.ERROR or final["rows"] == used
        cover("sb.overflow.error", final["kind"] == EventKind.ERROR)
        await rig.give_back(RegionOp.RELEASE, over, epoch)
    await rig.finish()


@cocotb.test()
async def plain_ranges(dut):
    """Dependency ranges: READY at the threshold, again and again; ERROR once; disarming clears."""
    rig, cfg, _, rng = make(dut, "plain", idle="random")
    await rig.start()
    span = {"base": 0x1000, "limit": 0x1000 + 4 * 64, "log2_stride": 6, "group_base": 0, "threshold": 64}
    last = cfg.dep_ranges - 1
    context = {"plain": 1, "region": 0, "place": 0, "bank": 0, "dep": last, "poison": 0}
    await rig.set_dep(last, armed=1, **span)
    for _ in range(3):
        for group in range(4):
            for size in (32, 16, 16):
                rig.put_ack({**context, "group": group, "bytes": size})
        await rig.drained()
        await rig.bench.cycles(60)
    assert rig.counts["ready"] == 12
    rig.put_ack({**context, "group": 1, "bytes": 16})
    await rig.drained()
    await rig.set_dep(last, armed=0, **span)                # forgets the 16 bytes
    rig.put_ack({**context, "group": 1, "bytes": 32})
    await rig.drained()
    assert rig.counts["acks_stray"] == 1
    await rig.set_dep(last, armed=1, **span)
    for _ in range(2):
        rig.put_ack({**context, "group": 1, "bytes": 32}, slice_=0)
    await rig.drained()
    assert rig.counts["ready"] == 13
    rig.put_ack({**context, "group": 2, "bytes": 32}, ok=0)
    rig.put_ack({**context, "group": 3, "bytes": 100})
    await rig.drained()
    assert rig.counts["error"] == 1
    rig.model.deps[last]["causes"].clear()
    await rig.set_dep(last, armed=0, **span)
    await rig.set_dep(last, armed=1, **span)
    rig.put_ack({**context, "group": 3, "bytes": 100})
    rig.put_ack({**context, "counted": 0, "group": 0, "bytes": 64})
    await rig.drained()
    assert rig.counts["error"] == 2
    cover("sb.plain.ready")
    cover("sb.plain.error")
    cover("sb.plain.disarm")
    await rig.finish()


@cocotb.test()
async def stalls_are_reported(dut):
    """A bank that waits longer than the timeout is reported once, with the missing producer, and goes on as if nothing were."""
    rig, cfg, _, rng = make(dut, "timeout", watchdog=0)
    await rig.start()
    await one_region(rig, expected=2)
    dut.timeout.value = 400
    await rig.open(0, 0)
    await rig.bench.cycles(1500)
    assert not rig.timeouts, "nothing was seen of this epoch yet"
    rig.closes.put({"region": 0, "epoch": 0, "src": 1, "sent": 0})
    for turn in (1, 2):
        await rig.drained()
        start = rig.refusals.stamps[-1] if turn == 2 else rig.closes.stamps[-1]
        await rig.bench.cycles(2000)
        assert [found["region"] for _, found in rig.timeouts] == [0] * turn
        waited = rig.timeouts[-1][0] - start
        assert 400 <= waited <= 5 * (100 + 2 + 4 * 2 * cfg.regions) + 10, f"reported after {waited} cycles"
        status, missing = await rig.status(0, 0)
        assert missing == (1 << cfg.ranks) - 1 & ~2 and status["state"] == RegionState.OPEN
        if turn == 1:
            rig.refusals.put({"known": 1, "region": 0, "epoch": 0, "src": 0, "bytes": 16})
    rig.closes.put({"region": 0, "epoch": 0, "src": 0, "sent": 16})
    final = await rig.final(0, 0)
    assert final["kind"] == EventKind.ALL and final["refused"]
    cover("sb.timeout")
    await rig.finish()


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with everything full of bytes and events: afterwards as new."""
    rig, cfg, _, rng = make(dut, "reset", stall="stop")
    await rig.start()
    await setup_regions(rig, rng)
    for region in range(cfg.regions):
        plan = plan_epoch(rig, rng, region, 1)
        rig.model.rows[region, 1] = plan.rows
        await rig.open(region, 1)
        await feed(rig, rng, plan, 0.8)
    rig.forget()
    await rig.start()
    rig.events.set_pause(None)
    await rig.bench.cycles(100)
    assert not rig.events.items
    await setup_regions(rig, rng)
    cover("sb.reset")
    await all_banks(rig, rng, 2)
