# SPDX-License-Identifier: Apache-2.0
"""Scoreboard: which epochs a bank may be opened for, and news that is dropped for its epoch."""

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState

from .rig import ScoreboardRig
from .traffic import one_region


async def pass_epoch(rig, region, epoch):
    """An epoch in which nobody sends anything."""
    await rig.open(region, epoch)
    rig.close_all(region, epoch)
    await rig.ends_well(region, epoch)


async def refused(rig, op, region, epoch):
    """An order that is not possible: reported, and the bank stays what it is."""
    before = rig.state[region, epoch & 1]
    await rig.order(op, region, epoch)
    await rig.drained()
    assert rig.state[region, epoch & 1] == before, f"{op} of epoch {epoch} was carried out"
    assert rig.errors[-1] == "reported"


@ScoreboardRig.test()
async def skipped_epochs_do_not_hang(rig, cfg, rng):
    """A close that came ten epochs early is lost: its epoch is not opened as if nothing were, and
    ends in ERROR."""
    await one_region(rig, expected=2)
    await pass_epoch(rig, 0, 0)
    rig.put_close(0, 10, 0)
    await rig.drained()
    await refused(rig, RegionOp.OPEN, 0, 10)
    await rig.order(RegionOp.FORGET, 0, 10)
    await rig.open(0, 10)
    rig.put_close(0, 10, 1)
    await rig.ends_in(Reason.EPOCH_EARLY, 0, 10)


@ScoreboardRig.test()
async def past_epochs_are_not_opened(rig, cfg, rng):
    """A bank goes forward by two, four or six epochs; the epoch just over, those before and those
    too far are refused."""
    await one_region(rig)
    last = 6
    await pass_epoch(rig, 0, last)
    for step in (2, 4, 6, 2):
        for wrong in (0, 8, 10, 12, 14):
            await refused(rig, RegionOp.OPEN, 0, (last + wrong) % 16)
        last = (last + step) % 16
        await pass_epoch(rig, 0, last)
    assert rig.state[0, 0] == RegionState.FREE


@ScoreboardRig.test()
async def dropped_close_taints(rig, cfg, rng):
    """A close that came eight epochs early is dropped; when its epoch's turn comes, it ends in
    ERROR and does not hang."""
    await one_region(rig, expected=2)
    await pass_epoch(rig, 0, 0)
    rig.put_close(0, 8, 0)
    await rig.drained()
    for epoch in (2, 4, 6):
        await pass_epoch(rig, 0, epoch)
    await rig.open(0, 8)
    rig.put_close(0, 8, 1)
    await rig.drained()
    await rig.cycles(200)
    assert rig.state[0, 0] == RegionState.DONE, f"it hangs: {await rig.status(0, 0)}"
    await rig.ends_in(Reason.EPOCH_EARLY, 0, 8)


@ScoreboardRig.test()
async def forget_opens_any_epoch(rig, cfg, rng):
    """After FORGET a bank is as never opened: any epoch may come, and news of the first one waits
    for it."""
    await one_region(rig, expected=2)
    last = 0
    await rig.order(RegionOp.FORGET, 0, 0)  # of a bank that has none: nothing happens
    for turn in range(16):
        epoch = (last + rng.choice((0, 8, 10, 12, 14))) % 16
        if turn:
            await refused(rig, RegionOp.OPEN, 0, epoch)
        await rig.order(RegionOp.FORGET, 0, rng.choice((0, epoch)))
        await rig.drained()
        if turn & 1:  # news between FORGET and OPEN is early
            rig.put_close(0, epoch, 0)
            await rig.drained()
        await rig.open(0, epoch)
        await refused(rig, RegionOp.FORGET, 0, epoch)
        for src in range(turn & 1, 2):
            rig.put_close(0, epoch, src)
        await rig.ends_well(0, epoch)
        last = epoch


@ScoreboardRig.test()
async def forget_drops_no_news_unseen(rig, cfg, rng):
    """What a bank keeps for an epoch to come is dropped by FORGET, and that epoch ends in ERROR,
    once."""
    await one_region(rig, expected=2)
    await pass_epoch(rig, 0, 0)
    for first, epoch in ((0, 2), (2, 4), (4, 8)):
        assert rig.model.banks[0, 0].last == first
        rig.put_close(0, epoch, 0)
        await rig.drained()
        await rig.order(RegionOp.FORGET, 0, 0)
        await rig.open(0, epoch)
        await rig.ends_in(Reason.EPOCH_EARLY, 0, epoch)
        await rig.order(RegionOp.FORGET, 0, 0)  # the mark is used up
        await pass_epoch(rig, 0, epoch)
    assert rig.counts["tainted"] == 3


