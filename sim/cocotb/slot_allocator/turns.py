# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the slot allocator: slices take turns, and nobody waits for what it does not
need."""

from functools import partial

from hub_rtl.contract.packets import RegionState
from hub_rtl.slot_allocator.records import COMMANDS, REPLIES, WaitCause

from .rig import AllocatorRig, in_memory

OPEN, DONE = RegionState.OPEN, RegionState.DONE


def choose(rng, count, turn):
    """Who asks in this turn: some, at least one, now and then all."""
    chosen = [n for n in range(count) if rng.random() < 0.7 or turn % 3 == 0]
    return chosen or [rng.randrange(count)]


def in_turn(order, chosen, last, slices):
    """The chosen were served after the one served last; returns who is the last now."""
    assert order == sorted(chosen, key=lambda n: (n - last - 1) % slices), (
        f"after slice {last}: {order}"
    )
    return order[-1]


@AllocatorRig.test()
async def turns(rig, cfg, rng):
    """Slices that ask for slots, spill words or an overlap in the same cycle are served in turn,
    after the one served last."""
    slices = cfg.slices
    await rig.region(0, row_bytes=16)
    last = slices - 1
    for turn in range(12):
        await rig.state(0, OPEN, turn)
        chosen = choose(rng, slices, turn)
        seen = len(rig.obs)
        await rig.run(
            [[rig.part(number, turn)] if number in chosen else [] for number in range(slices)]
        )
        last = in_turn([each["rowid"] for each in rig.obs[seen:]], chosen, last, slices)
        await rig.state(0, DONE, turn)


@AllocatorRig.test(fits=lambda cfg: cfg.rat_sets == 1 and in_memory(cfg))
async def turns_of_words(rig, cfg, rng):
    """The same for the spill engine."""
    slices = cfg.slices
    last = slices - 1
    for turn in range(10):
        looked = len(rig.memory.reads)
        await rig.region(0, row_first=0)
        await rig.state(0, OPEN, turn)

        def row(n, number, turn=turn):
            return rig.part(slices * n + number, turn)

        for n in range(cfg.rat_ways):
            await rig.run([[row(n, number)] for number in range(slices)])
        chosen = choose(rng, slices, turn)
        seen = len(rig.memory.writes)
        await rig.run(
            [[row(cfg.rat_ways, number)] if number in chosen else [] for number in range(slices)]
        )
        base = rig.model.regions[0]["spill_base"][turn & 1]
        order = [(each["addr"] - base) // 8 % slices for each in rig.memory.writes[seen:]]
        if last is None or len(rig.memory.reads) > looked:  # a row was looked for, at some time
            last = order[-1] if order else None
        elif order:
            last = in_turn(order, chosen, last, slices)
        await rig.state(0, DONE, turn)


@AllocatorRig.test()
async def turns_of_overlaps(rig, cfg, rng):
    """The same for overlaps, each slice in a region of its own."""
    count = min(cfg.slices, cfg.regions)
    last = cfg.slices - 1
    for region in range(count):
        await rig.region(region, row_bytes=32)
    for turn in range(10):
        for region in range(count):
            await rig.state(region, OPEN, turn)
        chosen = choose(rng, count, turn)
        seen = len(rig.overlap_order)
        await rig.run(
            [
                [rig.part(number, turn, 0, units, region=number) for units in (1, 2)]
                if number in chosen
                else []
                for number in range(cfg.slices)
            ]
        )
        last = in_turn(rig.overlap_order[seen:], chosen, last, cfg.slices)
        for region in range(count):
            await rig.state(region, DONE, turn)


@AllocatorRig.test(fits=lambda cfg: cfg.regions > 1)
async def hits_do_not_wait(rig, cfg, rng):
    """While all answers that a slice may wait for are on their way, packets of known rows and plain
    ones are looked up."""
    end = cfg.regions - 1
    await rig.region(0)
    await rig.region(end, row_bytes=16)
    await rig.window(0, 0, 4096)
    for number in range(cfg.slices):
        for region in (0, end):
            await rig.state(region, OPEN, number)
        rig.o_write[number].set_pause("stop")

        def part(region, rowid, unit=0, number=number):
            return rig.part(rowid, number, unit, region=region)

        # The first write stops at the output; its answer was taken.
        first = [part(end, 0), part(0, 1), *(part(end, 2 + n) for n in range(REPLIES - 1))]
        known = [part(0, 1, 1), rig.plain(64)]
        assert len(first + known) <= 1 + COMMANDS
        rig.send(number, first + known)
        await rig.cycles(80)
        assert rig.counts["stall_lookup"] == 0, (
            f"slice {number}: a packet waited for an answer that it did not need"
        )
        more = [part(end, 2 + REPLIES)]
        rig.send(number, more)
        await rig.cycles(20)
        assert rig.counts["stall_lookup"] > 5, f"slice {number}: one answer too many was asked for"
        rig.o_write[number].set_pause(None)
        await rig.check_settled(rig.alone(number, first + known + more))
        rig.counts["stall_lookup"] = 0
        for region in (0, end):
            await rig.state(region, DONE, number)


@AllocatorRig.test()
async def row_back_to_back(rig, cfg, rng):
    """A new row's packets of one unit come without a gap: each finds the entry that the one before
    has just written."""
    units = rig.row_bytes // 16
    await rig.region(0)
    await rig.state(0, OPEN, 0)
    await rig.run(
        [
            [rig.part(cfg.slices * n + number, 0, unit) for n in range(2) for unit in range(units)]
            for number in range(cfg.slices)
        ]
    )
    assert rig.counts["rat_new"] == 2 * cfg.slices, (
        f"{rig.counts['rat_new']} slots for {2 * cfg.slices} rows"
    )
    assert rig.counts["rat_hits"] == 2 * cfg.slices * (units - 1)


@AllocatorRig.test()
async def waits_named(rig, cfg, rng):
    """Packets of any region and row that wait for a purge, for a beat, and for their refusal to be
    taken."""
    slices = range(cfg.slices)
    for turn in range(24):
        queues = [
            rig.part(
                rng.getrandbits(24),
                rng.randrange(16),
                0,
                cfg.packet_flits,
                region=rng.randrange(cfg.regions, 2048),
                src=rng.randrange(1 << cfg.rank_width),
            )
            for _ in slices
        ]
        await rig.purge(0, turn & 1)
        rig.pause("stop", *rig.o_refused)
        records = [rig.record(flits) for flits in queues]
        for source, record in zip(rig.i_record, records, strict=True):
            source.put(*record[:-1])
        await rig.cycles(14 + 2 * cfg.rat_sets)  # the purge is over
        rig.pause(None, *rig.o_refused)
        await rig.cycles(8)
        for source, record in zip(rig.i_record, records, strict=True):
            source.put(record[-1])
        await rig.cycles(5)
        await rig.settle(20)
        told = {(n, cause) for n, cause, *_ in rig.waits.named}
        assert told >= {
            (n, cause)
            for n in slices
            for cause in (WaitCause.PURGE, WaitCause.PAYLOAD, WaitCause.REFUSED)
        }, told
        rig.check([[queue] for queue in queues])


@AllocatorRig.test()
async def stalls_counted(rig, cfg, rng):
    """On an idle block: how long a packet waits, and for what."""
    await rig.region(0)
    await rig.state(0, OPEN, 2)
    names = ("alloc", "payload", "write", "data", "refused", "lookup", "spill", "purge")

    for number in range(cfg.slices):

        async def run(flits, sinks=(), number=number):
            """Waits of one packet, by cause; ``sinks`` are stopped for 40 cycles."""
            before = rig.counts.copy()
            rig.pause("stop", *sinks)
            rig.send(number, [flits])
            await rig.cycles(40 * len(sinks))
            rig.pause(None, *sinks)
            await rig.cycles(5)
            await rig.check_settled(rig.alone(number, [flits]), 20)
            return {name: rig.counts[f"stall_{name}"] - before[f"stall_{name}"] for name in names}

        none = dict.fromkeys(names, 0)
        new = await run(rig.part(number, 2))
        assert new["alloc"] >= 3 and new == none | {"alloc": new["alloc"]}, (
            new
        )  # 10 cycles to the write, not 7
        known = await run(rig.part(number, 2, 1))
        assert known == none, known
        for cause, sink, epoch in (
            ("write", rig.o_write, 2),
            ("data", rig.o_data, 2),
            ("refused", rig.o_refused, 0),
        ):
            waits = await run(rig.part(number, epoch, 2), [sink[number]])
            assert 30 <= waits[cause] <= 40 and waits == none | {cause: waits[cause]}, waits


@AllocatorRig.test()
async def tables_change_in_check(rig, cfg, rng):
    """A window or a geometry that is written up to two cycles after a record's first beat counts,
    one written later does not."""
    base, valid = 0, 0
    for turn in range(24):
        delay = 2 + turn % 2
        if turn % 4 < 2:
            queue = [rig.plain(64)]
            base = 0 if base else 1 << 30
            window = {"base": base, "limit": base + 4096}
            name, values = "window_write", {"rank": 0, "window": window}
            tell = partial(rig.model.window, 0, **window)
        else:
            queue = [rig.part(turn, rng.randrange(16))]
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
            tell = partial(rig.model.geometry, 0, geometry)
        rig.send_all([queue] * cfg.slices)
        await rig.cycles(delay)
        await rig.pulse(name, **values)
        await rig.settle(20)
        if delay == 2:
            tell()
        rig.check([queue] * cfg.slices)
        tell()
