# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl against its golden model."""

from itertools import product

import cocotb

from hub_rtl.contract.packets import CommandOp, Reason
from sim.bench.streams import GRID, bus_write
from sim.cocotb.decoder.rig import Traffic
from sim.golden.decoder import entry_usable
from sim.quality.coverage import cover

from .rig import World


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_commands(dut, grid):
    """Fences, closes and close-alls of all kinds under traffic; peers slow, without credits or dead
    now and then."""
    idle, stall = grid
    w = World(dut, str(grid), idle, stall)
    await w.ready()
    rng, cfg = w.rng, w.cfg
    for _ in range(w.params["commands"]):
        await w.bench.cycles(rng.choice((0, 5, 40)))
        index = rng.randrange(cfg.handles)
        entry = w.model.entries[index]
        op = rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))
        w.command(
            op,
            handle=rng.choice((index,) * 9 + ((1 << cfg.handle_width) - 1,)),
            owner=rng.choice((entry["owner"],) * 6 + (5,)),
            epoch=(entry["epoch"] + rng.choice((0,) * 8 + (1, 15, 7, 8))) % 16,
        )
        w.slow = (
            {rank for rank in range(cfg.ranks) if rng.random() < 0.2}
            if rng.random() < 0.3
            else w.slow
        )
        w.broke = (
            {rank for rank in range(cfg.ranks) if rng.random() < 0.2}
            if rng.random() < 0.3
            else w.broke
        )
        w.dead = (
            {rank for rank in range(cfg.ranks) if rng.random() < 0.3}
            if rng.random() < 0.1
            else w.dead
        )
        if len(w.open) > 4:
            w.slow, w.broke = set(), set()
            await w.bench.until(lambda: len(w.open) < 3, 20000, "answers")
    await w.idle()
    assert w.messages or w.dropped
    cover(f"producer.grid.{idle}.{stall}")


@cocotb.test()
async def every_fault(dut):
    """No close of an entry that is unusable, in each way an entry can be; a write beyond the table
    changes nothing."""
    w = World(dut, "faults", rate=0)
    await w.ready()
    cfg, rng = w.cfg, w.rng
    traffic = Traffic(cfg, rng, 0)
    for fault in traffic.FAULTS * 9:
        for wrong in (fault, None):
            entry = traffic.broken(wrong)
            await w.write(0, entry)
            if (1 << cfg.handle_width) - 1 >= cfg.handles:
                bus_write(
                    dut,
                    "handle_write",
                    {"en": 1, "index": (1 << cfg.handle_width) - 1, "handle": traffic.broken(None)},
                    w.csr_write,
                )
                await w.bench.cycles(1)
                dut.handle_write.value = 0
            await w.bench.cycles(4)
            assert w.model.entries[0] == entry
            await w.read_back(0)
            answer = await w.do(
                CommandOp.CLOSE, handle=0, epoch=entry["epoch"], owner=entry["owner"]
            )
            assert (answer == Reason.UNKNOWN) == (not entry_usable(cfg, entry))
            await w.idle()
    limits = {"rank": (cfg.ranks, cfg.rank_width), "region": (cfg.regions, cfg.region_width)}
    for n, (name, (limit, width)) in product(range(cfg.replicas), limits.items()):
        if limit < 1 << width:
            entry = w.entry(owner=1, epoch=7, log2_replicas=cfg.replicas.bit_length() - 1)
            entry["replica"][n] |= {name: limit}
            await w.write(0, entry)
            await w.bench.cycles(4)
            answer = await w.do(CommandOp.CLOSE, handle=0, epoch=7)
            assert answer == Reason.UNKNOWN, f"{name} = {limit} of replica {n}"
    for row_bytes in (
        0,
        *(16 << n for n in range(cfg.row_bytes_width - 4)),
        *(cfg.max_row_bytes + 16 * n for n in (-1, 0, 1)),
    ):
        if row_bytes < 1 << cfg.row_bytes_width:
            await w.write(0, w.entry(owner=1, epoch=7, row_bytes=row_bytes))
            await w.bench.cycles(4)
            answer = await w.do(CommandOp.CLOSE, handle=0, epoch=7)
            assert answer == (Reason.OK if row_bytes <= cfg.max_row_bytes else Reason.UNKNOWN), (
                f"row_bytes = {row_bytes}"
            )
            await w.idle()


@cocotb.test()
async def two_epochs_ahead(dut):
    """While a close waits for its peer, the epoch after the next is held; its stores come again
    when the close went."""
    w = World(dut, rate=0.8)
    await w.ready(
        owner=1,
        epoch=3,
        log2_replicas=w.cfg.replicas.bit_length() - 1,
        replica=[{"rank": 1, "region": 0}] * w.cfg.replicas,
    )
    await w.bench.cycles(60)
    w.slow = {1}
    await w.bench.cycles(60)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=3) == Reason.OK
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=3) == Reason.AFTER_CLOSE
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=4) == Reason.OK
    assert w.model.held(0)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=5) == Reason.EPOCH_EARLY
    assert await w.do(CommandOp.CLOSE_ALL, epoch=5) == Reason.EPOCH_EARLY
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=12) == Reason.EPOCH_EARLY
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=2) == Reason.EPOCH_STALE
    changed = {**w.model.entries[0], "owner": 2}
    await w.write(0, changed)  # software may write the entry: the hold stays
    await w.bench.cycles(4)
    assert w.view[0] == (changed, 1) and not w.messages
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=5) == Reason.FOREIGN
    w.slow = set()
    await w.bench.until(lambda: w.view[0][1] == 0, what="end of the hold")
    await w.bench.cycles(100)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=5, owner=2) == Reason.OK
    await w.idle()
    assert {epoch for _, _, epoch in w.messages} == {3, 4, 5}
    cover("producer.hold")