@ScoreboardRig.test()
async def late_news_spoil_nothing(rig, cfg, rng):
    """Closes of aborted epochs come late, after the next ones: epochs that go on two by two are
    good, round after round."""
    await one_region(rig, expected=2)
    for turn in range(24):
        epoch = 2 * turn % 16
        await rig.open(0, epoch)
        rig.close_all(0, epoch)
        if turn % 3 == 2:
            await rig.ends_well(0, epoch)
            for behind in (2, 4, 6):
                rig.put_close(0, (epoch - behind) % 16, 1)
        else:
            await rig.drained()
            await rig.abort(0, epoch)
            rig.put_close(0, epoch, 0)
        await rig.drained()
    assert not rig.counts["tainted"] and rig.counts["close_stale"]


@ScoreboardRig.test()
async def marks_of_past_epochs_go(rig, cfg, rng):
    """An OPEN six ahead passes over an epoch of which news was lost: that mark is of the past, and
    the next epochs of these numbers are good, each number in each bank."""
    await one_region(rig)
    for lost in range(16):
        await rig.order(RegionOp.FORGET, 0, lost)
        await pass_epoch(rig, 0, (lost - 4) % 16)
        for early in (lost - 2, lost):
            rig.put_close(0, early % 16)
        await rig.drained()
        assert rig.model.banks[0, lost & 1].taints
        for later in (2, 8, 14, 16):
            await pass_epoch(rig, 0, (lost + later) % 16)
    assert not rig.counts["error"]


@ScoreboardRig.test()
async def news_directly_behind_news(rig, cfg, rng):
    """Refusals of a bank in successive cycles, two of them of an epoch at each distance, then one
    beside another of the other bank: each is kept, late or lost as it would be alone, and nothing
    else changes."""
    await one_region(rig)
    for epoch in range(16):
        await rig.order(RegionOp.FORGET, 0, epoch)
        await rig.open(0, epoch)
        for ahead in rng.sample(range(2, 16, 2), 7):
            await rig.drained()
            for number in (epoch, epoch + ahead, epoch + ahead, epoch + 1, epoch + ahead):
                rig.refuse(0, number % 16, 16)
        await rig.drained()
        await rig.check_status(0, epoch & 1)
        await rig.abort(0, epoch)
        await rig.check_status(0, epoch & 1)
        for name in ("early_kept", "tainted", "refused_stale"):
            assert rig.counts[name] == rig.model.counts[name], f"epoch {epoch}: {name}"


