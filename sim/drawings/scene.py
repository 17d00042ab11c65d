# SPDX-License-Identifier: Apache-2.0
"""One row from a store to READY, through two joined hubs of preset ``tiny``, recorded.

The scene of all timing diagrams: rank 0 announces a row of 128 bytes and stores it in four pieces;
it crosses a link, finds its slot at rank 1, is written to memory, and its tile becomes READY, then
its region ALL. Amaranth's simulator runs it, so every signal of every block is there by its name.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from amaranth import Module
from amaranth.sim import Simulator

from flow.driver import Driver, Handle, Recorder, Region
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import OPERAND_ROW, EventKind, pack
from hub_rtl.hub.hub import Hub

__all__ = ["CONFIG", "RANKS", "Recording", "record"]

CONFIG = preset("tiny")
RANKS = 2
ROW_BYTES = 128
MEMORY_LATENCY = 4  # cycles from the last beat to its answer
SLOWEST = 2000  # cycles; the scene takes a quarter of it


@dataclass
class Recording:
    """What each signal was, cycle by cycle. ``start``: cycle in which the first store is offered.

    ``signals``: {(rank, module path, name): [value of each cycle]}; a path has dots.
    """

    signals: dict = field(default_factory=dict)
    start: int = 0
    cycles: int = 0

    def values(self, place, name, first, last):
        """Values of a signal of ``place`` (rank, module) in cycles first .. last, counted from the
        first store. KeyError names what is not there."""
        return self.signals[*place, name][self.start + first : self.start + last + 1]


def _setup(rank):
    """Register accesses that prepare this rank: the receiver's region, the sender's handle."""
    port = Recorder()
    driver = Driver(CONFIG, port)
    driver.start(rank)
    if rank == 1:
        region = Region(
            base=(0x1000, 0x2000),
            stride=ROW_BYTES,
            row_bytes=ROW_BYTES,
            capacity=2,
            group_base=0,
            log2_tile=0,
            expected=1,
            spill_base=(0x4000, 0x5000),
        )
        driver.region(0, region)
        driver.open(0, epoch=0)
    else:
        driver.handle(0, Handle(targets=((1, 0),), row_bytes=ROW_BYTES))
        driver.announce(0, 0, [ROW_BYTES])
    return port.accesses


class _Scene:
    """The surroundings of the hubs: a master of their registers, memories, a sender, and wires."""

    def __init__(self):
        self.module = Module()
        self.hubs = [Hub(CONFIG) for _ in range(RANKS)]
        for rank, hub in enumerate(self.hubs):
            self.module.submodules[f"hub{rank}"] = hub
            other = self.hubs[1 - rank]
            for name in ("tdata", "tvalid", "tlast"):
                self.module.d.comb += getattr(other, f"s_axis_link0_{name}").eq(
                    getattr(hub, f"m_axis_link0_{name}")
                )
            self.module.d.comb += hub.m_axis_link0_tready.eq(other.s_axis_link0_tready)
        self.ready = 0  # hubs that are set up
        self.cycle = 0
        self.start = None
        self.done = False

    async def count(self, ctx):
        while not self.done:
            await ctx.tick()
            self.cycle += 1
            if self.cycle > SLOWEST:
                raise RuntimeError(f"the row was not ready after {SLOWEST} cycles")

    def registers(self, rank):
        """Testbench: writes and polls as the driver says."""
        hub = self.hubs[rank]

        async def access(ctx, kind, address, value):
            way = "aw" if kind == "write" else "ar"
            ctx.set(getattr(hub, f"s_axil_csr_{way}addr"), address)
            waiting = [way, "w"] if kind == "write" else [way]
            if kind == "write":
                ctx.set(hub.s_axil_csr_wdata, value)
                ctx.set(hub.s_axil_csr_wstrb, 0xF)
            for channel in waiting:
                ctx.set(getattr(hub, f"s_axil_csr_{channel}valid"), 1)
            answer = hub.s_axil_csr_bvalid if kind == "write" else hub.s_axil_csr_rvalid
            while True:
                taken = [c for c in waiting if ctx.get(getattr(hub, f"s_axil_csr_{c}ready"))]
                if ctx.get(answer):
                    data = ctx.get(hub.s_axil_csr_rdata)
                    await ctx.tick()
                    return data
                await ctx.tick()
                for channel in taken:
                    ctx.set(getattr(hub, f"s_axil_csr_{channel}valid"), 0)
                    waiting.remove(channel)

        async def run(ctx):
            ctx.set(hub.s_axil_csr_bready, 1)
            ctx.set(hub.s_axil_csr_rready, 1)
            for kind, address, value, mask in _setup(rank):
                while (await access(ctx, kind, address, value)) & mask != value and kind == "poll":
                    pass
            self.ready += 1

        return run

    def memory(self, rank, number):
        """Testbench: takes everything at once and answers a write after MEMORY_LATENCY cycles."""
        hub, name = self.hubs[rank], f"m_axi_mem{number}_"

        async def run(ctx):
            port = {
                each: getattr(hub, name + each)
                for each in ("awready", "awvalid", "awid", "wready", "wvalid", "wlast")
                + ("bvalid", "bready", "bid")
            }
            ctx.set(port["awready"], 1)
            ctx.set(port["wready"], 1)
            ids, due, cycle = [], [], 0
            while not self.done:
                if ctx.get(port["awvalid"]):
                    ids.append(ctx.get(port["awid"]))
                if ctx.get(port["wvalid"]) and ctx.get(port["wlast"]):
                    due.append(cycle + MEMORY_LATENCY)
                answered = ctx.get(port["bvalid"]) and ctx.get(port["bready"])
                await ctx.tick()
                cycle += 1
                if answered:
                    ctx.set(port["bvalid"], 0)
                    ids.pop(0), due.pop(0)
                if due and due[0] <= cycle:
                    ctx.set(port["bvalid"], 1)
                    ctx.set(port["bid"], ids[0])

        return run

    async def sender(self, ctx):
        """Testbench: rank 0 stores the row, the consumer of rank 1 waits for ALL."""
        source, consumer = self.hubs
        ctx.set(source.m_response0_ready, 1)
        ctx.set(source.m_command_response_ready, 1)
        ctx.set(consumer.m_event_ready, 1)
        while self.ready < RANKS:
            await ctx.tick()
        await ctx.tick()
        self.start = self.cycle
        size = CONFIG.slice_bytes
        for n in range(ROW_BYTES // size):
            operand = pack(OPERAND_ROW, handle=0, epoch=0, rowid=7, row_off=n * size // 16)
            ctx.set(source.s_store0_operand, operand)
            ctx.set(source.s_store0_mask, (1 << size) - 1)
            ctx.set(source.s_store0_data, int.from_bytes(bytes([n + 1] * size), "little"))
            ctx.set(source.s_store0_tag, n)
            ctx.set(source.s_store0_valid, 1)
            while not ctx.get(source.s_store0_ready):
                await ctx.tick()
            await ctx.tick()
        ctx.set(source.s_store0_valid, 0)
        while True:
            kind = ctx.get(consumer.m_event_valid) and ctx.get(consumer.m_event_kind)
            if ctx.get(consumer.m_event_valid) and kind == EventKind.ALL:
                break
            await ctx.tick()
        await ctx.tick().repeat(8)
        self.done = True


def record():
    """Runs the scene; returns its :class:`Recording`."""
    scene = _Scene()
    simulator = Simulator(scene.module)
    simulator.add_clock(1e-9)
    simulator.add_testbench(scene.count, background=True)
    for rank in range(RANKS):
        simulator.add_testbench(scene.registers(rank), background=True)
        for number in range(CONFIG.lanes + CONFIG.loop_lanes):
            simulator.add_testbench(scene.memory(rank, number), background=True)
    simulator.add_testbench(scene.sender)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scene.vcd")
        with simulator.write_vcd(str(path)):
            simulator.run()
        return _read(path, scene)


def _read(path, scene):
    """The signals of a wave file, each sampled just before the rising edges of the clock.

    The file is read by hand: `vcd.reader` does not know escaped names, which Amaranth writes.
    """
    header, _, changes = path.read_text().partition("$enddefinitions $end\n")
    codes, scopes = {}, []
    for line in header.splitlines():
        match line.split():
            case ["$scope", _, name, "$end"]:
                scopes.append(name)
            case ["$upscope", "$end"]:
                scopes.pop()
            case ["$var", _, _, code, name, *_]:
                codes.setdefault(code, []).append((tuple(scopes), name.removeprefix("\\")))
    clock = next(code for code, places in codes.items() if any(n == "clk" for _, n in places))
    state, values = {}, {code: [] for code in codes}
    for line in changes.splitlines():
        if line[0] == "b":
            number, code = line[1:].split()
        else:
            number, code = line[0], line[1:]
        if line[0] not in "b01" or code not in codes:
            continue
        if code == clock and number == "1":
            for each, kept in values.items():
                kept.append(state.get(each, 0))
        state[code] = int(number, 2)
    recording = Recording(start=scene.start, cycles=scene.cycle)
    for code, places in codes.items():
        for (_, *path), name in places:
            hub = next((n for n, scope in enumerate(path) if scope.startswith("hub")), None)
            if hub is not None:
                rank, module = int(path[hub][3:]), ".".join(path[hub + 1 :])
                recording.signals[rank, module, name] = values[code]
    return recording
