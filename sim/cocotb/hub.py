"""cocotb tests of two joined hubs, with own-rank traffic and link traffic, set up through the registers."""

import cocotb

from hub_rtl.formats import Reason
from sim.bench.coverage import cover
from sim.bench.streams import GRID
from sim.cocotb.hub_rig import HubRig
from sim.driver import Handle, Region
from sim.system import row_operand


def region(cfg, index, *, row_bytes=None, rows=None, log2_tile=0, expected=2, **more):
    """A region with its own memory and groups; all regions of one hub share the groups evenly."""
    row_bytes = row_bytes or min(256, cfg.max_row_bytes)
    stride = -(-row_bytes // cfg.packet_bytes) * cfg.packet_bytes
    share = cfg.groups // cfg.regions
    rows = rows or min(cfg.capacity, share << log2_tile)
    base = index * 0x10000
    return Region(base=(base, base + 0x8000), stride=stride, row_bytes=row_bytes, capacity=rows, group_base=index * share,
                  log2_tile=log2_tile, expected=expected, spill_base=(0x100000 + index * 0x4000, 0x102000 + index * 0x4000),
                  row_span=1024, **more)


@cocotb.test()
async def one_row(dut):
    """Thin slice: one row to the own rank and one to the other; READY of the last tile, then ALL."""
    rig = HubRig(dut, "one_row", watchdog=3000)
    await rig.start()
    here, there = rig.nodes
    for node in rig.nodes:
        await node.region(0, region(rig.cfg, 0, log2_tile=1, expected=1))
        await node.open(0, 0)
    await here.handle(0, Handle(targets=((0, 0),), row_bytes=region(rig.cfg, 0).row_bytes))
    await here.handle(1, Handle(targets=((1, 0),), row_bytes=region(rig.cfg, 0).row_bytes))
    for handle in range(2):
        for store in rig.sectors(row_operand(handle, 0, 7), rig.bytes(region(rig.cfg, 0).row_bytes)):
            assert here.store(*store) == Reason.OK
    await rig.bench.until(lambda: here.answered, 1000, "answers")
    await here.close(0, 0)
    await here.close(1, 0)
    await rig.settle((2, 2))
    rig.check()
    assert [item["kind"] for item in there.events.items] == [0, 1]
    cover("hub.own_rank")
    cover("hub.over_the_link")


@cocotb.test()
@cocotb.parametrize(grid=GRID[::4])
async def many_rows(dut, grid):
    """Rows of both hubs to both hubs, two epochs at a time, masks split at random, three rounds of epochs."""
    rig = HubRig(dut, "many", grid)
    cfg, rng = rig.cfg, rig.rng
    await rig.start()
    tiles = rng.randint(0, 2)
    for node in rig.nodes:
        for index in range(2):
            await node.region(index, region(cfg, index, log2_tile=tiles))
            for epoch in range(2):
                await node.open(index, epoch)
        for rank in range(2):
            for index in range(2):
                await node.handle(2 * rank + index, Handle(targets=((rank, index),), row_bytes=region(cfg, 0).row_bytes))
    size = region(cfg, 0).row_bytes
    most = min(region(cfg, 0, log2_tile=tiles).capacity // 2, 6)
    for epoch in range(2):
        stores = []
        for node in rig.nodes:
            for handle in range(4):
                for row in range(rng.randint(0, most)):
                    whole = rng.random() < 0.5
                    for store in rig.sectors(row_operand(handle, epoch, 2 * row + node.rank), rig.bytes(size), whole):
                        stores.append((node, store))
                        cover("hub.split_masks", not whole)
        rng.shuffle(stores)
        for node, store in stores:
            node.store(*store, cls=rng.getrandbits(1))
        await rig.bench.until(lambda: all(node.answered for node in rig.nodes), 20000, "answers")
        for node in rig.nodes:
            for handle in range(4):
                await node.close(handle, epoch)
    await rig.bench.until(lambda: all(sum(item["kind"] == 1 for item in node.events.items) == 4 for node in rig.nodes), 20000,
                          "ALL of each region and epoch")
    await rig.settle((4, 4))
    rig.check()
    cover("hub.two_epochs")
    cover("hub.pair_grid_" + "_".join(grid))
