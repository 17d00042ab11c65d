# SPDX-License-Identifier: Apache-2.0
"""Stores, registers, memory, links and events of generated hubs, as models that others made see
them."""

import functools

import cocotb
from cocotb.triggers import ClockCycles, Combine
from cocotbext.axi import AddressSpace

from flow.driver import Handle
from hub_rtl.contract.packets import OPERAND_PLAIN, CommandOp, EventKind, Reason, lane_of, pack
from sim.bench.runner import needs
from sim.system.system import row_operand

from .rig import AGE, HOLE, Hubs, region

SLVERR = 2
PLAIN = 0xC0000  # where plain stores may go


def wrapper_test(pauses=(None, "random"), fits=lambda cfg: True):
    """Decorator of a test ``async def name(hubs)``, once per kind of pauses."""

    def decorate(test):
        @functools.wraps(test)
        async def run(dut, pauses):
            hubs = Hubs(dut, f"{test.__name__}{pauses}")
            hubs.pause(pauses)
            await hubs.start()
            await test(hubs)
            await hubs.finish()

        return cocotb.test(timeout_time=600, timeout_unit="us")(
            cocotb.parametrize(pauses=pauses)(needs(fits)(run))
        )

    return decorate


async def handles(hubs, side, geometry, index=0):
    """Handle 2 r + index stores to a region of rank r."""
    for rank in range(len(hubs.sides)):
        entry = Handle(targets=((rank, index),), row_bytes=geometry.row_bytes)
        await side.drive(lambda d, n=2 * rank + index, entry=entry: d.handle(n, entry))


