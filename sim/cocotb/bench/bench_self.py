# SPDX-License-Identifier: Apache-2.0
"""cocotb tests that fail on purpose, and one that notes what its random numbers are: the bench's
own test."""

from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from sim.bench.runner import bench_params, needs
from sim.bench.streams import StreamSink, StreamSource, start_clock
from sim.quality.coverage import cover


@cocotb.test()
async def own_mistake(dut):
    """Fails by an exception that is no verdict on the design."""
    raise KeyError("a mistake in the test")


@cocotb.test()
async def crash(dut):
    """Ends the simulator without results."""
    import os

    os._exit(3)


@cocotb.test()
async def notes_numbers(dut):
    """Writes what a test gets: configuration, parameters, random numbers."""
    cfg, params, rng = bench_params()
    again = bench_params()[2]
    assert [rng.random() for _ in range(5)] == [again.random() for _ in range(5)]
    assert cfg is None or cfg.name == "tiny"
    Path(params["file"]).write_text(f"{rng.random()} {cfg and cfg.ranks} {params['word']}")
    cover("bench.self")
    await Timer(1, "step")  # a test that takes no time has done nothing, says the runner


@cocotb.test()
async def withdrawn(dut):
    """Fails: the design withdraws ``valid`` before the item was taken."""
    bench = start_clock(dut)
    StreamSink(bench, "o", pause="stop")
    await bench.reset()
    dut.valid.value = 1
    await bench.cycles(3)
    dut.valid.value = 0
    await bench.cycles(3)


@cocotb.test()
async def changed(dut):
    """Fails: the payload changes before the item was taken."""
    bench = start_clock(dut)
    StreamSink(bench, "o", pause="stop")
    await bench.reset()
    for value in (5, 6):
        dut.valid.value = 1
        dut.payload.value = value
        await bench.cycles(3)


@cocotb.test()
async def unexpected(dut):
    """Fails: an item comes that nobody expects."""
    bench = start_clock(dut)
    sink = StreamSink(bench, "o")
    await bench.reset()
    sink.expect(5)
    dut.payload.value = 5
    dut.valid.value = 1
    await bench.cycles(4)


@cocotb.test()
async def missing(dut):
    """Fails: an expected item does not come."""
    bench = start_clock(dut)
    sink = StreamSink(bench, "o")
    await bench.reset()
    sink.expect(5)
    await bench.cycles(4)
    sink.finish()


@cocotb.test()
async def stuck(dut):
    """Fails: the input is never ready, the watchdog ends the test."""
    bench = start_clock(dut, watchdog=50)
    source = StreamSource(bench, "i")
    await bench.reset()
    await source.send(1)


@cocotb.test()
@needs(lambda cfg: cfg is not None)
async def with_configuration(dut):
    """Fails, but where there is no configuration it is not run."""
    raise AssertionError("it was run")


@cocotb.test()
async def plain_ports(dut):
    """Passes: plain inputs written behind the rising edge are seen in that cycle; structs are
    packed."""
    bench = start_clock(dut)
    await bench.reset()
    for value in (3, 250):
        dut.payload.value = value
        await bench.sampled()
        assert int(dut.o__payload.value) == value
        await bench.cycles(1)


@cocotb.test()
async def drives_headers(dut):
    """Drives the headers that it was given, a cycle each, and takes what the queue answers."""
    bench = start_clock(dut)
    dut.rx_tdata.value = 0
    sink = StreamSink(bench, "o")
    await bench.reset()
    for header in bench_params()[1]["headers"]:
        dut.rx_tdata.value = header
        await bench.cycles(1)
    dut.rx_tdata.value = 0
    await bench.cycles(4)
    assert len(sink.items) == 2


@cocotb.test()
async def order_in_a_cycle(dut):
    """Passes: agents have sampled a cycle before a test reads it, the design has not gone on, and
    the test goes on in the next one."""
    bench, seen = start_clock(dut), []
    bench.on_sample(lambda cycle: seen.append((cycle, int(dut.o__payload.value))))
    await bench.reset()
    for value in range(1, 9):
        dut.payload.value, cycle = value, bench.cycle
        await bench.sampled()
        assert (seen[-1], int(dut.o__payload.value)) == ((cycle, value), value) and bench.reading
        await bench.cycles(1)
        assert bench.cycle == cycle + 1 and not bench.reading
