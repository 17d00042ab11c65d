# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the AXI agents, on a component that only joins two ports."""

from types import SimpleNamespace

import cocotb

from sim.bench.axi import AxiLiteMaster, AxiMemory, ByteMemory, SpillMemory, axi_port, spill_port
from sim.bench.rig import Testbench
from sim.bench.streams import GRID, StreamSink, StreamSource, start_clock
from sim.quality.coverage import cover

BEAT = 16  # bytes per beat of the joined AXI4 port


def far_side(bench, prefix, sources, sinks, port=axi_port, idle=None, stall=None, rng=None):
    """The other agents of a port: sources and sinks by channel."""
    agents = {c: StreamSource(bench, port(bench.dut, prefix, c), None, idle, rng) for c in sources}
    agents |= {c: StreamSink(bench, port(bench.dut, prefix, c), None, stall, rng) for c in sinks}
    return SimpleNamespace(**agents)


class JoinedRig(Testbench):
    """Memory behind the joined port, and the initiator's side, as the design will drive it."""

    def __init__(self, dut, salt, idle=None, stall=None, pause=None, error=None):
        super().__init__(dut, salt, watchdog=100)
        self.memory = AxiMemory(
            self, "m__", latency=(1, 12), pause=pause or stall, rng=self.rng, error=error
        )
        sides = ("aw", "w", "ar"), ("b", "r")
        self.far = far_side(self, "s__", *sides, idle=idle, stall=stall, rng=self.rng)

    def write(self, addr, beats, last=None):
        self.far.aw.put({"addr": addr, "len": len(beats) - 1, "size": 4, "burst": 1})
        last = len(beats) - 1 if last is None else last
        for n, (data, strobe) in enumerate(beats):
            self.far.w.put({"data": data, "strb": strobe, "last": n == last})

    def read(self, addr, count):
        self.far.ar.put({"addr": addr, "len": count - 1, "size": 4, "burst": 1})


def refused(addr, length):
    return addr >= 0x8000


@JoinedRig.test(grid=GRID, error=refused)
async def memory_image(rig, cfg, rng, grid):
    """Random bursts with strobes: the whole image, the log and the responses are as expected;
    errors change nothing."""
    memory, far = rig.memory, rig.far
    image, answers = {}, []
    for _ in range(40):
        addr = rng.choice((0, 0x7000, 0x8000)) + rng.randrange(16) * 256
        beats = [
            (rng.getrandbits(128), rng.choice((0xFFFF, rng.getrandbits(16), 0)))
            for _ in range(rng.randint(1, 16))
        ]
        rig.write(addr, beats)
        answers.append(2 if addr >= 0x8000 else 0)
        for n, (data, strobe) in enumerate(beats):
            for k in range(BEAT):
                if strobe >> k & 1 and addr < 0x8000:
                    image[addr + n * BEAT + k] = data >> 8 * k & 0xFF
    await rig.until(lambda: far.b.count == 40, what="all responses")
    assert memory.memory.written() == image
    assert [item["resp"] for item in far.b.items] == answers
    assert (
        memory.idle
        and len(memory.writes) == 40
        and all(entry["b"] > entry["aw"] for entry in memory.writes)
    )
    rig.read(0x7000, 4)
    await rig.until(lambda: far.r.count == 4, what="read data")
    assert b"".join(
        item["data"].to_bytes(BEAT, "little") for item in far.r.items
    ) == memory.memory.read(0x7000, 64)
    assert [item["last"] for item in far.r.items] == [0, 0, 0, 1]
    cover(f"bench.axi.{'.'.join(grid)}")


@JoinedRig.test()
async def wrong_last(rig, cfg, rng):
    """Fails: ``wlast`` comes one beat early."""
    rig.write(0, [(0, 0xFFFF)] * 4, last=2)
    await rig.far.b.recv()


@JoinedRig.test()
async def across_page(rig, cfg, rng):
    """Fails: the burst crosses 4 KiB."""
    rig.write(0xFF0, [(0, 0xFFFF)] * 2)
    await rig.far.b.recv()


@JoinedRig.test(pause={"aw": "stop"})
async def no_answer(rig, cfg, rng):
    """Fails: the watchdog sees that nothing moves."""
    rig.write(0, [(0, 0xFFFF)])
    await rig.far.b.recv()


@cocotb.test()
async def spill_words(dut):
    """Words written to the spill memory come back; a read before the write's answer sees the old
    word."""
    bench = start_clock(dut, watchdog=100)
    memory, bad = ByteMemory(0), 0x100
    spill = SpillMemory(bench, "ms__", memory=memory, latency=8, error=lambda addr, _: addr == bad)
    far = far_side(bench, "ss__", ("aw", "w", "ar"), ("b", "r"), spill_port)
    await bench.reset()
    far.ar.put(0x40)
    await bench.cycles(3)
    far.aw.put(0x40, 0x48, bad)
    far.w.put(11, 22, 33)
    assert await far.b.recv_all(3) == [0, 0, 2]
    far.ar.put(0x40, 0x48, bad)
    assert await far.r.recv_all(4) == [0, 11, 22, 2 << 64]
    assert spill.idle


@cocotb.test()
async def lite(dut):
    """AXI4-Lite accesses meet the other side in order, with address, data and strobe."""
    bench = start_clock(dut, watchdog=100)
    master, far = (
        AxiLiteMaster(bench, "sl__"),
        far_side(bench, "ml__", ("b", "r"), ("aw", "w", "ar")),
    )
    registers = {}

    def written(item, cycle):
        registers[far.aw.items[-1]["addr"]] = far.w.items[-1]["data"]

    def read(item, cycle):
        known = item["addr"] in registers
        far.r.put({"data": registers.get(item["addr"], 0), "resp": 0 if known else 2})

    far.w.on_item(lambda item, cycle: far.b.put({"resp": 0}))
    far.b.on_item(written)
    far.ar.on_item(read)
    await bench.reset()
    await master.write(0x10, 123)
    await master.write(0x14, 456)
    assert await master.read(0x10) == 123 and await master.read(0x14) == 456
    assert await master.read_resp(0x18) == (0, 2)
