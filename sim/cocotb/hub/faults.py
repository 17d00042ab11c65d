# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of two joined hubs: refused stores, memory that fails or stands still, reset in
traffic."""

from flow.driver import Handle
from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.contract.registers import IRQ_SOURCES
from sim.golden.system import SystemModel
from sim.quality.coverage import cover
from sim.system.system import row_operand

from .rig import HubRig, log, region, status


@HubRig.test()
async def refusals(rig, cfg, rng):
    """Every reason a decoder can give: answered, logged with the culprit, counted, and nobody else
    is disturbed."""
    here, there = rig.nodes
    await there.open_region(0, 5, expected=1)
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
    await rig.answered()
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
    await rig.cycles(4)
    assert await here.read("logs.COUNT") == 0 == int(here.irq.value)
    cover("hub.log_read_and_cleared")


@HubRig.test()
async def memory_error(rig, cfg, rng):
    """Memory refuses one burst: that region ends in ERROR, the other one is complete."""
    here, there = rig.nodes
    size = region(cfg, 0).row_bytes
    for index in range(2):
        await there.open_region(index, 0, expected=1)
        await here.handle_to(index, 1, index, size)
    there.errors.add(region(cfg, 0).base[0])
    for handle in range(2):
        rig.put_row(here, row_operand(handle, 0, 0), size)
    await rig.answered()
    await here.close_all(2, 0)
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


@HubRig.test(watchdog=20000)
async def hang_page(rig, cfg, rng):
    """Memory stands still: the registers name what waits where, and everything goes on
    afterwards."""
    here, there = rig.nodes
    size = region(cfg, 0).row_bytes
    await there.open_region(0, 0, expected=1, log2_tile=3)
    await here.handle_to(0, 1, 0, size)
    for writer in there.writers:
        writer.w.set_pause("stop")
    rows = min(region(cfg, 0, log2_tile=3).capacity, 40)
    for rowid in range(rows):
        rig.put_row(here, row_operand(0, 0, rowid), size)
    await rig.cycles(2500)
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
    await rig.answered()
    await here.close(0, 0)
    await rig.settle((0, 1))
    await rig.until(lambda: there.events.items[-1]["kind"] == 1, 10000, "ALL")
    await rig.cycles(100)
    rig.check()
    assert await there.read("hang.OUTSTANDING") == 0


@HubRig.test()
async def reset_in_traffic(rig, cfg, rng):
    """Both hubs are reset while rows are on their way; afterwards a row goes from store to ALL as
    if nothing had been."""
    for attempt in range(3):
        rig.model = SystemModel(cfg)
        for node in rig.nodes:
            node.forget()
        await rig.start()
        here, there = rig.nodes
        geometry = region(cfg, 0, expected=1)
        for node in rig.nodes:
            await node.region(0, geometry)
            await node.open(0, 0)
        for rank in range(2):
            await here.handle_to(rank, rank, 0, geometry.row_bytes)
        for rowid in range(2):
            for handle in range(2):
                rig.put_row(here, row_operand(handle, 0, rowid), geometry.row_bytes)
        if attempt < 2:
            await rig.cycles(rng.randint(5, 120))
    await rig.answered()
    await here.close_all(2, 0)
    await rig.settle((3, 3))
    rig.check()
    cover("hub.reset_in_traffic")
