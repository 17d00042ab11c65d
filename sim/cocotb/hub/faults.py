# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of two joined hubs: refused stores, memory that fails or stands still, reset in
traffic."""

import cocotb

from flow.driver import Handle
from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.contract.registers import IRQ_SOURCES
from sim.golden.system import SystemModel
from sim.quality.coverage import cover
from sim.system.system import row_operand

from .rig import HubRig, log, region, status


@cocotb.test()
async def refusals(dut):
    """Every reason a decoder can give: answered, logged with the culprit, counted, and nobody else
    is disturbed."""
    rig = HubRig(dut, "refusals")
    cfg = rig.cfg
    await rig.start()
    here, there = rig.nodes
    await there.region(0, region(cfg, 0, expected=1))
    await there.open(0, 5)
    size = region(cfg, 0).row_bytes
    entry = Handle(targets=((1, 0),), row_bytes=size, epoch=5, owner=3)
    await here.handle(0, entry)
    await here.write("control.IRQ_ENABLE", 1 << list(IRQ_SOURCES).index("refusal"))
    good = list(rig.sectors(row_operand(0, 5, 1), rig.bytes(size)))
    data = rig.bytes(32)
    wanted = {
        Reason.FOREIGN: lambda: here.store(row_operand(0, 5, 1), data, 1, owner=2),
        Reason.UNKNOWN: lambda: here.store(row_operand(cfg.handles - 1, 5, 1), data, 1, owner=3),
        Reason.EPOCH_EARLY: lambda: here.store(row_operand(0, 6, 1), data, 1, owner=3),
        Reason.EPOCH_STALE: lambda: here.store(row_operand(0, 4, 1), data, 1, owner=3),
        Reason.ROW_OVERRUN: lambda: here.store(row_operand(0, 5, 1, size // 16), data, 1, owner=3),
    }
    if cfg.lanes > 1:
        wanted[Reason.BAD_LANE] = lambda: here.store(row_operand(0, 5, 1), data, 1, owner=3, lane=0)
    for n, (reason, store) in enumerate(wanted.items()):
        assert store() == reason
        here.store(*good[n], owner=3)
        cover(f"hub.store_{reason.name.lower()}")
    for store in good[len(wanted) :]:
        here.store(*store, owner=3)
    await rig.bench.until(lambda: here.answered, 3000, "answers")
    assert await here.command(CommandOp.CLOSE, 0, 5, owner=1) == Reason.FOREIGN
    assert await here.command(CommandOp.CLOSE_ALL, 0, 5, owner=3) == rig.model.close(
        0, 0, 5, owner=3
    )
    assert here.store(*good[0], owner=3) == Reason.AFTER_CLOSE
    await rig.settle((0, 2))
    rig.check()
    reasons = [*wanted, Reason.AFTER_CLOSE]
    counts = await here.counters()
    assert counts["stores_refused"] == len(reasons) and counts["stores"] == len(reasons) + len(good)
    entries = await log(here)
    assert len(entries) + await here.read("logs.LOST") == len(reasons)
    # Lanes are independent: the log keeps the order of each.
    kept = [e["reason"] for e in entries]
    assert (
        kept == [int(reason) for reason in reasons][: len(kept)]
        if cfg.lanes == 1
        else sorted(kept) == sorted(map(int, reasons))
    )
    assert all(e["side"] and not e["remote"] and not e["plain"] for e in entries)
    assert int(here.irq.value) == 1
    await here.write("logs.CLEAR", 1)
    await here.write("control.IRQ_STATUS", 0xFFFFFFFF)
    await rig.bench.cycles(4)
    assert await here.read("logs.COUNT") == 0 == int(here.irq.value)
    cover("hub.log_read_and_cleared")


@cocotb.test()
async def memory_error(dut):
    """Memory refuses one burst: that region ends in ERROR, the other one is complete."""
    rig = HubRig(dut, "memory_error")
    cfg = rig.cfg
    await rig.start()
    here, there = rig.nodes
    size = region(cfg, 0).row_bytes
    for index in range(2):
        await there.region(index, region(cfg, index, expected=1))
        await there.open(index, 0)
        await here.handle(index, Handle(targets=((1, index),), row_bytes=size))
    there.errors.add(region(cfg, 0).base[0])
    for handle in range(2):
        for store in rig.sectors(row_operand(handle, 0, 0), rig.bytes(size)):
            here.store(*store)
    await rig.bench.until(lambda: here.answered, 3000, "answers")
    for handle in range(2):
        await here.close(handle, 0)
    await rig.settle((0, 3))
    events = sorted(there.plain_event(item) for item in there.events.items)
    assert [(e[0], e[2], e[6]) for e in events] == [
        (0, 1, 0),
        (1, 1, 0),
        (2, 0, int(Reason.MEM_ERROR)),
    ], events
    assert (await status(there, 0, 0))["state"] == 2
    assert (await there.counters())["error"] == 1
    cover("hub.memory_error")


@cocotb.test()
async def hang_page(dut):
    """Memory stands still: the registers name what waits where, and everything goes on
    afterwards."""
    rig = HubRig(dut, "hang", watchdog=20000)
    cfg = rig.cfg
    await rig.start()
    here, there = rig.nodes
    size = region(cfg, 0).row_bytes
    await there.region(0, region(cfg, 0, expected=1, log2_tile=3))
    await there.open(0, 0)
    await here.handle(0, Handle(targets=((1, 0),), row_bytes=size))
    for writer in there.writers:
        writer.w.set_pause("stop")
    rows = min(region(cfg, 0, log2_tile=3).capacity, 40)
    for rowid in range(rows):
        for store in rig.sectors(row_operand(0, 0, rowid), rig.bytes(size)):
            here.store(*store)
    await rig.bench.cycles(2500)
    lane = rig.model.cfg.lanes - 1
    await there.write("hang.SLICE", lane)
    await here.write("hang.SLICE", lane)
    assert await there.read("hang.OUTSTANDING") > 0
    cover("hub.hang_outstanding")
    if await here.read("hang.NO_CREDIT0") >> 1 & 1:
        assert (
            await here.field("hang.OLDEST", "valid") == 1
            and await here.field("hang.OLDEST", "rank") == 1
        )
        assert await there.field("hang.WAITING", "valid") == 1
        cover("hub.hang_no_credit")
    for writer in there.writers:
        writer.w.set_pause("none")
    await rig.bench.until(lambda: here.answered, 10000, "answers")
    await here.close(0, 0)
    await rig.settle((0, 1))
    await rig.bench.until(lambda: there.events.items[-1]["kind"] == 1, 10000, "ALL")
    await rig.bench.cycles(100)
    rig.check()
    assert await there.read("hang.OUTSTANDING") == 0


@cocotb.test()
async def reset_in_traffic(dut):
    """Both hubs are reset while rows are on their way; afterwards a row goes from store to ALL as
    if nothing had been."""
    rig = HubRig(dut, "reset")
    for attempt in range(3):
        rig.model = SystemModel(rig.cfg)
        for node in rig.nodes:
            node.forget()
        await rig.start()
        here, there = rig.nodes
        geometry = region(rig.cfg, 0, expected=1)
        for node in rig.nodes:
            await node.region(0, geometry)
            await node.open(0, 0)
        for rank in range(2):
            await here.handle(rank, Handle(targets=((rank, 0),), row_bytes=geometry.row_bytes))
        for rowid in range(2):
            for handle in range(2):
                for store in rig.sectors(
                    row_operand(handle, 0, rowid), rig.bytes(geometry.row_bytes)
                ):
                    here.store(*store)
        if attempt < 2:
            await rig.bench.cycles(rig.rng.randint(5, 120))
    await rig.bench.until(lambda: here.answered, 3000, "answers")
    for handle in range(2):
        await here.close(handle, 0)
    await rig.settle((3, 3))
    rig.check()
    cover("hub.reset_in_traffic")
