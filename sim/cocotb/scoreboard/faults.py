# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: aborts, stale and repeated news, wrong commands,
stalls, reset."""

import cocotb

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState
from sim.bench.runner import needs
from sim.quality.coverage import cover

from .rig import make
from .traffic import all_banks, begin, feed, live, one_region, plan_epoch, setup_regions


@cocotb.test()
async def aborts_in_traffic(dut):
    """ABORT with bytes on their way and events pending: the bank is clean afterwards, the others do
    not notice."""
    rig, cfg, params, rng = make(dut, "abort", idle="random", stall="random")
    await rig.start()
    await setup_regions(rig, rng)
    quiet = [
        cocotb.start_soon(live(rig, rng, region, bank, params["epochs"]))
        for region in range(1, cfg.regions)
        for bank in (0, 1)
    ]
    for turn in range(12):
        epoch = 2 * turn % 16
        good = turn % 3 == 2
        plan = plan_epoch(
            rig, rng, 0, epoch, rows=None if good else rig.model.geometry[0]["capacity"]
        )
        await begin(rig, rng, plan, 1.0 if good else rng.random())
        if good:
            await rig.end(0, epoch)
        else:
            await rig.give_back(RegionOp.ABORT, 0, epoch)
            cover("scoreboard.abort")
            for source in (rig.closes, rig.refusals):
                await source.drained()
            await rig.bench.cycles(10)
    for task in quiet:
        await task
    await rig.finish()


@cocotb.test()
async def abort_drops_pending(dut):
    """Pending READY and ALL of an aborted bank do not come out, but for one that was already
    offered."""
    rig, cfg, _, rng = make(dut, "abort_pending", stall="stop")
    await rig.start()
    await setup_regions(rig, rng, flag_en=0)
    region = cfg.regions - 1
    for epoch in (0, 1):
        await begin(
            rig,
            rng,
            plan_epoch(rig, rng, region, epoch, rows=rig.model.geometry[region]["capacity"]),
        )
    await rig.drained()
    await rig.bench.cycles(200)
    for epoch in (0, 1):
        await rig.give_back(RegionOp.ABORT, region, epoch)
    rig.events.set_pause(None)
    await rig.bench.cycles(100)
    assert rig.events.count <= 1
    await rig.open(region, 2)
    rig.close_all(region, 2)
    assert (await rig.final(region, 0))["kind"] == EventKind.ALL
    await rig.finish()


@cocotb.test()
async def taints_and_stale(dut):
    """News of an epoch that is not open while the bank is busy: its OPEN is an ERROR. News of a
    past epoch change nothing."""
    rig, cfg, _, rng = make(dut, "taint")
    await rig.start()
    await one_region(rig, expected=2)
    refusal = {"known": 1, "region": 0, "src": 1, "reason": Reason.EPOCH_EARLY, "bytes": 16}
    await rig.open(0, 4)
    await rig.drained()
    rig.refusals.put(
        {**refusal, "epoch": 6},
        {**refusal, "epoch": 2},
        {**refusal, "epoch": 10},
        {**refusal, "epoch": 14},
    )
    for epoch in (2, 8):
        rig.put_close(0, epoch, 1, 64)
    await rig.drained()
    assert (rig.counts["tainted"], rig.counts["refused_stale"], rig.counts["close_stale"]) == (
        3,
        2,
        1,
    )
    rig.close_all(0, 4)
    assert (await rig.end(0, 4))["kind"] == EventKind.ALL

    async def spoilt(epoch):
        await rig.open(0, epoch)
        final = await rig.end(0, epoch)
        assert (final["kind"], final["status"]) == (EventKind.ERROR, Reason.EPOCH_EARLY)

    await spoilt(6)
    await spoilt(8)
    # 10 was tainted too. What is kept for 12 is lost when 10 is opened in its place, and taints it.
    for epoch in (12, 14):
        rig.put_close(0, epoch)
    await rig.drained()
    for epoch in (10, 12, 14):
        await spoilt(epoch)
    await rig.open(0, 0)
    rig.close_all(0, 0)
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    cover("scoreboard.taint")
    cover("scoreboard.stale")
    await rig.finish()


@cocotb.test()
async def second_close(dut):
    """A producer's second close counts as its error and changes nothing; closes of unknown regions
    and ranks are dropped."""
    rig, cfg, _, rng = make(dut, "twice")
    await rig.start()
    await one_region(rig, expected=2)
    await rig.open(0, 0)
    rig.put_close(0, 0, 1)
    rig.put_close(0, 0, 1, abort=1)
    rig.put_close(cfg.regions, 0, 0, 16)
    rig.put_close(0, 0, cfg.ranks, 16)
    await rig.drained()
    assert [found["src"] for _, found in rig.bad_closes] == [1]
    _, missing = await rig.status(0, 0)
    assert missing == (1 << cfg.ranks) - 1 & ~2
    rig.put_close(0, 0)
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    cover("scoreboard.close.twice")
    cover("scoreboard.close.bad")
    await rig.finish()


@cocotb.test()
async def wide_closes(dut):
    """Closes from nowhere, at every bit of region and source, are dropped; totals are added up over
    their whole width."""
    rig, cfg, _, rng = make(dut, "wide")
    await rig.start()
    await one_region(rig, expected=cfg.ranks)
    for epoch in range(6):
        await rig.open(0, epoch)
        for bit in range(11):
            if 1 << bit >= cfg.regions:
                rig.put_close(1 << bit, epoch, 0, rng.getrandbits(34))
            if bit < 7 and 1 << bit >= cfg.ranks:
                rig.put_close(0, epoch, 1 << bit, rng.getrandbits(34))
        for src in range(cfg.ranks):
            rig.put_close(0, epoch, src, rng.getrandbits(33 if src else 34) // cfg.ranks)
            if epoch % 3:  # else one directly behind the other
                await rig.drained()
                await rig.check_status(0, epoch & 1)
        await rig.drained()
        await rig.check_status(0, epoch & 1)
        await rig.give_back(RegionOp.ABORT, 0, epoch)
    await rig.finish()


@cocotb.test()
async def wrong_sums(dut):
    """Totals that agree, of bytes that make no whole rows, or rows that the allocator knows nothing
    of: never ALL."""
    rig, cfg, _, rng = make(dut, "sums", idle="random")
    await rig.start()
    for turn in range(60):
        epoch = turn % 16
        bank = epoch & 1
        row_bytes = rng.choice((min(48, cfg.max_row_bytes), cfg.max_row_bytes))
        await one_region(
            rig,
            row_bytes=row_bytes,
            log2_tile=rng.choice(
                (min(3, cfg.capacity.bit_length() - 1), min(10, 24 - row_bytes.bit_length()))
            ),
        )
        left = (rig.model.geometry[0]["row_bytes"] << rig.model.geometry[0]["log2_tile"]) - 1
        rig.model.rows[0, bank] = rng.randrange(cfg.capacity + 1)
        await rig.open(0, epoch)
        await rig.drained()
        sent = 0
        elsewhere = (
            cfg.regions > 1 and rng.random() < 0.6
        )  # a place whose bank is FREE: only this region's sums grow
        for _ in range(rng.choice((1, 2, 4, 40, 400))):
            size = rng.choice((16, 48, cfg.packet_bytes, rng.randint(1, cfg.packet_bytes)))
            size = size if elsewhere else min(size, left)
            if size:
                rig.put_ack({"region": 0, "place": int(elsewhere), "bank": bank, "bytes": size})
                sent, left = sent + size, left - (0 if elsewhere else size)
        await rig.drained()
        refused = rng.choice((0, 0, 16, 7))
        rig.refusals.put({"known": 1, "region": 0, "epoch": epoch, "src": 0, "bytes": refused})
        rig.put_close(0, epoch, 0, sent + refused)
        await rig.final(0, bank)
        await rig.drained()
        await rig.check_status(0, bank)
        await rig.give_back(RegionOp.RELEASE, 0, epoch)
    assert rig.counts["error"] > 40
    await rig.finish()


@cocotb.test()
async def overlaps_of_all_banks(dut):
    """Overlaps of many banks in successive cycles: each of them, and no other, ends in ERROR."""
    rig, cfg, _, rng = make(dut, "overlaps", stall="random")
    await rig.start()
    await setup_regions(rig, rng)
    keys = [(region, bank) for region in range(cfg.regions) for bank in (0, 1)]
    for turn in range(8):
        for region, bank in keys:
            await rig.open(region, (2 * turn + bank) % 16)
        await rig.drained()
        chosen = rng.sample(keys, rng.randint(1, len(keys)))
        for _ in range(20):  # stray ones keep the pipeline busy
            rig.put_ack({"plain": 1, "group": rng.randrange(cfg.groups), "bytes": 16})
        await rig.bench.cycles(rng.randrange(8))
        for key in chosen:
            await rig.pulse_overlap(*key)
        for key in chosen:
            assert (await rig.final(*key))["status"] == Reason.OVERLAP
        await rig.drained()
        for region, bank in keys:
            assert (rig.state[region, bank] == RegionState.DONE) == ((region, bank) in chosen)
            await rig.give_back(RegionOp.ABORT, region, (2 * turn + bank) % 16)
    await rig.finish()


@cocotb.test()
async def abort_meets_verdict(dut):
    """ABORT in every cycle around the verdict of a complete bank: ALL before it or not at all, the
    overflow region is told once, and the bank is clean."""
    rig, cfg, _, rng = make(dut, "abort_verdict")
    await rig.start()
    over = cfg.regions - 1
    await one_region(rig, overflow_en=int(over > 0), overflow=over)
    if over:
        await rig.set_geometry(
            over, row_bytes=16, log2_tile=0, group_base=cfg.groups - 1, capacity=1, expected=2
        )
    for delay in range(0, 70):
        epoch = 2 * delay % 16
        if over:
            await rig.open(over, epoch)
        plan = plan_epoch(rig, rng, 0, epoch, rows=1)
        rig.model.rows[0, 0] = 1
        await rig.open(0, epoch)
        for item in plan.acks:
            rig.put_ack(*item)
        rig.refusals.put(*plan.refusals)
        await rig.drained()
        rig.closes.put(*plan.closes)
        await rig.closes.drained()
        await rig.bench.cycles(delay)
        for _ in range(12):  # stray ones, still in the combiners when the bank is given back
            rig.put_ack(
                {
                    "bank": 1,
                    "group": rng.randrange(cfg.groups),
                    "bytes": 16,
                    "poison": rng.randrange(2),
                },
                rng.randrange(2),
            )
        await rig.give_back(RegionOp.ABORT, 0, epoch)
        if over:
            await rig.drained()
            await rig.check_status(over, 0)
            await rig.give_back(RegionOp.ABORT, over, epoch)
    await rig.finish()


@cocotb.test()
@needs(lambda cfg: cfg.regions > 1)
async def overflow_given_back_first(dut):
    """An overflow region is aborted in any cycle around its primary's last news, and used for the
    next epoch: the primary ends, with its ALL if that was there already, else in ERROR; it tells
    the next epoch nothing; a primary of another epoch goes on."""
    rig, cfg, _, rng = make(dut, "given_back", stall="random")
    await rig.start()
    over, group = cfg.regions - 1, cfg.groups - 1
    fields = {"row_bytes": 16, "log2_tile": 0, "capacity": 1, "expected": 1}
    await rig.set_geometry(over, **fields | {"group_base": group})
    others = range(min(over, 2))
    for region in others:
        await rig.set_geometry(
            region, **fields | {"group_base": region, "overflow_en": 1, "overflow": over}
        )
    for delay in range(56):
        epoch = 4 * delay % 16
        late = (epoch + 2) % 16
        await rig.open(over, epoch)
        await rig.open(0, epoch)
        if len(others) > 1:
            await rig.open(1, late)
        rig.model.rows[0, 0], rig.model.rows[over, 0], rig.model.rows[1 % over, 0] = 2, 1, 2
        rig.put_ack({"region": 0, "bank": 0, "group": 0, "bytes": 16})
        rig.put_ack(
            {"region": 0, "place": over, "bank": 0, "group": group, "bytes": 16 >> (delay & 1)}
        )
        await rig.drained()
        rig.put_close(0, epoch, sent=32)
        await rig.bench.cycles(delay)
        await rig.give_back(RegionOp.ABORT, over, epoch)
        cover("scoreboard.orphan")
        rig.model.rows[over, 0] = 1
        await rig.open(over, late)
        final = await rig.final(0, 0)
        cover("scoreboard.orphan.all", final["kind"] == EventKind.ALL)
        assert final["kind"] == EventKind.ALL or final["status"] == Reason.INCOMPLETE
        assert final["kind"] == EventKind.ERROR or not delay & 1
        if delay & 2:
            await rig.give_back(RegionOp.RELEASE, 0, epoch)
        rig.put_ack({"region": over, "bank": 0, "group": group, "bytes": 16})
        if len(others) > 1:
            rig.put_ack({"region": 1, "bank": 0, "group": 1, "bytes": 16})
            rig.model.rows[1, 0] = 1
            rig.put_close(1, late, sent=16)
            assert (await rig.end(1, late))["kind"] == EventKind.ALL
        else:
            rig.put_close(over, late)
        await rig.drained()
        if not delay & 2:
            await rig.give_back(RegionOp.RELEASE, 0, epoch)
        await rig.check_status(over, 0)
        await rig.give_back(RegionOp.ABORT, over, late)
    await rig.finish()


@cocotb.test()
async def ranges_beside_rows(dut):
    """Dependency ranges become ready while rows arrive: each event once, none of them waits for
    ever."""
    rig, cfg, _, rng = make(dut, "beside_rows", stall="random")
    await rig.start()
    await one_region(rig)
    ranges = range(min(2, cfg.dep_ranges))
    for index in ranges:
        await rig.set_dep(
            index, armed=1, base=0, limit=16, log2_stride=4, group_base=2 + index, threshold=32
        )
    for epoch in range(24):
        plan = plan_epoch(rig, rng, 0, epoch % 16, rows=rig.model.geometry[0]["capacity"])
        rig.model.rows[0, epoch & 1] = plan.rows
        await rig.open(0, epoch % 16)
        for index in ranges:
            for _ in range(2):
                rig.put_ack({"plain": 1, "group": 2 + index, "dep": index, "bytes": 16})
        await feed(rig, rng, plan)
        await rig.end(0, epoch % 16)
    assert rig.counts["ready"] > 24
    await rig.finish()


@cocotb.test()
async def taints_of_every_epoch(dut):
    """News of the next but one epoch taints it, whatever its number; the one between is good."""
    rig, cfg, _, rng = make(dut, "taints")
    await rig.start()
    await one_region(rig)
    for first in (
        6 * turn % 16 for turn in range(16)
    ):  # two on from the last one of the turn before
        for step, status in ((0, None), (2, None), (4, Reason.EPOCH_EARLY)):
            epoch = (first + step) % 16
            await rig.open(0, epoch)
            await rig.drained()
            if step == 0:
                rig.refusals.put(
                    {"known": 1, "region": 0, "src": 0, "epoch": (first + 4) % 16, "bytes": 16}
                )
                await rig.drained()
            rig.put_close(0, epoch)
            final = await rig.end(0, epoch)
            assert (final["kind"], final["status"]) == (
                (EventKind.ERROR, status) if status else (EventKind.ALL, 0)
            )
    await rig.finish()


@cocotb.test()
async def stalled_flags(dut):
    """The flag writes are not taken: nothing is lost, and all of them come when they are."""
    rig, cfg, params, rng = make(dut, "flags")
    await rig.start()
    await setup_regions(rig, rng, flag_en=1)
    rig.flags.set_pause("stop")
    for region in range(cfg.regions):
        for bank in (0, 1):
            await begin(
                rig,
                rng,
                plan_epoch(rig, rng, region, bank, rows=rig.model.geometry[region]["capacity"]),
            )
    await rig.drained()
    await rig.bench.cycles(400)
    assert not rig.flags.items
    await rig.finish()


@cocotb.test()
async def writes_beside_reads(dut):
    """Geometry and ranges are written while the stall clock and stray acknowledgements read them
    all the time."""
    rig, cfg, params, rng = make(dut, "beside")
    await rig.start()
    dut.timeout.value = 4
    for _ in range(60):
        await setup_regions(rig, rng)
        for index in range(cfg.dep_ranges):
            for _ in range(16):
                rig.put_ack(
                    {"plain": 1, "group": rng.randrange(cfg.groups), "dep": index, "bytes": 16}
                )
            log2 = rng.randrange(4, 46)
            base = rng.randrange(1 << 46 - log2) << log2
            await rig.bench.cycles(rng.randrange(8))
            await rig.set_dep(
                index,
                armed=0,
                base=base,
                limit=base + (1 << log2),
                log2_stride=log2,
                group_base=rng.randrange(cfg.groups),
                threshold=rng.getrandbits(24),
            )
    assert not rig.timeouts
    await all_banks(rig, rng, 2)


@cocotb.test()
async def wrong_commands(dut):
    """Commands that do not fit change nothing and are reported."""
    rig, cfg, _, rng = make(dut, "commands")
    await rig.start()
    await rig.order(RegionOp.OPEN, 0, 0)  # no geometry yet
    await rig.drained()
    await one_region(rig)
    await rig.order(RegionOp.RELEASE, 0, 0)
    await rig.order(RegionOp.ABORT, 0, 0)
    await rig.open(0, 0)
    await rig.order(RegionOp.FORGET, 0, 0)  # not FREE
    await rig.order(RegionOp.OPEN, 0, 2)
    await rig.order(RegionOp.RELEASE, 0, 0)  # not DONE
    await rig.order(RegionOp.ABORT, 0, 2)  # another epoch
    await rig.drained()
    wanted = 7
    if cfg.regions < 1 << cfg.region_width:
        await rig.order(RegionOp.OPEN, cfg.regions, 0)
        await rig.drained()
        wanted += 1
    assert rig.errors.count("reported") == wanted and rig.errors.count(None) == 1, rig.errors
    await rig.give_back(RegionOp.ABORT, 0, 0)
    cover("scoreboard.command.wrong")
    await rig.finish()


@cocotb.test()
async def stalls_are_reported(dut):
    """A bank that waits longer than the timeout is reported once, with the missing producer, and
    goes on as if nothing were."""
    rig, cfg, _, rng = make(dut, "timeout", watchdog=0)
    await rig.start()
    await one_region(rig, expected=2)
    dut.timeout.value = 400
    await rig.open(0, 0)
    await rig.bench.cycles(1500)
    assert not rig.timeouts, "nothing was seen of this epoch yet"
    rig.put_close(0, 0, 1)
    for turn in (1, 2):
        await rig.drained()
        start = rig.refusals.stamps[-1] if turn == 2 else rig.closes.stamps[-1]
        await rig.bench.cycles(2000)
        assert [found["region"] for _, found in rig.timeouts] == [0] * turn
        waited = rig.timeouts[-1][0] - start
        assert 400 <= waited <= 5 * (100 + 2 + 4 * 2 * cfg.regions) + 10, (
            f"reported after {waited} cycles"
        )
        status, missing = await rig.status(0, 0)
        assert missing == (1 << cfg.ranks) - 1 & ~2 and status["state"] == RegionState.OPEN
        if turn == 1:
            rig.refusals.put({"known": 1, "region": 0, "epoch": 0, "src": 0, "bytes": 16})
    rig.put_close(0, 0, 0, 16)
    final = await rig.final(0, 0)
    assert final["kind"] == EventKind.ALL and final["refused"]
    cover("scoreboard.timeout")
    for bit in range(32):  # nothing waits: no timeout, of whatever length, reports anything
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
        await begin(rig, rng, plan_epoch(rig, rng, region, 1), 0.8)
    rig.forget()
    await rig.start()
    rig.events.set_pause(None)
    await rig.bench.cycles(100)
    assert not rig.events.items
    await setup_regions(rig, rng)
    cover("scoreboard.reset")
    await all_banks(rig, rng, 2)
