# SPDX-License-Identifier: Apache-2.0
"""Generated hubs, ``moehub_axi``, one or two, among models that others made (``cocotbext-axi``):
memory, register master, streams, links. Nothing here is the project's but the rules of AXI
(:mod:`.protocol`) and what software writes (:mod:`flow.driver`)."""

import itertools
import logging

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import (
    AddressSpace,
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiSlave,
    AxiSlaveWrite,
    AxiStreamBus,
    AxiStreamSink,
    AxiStreamSource,
    AxiWriteBus,
    SparseMemoryRegion,
)

from flow.driver import Driver, Recorder, Region
from flow.verilog.axi_wrapper import axi_interfaces
from hub_rtl.contract.packets import CommandOp, EventKind, Reason
from hub_rtl.contract.registers import register_map
from sim.bench.pauses import pause_pattern
from sim.bench.runner import bench_params

from .hubs import SIDES
from .protocol import Monitor, ReadPort, Stream, WritePort

__all__ = ["AGE", "HOLE", "Hubs", "Side", "region"]

MEMORY = 1 << 20  # bytes that memory has; above, it answers SLVERR
HOLE = 1 << 21
AGE = 300  # cycles until an entry goes before younger ones
PATIENCE = 3000  # cycles that something may wait; a hub waits for its peer's memory


def region(cfg, index, **changes):
    """A region with tiles of two rows."""
    share = cfg.groups // cfg.regions
    base = index * 0x10000
    fields = {
        "base": (base, base + 0x8000),
        "stride": 256,
        "row_bytes": 160,
        "capacity": min(cfg.capacity, 2 * share),
        "group_base": index * share,
        "log2_tile": 1,
        "expected": 1,
        "spill_base": (0x80000 + index * 0x4000, 0x82000 + index * 0x4000),
        "row_span": 512,
    }
    return Region(**fields | changes)


class Side:
    """One hub and what is around it. ``pause``, a pattern of all channels."""

    def __init__(self, hubs, rank):
        self.hubs, self.rank, self.cfg = hubs, rank, hubs.cfg
        dut = hubs.dut
        on = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
        self._map = register_map(self.cfg)
        self._items = {
            i.name: (i.ports[0].width // 8, i.ports[0].inner) for i in axi_interfaces(self.cfg)
        }

        def name(interface):
            return f"{SIDES[rank]}_{interface}"

        self.space = AddressSpace(1 << 48)
        self.memory = SparseMemoryRegion(MEMORY)
        self.space.register_region(self.memory, 0)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, name("s_axil")), **on)
        writers = [
            AxiSlaveWrite(AxiWriteBus.from_prefix(dut, name(f"m_axi_{n}")), target=self.space, **on)
            for n in range(self.cfg.slices)
        ]
        self.spill = spill = AxiSlave(
            AxiBus.from_prefix(dut, name("m_axi_spill")), target=self.space, **on
        )
        streams = [i.name for i in axi_interfaces(self.cfg) if i.kind == "axi4-stream"]
        self.streams = {
            each: (AxiStreamSource if each.startswith("s_") else AxiStreamSink)(
                AxiStreamBus.from_prefix(dut, name(each)), **on
            )
            for each in streams
        }
        writes = [self.registers.write_if, *writers, spill.write_if]
        reads = [self.registers.read_if, spill.read_if]
        self.channels = [
            *self.streams.values(),
            *(getattr(each, f"{c}_channel") for each in writes for c in ("aw", "w", "b")),
            *(getattr(each, f"{c}_channel") for each in reads for c in ("ar", "r")),
        ]
        memories = [f"m_axi_{n}" for n in range(self.cfg.slices)]
        self.watched = [
            *(WritePort(dut, name(n), PATIENCE) for n in (*memories, "m_axi_spill", "s_axil")),
            *(ReadPort(dut, name(n), PATIENCE) for n in ("m_axi_spill", "s_axil")),
            *(Stream(dut, name(each), PATIENCE) for each in streams),
        ]

    # -- registers ---------------------------------------------------------------------------------

    async def drive(self, orders):
        """Runs ``orders(driver)`` and brings what it recorded to the hub."""
        recorder = Recorder()
        orders(Driver(self.cfg, recorder))
        for kind, address, value, mask in recorder.accesses:
            if kind == "write":
                answer = await self.registers.write(address, value.to_bytes(4, "little"))
                assert answer.resp == 0, f"write to {address:#x}: {answer.resp!r}"
            else:
                while await self.registers.read_dword(address) & mask != value:
                    pass

    async def counter(self, name):
        await self.drive(lambda d: d.snapshot())
        low, _ = Driver(self.cfg, None).counters()[name]
        return await self.registers.read_dword(low)

    def address(self, path):
        return self._map.address(path)

    # -- streams -----------------------------------------------------------------------------------

    async def send(self, name, **values):
        size, inner = self._items[name]
        low = {port.rpartition("_")[2]: at for port, at, _ in inner}
        word = sum(int(value) << low[field] for field, value in values.items())
        await self.streams[name].send(word.to_bytes(size, "little"))

    async def receive(self, name):
        stream = self.streams[name]
        while stream.empty():
            await RisingEdge(self.hubs.dut.aclk)
        word = int.from_bytes(stream.recv_nowait().tdata, "little")
        return {
            port.rpartition("_")[2]: word >> at & (1 << width) - 1
            for port, at, width in self._items[name][1]
        }

    async def store(self, lane, operand, data, mask=0xFFFFFFFF):
        """One store of 32 bytes, answered OK."""
        word = int.from_bytes(data, "little")
        await self.send(f"s_axis_store{lane}", operand=operand, data=word, mask=mask, tag=3)
        answer = await self.receive(f"m_axis_response{lane}")
        assert answer == {"tag": 3, "status": Reason.OK}, answer

    async def command(self, op, **fields):
        """One command, answered OK."""
        await self.send("s_axis_command", op=op, tag=5, **fields)
        answer = await self.receive("m_axis_command_response")
        assert answer == {"tag": 5, "status": Reason.OK}, (CommandOp(op), answer)

    async def event(self):
        """The next event: its kind and all fields."""
        event = await self.receive("m_axis_event")
        return EventKind(event["kind"]), event


