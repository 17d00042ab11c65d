# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: what a region whose rows overflow tells the region that
has them."""

from hub_rtl.contract.packets import EventKind, Reason
from sim.quality.coverage import cover

from .rig import ScoreboardRig
from .tells import FITS, LATE, ROW, is_ready, nothing_comes, put_rows, set_region

TWO = {"fits": lambda cfg: FITS["fits"](cfg) and cfg.regions > 1}


def ways(cfg):
    """(bank's epoch, primary, its overflow region), each of a pair in both parts."""
    last = cfg.regions - 1
    return [(0, 0, last), (1, last, 0), (2, last, 0), (3, 0, last)]


async def set_pair(rig, primary, over, **fields):
    """A primary in tiles of four rows with one producer, and its overflow region with two."""
    await set_region(rig, over, group_base=2)
    await set_region(rig, primary, expected=1, overflow_en=1, overflow=over, **fields)


@ScoreboardRig.test(**TWO)
async def overflow_region_is_told(rig, cfg, rng):
    """A primary whose rows fit tells its overflow region 0 at once: a last tile there does not wait
    for the primary's end. One whose rows may not fit tells with its end."""
    over = cfg.regions - 1
    await set_region(rig, over, group_base=2)
    await set_region(rig, 0, rows=2, capacity=2, expected=1, overflow_en=1, overflow=over)
    for turn in range(8):
        epoch, bank, count = turn, turn & 1, rig.o_event.count
        fits = turn % 3 < 2
        await rig.open(over, epoch, 1 if fits else 2)
        await rig.open(0, epoch, 2 if fits else 3)
        rig.put_tell(over, epoch, 1, ROW)
        rig.put_tell(0, epoch, 0, (2 if fits else 3) * ROW)
        put_rows(rig, bank, [ROW], group=2, region=over)
        if not fits:
            put_rows(rig, bank, [ROW], group=2, region=0, place=over)
            await nothing_comes(rig, count)
        else:
            await is_ready(rig, count + 1, 1)
        status, *_ = await rig.status(over, bank)
        assert (status["told"], status["closes"]) == (1 + fits, 0)
        put_rows(rig, bank, [ROW, ROW])
        rig.put_news(0, epoch, 0, close=1)
        await rig.final(0, bank)
        rig.put_news(over, epoch, 1, close=1)
        final = await rig.final(over, bank)
        assert (final["kind"], final["rows"]) == (EventKind.ALL, 1 if fits else 2)
        await rig.release(0, epoch)
        await rig.release(over, epoch)
        cover(f"scoreboard.overflow.{'told_0' if fits else 'told_late'}")


@ScoreboardRig.test(fits=lambda cfg: FITS["fits"](cfg) and cfg.regions > 1 and cfg.capacity <= 64)
async def rest_of_a_region_that_overflows(rig, cfg, rng):
    """A full region whose slots make no full tile: READY with its last byte when all its slots are
    given out, however many rows went on to its overflow region; not while one is missing."""
    over, full = cfg.regions - 1, cfg.capacity
    shape = {"rows": 1 << full.bit_length(), "capacity": full, "expected": 1}
    await set_region(rig, over, group_base=1, **shape | {"expected": 2})
    await set_region(rig, 0, overflow_en=1, overflow=over, **shape)
    for epoch, more in enumerate((0, 1, full, -1, full - 1)):
        bank, count = epoch & 1, rig.o_event.count
        rig.model.rows[over, bank] = max(0, more)
        await rig.open(over, epoch)
        await rig.open(0, epoch, full + more)
        rig.put_tell(0, epoch, 0, max(full, full + more) * ROW)
        put_rows(rig, bank, full * [ROW])
        if more < 0:
            await nothing_comes(rig, count)
            await rig.abort(0, epoch)
            await rig.abort(over, epoch)
            continue
        await is_ready(rig, count + 1, full)
        put_rows(rig, bank, more * [ROW], group=1, region=0, place=over)
        rig.put_news(0, epoch, 0, close=1)
        await rig.ends_well(0, epoch)
        rig.put_close(over, epoch, 0)
        await rig.ends_well(over, epoch)
        cover("scoreboard.rest.overflowed", more > 0)


@ScoreboardRig.test(**TWO)
async def told_once_by_a_primary(rig, cfg, rng):
    """What a primary tells its overflow region counts once, with its aim and its end: a last tile
    there waits for the producer that is still to tell."""
    over = cfg.regions - 1
    await set_region(rig, over, group_base=2, expected=3)
    await set_region(rig, 0, rows=2, capacity=2, expected=1, overflow_en=1, overflow=over)
    for epoch in range(4):
        bank = epoch & 1
        await rig.open(over, epoch, 1)
        await rig.open(0, epoch, 2)
        rig.put_tell(over, epoch, 1, ROW)
        rig.put_tell(0, epoch, 0, 2 * ROW)
        await rig.drained()
        await rig.cycles(LATE)  # it is told that nothing comes
        put_rows(rig, bank, [ROW], group=2, region=over)
        put_rows(rig, bank, [ROW, ROW])
        rig.put_news(0, epoch, 0, close=1)
        await rig.ends_well(0, epoch)
        await nothing_comes(rig, rig.o_event.count)
        status, *_ = await rig.status(over, bank)
        assert (status["told"], status["closes"]) == (2, 1)
        count = rig.o_event.count
        rig.put_tell(over, epoch, 0)
        await is_ready(rig, count + 1, 1)
        for src in (0, 1):
            rig.put_news(over, epoch, src, close=1)
        await rig.ends_well(over, epoch)
        cover("scoreboard.overflow.told_once")


@ScoreboardRig.test(**TWO)
async def torn_rows_elsewhere(rig, cfg, rng):
    """All bytes of a primary came, but those in its overflow region are no number of rows: ERROR
    INCOMPLETE there and here, whichever of the two has the higher number."""
    for epoch, primary, over in ways(cfg):
        bank = epoch & 1
        await set_pair(rig, primary, over, capacity=3)
        await rig.open(over, epoch, 1)
        await rig.open(primary, epoch, 4)
        put_rows(rig, bank, [ROW, ROW, 16], region=primary)
        put_rows(rig, bank, [ROW, 16], group=2, region=primary, place=over)
        rig.put_close(primary, epoch, 0, 4 * ROW)
        await rig.ends_in(Reason.INCOMPLETE, primary, epoch)
        await rig.ends_in(Reason.INCOMPLETE, over, epoch)
        cover("scoreboard.overflow.torn")


@ScoreboardRig.test(**TWO)
async def rows_elsewhere_against_the_word(rig, cfg, rng):
    """A primary whose rows fit has told its overflow region 0, then a row of its lies there: the
    primary is whole, the other in ERROR OVERLAP."""
    for epoch, primary, over in ways(cfg):
        bank, count = epoch & 1, rig.o_event.count
        await set_pair(rig, primary, over)
        await rig.open(over, epoch, 1)
        await rig.open(primary, epoch, 3)
        rig.put_tell(primary, epoch, 0, 3 * ROW)
        await nothing_comes(rig, count)
        assert (await rig.check_status(over, bank))["told"] == 1
        put_rows(rig, bank, [ROW, ROW], region=primary)
        put_rows(rig, bank, [ROW], group=2, region=primary, place=over)
        await nothing_comes(rig, count)
        rig.put_news(primary, epoch, 0, close=1)
        final = await rig.end(primary, epoch)
        assert (final["kind"], final["rows"]) == (EventKind.ALL, 2), final
        await rig.ends_in(Reason.OVERLAP, over, epoch)
        cover("scoreboard.overflow.against_the_word")
