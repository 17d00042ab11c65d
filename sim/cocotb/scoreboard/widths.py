# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: fields that hold what they can hold."""

from hub_rtl.contract.config import ADDR
from sim.quality.coverage import cover

from .rig import ScoreboardRig
from .tells import LATE
from .traffic import row_acks


@ScoreboardRig.test()
async def groups_are_written_off(rig, cfg, rng):
    """A range of any stride, anywhere in memory, is written off: its groups forget their bytes, and
    no others."""
    groups = range(cfg.groups)
    for turn in range(24):
        await rig.set_span(0, 16 * cfg.groups, 32)
        for group in groups:
            rig.put_plain(group)
        await rig.drained()
        log2 = rng.randrange(4, ADDR - 1)
        most = min(2 * cfg.groups if turn % 4 == 0 else cfg.groups, 1 << ADDR - 1 - log2)
        count = rng.randint(1, most)
        base = rng.randrange((1 << ADDR) - (count << log2))
        await rig.set_dep(
            0,
            armed=0,
            base=base,
            limit=base + (count << log2) - rng.randrange(1 << log2),
            log2_stride=log2,
            group_base=rng.randrange(cfg.groups),
            threshold=rng.getrandbits(24),
        )
        await rig.set_span(0, 16 * cfg.groups, 32)
        before = rig.o_event.count
        for group in groups:
            rig.put_plain(group)
        await rig.all_events("what was not written off")
        await rig.drained()
        left = cfg.groups - min(count, cfg.groups)
        assert rig.o_event.count - before == left, f"{count} groups written off, not {left} ready"
        cover("scoreboard.plain.written_off.some", 0 < left < cfg.groups)
        cover("scoreboard.plain.written_off.all", not left)
        await rig.set_span(0, 16 * cfg.groups, 32, armed=0)


@ScoreboardRig.test(fits=lambda cfg: cfg.capacity > 1)
async def last_tiles_of_many_rows(rig, cfg, rng):
    """A last tile of any number of long rows, but not all, is ready once all have told, before
    anybody closes."""
    log2_tile = min(cfg.capacity.bit_length() - 1, 5)
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await rig.set_geometry(
        0, row_bytes=row_bytes, log2_tile=log2_tile, capacity=1 << log2_tile, expected=1
    )
    for turn, rows in enumerate(range(1, 1 << log2_tile)):
        epoch, before = turn % 16, rig.o_event.count
        await rig.open(0, epoch, rows)
        for slot in range(rows):
            for ack in row_acks(rig, rig.geometry[0], 0, epoch & 1, slot):
                rig.put_ack(**ack)
        rig.put_tell(0, epoch, sent=rows * row_bytes)
        await rig.until(
            lambda before=before: rig.o_event.count > before, what=f"READY of {rows} rows"
        )
        rig.put_news(0, epoch, close=1)
        await rig.ends_well(0, epoch)


@ScoreboardRig.test(fits=lambda cfg: cfg.capacity > 1)
async def last_tiles_of_any_size(rig, cfg, rng):
    """Rows that are there before anybody has told, in tiles of any number of rows: the last tile is
    ready with ALL."""
    turn = 0
    for log2_tile in range(11):
        await rig.set_geometry(
            0, row_bytes=16, log2_tile=log2_tile, capacity=cfg.capacity, expected=1
        )
        for rows in range(1, min(cfg.capacity, 8, cfg.groups << log2_tile) + 1):
            epoch, turn = turn % 16, turn + 1
            await rig.open(0, epoch, rows)
            for slot in range(rows):
                for ack in row_acks(rig, rig.geometry[0], 0, epoch & 1, slot):
                    rig.put_ack(**ack)
            await rig.drained()
            rig.put_close(0, epoch, sent=16 * rows)
            await rig.ends_well(0, epoch)
            cover("scoreboard.rest.any_size", rows % (1 << log2_tile) > 0)


@ScoreboardRig.test()
async def many_refusals(rig, cfg, rng):
    """Refusals of many MiB, and one row that came: ALL when as much was told, not a packet less or
    more."""
    size = cfg.packet_bytes
    await rig.one_row(0)
    for epoch, more in enumerate((0, 16)):
        await rig.open(0, epoch, 1)
        refusal = {"known": 1, "region": 0, "epoch": epoch, "src": 0, "bytes": size}
        await rig.pour([(rig.i_refused, refusal)], 2 * rig.params.get("pour", 200))
        refused = rig.model.banks[0, epoch & 1].epoch.refused
        rig.dut._log.info(f"refused: {refused} bytes")
        rig.put_ack(bank=epoch & 1, bytes=16)
        rig.put_close(0, epoch, sent=refused + 16 + more)
        await rig.drained()
        if more:
            await rig.cycles(LATE)
            await rig.check_status(0, epoch & 1)
            rig.refuse(0, epoch, more)
        await rig.ends_well(0, epoch)
