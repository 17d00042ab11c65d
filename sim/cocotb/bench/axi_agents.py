# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the AXI agents, on a component that only joins two ports."""

import cocotb

from sim.bench.axi import AxiLiteMaster, AxiMemory, ByteMemory, SpillMemory
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, SignalPort, StreamPort, StreamSink, StreamSource, start_clock
from sim.quality.coverage import cover

BEAT = 16  # bytes per beat of the joined AXI4 port


class Writer:
    """The initiator's side of an AXI4 write port, as the design will drive it."""

    def __init__(self, bench, idle, stall, rng):
        def port(channel, *fields):
            return SignalPort(
                bench.dut,
                channel,
                f"s__{channel}valid",
                f"s__{channel}ready",
                {field: f"s__{channel}{field}" for field in fields},
            )

        self.aw = StreamSource(
            bench, port("aw", "addr", "len", "size", "burst"), pause=idle, rng=rng
        )
        self.w = StreamSource(bench, port("w", "data", "strb", "last"), pause=idle, rng=rng)
        self.b = StreamSink(bench, port("b", "resp"), pause=stall, rng=rng)
        self.ar = StreamSource(
            bench, port("ar", "addr", "len", "size", "burst"), pause=idle, rng=rng
        )
        self.r = StreamSink(bench, port("r", "data", "resp", "last"), pause=stall, rng=rng)

    def write(self, addr, beats, last=None):
        self.aw.put({"addr": addr, "len": len(beats) - 1, "size": 4, "burst": 1})
        for n, (data, strobe) in enumerate(beats):
            self.w.put(
                {
                    "data": data,
                    "strb": strobe,
                    "last": int(n == (len(beats) - 1 if last is None else last)),
                }
            )

    def read(self, addr, count):
        self.ar.put({"addr": addr, "len": count - 1, "size": 4, "burst": 1})


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def memory_image(dut, grid):
    """Random bursts with strobes: the whole image, the log and the responses are as expected;
    errors change nothing."""
    idle, stall = grid
    _, _, rng = bench_params()
    bench = start_clock(dut, watchdog=300)
    memory = AxiMemory(
        bench,
        "m__",
        latency=(1, 12),
        pause=dict.fromkeys(("aw", "w", "b", "ar", "r"), stall),
        rng=rng,
        error=lambda addr, length: addr >= 0x8000,
    )
    writer = Writer(bench, idle, stall, rng)
    await bench.reset()
    image, answers = {}, []
    for _ in range(40):
        addr = rng.choice((0, 0x7000, 0x8000)) + rng.randrange(16) * 256
        beats = [
            (rng.getrandbits(128), rng.choice((0xFFFF, rng.getrandbits(16), 0)))
            for _ in range(rng.randint(1, 16))
        ]
        writer.write(addr, beats)
        answers.append(2 if addr >= 0x8000 else 0)
        for n, (data, strobe) in enumerate(beats):
            for k in range(BEAT):
                if strobe >> k & 1 and addr < 0x8000:
                    image[addr + n * BEAT + k] = data >> 8 * k & 0xFF
    await bench.until(lambda: writer.b.count == 40, what="all responses")
    assert memory.memory.written() == image
    assert [item["resp"] for item in writer.b.items] == answers
    assert (
        memory.idle
        and len(memory.writes) == 40
        and all(entry["b"] > entry["aw"] for entry in memory.writes)
    )
    writer.read(0x7000, 4)
    await bench.until(lambda: writer.r.count == 4, what="read data")
    assert b"".join(
        item["data"].to_bytes(BEAT, "little") for item in writer.r.items
    ) == memory.memory.read(0x7000, 64)
    assert [item["last"] for item in writer.r.items] == [0, 0, 0, 1]
    cover(f"bench.axi.{idle}.{stall}")


@cocotb.test()
async def wrong_last(dut):
    """Fails: ``wlast`` comes one beat early."""
    bench = start_clock(dut, watchdog=100)
    AxiMemory(bench, "m__")
    writer = Writer(bench, None, None, None)
    await bench.reset()
    writer.write(0, [(0, 0xFFFF)] * 4, last=2)
    await writer.b.recv()


@cocotb.test()
async def across_page(dut):
    """Fails: the burst crosses 4 KiB."""
    bench = start_clock(dut, watchdog=100)
    AxiMemory(bench, "m__")
    writer = Writer(bench, None, None, None)
    await bench.reset()
    writer.write(0xFF0, [(0, 0xFFFF)] * 2)
    await writer.b.recv()


@cocotb.test()
async def no_answer(dut):
    """Fails: the watchdog sees that nothing moves."""
    bench = start_clock(dut, watchdog=50)
    AxiMemory(bench, "m__", pause={"aw": "stop"})
    writer = Writer(bench, None, None, None)
    await bench.reset()
    writer.write(0, [(0, 0xFFFF)])
    await writer.b.recv()


@cocotb.test()
async def spill_words(dut):
    """Words written to the spill memory come back; a read before the write's answer sees the old
    word."""
    _, _, rng = bench_params()
    bench = start_clock(dut, watchdog=100)
    shared = ByteMemory(0)
    spill = SpillMemory(
        bench, "ms__", memory=shared, latency=8, error=lambda addr, length: addr == 0x100
    )
    ports = {
        name: StreamSource(bench, StreamPort(dut, f"ss__{name}")) for name in ("aw", "w", "ar")
    }
    answers, data = StreamSink(bench, "ss__b"), StreamSink(bench, "ss__r")
    await bench.reset()
    ports["ar"].put(0x40)
    await bench.cycles(3)
    ports["aw"].put(0x40, 0x48, 0x100)
    ports["w"].put(11, 22, 33)
    assert await answers.recv_all(3) == [0, 0, 2]
    ports["ar"].put(0x40, 0x48, 0x100)
    assert await data.recv_all(4) == [0, 11, 22, 2 << 64]
    assert spill.idle


@cocotb.test()
async def lite(dut):
    """AXI4-Lite accesses meet the other side in order, with address, data and strobe."""
    bench = start_clock(dut, watchdog=100)

    def port(channel, *fields):
        return SignalPort(
            dut,
            channel,
            f"ml__{channel}valid",
            f"ml__{channel}ready",
            {field: f"ml__{channel}{field}" for field in fields},
        )

    master = AxiLiteMaster(bench, "sl__")
    registers = {}
    write_address, write_data = (
        StreamSink(bench, port("aw", "addr")),
        StreamSink(bench, port("w", "data", "strb")),
    )
    write_answer = StreamSource(bench, port("b", "resp"))
    read_address, read_answer = (
        StreamSink(bench, port("ar", "addr")),
        StreamSource(bench, port("r", "data", "resp")),
    )
    write_data.on_item(lambda item, cycle: write_answer.put({"resp": 0}))
    write_answer.on_item(
        lambda item, cycle: registers.update(
            {write_address.items[-1]["addr"]: write_data.items[-1]["data"]}
        )
    )
    read_address.on_item(
        lambda item, cycle: read_answer.put(
            {"data": registers.get(item["addr"], 0), "resp": 0 if item["addr"] in registers else 2}
        )
    )
    await bench.reset()
    await master.write(0x10, 123)
    await master.write(0x14, 456)
    assert await master.read(0x10) == 123 and await master.read(0x14) == 456
    assert await master.read_resp(0x18) == (0, 2)
