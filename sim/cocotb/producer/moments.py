# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl: two events that meet at one register, at all distances from one
another."""

from hub_rtl.contract.packets import CommandOp, Reason
from sim.bench.moments import turning_point
from sim.quality.coverage import cover

from .rig import ProducerRig

# cycles from a fence to the cycle after its answer in an idle hub, with some to spare
VERDICT_BY = 40
TOLD_BY = 10  # cycles from an ANNOUNCE without ``more`` to its answer, if it waits for nothing


class QuietRig(ProducerRig):
    """Nothing moves but what the test moves."""

    def __init__(self, dut, salt):
        super().__init__(dut, salt, rate=0, peek=0, hops=0, prompt=1)
        self.unasked = 0

    async def start(self, **fields):
        await super().start(**{"owner": 1, "log2_replicas": 0} | fields)


@QuietRig.test()
async def sink_meets_verdict(rig, cfg, rng):
    """An entry is sunk in each cycle around a fence's verdict: this fence tells of it or the next
    one, and just one does."""
    told = []
    for at in range(VERDICT_BY):
        rig.command(CommandOp.FENCE)
        await rig.cycles(at)
        rig.sunk = 1
        await rig.idle()
        first = rig.reasons[-1]
        then = await rig.fence()
        assert {first, then} == {Reason.OK, Reason.PEER_DEAD}, (
            f"sunk {at} cycles after the fence: {first!r}, {then!r}"
        )
        assert await rig.fence() == Reason.OK
        told.append(first == Reason.PEER_DEAD)
    last = turning_point(told, True, False)  # the first cycle that is too late
    assert last < VERDICT_BY - 2
    cover("producer.sink_at_verdict")
    # The last cycle of one fence and the first of the next: both tell.
    rig.command(CommandOp.FENCE)
    await rig.cycles(last - 1)
    rig.sunk = 1
    await rig.cycles(1)
    rig.sunk = 1
    await rig.idle()
    assert rig.reasons[-1] == Reason.PEER_DEAD
    assert await rig.fence() == Reason.PEER_DEAD
    assert await rig.fence() == Reason.OK
    cover("producer.sink_on_both_sides")


@QuietRig.test()
async def fence_meets_answer(rig, cfg, rng):
    """A fence comes in each cycle around the answer of the one before: both are answered, the
    second for what came later."""
    for at in range(VERDICT_BY):
        before = len(rig.reasons)
        rig.command(CommandOp.FENCE)
        await rig.cycles(1 + at)
        rig.command(CommandOp.FENCE)
        await rig.until(lambda n=before: len(rig.reasons) == n + 2, 200, "two answers")
        first = rig.o_response.stamps[-2]
        cover("producer.fence_at_answer", first - 1 <= rig.i_command.stamps[-1] <= first)
        await rig.idle()
    assert set(rig.reasons) == {Reason.OK}


async def held_handle(rig, index):
    """Two closes of the handle wait for a credit of rank 1, so its epoch 5 is held; the
    others may close epoch 5."""
    for other in range(rig.cfg.handles):
        rank, epoch = (1, 3) if other == index else (0, 5)
        entry = rig.mine(epoch=epoch, closed=0, log2_replicas=0, replica=rig.all_to(rank))
        await rig.write(other, entry)
    await rig.cycles(4)
    rig.credits[1] = 0
    for epoch in (3, 4):
        assert await rig.close(index, epoch) == Reason.OK
    assert rig.model.held(index)


def give_credits(rig):
    """Rank 1 takes news again."""
    rig.credits[1] = 2


@QuietRig.test()
async def close_all_but_one(rig, cfg, rng):
    """CLOSE_ALL meets one handle that is held, whichever: EPOCH_EARLY, all others are closed;
    repeated, it closes that one."""
    for index in range(cfg.handles):
        await held_handle(rig, index)
        before = len(rig.messages)
        assert await rig.close_all(5) == Reason.EPOCH_EARLY
        assert rig.answered[-1]["closed"] == set(range(cfg.handles)) - {index}
        await rig.until(
            lambda n=before: len(rig.messages) == n + cfg.handles - 1, 1000, "the others' closes"
        )
        assert await rig.close_all(5) == Reason.EPOCH_EARLY
        assert not rig.answered[-1]["closed"]
        give_credits(rig)
        await rig.until(lambda n=index: not rig.view[n][1], 500, "the end of the hold")
        assert await rig.close_all(5) == Reason.OK
        assert rig.answered[-1]["closed"] == {index}
        await rig.idle()
        assert sorted(epoch for _, _, epoch in rig.messages[before:]) == sorted(
            [3, 4] + [5] * cfg.handles
        )
        cover("producer.close_all_but_one", cfg.handles > 1)


@QuietRig.test()
async def hold_ends_in_close_all(rig, cfg, rng):
    """The hold of one handle ends in each cycle around CLOSE_ALL's visit: closed with OK, or left
    with EPOCH_EARLY."""
    index, answers = cfg.handles - 1, []
    for at in range(48):
        await held_handle(rig, index)
        give_credits(rig)
        await rig.cycles(at)
        answers.append(await rig.close_all(5))
        assert (index in rig.answered[-1]["closed"]) == (answers[-1] == Reason.OK)
        await rig.idle()
    turning_point(answers, Reason.EPOCH_EARLY, Reason.OK)
    cover("producer.hold_ends_in_close_all")


@QuietRig.test()
async def closed_before_answer(rig, cfg, rng):
    """CLOSE_ALL has met a held handle; its answer is not taken, the hold ends, and a CLOSE closes
    that handle: CLOSE_ALL says EPOCH_EARLY all the same."""
    index = cfg.handles - 1
    await held_handle(rig, index)
    rig.o_response.set_pause("stop")
    rig.command(CommandOp.CLOSE_ALL, epoch=5)
    await rig.cycles(100 + 10 * cfg.handles)
    give_credits(rig)
    await rig.until(lambda: not rig.view[index][1], 500, "the end of the hold")
    rig.command(CommandOp.CLOSE, handle=index, epoch=5)
    await rig.until(lambda: rig.model.entries[index]["epoch"] == 6, 500, "the close")
    assert not rig.answered[2:], "an answer was taken"
    rig.o_response.set_pause("none")
    await rig.idle()
    assert rig.reasons[2:] == [Reason.EPOCH_EARLY, Reason.OK]


@QuietRig.test()
async def write_meets_close(rig, cfg, rng):
    """Software writes the entry in each cycle from before a close until its message went: one
    message, and no count is lost."""
    first = []
    for at in range(64):
        entry = rig.mine(epoch=7, closed=0, log2_replicas=0)
        await rig.write(0, entry, settle=4)
        before = len(rig.messages)
        rig.command(CommandOp.CLOSE, handle=0, epoch=7)
        await rig.cycles(at)
        await rig.write(0, {**entry, "row_bytes": 16, "closed": 1})
        await rig.idle()
        assert len(rig.messages) == before + 1 and rig.reasons[-1] == Reason.OK
        first.append(rig.model.entries[0]["epoch"] == 8)  # the close came behind the write
    turning_point(first, True, False)
    cover("producer.write_at_close")


@QuietRig.test()
async def death_meets_message(rig, cfg, rng):
    """A peer dies in each cycle around the choice of its close: the message goes or is dropped,
    once, and the hold ends."""
    outcomes = set()
    for at in range(24):
        rig.dead = set()
        await rig.write(
            0, rig.mine(epoch=7, closed=0, log2_replicas=0, replica=rig.all_to(1)), settle=4
        )
        rig.credits[1] = 0
        assert await rig.close(0, 7) == Reason.OK
        before = len(rig.messages), rig.dropped
        await rig.until(lambda: rig.get("wanted"), 200, "a close that may go")
        give_credits(rig)
        await rig.cycles(at)
        rig.dead = {1}
        await rig.idle()
        came = len(rig.messages) - before[0], rig.dropped - before[1]
        assert sum(came) == 1, (
            f"{at} cycles after the credit: {came[0]} messages, {came[1]} dropped"
        )
        assert not any(hold for _, hold in rig.view.values())
        outcomes.add(came)
    assert outcomes == {(1, 0), (0, 1)}
    cover("producer.death_at_choice")


@QuietRig.test(fits=lambda cfg: cfg.handles > 1, cases={"other": ["close", "stuck"]})
async def close_meets_other(rig, cfg, rng, other):
    """A close comes in each cycle around those in which another one of its peer is cut off,
    listed and read, or while that waits for a credit; decoders let stores in until they know of it:
    it waits for these."""
    for at in range(VERDICT_BY):
        await rig.start()
        for index in (0, 1):
            entry = rig.mine(epoch=2, closed=0, log2_replicas=0, replica=rig.all_to(1))
            await rig.write(index, entry)
        await rig.cycles(4)
        rig.slow = {1}
        rig.credits[1] = 0 if other == "stuck" else 2
        rig.command(CommandOp.CLOSE, handle=0, epoch=2)
        await rig.cycles(at)
        rig.command(CommandOp.CLOSE, handle=1, epoch=2)
        for _ in range(VERDICT_BY):
            if not rig.view[1][0]["closed"]:
                rig.store(rig.lanes[0], cfg.replicas, 2, 1, 48)
            await rig.cycles(1)
        give_credits(rig)
        await rig.cycles(VERDICT_BY)
        rig.slow = set()
        await rig.idle()
        assert len(rig.messages) == 2
    cover(f"producer.close_at_other.{other}")


@QuietRig.test(fits=lambda cfg: cfg.handles > 2)
async def listed_before_first_entry(rig, cfg, rng):
    """A packet is begun, but software's reads keep its first close in its list; another close of
    the peer is listed meanwhile, in each cycle: no packet is empty, and both closes go."""
    for at in range(VERDICT_BY):
        await rig.start(entries=False)
        for index, (rank, epoch) in enumerate([(0, 2), (1, 2), (1, 3)]):
            target = {"log2_replicas": 0, "replica": rig.all_to(rank)}
            await rig.write(index, rig.mine(epoch=epoch, closed=0, **target))
        await rig.cycles(4)
        rig.command(CommandOp.CLOSE_ALL, epoch=2)
        await rig.cycles(at)
        rig.command(CommandOp.CLOSE, handle=2, epoch=3)
        await rig.until(lambda: rig.claims or rig.packets, 200, "the first packet")
        rig.asks.extend([0] * VERDICT_BY)
        await rig.idle()
        assert len(rig.messages) == 3
    cover("producer.listed_before_first_entry")


@QuietRig.test()
async def reset_meets_command(rig, cfg, rng):
    """A reset in each cycle of a command, also while its answer waits: nothing comes of it."""
    for op in (CommandOp.CLOSE, CommandOp.CLOSE_ALL, CommandOp.ANNOUNCE, CommandOp.FENCE_REMOTE):
        for at in (*range(1, 16), 2 * VERDICT_BY):
            await rig.start()
            rig.o_response.set_pause("stop")
            rig.command(op, handle=0, epoch=rig.model.entries[0]["epoch"], bytes16=1)
            await rig.cycles(at)
            await rig.start()
            rig.o_response.set_pause("none")
            await rig.cycles(VERDICT_BY)
            assert not rig.answered and await rig.fence() == Reason.OK
    await rig.idle()
    cover("producer.reset_meets_command")


@QuietRig.test()
async def reset_meets_listing(rig, cfg, rng):
    """A reset in each cycle in which closes are being listed: those of the next table are whole."""
    log2 = cfg.replicas.bit_length() - 1
    for at in range(16, 40 + 2 * min(8, cfg.dests)):
        for again in range(2):
            await rig.start(owner=1, epoch=2, closed=0, log2_replicas=log2)
            if not again:
                rig.command(CommandOp.CLOSE_ALL, epoch=2)
                await rig.cycles(at)
        assert await rig.close_all(2) == Reason.OK
        await rig.idle()
        assert len(rig.messages) + rig.dropped == cfg.handles << log2
    cover("producer.reset_meets_listing")


@QuietRig.test()
async def end_meets_fence(rig, cfg, rng):
    """A handle closes by itself, as its promise is kept, in each cycle around the one in which a
    fence begins: it is marked and listed with this fence or behind it."""
    for at in range(3 * VERDICT_BY):
        await rig.start()
        entry = rig.mine(epoch=2, closed=0, log2_replicas=0, replica=rig.all_to(1))
        await rig.write(0, entry, settle=4)
        rig.command(CommandOp.ANNOUNCE, handle=0, epoch=2, bytes16=3)
        await rig.cycles(VERDICT_BY)
        rig.store(rig.lanes[0], 0, 2, 1, 48)
        await rig.cycles(at // 3)
        rig.command(CommandOp.FENCE)
        await rig.idle()
        assert len(rig.messages) == 1
    cover("producer.end_at_fence")
