# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the decoder: stores of half a sector, and two events that meet at one
register."""

from hub_rtl.contract.packets import Reason
from sim.quality.coverage import cover

from .rig import DecoderRig

LOWER, UPPER = 0xFFFF, 0xFFFF0000


def whole_and_byte(rng, half):
    """All bytes of this half of a sector, and one of them."""
    at = rng.randrange(16) + (16 if half == UPPER else 0)
    return half, 1 << at


@DecoderRig.test(lane=0)
async def half_sectors(rig, cfg, rng):
    """Stores of the lower and of the upper unit of the last sectors of rows that end within a
    sector and with one."""
    longest = min(cfg.max_row_bytes, 512) // 16
    for units in range(1, longest + 1):
        await rig.write(0, rig.good_entry(row_bytes=16 * units))
        for sector in sorted({max(0, units // 2 + step) for step in (-1, 0, 1)}):
            for half in (LOWER, UPPER):
                for mask in whole_and_byte(rng, half):
                    before = len(rig.outcomes)
                    rig.i_store.put(rig.row_store(mask, row_off=2 * sector))
                    await rig.drain()
                    fits = 2 * sector + (half == UPPER) < units
                    assert rig.outcomes[before:] == [Reason.OK if fits else Reason.ROW_OVERRUN]
                    which = "lower" if half == LOWER else "upper"
                    cover(f"decoder.half.{which}.{'inside' if fits else 'outside'}")
                    cover("decoder.half.row_ends_here", half == LOWER and 2 * sector + 1 == units)
    await rig.drain()


@DecoderRig.test(lane=0)
async def flush_moments(rig, cfg, rng):
    """``flush`` in each cycle around a store's way: `flushing` holds for just the stores that were
    accepted up to it."""
    for again in (False, True):  # a second strobe while the first is not through
        for count in (1, 2, 4):
            for at in range(count + 8):
                rig.put_plain(count)
                await rig.cycles(at)
                if again:
                    await rig.pulse("flush")
                    await rig.cycles(1)
                strobe = rig.cycle
                await rig.strobe_flush()
                accepted = rig.i_store.stamps[-count:]
                left = (
                    sorted((rig.o_link.stamps + rig.o_loop.stamps)[-count:])
                    if rig.delivered
                    else []
                )
                await rig.sampled()
                inside = sum(stamp <= strobe for stamp in rig.i_store.stamps) - sum(
                    stamp <= strobe for stamp in rig.o_link.stamps + rig.o_loop.stamps
                )
                assert rig.get("flushing") == (inside > 0), f"{inside} older stores inside"
                cover("decoder.flush.enter", strobe in accepted)
                cover("decoder.flush.leave", strobe in left)
                cover("decoder.flush.last_leaves", strobe in left and not inside)
                cover("decoder.flush.again", again and inside)
                await rig.drain()


@DecoderRig.test(lane=0)
async def write_moments(rig, cfg, rng):
    """An entry is closed in each cycle around a store's acceptance: one accepted up to then may
    pass, one behind may not."""
    for at in range(8):
        entry = rig.good_entry(epoch=3, owner=1)
        await rig.write(0, entry)
        await rig.cycles(4)
        before = len(rig.outcomes)
        for _ in range(8):
            rig.i_store.put(rig.row_store(epoch=3))
        await rig.cycles(at)
        written = rig.cycle
        await rig.write(0, {**entry, "epoch": 4, "closed": 1})
        await rig.drain()
        stamps, outcomes = rig.i_store.stamps[-8:], rig.outcomes[before:]
        assert len(outcomes) == 8
        for stamp, outcome in zip(stamps, outcomes, strict=True):
            assert outcome == Reason.AFTER_CLOSE or stamp <= written, (
                "accepted behind the write, met the old entry"
            )
            assert outcome in (Reason.OK, Reason.AFTER_CLOSE)
        cover("decoder.write_as_accepted", written in stamps)
        cover("decoder.write_splits", Reason.OK in outcomes and Reason.AFTER_CLOSE in outcomes)
