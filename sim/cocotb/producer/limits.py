# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl: latencies, whose turn it is, full queues, software at the full
rate."""

import cocotb

from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.producer.close_engine import sum_cycles
from sim.bench.streams import bus_write
from sim.quality.coverage import cover

from .rig import World

CLOSE_CYCLES, FENCE_CYCLES = 34, 29  # from a command to its answer in an idle hub
MESSAGE_CYCLES = 38  # from a CLOSE to its message, without the sum of the ledgers' totals


@cocotb.test()
async def latency(dut):
    """Nothing under way: answers and message come in the cycles that the documentation names."""
    w = World(dut, rate=0, peek=0, hops=0)
    w.others = 0
    await w.ready(owner=1, epoch=2, log2_replicas=0)
    for index in range(w.cfg.handles):
        for op, cycles, fields in (
            (CommandOp.CLOSE, CLOSE_CYCLES, {"handle": index, "epoch": 2}),
            (CommandOp.FENCE, FENCE_CYCLES, {}),
        ):
            assert await w.do(op, **fields) == Reason.OK
            took = w.answers.stamps[-1] - w.commands.stamps[-1]
            assert took == cycles, f"{op.name} answered after {took} cycles"
            await w.idle()
            if op == CommandOp.CLOSE:
                took = w.control.stamps[-1] - w.commands.stamps[-1]
                assert took == MESSAGE_CYCLES + sum_cycles(w.cfg), f"message after {took} cycles"
    cover("producer.latency")


@cocotb.test()
async def turns(dut):
    """A fence goes before the next but one command, a command between two fences; a full answer
    port holds up both."""
    w = World(dut, rate=0, peek=0)
    await w.ready(owner=1, epoch=2)
    for again in range(3):
        before = len(w.answered)
        w.command(CommandOp.FENCE)
        for _ in range(4):
            w.command(CommandOp.CLOSE, epoch=9)
        w.command(CommandOp.FENCE)
        w.command(CommandOp.FENCE)
        for _ in range(4):
            w.command(CommandOp.CLOSE, epoch=9)
        w.answers.set_pause("stop" if again == 1 else "none")
        await w.bench.cycles(150)
        w.answers.set_pause("none")
        await w.idle()
        ops = [one["op"] for one in w.answered[before:]]
        assert len(ops) == 11
        if again != 1:
            # The first fence is under way while the commands behind it come; those that come then
            # wait for its answer.
            assert ops.index(CommandOp.FENCE) <= 1 and ops[-1] == CommandOp.CLOSE, ops
    cover("producer.turns")


@cocotb.test()
async def blocked_messages(dut):
    """Nobody takes messages: few closes are read meanwhile; then all go, one per 4 cycles, the
    peers in turn."""
    w = World(dut, rate=0.6)
    w.others = 0
    await w.ready(entries=False)
    cfg = w.cfg
    for index in range(cfg.handles):
        await w.write(
            index,
            w.entry(
                owner=1,
                epoch=9,
                replica=[
                    {"rank": (index + n) % cfg.ranks, "region": n % cfg.regions}
                    for n in range(cfg.replicas)
                ],
            ),
        )
    await w.bench.cycles(60)
    w.rate = 0
    w.control.set_pause("stop")
    assert await w.do(CommandOp.CLOSE_ALL, epoch=9) == Reason.OK
    await w.bench.cycles(100 + 2 * cfg.dests)  # all are listed
    peers = len({rank for rank, due in w.model.due.items() if due} | {job[0] for job in w.jobs})
    assert not w.messages and len(w.jobs) == min(4, peers), (
        f"{len(w.jobs)} closes on their way, peers {peers}"
    )
    cover("producer.messages_blocked", len(w.jobs) == 4)
    w.control.set_pause("none")
    await w.idle()
    first = [
        rank for rank, _, _ in w.messages[: 4 + peers]
    ]  # four were chosen before all could have a turn
    assert len(set(first)) == peers, f"a peer had no turn in one round: {first}"


@cocotb.test()
async def software_turns(dut):
    """Software reads and writes in every cycle: they go first, nothing granted is lost, and closes
    go on afterwards."""
    w = World(dut, "turns", rate=0, peek=0)
    rng, cfg = w.rng, w.cfg
    for _ in range(6):
        await w.ready(owner=1, epoch=4)
        w.broke = {rng.randrange(cfg.ranks)}
        w.command(CommandOp.CLOSE_ALL, epoch=4)
        await w.bench.cycles(rng.randrange(6))
        w.asks.extend(rng.randrange(cfg.handles) for _ in range(24))
        await w.bench.until(lambda: not w.open and not w.commands.pending, what="answer")
        # Two closes may wait per handle, one of each bank, whatever software makes of the entry.
        for _ in range(40):
            index = rng.randrange(cfg.handles)
            w.asks.extend(rng.choice(((index,), (index, index), (rng.randrange(cfg.handles),), ())))
            await w.write(index, w.entry())
        w.broke = set()
        await w.bench.until(lambda: not any(w.model.due.values()), 2000, "all closes")
        w.asks.extend(range(cfg.handles))
        await w.idle()
    cover("producer.software_turns")


@cocotb.test()
async def before_cleared(dut):
    """While the table is cleared, software's writes are lost and commands wait."""
    w = World(dut, "clearing", rate=0, peek=0)
    await w.ready()
    cleared = []
    w.bench.on_sample(lambda cycle: cleared.append(not int(dut.clearing.value)))
    await w.bench.reset()
    w.command(CommandOp.CLOSE_ALL, epoch=1)
    w.command(CommandOp.FENCE)
    for index in range(w.cfg.handles):
        bus_write(
            dut,
            "handle_write",
            {"en": 1, "index": w.cfg.handles - 1 - index, "handle": w.entry()},
            w.csr_write,
        )
        await w.bench.cycles(1)
        assert not w.commands.stamps, "a command was taken before the table was cleared"
    dut.handle_write.value = 0
    await w.bench.cycles(1)
    assert cleared == [False] * w.cfg.handles + [True], f"the table was cleared by cycles {cleared}"
    w.asks.extend(range(w.cfg.handles))
    await w.idle()
    assert w.reasons == [Reason.OK] * 2
    cover("producer.before_cleared")


