# SPDX-License-Identifier: Apache-2.0
"""Your first row: one hub that stores a row to its own rank, with AXI models of cocotbext-axi
around it. ``docs/first_row.md`` tells the story; ``run.py`` runs it."""

import logging
import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiRam,
    AxiRamWrite,
    AxiStreamBus,
    AxiStreamSink,
    AxiStreamSource,
    AxiWriteBus,
)
from cocotbext.axi.sparse_memory import SparseMemory
from sidecar import Sidecar

RANK, REGION, HANDLE, EPOCH, ROWID = 0, 0, 0, 0, 5
BASE, SPILL = 0x10000, 0x20000  # of the region in memory
ROW = bytes(range(1, 129))  # 128 bytes: what is sent


class System:
    """A hub with everything around it."""

    def __init__(self, dut):
        logging.getLogger("cocotb.moehub_axi").setLevel("WARNING")  # the models tell each transfer
        self.dut = dut
        self.hub = hub = Sidecar(Path(os.environ["MOEHUB_JSON"]))
        on = dut.aclk, dut.aresetn, False  # clock, reset, reset is active low
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), *on)

        # One memory, 48 address bits: rows come through a port per slice, and spilled rows of a
        # full hub through one more.
        self.memory = SparseMemory(1 << 48)
        slices = hub.parameters["lanes"] + hub.parameters["loop_lanes"]
        for n in range(slices):
            AxiRamWrite(AxiWriteBus.from_prefix(dut, f"m_axi_{n}"), *on, mem=self.memory)
        AxiRam(AxiBus.from_prefix(dut, "m_axi_spill"), *on, mem=self.memory)

        def source(name):
            return AxiStreamSource(AxiStreamBus.from_prefix(dut, name), *on)

        def sink(name):
            return AxiStreamSink(AxiStreamBus.from_prefix(dut, name), *on)

        self.sources = {name: source(name) for name in ("s_axis_store0", "s_axis_command")}
        self.sinks = {
            name: sink(name)
            for name in ("m_axis_response0", "m_axis_command_response", "m_axis_event")
        }
        # No fabric: the links are at rest.
        for n in range(hub.parameters["lanes"] * hub.parameters["slice_links"]):
            for signal in ("tvalid", "tlast", "tdata"):
                getattr(dut, f"s_axis_rx{n}_{signal}").value = 0
            getattr(dut, f"m_axis_tx{n}_tready").value = 1

    async def reset(self):
        Clock(self.dut.aclk, 10, "ns").start()
        self.dut.aresetn.value = 0
        await ClockCycles(self.dut.aclk, 4)
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 4)

    async def write(self, register, **fields):
        """Writes a register: ``await write("handles.FLAGS", valid=1)``."""
        word = self.hub.word(register, **fields)
        await self.registers.write_dword(self.hub.address(register), word)

    async def wait(self, field, value):
        """Waits until a field of ``control.STATUS`` has a value."""
        address = self.hub.address("control.STATUS")
        for _ in range(10_000):
            word = await self.registers.read_dword(address)
            if self.hub.field("control.STATUS", field, word) == value:
                return
        raise AssertionError(f"control.STATUS.{field} never became {value}")

    async def send(self, name, **fields):
        await self.sources[name].send(self.hub.pack(name, **fields))

    async def receive(self, name):
        frame = await with_timeout(self.sinks[name].recv(), 100, "us")
        return self.hub.unpack(name, frame.tdata)


async def set_up(system):
    """What software does once: the hub's rank, a region to receive in, a handle to send by."""
    await system.wait("cleared", 1)
    await system.write("id.RANK", value=RANK)

    await system.write("regions.INDEX", value=REGION)
    await system.write("regions.FLAGS", valid=1, expected=1, log2_tile=0)
    await system.write("regions.BASE0_LO", value=BASE)
    await system.write("regions.BASE1_LO", value=BASE + 0x1000)
    await system.write("regions.SPILL_BASE0_LO", value=SPILL)
    await system.write("regions.SPILL_BASE1_LO", value=SPILL + 0x1000)
    await system.write("regions.STRIDE", value=len(ROW))
    await system.write("regions.ROW_BYTES", value=len(ROW))
    await system.write("regions.CAPACITY", value=2)
    await system.write("regions.GROUP_BASE", value=0)
    await system.write("regions.ROW_FIRST", value=0)
    await system.write("regions.ROW_SPAN", value=64)
    await system.write("regions.COMMIT", value=1)
    op = system.hub.value("region_order", "OPEN")
    await system.write("regions.COMMAND", op=op, epoch=EPOCH)
    await system.wait("region_busy", 0)

    await system.write("handles.INDEX", value=HANDLE)
    await system.write("handles.FLAGS", valid=1, epoch=EPOCH)
    await system.write("handles.ROW_BYTES", value=len(ROW))
    await system.write("handles.REPLICA0", rank=RANK, region=REGION)
    await system.write("handles.COMMIT", value=1)


@cocotb.test()
async def first_row(dut):
    system = System(dut)
    await system.reset()
    await set_up(system)

    # The row goes in as stores of 32 bytes; each is answered.
    value, structure = system.hub.value, system.hub.structure
    ok = value("reason", "OK")
    row = {"handle": HANDLE, "epoch": EPOCH, "rowid": ROWID}
    for tag, at in enumerate(range(0, len(ROW), 32)):
        await system.send(
            "s_axis_store0",
            operand=structure("operand_row", **row, row_off=at // 16),
            data=int.from_bytes(ROW[at : at + 32], "little"),
            mask=0xFFFFFFFF,
            tag=tag,
        )
        response = await system.receive("m_axis_response0")
        assert response == {"tag": tag, "status": ok}, response

    # Nothing more comes in this epoch.
    close = value("command", "CLOSE")
    await system.send("s_axis_command", op=close, handle=HANDLE, epoch=EPOCH, tag=1)
    answer = await system.receive("m_axis_command_response")
    assert answer == {"tag": 1, "status": ok}, answer

    # READY: the tile's rows are in memory, for memory has acknowledged them.
    event = await system.receive("m_axis_event")
    assert event["kind"] == value("event_kind", "READY") and event["rows"] == 1, event
    assert system.memory.read(BASE, len(ROW)) == ROW
    print(f"READY: group {event['group']} of region {event['region']}, {event['rows']} row")
    print("\n".join(system.memory.hexdump_lines(BASE, len(ROW))))

    # ALL: the region is complete.
    event = await system.receive("m_axis_event")
    assert event["kind"] == value("event_kind", "ALL") and event["rows"] == 1, event
    print(f"ALL: region {event['region']} is complete, {event['rows']} row")
