# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the small stream parts: queue, register, merge."""

from amaranth.lib import data

from sim.bench.rig import Testbench
from sim.bench.streams import GRID, StreamMonitor, StreamSink, StreamSource
from sim.quality.coverage import cover

ITEM = data.StructLayout({"number": 16, "source": 4, "first": 1, "last": 1})


class PartRig(Testbench):
    """A part with an input, or ``count`` of them, and an output."""

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, watchdog=200)
        count = self.params.get("count")
        names = [f"i__{n}" for n in range(count)] if count else ["i"]
        self.sources = [StreamSource(self, name, ITEM, idle, self.rng) for name in names]
        self.source, self.sink = self.sources[0], StreamSink(self, "o", ITEM, stall, self.rng)


@PartRig.test(grid=GRID)
async def keeps_order(rig, cfg, rng, grid):
    """One input, one output: everything comes, in order, on all idle and back-pressure patterns."""
    monitor = StreamMonitor(rig, "i", ITEM)
    codec = rig.sink.port.codec
    items = [codec.unpack(rng.getrandbits(codec.width)) for _ in range(rig.params["items"])]
    rig.sink.expect(*items)
    rig.source.put(*items)
    await rig.source.drained()
    await rig.until(lambda: rig.sink.count == len(items), what="all items")
    await rig.cycles(10)
    rig.sink.finish()
    assert monitor.items == items
    if grid == ("none", "none"):
        assert rig.sink.stamps[-1] - rig.sink.stamps[0] == len(items) - 1, "not one item per cycle"
        assert rig.sink.stamps[0] - rig.source.stamps[0] == rig.params["latency"]
    cover(f"parts.grid.{'.'.join(grid)}")


@PartRig.test()
async def send_one_by_one(rig, cfg, rng):
    """Waiting for each item to be taken still gives one item per cycle."""
    for n in range(20):
        await rig.source.send({"number": n})
    assert rig.source.stamps[-1] - rig.source.stamps[0] == 19
    assert [item["number"] for item in await rig.sink.recv_all(20)] == list(range(20))


@PartRig.test(stall="stop")
async def fills_and_empties(rig, cfg, rng):
    """With the sink stopped the queue takes ``depth`` items and counts them; then all come out."""
    rig.sink.expect(*({"number": n, "source": 0, "first": 0, "last": 0} for n in range(50)))
    rig.source.put(*({"number": n} for n in range(50)))
    await rig.cycles(40)
    await rig.sampled()
    assert rig.source.count == rig.params["depth"], f"holds {rig.source.count}"
    assert int(rig.dut.level.value) == rig.params["depth"]
    cover("parts.queue.full")
    rig.sink.set_pause(None)
    await rig.until(lambda: rig.sink.count == 50)
    await rig.cycles(2)
    await rig.sampled()
    assert int(rig.dut.level.value) == 0
    rig.sink.finish()


@PartRig.test(stall="stop")
async def reset_while_stalled(rig, cfg, rng):
    """Reset with items inside: they are gone, and the part works on from empty."""
    rig.source.put(*({"number": n} for n in range(10)))
    await rig.cycles(8)
    await rig.reset()
    rig.sink.set_pause(None)
    await rig.cycles(5)
    assert rig.sink.count == 0, "an item survived reset"
    rig.source.put({"number": 77})
    assert (await rig.sink.recv())["number"] == 77
    cover("parts.reset_in_traffic")


@PartRig.test(grid=GRID)
async def merges(rig, cfg, rng, grid):
    """Several inputs: everything comes once, in order per input; packets stay whole; steady inputs
    are served in turn."""
    count, each = rig.params["count"], rig.params["items"]
    sent = []
    for n, source in enumerate(rig.sources):
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

    await rig.until(lambda: rig.sink.count == count * each, what="all items")
    await rig.cycles(5)
    for n in range(count):
        assert [item for item in rig.sink.items if origin(item) == n] == sent[n]
    assert rig.sink.count == count * each
    if rig.params["packets"]:
        inside = None
        for item in rig.sink.items:
            assert inside is None or origin(item) == inside, "a packet was interleaved with another"
            assert item["first"] == (inside is None)
            inside = None if item["last"] else origin(item)
        cover("parts.merge.packets")
    elif grid[0] == "none":
        turns = [origin(item) for item in rig.sink.items]
        assert turns[: count * each] == [n for _ in range(each) for n in range(count)], (
            "steady inputs are not served in turn"
        )
    if grid == ("none", "none"):
        assert rig.sink.stamps[-1] - rig.sink.stamps[0] == count * each - 1, (
            "not one item per cycle"
        )
