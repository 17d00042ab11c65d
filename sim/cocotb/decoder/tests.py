# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the decoder."""

import cocotb

from hub_rtl.contract.packets import OPERAND_ROW, LaneMode, Reason, pack
from sim.bench.runner import bench_params
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import DecoderBench, plain_store

FLUSH_BOUND = 12  # cycles: everything inside leaves within them when nobody stalls


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_traffic(dut, grid):
    """Random stores against random entries, rewritten in traffic; with flush strobes."""
    idle, stall = grid
    cfg, params, rng = bench_params(str(grid))
    t = DecoderBench(dut, cfg, rng, rng.randrange(cfg.lanes), idle, stall)
    await t.ready()
    for index in range(cfg.handles):
        await t.write(index, t.traffic.entry(), int(rng.random() < 0.1))
    for _ in range(params["rounds"]):
        for _ in range(40):
            t.source.put(t.traffic.store(t.model))
        for _ in range(3):
            await t.bench.cycles(rng.randint(1, 20))
            await t.write(rng.randrange(cfg.handles), t.traffic.entry())
            await t.strobe_flush()
        await t.set_dead({rank for rank in range(cfg.ranks) if rng.random() < 0.15})
        await t.drain()
    assert t.flushes
    cover(f"decoder.grid.{idle}.{stall}")


@cocotb.test()
async def every_fault(dut):
    """Each way in which an entry is unusable, many times, and its repair; a write beyond the table
    changes nothing."""
    cfg, _, rng = bench_params("faults")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for fault in t.traffic.FAULTS * 12:
        for wrong in (fault, None):
            await t.write(0, t.traffic.broken(wrong))
            beyond = (1 << cfg.handle_width) - 1
            if beyond >= cfg.handles:
                await t.write(beyond, t.traffic.broken(None))
            for handle in (0, 0, beyond):
                epoch = t.model.entries[0][0]["epoch"] if not handle else 0
                t.source.put(
                    {
                        "operand": pack(
                            OPERAND_ROW, handle=handle, epoch=epoch, rowid=rng.getrandbits(24)
                        ),
                        "cls": 0,
                        "owner": rng.choice((3, 5)),
                        "data": rng.getrandbits(256),
                        "mask": 1,
                        "tag": rng.getrandbits(cfg.tag_width),
                    }
                )
            await t.drain()


def good_entry(cfg, rng, **fields):
    """An entry whose stores belong to lane 0."""
    return {
        "valid": 1,
        "owner": 1,
        "epoch": 0,
        "closed": 0,
        "row_bytes": cfg.max_row_bytes,
        "lane_mode": LaneMode.FIXED,
        "lane": 0,
        "log2_replicas": 0,
        "replica": [
            {"rank": rng.randrange(cfg.ranks), "region": rng.randrange(cfg.regions)}
            for _ in range(cfg.replicas)
        ],
        **fields,
    }


def row_store(cfg, rng, mask=1, **operand):
    """A store of the owner of :func:`good_entry`."""
    return {
        "operand": pack(OPERAND_ROW, handle=0, **{"rowid": rng.getrandbits(24), **operand}),
        "cls": rng.randrange(2),
        "owner": 1,
        "data": rng.getrandbits(256),
        "mask": mask,
        "tag": rng.getrandbits(cfg.tag_width),
    }


@cocotb.test()
async def every_epoch(dut):
    """Every epoch of a store against every epoch of its entry, closed, held back or neither."""
    cfg, _, rng = bench_params("epochs")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for epoch in range(16):
        for closed, hold in ((0, 0), (1, 0), (rng.randrange(2), 1)):
            await t.write(0, good_entry(cfg, rng, epoch=epoch, closed=closed), hold)
            for wanted in rng.sample(range(16), 16):
                t.source.put(row_store(cfg, rng, epoch=wanted))
            await t.drain()


@cocotb.test()
async def every_length(dut):
    """Both halves of sectors before, at and behind the end of rows of every short length."""
    cfg, _, rng = bench_params("lengths")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for row_bytes in range(16, min(cfg.max_row_bytes, 512) + 1, 16):
        await t.write(0, good_entry(cfg, rng, row_bytes=row_bytes))
        last = row_bytes // 16
        for unit in {max(0, last + step) for step in (-2, -1, 0, 1, 2)} | {
            0,
            rng.randrange(1024),
            rng.randrange(last),
        }:
            for mask in (1 << rng.randrange(16), 1 << rng.randrange(16, 32), rng.getrandbits(32)):
                t.source.put(row_store(cfg, rng, mask, row_off=unit))
        await t.drain()


