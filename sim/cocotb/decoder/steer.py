# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the steering parts and of the send ledger."""

import cocotb

from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, lane_of, pack
from hub_rtl.contract.records import types_of
from hub_rtl.producer.records import producer_types_of
from sim.bench.runner import bench_params
from sim.bench.streams import (
    GRID,
    Codec,
    StreamSink,
    StreamSource,
    bus_pulse,
    bus_write,
    start_clock,
)
from sim.quality.coverage import cover


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def steers(dut, grid):
    """Every store leaves once, unchanged, in order, on the lane of its operand."""
    idle, stall = grid
    cfg, _, rng = bench_params(str(grid))
    store = types_of(cfg).store
    bench = start_clock(dut, watchdog=500)
    source = StreamSource(bench, "steer_i", store, pause=idle, rng=rng)
    sinks = [
        StreamSink(bench, f"steer_o__{n}", store, pause=stall, rng=rng) for n in range(cfg.lanes)
    ]
    for name in ("ledger_sent", "ledger_read", "merge_flush"):
        bus_write(dut, name, 0)
    await bench.reset()
    for number in range(150):
        layout, plain = rng.choice(((OPERAND_PLAIN, 1), (OPERAND_ROW, 0)))
        fields = {name: rng.getrandbits(width) for name, (_, width) in layout.items()} | {
            "plain": plain
        }
        item = {
            "operand": pack(layout, **fields),
            "cls": number & 1,
            "owner": number % 16,
            "data": rng.getrandbits(256),
            "mask": rng.getrandbits(32),
            "tag": number % (1 << cfg.tag_width),
        }
        sinks[lane_of(item["operand"], cfg.lanes, cfg.packet_bytes)].expect(item)
        source.put(item)
    await source.drained()
    await bench.cycles(30)
    for sink in sinks:
        sink.finish()
    if grid == ("none", "none"):
        handed = sorted(stamp for sink in sinks for stamp in sink.stamps)
        assert [b - a for a, b in zip(source.stamps, handed, strict=True)] == [3] * 150, (
            "3 cycles, one store per cycle"
        )
    cover(f"decoder.steer.grid.{idle}.{stall}")


@cocotb.test()
async def merges_and_flushes(dut):
    """Own-rank stores of three lanes join; flushing tells when those of before the strobe are out,
    whatever comes later."""
    cfg, _, rng = bench_params()
    resolved = types_of(cfg).resolved
    bench = start_clock(dut, watchdog=500)
    sources = [
        StreamSource(bench, f"merge_i__{n}", resolved, pause="random", rng=rng) for n in range(3)
    ]
    sink = StreamSink(bench, "merge_o", resolved, pause="stop")
    for name in ("ledger_sent", "ledger_read", "merge_flush"):
        bus_write(dut, name, 0)
    await bench.reset()
    codec, sent = Codec(resolved), [[] for _ in sources]
    for number in range(90):  # the rest of a RowID by 3 says which lane it came from
        item = codec.unpack(rng.getrandbits(codec.width)) | {
            "rowid": 3 * rng.randrange((1 << 24) // 3) + number % 3
        }
        sources[number % 3].put(item)
        sent[number % 3].append(item)
    await bench.cycles(30)
    inside = sum(source.count for source in sources)
    assert inside == 2, "two places"
    await bus_pulse(bench, "merge_flush", 1)
    await bench.sampled()
    assert int(dut.merge_flushing.value)
    await bench.cycles(20)
    assert int(dut.merge_flushing.value)
    sink.set_pause("none")
    start = bench.cycle
    while int(dut.merge_flushing.value):
        await bench.sampled()
    assert bench.cycle - start <= 4 and sink.count >= inside
    for source in sources:
        await source.drained()
    await bench.cycles(5)
    for n in range(3):
        assert [item for item in sink.items if item["rowid"] % 3 == n] == sent[n]
    cover("decoder.merge.flush")


@cocotb.test()
async def ledger_totals(dut):
    """Updates and reads, each every second cycle at most, with and without clear give the right
    totals."""
    cfg, _, rng = bench_params()
    bench = start_clock(dut, watchdog=0)
    totals = {}
    bus_write(dut, "merge_flush", 0)
    for name in ("ledger_sent", "ledger_read"):
        bus_write(dut, name, 0)
    await bench.reset()
    await bench.until(lambda: not int(dut.ledger_clearing.value), what="cleared ledger")
    last_sent = last_read = -9
    recent = {}  # (dest, bank): cycle of the last update
    due = {}  # cycle: key and total that shows in it

    def any_key():  # of few, so that one is often changed again at once
        return rng.randrange(min(cfg.dests, rng.choice((1, 2, cfg.dests)))), rng.randrange(2)

    for cycle in range(3000):
        sent = read = None
        if cycle - last_sent >= 2 and rng.random() < 0.8:
            dest, bank = any_key()
            sent = {"en": 1, "dest": dest, "bank": bank, "bytes": rng.randint(1, cfg.packet_bytes)}
            last_sent = cycle
            recent[dest, bank] = cycle
        if cycle - last_read >= 2 and rng.random() < 0.6:
            key = any_key()
            if cycle - recent.get(key, -9) >= 2:
                read = {"en": 1, "dest": key[0], "bank": key[1], "clear": rng.randrange(2)}
                last_read = cycle
        bus_write(dut, "ledger_sent", sent or 0, types_of(cfg).sent)
        bus_write(dut, "ledger_read", read or 0, producer_types_of(cfg).ledger_read)
        if read:
            due[cycle + 2] = key, totals.pop(key, 0) if read["clear"] else totals.get(key, 0)
            cover("producer.ledger.clear", read["clear"] and due[cycle + 2][1])
        if sent:
            totals[dest, bank] = totals.get((dest, bank), 0) + sent["bytes"]
            cover("producer.ledger.update_meets_read", read is not None)
        if cycle in due:
            key, wanted = due.pop(cycle)
            await bench.sampled()
            assert int(dut.ledger_total.value) == wanted, f"cycle {cycle}: {key}"
        await bench.cycles(1)
