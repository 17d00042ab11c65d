# SPDX-License-Identifier: Apache-2.0
"""Scoreboard: which epochs a bank may be opened for, and news that is dropped for its epoch."""

import cocotb

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState

from .rig import make
from .traffic import one_region


async def pass_epoch(rig, region, epoch):
    """An epoch in which nobody sends anything."""
    await rig.open(region, epoch)
    rig.close_all(region, epoch)
    assert (await rig.end(region, epoch))["kind"] == EventKind.ALL


async def refused(rig, op, region, epoch):
    """An order that is not possible: reported, and the bank stays what it is."""
    before = rig.state[region, epoch & 1]
    await rig.order(op, region, epoch)
    await rig.drained()
    assert rig.state[region, epoch & 1] == before, f"{op} of epoch {epoch} was carried out"
    assert rig.errors[-1] == "reported"


@cocotb.test()
async def skipped_epochs_do_not_hang(dut):
    """A close that came ten epochs early is lost: its epoch is not opened as if nothing were, and
    ends in ERROR."""
    rig, _, _, _ = make(dut, "skipped")
    await rig.start()
    await one_region(rig, expected=2)
    await pass_epoch(rig, 0, 0)
    rig.put_close(0, 10, 0)
    await rig.drained()
    await refused(rig, RegionOp.OPEN, 0, 10)
    await rig.order(RegionOp.FORGET, 0, 10)
    await rig.open(0, 10)
    rig.put_close(0, 10, 1)
    final = await rig.final(0, 0)
    assert (final["kind"], final["status"]) == (EventKind.ERROR, Reason.EPOCH_EARLY)
    await rig.drained()
    await rig.give_back(RegionOp.RELEASE, 0, 10)
    await rig.finish()


@cocotb.test()
async def past_epochs_are_not_opened(dut):
    """A bank goes forward by two, four or six epochs; the epoch just over, those before and those
    too far are refused."""
    rig, _, _, _ = make(dut, "past")
    await rig.start()
    await one_region(rig)
    last = 6
    await pass_epoch(rig, 0, last)
    for step in (2, 4, 6, 2):
        for wrong in (0, 8, 10, 12, 14):
            await refused(rig, RegionOp.OPEN, 0, (last + wrong) % 16)
        last = (last + step) % 16
        await pass_epoch(rig, 0, last)
    assert rig.state[0, 0] == RegionState.FREE
    await rig.finish()


@cocotb.test()
async def dropped_close_taints(dut):
    """A close that came eight epochs early is dropped; when its epoch's turn comes, it ends in
    ERROR and does not hang."""
    rig, _, _, _ = make(dut, "dropped")
    await rig.start()
    await one_region(rig, expected=2)
    await pass_epoch(rig, 0, 0)
    rig.put_close(0, 8, 0)
    await rig.drained()
    for epoch in (2, 4, 6):
        await pass_epoch(rig, 0, epoch)
    await rig.open(0, 8)
    rig.put_close(0, 8, 1)
    await rig.drained()
    await rig.bench.cycles(200)
    assert rig.state[0, 0] == RegionState.DONE, f"it hangs: {await rig.status(0, 0)}"
    final = await rig.final(0, 0)
    assert (final["kind"], final["status"]) == (EventKind.ERROR, Reason.EPOCH_EARLY)
    await rig.give_back(RegionOp.RELEASE, 0, 8)
    await rig.finish()


@cocotb.test()
async def forget_opens_any_epoch(dut):
    """After FORGET a bank is as never opened: any epoch may come, and news of the first one waits
    for it."""
    rig, _, _, rng = make(dut, "forget")
    await rig.start()
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
        assert (await rig.end(0, epoch))["kind"] == EventKind.ALL
        last = epoch
    await rig.finish()


@cocotb.test()
async def forget_drops_no_news_unseen(dut):
    """What a bank keeps for an epoch to come is dropped by FORGET, and that epoch ends in ERROR,
    once."""
    rig, _, _, _ = make(dut, "forget_news")
    await rig.start()
    await one_region(rig, expected=2)
    await pass_epoch(rig, 0, 0)
    for first, epoch in ((0, 2), (2, 4), (4, 8)):
        assert rig.model.banks[0, 0].last == first
        rig.put_close(0, epoch, 0)
        await rig.drained()
        await rig.order(RegionOp.FORGET, 0, 0)
        await rig.open(0, epoch)
        final = await rig.end(0, epoch)
        assert (final["kind"], final["status"]) == (EventKind.ERROR, Reason.EPOCH_EARLY)
        await rig.order(RegionOp.FORGET, 0, 0)  # the mark is used up
        await pass_epoch(rig, 0, epoch)
    assert rig.counts["tainted"] == 3
    await rig.finish()


@cocotb.test()
async def late_news_spoil_nothing(dut):
    """Closes of aborted epochs come late, after the next ones: epochs that go on two by two are
    good, round after round."""
    rig, _, _, _ = make(dut, "late")
    await rig.start()
    await one_region(rig, expected=2)
    for turn in range(24):
        epoch = 2 * turn % 16
        await rig.open(0, epoch)
        rig.close_all(0, epoch)
        if turn % 3 == 2:
            assert (await rig.end(0, epoch))["kind"] == EventKind.ALL
            for behind in (2, 4, 6):
                rig.put_close(0, (epoch - behind) % 16, 1)
        else:
            await rig.drained()
            await rig.give_back(RegionOp.ABORT, 0, epoch)
            rig.put_close(0, epoch, 0)
        await rig.drained()
    assert not rig.counts["tainted"] and rig.counts["close_stale"]
    await rig.finish()