@cocotb.test()
async def rewritten_in_traffic(dut):
    """Stores in every cycle while their entry changes every few cycles: each is judged by an entry
    of its time."""
    cfg, _, rng = bench_params("rewritten")
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for _ in range(120):
        await t.write(
            0,
            good_entry(
                cfg,
                rng,
                epoch=rng.randrange(3),
                closed=rng.randrange(2),
                owner=rng.choice((1, 1, 1, 2)),
                row_bytes=16 * rng.randint(1, cfg.max_row_bytes // 16),
                log2_replicas=rng.randrange(cfg.replicas.bit_length()),
            ),
        )
        for _ in range(5):
            t.source.put(
                row_store(
                    cfg, rng, rng.getrandbits(32), epoch=rng.randrange(3), row_off=rng.randrange(8)
                )
            )
        await t.bench.cycles(rng.randrange(6))
    await t.drain()


@cocotb.test()
async def full_rate(dut):
    """One store per cycle; 3 cycles to the packet manager, 4 to the response; flushing ends in
    continuous traffic."""
    cfg, _, rng = bench_params()
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    for _ in range(200):
        t.source.put(plain_store(cfg, rng, 0, rng.randrange(cfg.ranks)))
    await t.bench.cycles(20)
    for _ in range(8):
        await t.strobe_flush()
        await t.bench.until(
            lambda: t.flush is None, limit=FLUSH_BOUND, what="end of flushing in continuous traffic"
        )
    await t.drain()
    starts = t.source.stamps
    handed = sorted(t.link.stamps + t.loop.stamps)
    assert starts == list(range(starts[0], starts[0] + 200)), "stores did not go in every cycle"
    assert {b - a for a, b in zip(starts, handed, strict=True)} == {3}
    assert {b - a for a, b in zip(starts, t.responses.stamps, strict=True)} == {4}
    assert all(flush["cycles"] <= FLUSH_BOUND for flush in t.flushes) and len(t.flushes) == 8
    cover("decoder.full_rate")


@cocotb.test()
async def responses_stall(dut):
    """A response that nobody takes stalls the stores; nothing is handed over whose response has no
    place."""
    cfg, _, rng = bench_params()
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    t.responses.set_pause("stop")
    for _ in range(20):
        t.source.put(plain_store(cfg, rng, 0, rng.randrange(cfg.ranks)))
    await t.bench.cycles(60)
    assert t.link.count + t.loop.count == 2 and t.source.count <= 8
    await t.strobe_flush()
    await t.bench.cycles(20)
    assert int(dut.flushing.value), "stores stand in the pipeline"
    t.responses.set_pause("none")
    await t.drain()
    cover("decoder.response_stall")


@cocotb.test()
async def closing_race(dut):
    """Stores of one handle flow while its entry moves to the next epoch: OK first, AFTER_CLOSE from
    some store on."""
    cfg, _, rng = bench_params()
    t = DecoderBench(dut, cfg, rng, 0)
    await t.ready()
    entry = {
        "valid": 1,
        "owner": 1,
        "epoch": 15,
        "closed": 0,
        "row_bytes": min(cfg.max_row_bytes, 256),
        "lane_mode": LaneMode.FIXED,
        "lane": 0,
        "log2_replicas": 0,
        "replica": [{"rank": 0, "region": 0}] * cfg.replicas,
    }
    await t.write(0, entry)
    for number in range(40):
        t.source.put(
            {
                "operand": pack(OPERAND_ROW, handle=0, epoch=15, rowid=number),
                "cls": 1,
                "owner": 1,
                "data": number,
                "mask": 1,
                "tag": number % (1 << cfg.tag_width),
            }
        )
    await t.bench.cycles(15)
    await t.write(0, {**entry, "epoch": 0, "closed": 1})
    accepted = t.accepted
    await t.strobe_flush()
    await t.drain()
    first = t.outcomes.index(Reason.AFTER_CLOSE)
    assert (
        t.outcomes == [Reason.OK] * first + [Reason.AFTER_CLOSE] * (40 - first)
        and first <= accepted
    )
    cover("decoder.closing_race")


@cocotb.test()
async def reset_in_traffic(dut):
    """A reset forgets everything inside and the table; all handles are unknown afterwards."""
    cfg, _, rng = bench_params()
    t = DecoderBench(dut, cfg, rng, 0, "random", "random")
    await t.ready()
    for _ in range(2):
        for index in range(min(4, cfg.handles)):
            await t.write(index, t.traffic.entry())
        for _ in range(30):
            t.source.put(t.traffic.store(t.model))
        await t.bench.cycles(25)
        await t.bench.reset()
        t.model.entries = {}
        t.forget()
        assert not t.responses.items
        await t.bench.until(lambda: not int(dut.clearing.value), what="cleared table")
        for _ in range(30):
            t.source.put(t.traffic.store(t.model))
        await t.drain()
        assert Reason.UNKNOWN in t.outcomes
    cover("decoder.reset_in_traffic")
