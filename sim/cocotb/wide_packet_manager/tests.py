# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the wide packet manager against its golden model: random traffic, and promises on
latency, rate and order."""

import random

import cocotb

from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import PoolRig


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_traffic(dut, grid):
    """Random stores, with marks and changing limits: golden model on every packet; reset in
    traffic, then all over again."""
    number = GRID.index(grid)
    rng = random.Random(number)
    rig = PoolRig(
        dut,
        f"random{number}",
        *grid,
        credits=rng.choice((1, 2, 20)),
        give_back=rng.choice((0.05, 0.3)),
        merge_timeout=rng.choice((0, 40, 300)),
        age_limit=rng.choice((100, 4000)),
        bucket_shift=rng.choice((0, 1, 3)),
    )
    cfg, rng, depth = rig.cfg, rig.rng, rig.cfg.pool_depth
    rig.limits["max_entries"] = rng.choice((0, 2, depth // 2, depth))
    for again in range(2):
        await rig.anew()
        rig.i_store.put(*rig.traffic.mix(50, window=rng.choice((2, depth, 2 * depth))))
        while rig.i_store.pending:
            await rig.cycles(rng.choice((5, 40, 150)))
            if rng.random() < 0.6:
                await rig.mark(rng.choice((None, *range(min(4, cfg.handles)))))
            if not again and rig.i_store.pending < 60:
                break
        if again:
            await rig.flush()
            await rig.whole_pool()
            rig.judge()
        cover("wide_packet_manager.reset.in_traffic", not again and rig.i_store.pending)
    cover(f"wide_packet_manager.grid.{'.'.join(grid)}")


@PoolRig.test()
async def latency(rig, cfg, rng):
    """A store that completes a packet: its first beat is valid 14 cycles after it was accepted."""
    for count in range(1, cfg.packet_bytes // rig.slice_bytes + 1):
        full = rig.slice_bytes * count
        for store in rig.traffic.bytes_of(rig.traffic.row(full=full), 0, full):
            await rig.cycles(7)
            await rig.i_store.send(store)
        await rig.quiet()
        packet = rig.packets[-1]
        cycles = packet.head - rig.i_store.stamps[-1]
        assert cycles == 14, f"{count} stores: first beat {cycles} cycles after the last store"
        assert packet.last - packet.head == count - 1
    cover("wide_packet_manager.latency.14")
    rig.judge()
