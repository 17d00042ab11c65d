# SPDX-License-Identifier: Apache-2.0
"""Scoreboard: which epochs a bank may be opened for, and news that is dropped for its epoch."""

from hub_rtl.contract.packets import Reason, RegionOp, RegionState

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
