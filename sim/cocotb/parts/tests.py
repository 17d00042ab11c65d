# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the small stream parts: queue, register, merge."""

import cocotb
from amaranth.lib import data

from sim.bench.runner import bench_params
from sim.bench.streams import GRID, StreamMonitor, StreamSink, StreamSource, bus_read, start_clock
from sim.quality.coverage import cover

ITEM = data.StructLayout({"number": 16, "source": 4, "first": 1, "last": 1})


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def keeps_order(dut, grid):
    """One input, one output: everything comes, in order, on all idle and back-pressure patterns."""
    idle, stall = grid
    _, params, rng = bench_params()
    bench = start_clock(dut, watchdog=200)
    source, sink = (
        StreamSource(bench, "i", ITEM, idle, rng),
        StreamSink(bench, "o", ITEM, stall, rng),
    )
    monitor = StreamMonitor(bench, "i", ITEM)
    await bench.reset()
    items = [
        {
            "number": rng.getrandbits(16),
            "source": rng.randrange(16),
            "first": rng.randrange(2),
            "last": rng.randrange(2),
        }
        for _ in range(params["items"])
    ]
    sink.expect(*items)
    source.put(*items)
    await source.drained()
    await bench.until(lambda: sink.count == len(items), what="all items")
    await bench.cycles(10)
    sink.finish()
    assert monitor.items == items
    if grid == ("none", "none"):
        assert sink.stamps[-1] - sink.stamps[0] == len(items) - 1, "not one item per cycle"
        assert sink.stamps[0] - source.stamps[0] == params["latency"]
    cover(f"parts.grid.{idle}.{stall}")


@cocotb.test()
async def send_one_by_one(dut):
    """Waiting for each item to be taken still gives one item per cycle."""
    bench = start_clock(dut, watchdog=200)
    source, sink = StreamSource(bench, "i", ITEM), StreamSink(bench, "o", ITEM)
    await bench.reset()
    for n in range(20):
        await source.send({"number": n})
    assert source.stamps[-1] - source.stamps[0] == 19
    assert [item["number"] for item in await sink.recv_all(20)] == list(range(20))


@cocotb.test()
async def fills_and_empties(dut):
    """With the sink stopped the queue takes ``depth`` items and counts them; then all come out."""
    _, params, _ = bench_params()
    bench = start_clock(dut, watchdog=200)
    source, sink = StreamSource(bench, "i", ITEM), StreamSink(bench, "o", ITEM, "stop")
    await bench.reset()
    sink.expect(*({"number": n, "source": 0, "first": 0, "last": 0} for n in range(50)))
    source.put(*({"number": n} for n in range(50)))
    await bench.cycles(40)
    await bench.sampled()
    assert source.count == params["depth"], f"holds {source.count}"
    assert bus_read(dut, "level") == params["depth"]
    cover("parts.queue.full")
    sink.set_pause(None)
    await bench.until(lambda: sink.count == 50)
    await bench.cycles(2)
    await bench.sampled()
    assert bus_read(dut, "level") == 0
    sink.finish()


@cocotb.test()
async def reset_while_stalled(dut):
    """Reset with items inside: they are gone, and the part works on from empty."""
    bench = start_clock(dut, watchdog=200)
    source, sink = StreamSource(bench, "i", ITEM), StreamSink(bench, "o", ITEM, "stop")
    await bench.reset()
    source.put(*({"number": n} for n in range(10)))
    await bench.cycles(8)
    await bench.reset()
    sink.set_pause(None)
    await bench.cycles(5)
    assert sink.count == 0, "an item survived reset"
    source.put({"number": 77})
    assert (await sink.recv())["number"] == 77
    cover("parts.reset_in_traffic")


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def merges(dut, grid):
    """Several inputs: everything comes once, in order per input; packets stay whole; steady inputs
    are served in turn."""
    idle, stall = grid
    _, params, rng = bench_params()
    bench = start_clock(dut, watchdog=200)
    count, each = params["count"], params["items"]
    sources = [StreamSource(bench, f"i__{n}", ITEM, idle, rng) for n in range(count)]
    sink = StreamSink(bench, "o", ITEM, stall, rng)
    await bench.reset()
    sent = []
    for n, source in enumerate(sources):
        cuts = [True] + [rng.random() < 0.4 for _ in range(each - 1)] + [True]
        # Number and source together say which input an item came through; neither does alone.
        sent.append(
            [
                {
                    "number": number,
                    "source": (n - number) % 4 + 4 * rng.randrange(4),
                    "first": int(cuts[k]),
                    "last": int(cuts[k + 1]),
                }
                for k, number in enumerate(rng.sample(range(1 << 16), each))
            ]
        )
        source.put(*sent[-1])

    def origin(item):
        return (item["number"] + item["source"]) % 4

    await bench.until(lambda: sink.count == count * each, what="all items")
    await bench.cycles(5)
    for n in range(count):
        assert [item for item in sink.items if origin(item) == n] == sent[n]
    assert sink.count == count * each
    if params["packets"]:
        inside = None
        for item in sink.items:
            assert inside is None or origin(item) == inside, "a packet was interleaved with another"
            assert item["first"] == (inside is None)
            inside = None if item["last"] else origin(item)
        cover("parts.merge.packets")
    elif idle == "none":
        turns = [origin(item) for item in sink.items]
        assert turns[: count * each] == [n for _ in range(each) for n in range(count)], (
            "steady inputs are not served in turn"
        )
    if idle == stall == "none":
        assert sink.stamps[-1] - sink.stamps[0] == count * each - 1, "not one item per cycle"
