# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the memory writer against AXI memory."""

from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import WriterRig


@WriterRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Random bursts on the grid, answers after 1 to 40 cycles, some errors, quiesce at random
    times."""
    rig.put_many(rig.params["writes"])
    for _ in range(12):
        await rig.cycles(rng.randint(1, 30))
        await rig.quiesce()
    await rig.done()
    cover(f"memory.grid.{'.'.join(grid)}")
    cover("memory.error", any(not ack["ok"] for ack in rig.o_ack.items))
    cover("memory.stall_aw", rig.counts["stall_aw"] > 0)
    cover("memory.stall_w", rig.counts["stall_w"] > 0)


@WriterRig.test(latency=1)
async def rate(rig, cfg, rng):
    """Memory ready, commands waiting: a beat in every cycle over all bursts; latencies as
    documented."""
    for n in range(40):
        rig.put(beats=rig.parts if n % 2 else 8)
    await rig.done()
    assert (
        rig.memory.aw.stamps[0] - rig.i_write.stamps[0]
        == 1
        == rig.memory.w.stamps[0] - rig.i_data.stamps[0]
    )
    assert rig.o_ack.stamps[0] - rig.memory.b.stamps[0] == 1
    cycles = rig.memory.w.stamps[-1] - rig.memory.w.stamps[0] + 1
    if cfg.write_depth >= 4:
        assert cycles == rig.memory.w.count, f"{rig.memory.w.count} beats in {cycles} cycles"
        cover("memory.rate")
    # Command and first beat in the same cycle, one burst after the other.
    for _ in range(10):
        rig.put(beats=1)
        await rig.until(lambda: not rig.i_data.pending, limit=50)
        assert rig.i_data.stamps[-1] == rig.i_write.stamps[-1]
        await rig.cycles(4)


@WriterRig.test()
async def full(rig, cfg, rng):
    """Acknowledgements not taken: exactly ``write_depth`` commands are issued, all answers are
    taken, then all goes on."""
    rig.o_ack.set_pause("stop")
    depth = cfg.write_depth
    rig.put_many(2 * depth + 3)
    await rig.cycles(80 + depth * (16 + 2))
    assert (
        rig.i_write.count == depth == rig.memory.aw.count
        and rig.memory.b.count == depth
        and rig.memory.idle
    )
    cover("memory.full")
    await rig.quiesce()
    await rig.cycles(20)
    assert rig.get("quiescing"), "quiescing ended before the acknowledgements were taken"
    rig.o_ack.set_pause("random", rng)
    await rig.finish()
    cover("memory.empty_after_full")


@WriterRig.test(latency=2)
async def address_first(rig, cfg, rng):
    """An address leaves before its data is there; data never before its address; a stray answer
    changes nothing."""
    items = rig.put(beats=4, bad=False, data=False)
    await rig.cycles(10)
    assert rig.memory.aw.count == 1 and rig.memory.w.count == 0
    rig.model.answer, answer = (lambda resp: None), rig.model.answer
    rig.memory._unanswered.append({})
    rig.memory.outstanding += 1
    rig.memory.b.put({"resp": 2})  # nothing has been written yet
    await rig.cycles(6)
    rig.model.answer = answer
    assert rig.o_ack.count == 0
    cover("memory.stray_answer")
    rig.i_data.put(*items)
    await rig.done(100)
    later = {"data": 1, "strb": 0xFFFF, "last": 1}
    rig.i_data.put(later)
    await rig.cycles(10)
    assert rig.i_data.pending == 1, "data was taken without a command"
    cover("memory.data_waits")
    rig.command(0x1000, [(1, 0xFFFF)], 5)
    await rig.done(100)
    assert rig.i_data.stamps[-1] == rig.i_write.stamps[-1], (
        "a beat waits for nothing but its command"
    )


@WriterRig.test(latency=1)
async def valid_first(rig, cfg, rng):
    """Memory that takes nothing: address and first beat are offered all the same, and so is all
    that fits behind them."""
    rig.memory.aw.set_pause("stop")
    rig.memory.w.set_pause("stop")
    rig.put(beats=4)
    await rig.cycles(3)
    await rig.sampled()
    assert rig.offered("aw")[0] and rig.offered("w")[0], "valid waits for ready"
    assert rig.i_data.count == 2
    rig.put_many(2, beats=1)
    await rig.cycles(4)
    assert rig.i_write.count == 2, "a second address is kept while the first waits"
    rig.memory.aw.set_pause(None)
    rig.memory.w.set_pause(None)


@WriterRig.test(idle="random", stall="random")
async def reset_in_traffic(rig, cfg, rng):
    """Reset with bursts half way: afterwards the writer is empty and works as at the start."""
    rig.put_many(12)
    await rig.cycles(37)
    await rig.reset()
    rig.forget()
    rig.memory.memory._pages.clear()
    rig.o_ack.count = rig.memory.w.count = 0
    rig.put_many(cfg.write_depth + 3)
    await rig.finish()
    cover("memory.reset_in_traffic")
