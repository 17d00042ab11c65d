# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the decoder."""

from hub_rtl.contract.packets import Reason
from sim.bench.moments import turning_point
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import DecoderRig

FLUSH_BOUND = 12  # cycles: everything inside leaves within them when nobody stalls


@DecoderRig.test(grid=GRID)
async def random_traffic(rig, cfg, rng, grid):
    """Random stores against random entries, rewritten in traffic; with flush strobes."""
    for index in range(cfg.handles):
        await rig.write(index, rig.traffic.entry(), int(rng.random() < 0.1))
    for _ in range(rig.params["rounds"]):
        rig.put_any(40)
        for _ in range(3):
            await rig.cycles(rng.randint(1, 20))
            await rig.write(rng.randrange(cfg.handles), rig.traffic.entry())
            await rig.strobe_flush()
        await rig.set_dead({rank for rank in range(cfg.ranks) if rng.random() < 0.15})
        await rig.drain()
    assert rig.flushes
    cover(f"decoder.grid.{'.'.join(grid)}")


@DecoderRig.test(lane=0)
async def every_fault(rig, cfg, rng):
    """Each way in which an entry is unusable, many times, and its repair; a write beyond the table
    changes nothing."""
    for fault in rig.traffic.FAULTS * 12:
        for wrong in (fault, None):
            await rig.write(0, rig.traffic.broken(wrong))
            beyond = (1 << cfg.handle_width) - 1
            if beyond >= cfg.handles:
                await rig.write(beyond, rig.traffic.broken(None))
            for handle in (0, 0, beyond):
                epoch = rig.model.entries[0][0]["epoch"] if not handle else 0
                store = rig.row_store(handle=handle, epoch=epoch)
                rig.i_store.put(store | {"owner": rng.choice((3, 5))})
            await rig.drain()


@DecoderRig.test(lane=0)
async def every_epoch(rig, cfg, rng):
    """Every epoch of a store against every epoch of its entry, closed, held back or neither."""
    for epoch in range(16):
        for closed, hold in ((0, 0), (1, 0), (rng.randrange(2), 1)):
            await rig.write(0, rig.good_entry(epoch=epoch, closed=closed), hold)
            for wanted in rng.sample(range(16), 16):
                rig.i_store.put(rig.row_store(epoch=wanted))
            await rig.drain()


@DecoderRig.test(lane=0)
async def every_length(rig, cfg, rng):
    """Bytes before, at and behind the end of rows of every short length."""
    for row_bytes in range(16, min(cfg.max_row_bytes, 512) + 1, 16):
        await rig.write(0, rig.good_entry(row_bytes=row_bytes))
        last = row_bytes // 16
        near = {max(0, last + step) for step in (-2, -1, 0, 1, 2)}
        for unit in near | {0, rng.randrange(1024), rng.randrange(last)}:
            for bits in (1, 1, rng.getrandbits(cfg.slice_bytes)):
                mask = bits << rng.randrange(cfg.slice_bytes) & (1 << cfg.slice_bytes) - 1
                rig.i_store.put(rig.row_store(mask, row_off=unit))
        await rig.drain()


