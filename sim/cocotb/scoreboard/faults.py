# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: aborts, stale and repeated news, wrong commands,
stalls, reset."""

import cocotb

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState
from sim.quality.coverage import cover

from .rig import ScoreboardRig
from .traffic import (
    all_banks,
    begin,
    begin_full,
    feed,
    lives,
    one_region,
    plan_epoch,
    setup_regions,
)


@ScoreboardRig.test(idle="random", stall="random")
async def aborts_in_traffic(rig, cfg, rng):
    """ABORT with bytes on their way and events pending: the bank is clean afterwards, the others do
    not notice."""
    await setup_regions(rig)
    others = [key for key in rig.keys if key[0]]
    quiet = cocotb.start_soon(lives(rig, others, rig.params["epochs"]))
    for turn in range(12):
        epoch = 2 * turn % 16
        good = turn % 3 == 2
        if good:
            await begin(rig, 0, epoch)
            await rig.end(0, epoch)
        else:
            await begin(rig, 0, epoch, rig.geometry[0]["capacity"], rng.random())
            await rig.abort(0, epoch)
            cover("scoreboard.abort")
            for source in (rig.i_news, rig.i_refused):
                await source.drained()
            await rig.cycles(10)
    await quiet


@ScoreboardRig.test(stall="stop")
async def abort_drops_pending(rig, cfg, rng):
    """Pending READY and ALL of an aborted bank do not come out, but for one that was already
    offered."""
    await setup_regions(rig, flag_en=0)
    region = cfg.regions - 1
    for epoch in (0, 1):
        await begin_full(rig, region, epoch)
    await rig.drained()
    await rig.cycles(200)
    for epoch in (0, 1):
        await rig.abort(region, epoch)
    rig.o_event.set_pause(None)
    await rig.cycles(100)
    assert rig.o_event.count <= 1
    await rig.open(region, 2)
    rig.close_all(region, 2)
    assert (await rig.final(region, 0))["kind"] == EventKind.ALL


@ScoreboardRig.test()
async def taints_and_stale(rig, cfg, rng):
    """News of the next epoch are kept while the bank is in use; of one behind it they are lost, and
    its OPEN is an ERROR. News of a past epoch change nothing."""
    await one_region(rig, expected=2)
    refusal = {"known": 1, "region": 0, "src": 1, "reason": Reason.EPOCH_EARLY, "bytes": 16}
    await rig.open(0, 4)
    await rig.drained()
    rig.i_refused.put(*({**refusal, "epoch": epoch} for epoch in (6, 2, 10, 14)))
    for epoch in (2, 8):
        rig.put_close(0, epoch, 1, 64)
    await rig.drained()
    wanted = {"early_kept": 1, "tainted": 2, "refused_stale": 2, "close_stale": 1}
    assert {name: rig.counts[name] for name in wanted} == wanted
    rig.close_all(0, 4)
    await rig.ends_well(0, 4)
    await rig.open(0, 6)
    rig.put_close(0, 6, 0, 16)
    rig.put_close(0, 6, 1)
    assert (await rig.end(0, 6))["refused"]
    # 10 was tainted too. What is kept for 12 is lost when 10 is opened in its place, and taints it.
    for epoch in (8, 10, 12, 14):
        if epoch == 10:
            for later in (12, 14):
                rig.put_close(0, later)
            await rig.drained()
        await rig.open(0, epoch)
        await rig.ends_in(Reason.EPOCH_EARLY, 0, epoch)
    await rig.open(0, 0)
    rig.close_all(0, 0)
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    cover("scoreboard.taint")
    cover("scoreboard.stale")


@ScoreboardRig.test()
async def second_close(rig, cfg, rng):
    """A producer's second close counts as its error and changes nothing; closes of unknown regions
    and ranks are dropped."""
    await one_region(rig, expected=2)
    await rig.open(0, 0)
    rig.put_close(0, 0, 1)
    rig.put_close(0, 0, 1, abort=1)
    rig.put_close(cfg.regions, 0, 0, 16)
    rig.put_close(0, 0, cfg.ranks, 16)
    await rig.drained()
    assert [found["src"] for found in rig.bad_closes] == [1]
    _, missing, _ = await rig.status(0, 0)
    assert missing == (1 << cfg.ranks) - 1 & ~2
    rig.put_close(0, 0)
    assert (await rig.final(0, 0))["kind"] == EventKind.ALL
    cover("scoreboard.close.twice")
    cover("scoreboard.close.bad")


@ScoreboardRig.test()
async def wide_closes(rig, cfg, rng):
    """Closes from nowhere, at every bit of region and source, are dropped; totals are added up over
    their whole width."""
    await one_region(rig, expected=cfg.ranks)
    for epoch in range(6):
        await rig.open(0, epoch)
        for bit in range(11):
            if 1 << bit >= cfg.regions:
                rig.put_close(1 << bit, epoch, 0, 16 * rng.getrandbits(30))
            if bit < 7 and 1 << bit >= cfg.ranks:
                rig.put_close(0, epoch, 1 << bit, 16 * rng.getrandbits(30))
        for src in range(cfg.ranks):
            rig.put_close(0, epoch, src, 16 * (rng.getrandbits(29 if src else 30) // cfg.ranks))
            if epoch % 3:  # else one directly behind the other
                await rig.drained()
                await rig.check_status(0, epoch & 1)
        await rig.drained()
        await rig.check_status(0, epoch & 1)
        await rig.abort(0, epoch)


@ScoreboardRig.test(idle="random")
async def wrong_sums(rig, cfg, rng):
    """Totals that agree, of bytes that make no whole rows, or rows that the allocator knows nothing
    of: never ALL."""
    for turn in range(60):
        epoch = turn % 16
        bank = epoch & 1
        row_bytes = rng.choice((min(48, cfg.max_row_bytes), cfg.max_row_bytes))
        few, many = min(3, cfg.capacity.bit_length() - 1), min(10, 24 - row_bytes.bit_length())
        log2_tile = rng.choice((few, many))
        await one_region(rig, row_bytes=row_bytes, log2_tile=log2_tile)
        left = (row_bytes << log2_tile) - 1
        await rig.open(0, epoch, rng.randrange(cfg.capacity + 1))
        await rig.drained()
        sent = 0
        elsewhere = (
            cfg.regions > 1 and rng.random() < 0.6
        )  # a place whose bank is FREE: only this region's sums grow
        for _ in range(rng.choice((1, 2, 4, 40, 400))):
            size = rng.choice((16, 48, cfg.packet_bytes, rng.randint(1, cfg.packet_bytes)))
            size = size if elsewhere else min(size, left)
            if size:
                rig.put_ack(region=0, place=int(elsewhere), bank=bank, bytes=size)
                sent, left = sent + size, left - (0 if elsewhere else size)
        await rig.drained()
        refused = rng.choice((0, 0, 16)) + -sent % 16
        rig.refuse(0, epoch, refused)
        rig.put_close(0, epoch, 0, sent + refused)
        await rig.final(0, bank)
        await rig.drained()
        await rig.check_status(0, bank)
        await rig.release(0, epoch)
    assert rig.counts["error"] > 40


@ScoreboardRig.test(stall="random")
async def overlaps_of_all_banks(rig, cfg, rng):
    """Overlaps of many banks in successive cycles: each of them, and no other, ends in ERROR."""
    await setup_regions(rig)
    keys = rig.keys
    for turn in range(8):
        for region, bank in keys:
            await rig.open(region, (2 * turn + bank) % 16)
        await rig.drained()
        chosen = rng.sample(keys, rng.randint(1, len(keys)))
        for _ in range(20):  # stray ones keep the pipeline busy
            rig.put_plain(rng.randrange(cfg.groups))
        await rig.cycles(rng.randrange(8))
        for key in chosen:
            await rig.pulse_overlap(*key)
        for key in chosen:
            assert (await rig.final(*key))["status"] == Reason.OVERLAP
        await rig.drained()
        for region, bank in keys:
            assert (rig.state[region, bank] == RegionState.DONE) == ((region, bank) in chosen)
            await rig.abort(region, (2 * turn + bank) % 16)


@ScoreboardRig.test()
async def abort_meets_verdict(rig, cfg, rng):
    """ABORT in every cycle around the verdict of a complete bank: ALL before it or not at all, the
    overflow region is told once, and the bank is clean."""
    over = cfg.regions - 1
    await one_region(rig, overflow_en=int(over > 0), overflow=over)
    if over:
        await rig.one_row(over, group_base=cfg.groups - 1, capacity=1, expected=2)
    for delay in range(0, 70):
        epoch = 2 * delay % 16
        if over:
            await rig.open(over, epoch)
        plan = plan_epoch(rig, 0, epoch, rows=1)
        await rig.open(0, epoch, 1)
        for item in plan.acks:
            rig.put_ack(**item)
        rig.i_refused.put(*plan.refusals)
        await rig.drained()
        rig.i_news.put(*plan.news)
        await rig.i_news.drained()
        await rig.cycles(delay)
        for _ in range(12):  # stray ones, still in the combiners when the bank is given back
            rig.put_ack(
                bank=1,
                group=rng.randrange(cfg.groups),
                bytes=16,
                poison=rng.randrange(2),
                ok=rng.randrange(2),
            )
        await rig.abort(0, epoch)
        if over:
            await rig.drained()
            await rig.check_status(over, 0)
            await rig.abort(over, epoch)


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1, stall="random")
async def overflow_given_back_first(rig, cfg, rng):
    """An overflow region is aborted in any cycle around its primary's last news, and used for the
    next epoch: the primary ends, with its ALL if that was there already, else in ERROR; it tells
    the next epoch nothing; a primary of another epoch goes on."""
    over, group = cfg.regions - 1, cfg.groups - 1
    await rig.one_row(over, group_base=group)
    others = range(min(over, 2))
    for region in others:
        await rig.one_row(region, group_base=region, overflow_en=1, overflow=over)
    for delay in range(56):
        epoch = 4 * delay % 16
        late = (epoch + 2) % 16
        await rig.open(over, epoch)
        await rig.open(0, epoch)
        if len(others) > 1:
            await rig.open(1, late)
        rig.model.rows[0, 0], rig.model.rows[over, 0], rig.model.rows[1 % over, 0] = 2, 1, 2
        rig.put_ack(region=0, bank=0, group=0, bytes=16)
        rig.put_ack(region=0, place=over, bank=0, group=group, bytes=16 >> (delay & 1))
        await rig.drained()
        rig.put_close(0, epoch, sent=32)
        await rig.cycles(delay)
        await rig.abort(over, epoch)
        cover("scoreboard.orphan")
        await rig.open(over, late, 1)
        final = await rig.final(0, 0)
        cover("scoreboard.orphan.all", final["kind"] == EventKind.ALL)
        assert final["kind"] == EventKind.ALL or final["status"] == Reason.INCOMPLETE
        assert final["kind"] == EventKind.ERROR or not delay & 1
        if delay & 2:
            await rig.release(0, epoch)
        rig.put_ack(region=over, bank=0, group=group, bytes=16)
        if len(others) > 1:
            rig.put_ack(region=1, bank=0, group=1, bytes=16)
            rig.model.rows[1, 0] = 1
            rig.put_close(1, late, sent=16)
            await rig.ends_well(1, late)
        else:
            rig.put_close(over, late)
        await rig.drained()
        if not delay & 2:
            await rig.release(0, epoch)
        await rig.check_status(over, 0)
        await rig.abort(over, late)


@ScoreboardRig.test(stall="random")
async def ranges_beside_rows(rig, cfg, rng):
    """Dependency ranges become ready while rows arrive: each event once, none of them waits for
    ever."""
    await one_region(rig)
    ranges = range(min(2, cfg.dep_ranges))
    for index in ranges:
        await rig.set_span(index, 16, 32, group_base=2 + index)
    for epoch in range(24):
        plan = plan_epoch(rig, 0, epoch % 16, rows=rig.geometry[0]["capacity"])
        await rig.open(0, epoch % 16, plan.rows)
        for index in ranges:
            for _ in range(2):
                rig.put_plain(2 + index, index)
        await feed(rig, plan)
        await rig.end(0, epoch % 16)
    assert rig.counts["ready"] > 24


@ScoreboardRig.test()
async def taints_of_every_epoch(rig, cfg, rng):
    """News of the next but one epoch taints it, whatever its number; the one between is good."""
    await one_region(rig)
    for turn in range(16):
        first = 6 * turn % 16  # two on from the last one of the turn before
        for step, status in ((0, None), (2, None), (4, Reason.EPOCH_EARLY)):
            epoch = (first + step) % 16
            await rig.open(0, epoch)
            await rig.drained()
            if step == 0:
                rig.refuse(0, (first + 4) % 16, 16)
                await rig.drained()
            rig.put_close(0, epoch)
            final = await rig.end(0, epoch)
            assert (final["kind"], final["status"]) == (
                (EventKind.ERROR, status) if status else (EventKind.ALL, 0)
            )


@ScoreboardRig.test()
async def stalled_flags(rig, cfg, rng):
    """The flag writes are not taken: nothing is lost, and all of them come when they are."""
    await setup_regions(rig, flag_en=1)
    rig.o_flag.set_pause("stop")
    for region, bank in rig.keys:
        await begin_full(rig, region, bank)
    await rig.drained()
    await rig.cycles(400)
    assert not rig.o_flag.items


@ScoreboardRig.test()
async def writes_beside_reads(rig, cfg, rng):
    """Geometry and ranges are written while the stall clock and stray acknowledgements read them
    all the time."""
    rig.set("timeout", 4)
    for _ in range(60):
        await setup_regions(rig)
        for index in range(cfg.dep_ranges):
            for _ in range(16):
                rig.put_plain(rng.randrange(cfg.groups), index)
            log2 = rng.randrange(4, 46)
            base = rng.randrange(1 << 46 - log2) << log2
            await rig.cycles(rng.randrange(8))
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
    await all_banks(rig, 2)


@ScoreboardRig.test()
async def wrong_commands(rig, cfg, rng):
    """Commands that do not fit change nothing and are reported."""
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
    await rig.abort(0, 0)
    cover("scoreboard.command.wrong")


@ScoreboardRig.test(watchdog=0)
async def stalls_are_reported(rig, cfg, rng):
    """A bank that waits longer than the timeout is reported once, with the missing producer, and
    goes on as if nothing were."""
    await one_region(rig, expected=2)
    rig.set("timeout", 400)
    await rig.open(0, 0)
    await rig.cycles(1500)
    assert not rig.timeouts, "nothing was seen of this epoch yet"
    rig.put_close(0, 0, 1)
    for turn in (1, 2):
        await rig.drained()
        start = rig.i_refused.stamps[-1] if turn == 2 else rig.i_news.stamps[-1]
        await rig.cycles(2000)
        assert [found["region"] for _, found in rig.timeouts] == [0] * turn
        waited = rig.timeouts[-1][0] - start
        assert 400 <= waited <= 5 * (100 + 2 + 4 * 2 * cfg.regions) + 10, (
            f"reported after {waited} cycles"
        )
        status, missing, _ = await rig.status(0, 0)
        assert missing == (1 << cfg.ranks) - 1 & ~2 and status["state"] == RegionState.OPEN
        if turn == 1:
            rig.refuse(0, 0, 16)
    rig.put_close(0, 0, 0, 16)
    final = await rig.final(0, 0)
    assert final["kind"] == EventKind.ALL and final["refused"]
    cover("scoreboard.timeout")
    for bit in range(32):  # nothing waits: no timeout, of whatever length, reports anything
        rig.set("timeout", 1 << bit | rng.getrandbits(bit))
        await rig.cycles(8)
    rig.set("timeout", 0)
    await rig.finish()
    assert len(rig.timeouts) == 2


@ScoreboardRig.test(stall="stop")
async def reset_in_traffic(rig, cfg, rng):
    """Reset with everything full of bytes and events: afterwards as new."""
    await setup_regions(rig)
    for region in range(cfg.regions):
        await begin(rig, region, 1, part=0.8)
    rig.forget()
    await rig.start()
    rig.o_event.set_pause(None)
    await rig.cycles(100)
    assert not rig.o_event.items
    await setup_regions(rig)
    cover("scoreboard.reset")
    await all_banks(rig, 2)