async def put_row(side, handle, epoch, rowid, data):
    """All stores of a row, in order."""
    for at in range(0, len(data), 32):
        operand = row_operand(handle, epoch, rowid, at // 16)
        lane = lane_of(operand, side.cfg.lanes, side.cfg.packet_bytes)
        await side.store(lane, operand, data[at : at + 32])


async def dispatch(hubs, side, rows, epoch, sent):
    """One epoch of a producer: as many rows to each rank, told to ``sent``, then the closes."""
    for n in range(rows):
        for rank in range(len(hubs.sides)):
            data = hubs.bytes(160)
            sent[rank].append(data)
            await put_row(side, 2 * rank, epoch, len(hubs.sides) * n + side.rank, data)
    for rank in range(len(hubs.sides)):
        await side.command(CommandOp.CLOSE, handle=2 * rank, epoch=epoch)


async def collect(side, geometry, epoch, sent):
    """One epoch of a consumer: when READY is taken the rows of its tile are in memory, each one
    that was sent, none twice; ALL comes last, with their number."""
    found = []
    while True:
        kind, event = await side.event()
        assert event["epoch"] == epoch and not event["plain"], event
        if kind != EventKind.READY:
            break
        first = (event["group"] - geometry.group_base) * geometry.tile_rows
        for slot in range(first, first + event["rows"]):
            at = geometry.base[epoch & 1] + slot * geometry.stride
            found.append(bytes(side.memory.mem.read(at, geometry.row_bytes)))
    assert (kind, event["rows"]) == (EventKind.ALL, len(found)), (kind, event)
    assert sorted(found) == sorted(sent[side.rank]), f"rank {side.rank}, epoch {epoch}"


async def exchange(hubs, epochs):
    """Each rank sends to each, epoch after epoch."""
    geometry = region(hubs.cfg, 0, expected=len(hubs.sides))
    for side in hubs.sides:
        await side.drive(lambda d: d.region(0, geometry))
        await handles(hubs, side, geometry)
    for epoch in range(epochs):
        for side in hubs.sides:
            await side.drive(lambda d, epoch=epoch: d.open(0, epoch))
        sent = [[] for _ in hubs.sides]
        rows = geometry.capacity // len(hubs.sides)
        await Combine(
            *(hubs.go(dispatch(hubs, s, rows, epoch, sent)) for s in hubs.sides),
            *(hubs.go(collect(s, geometry, epoch, sent)) for s in hubs.sides),
        )
        for side in hubs.sides:
            await side.drive(lambda d, epoch=epoch: d.release(0, epoch))


@wrapper_test()
async def rows(hubs):
    """Rows to the own rank and to the other, if there is one, three epochs."""
    await exchange(hubs, 3)


@wrapper_test(pauses=("random",))
async def plain_bytes(hubs):
    """A plain store is in the memory of its rank when the remote fence is answered, and its
    neighbours are not touched."""
    for side in hubs.sides:
        for rank in range(2):
            await side.drive(lambda d, rank=rank: d.window(rank, PLAIN, PLAIN + 0x1000))
    for side in hubs.sides:
        data, there = hubs.bytes(32), hubs.sides[-1 - side.rank]
        operand = pack(OPERAND_PLAIN, addr=PLAIN + 0x40, rank=there.rank, plain=1)
        lane = lane_of(operand, hubs.cfg.lanes, hubs.cfg.packet_bytes)
        await side.store(lane, operand, data, 0x00FFFF00)
        await side.command(CommandOp.FENCE_REMOTE)
        wanted = bytes(0x48) + data[8:24] + bytes(0x28)
        assert there.memory.mem.read(PLAIN, 0x80) == wanted


@wrapper_test(pauses=("random",))
async def registers(hubs):
    """Reads and writes at the same time, each answered with its own; an access that the rules
    refuse is answered SLVERR and changes nothing."""
    side = hubs.sides[0]
    port = side.registers
    timer, age = (side.address(f"control.{name}") for name in ("TIMEOUT", "AGE_LIMIT"))
    values = [hubs.rng.getrandbits(32) for _ in range(12)]
    for value in values:
        write = cocotb.start_soon(port.write(timer, value.to_bytes(4, "little")))
        read = cocotb.start_soon(port.read_dword(age))
        assert (await write).resp == 0
        assert await read == AGE == await port.read_dword(age)
        assert await port.read_dword(timer) == value
    part = await port.write(timer, b"\x55")
    assert part.resp == SLVERR and await port.read_dword(timer) == values[-1]
    nothing = await port.read(0xFFFC, 4)
    assert nothing.resp == SLVERR


@wrapper_test()
async def memory_refuses(hubs):
    """Memory answers SLVERR to the rows of one region: it ends in ERROR, the other one is
    exact."""
    here, there = hubs.sides[0], hubs.sides[-1]
    bad = region(hubs.cfg, 0, base=(HOLE, HOLE + 0x8000))
    good = region(hubs.cfg, 1)
    for index, geometry in enumerate((bad, good)):
        await there.drive(lambda d, n=index, g=geometry: (d.region(n, g), d.open(n, 0)))
        await handles(hubs, here, geometry, index)
    rows = [hubs.bytes(160) for _ in range(2)]
    for rowid, data in enumerate(rows):
        for index in range(2):
            await put_row(here, 2 * there.rank + index, 0, rowid, data)
    for index in range(2):
        await here.command(CommandOp.CLOSE, handle=2 * there.rank + index)
    events = [await there.event() for _ in range(3)]
    told = sorted((event["region"], kind, event["status"]) for kind, event in events)
    ended = (0, EventKind.ERROR, Reason.MEM_ERROR)
    assert told == [ended, (1, EventKind.READY, 0), (1, EventKind.ALL, 0)], told
    slots = [there.memory.mem.read(good.base[0] + n * good.stride, 160) for n in range(2)]
    assert sorted(slots) == sorted(rows)


@wrapper_test(fits=lambda cfg: not cfg.victim_sets)
async def spilled_rows(hubs):
    """More rows are begun than a hub keeps on chip: the others are in the spill table meanwhile,
    through the third port; each is whole in the end. If memory refuses to write the table, or to
    read it, the region ends in ERROR."""
    here, there = hubs.sides
    geometry, refuses = region(hubs.cfg, 0), AddressSpace(1 << 48)
    for refused, end in (
        ((), EventKind.ALL),
        (("write",), EventKind.ERROR),
        (("read",), EventKind.ERROR),
    ):
        await hubs.start()
        there.spill.write_if.target = refuses if "write" in refused else there.space
        there.spill.read_if.target = refuses if "read" in refused else there.space
        await there.drive(lambda d: (d.region(0, geometry), d.open(0, 0)))
        await handles(hubs, here, geometry)
        rows = [hubs.bytes(160) for _ in range(4)]
        for at in range(0, 160, 32):
            for rowid, data in enumerate(rows):
                await here.store(0, row_operand(2, 0, rowid, at // 16), data[at : at + 32])
            await here.command(CommandOp.FENCE)  # what is there leaves, rows in part
            await ClockCycles(hubs.dut.aclk, 200)
        assert await there.counter("spills"), "no row was spilled"
        await here.command(CommandOp.CLOSE, handle=2)
        kind, event = await there.event()
        while kind == EventKind.READY:
            kind, event = await there.event()
        assert kind == end, event
        if end == EventKind.ALL:
            at = geometry.base[0]
            slots = [there.memory.mem.read(at + n * geometry.stride, 160) for n in range(4)]
            assert sorted(slots) == sorted(rows)


@wrapper_test()
async def reset_in_traffic(hubs):
    """Hubs and models are reset while rows are on their way; then everything is as after the
    first reset."""
    for _ in range(3):
        hubs.go(exchange(hubs, 2))
        await ClockCycles(hubs.dut.aclk, hubs.rng.randint(1500, 4000))
        await hubs.start()
    await exchange(hubs, 1)