@DecoderRig.test(lane=0)
async def rewritten_in_traffic(rig, cfg, rng):
    """Stores in every cycle while their entry changes every few cycles: each is judged by an entry
    of its time."""
    for _ in range(120):
        await rig.write(
            0,
            rig.good_entry(
                epoch=rng.randrange(3),
                closed=rng.randrange(2),
                owner=rng.choice((1, 1, 1, 2)),
                row_bytes=16 * rng.randint(1, cfg.max_row_bytes // 16),
                log2_replicas=rng.randrange(cfg.replicas.bit_length()),
            ),
        )
        for _ in range(5):
            rig.i_store.put(
                rig.row_store(
                    rng.getrandbits(cfg.slice_bytes),
                    epoch=rng.randrange(3),
                    row_off=rng.randrange(8),
                )
            )
        await rig.cycles(rng.randrange(6))
    await rig.drain()


@DecoderRig.test(lane=0)
async def full_rate(rig, cfg, rng):
    """One store per cycle; 3 cycles to the packet manager, 4 to the response; flushing ends in
    continuous traffic."""
    rig.put_plain(200)
    await rig.cycles(20)
    for _ in range(8):
        await rig.strobe_flush()
        await rig.until(
            lambda: rig.flush is None,
            limit=FLUSH_BOUND,
            what="end of flushing in continuous traffic",
        )
    await rig.drain()
    starts = rig.i_store.stamps
    handed = sorted(rig.o_link.stamps + rig.o_loop.stamps)
    assert starts == list(range(starts[0], starts[0] + 200)), "stores did not go in every cycle"
    assert {b - a for a, b in zip(starts, handed, strict=True)} == {3}
    assert {b - a for a, b in zip(starts, rig.o_response.stamps, strict=True)} == {4}
    assert all(flush["cycles"] <= FLUSH_BOUND for flush in rig.flushes) and len(rig.flushes) == 8
    cover("decoder.full_rate")


@DecoderRig.test(lane=0)
async def responses_stall(rig, cfg, rng):
    """A response that nobody takes stalls the stores; nothing is handed over whose response has no
    place."""
    rig.o_response.set_pause("stop")
    rig.put_plain(20)
    await rig.cycles(60)
    assert rig.o_link.count + rig.o_loop.count == 2 and rig.i_store.count <= 8
    await rig.strobe_flush()
    await rig.cycles(20)
    assert rig.get("flushing"), "stores stand in the pipeline"
    rig.o_response.set_pause("none")
    await rig.drain()
    cover("decoder.response_stall")


@DecoderRig.test(lane=0)
async def closing_race(rig, cfg, rng):
    """Stores of one handle flow while its entry moves to the next epoch: OK first, AFTER_CLOSE from
    some store on."""
    entry = rig.good_entry(epoch=15, row_bytes=min(cfg.max_row_bytes, 256))
    await rig.write(0, entry)
    for number in range(40):
        rig.i_store.put(rig.row_store(epoch=15, rowid=number))
    await rig.cycles(15)
    await rig.write(0, {**entry, "epoch": 0, "closed": 1})
    accepted = rig.accepted
    await rig.strobe_flush()
    await rig.drain()
    assert len(rig.outcomes) == 40
    assert turning_point(rig.outcomes, Reason.OK, Reason.AFTER_CLOSE) <= accepted
    cover("decoder.closing_race")


@DecoderRig.test(idle="random", stall="random", lane=0)
async def reset_in_traffic(rig, cfg, rng):
    """A reset forgets everything inside and the table; all handles are unknown afterwards."""
    for _ in range(2):
        for index in range(min(4, cfg.handles)):
            await rig.write(index, rig.traffic.entry())
        rig.put_any(30)
        await rig.cycles(25)
        rig.model.entries = {}
        rig.forget()
        await rig.start()
        assert not rig.o_response.items
        rig.put_any(30)
        await rig.drain()
        assert Reason.UNKNOWN in rig.outcomes
    cover("decoder.reset_in_traffic")


@DecoderRig.test(lane=0)
async def table_cleared(rig, cfg, rng):
    """A store that waits through a reset finds no entry of before, in no place of the table, and
    nothing of what lies at the write port meanwhile."""
    old = rig.good_entry(epoch=3)
    for last in reversed(range(cfg.handles)):
        for index in range(cfg.handles):
            await rig.write(index, old)
        rig.i_store.put(rig.row_store(handle=last, epoch=3))
        await rig.drain()
        assert rig.outcomes[-1] == Reason.OK
        rig.set("handle_write", {"index": last, "handle": old})
        rig.model.entries = {}
        rig.forget()
        await rig.reset()
        rig.i_store.put(*(rig.row_store(handle=n, epoch=3) for n in (last, *range(cfg.handles))))
        await rig.drain()
        assert set(rig.outcomes) == {Reason.UNKNOWN}
    cover("decoder.table_cleared")
