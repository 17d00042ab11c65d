# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the readiness scoreboard: sums that agree by accident, and two events that meet
at one register."""

from itertools import permutations

from hub_rtl.contract.packets import EventKind, Reason, RegionState
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
