# SPDX-License-Identifier: Apache-2.0
"""How many acknowledgements the scoreboard takes per cycle while many tiles are in play."""

import itertools

from hub_rtl.contract.packets import EventKind
from sim.quality.coverage import cover

from .rig import ScoreboardRig

TILES = 256
LOG2_ROWS = 4  # rows of a tile, each one packet


async def pour_tiles(rig, size, pause):
    """All rows of 256 tiles in packets of ``size`` bytes, shuffled over the slices, which pause as
    ``pause`` says. Returns acknowledgements and the cycles in which they were taken."""
    cfg, rng = rig.cfg, rig.rng
    each = TILES // len(rig.keys)
    rows = each << LOG2_ROWS
    for region in range(cfg.regions):
        await rig.set_geometry(
            region,
            row_bytes=cfg.packet_bytes,
            log2_tile=LOG2_ROWS,
            group_base=region * each,
            capacity=rows,
        )
    for region, bank in rig.keys:
        await rig.open(region, bank, rows)
    acks = [
        {"region": region, "bank": bank, "group": region * each + tile, "bytes": size}
        for region, bank in rig.keys
        for tile in range(each)
        for _ in range((cfg.packet_bytes << LOG2_ROWS) // size)
    ]
    rng.shuffle(acks)
    for source in rig.i_ack:
        source.set_pause(itertools.cycle(pause))
    for n, ack in enumerate(acks):
        rig.put_ack(**ack, slice_=n % cfg.slices)
    start = rig.cycle
    for source in rig.i_ack:
        await source.drained()
    cycles = max(source.stamps[-1] for source in rig.i_ack) - start
    for region, bank in rig.keys:
        rig.put_close(region, bank, sent=rows * cfg.packet_bytes)
    await rig.all_events("all tiles and banks")
    assert all(rig.finals[key]["kind"] == EventKind.ALL for key in rig.keys)
    assert rig.counts["ready"] == TILES and not rig.counts["error"]
    return len(acks), cycles


def note(rig, packets, rate, offered):
    """Tells how many acknowledgements were taken per cycle."""
    rig.dut._log.info(f"{packets} packets: {rate:.2f} of {offered:.2f} per cycle")
    if figures := rig.params.get("figures"):
        with open(figures, "a") as file:
            file.write(f"{packets} {offered:.2f} {rate:.2f}\n")


@ScoreboardRig.test(watchdog=20000)
async def full_packets(rig, cfg, rng):
    """Every slice at the rate of full packets, one in two cycles: all are taken as they come."""
    taken, cycles = await pour_tiles(rig, cfg.packet_bytes, (False, True))
    offered = cfg.slices / 2
    note(rig, "full", taken / cycles, offered)
    # The last ones may meet in a bank.
    assert cycles <= taken / offered + 16, f"{taken} acknowledgements took {cycles} cycles"
    cover("scoreboard.rate.full")


@ScoreboardRig.test(watchdog=20000)
async def small_packets(rig, cfg, rng):
    """Every slice at the rate of small packets, one per cycle: more than all full ones together."""
    taken, cycles = await pour_tiles(rig, cfg.packet_bytes // 2, (False,))
    note(rig, "small", taken / cycles, cfg.slices)
    assert taken / cycles > cfg.slices / 2, f"{taken} acknowledgements took {cycles} cycles"
    cover("scoreboard.rate.small")
