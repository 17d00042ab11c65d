"""cocotb tests of the readiness scoreboard: aborts, stale and repeated news, wrong commands, stalls, reset."""

import cocotb

from hub_rtl.formats import EventKind, Reason, RegionOp, RegionState
from sim.bench.coverage import cover
from sim.cocotb.scoreboard_rig import make
from sim.cocotb.scoreboard_traffic import all_banks, feed, live, one_region, plan_epoch, setup_regions


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
async def wide_closes(dut):
    """Closes from nowhere, at every bit of region and source, are dropped; totals are added up over their whole width."""
    rig, cfg, _, rng = make(dut, "wide")
    await rig.start()
    await one_region(rig, expected=cfg.ranks)
    for epoch in range(6):
        await rig.open(0, epoch)
        for bit in range(11):
            if 1 << bit >= cfg.regions:
                rig.closes.put({"region": 1 << bit, "epoch": epoch, "src": 0, "sent": rng.getrandbits(34)})
            if bit < 7 and 1 << bit >= cfg.ranks:
                rig.closes.put({"region": 0, "epoch": epoch, "src": 1 << bit, "sent": rng.getrandbits(34)})
        for src in range(cfg.ranks):
            rig.closes.put({"region": 0, "epoch": epoch, "src": src, "sent": rng.getrandbits(33 if src else 34) // cfg.ranks})
            await rig.drained()
            await rig.check_status(0, epoch & 1)
        await rig.give_back(RegionOp.ABORT, 0, epoch)
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
    for bit in range(32):               # nothing waits: no timeout, of whatever length, reports anything
        dut.timeout.value = 1 << bit | rng.getrandbits(bit)
        await rig.bench.cycles(8)
    dut.timeout.value = 0
    await rig.finish()
    assert len(rig.timeouts) == 2


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
