# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl: two events that meet at one register, at all distances from one
another."""

import cocotb

from hub_rtl.contract.packets import CommandOp, Reason
from sim.quality.coverage import cover

from .rig import World

VERDICT_BY = (
    40  # cycles from a fence to the cycle after its answer in an idle hub, with some to spare
)


async def quiet_world(dut, salt, **fields):
    """Nothing moves but what the test moves."""
    w = World(dut, salt, rate=0, peek=0, hops=0)
    w.others = 0
    await w.ready(owner=1, log2_replicas=0, **fields)
    return w


@cocotb.test()
async def sink_meets_verdict(dut):
    """An entry is sunk in each cycle around a fence's verdict: this fence tells of it or the next
    one, and just one does."""
    w = await quiet_world(dut, "verdict")
    told = []
    for at in range(VERDICT_BY):
        w.command(CommandOp.FENCE)
        await w.bench.cycles(at)
        w.sunk = 1
        await w.idle()
        first = w.reasons[-1]
        then = await w.do(CommandOp.FENCE)
        assert {first, then} == {Reason.OK, Reason.PEER_DEAD}, (
            f"sunk {at} cycles after the fence: {first!r}, {then!r}"
        )
        assert await w.do(CommandOp.FENCE) == Reason.OK
        told.append(first == Reason.PEER_DEAD)
    last = told.index(False)  # the first cycle that is too late
    assert 0 < last < VERDICT_BY - 2 and told == [True] * last + [False] * (VERDICT_BY - last), told
    cover("producer.sink_at_verdict")
    # The last cycle of one fence and the first of the next: both tell.
    w.command(CommandOp.FENCE)
    await w.bench.cycles(last - 1)
    w.sunk = 1
    await w.bench.cycles(1)
    w.sunk = 1
    await w.idle()
    assert w.reasons[-1] == Reason.PEER_DEAD
    assert await w.do(CommandOp.FENCE) == Reason.PEER_DEAD
    assert await w.do(CommandOp.FENCE) == Reason.OK
    cover("producer.sink_on_both_sides")


@cocotb.test()
async def fence_meets_answer(dut):
    """A fence comes in each cycle around the answer of the one before: both are answered, the
    second for what came later."""
    w = await quiet_world(dut, "answer")
    for at in range(VERDICT_BY):
        before = len(w.reasons)
        w.command(CommandOp.FENCE)
        await w.bench.cycles(1 + at)
        w.command(CommandOp.FENCE)
        await w.bench.until(lambda n=before: len(w.reasons) == n + 2, 200, "two answers")
        first = w.answers.stamps[-2]
        cover("producer.fence_at_answer", first - 1 <= w.commands.stamps[-1] <= first)
        await w.idle()
    assert set(w.reasons) == {Reason.OK}


async def held_handle(w, index):
    """Two closes of the handle wait for a control credit of rank 1, so its epoch 5 is held; the
    others may close epoch 5."""
    cfg = w.cfg
    for other in range(cfg.handles):
        rank, epoch = (1, 3) if other == index else (0, 5)
        await w.write(
            other,
            w.entry(
                owner=1,
                epoch=epoch,
                closed=0,
                log2_replicas=0,
                replica=[{"rank": rank, "region": 0}] * cfg.replicas,
            ),
        )
    await w.bench.cycles(4)
    w.shown[1], w.credits[1] = 0, 0
    for epoch in (3, 4):
        assert await w.do(CommandOp.CLOSE, handle=index, epoch=epoch) == Reason.OK
    assert w.model.held(index)


def give_credits(w):
    """Rank 1 takes control messages again."""
    w.shown[1] = w.credits[1] = 2


@cocotb.test()
async def close_all_but_one(dut):
    """CLOSE_ALL meets one handle that is held, whichever: EPOCH_EARLY, all others are closed;
    repeated, it closes that one."""
    w = await quiet_world(dut, "held")
    for index in range(w.cfg.handles):
        await held_handle(w, index)
        before = len(w.messages)
        assert await w.do(CommandOp.CLOSE_ALL, epoch=5) == Reason.EPOCH_EARLY
        assert w.answered[-1]["closed"] == set(range(w.cfg.handles)) - {index}
        await w.bench.until(
            lambda n=before: len(w.messages) == n + w.cfg.handles - 1, 1000, "the others' closes"
        )
        assert await w.do(CommandOp.CLOSE_ALL, epoch=5) == Reason.EPOCH_EARLY
        assert not w.answered[-1]["closed"]
        give_credits(w)
        await w.bench.until(lambda n=index: not w.view[n][1], 500, "the end of the hold")
        assert await w.do(CommandOp.CLOSE_ALL, epoch=5) == Reason.OK
        assert w.answered[-1]["closed"] == {index}
        await w.idle()
        assert sorted(epoch for _, _, epoch in w.messages[before:]) == sorted(
            [3, 4] + [5] * w.cfg.handles
        )
        cover("producer.close_all_but_one", w.cfg.handles > 1)


@cocotb.test()
async def hold_ends_in_close_all(dut):
    """The hold of one handle ends in each cycle around CLOSE_ALL's visit: closed with OK, or left
    with EPOCH_EARLY."""
    w = await quiet_world(dut, "ends")
    index, answers = w.cfg.handles - 1, []
    for at in range(48):
        await held_handle(w, index)
        give_credits(w)
        await w.bench.cycles(at)
        answers.append(await w.do(CommandOp.CLOSE_ALL, epoch=5))
        assert (index in w.answered[-1]["closed"]) == (answers[-1] == Reason.OK)
        await w.idle()
    late = answers.index(Reason.OK)
    assert late and answers == [Reason.EPOCH_EARLY] * late + [Reason.OK] * (len(answers) - late), (
        answers
    )
    cover("producer.hold_ends_in_close_all")


@cocotb.test()
async def write_meets_close(dut):
    """Software writes the entry in each cycle from before a close until its message went: one
    message, and no count is lost."""
    w = await quiet_world(dut, "write")
    first = []
    for at in range(64):
        entry = w.entry(owner=1, epoch=7, closed=0, log2_replicas=0)
        await w.write(0, entry)
        await w.bench.cycles(4)
        before = len(w.messages)
        w.command(CommandOp.CLOSE, handle=0, epoch=7)
        await w.bench.cycles(at)
        await w.write(0, {**entry, "row_bytes": 16, "closed": 1})
        await w.idle()
        assert len(w.messages) == before + 1 and w.reasons[-1] == Reason.OK
        first.append(w.model.entries[0]["epoch"] == 8)  # the close came behind the write
    behind = first.index(False)
    assert behind and not any(first[behind:])
    cover("producer.write_at_close")


@cocotb.test()
async def death_meets_message(dut):
    """A peer dies in each cycle around the choice of its close: the message goes or is dropped,
    once, and the hold ends."""
    w = await quiet_world(dut, "death")
    outcomes = set()
    for at in range(24):
        w.dead = set()
        await w.write(
            0,
            w.entry(
                owner=1,
                epoch=7,
                closed=0,
                log2_replicas=0,
                replica=[{"rank": 1, "region": 0}] * w.cfg.replicas,
            ),
        )
        await w.bench.cycles(4)
        w.shown[1] = w.credits[1] = 0
        assert await w.do(CommandOp.CLOSE, handle=0, epoch=7) == Reason.OK
        before = len(w.messages), w.dropped
        give_credits(w)
        await w.bench.cycles(at)
        w.dead = {1}
        await w.idle()
        came = len(w.messages) - before[0], w.dropped - before[1]
        assert sum(came) == 1, (
            f"{at} cycles after the credit: {came[0]} messages, {came[1]} dropped"
        )
        assert not any(hold for _, hold in w.view.values())
        outcomes.add(came)
    assert outcomes == {(1, 0), (0, 1)}
    cover("producer.death_at_choice")