@cocotb.test()
async def slow_peer(dut):
    """One peer that drains for ever, then one without credits: the others' closes go, fences wait,
    nothing else does."""
    w = World(dut, rate=0.7)
    await w.ready(entries=False)
    for index in range(w.cfg.handles):
        await w.write(
            index,
            w.entry(
                owner=1,
                epoch=0,
                log2_replicas=0,
                replica=[{"rank": index % w.cfg.ranks, "region": 0}] * w.cfg.replicas,
            ),
        )
    for fault in ("slow", "broke"):
        setattr(w, fault, {0})
        await w.bench.cycles(100)
        w.command(CommandOp.FENCE)
        first = len(w.messages)
        epoch = w.model.entries[0]["epoch"]
        for index in range(w.cfg.handles):
            assert await w.do(CommandOp.CLOSE, handle=index, epoch=epoch) in (
                Reason.OK,
                Reason.PEER_DEAD,
            )
        others = sum(index % w.cfg.ranks != 0 for index in range(w.cfg.handles))
        await w.bench.until(
            lambda f=first, n=others: sum(rank != 0 for rank, _, _ in w.messages[f:]) == n,
            1500,
            "others' closes",
        )
        if fault == "slow":
            assert all(rank for rank, _, _ in w.messages) and any(
                one["op"] == 0 for one in w.open.values()
            )
            cover("producer.fence_waits")
        await w.idle()
    cover("producer.slow_peer")


@cocotb.test()
async def dead_peer(dut):
    """Closes of a dead peer are dropped and counted; a fence names it once."""
    w = World(dut, rate=0.8)
    await w.ready(
        owner=1, epoch=0, log2_replicas=0, replica=[{"rank": 1, "region": 0}] * w.cfg.replicas
    )
    await w.bench.cycles(40)
    w.slow = {1}
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=0) == Reason.OK
    await w.bench.cycles(50)
    w.rate = 0
    await w.bench.cycles(50)
    w.dead = {1}
    await w.bench.until(lambda: w.dropped == 1, 500, "dropped close")
    assert await w.do(CommandOp.FENCE) == Reason.PEER_DEAD
    assert await w.do(CommandOp.FENCE) == Reason.OK
    await w.idle()
    assert not w.messages
    w.dead, w.rate = set(), 0.5
    await w.bench.cycles(100)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=1) == Reason.OK
    await w.idle()
    assert len(w.messages) == 1
    cover("producer.dead_peer")


@cocotb.test()
async def many_fences(dut):
    """More fences than the queue holds: they stall the commands, and all are answered."""
    w = World(dut, rate=0.6)
    await w.ready(owner=1, epoch=0)
    w.slow = {0, 1}
    await w.bench.cycles(150)
    total = 0
    while w.command(CommandOp.FENCE) and total < 14:
        total += 1
    await w.bench.cycles(200)
    cover("producer.fences_full", w.commands.pending > 0)
    w.slow = set()
    await w.idle()
    assert w.reasons == [Reason.OK] * len(w.reasons) and len(w.reasons) >= total
    cover("producer.many_fences")


@cocotb.test()
async def software_reads(dut):
    """Entries read back as they are, 2 cycles later, during a close-all too."""
    w = World(dut, rate=0)
    await w.ready(owner=1, epoch=0)
    for _ in range(4):
        w.command(CommandOp.CLOSE_ALL, epoch=w.model.entries[0]["epoch"])
        for _ in range(20):
            await w.read_back(w.rng.randrange(w.cfg.handles))
        await w.idle()
    cover("producer.software_reads")


@cocotb.test()
async def reset_in_traffic(dut):
    """A reset forgets entries, commands and pending closes."""
    w = World(dut, rate=0.6, idle="random", stall="random")
    for _ in range(2):
        await w.ready(owner=1, epoch=0)
        w.slow = {0}
        for index in range(w.cfg.handles):
            w.command(CommandOp.CLOSE, handle=index, epoch=0)
        w.command(CommandOp.FENCE)
        await w.bench.cycles(70)
        w.slow = set()
    await w.ready(entries=False)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=0) == Reason.UNKNOWN
    assert await w.do(CommandOp.FENCE) == Reason.OK
    await w.idle()
    assert not w.messages
    cover("producer.reset_in_traffic")


@cocotb.test()
async def close_all_rate(dut):
    """CLOSE_ALL over all handles: one message per 4 cycles after the drain when the links take them
    at once."""
    w = World(dut, rate=0)
    handles, ranks = w.cfg.handles, w.cfg.ranks
    await w.ready(entries=False)
    for index in range(handles):
        await w.write(
            index,
            w.entry(
                owner=1,
                epoch=9,
                replica=[{"rank": index * ranks // handles, "region": index % w.cfg.regions}],
            ),
        )
    w.credits = dict.fromkeys(range(ranks), 1 << 20)
    w.shown = dict(w.credits)
    await w.bench.cycles(4)
    start = w.bench.cycle
    assert await w.do(CommandOp.CLOSE_ALL, epoch=9) == Reason.OK
    answered = w.bench.cycle
    await w.idle()
    assert len(w.messages) == handles
    spread = (w.stamps[-1] - w.stamps[0]) / (handles - 1)
    dut._log.info(
        "close all: answered after %d cycles, first message after %d, %.2f cycles per message",
        answered - start,
        w.stamps[0] - start,
        spread,
    )
    assert spread <= 4.5, f"{spread:.2f} cycles per message"
    assert w.stamps[0] - start <= handles + 60
    cover("producer.close_all_rate")
