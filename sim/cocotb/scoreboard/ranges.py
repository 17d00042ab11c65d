# SPDX-License-Identifier: Apache-2.0
"""Scoreboard: orders to a range of regions, and what meets them."""

from hub_rtl.contract.packets import Reason, RegionOp, RegionState
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .moments import gated_acks
from .rig import ScoreboardRig
from .traffic import setup_regions


async def rest(rig):
    """Until no order is under way."""
    await rig.until(lambda: not rig.ordered and not rig.reopens, what="the end of an order")
    await rig.drained()


async def complete(rig, region, epoch):
    """An epoch of one row, up to its ALL."""
    geometry, bank = rig.geometry[region], epoch & 1
    total = geometry["row_bytes"]
    await rig.open(region, epoch, 1)
    for at in range(0, total, rig.cfg.packet_bytes):
        size = min(total - at, rig.cfg.packet_bytes)
        rig.put_ack(region=region, bank=bank, group=geometry["group_base"], bytes=size)
    for src in range(geometry["expected"]):
        rig.put_close(region, epoch, src, total if src == 0 else 0)
    await rig.final(region, bank)


@ScoreboardRig.test(grid=GRID)
async def ranges_turn_over(rig, cfg, rng, grid):
    """Every range of regions is given back and opened again with one order, in every second cycle
    of which news of the next epoch comes: each bank is FREE, then OPEN, and its tiles count from
    0."""
    await setup_regions(rig, expected=1)
    regions = range(cfg.regions)
    for epoch in (0, 1, 2, 3):
        for region in regions:
            if rig.state[region, epoch & 1] == RegionState.FREE:
                await complete(rig, region, epoch)
        await rig.drained()
        first = rng.randrange(cfg.regions)
        last = rng.randrange(first, cfg.regions)
        early = rng.sample(regions, min(cfg.regions, 3))
        await rig.order(RegionOp.RELEASE, first, epoch, last, again=1)
        for region in early:
            await rig.cycles(rng.randrange(12))
            rig.put_tell(region, (epoch + 2) % 16, sent=rig.geometry[region]["row_bytes"])
        await rest(rig)
        for region in regions:
            opened = first <= region <= last
            assert rig.state[region, epoch & 1] == (
                RegionState.OPEN if opened else RegionState.DONE
            ), f"region {region} after an order to {first} .. {last}"
            if not opened:
                await rig.release(region, epoch)
                await rig.open(region, (epoch + 2) % 16)
        for region in regions:
            bank = epoch & 1
            total = rig.geometry[region]["row_bytes"]
            rig.model.rows[region, bank] = 1
            for at in range(0, total, cfg.packet_bytes):
                size = min(total - at, cfg.packet_bytes)
                group = rig.geometry[region]["group_base"]
                rig.put_ack(region=region, bank=bank, group=group, bytes=size)
            rig.put_news(
                region,
                (epoch + 2) % 16,
                sent=0 if region in early else total,
                tell=region not in early,
                close=1,
            )
        for region in regions:
            await rig.final(region, epoch & 1)
        await rig.drained()
        await rig.order(RegionOp.RELEASE, 0, (epoch + 2) % 16, cfg.regions - 1)
        await rest(rig)
        await forget(rig, epoch)
        cover("scoreboard.range.again", last > first)
        cover("scoreboard.range.early_news")


async def forget(rig, epoch):
    """All banks of this parity are as never opened."""
    await rig.order(RegionOp.FORGET, 0, epoch, rig.cfg.regions - 1)
    await rig.drained()


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def ranges_split(rig, cfg, rng):
    """A range of banks that are FREE, OPEN with tiles there and not, OPEN in another epoch, and
    DONE: those whose order is not possible are reported in their turn and stay what they are, with
    their bytes and events; the others are given back."""
    await setup_regions(rig, expected=1)
    for _ in range(12):
        kinds = {
            region: rng.choice(("free", "open", "late", "done")) for region in range(cfg.regions)
        }
        for region, kind in kinds.items():
            if kind == "done":
                await pass_no_release(rig, region)
            elif kind != "free":
                await rig.open(region, 0 if kind == "open" else 2, 1)
                put_row(rig, region)
        await rig.drained()
        op = rng.choice((RegionOp.RELEASE, RegionOp.ABORT))
        gives = ("done",) if op == RegionOp.RELEASE else ("done", "open")
        before = dict(rig.state)
        await rig.order(op, 0, 0, cfg.regions - 1)
        await rest(rig)
        await rig.cycles(100)
        split = 0
        for region, kind in kinds.items():
            given = kind in gives
            split += not given and 0 < region < cfg.regions - 1
            wanted = RegionState.FREE if given else before.get((region, 0), RegionState.FREE)
            assert rig.state[region, 0] == wanted, (
                f"region {region}, {kind}: {rig.state[region, 0]}"
            )
        cover("scoreboard.range.split", split > 0)
        for region, kind in kinds.items():
            if rig.state[region, 0] != RegionState.FREE:
                epoch = 2 if kind == "late" else 0
                rig.put_close(region, epoch, sent=rig.geometry[region]["row_bytes"])
                await rig.ends_well(region, epoch)
        await forget(rig, 0)


