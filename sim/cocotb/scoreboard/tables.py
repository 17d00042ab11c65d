# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: tables written while they are read, wide sums, early
news at random, reset."""

import cocotb

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState

from .rig import ScoreboardRig
from .traffic import all_banks, begin, one_region, setup_regions


@ScoreboardRig.test(stall="cyclic")
async def same_tables_again(rig, cfg, rng):
    """Software writes what is already there in every cycle: nobody notices."""
    await setup_regions(rig, flag_en=1)
    span = {
        "armed": 1,
        "base": 64,
        "limit": 64 + 16 * cfg.groups,
        "log2_stride": 4,
        "group_base": 0,
        "threshold": 48,
    }
    for index in range(cfg.dep_ranges):
        await rig.set_dep(index, **span)
    writing = True

    async def write():
        while writing:
            region, index = rng.randrange(cfg.regions), rng.randrange(cfg.dep_ranges)
            rig.set(
                "geometry_write",
                {"en": 1, "region": region, "geometry": rig.geometry[region]},
            )
            rig.set("dep_write", {"en": 1, "index": index, "range": span})
            await rig.cycles(1)
        rig.dut.geometry_write.value = rig.dut.dep_write.value = 0

    writer = cocotb.start_soon(write())
    for epoch in range(1, 12, 2):  # the groups of bank 0 are the ranges'
        for region in range(cfg.regions):
            await begin(rig, region, epoch)
        for group in range(min(cfg.groups, 8)):
            for _ in range(3):
                rig.put_plain(group, group % cfg.dep_ranges)
        for region in range(cfg.regions):
            await rig.ends_well(region, epoch)
    writing = False
    await writer


@ScoreboardRig.test()
async def wide_sums(rig, cfg, rng):
    """One tile, one region's books and refusals grow for thousands of packets: not a byte is lost
    on the way."""
    cycles, size = rig.params.get("pour", 200), cfg.packet_bytes
    last = cfg.regions - 1
    await rig.one_row(0, group_base=0)
    await rig.open(0, 1)
    await rig.drained()
    await rig.set_span(0, 16, (1 << 24) - 1, group_base=1)
    plain = {"plain": 1, "group": 1, "dep": 0, "bytes": size}
    # The place is a bank that is FREE: only the region's books count.
    rows = {
        "region": 0,
        "place": last,
        "bank": 1,
        "group": cfg.groups - 1,
        "bytes": size if last else 0,
    }
    refusal = {"known": 1, "region": 0, "epoch": 1, "src": 0, "bytes": size}
    poured = await rig.pour(
        [
            (rig.i_ack[0], {"context": {"counted": 1, **plain}, "ok": 1}),
            (rig.i_ack[1], {"context": {"counted": 1, **rows}, "ok": 1}),
            (rig.i_refused, refusal),
        ],
        cycles,
    )
    await rig.drained()
    await rig.check_status(0, 1)
    # What is missing to the threshold comes as one acknowledgement more.
    await rig.set_span(0, 16, rig.model.plain_tiles[1] + 16, group_base=1)
    rig.put_ack(**plain | {"bytes": 16})
    await rig.drained()
    assert rig.counts["ready"] == 1 and min(poured) > cycles // 10, poured
    book = rig.model.banks[0, 1].epoch
    rig.put_close(0, 1, sent=book.acked + book.refused)
    assert (await rig.final(0, 1))["status"] == (Reason.INCOMPLETE if last else Reason.OK)
    await rig.drained()
    await rig.check_status(0, 1)
    await rig.release(0, 1)


@ScoreboardRig.test()
async def taints_at_random(rig, cfg, rng):
    """News of any epoch at any time, epochs opened in leaps: an OPEN is an ERROR exactly when news
    of it was lost."""
    await one_region(rig)
    epoch, bad = 0, 0
    for _ in range(100):
        for busy in (False, True):
            if busy:
                step = rng.choice((2, 2, 2, 4, 6, 0, 8, 12))
                epoch = (epoch + step) % 16
                if step not in (2, 4, 6):
                    await rig.order(RegionOp.FORGET, 0, epoch)
                await rig.open(0, epoch)
                await rig.drained()
            for _ in range(rng.choice((0, 1, 1, 2))):
                early = (epoch + 2 * rng.randrange(8)) % 16
                if early != epoch or not busy:
                    rig.refuse(0, early, 16 * rng.randrange(4))
                    await rig.drained()
        book = rig.model.banks[0, 0].epoch
        if not book.causes:
            rig.put_close(0, epoch, sent=book.refused)
        bad += (await rig.end(0, epoch))["kind"] == EventKind.ERROR
    assert 10 < bad < 90


@ScoreboardRig.test()
async def more_than_sent(rig, cfg, rng):
    """More bytes than the closes say: ERROR OVERLAP, once all have closed and not before; a turn of
    a bank that has gone."""
    keys = rig.keys
    for region in range(cfg.regions):
        await rig.one_row(region)
    for turn in range(16):
        epoch = 4 * turn % 16
        for region, bank in keys:
            await rig.open(region, epoch + bank)
            rig.refuse(region, epoch + bank, 16 * (1 + turn % 8))
        await rig.drained()
        assert not rig.model.outstanding()
        surplus = turn & 1
        for region, bank in keys:
            rig.put_close(region, epoch + bank, 0, 16 * (turn % 8 + 1 - surplus))
        await rig.i_news.drained()
        if surplus:
            for region, bank in keys:
                await rig.ends_in(Reason.OVERLAP, region, epoch + bank)
            continue
        # The last in turn is given back and opened again before it is judged: it has nothing then.
        region, bank = keys[-1]
        await rig.abort(region, epoch + bank)
        await rig.open(region, (epoch + bank + 2) % 16)
        for key in keys[:-1]:
            await rig.ends_well(key[0], epoch + key[1])
        await rig.drained()
        assert rig.state[region, bank] == RegionState.OPEN
        await rig.abort(region, (epoch + bank + 2) % 16)


@ScoreboardRig.test()
async def orders_that_do_not_fit(rig, cfg, rng):
    """Whatever is ordered of an open bank but its RELEASE or ABORT: it stays open, with its bytes;
    unusable geometries."""
    for row_bytes, valid in ((0, 1), (15, 1), (16, 0), (cfg.max_row_bytes, 0)):
        for region in range(cfg.regions):
            await rig.set_geometry(region, row_bytes=row_bytes, valid=valid, capacity=1)
            await rig.order(RegionOp.OPEN, region, 0)
            await rig.drained()
    bits = [1 << bit for bit in range(4, cfg.row_bytes_width) if 1 << bit <= cfg.max_row_bytes]
    for epoch, row_bytes in enumerate(2 * bits):
        epoch %= 16
        bank = epoch & 1
        await rig.set_geometry(0, row_bytes=row_bytes, log2_tile=0, capacity=1, expected=1)
        await rig.open(0, epoch, 1)
        parts = [
            min(cfg.packet_bytes, row_bytes - at) for at in range(0, row_bytes, cfg.packet_bytes)
        ]
        for size in parts:
            rig.put_ack(bank=bank, bytes=size)
        await rig.drained()
        for op, number in (
            (RegionOp.FORGET, 0),
            (RegionOp.FORGET, 1),
            (RegionOp.FORGET, epoch),
            (RegionOp.OPEN, epoch),
            (RegionOp.RELEASE, epoch),
            (RegionOp.OPEN, epoch ^ 8),
            (RegionOp.ABORT, epoch ^ 2),
            (RegionOp.RELEASE, epoch ^ 4),
        ):
            await rig.order(op, 0, number)
        await rig.drained()
        await rig.cycles(20)
        assert rig.state[0, bank] == RegionState.OPEN
        rig.put_close(0, epoch, sent=row_bytes)
        await rig.ends_well(0, epoch)


@ScoreboardRig.test()
async def pending_survives(rig, cfg, rng):
    """Of the ends that wait for the event stream an order or a write to a range drops its own, and
    no other."""
    for region in range(cfg.regions):
        await rig.one_row(region, group_base=2 + region)
    keys, ranges = [*rig.model.banks], range(cfg.dep_ranges)
    for turn in range((2 if len(keys) < 8 else 1) * (len(keys) + len(ranges))):
        for index in ranges:
            await rig.set_span(index, 64, 16)
        rig.o_event.set_pause("stop")
        for group in (0, 1):  # one is offered, one stands behind it
            rig.put_plain(group)
        await rig.drained()
        for index in ranges:
            rig.put_plain(0, index, ok=0)
        for region, bank in keys:
            epoch = 2 * (turn % 8) + bank
            await rig.open(region, epoch, 1)
            rig.put_ack(region=region, bank=bank, group=2 + region, bytes=16)
            await rig.drained()
            if rng.randrange(2):
                await rig.pulse_overlap(region, bank)
            else:
                rig.put_close(region, epoch, 0, 16)
        await rig.drained()
        await rig.cycles(40 * len(keys))
        for region, bank in keys:  # a RELEASE of another epoch changes nothing
            await rig.order(RegionOp.RELEASE, region, 2 * (turn % 8) + bank ^ 8)
        await rig.cycles(20)
        chosen = turn % (len(keys) + len(ranges))
        gone = keys[chosen] if chosen < len(keys) else None
        if gone:
            await rig.give_back(
                rng.choice((RegionOp.RELEASE, RegionOp.ABORT)), gone[0], 2 * (turn % 8) + gone[1]
            )
        else:
            await rig.set_span(chosen - len(keys), 64, 16)
        rig.o_event.set_pause(None)
        await rig.all_events("all other events")
        await rig.drained()
        for region, bank in keys:
            if (region, bank) != gone:
                await rig.end(region, 2 * (turn % 8) + bank)


@ScoreboardRig.test()
async def failed_ranges_are_silent(rig, cfg, rng):
    """A range in ERROR says nothing more until it is written, and the others go on, whichever
    failed first."""
    for _ in range(6):
        ranges = rng.sample(range(cfg.dep_ranges), min(2, cfg.dep_ranges))
        for index in ranges:
            await rig.set_span(index, 16, 16, group_base=index % cfg.groups)
        for failed in range(1, len(ranges) + 1):
            before = dict(rig.counts)
            for n, index in enumerate(ranges):
                ack = {"plain": 1, "group": index % cfg.groups, "dep": index, "bytes": 16}
                if n == failed - 1:
                    rig.put_ack(**ack | {"bytes": 0}, ok=0)
                    await rig.drained()
                    rig.model.deps[index]["causes"].clear()
                if n < failed:
                    for ok in (0, 1):
                        rig.i_ack[0].put({"context": {"counted": 1, **ack}, "ok": ok})
                else:
                    rig.put_ack(**ack)
                await rig.drained()
                for silent in ranges[:failed]:
                    rig.model.deps[silent]["causes"].clear()
                    rig.model.plain_pending.pop((silent, silent % cfg.groups), None)
                    rig.model.plain_tiles[silent % cfg.groups] = 0
            assert rig.counts["error"] - before.get("error", 0) == 1
            assert rig.counts["ready"] - before.get("ready", 0) == len(ranges) - failed
        for index in ranges:
            await rig.set_span(index, 16, 16, armed=0, group_base=index % cfg.groups)


@ScoreboardRig.test(watchdog=0)
async def only_open_banks_stall(rig, cfg, rng):
    """Each open bank that waits is reported once, and no bank that is DONE, whatever its book has
    seen."""
    await setup_regions(rig)
    keys = rig.keys
    for turn, limit in enumerate((64, 1, 3)):
        ended = rng.sample(keys, len(keys) // 2)
        for region, bank in keys:
            epoch = 2 * turn + bank
            await rig.open(region, epoch)
            rig.refuse(region, epoch, 16)
        await rig.drained()
        for key in ended:
            await rig.pulse_overlap(*key)
        await rig.drained()
        before = len(rig.timeouts)
        rig.set("timeout", limit)
        await rig.cycles(8 * (limit // 4 + 4 * len(keys)) + 20)
        rig.set("timeout", 0)
        found = [(strobe["region"], strobe["bank"]) for _, strobe in rig.timeouts[before:]]
        assert sorted(found) == sorted(set(keys) - set(ended)), f"reported {found}, ended {ended}"
        await rig.drained()
        for region, bank in keys:
            await rig.abort(region, 2 * turn + bank)


@ScoreboardRig.test()
async def flags_hold_events(rig, cfg, rng):
    """Flags that are not taken hold back the events behind them, not the first; then each comes in
    its time."""
    share = min(cfg.groups // cfg.regions, cfg.capacity)
    for region in range(cfg.regions):
        await rig.one_row(
            region,
            group_base=region * (cfg.groups // cfg.regions),
            capacity=share,
            flag_en=1,
            flag_base=rng.getrandbits(44) << 3,
        )
    banks = [*rig.model.banks]
    for turn in range(4):
        held = turn & 1
        for region, bank in banks:
            await rig.open(region, 2 * turn + bank, share)
        await rig.drained()
        rig.o_flag.set_pause("stop" if held else None)
        before, flags = rig.o_event.count, rig.o_flag.count
        for region, bank in banks:
            for slot in range(share):
                rig.put_ack(
                    region=region,
                    bank=bank,
                    bytes=16,
                    group=rig.geometry[region]["group_base"] + slot,
                    slice_=0,
                )
        await rig.drained()
        await rig.cycles(20 + 4 * share * len(banks))
        came = rig.o_event.count - before
        if held:
            assert min(2, share * len(banks)) <= came <= 6, f"{came} events passed"
            rig.o_flag.set_pause(None)
        else:
            assert came == share * len(banks)
            late = [
                flag - event
                for event, flag in zip(
                    rig.o_event.stamps[before:], rig.o_flag.stamps[flags:], strict=True
                )
            ]
            assert max(late) <= 4, f"flags {late} cycles after their events"
        for region, bank in banks:
            rig.put_close(region, 2 * turn + bank, sent=16 * share)
            await rig.end(region, 2 * turn + bank)


@ScoreboardRig.test(stall="random")
async def reset_forgets(rig, cfg, rng):
    """Reset in the middle of everything: no table, count, order or event of before is left."""
    for turn in range(5):
        await rig.start()
        rig.o_flag.set_pause("none")
        for region in range(cfg.regions):
            await rig.order(RegionOp.OPEN, region, 0)
        for index in range(cfg.dep_ranges):
            rig.put_plain(0, index)
        await rig.drained()
        assert rig.errors == ["reported"] * cfg.regions and rig.counts["acks_stray"]
        await rig.cycles(
            100 + 16 * cfg.slices * cfg.combine_depth
        )  # the inspector looks at every bank
        assert not (
            rig.o_event.items or rig.o_flag.items or rig.timeouts or any(rig.state.values())
        )
        await setup_regions(rig, flag_en=1)
        rig.o_flag.set_pause("stop")
        for index in range(cfg.dep_ranges):
            await rig.set_span(index, 16 * cfg.groups, 32)
        for group in range(min(8, cfg.groups)):
            for _ in range(1 + turn % 2):
                rig.put_plain(group, 0, poison=0)
        rig.set("timeout", 8)
        for region in range(cfg.regions):
            await begin(rig, region, 1 + 2 * turn, part=rng.random())
            rig.refuse(region, rng.choice((4, 6)), 16)
        await rig.drained()
        await rig.cycles(60 * len(rig.keys))  # no overlap meets a verdict
        for key in rig.model.banks:
            await rig.pulse_overlap(*key)
        rig.i_command.put(
            {"op": RegionOp.ABORT, "region": 0, "epoch": 1 + 2 * turn, "last": 0, "again": 0}
        )
        await rig.cycles(rng.randrange(60))
        rig.set("timeout", 0)
        rig.forget()
    await rig.start()
    rig.o_flag.set_pause("none")
    await setup_regions(rig)
    await all_banks(rig, 2)