@cocotb.test()
async def drains(dut):
    """Packets of some peers stay in some packet managers: closes and fences wait for just these,
    and for each of them."""
    w = World(dut, "drains", rate=0.9)
    rng, cfg = w.rng, w.cfg
    await w.ready(entries=False)
    for again in range(12):
        epoch = again % 16
        ranks = rng.sample(range(cfg.ranks), rng.randint(1, cfg.ranks))
        w.rate = 0
        for index in range(cfg.handles):
            await w.write(
                index,
                w.entry(
                    owner=1,
                    epoch=epoch,
                    log2_replicas=min(1, cfg.replicas.bit_length() - 1),
                    replica=[
                        {"rank": rng.choice(ranks), "region": index % cfg.regions}
                        for _ in range(cfg.replicas)
                    ],
                ),
            )
        w.stuck = {(n, rank) for n in range(cfg.slices) for rank in ranks if rng.random() < 0.2}
        w.broke = {rank for rank in ranks if rng.random() < 0.3}
        await w.bench.cycles(5)  # the decoders know the entries
        w.rate = 0.9
        await w.bench.cycles(50)
        if rng.random() < 0.5:
            w.command(CommandOp.FENCE)
        for index in rng.sample(range(cfg.handles), cfg.handles):
            assert await w.do(CommandOp.CLOSE, handle=index, epoch=epoch) in (
                Reason.OK,
                Reason.PEER_DEAD,
            )
            w.stuck |= {
                (n, rank) for n in range(cfg.slices) for rank in ranks if rng.random() < 0.05
            }
            if rng.random() < 0.3:
                w.broke = set()
        w.rate, w.broke = 0, set()
        await w.bench.until(
            lambda: (
                {rank for rank, due in w.model.due.items() if due}
                <= {store.rank for pool in w.pools for store in pool if store.marked}
            ),
            1000,
            "closes",
        )
        await w.bench.cycles(20)
        while w.stuck:
            w.stuck.pop()
            await w.bench.cycles(rng.choice((0, 4, 12)))
        await w.idle()
        await w.bench.until(lambda: not w.inside(), 1000, "stores of the next epoch")
    cover("producer.drains")


@cocotb.test()
async def dead_turns(dut):
    """Many closes for dead peers, which wait for no link: each has its turn."""
    w = World(dut, "dead", rate=0.8)
    rng, cfg = w.rng, w.cfg
    for _ in range(4):
        w.dead = set()
        await w.ready(entries=False)
        ranks = rng.sample(range(cfg.ranks), min(3, cfg.ranks))
        for index in range(cfg.handles):
            await w.write(
                index,
                w.entry(
                    owner=1,
                    epoch=2,
                    log2_replicas=cfg.replicas.bit_length() - 1,
                    replica=[
                        {"rank": ranks[(index + n) % len(ranks)], "region": 0}
                        for n in range(cfg.replicas)
                    ],
                ),
            )
        await w.bench.cycles(40)
        w.slow = set(ranks)
        await w.bench.cycles(40)
        assert await w.do(CommandOp.CLOSE_ALL, epoch=2) == Reason.OK
        w.dead = set(ranks)
        await w.bench.cycles(8)  # what was chosen before has been read
        first = len(w.turns)
        left = {rank: len(due) for rank, due in w.model.due.items()}
        await w.bench.until(lambda: not any(w.model.due.values()), 500, "dropped closes")
        since = {}
        for at, rank in enumerate(w.turns[first:]):
            before = since.get(rank, -1)  # the first turns depend on when each peer has drained
            missed = [other for other, seen in since.items() if left[other] and seen < before]
            assert not missed, f"rank {rank} again, but not {missed}: {w.turns[first:]}"
            since[rank] = at
            left[rank] -= 1
        w.rate = 0
        await w.idle()
    cover("producer.dead_turns")
