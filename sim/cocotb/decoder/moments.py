# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the decoder: stores of single units, and two events that meet at one
register."""

from hub_rtl.contract.packets import Reason
from sim.quality.coverage import cover

from .rig import DecoderRig

UNIT = 16  # bytes


@DecoderRig.test(lane=0)
async def parts_of_parts(rig, cfg, rng):
    """Stores of one 16-byte unit, whole or a byte of it, in and behind the last part of rows that
    end within a part and with one."""
    longest, per_part = min(cfg.max_row_bytes, 512) // UNIT, cfg.slice_bytes // UNIT
    for units in range(1, longest + 1):
        await rig.write(0, rig.good_entry(row_bytes=UNIT * units))
        for part in sorted({max(0, units // per_part + step) for step in (-1, 0, 1)}):
            for unit in range(per_part):
                for mask in ((1 << UNIT) - 1, 1 << rng.randrange(UNIT)):
                    before = len(rig.outcomes)
                    rig.i_store.put(rig.row_store(mask << UNIT * unit, row_off=per_part * part))
                    await rig.drain()
                    fits = per_part * part + unit < units
                    assert rig.outcomes[before:] == [Reason.OK if fits else Reason.ROW_OVERRUN]
                    which = "last" if unit == per_part - 1 else "other"
                    cover(f"decoder.unit.{which}.{'inside' if fits else 'outside'}")
                    ends = per_part * part < units < per_part * (part + 1)
                    cover("decoder.unit.row_ends_here", ends)
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
