# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of two joined hubs, with own-rank traffic and link traffic, set up through the
registers."""

from flow.driver import DepRange
from hub_rtl.contract.packets import CommandOp, Reason
from sim.bench.streams import GRID
from sim.quality.coverage import cover
from sim.system.system import plain_operand, row_operand

from .rig import HubRig, log, region, status


@HubRig.test(watchdog=3000)
async def one_row(rig, cfg, rng):
    """Thin slice: one row to the own rank and one to the other; READY of the last tile, then
    ALL."""
    here, there = rig.nodes
    for node in rig.nodes:
        await node.open_region(0, 0, log2_tile=1, expected=1)
    size = region(cfg, 0).row_bytes
    for handle in range(2):
        await here.handle_to(handle, handle, 0, size)
        for store in rig.sectors(row_operand(handle, 0, 7), rig.bytes(size)):
            assert here.store(*store) == Reason.OK
    await rig.answered()
    await here.close_all(2, 0)
    await rig.settle((2, 2))
    rig.check()
    assert [item["kind"] for item in there.events.items] == [0, 1]
    cover("hub.own_rank")
    cover("hub.over_the_link")


@HubRig.test(grid=GRID[::4])
async def many_rows(rig, cfg, rng, grid):
    """Rows of both hubs to both hubs, two epochs at a time, masks split at random, three rounds of
    epochs."""
    tiles = rng.randint(0, 2)
    size = region(cfg, 0).row_bytes
    for node in rig.nodes:
        for index in range(2):
            await node.open_region(index, 0, log2_tile=tiles)
            await node.open(index, 1)
            for rank in range(2):
                await node.handle_to(2 * rank + index, rank, index, size)
    most = min(region(cfg, 0, log2_tile=tiles).capacity // 2, 6)
    for epoch in range(2):
        stores = []
        for node in rig.nodes:
            for handle in range(4):
                for row in range(rng.randint(0, most)):
                    whole = rng.random() < 0.5
                    for store in rig.sectors(
                        row_operand(handle, epoch, 2 * row + node.rank), rig.bytes(size), whole
                    ):
                        stores.append((node, store))
                        cover("hub.split_masks", not whole)
        rng.shuffle(stores)
        for node, store in stores:
            node.store(*store, cls=rng.getrandbits(1))
        await rig.answered()
        for node in rig.nodes:
            await node.close_all(4, epoch)
    await rig.until(
        lambda: all(node.complete == 4 for node in rig.nodes), 20000, "ALL of each region and epoch"
    )
    await rig.settle((4, 4))
    rig.check()
    cover("hub.two_epochs")
    cover(f"hub.pair_grid_{'_'.join(grid)}")


@HubRig.test()
async def plain_stores(rig, cfg, rng):
    """Plain stores to both ranks with a dependency range; those outside the window are refused,
    reported and logged."""
    base, groups = 0x60000, min(cfg.groups // 2, 6)
    dep = DepRange(
        base=base,
        limit=base + groups * 256,
        log2_stride=8,
        group_base=cfg.groups - groups,
        threshold=256,
    )
    for node in rig.nodes:
        for source in range(2):
            rig.model.window(node.rank, source, base, base + 0x1000)
            await node.drive(lambda d, source=source: d.window(source, base, base + 0x1000))
        rig.model.dep_range(node.rank, 0, dep)
        await node.drive(lambda d: d.dep_range(0, dep))
    stores = []
    for group in range(groups):
        for sector in range(8):
            for node in rig.nodes:
                source = rng.choice(rig.nodes)
                stores.append((source, plain_operand(node.rank, base + 256 * group + 32 * sector)))
    for n in range(4):  # inside the window but in no range, and outside the window
        stores.append((rng.choice(rig.nodes), plain_operand(n & 1, base + 0x800 + 32 * n)))
        stores.append((rig.nodes[0], plain_operand(1, base + 0x2000 + cfg.packet_bytes * n)))
    rng.shuffle(stores)
    for source, operand in stores:
        source.store(operand, rig.bytes(32), 0xFFFFFFFF)
    # A rank that does not exist, if the field can name one.
    if cfg.ranks < 128:
        assert (
            rig.nodes[0].store(plain_operand(cfg.ranks, base), rig.bytes(32), 1) == Reason.UNKNOWN
        )
    await rig.answered()
    for node in rig.nodes:  # a fence through the registers
        await node.write("control.COMMAND", int(CommandOp.FENCE))
        while await node.field("control.ANSWER", "busy"):
            pass
        assert await node.field("control.ANSWER", "status") == Reason.OK
    await rig.settle((groups, groups))
    rig.check()
    here, there = rig.nodes
    counts = await there.counters()
    # Repeated refusals of one source in one slice are told once.
    assert counts["refused_window"] == 4 and 1 <= counts["reports"] <= 4
    assert counts["rejects_sent"] + counts["rejects_lost"] == counts["reports"]
    assert (await here.counters())["rejects_received"] == counts["rejects_sent"]
    entries = await log(there)
    assert len(entries) + await there.read("logs.LOST") == counts["reports"]
    assert all(
        e["reason"] == Reason.WINDOW
        and e["rank"] == 0
        and e["plain"]
        and not e["side"] | e["remote"]
        for e in entries
    )
    cover("hub.window_refused")
    cover("hub.fence_by_register")
    cover("hub.dependency_range")


@HubRig.test()
async def regions_and_epochs(rig, cfg, rng):
    """Status registers agree with the model; geometry of an open region stays; release, next epoch,
    abort, early rows."""
    await rig.start(timeout=400)
    here, there = rig.nodes
    geometry = region(cfg, 0, expected=2, rows=2)
    size = geometry.row_bytes
    await there.region(0, geometry)
    await there.open(0, 0)
    await there.drive(lambda d: d.region(0, region(cfg, 0, rows=1)))  # refused: the region is open
    assert await there.field("regions.ERROR", "busy") == 1
    cover("hub.geometry_of_open_region")
    for node in rig.nodes:
        await node.handle_to(0, 1, 0, size)
    for n, node in enumerate(rig.nodes):  # two rows each, two slots: two rows are refused
        for rowid in (2 * n, 2 * n + 1):
            rig.put_row(node, row_operand(0, 0, rowid), size)
    await rig.answered()
    await here.close(0, 0)
    # One producer has not closed: the stall is reported, with its name.
    await rig.cycles(1200)
    assert (
        await there.field("hang.TIMEOUT", "valid") == 1
        and await there.field("hang.TIMEOUT", "region") == 0
    )
    assert await there.read("hang.TIMEOUT_MISSING0") == sum(1 << n for n in range(1, cfg.ranks))
    cover("hub.timeout")
    assert (await status(there, 0, 0))["state"] == 1
    await there.close(0, 0)
    await rig.settle((0, 3))
    rig.check()
    assert there.events.items[-1]["refused"] == 1
    cover("hub.region_full")
    got = await status(there, 0, 0)
    assert {name: got[name] for name in ("sent", "acked", "refused", "rows")} == rig.model.totals(
        1, 0, 0
    )
    assert got["state"] == 2 and got["epoch"] == 0
    # Release, open again for epoch 2; ABORT gives it back whatever has come.
    await there.drive(lambda d: d.release(0, 0))
    while (await status(there, 0, 0))["state"]:
        pass
    await there.drive(lambda d: d.open(0, 2))
    await here.handle_to(0, 1, 0, size, epoch=2)
    await there.drive(lambda d: d.release(0, 2))  # not possible: it is open
    assert (
        await there.field("regions.COMMAND_ERROR", "valid") == 1
        and await there.field("regions.COMMAND_ERROR", "op") == 1
    )
    cover("hub.command_error")
    await there.drive(lambda d: d.abort(0, 2))
    for _ in range(100):
        if (await status(there, 0, 2))["state"] == 0:
            break
    else:
        raise AssertionError("the region never came back after ABORT")
    cover("hub.abort")


@HubRig.test(fits=lambda cfg: cfg.slice_links == 1)
async def latency_and_rate(rig, cfg, rng):
    """One packet through idle hubs, then a stream of full rows over one lane: cycles as documented,
    no bubble on the lane."""
    here, there = rig.nodes
    size = min(1024, cfg.max_row_bytes)
    for node in rig.nodes:
        for writer in node.writers:
            writer.later_b.latency = (1, 1)
        await node.region(0, region(cfg, 0, row_bytes=cfg.packet_bytes, expected=1, rows=2))
        await node.region(1, region(cfg, 1, row_bytes=size, expected=1))
        await node.open(0, 0)
        await node.open(1, 0)
    for rank in range(2):
        await here.handle_to(rank, rank, 0, cfg.packet_bytes)
    await here.handle_to(2, 1, 1, size)
    for handle, node in enumerate(rig.nodes):
        rig.put_row(here, row_operand(handle, 0, handle), cfg.packet_bytes)
        await rig.until(lambda node=node: node.events.count, 500, "READY of one packet")
        last = max(stamp for source in here.stores for stamp in source.stamps)
        address, data, answer = (
            min(stamp for writer in node.writers for stamp in agent(writer).stamps)
            for agent in (lambda w: w.aw, lambda w: w.w, lambda w: w.b)
        )
        path = "own rank" if node is here else "link"
        rig.dut._log.info(
            f"{path}: last store to awvalid {address - last} cycles, to wvalid {data - last}; "
            f"memory's answer to READY {node.events.stamps[0] - answer}"
        )
        assert (
            address - last <= (52 if node is there else 31) and node.events.stamps[0] - answer <= 8
        )
    rows = region(cfg, 1).capacity
    before = sum(writer.w.count for writer in there.writers)
    for rowid in range(rows):
        rig.put_row(here, row_operand(2, 0, rowid * cfg.lanes), size)
    beats = rows * size // cfg.slice_bytes
    flits = rows * size // 16 * (cfg.packet_flits + 1) // cfg.packet_flits
    await rig.until(
        lambda: sum(writer.w.count for writer in there.writers) == before + beats,
        20 * beats + 1000,
        "all rows",
    )
    writer = max(there.writers, key=lambda writer: writer.w.count)
    stamps = writer.w.stamps[-beats:]
    cycles = stamps[-1] - stamps[0] + 1
    rig.dut._log.info(
        f"{beats} beats in {cycles} cycles, {flits} flits on the lane: {flits / cycles:.2f} "
        "flits per cycle"
    )
    # With places for a round trip the lane carries a flit per cycle; the 16 of `tiny` need not.
    assert cycles <= (1.08 if cfg.pool_places >= 24 else 3) * flits
    cover("hub.full_rate", cfg.pool_places >= 24)
    await here.close_all(3, 0)
    await rig.until(lambda: sum(node.complete for node in rig.nodes) == 3, 5000, "ALL")
    await rig.cycles(100)
