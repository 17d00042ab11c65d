# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: order, fairness and times that the contract promises,
exact counts, clean walks."""

from itertools import pairwise

import cocotb

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState
from hub_rtl.scoreboard.ack_bank import ack_banks

from .rig import ScoreboardRig
from .traffic import begin, row_acks, setup_regions

LATENCY = 7  # cycles from the last acknowledgement taken to a READY that is valid


def load(rig, cycles, stray=0):
    """Keeps every input busy for some cycles with news that change nothing; acknowledgements cannot
    merge."""
    regions, groups = rig.cfg.regions, rig.cfg.groups
    for n in range(cycles // 4):
        for at in range(rig.cfg.slices):
            rig.put_plain((n + at) % groups, stray, slice_=at)
        over = (rig.model.banks[n % regions, 1].last - 2) % 16
        rig.refuse(n % regions, over, 16)
        rig.put_close(n % regions, over, n % rig.cfg.ranks, 16)


async def reopened(rig, region, epoch):
    """Opens an epoch, so that those before it are over."""
    await rig.open(region, epoch)
    await rig.abort(region, epoch)


@ScoreboardRig.test()
async def orders_under_load(rig, cfg, rng):
    """Traffic of others holds up neither OPEN nor RELEASE nor ABORT; purge and quiesce are through
    before FREE."""
    await setup_regions(rig, flag_en=0)
    for region in range(cfg.regions):
        for epoch in (0, 1):
            await reopened(rig, region, epoch)
    if cfg.regions > 1:  # the first one has to tell another that it has gone
        await rig.set_geometry(
            0, **rig.geometry[0] | {"overflow_en": 1, "overflow": cfg.regions - 1}
        )
    for turn in range(18):
        region = rng.choice((0, rng.randrange(cfg.regions)))
        epoch = (rig.model.banks[region, turn % 2].last + 2) % 16
        geometry = rig.geometry[region]
        tiles = -(-geometry["capacity"] // (1 << geometry["log2_tile"]))
        busy = bool(turn % 3)
        # Under load each step waits for three others. What is in the combiners leaves first, and
        # the sum of every group in play; the banks of sums and the slices take turns.
        banks = ack_banks(cfg)
        sums = -(-cfg.groups // banks) * (1 + banks)
        steps = tiles + cfg.slices * cfg.combine_depth + sums
        limit = 4 * steps + 94 if busy else tiles + 44
        if cfg.regions > 1 and region == cfg.regions - 1:
            # Whoever overflows there is ended first.
            limit += (cfg.regions + 9) * (4 if busy else 1)
        if busy:
            load(rig, 3 * limit)
            await rig.cycles(20)
        await rig.open(region, epoch)
        took = rig.changed[region, epoch & 1] - rig.i_command.stamps[-1]
        assert took <= 8 + 4 * busy, f"OPEN after {took} cycles"
        await rig.abort(region, epoch)
        took = rig.changed[region, epoch & 1] - rig.i_command.stamps[-1] - rig.surroundings.took
        assert took <= limit, f"FREE after {took} cycles, at most {limit}"
        await rig.drained()


@ScoreboardRig.test()
async def order_of_events(rig, cfg, rng):
    """What waits comes READY before ERROR before ALL, ERRORs and ALLs in turn, an event in four
    cycles at the latest."""
    for region in range(cfg.regions):
        await rig.one_row(region, group_base=region * (cfg.groups // cfg.regions))
    keys = rig.keys
    for turn in range(8):
        rig.o_event.set_pause("stop")
        for index in {0, cfg.dep_ranges - 1}:
            await rig.set_span(index, 16, 16, group_base=1)
            rig.put_plain(1, index, ok=0)
        bad = rng.sample(keys, rng.randrange(len(keys)))
        for region, bank in rng.sample(keys, len(keys)):
            epoch = (2 * turn + bank) % 16
            if (region, bank) in bad:
                await rig.open(region, epoch)
                await rig.pulse_overlap(region, bank)
            else:
                await begin(rig, region, epoch, 1)
        await rig.drained()
        await rig.cycles(60 * len(keys))
        first = rig.o_event.count
        rig.o_event.set_pause(None)
        await rig.all_events("all events")
        # One event was offered and one stood behind it before the others came.
        kinds = [event["kind"] for event in rig.o_event.items[first + 2 :]]
        rank = [(EventKind.READY, EventKind.ERROR, EventKind.ALL).index(kind) for kind in kinds]
        assert rank == sorted(rank), f"order of events: {kinds}"
        assert all(later - earlier <= 4 for earlier, later in pairwise(rig.o_event.stamps[first:]))
        for kind in (EventKind.ERROR, EventKind.ALL):
            turns = [
                2 * cfg.regions * event["plain"]
                + event["region"] * (2 - event["plain"])
                + (event["epoch"] & 1)
                for event in rig.o_event.items[first + 2 :]
                if event["kind"] == kind
            ]
            falls = sum(later < earlier for earlier, later in pairwise(turns))
            assert falls <= 1, f"{kind.name} not in turn: {turns}"
        for region, bank in keys:
            await rig.release(region, (2 * turn + bank) % 16)


def check_latency(rig, at, count, before):
    """Of the last ``count`` acknowledgements each made one event since ``before``, in its time."""
    stamps = list(zip(rig.i_ack[at].stamps[-count:], rig.o_event.stamps[before:], strict=True))
    assert all(ready - taken <= LATENCY for taken, ready in stamps), (
        f"acknowledgement taken, READY: {stamps}"
    )


@ScoreboardRig.test()
async def ready_at_full_rate(rig, cfg, rng):
    """A tile or a group per cycle becomes ready: an event per cycle, each in its time; nothing
    merges in an idle hub."""
    capacity = min(cfg.groups // cfg.regions, cfg.capacity)
    await rig.one_row(0, capacity=capacity)
    await rig.set_span(0, 16 * cfg.groups, 16)
    for turn in range(4):
        at = turn % cfg.slices
        epoch = 2 * turn + 1  # the groups of bank 0 are the range's
        await rig.open(0, epoch, capacity)
        await rig.drained()
        before = rig.o_event.count
        for slot in range(capacity):
            rig.put_ack(bank=1, group=slot, bytes=16, slice_=at)
        await rig.drained()
        check_latency(rig, at, capacity, before)
        rig.put_close(0, epoch, sent=16 * capacity)
        await rig.end(0, epoch)
        before = rig.o_event.count
        for group in range(cfg.groups):
            rig.put_plain(group, slice_=at)
        await rig.drained()
        check_latency(rig, at, cfg.groups, before)
    assert not rig.counts["merges"]


@ScoreboardRig.test()
async def news_is_counted(rig, cfg, rng):
    """Stray, bad, surplus and uncounted acknowledgements, spread out so that none merges: each
    counts as it should."""
    other = cfg.regions - 1
    await rig.one_row(0, log2_tile=1 if cfg.capacity > 1 else 0)
    if other:
        await rig.one_row(other, group_base=cfg.groups - 1)
    await rig.set_span(0, 64, 32)
    for turn in range(24):
        epoch = turn % 16
        bank = epoch & 1
        await rig.open(0, epoch, 1)
        if turn % 4 == 3:
            await rig.pulse_overlap(0, bank)
        for n in range(6):
            rig.put_ack(
                region=0,
                place=rng.choice((0, other)),
                bank=rng.randrange(2),
                bytes=16,
                poison=1,
                counted=0,
                ok=rng.randrange(2),
            )
            rig.put_plain(
                1,
                cfg.dep_ranges - 1 if n & 1 else 0,
                poison=int(turn % 4 == 1 and n == 4),
                ok=int(turn % 4 != 2 or n != 4),
            )
            rig.put_ack(bank=1 - bank, bytes=16, poison=rng.randrange(2), ok=rng.randrange(2))
            await rig.cycles(16)
        rig.put_ack(region=0, place=other if turn % 8 == 2 else 0, bank=bank, bytes=16)
        rig.put_close(0, epoch, sent=16)
        await rig.final(0, bank)
        await rig.drained()
        # The tile was announced: one without bytes is an error of memory alone, one with bytes is
        # too much.
        rig.put_ack(bank=bank, bytes=16, ok=0)
        await rig.drained()
        if turn & 1:
            rig.put_ack(bank=bank, bytes=16)
            await rig.drained()
        await rig.pulse_overlap(0, bank)
        await rig.drained()
        await rig.release(0, epoch)
        if rig.model.deps[0]["causes"] or turn % 4 in (1, 2):
            await rig.cycles(20)
            await rig.set_span(0, 64, 32, armed=0, base=0, group_base=0)
            await rig.set_span(0, 64, 32)
    assert not rig.counts["merges"]
    for name in ("acks_stray", "mem_errors", "poisoned", "overlaps"):
        assert rig.counts[name], f"{name} never counted"


@ScoreboardRig.test()
async def ranges_forget_their_groups(rig, cfg, rng):
    """A range that is disarmed clears exactly its groups, whatever its base, stride and length; the
    others keep their bytes."""
    groups = rng.sample(range(cfg.groups), min(8, cfg.groups))
    for turn in range(90):
        index = rng.randrange(cfg.dep_ranges)
        await rig.set_span(index, 16 * cfg.groups, 64, cycles=rng.randint(1, 3))
        for group in groups:
            for _ in range(rng.randint(0, (64 - rig.model.plain_tiles[group]) // 16)):
                rig.put_plain(group, index)
        await rig.drained()
        # A READY that is pending would be forgotten, or not.
        await rig.all_events("READY of all groups")
        log2 = rng.choice((0, 4, rng.randrange(40)))
        size = rng.choice(
            (
                0,
                rng.randint(1, cfg.groups),
                rng.randint(1, cfg.groups + 1),
                1 << rng.randrange(40 - log2),
            )
        )
        limit = rng.getrandbits(48) if turn % 2 else rng.getrandbits(20) + (size << log2)
        base = limit - max(
            0, (size << log2) - (rng.getrandbits(log2) if log2 and rng.randrange(2) else 0)
        )
        if base < 0:
            base, limit = 0, limit - base
        await rig.set_dep(
            index,
            cycles=rng.randint(1, 3),
            armed=0,
            base=base & (1 << 48) - 1,
            limit=limit & (1 << 48) - 1,
            log2_stride=log2,
            group_base=rng.randrange(cfg.groups),
            threshold=rng.getrandbits(24),
        )


@ScoreboardRig.test()
async def walks_stay_at_home(rig, cfg, rng):
    """ABORT clears the region's own tiles in its own bank and no other: partial tiles beside them
    keep their bytes."""
    share = cfg.groups // cfg.regions
    for turn in range(12):
        log2_tile = rng.randrange(min(4, cfg.capacity.bit_length()))
        for region in range(cfg.regions):
            most = share << log2_tile
            capacity = min(cfg.capacity, rng.randint(1, most) if turn & 1 else most)
            await rig.one_row(
                region, log2_tile=log2_tile, group_base=region * share, capacity=capacity
            )
        victim = rng.randrange(cfg.regions), rng.randrange(2)
        rest = []
        for key in rig.model.banks:
            region, bank = key
            geometry = rig.geometry[region]
            await rig.open(region, (2 * turn + bank) % 16, geometry["capacity"])
            last = {}  # of each tile one part is missing
            for slot in range(geometry["capacity"]):
                for ack in row_acks(rig, geometry, region, bank, slot):
                    if ack["group"] in last:
                        rig.put_ack(**last[ack["group"]])
                    last[ack["group"]] = ack
            rest += [(key, ack) for ack in last.values()]
        await rig.drained()
        await rig.abort(victim[0], (2 * turn + victim[1]) % 16)
        for key, ack in rest:
            if key != victim:
                rig.put_ack(**ack)
        for region, bank in rig.keys:
            if (region, bank) != victim:
                epoch = (2 * turn + bank) % 16
                rig.put_close(region, epoch, sent=16 * rig.geometry[region]["capacity"])
                await rig.ends_well(region, epoch)


@ScoreboardRig.test()
async def verdict_meets_news(rig, cfg, rng):
    """A close that is in the books before the verdict is part of it: no ALL while that producer's
    bytes are missing."""
    await rig.one_row(cfg.regions - 1)
    if cfg.regions > 1:
        await rig.one_row(0, group_base=1)
    voided = 0
    for delay in range(40):
        region = rng.choice((0, cfg.regions - 1))
        key = region, delay & 1
        last = rig.model.banks[key].last
        epoch = key[1] if last is None else (last + 2) % 16
        rig.model.rows[key] = 1
        await rig.open(region, epoch)
        rig.put_ack(
            region=region, bank=epoch & 1, group=rig.geometry[region]["group_base"], bytes=16
        )
        await rig.drained()
        rig.put_close(region, epoch, 0, 16)
        await rig.i_news.drained()
        await rig.cycles(delay)
        rig.put_close(region, epoch, 1, 16)
        await rig.drained()
        await rig.cycles(40)
        if rig.state[key] == RegionState.OPEN:
            rig.model.void(*key)
            voided += 1
        else:
            # The verdict and the close may have been on their way to the book at the same time.
            assert rig.changed[key] <= rig.i_news.stamps[-1] + 2 * LATENCY, (
                "the verdict is of before the last close"
            )
        rig.refuse(region, epoch, 16, 1)
        await rig.ends_well(region, epoch)
    assert 10 < voided < 40


async def one_row_each(rig, epochs):
    """One-row regions with own groups; every bank is open and has its row."""
    share = rig.cfg.groups // rig.cfg.regions
    for region in range(rig.cfg.regions):
        await rig.one_row(region, group_base=region * share)
    for region, bank in rig.keys:
        await rig.open(region, epochs + bank, 1)
        rig.put_ack(region=region, bank=bank, group=region * share, bytes=16)
    await rig.drained()


@ScoreboardRig.test()
async def verdicts_in_turn(rig, cfg, rng):
    """Banks are judged in the order in which they became complete; one that moves all the time does
    not hold up the others."""
    keys = rig.keys
    for turn in range(6):
        await one_row_each(rig, 2 * turn)
        completed = rng.sample(keys, len(keys))
        for region, bank in completed:
            rig.put_close(region, 2 * turn + bank, 0, 16)
        await rig.i_news.drained()
        for region, bank in keys:
            await rig.final(region, bank)
        judged = sorted(keys, key=rig.changed.get)
        assert judged == completed, (
            f"banks completed in the order {completed}, judged in the order {judged}"
        )
        await rig.drained()
        for region, bank in keys:
            await rig.release(region, 2 * turn + bank)
    for turn, noisy in enumerate(rng.sample(keys, min(len(keys), 4))):
        await one_row_each(rig, 2 * turn)
        rig.put_close(noisy[0], 2 * turn + noisy[1], 0, 1 << 20)
        rig.i_refused.put(
            *[{"known": 1, "region": noisy[0], "epoch": 2 * turn + noisy[1], "bytes": 1}]
            * 60
            * len(keys)
        )
        await rig.cycles(20)
        others = [key for key in keys if key != noisy]
        for region, bank in others:
            rig.put_close(region, 2 * turn + bank, 0, 16)
        for key in others:
            await rig.final(*key)
        assert rig.i_refused.pending, "the others had to wait for the one that moves"
        await rig.drained()
        for region, bank in keys:
            await rig.give_back(
                RegionOp.RELEASE if (region, bank) in others else RegionOp.ABORT,
                region,
                2 * turn + bank,
            )


@ScoreboardRig.test()
async def overlaps_in_turn(rig, cfg, rng):
    """Overlap reports of one bank in every cycle do not hold up those of others, whichever of them
    it is."""
    keys = rig.keys
    for turn, loud in enumerate(rng.sample(keys, min(len(keys), 4))):
        await one_row_each(rig, 2 * turn)
        before, strobe = rig.counts["overlaps"], {"region": loud[0], "bank": loud[1]}
        others = [key for key in keys if key != loud]
        await rig.pulse_overlap(*loud)
        await rig.pulse("overlap", 5, **strobe)
        sent = {}
        for key in others:
            sent[key] = rig.cycle
            await rig.pulse_overlap(*key)
        await rig.pulse("overlap", 8 * len(keys), **strobe)
        for key in others:
            waited = rig.changed[key] - sent[key]
            assert rig.state[key] == RegionState.DONE and waited <= 10 + 2 * len(keys), (
                f"report of {key} took {waited} cycles"
            )
        await rig.drained()
        counted = rig.counts["overlaps"] - before
        assert 3 * len(keys) < counted <= 6 + len(others) + 8 * len(keys)
        rig.model.counts["overlaps"] += counted - len(
            keys
        )  # several of one bank count as one while they wait
        for key in keys:
            assert (await rig.final(*key))["status"] == Reason.OVERLAP
            await rig.release(key[0], 2 * turn + key[1])


@ScoreboardRig.test(fits=lambda cfg: cfg.regions > 1 and cfg.groups > 1)
async def tells_wait_their_turn(rig, cfg, rng):
    """An aborted region tells its overflow region that it has gone, also while the verdict on
    another bank is being written."""
    over = cfg.regions - 1
    await rig.one_row(over)
    await rig.one_row(0, group_base=1, overflow_en=1, overflow=over)
    for delay in range(60):
        epoch = 2 * delay % 16
        await rig.open(over, epoch, 1)
        await rig.open(0, epoch + 1)
        rig.put_ack(region=over, bank=0, group=0, bytes=16)
        await rig.drained()
        abort = cocotb.start_soon(rig.abort(0, epoch + 1))
        await rig.cycles(delay)
        rig.put_close(over, epoch, 0, 16)
        await abort
        await rig.ends_well(over, epoch)
