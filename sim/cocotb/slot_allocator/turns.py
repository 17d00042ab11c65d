# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: slices take turns, and nobody waits for what it does not
need."""

import cocotb

from hub_rtl.contract.packets import RegionState
from hub_rtl.slot_allocator.records import WaitCause, slice_types_of
from sim.bench.runner import needs
from sim.bench.streams import bus_pulse

from .rig import AllocatorBench
from .traffic import packet

OPEN, DONE = RegionState.OPEN, RegionState.DONE


@cocotb.test()
async def turns(dut):
    """Slices that ask for slots, spill words or an overlap in the same cycle are served in turn,
    after the one served last."""
    top = AllocatorBench(dut, salt="turns")
    await top.start()
    rng, traffic, slices = top.rng, top.traffic, top.cfg.slices
    await top.region(0, row_bytes=16)
    last = slices - 1
    for turn in range(12):
        await top.state(0, OPEN, turn)
        chosen = [n for n in range(slices) if rng.random() < 0.7 or turn % 3 == 0] or [
            rng.randrange(slices)
        ]
        seen = len(top.obs)
        await top.run(
            [
                [packet(0, traffic.words(1), row_off=0, region=0, epoch=turn, rowid=number)]
                if number in chosen
                else []
                for number in range(slices)
            ]
        )
        order = [each["rowid"] for each in top.obs[seen:]]
        assert order == sorted(chosen, key=lambda n, last=last: (n - last - 1) % slices), (
            f"after slice {last}: {order}"
        )
        last = order[-1]
        await top.state(0, DONE, turn)


@cocotb.test()
@needs(lambda cfg: cfg.rat_sets == 1)
async def turns_of_words(dut):
    """The same for the spill engine."""
    top = AllocatorBench(dut, salt="words")
    await top.start()
    cfg, rng, traffic, slices = top.cfg, top.rng, top.traffic, top.cfg.slices
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    last = slices - 1
    for turn in range(10):
        await top.region(0, row_bytes=row_bytes, row_first=0)
        await top.state(0, OPEN, turn)

        def row(n, number, turn=turn):
            return packet(
                0, traffic.words(1), row_off=0, region=0, epoch=turn, rowid=slices * n + number
            )

        for n in range(cfg.rat_ways):
            await top.run([[row(n, number)] for number in range(slices)])
        chosen = [n for n in range(slices) if rng.random() < 0.7 or turn % 3 == 0] or [
            rng.randrange(slices)
        ]
        seen = len(top.memory.writes)
        await top.run(
            [[row(cfg.rat_ways, number)] if number in chosen else [] for number in range(slices)]
        )
        base = top.model.regions[0]["spill_base"][turn & 1]
        order = [(each["addr"] - base) // 8 % slices for each in top.memory.writes[seen:]]
        if order:
            assert order == sorted(chosen, key=lambda n, last=last: (n - last - 1) % slices), (
                f"after slice {last}: {order}"
            )
            last = order[-1]
        await top.state(0, DONE, turn)


@cocotb.test()
async def turns_of_overlaps(dut):
    """The same for overlaps, each slice in a region of its own."""
    top = AllocatorBench(dut, salt="overlaps")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    count = min(cfg.slices, cfg.regions)
    last = cfg.slices - 1
    for region in range(count):
        await top.region(region, row_bytes=32)
    for turn in range(10):
        for region in range(count):
            await top.state(region, OPEN, turn)
        chosen = [n for n in range(count) if rng.random() < 0.7 or turn % 3 == 0] or [
            rng.randrange(count)
        ]
        seen = len(top.overlap_order)
        await top.run(
            [
                [
                    packet(
                        0, traffic.words(units), row_off=0, region=number, epoch=turn, rowid=number
                    )
                    for units in (1, 2)
                ]
                if number in chosen
                else []
                for number in range(cfg.slices)
            ]
        )
        order = top.overlap_order[seen:]
        assert order == sorted(chosen, key=lambda n, last=last: (n - last - 1) % cfg.slices), (
            f"after slice {last}: {order}"
        )
        last = order[-1]
        for region in range(count):
            await top.state(region, DONE, turn)


@cocotb.test()
@needs(lambda cfg: cfg.regions > 1)
async def hits_do_not_wait(dut):
    """While all answers that a slice may wait for are on their way, packets of known rows and plain
    ones are looked up."""
    top = AllocatorBench(dut, salt="hits")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    end = cfg.regions - 1
    await top.region(0, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
    await top.region(end, row_bytes=16)
    await top.window(0, 0, 4096)
    for number in range(cfg.slices):
        for region in (0, end):
            await top.state(region, OPEN, number)
        top.writes[number].set_pause("stop")

        def part(region, rowid, unit=0, number=number):
            return packet(
                0, traffic.words(1), row_off=unit, region=region, epoch=number, rowid=rowid
            )

        # The first write stops at the output; its answer was taken.
        first = [part(end, 0), part(0, 1), *(part(end, 2 + n) for n in range(3))]
        known = [part(0, 1, 1), packet(0, traffic.words(1), addr=64), part(0, 1, 2)]
        top.send(number, first + known)
        await top.bench.cycles(80)
        assert top.counts["stall_lookup"] == 0, (
            f"slice {number}: a packet waited for an answer that it did not need"
        )
        more = [part(end, 6)]
        top.send(number, more)
        await top.bench.cycles(20)
        assert top.counts["stall_lookup"] > 5, f"slice {number}: a fifth answer was asked for"
        top.writes[number].set_pause(None)
        await top.settle()
        top.check([first + known + more if n == number else [] for n in range(cfg.slices)])
        top.counts["stall_lookup"] = 0
        for region in (0, end):
            await top.state(region, DONE, number)


@cocotb.test()
async def row_back_to_back(dut):
    """A new row's packets of one unit come without a gap: each finds the entry that the one before
    has just written."""
    top = AllocatorBench(dut, salt="row")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await top.region(0, row_bytes=row_bytes)
    await top.state(0, OPEN, 0)
    units = row_bytes // 16
    await top.run(
        [
            [
                packet(
                    0,
                    traffic.words(1),
                    row_off=unit,
                    region=0,
                    epoch=0,
                    rowid=cfg.slices * n + number,
                )
                for n in range(2)
                for unit in range(units)
            ]
            for number in range(cfg.slices)
        ]
    )
    assert top.counts["rat_new"] == 2 * cfg.slices, (
        f"{top.counts['rat_new']} slots for {2 * cfg.slices} rows"
    )
    assert top.counts["rat_hits"] == 2 * cfg.slices * (units - 1)


@cocotb.test()
async def waits_named(dut):
    """Packets of any region and row that wait for a purge, for their payload, and for their refusal
    to be taken."""
    top = AllocatorBench(dut, salt="named")
    await top.start()
    rng, slices = top.rng, range(top.cfg.slices)
    for turn in range(24):
        queues = [
            packet(
                rng.randrange(128),
                top.traffic.words(1),
                row_off=0,
                region=rng.randrange(top.cfg.regions, 2048),
                epoch=rng.randrange(16),
                rowid=rng.getrandbits(24),
            )
            for _ in slices
        ]
        await bus_pulse(
            top.bench,
            "purge",
            {"en": 1, "region": 0, "bank": turn & 1},
            slice_types_of(top.cfg).purge,
        )
        for sink in top.refused:
            sink.set_pause("stop")
        for number, (header, _) in enumerate(queues):
            top.sources[number].put({"data": header[0], "err": 0, "first": 1, "last": 0})
        await top.bench.cycles(14 + 2 * top.cfg.rat_sets)  # the purge is over
        for number, (_, last) in enumerate(queues):
            top.sources[number].put({"data": last[0], "err": 0, "first": 0, "last": 1})
        await top.bench.cycles(8)
        for sink in top.refused:
            sink.set_pause(None)
        await top.bench.cycles(5)
        await top.settle(20)
        told = {(n, cause) for n, cause, *_ in top.waits.named}
        assert told >= {
            (n, cause)
            for n in slices
            for cause in (WaitCause.PURGE, WaitCause.PAYLOAD, WaitCause.REFUSED)
        }, told
        top.check([[queue] for queue in queues])


@cocotb.test()
async def stalls_counted(dut):
    """On an idle block: how long a packet waits, and for what."""
    top = AllocatorBench(dut, salt="stalls")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    await top.region(0, row_bytes=min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
    await top.state(0, OPEN, 2)
    names = ("alloc", "payload", "write", "data", "refused", "lookup", "spill", "purge")

    for number in range(cfg.slices):
        body = {"region": 0, "epoch": 2, "rowid": number}

        async def run(flits, sinks=(), number=number):
            """Waits of one packet, by cause; ``sinks`` are stopped for 40 cycles."""
            before = top.counts.copy()
            for sink in sinks:
                sink.set_pause("stop")
            top.send(number, [flits])
            await top.bench.cycles(40 * len(sinks))
            for sink in sinks:
                sink.set_pause(None)
            await top.bench.cycles(5)
            await top.settle(20)
            top.check([[flits] if n == number else [] for n in range(cfg.slices)])
            return {name: top.counts[f"stall_{name}"] - before[f"stall_{name}"] for name in names}

        none = dict.fromkeys(names, 0)
        new = await run(packet(0, traffic.words(1), row_off=0, **body))
        assert new["alloc"] >= 3 and new == none | {"alloc": new["alloc"]}, (
            new
        )  # 9 cycles to the write, not 6
        known = await run(packet(0, traffic.words(1), row_off=1, **body))
        assert known == none, known
        full = await run(
            packet(
                0,
                traffic.words(cfg.packet_flits),
                row_off=cfg.packet_flits,
                **{**body, "rowid": 50 + number},
            )
        )
        assert full["payload"] + full["alloc"] >= cfg.packet_flits - 4, full
        for cause, sink, epoch in (
            ("write", top.writes, 2),
            ("data", top.beats, 2),
            ("refused", top.refused, 0),
        ):
            waits = await run(
                packet(0, traffic.words(1), row_off=2, **{**body, "epoch": epoch}), [sink[number]]
            )
            assert 30 <= waits[cause] <= 40 and waits == none | {cause: waits[cause]}, waits


@cocotb.test()
async def tables_change_in_check(dut):
    """A window or a geometry that is written up to the cycle after a packet's header counts, one
    written later does not."""
    top = AllocatorBench(dut, salt="tables")
    await top.start()
    cfg, rng, traffic, bench = top.cfg, top.rng, top.traffic, top.bench
    base, valid = 0, 0
    for turn in range(24):
        delay = 1 + turn % 2
        if turn % 4 < 2:
            queue = [packet(0, traffic.words(1), addr=64)]
            base = 0 if base else 1 << 30
            name, values = (
                "window_write",
                {"rank": 0, "window": {"base": base, "limit": base + 4096}},
            )

            def tell(base=base):
                top.model.window(0, base, base + 4096)
        else:
            queue = [
                packet(
                    0, traffic.words(1), row_off=0, region=0, epoch=rng.randrange(16), rowid=turn
                )
            ]
            valid ^= 1
            geometry = {
                "valid": valid,
                "base": [0, 0],
                "stride": cfg.packet_bytes,
                "row_bytes": 16,
                "capacity": 1,
                "row_first": 0,
                "row_span": 1 << 24,
                "spill_base": [0, 0],
                "overflow_en": 0,
            }
            name, values = "geometry_write", {"region": 0, "geometry": geometry}

            def tell(geometry=geometry):
                top.model.geometry(0, geometry)

        for number in range(cfg.slices):
            top.send(number, queue)
        await bench.cycles(delay)
        await bus_pulse(bench, name, {"en": 1, **values}, getattr(top.types, name))
        await top.settle(20)
        if delay == 1:
            tell()
        top.check([queue] * cfg.slices)
        tell()
