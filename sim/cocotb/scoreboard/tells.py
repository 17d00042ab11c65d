# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: tells before data, the last tile that waits for no
close, closes that say how a word was kept."""

from itertools import permutations

from hub_rtl.contract.packets import EventKind, Reason
from sim.quality.coverage import cover

from .rig import ScoreboardRig

ROW = 32  # bytes of a row
FITS = {"fits": lambda cfg: cfg.capacity >= 4 and cfg.max_row_bytes >= ROW}
SOON = 26  # cycles from the byte that completes the last tile to its READY
ENDED = 34  # cycles from the last byte or close to ALL, when the aim is known
LATE = 110  # cycles in which an aim is found


async def set_region(rig, region=0, rows=4, **fields):
    """A region with tiles of ``rows`` rows and two producers."""
    few = {"row_bytes": ROW, "log2_tile": rows.bit_length() - 1, "capacity": 4, "expected": 2}
    await rig.set_geometry(region, **few | fields)


def put_rows(rig, bank, sizes, group=0, **more):
    """Acknowledgements of so many bytes each in one tile, all through one slice."""
    for size in sizes:
        rig.put_ack(bank=bank, group=group, bytes=size, slice_=0, **more)


async def is_ready(rig, count, rows):
    """So many READYs have come, the last one with so many rows; no close was needed."""
    await rig.until(lambda: rig.o_event.count >= count, LATE, "READY of the last tile")
    item = rig.o_event.items[-1]
    assert rig.o_event.count == count and (item["kind"], item["rows"]) == (EventKind.READY, rows)


async def nothing_comes(rig, count):
    await rig.drained()
    await rig.cycles(LATE)
    assert rig.o_event.count == count, f"too early: {rig.o_event.items[count:]}"


@ScoreboardRig.test(**FITS)
async def rest_before_closes(rig, cfg, rng):
    """The last tile is READY soon after its last byte when all have told, ALL soon after the last
    close; with all closed before, ALL soon after the last byte."""
    await set_region(rig)
    waits = {"rest": set(), "all": set(), "all at once": set()}
    for epoch in range(12):
        bank, count = epoch & 1, rig.o_event.count
        rows = rng.randint(1, 3)
        await rig.open(0, epoch, rows)
        rig.put_tell(0, epoch, 1, (rows - 1) * ROW)
        rig.put_tell(0, epoch, 0, ROW)
        await nothing_comes(rig, count)
        if epoch % 3 == 2:
            for src in (0, 1):
                rig.put_news(0, epoch, src, close=1)
            await rig.drained()
        put_rows(rig, bank, rows * [ROW])
        await rig.until(lambda n=count: rig.o_event.count > n, LATE, "READY of the last tile")
        waits["rest"].add(rig.o_event.stamps[count] - rig.i_ack[0].stamps[-1])
        if epoch % 3 == 2:
            await rig.final(0, bank)
            waits["all at once"].add(rig.o_event.stamps[-1] - rig.i_ack[0].stamps[-1])
        else:
            await is_ready(rig, count + 1, rows)
            await nothing_comes(rig, count + 1)
            for src in (0, 1):
                rig.put_news(0, epoch, src, close=1)
            await rig.final(0, bank)
            waits["all"].add(rig.o_event.stamps[-1] - rig.i_news.stamps[-1])
        await rig.ends_well(0, epoch)
        cover("scoreboard.rest.early")
    rig.dut._log.info(f"cycles to READY of the last tile, and to ALL: {waits}")
    assert max(waits["rest"]) <= SOON and max(waits["all"] | waits["all at once"]) <= ENDED, waits


@ScoreboardRig.test(**FITS)
async def rest_in_each_order(rig, cfg, rng):
    """The last tell, byte and refusal of an epoch in each order and distance: the last tile is
    READY once, without a close."""
    await set_region(rig)
    turn = 0
    for order in permutations(("tell", "ack", "refusal")):
        for gap in (0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 20, 30, 40, 50):
            epoch, turn = turn % 16, turn + 1
            bank, count = epoch & 1, rig.o_event.count
            await rig.open(0, epoch, 2)
            rig.put_tell(0, epoch, 1, 2 * ROW)
            await rig.drained()
            for kind in order:
                if kind == "ack":
                    put_rows(rig, bank, [ROW, ROW])
                elif kind == "refusal":
                    rig.refuse(0, epoch, ROW)
                else:
                    rig.put_tell(0, epoch, 0, ROW)
                await rig.cycles(gap)
            await is_ready(rig, count + 1, 2)
            for src in (0, 1):
                rig.put_news(0, epoch, src, close=1)
            await rig.ends_well(0, epoch)
            cover(f"scoreboard.rest.{'_'.join(order)}")


@ScoreboardRig.test(**FITS)
async def rest_needs_all_slots(rig, cfg, rng):
    """Rows that lack bytes have as many as fewer whole ones: nothing is READY."""
    await set_region(rig)
    for epoch in range(6):
        count = rig.o_event.count
        await rig.open(0, epoch, 3)
        rig.put_close(0, epoch, 0, 2 * ROW)
        rig.put_tell(0, epoch, 1, ROW)
        put_rows(rig, epoch & 1, [ROW, ROW // 2, ROW // 2])
        rig.refuse(0, epoch, ROW)
        await nothing_comes(rig, count)
        rig.put_news(0, epoch, 1, close=1)
        await rig.ends_in(Reason.INCOMPLETE, 0, epoch)
        assert rig.o_event.count == count + 1
        cover("scoreboard.rest.slots_missing")


@ScoreboardRig.test(**FITS)
async def parts_of_rows_have_no_rest(rig, cfg, rng):
    """What was told is no number of rows: however many lie there whole, they are no last tile."""
    await set_region(rig)
    for turn in range(12):
        epoch, count, rows = turn, rig.o_event.count, 1 + turn % 3
        await rig.open(0, epoch, rows)
        put_rows(rig, epoch & 1, rows * [ROW])
        rig.put_tell(0, epoch, 0, rows * ROW)
        rig.put_tell(0, epoch, 1, 16)
        await nothing_comes(rig, count)
        await rig.check_status(0, epoch & 1)
        await rig.abort(0, epoch)
        cover("scoreboard.rest.torn")


@ScoreboardRig.test(**FITS)
async def rest_of_a_full_region(rig, cfg, rng):
    """A region that is full has its last tile, whatever is refused beyond: whole rows or torn."""
    await set_region(rig, rows=2, capacity=3)
    for epoch in range(6):
        count, torn = rig.o_event.count, ROW // 2 if epoch & 1 else 0
        await rig.open(0, epoch, 3)
        for src in (0, 1):
            rig.put_tell(0, epoch, src, (3 - src) * ROW)
        put_rows(rig, epoch & 1, [ROW, ROW])
        put_rows(rig, epoch & 1, [ROW], group=1)
        if torn:
            rig.refuse(0, epoch, torn)
        await is_ready(rig, count + 2, 1)
        rig.refuse(0, epoch, 2 * ROW - torn - 16)
        rig.refuse(0, epoch, 16)
        for src in (0, 1):
            rig.put_news(0, epoch, src, close=1)
        await rig.ends_well(0, epoch)
        cover("scoreboard.rest.full")


@ScoreboardRig.test(**FITS)
async def refused_behind_the_rest(rig, cfg, rng):
    """Rows beyond a full region are refused one by one when its last tile has been announced: it is
    not announced again."""
    await set_region(rig, rows=2, capacity=3)
    for epoch in range(4):
        count = rig.o_event.count
        await rig.open(0, epoch, 3)
        for src in (0, 1):
            rig.put_tell(0, epoch, src, (3 - src) * ROW)
        put_rows(rig, epoch & 1, [ROW, ROW])
        put_rows(rig, epoch & 1, [ROW], group=1)
        await is_ready(rig, count + 2, 1)
        for size in (ROW, 16, ROW - 16):
            rig.refuse(0, epoch, size)
            await nothing_comes(rig, count + 2)
        for src in (0, 1):
            rig.put_news(0, epoch, src, close=1)
        await rig.ends_well(0, epoch)
        cover("scoreboard.rest.told_once")


@ScoreboardRig.test(**FITS)
async def row_behind_the_rest(rig, cfg, rng):
    """A row more in a tile that was announced as the last: ERROR OVERLAP, never ALL."""
    await set_region(rig)
    for epoch in range(6):
        count = rig.o_event.count
        await rig.open(0, epoch, 1)
        for src in (0, 1):
            rig.put_tell(0, epoch, src, src * ROW)
        put_rows(rig, epoch & 1, [ROW])
        await is_ready(rig, count + 1, 1)
        rig.model.rows[0, epoch & 1] = 2
        put_rows(rig, epoch & 1, [ROW])
        await rig.ends_in(Reason.OVERLAP, 0, epoch)
        cover("scoreboard.rest.liar")


@ScoreboardRig.test(**FITS)
async def told_while_in_use(rig, cfg, rng):
    """Tells, closes and refusals of the next epoch come while the bank is in use: they count in
    that one, and its last tile waits for nothing."""
    await set_region(rig)
    await rig.open(0, 0, 0)
    for turn in range(12):
        epoch, after = 2 * turn % 16, (2 * turn + 2) % 16
        for src in (0, 1):
            rig.put_tell(0, after, src, ROW)
        if turn & 1:
            rig.put_news(0, after, 1, close=1)
        rig.refuse(0, after, ROW)
        await rig.drained()
        await rig.check_status(0, 0)
        known = turn > 0  # the tells of this epoch came in the one before
        for src in (0, 1):
            closed = known and src and not turn & 1
            rig.put_news(0, epoch, src, tell=int(not known), close=int(not closed))
        await rig.ends_well(0, epoch)
        await rig.check_status(0, 0)
        count = rig.o_event.count
        await rig.open(0, after, 1)
        put_rows(rig, 0, [ROW])
        await is_ready(rig, count + 1, 1)
        cover("scoreboard.next.in_use")
    assert not rig.counts["tainted"] and rig.counts["told_twice"] == 0


@ScoreboardRig.test(**FITS)
async def told_twice_counts_once(rig, cfg, rng):
    """A second tell changes nothing and is counted, whatever it says."""
    await set_region(rig)
    for epoch in range(8):
        count = rig.o_event.count
        await rig.open(0, epoch, 2)
        for size in (ROW, 3 * ROW):
            rig.put_tell(0, epoch, 0, size)
        rig.put_tell(0, epoch, 1, ROW)
        put_rows(rig, epoch & 1, [ROW, ROW])
        await is_ready(rig, count + 1, 2)
        for src in (0, 1):
            rig.put_close(0, epoch, src, 16)  # these have told
        await rig.ends_well(0, epoch)
    assert rig.counts["told_twice"] == 24
    cover("scoreboard.tell.twice")


@ScoreboardRig.test(**FITS)
async def all_waits_for_closes(rig, cfg, rng):
    """All that was told has come: no ALL before the last close, for it may say otherwise."""
    await set_region(rig)
    for epoch in range(8):
        await rig.open(0, epoch, 4)
        for src in (0, 1):
            rig.put_tell(0, epoch, src, 2 * ROW)
        put_rows(rig, epoch & 1, 4 * [ROW])
        await rig.drained()
        rig.put_news(0, epoch, 0, close=1)
        await rig.drained()
        await nothing_comes(rig, rig.o_event.count)
        _, missing, silent = await rig.status(0, epoch & 1)
        assert (missing, silent) == ((1 << cfg.ranks) - 2, (1 << cfg.ranks) - 4)
        rig.put_news(0, epoch, 1, close=1, over=epoch & 1)
        if epoch & 1:
            await rig.ends_in(Reason.OVERLAP, 0, epoch)
        else:
            await rig.ends_well(0, epoch)
        cover("scoreboard.close.awaited")


@ScoreboardRig.test(**FITS)
async def words_are_blamed(rig, cfg, rng):
    """Closes that say that a word was broken end the epoch at once, early ones with its OPEN; the
    first of their producers is named."""
    await set_region(rig, expected=3)
    words = {"short": Reason.INCOMPLETE, "over": Reason.OVERLAP, "abort": Reason.INCOMPLETE}
    turn = 0
    for first, second in permutations(words, 2):
        for early in (0, 1):
            epoch, turn = turn % 16, turn + 1
            culprits = rng.sample(range(min(3, cfg.ranks)), 2)
            if not early:
                await rig.open(0, epoch)
            for src, word in zip(culprits, (first, second), strict=True):
                rig.put_news(0, epoch, src, close=1, **{word: 1})
            if early:
                await rig.drained()
                await rig.open(0, epoch)
            await rig.final(0, epoch & 1)
            await rig.drained()
            status, *_ = await rig.status(0, epoch & 1)
            assert status["blame"] == {"valid": 1, "rank": culprits[0]}, status
            await rig.ends_in(words[first], 0, epoch)
            cover(f"scoreboard.word.{first}")


@ScoreboardRig.test(**FITS)
async def more_are_expected(rig, cfg, rng):
    """While fewer have told and closed than the geometry expects, however many that are, nothing is
    said of the last tile and of the bank."""
    bits = range(2, rig.codec("geometry_write").unpack(-1)["geometry"]["expected"].bit_length())
    for turn, expected in enumerate([3, *((1 << bit) + n for bit in bits for n in (0, 1))]):
        epoch, count = turn % 16, rig.o_event.count
        await set_region(rig, expected=expected)
        await rig.open(0, epoch, 2)
        put_rows(rig, epoch & 1, [ROW, ROW])
        for src in (0, 1):
            rig.put_close(0, epoch, src, ROW)
        await nothing_comes(rig, count)
        await rig.check_status(0, epoch & 1)
        await rig.abort(0, epoch)
        cover("scoreboard.rest.more_expected")


@ScoreboardRig.test(**FITS)
async def more_is_told(rig, cfg, rng):
    """One row is there, so many more were told, by any bit of the sum: its tile is not the last."""
    await set_region(rig)
    for bit in range(5, 34):
        epoch, count = bit % 16, rig.o_event.count
        await rig.open(0, epoch, 1)
        put_rows(rig, epoch & 1, [ROW])
        rig.put_close(0, epoch, 0, ROW)
        rig.put_close(0, epoch, 1, 1 << bit)
        await nothing_comes(rig, count)
        await rig.check_status(0, epoch & 1)
        await rig.abort(0, epoch)
        cover("scoreboard.rest.more_told")


@ScoreboardRig.test(**FITS)
async def any_surplus_is_overlap(rig, cfg, rng):
    """One byte more than was told, or any number of them: ERROR OVERLAP with the last close."""
    await set_region(rig)
    for turn, surplus in enumerate([1, 2, 3, 4, 8, 15, 16, 17, 32, 64]):
        epoch = turn % 16
        await rig.open(0, epoch, 1)
        put_rows(rig, epoch & 1, [ROW])
        rig.refuse(0, epoch, surplus)
        rig.put_close(0, epoch, 0, ROW)
        await rig.drained()
        assert not rig.model.outstanding()
        rig.put_close(0, epoch, 1)
        await rig.ends_in(Reason.OVERLAP, 0, epoch)
        cover("scoreboard.surplus.told")


@ScoreboardRig.test(fits=lambda cfg: cfg.max_row_bytes >= 256)
async def surplus_is_not_in_the_tile(rig, cfg, rng):
    """Bytes too many for a tile are not counted there: as many again are too many again, whatever
    was there before."""
    few = cfg.packet_bytes
    await rig.set_geometry(0, row_bytes=2 * few, log2_tile=0, capacity=1, expected=1)
    for epoch, bit in enumerate(range(few.bit_length() - 1)):
        await rig.open(0, epoch, 1)
        before = rig.counts["overlaps"]
        for size in (few, 1 << bit, few, few):
            put_rows(rig, epoch & 1, [size])
            await rig.drained()
        assert rig.counts["overlaps"] == before + 2
        await rig.ends_in(Reason.OVERLAP, 0, epoch)
        cover("scoreboard.surplus.tile")
    assert not rig.counts["merges"]