@ScoreboardRig.test()
async def many_bytes_before_open(rig, cfg, rng):
    """Refusals of an epoch to come, and tells of any size, add up exactly while its bank is FREE,
    and with it OPEN: the rows that are left make its ALL."""
    await rig.one_row(0)
    refusal = {"known": 1, "region": 0, "src": 0, "bytes": cfg.packet_bytes}
    for epoch in range(8):
        bank = epoch & 1
        for _ in range(2):
            await rig.pour([(rig.i_refused, refusal | {"epoch": epoch})], 300)
            await rig.drained()
            rig.model.counts["early_kept"] = rig.counts["early_kept"]  # nobody saw most of them
            await rig.check_status(0, bank)
        kept = rig.model.banks[0, bank].kept
        huge = 16 * (rng.getrandbits(30) if epoch & 1 else (1 << 30) - 1)
        rig.put_tell(0, epoch, 0, 16 + kept.refused if epoch & 2 else huge)
        await rig.drained()
        await rig.check_status(0, bank)
        rig.put_tell(0, epoch, 1)
        await rig.drained()
        await rig.check_status(0, bank)
        await rig.open(0, epoch, 1)
        await rig.drained()
        await rig.check_status(0, bank)
        if epoch & 2:
            rig.put_ack(bank=bank, bytes=16)
            rig.put_news(0, epoch, 0, close=1)
            final = await rig.end(0, epoch)
            assert (final["kind"], final["rows"], final["refused"]) == (EventKind.ALL, 1, 1)
        else:
            await rig.abort(0, epoch)


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def rows_brought_before_open(rig, cfg, rng):
    """A primary with rows in its overflow region ends before that is opened: bytes and rows are
    kept for the OPEN."""
    over = cfg.regions - 1
    await rig.one_row(over, group_base=cfg.groups - 1)
    await rig.one_row(0, overflow_en=1, overflow=over)
    for epoch, more in enumerate(1 << bit for bit in range(cfg.capacity.bit_length())):
        bank = epoch & 1
        await rig.open(0, epoch, 1 + more)
        for place, group, rows in ((0, 0, 1), (over, cfg.groups - 1, more)):
            for _ in range(rows):
                rig.put_ack(region=0, place=place, bank=bank, group=group, bytes=16)
        rig.put_close(0, epoch, sent=16 * (1 + more))
        await rig.ends_well(0, epoch)
        await rig.check_status(over, bank)
        await rig.open(over, epoch)
        status = await rig.check_status(over, bank)
        assert (status["rows"], status["sent"]) == (more, 16 * more)
        await rig.abort(over, epoch)


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def many_bytes_elsewhere(rig, cfg, rng):
    """Bytes of a region that lie in its overflow region add up exactly, and change nothing else of
    its book, look after look."""
    over = cfg.regions - 1
    await rig.one_row(0)
    await rig.one_row(over, group_base=cfg.groups - 1)
    context = {"region": 0, "place": over, "group": cfg.groups - 1, "bytes": cfg.packet_bytes}
    for epoch in (0, 1):
        await rig.open(0, epoch)
        item = {"context": {"counted": 1, "bank": epoch, **context}, "ok": 1}
        for cycles in (100, 200, 300):
            await rig.pour([(rig.i_ack[0], item)], cycles)
            for size in (1, 2, 16):
                await rig.drained()
                await rig.check_status(0, epoch)
                rig.put_ack(**context | {"bank": epoch, "bytes": size})
        await rig.drained()
        await rig.abort(0, epoch)


async def open_all(rig, epoch, share):
    """Regions with as many one-row tiles each; every bank is open and has its rows."""
    for region in range(rig.cfg.regions):
        few = {"row_bytes": 16, "log2_tile": 0, "capacity": share}
        await rig.set_geometry(region, group_base=region * share, **few)
    for region, bank in rig.keys:
        await rig.open(region, epoch + bank, share)


@ScoreboardRig.test()
async def nothing_is_taken_while_clearing(rig, cfg, rng):
    """A reset while everything waits: until all tables are cleared, in their time, no input is
    taken; then each tile and book counts from 0."""
    share = min(cfg.groups // cfg.regions, cfg.capacity)
    for _ in range(6):
        await open_all(rig, 0, share)
        for n in range(40 * cfg.slices):
            group = n % (share * cfg.regions)
            key = {"group": group, "bank": n // 3 % 2, "region": group // share}
            rig.put_ack(**key, bytes=1 + n % 16, slice_=n % cfg.slices)
        for region, bank in rig.keys:
            for _ in range(12):
                rig.refuse(region, bank, 16)
                rig.put_tell(region, bank, 0, 16)
        await rig.cycles(rng.randint(10, 50))
        rig.forget()
        await rig.reset()
        for source in rig.i_ack:
            source.put({"context": {"counted": 1}, "ok": 1})
        rig.i_refused.put({"known": 0})
        rig.put_tell(cfg.regions, 0)
        clearing = []
        rig.on_sample(lambda now, seen=clearing: seen.append(now) if rig.get("clearing") else None)
        await rig.until(lambda: not rig.get("clearing"), what="cleared")
        took, limit = len(clearing), 2 * max(cfg.groups, cfg.regions)
        assert 0 <= took - limit <= 1, f"cleared in {took} cycles, not in {limit}"
        await rig.drained()
        for source in (*rig.i_ack, rig.i_refused, rig.i_news):
            assert source.stamps[-1] > clearing[-1], f"{source.name} was taken while clearing"
        await open_all(rig, 2, share)
        for region, bank in rig.keys:
            for slot in range(share):
                for size in (5, 11):
                    group = region * share + slot
                    rig.put_ack(region=region, bank=bank, group=group, bytes=size)
        await rig.drained()
        for region, bank in rig.keys:
            await rig.check_status(region, bank)
            rig.put_close(region, 2 + bank, sent=16 * share)
            await rig.ends_well(region, 2 + bank)
            await rig.order(RegionOp.FORGET, region, bank)