class Hubs:
    """One hub or two, the links between two, and the monitor."""

    def __init__(self, dut, salt):
        self.dut = dut
        logging.getLogger(f"cocotb.{dut._name}").setLevel("WARNING")  # models tell each transfer
        self.cfg, self.params, self.rng = bench_params(salt)
        dut.planted.value = self.params.get("planted", 0)
        dut.aresetn.value = 0
        self.sides = [Side(self, rank) for rank in range(self.params["hubs"])]
        self._tasks = []
        watched = [port for side in self.sides for port in side.watched]
        self.monitor = Monitor(dut.aclk, dut.aresetn, watched)
        Clock(dut.aclk, 10, "ns").start()
        for here, there in itertools.permutations(self.sides, 2):
            for n in range(self.cfg.links):
                cocotb.start_soon(
                    self._link(here.streams[f"m_axis_tx{n}"], there.streams[f"s_axis_rx{n}"])
                )
        if self.params.get("monitor", True):
            cocotb.start_soon(self.monitor.run())

    @staticmethod
    async def _link(sender, receiver):
        while True:
            frame = await sender.recv()
            await receiver.send(bytes(frame.tdata))

    def pause(self, pattern):
        """The same kind of pauses on every channel of each side."""
        for side in self.sides:
            for channel in side.channels:
                channel.set_pause_generator(pause_pattern(pattern, self.rng))

    def go(self, coroutine):
        """Starts a task, which ends with the next reset."""
        self._tasks.append(cocotb.start_soon(coroutine))
        return self._tasks[-1]

    async def start(self):
        """Reset, and what software does once. What was under way is forgotten."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.dut.aresetn.value = 0
        await ClockCycles(self.dut.aclk, 6)
        for side in self.sides:
            for stream in side.streams.values():
                stream.clear()
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 2)
        for side in self.sides:
            await side.drive(
                lambda d, side=side: d.start(side.rank, merge_timeout=40, age_limit=AGE)
            )

    async def finish(self):
        """Nothing more comes, and nothing is left under way."""
        await ClockCycles(self.dut.aclk, 300)
        for side in self.sides:
            for name, stream in side.streams.items():
                assert stream.empty(), f"{SIDES[side.rank]}_{name}: more than was expected"
        self.monitor.idle()

    def bytes(self, count):
        return self.rng.randbytes(count)