def put_row(rig, region):
    """One row of the even bank."""
    total, packet = rig.geometry[region]["row_bytes"], rig.cfg.packet_bytes
    for at in range(0, total, packet):
        group = rig.geometry[region]["group_base"]
        rig.put_ack(region=region, bank=0, group=group, bytes=min(total - at, packet))


async def pass_no_release(rig, region):
    """An epoch in which nobody sends anything, up to its ALL."""
    await rig.open(region, 0)
    rig.close_all(region, 0)
    await rig.final(region, 0)


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def ranges_with_overflow(rig, cfg, rng):
    """In the midst of a range a region that overflows and one into which it does: each goes by
    itself, the others together; all are opened again and pass their next epoch."""
    place = cfg.regions - 1
    await setup_regions(rig, expected=1, row_bytes=16)
    shape = {
        name: rig.geometry[place - 1][name] for name in ("group_base", "capacity", "log2_tile")
    }
    await rig.set_geometry(place - 1, row_bytes=16, overflow_en=1, overflow=place, **shape)
    for region in reversed(range(cfg.regions)):
        await rig.open(region, 0)
    for region in range(cfg.regions):
        if region != place:
            rig.close_all(region, 0)
    for epoch in (0, 2):
        for region in range(cfg.regions):
            await rig.final(region, 0)
        await rig.drained()
        await rig.order(RegionOp.RELEASE, 0, epoch, place, again=1)
        await rest(rig)
        for region in range(cfg.regions):
            assert rig.state[region, 0] == RegionState.OPEN
            if region != place:
                rig.close_all(region, epoch + 2)
    for region in range(cfg.regions):
        await rig.ends_well(region, 4)
    cover("scoreboard.range.overflow")


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 2)
async def range_with_a_host(rig, cfg, rng):
    """In the midst of a range stands the overflow region of one that is not of the range and still
    OPEN: that one ends in ERROR."""
    primary, place = cfg.regions - 1, rng.randrange(1, cfg.regions - 1)
    for region in range(primary):
        await rig.one_row(region, group_base=region)
    await rig.one_row(primary, group_base=primary, overflow_en=1, overflow=place)
    for epoch in (0, 2):
        for region in (place, *range(place), *range(place + 1, cfg.regions)):
            await rig.open(region, epoch)
        await rig.order(RegionOp.ABORT, 0, epoch, primary - 1)
        await rest(rig)
        await rig.ends_in(Reason.INCOMPLETE, primary, epoch)
    cover("scoreboard.range.host")


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1)
async def range_acknowledged_as_it_is_swept(rig, cfg, rng):
    """An acknowledgement of a bank of a run is taken in each cycle around ``quiesce`` and the
    sweep: nothing of it is left in the epoch that is opened again."""
    total, last = 2 * 16, cfg.regions - 1
    gate, strobes = gated_acks(rig)
    rig.surroundings.prompt()
    for region in range(cfg.regions):
        await rig.one_row(region, group_base=region, row_bytes=total)
    met = set()
    for behind in range(1, 25):
        epoch, at = 4 * behind % 16, behind % cfg.slices
        for region in range(cfg.regions):
            await rig.open(region, epoch, 1)
        gate.update({"from": None, "behind": behind})
        met_by = rng.randrange(cfg.regions)
        rig.put_ack(region=met_by, bank=0, group=met_by, bytes=16, slice_=at)
        await rig.order(RegionOp.ABORT, 0, epoch, last, again=1)
        await rest(rig)
        met.add(rig.i_ack[at].stamps[-1] - strobes[-1])
        for region in range(cfg.regions):
            rig.model.rows[region, 0] = 1
            rig.put_ack(region=region, bank=0, group=region, bytes=16)
            rig.put_close(region, epoch + 2, 0, total)
        await rig.drained()
        await rig.cycles(60)
        for region in range(cfg.regions):
            assert rig.state[region, 0] == RegionState.OPEN, f"region {region}: bytes were left"
        await rig.order(RegionOp.ABORT, 0, epoch + 2, last)
        await rest(rig)
    assert {-1, 0, 1} <= met, f"distances from quiesce: {sorted(met)}"
    cover("scoreboard.range.ack_in_sweep")
