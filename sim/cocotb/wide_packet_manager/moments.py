# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the wide packet manager: two events that meet at one register."""

from sim.cocotb.packet_manager import moments
from sim.cocotb.packet_manager.moments import LATE, held_back
from sim.quality.coverage import cover

from .rig import PoolRig

quota_moments = PoolRig.again(moments.quota_moments)
lock_moments = PoolRig.again(moments.lock_moments)
death_moments = PoolRig.again(moments.death_moments)
timer_moments = PoolRig.again(moments.timer_moments)


@PoolRig.test(merge_timeout=LATE, age_limit=LATE)
async def mark_moments(rig, cfg, rng):
    """A mark in every cycle of a packet's way, whose last beat is held up or not: it drains until
    the ledger has its bytes."""
    hold = {"after": None}
    rig.output.set_pause(held_back(rig, hold))
    dest, rank = rig.traffic.first
    for everything in (True, False):
        for held in (True, False):
            for at in range(26):
                parts = rng.choice((1, cfg.packet_bytes // rig.slice_bytes))
                full = rig.slice_bytes * parts
                hold["after"] = rig.output.count + parts - 1 if held else None
                rig.put(rig.traffic.row(dest=dest, full=full), 0, full)
                await rig.stored(at)
                await rig.mark(None if everything else dest // cfg.replicas)
                if held:
                    await rig.cycles(40)
                    await rig.sampled()
                    assert int(rig.output.port.valid.value)
                    assert rig.output.count == hold["after"]
                    assert rig.get("draining") >> rank & 1, f"mark at {at}: the last beat waits"
                    cover(f"{rig.word}.mark.tail_waits", at > 20)
                    await rig.cycles(1)
                    hold["after"] = None
                await rig.quiet()
    rig.judge()
