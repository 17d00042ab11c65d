# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: sums that agree by accident, and two events that meet
at one register."""

from itertools import permutations

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState
from sim.bench.moments import turning_point
from sim.quality.coverage import cover

from .rig import ScoreboardRig
from .traffic import one_region

ROW = 32  # bytes of a row, two to a tile


@ScoreboardRig.test()
async def compensating_bytes(rig, cfg, rng):
    """As many bytes as the rows have, but of the wrong tiles: a full tile is short by what another
    has too many. Never ALL."""
    await one_region(rig, row_bytes=ROW)
    assert cfg.capacity >= 4, "this test needs two tiles"
    turn = 0
    # Three rows, of which tile 0 gets too few bytes and tile 1 as many too many, and never just
    # those of a row; or two rows, one in each tile.
    sums = [(3, [(0, 2 * ROW - short), (1, ROW - 8), (1, short + 8)]) for short in (1, 15, 16, 31)]
    sums += [(2, [(0, ROW), (1, ROW - size), (1, size)]) for size in (1, 16)]
    for rows, parts in sums:
        for before in (True, False):  # the close comes before the bytes
            for order in permutations(parts):
                epoch, turn = turn % 16, turn + 1
                bank = epoch & 1
                await rig.open(0, epoch, rows)
                if before:
                    rig.put_close(0, epoch, 0, rows * ROW)
                    await rig.drained()
                for group, size in order:
                    rig.put_ack(bank=bank, group=group, bytes=size)
                    if rng.random() < 0.5:
                        await rig.drained()
                await rig.drained()
                if not before:
                    rig.put_close(0, epoch, 0, rows * ROW)
                await rig.ends_in(Reason.INCOMPLETE, 0, epoch)
                cover(f"scoreboard.compensating.{rows}_rows")
    assert not rig.counts["ready"] and not rig.counts["all"]


@ScoreboardRig.test()
async def acknowledged_as_it_quiesces(rig, cfg, rng):
    """An acknowledgement of a bank that is given back is taken in each cycle around ``quiesce`` and
    the sweep: it counts for the old epoch, nothing of it is left in the next one."""
    gate, strobes = gated_acks(rig)
    await rig.start()
    rig.surroundings.prompt()
    await one_region(
        rig, row_bytes=ROW, log2_tile=0
    )  # half a row left over makes the next half a tile
    met, bank = set(), 0
    for behind in range(1, 41):
        epoch = 4 * behind % 16
        at = behind % cfg.slices
        await rig.open(0, epoch, 1)
        await rig.drained()
        # Half of a row is on its way when the bank is given back, and comes so long behind the
        # purge.
        gate.update({"from": None, "behind": behind})
        rig.put_ack(bank=bank, group=0, bytes=ROW // 2, slice_=at)
        await rig.abort(0, epoch)
        taken = rig.i_ack[at].stamps[-1]
        met.add(taken - strobes[-1])
        assert rig.changed[0, bank] > taken, "FREE before the acknowledgement was taken"
        # The other half in the next epoch is half a tile: not ready.
        epoch = (epoch + 2) % 16
        await rig.open(0, epoch)
        rig.put_ack(bank=bank, group=0, bytes=ROW // 2, slice_=at)
        rig.put_close(0, epoch, 0, ROW)
        await rig.drained()
        await rig.cycles(60)
        assert rig.state[0, bank] == RegionState.OPEN, (
            f"{taken - strobes[-1]} cycles from quiesce: bytes were left"
        )
        await rig.check_status(0, bank)
        await rig.abort(0, epoch)
    assert {-1, 0, 1, 2} <= met, f"distances from quiesce: {sorted(met)}"
    cover("scoreboard.quiesce.ack", 0 in met)
    cover("scoreboard.quiesce.ack_before", -1 in met)
    cover("scoreboard.quiesce.ack_behind", 1 in met)


def gated_acks(rig):
    """``(gate, strobes)``: acknowledgements come ``gate["behind"]`` cycles behind the next purge
    when ``gate["from"]`` is None, else from that cycle on; ``strobes`` are the cycles of
    ``quiesce`` so far."""
    gate, strobes = {"from": 0, "behind": None}, []

    def watch(cycle):
        if rig.get("quiesce"):
            strobes.append(cycle)
        if gate["behind"] is not None and rig.strobe("purge"):
            gate["from"], gate["behind"] = cycle + gate["behind"], None

    def pause():
        while True:
            yield gate["from"] is None or rig.cycle < gate["from"]

    rig.on_sample(watch)
    for source in rig.i_ack:
        source.set_pause(pause())
    return gate, strobes


@ScoreboardRig.test()
async def last_byte_meets_close(rig, cfg, rng):
    """The last byte, refusal and close of an epoch in each order and distance: one ALL, when all
    are there."""
    await one_region(rig, row_bytes=ROW)
    turn = 0
    for first, second, third in permutations(("ack", "refusal", "close")):
        for gap in range(10):
            epoch, turn = turn % 16, turn + 1
            bank = epoch & 1
            await rig.open(0, epoch, 1)
            await rig.drained()
            for kind in (first, second, third):
                if kind == "ack":
                    rig.put_ack(bank=bank, group=0, bytes=ROW)
                elif kind == "refusal":
                    rig.refuse(0, epoch, 16)
                else:
                    rig.put_close(0, epoch, 0, ROW + 16)
                await rig.cycles(gap)
            final = await rig.end(0, epoch)
            assert (final["kind"], final["rows"], final["refused"]) == (EventKind.ALL, 1, 1)
            stamps = [source.stamps[-1] for source in (rig.i_refused, rig.i_news)]
            cover("scoreboard.close_with_refusal", stamps[0] == stamps[1])
            cover(
                "scoreboard.close_with_ack",
                any(source.stamps[-1:] == stamps[1:] for source in rig.i_ack),
            )


@ScoreboardRig.test()
async def overlap_meets_verdict(rig, cfg, rng):
    """An overlap is told in each cycle around the verdict of a complete bank: ALL before it, or
    ERROR, and one of them."""
    await one_region(rig, row_bytes=ROW)
    kinds = []
    for at in range(70):
        epoch = at % 16
        bank = epoch & 1
        await rig.open(0, epoch, 1)
        rig.put_ack(bank=bank, group=0, bytes=ROW)
        await rig.drained()
        before, key = rig.o_event.count, (0, bank)
        rig.o_event.set_pause("stop")
        rig.put_close(0, epoch, 0, ROW)
        await rig.i_news.drained()
        await rig.cycles(at)
        await rig.pulse("overlap", region=0, bank=bank)
        rig.inspector.touch(*key)
        await rig.until(lambda k=key: rig.state[k] == RegionState.DONE, 200, "DONE")
        # Which of the two comes first is seen in the book alone: the model is told what it was.
        failed = (await rig.status(*key))[0]["error"] == Reason.OVERLAP
        if failed:
            rig.model.void(*key)
        rig.model.overlap(*key)
        rig.o_event.set_pause(None)
        kinds.append((await rig.end(0, epoch))["kind"])
        assert rig.o_event.count == before + (1 if failed else 2)
    turning_point(kinds, EventKind.ERROR, EventKind.ALL)
    cover("scoreboard.overlap_meets_verdict")


async def open_tiles(rig, turn):
    """Regions with as many one-row tiles as they may have; all banks are open, with their rows.
    Returns {bank: groups of its tiles}."""
    share = min(rig.cfg.groups // rig.cfg.regions, rig.cfg.capacity)
    for region in range(rig.cfg.regions):
        await rig.one_row(region, group_base=region * share, capacity=share)
    for region, bank in rig.keys:
        await rig.open(region, (2 * turn + bank) % 16, share)
    return {key: range(key[0] * share, (key[0] + 1) * share) for key in rig.keys}


async def end_tiles(rig, turn, gone):
    """All banks but the one that is gone end well."""
    for region, bank in rig.keys:
        if (region, bank) != gone:
            epoch = (2 * turn + bank) % 16
            rig.put_close(region, epoch, sent=16 * rig.geometry[region]["capacity"])
            await rig.ends_well(region, epoch)


@ScoreboardRig.test()
async def abort_spares_others(rig, cfg, rng):
    """Every tile of every bank is READY and nobody takes it: an ABORT drops those of its bank,
    offered or waiting, and no other, whichever came first."""
    for turn, gone in enumerate(rng.sample(rig.keys, min(8, len(rig.keys))) * 2):
        tiles = await open_tiles(rig, turn)
        rig.o_event.set_pause("stop")
        ready = [(key, group) for key, groups in tiles.items() for group in groups]
        for (region, bank), group in rng.sample(ready, len(ready)):
            rig.put_ack(region=region, bank=bank, group=group, bytes=16)
            await rig.cycles(rng.choice((0, 4)))
        await rig.drained()
        await rig.abort(gone[0], (2 * turn + gone[1]) % 16)
        rig.o_event.set_pause(None)
        await rig.all_events("READY of all others")
        await end_tiles(rig, turn, gone)
    cover("scoreboard.abort.spares_others")


@ScoreboardRig.test()
async def taken_as_it_is_cleared(rig, cfg, rng):
    """Events are taken again in each cycle around the one in which an ABORT clears the only tile
    that waits: nothing comes that is not there."""
    gone = rig.keys[-2]
    for delay in range(50):
        tiles = await open_tiles(rig, delay)
        rig.o_event.set_pause("stop")
        others = [key for key in rig.keys if key != gone]
        first = [(key, tiles[key][0]) for key in (others[0], others[-1])]
        for (region, bank), group in [*first, (gone, tiles[gone][-1])]:
            rig.put_ack(region=region, bank=bank, group=group, bytes=16)
            await rig.drained()
        await rig.order(RegionOp.ABORT, gone[0], (2 * delay + gone[1]) % 16)
        await rig.cycles(delay)
        rig.o_event.set_pause(None)
        await rig.until(lambda: rig.state[gone] == RegionState.FREE, 400, "FREE")
        for (region, bank), groups in tiles.items():
            for group in groups:
                if (region, bank) != gone and ((region, bank), group) not in first:
                    rig.put_ack(region=region, bank=bank, group=group, bytes=16)
        await rig.drained()
        await end_tiles(rig, delay, gone)
    cover("scoreboard.taken_as_cleared")


@ScoreboardRig.test()
async def sums_grow(rig, cfg, rng):
    """All slices acknowledge full packets of many tiles while refusals and news take the pipeline:
    what waits grows, the slices hardly wait, and every byte is counted once."""
    tile = {"row_bytes": cfg.max_row_bytes, "log2_tile": 23 - cfg.max_row_bytes.bit_length()}
    share = cfg.groups // cfg.regions
    for region in range(cfg.regions):
        await rig.set_geometry(region, **tile, group_base=region * share, capacity=1)
    for epoch in (2, 4):
        for region, bank in rig.keys:
            await rig.open(region, epoch + bank)
        for n in range(300 * cfg.slices):
            region, bank = rng.choice(rig.keys)
            group = region * share + rng.randrange(share)
            ack = {"region": region, "bank": bank, "group": group, "bytes": cfg.packet_bytes}
            rig.put_ack(**ack, slice_=n % cfg.slices)
        for n in range(300):
            region, bank = rig.keys[n % len(rig.keys)]
            rig.refuse(region, epoch + bank, 16)
            rig.put_close(region, epoch + bank - 2, 0)  # late
        start = rig.cycle
        start = rig.cycle
        await rig.drained()
        took = max(source.stamps[-1] for source in rig.i_ack) - start
        # A slice's only accumulator takes one in two cycles.
        most = 600 if cfg.combine_depth > 1 else 900
        assert took <= most, f"300 acknowledgements of each slice took {took} cycles"
        for region, bank in rig.keys:
            await rig.check_status(region, bank)
            await rig.abort(region, epoch + bank)
    cover("scoreboard.sums_grow")


def load(rig, epoch, bad=(), gone=None):
    """Acknowledgements of 16 bytes for all tiles of all banks, in any order and by all slices,
    while refusals and late news of all but ``gone`` take the pipeline, so that many wait; of banks
    in ``bad`` one has such an error. Returns bytes sent per bank."""
    others = [key for key in rig.keys if key != gone]
    refused = dict.fromkeys(rig.keys, 0)
    acks = []
    for region, bank in rig.keys:
        geometry = rig.geometry[region]
        size = geometry["row_bytes"] << geometry["log2_tile"]
        tiles = geometry["capacity"] >> geometry["log2_tile"]
        context = {"region": region, "bank": bank, "bytes": 16}
        each = [
            context | {"group": geometry["group_base"] + tile}
            for tile in range(tiles)
            for _ in range(size // 16)
        ]
        if (region, bank) in bad:
            rig.rng.choice(each).update(bad[region, bank])
        acks += each
    rig.rng.shuffle(acks)
    for n, context in enumerate(acks):
        rig.put_ack(**context, slice_=n % rig.cfg.slices)
        key = region, bank = others[n % len(others)]
        rig.refuse(region, (epoch + bank) % 16, 16)
        refused[key] += 16
        rig.put_close(region, (epoch + bank - 2) % 16, 0)  # late
    return {
        (region, bank): rig.geometry[region]["capacity"] * rig.geometry[region]["row_bytes"]
        + refused[region, bank]
        for region, bank in rig.keys
    }


@ScoreboardRig.test()
async def sums_are_of_their_tiles(rig, cfg, rng):
    """Acknowledgements wait in all sums: each tile gets its bytes and no others, and is READY once;
    a memory error or poison among them is kept; nothing is left for the next epoch when a bank is
    given back meanwhile."""
    share = cfg.groups // cfg.regions
    tiles = min(share, cfg.capacity // 2)
    assert tiles, "this test needs a tile of two rows"
    # Two packets long: with rows of 16 KB it takes a million cycles.
    shape = {"row_bytes": 2 * cfg.packet_bytes, "log2_tile": 1, "capacity": 2 * tiles}
    for region in range(cfg.regions):
        await rig.set_geometry(region, **shape, group_base=region * share)
    errors = {Reason.MEM_ERROR: {"ok": 0}, Reason.INCOMPLETE: {"poison": 1}}
    for turn in range(18):
        epoch = 2 * turn % 16
        for region, bank in rig.keys:
            await rig.open(region, (epoch + bank) % 16, shape["capacity"])
        wrong = {key: rng.choice([*errors]) for key in rig.keys} if turn % 3 == 1 else {}
        gone = rng.choice(rig.keys) if turn % 3 == 2 else None
        sent = load(rig, epoch, {key: errors[reason] for key, reason in wrong.items()}, gone)
        if gone:
            await rig.cycles(rng.randrange(40))
            await rig.abort(gone[0], (epoch + gone[1]) % 16)
        await rig.drained()
        for region, bank in rig.keys:
            if (region, bank) == gone:
                continue
            rig.put_close(region, (epoch + bank) % 16, 0, sent[region, bank])
            if wrong:
                await rig.ends_in(wrong[region, bank], region, (epoch + bank) % 16)
            else:
                await rig.ends_well(region, (epoch + bank) % 16)
    cover("scoreboard.sums_of_tiles")


@ScoreboardRig.test()
async def tables_written_in_each_cycle(rig, cfg, rng):
    """Software writes a region's geometry, the same one, in every cycle in which its tile is looked
    up and told: size and flag are what it says, at each bit."""
    for turn, bit in enumerate(range(4, cfg.max_row_bytes.bit_length() - 1)):
        row_bytes, epoch = 1 << bit, turn % 16
        flag = (1 << 48) - 8 if turn & 1 else (1 << 47) - 8
        shape = {"row_bytes": row_bytes | 16, "log2_tile": 0, "capacity": 1}
        await rig.set_geometry(0, **shape, flag_en=1, flag_base=flag)
        await rig.open(0, epoch, 1)
        strobe = {"en": 1, "region": 0, "geometry": rig.geometry[0]}
        rig.set("geometry_write", strobe)
        total = shape["row_bytes"]
        for at in range(0, total, cfg.packet_bytes):
            rig.put_ack(bank=epoch & 1, bytes=min(total - at, cfg.packet_bytes))
        await rig.drained()
        rig.put_close(0, epoch, sent=total)
        await rig.final(0, epoch & 1)
        await rig.cycles(1)
        rig.set("geometry_write", 0)
        await rig.ends_well(0, epoch)
    cover("scoreboard.written_as_read")


@ScoreboardRig.test()
async def many_moves_at_once(rig, cfg, rng):
    """Refusals of the same bank come in successive cycles, of one bank after the other, while
    another is judged: each bank is judged in its turn, none is lost."""
    for turn in range(8):
        tiles = await open_tiles(rig, turn)
        share = len(tiles[rig.keys[0]])
        for (region, bank), groups in tiles.items():
            for group in groups:
                rig.put_ack(region=region, bank=bank, group=group, bytes=16)
            epoch = (2 * turn + bank) % 16
            rig.put_close(region, epoch, sent=16 * (share + 6))
        await rig.drained()
        for _ in range(2):
            for region, bank in rng.sample(rig.keys, len(rig.keys)):
                for _ in range(3):
                    rig.refuse(region, (2 * turn + bank) % 16, 16)
        for region, bank in rig.keys:
            final = await rig.end(region, (2 * turn + bank) % 16)
            assert (final["kind"], final["rows"]) == (EventKind.ALL, share)
    cover("scoreboard.many_moves")


@ScoreboardRig.test(fits=lambda cfg: cfg.dep_ranges > 1)
async def ranges_disarmed_together(rig, cfg, rng):
    """Two ranges are written off in successive cycles: ``dep_busy`` stays until the groups of both
    are clear, and then each counts from 0."""
    share = cfg.groups // 2
    for turn in range(12):
        spans = [
            {"armed": 1, "base": 0, "limit": 16 * share, "log2_stride": 4, "threshold": 48}
            | {"group_base": n * share}
            for n in (0, 1)
        ]
        for index, span in enumerate(spans):
            await rig.set_dep(index, **span)
            for group in range(share):
                rig.put_plain(index * share + group, index)
        await rig.drained()
        for index in (turn & 1, 1 - turn & 1):
            span = spans[index] | {"armed": 0}
            rig.set("dep_write", {"en": 1, "index": index, "range": span})
            rig.model.write_dep(index, span)
            await rig.cycles(1 + turn // 4)
            rig.set("dep_write", 0)
        await rig.cycles(3)
        await rig.until(lambda: not rig.get("dep_busy"), 100 + 8 * cfg.groups, "ranges cleared")
        for index, span in enumerate(spans):
            await rig.pulse("dep_write", index=index, range=span)
            rig.model.write_dep(index, span)
        for size in (32, 16):
            for index, group in [(n, n * share + g) for n in (0, 1) for g in range(share)]:
                rig.put_plain(group, index, size)
            await rig.drained()
            assert size == 16 or not rig.model.outstanding()
        await rig.all_events("READY of both ranges")
    cover("scoreboard.ranges_disarmed_together")
