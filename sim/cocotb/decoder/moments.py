# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the decoder: stores of half a sector, and two events that meet at one
register."""

import cocotb

from hub_rtl.contract.packets import Reason
from sim.bench.runner import bench_params
from sim.quality.coverage import cover

from .rig import DecoderBench, plain_store
from .tests import good_entry, row_store

LOWER, UPPER = 0xFFFF, 0xFFFF0000


def whole_and_byte(rng, half):
    """All bytes of this half of a sector, and one of them."""
    at = rng.randrange(16) + (16 if half == UPPER else 0)
    return half, 1 << at


@cocotb.test()
async def half_sectors(dut):
    """Stores of the lower and of the upper unit of the last sectors of rows that end within a
    sector and with one."""
    cfg, _, rng = bench_params("halves")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    longest = min(cfg.max_row_bytes, 512) // 16
    for units in range(1, longest + 1):
        await t.write(0, good_entry(cfg, rng, row_bytes=16 * units))
        for sector in sorted({max(0, units // 2 + step) for step in (-1, 0, 1)}):
            for half in (LOWER, UPPER):
                for mask in whole_and_byte(rng, half):
                    before = len(t.outcomes)
                    t.source.put(row_store(cfg, rng, mask, row_off=2 * sector))
                    await t.drain()
                    fits = 2 * sector + (half == UPPER) < units
                    assert t.outcomes[before:] == [Reason.OK if fits else Reason.ROW_OVERRUN]
                    which = "lower" if half == LOWER else "upper"
                    cover(f"decoder.half.{which}.{'inside' if fits else 'outside'}")
                    cover("decoder.half.row_ends_here", half == LOWER and 2 * sector + 1 == units)
    await t.drain()


@cocotb.test()
async def flush_moments(dut):
    """``flush`` in each cycle around a store's way: `flushing` holds for just the stores that were
    accepted up to it."""
    cfg, _, rng = bench_params("flush")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for again in (False, True):  # a second strobe while the first is not through
        for count in (1, 2, 4):
            for at in range(count + 8):
                for _ in range(count):
                    t.source.put(plain_store(cfg, rng, 0, rng.randrange(cfg.ranks)))
                await t.bench.cycles(at)
                if again:
                    dut.flush.value = 1
                    await t.bench.cycles(1)
                    dut.flush.value = 0
                    await t.bench.cycles(1)
                strobe = t.bench.cycle
                await t.strobe_flush()
                accepted = t.source.stamps[-count:]
                left = sorted((t.link.stamps + t.loop.stamps)[-count:]) if t.delivered else []
                await t.bench.sampled()
                inside = sum(stamp <= strobe for stamp in t.source.stamps) - sum(
                    stamp <= strobe for stamp in t.link.stamps + t.loop.stamps
                )
                assert int(dut.flushing.value) == (inside > 0), f"{inside} older stores inside"
                cover("decoder.flush.enter", strobe in accepted)
                cover("decoder.flush.leave", strobe in left)
                cover("decoder.flush.last_leaves", strobe in left and not inside)
                cover("decoder.flush.again", again and inside)
                await t.drain()


@cocotb.test()
async def write_moments(dut):
    """An entry is closed in each cycle around a store's acceptance: one accepted up to then may
    pass, one behind may not."""
    cfg, _, rng = bench_params("write")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for at in range(8):
        entry = good_entry(cfg, rng, epoch=3, owner=1)
        await t.write(0, entry)
        await t.bench.cycles(4)
        before = len(t.outcomes)
        for _ in range(8):
            t.source.put(row_store(cfg, rng, epoch=3))
        await t.bench.cycles(at)
        written = t.bench.cycle
        await t.write(0, {**entry, "epoch": 4, "closed": 1})
        await t.drain()
        stamps, outcomes = t.source.stamps[-8:], t.outcomes[before:]
        assert len(outcomes) == 8
        for stamp, outcome in zip(stamps, outcomes, strict=True):
            assert outcome == Reason.AFTER_CLOSE or stamp <= written, (
                "accepted behind the write, met the old entry"
            )
            assert outcome in (Reason.OK, Reason.AFTER_CLOSE)
        cover("decoder.write_as_accepted", written in stamps)
        cover("decoder.write_splits", Reason.OK in outcomes and Reason.AFTER_CLOSE in outcomes)
