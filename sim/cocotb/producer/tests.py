# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl against its golden model."""

from itertools import product

from hub_rtl.contract.packets import NEWS_ENTRIES, CommandOp, Reason
from sim.bench.streams import GRID
from sim.golden.decoder import entry_usable
from sim.quality.coverage import cover

from .rig import ProducerRig

REMOTE_BY = 60  # cycles in which a remote fence of which nobody is asked has its answer


@ProducerRig.test(grid=GRID)
async def random_commands(rig, cfg, rng, grid):
    """Fences, closes and close-alls of all kinds under traffic; peers slow, without credits or dead
    now and then, merges that stand still for a while."""
    for _ in range(rig.params["commands"]):
        await rig.cycles(rng.choice((0, 5, 40)))
        index = rng.randrange(cfg.handles)
        entry = rig.model.entries[index]
        op = rng.choice((0, 5, 1, 1, 1, 1, 1, 2, 2, 3))
        rig.command(
            op,
            handle=rng.choice((index,) * 9 + ((1 << cfg.handle_width) - 1,)),
            owner=rng.choice((entry["owner"],) * 6 + (5,)),
            epoch=(entry["epoch"] + rng.choice((0,) * 8 + (1, 15, 7, 8))) % 16,
        )
        for fault, often, share in (("slow", 0.3, 0.2), ("broke", 0.3, 0.2), ("dead", 0.1, 0.3)):
            if rng.random() < often:
                setattr(rig, fault, {rank for rank in range(cfg.ranks) if rng.random() < share})
        rig.merges_stand = rng.random() < 0.3
        if len(rig.open) > 4:
            rig.slow, rig.broke, rig.merges_stand = set(), set(), False
            await rig.until(lambda: len(rig.open) < 3, 20000, "answers")
        rig.memories.spoils = rng.choice((0.0, 0.1))
    rig.merges_stand = False
    await rig.idle()
    assert rig.messages or rig.dropped
    cover(f"producer.grid.{'.'.join(grid)}")


@ProducerRig.test(rate=0)
async def every_fault(rig, cfg, rng):
    """No close of an entry that is unusable, in each way an entry can be; a write beyond the table,
    and a command that does not exist, change nothing."""
    traffic = rig.traffic
    beyond = (1 << cfg.handle_width) - 1
    for fault in traffic.FAULTS * 9:
        for wrong in (fault, None):
            entry = traffic.broken(wrong)
            await rig.write(0, entry)
            if beyond >= cfg.handles:
                await rig.pulse("handle_write", index=beyond, handle=traffic.broken(None))
            await rig.cycles(4)
            assert rig.model.entries[0] == entry
            await rig.read_back(0)
            answer = await rig.close(0, entry["epoch"], owner=entry["owner"])
            assert (answer == Reason.UNKNOWN) == (not entry_usable(cfg, entry))
            await rig.idle()
    limits = {"rank": (cfg.ranks, cfg.rank_width), "region": (cfg.regions, cfg.region_width)}
    for n, (name, (limit, width)) in product(range(cfg.replicas), limits.items()):
        if limit < 1 << width:
            entry = rig.mine(epoch=7, log2_replicas=cfg.replicas.bit_length() - 1)
            entry["replica"][n] |= {name: limit}
            await rig.write(0, entry, settle=4)
            answer = await rig.close(0, 7)
            assert answer == Reason.UNKNOWN, f"{name} = {limit} of replica {n}"
    lengths = [0, *(16 << n for n in range(cfg.row_bytes_width - 4))]
    for row_bytes in lengths + [cfg.max_row_bytes + 16 * n for n in (-1, 0, 1)]:
        if row_bytes < 1 << cfg.row_bytes_width:
            await rig.write(0, rig.mine(epoch=7, row_bytes=row_bytes), settle=4)
            answer = await rig.close(0, 7)
            assert answer == (Reason.OK if row_bytes <= cfg.max_row_bytes else Reason.UNKNOWN), (
                f"row_bytes = {row_bytes}"
            )
            await rig.idle()
    await rig.write(0, rig.mine(epoch=7), settle=4)
    for op in range(len(CommandOp), 8):  # there is no such command
        before = rig.o_response.count
        rig.command(op, epoch=7)
        await rig.until(lambda before=before: rig.o_response.count > before, what=f"answer to {op}")
        assert rig.reasons[-1] == Reason.UNKNOWN
    assert await rig.close(0, 7) == Reason.OK


@ProducerRig.test(rate=0.8)
async def two_epochs_ahead(rig, cfg, rng):
    """While a close waits for its peer, the epoch after the next is held; its stores come again
    when the close went."""
    await rig.start(
        owner=1, epoch=3, log2_replicas=cfg.replicas.bit_length() - 1, replica=rig.all_to(1)
    )
    await rig.cycles(60)
    rig.slow = {1}
    await rig.cycles(60)
    assert await rig.close(0, 3) == Reason.OK
    assert await rig.close(0, 3) == Reason.AFTER_CLOSE
    assert await rig.close(0, 4) == Reason.OK
    assert rig.model.held(0)
    assert await rig.close(0, 5) == Reason.EPOCH_EARLY
    assert await rig.close_all(5) == Reason.EPOCH_EARLY
    assert await rig.close(0, 12) == Reason.EPOCH_EARLY
    assert await rig.close(0, 2) == Reason.EPOCH_STALE
    changed = {**rig.model.entries[0], "owner": 2}
    await rig.write(0, changed, settle=4)
    assert rig.view[0] == (changed, 1) and not rig.messages
    assert await rig.close(0, 5) == Reason.FOREIGN
    rig.slow = set()
    await rig.until(lambda: rig.view[0][1] == 0, what="end of the hold")
    await rig.cycles(100)
    assert await rig.close(0, 5, owner=2) == Reason.OK
    await rig.idle()
    assert {epoch for _, _, epoch in rig.messages} == {3, 4, 5}
    cover("producer.hold")


@ProducerRig.test(rate=0.7)
async def slow_peer(rig, cfg, rng):
    """One peer that drains for ever, then one without credits: the others' closes go, fences wait,
    nothing else does."""
    await rig.start(entries=False)
    await rig.write_all(
        [
            rig.mine(epoch=0, log2_replicas=0, replica=rig.all_to(index % cfg.ranks))
            for index in range(cfg.handles)
        ]
    )
    for fault in ("slow", "broke"):
        setattr(rig, fault, {0})
        await rig.cycles(100)
        rig.command(CommandOp.FENCE)
        first = len(rig.messages)
        epoch = rig.model.entries[0]["epoch"]
        for index in range(cfg.handles):
            assert await rig.close(index, epoch) in (Reason.OK, Reason.PEER_DEAD)
        others = sum(index % cfg.ranks != 0 for index in range(cfg.handles))
        await rig.until(
            lambda f=first, n=others: sum(rank != 0 for rank, _, _ in rig.messages[f:]) == n,
            1500,
            "others' closes",
        )
        if fault == "slow":
            assert all(rank for rank, _, _ in rig.messages) and any(
                one["op"] == 0 for one in rig.open.values()
            )
            cover("producer.fence_waits")
        await rig.idle()
    cover("producer.slow_peer")


@ProducerRig.test(rate=0, peek=0, prompt=1, fits=lambda cfg: cfg.handles >= cfg.ranks)
async def credits_not_asked_for(rig, cfg, rng):
    """Credits are shown all the time, but one peer has none: a packet to another is begun only a
    cycle after it was asked for."""
    await rig.start(entries=False)
    for rank in range(cfg.ranks):
        entry = rig.mine(epoch=0, closed=0, log2_replicas=0, replica=rig.all_to(rank))
        await rig.write(rank, entry)
    await rig.cycles(4)
    rig.unasked = 1
    for epoch, poor in enumerate(range(cfg.ranks)):
        rig.credits[poor] = 0
        assert await rig.close(poor, epoch) == Reason.OK
        await rig.until(lambda n=poor: rig.get("wanted") >> n & 1, 100, "what waits for a credit")
        for rank in rng.sample(range(cfg.ranks), cfg.ranks):
            if rank != poor:
                assert await rig.close(rank, epoch) == Reason.OK
        await rig.until(lambda n=epoch: len(rig.messages) == (n + 1) * cfg.ranks - 1, 500, "closes")
        rig.credits[poor] = 2
        await rig.idle()
    cover("producer.not_asked_for")


@ProducerRig.test(rate=0.8)
async def dead_peer(rig, cfg, rng):
    """Closes of a dead peer are dropped and counted; a fence names it once."""
    await rig.start(owner=1, epoch=0, log2_replicas=0, replica=rig.all_to(1))
    await rig.cycles(40)
    rig.slow = {1}
    assert await rig.close(0, 0) == Reason.OK
    await rig.cycles(50)
    rig.rate = 0
    await rig.cycles(50)
    rig.dead = {1}
    await rig.until(lambda: rig.dropped == 1, 500, "dropped close")
    assert await rig.fence() == Reason.PEER_DEAD
    assert await rig.fence() == Reason.OK
    await rig.idle()
    assert not rig.messages
    rig.dead, rig.rate = set(), 0.5
    await rig.cycles(100)
    assert await rig.close(0, 1) == Reason.OK
    await rig.idle()
    assert len(rig.messages) == 1
    cover("producer.dead_peer")


@ProducerRig.test(rate=0.6)
async def remote_fences(rig, cfg, rng):
    """A remote fence waits for all peers' memories, says what they say, and holds up nothing but
    fences; a dead peer ends it."""
    await rig.start(owner=1, epoch=0)
    for spoils, wanted in ((0.0, Reason.OK), (1.0, Reason.INCOMPLETE), (0.0, Reason.OK)):
        rig.memories.spoils = spoils
        while wanted not in rig.reasons[-1:]:
            assert await rig.fence(remote=True) in (Reason.OK, wanted)  # nobody may be asked
    assert await rig.fence() == Reason.OK
    rig.memories.mute = {1}
    for op in (CommandOp.FENCE_REMOTE, CommandOp.FENCE, CommandOp.FENCE_REMOTE):
        rig.command(op)
    before = rig.o_response.count
    for index in range(cfg.handles):
        rig.command(CommandOp.CLOSE, handle=index, epoch=0)
    await rig.until(lambda: rig.o_response.count >= before + cfg.handles, 2000, "closes")
    await rig.cycles(100)
    assert len(rig.open) == 3, "a fence did not wait"
    rig.dead = {1}
    await rig.until(lambda: not rig.open, 2000, "fences")
    assert rig.reasons[-3:] == [Reason.PEER_DEAD] * 3
    # Not a question any more: it answers late, lives, and the next fence waits for it.
    rig.rate = 0
    await rig.cycles(60)
    rig.dead = set()
    rig.command(CommandOp.FENCE_REMOTE)
    await rig.cycles(150)
    assert rig.open
    rig.memories.mute = set()
    await rig.idle()
    cover("producer.remote.dead")


@ProducerRig.test(rate=0, peek=0)
async def each_memory_is_awaited(rig, cfg, rng):
    """A remote fence waits for each living peer that some slice has asked, for it alone and beside
    dead ones, whose answers never come."""
    ranks = set(range(cfg.ranks))
    for at, alive in product(range(cfg.slices), ranks):
        for dead in (set(), ranks - {alive}):
            memories = rig.memories
            memories.asked = {(at, rank) for rank in dead | {alive}}
            memories.mute, rig.dead = ranks, dead
            rig.command(CommandOp.FENCE_REMOTE)
            await rig.cycles(REMOTE_BY)
            assert rig.open, f"slice {at}: rank {alive} was not awaited"
            memories.mute = dead
            await rig.until(lambda: not rig.open, 100, "the fence")
            assert rig.reasons[-1] == (Reason.PEER_DEAD if dead else Reason.OK)
            memories.mute, rig.dead = set(), set()
            await rig.cycles(4)
    cover("producer.remote.each")


@ProducerRig.test(rate=0.6)
async def many_fences(rig, cfg, rng):
    """More fences than the queue holds: they stall the commands, and all are answered."""
    await rig.start(owner=1, epoch=0)
    rig.slow = {0, 1}
    await rig.cycles(150)
    total = 0
    while rig.command(CommandOp.FENCE) and total < 14:
        total += 1
    await rig.cycles(200)
    cover("producer.fences_full", rig.i_command.pending > 0)
    rig.slow = set()
    await rig.idle()
    assert rig.reasons == [Reason.OK] * len(rig.reasons) and len(rig.reasons) >= total
    cover("producer.many_fences")


@ProducerRig.test(rate=0)
async def software_reads(rig, cfg, rng):
    """Entries read back as they are, 2 cycles later, during a close-all too."""
    await rig.start(owner=1, epoch=0)
    for _ in range(4):
        rig.command(CommandOp.CLOSE_ALL, epoch=rig.model.entries[0]["epoch"])
        for _ in range(20):
            await rig.read_back(rng.randrange(cfg.handles))
        await rig.idle()
    cover("producer.software_reads")


@ProducerRig.test(rate=0.6, idle="random", stall="random")
async def reset_in_traffic(rig, cfg, rng):
    """A reset forgets entries, commands and pending closes."""
    for _ in range(2):
        await rig.start(owner=1, epoch=0)
        rig.slow = {0}
        for index in range(cfg.handles):
            rig.command(CommandOp.CLOSE, handle=index, epoch=0)
        rig.command(CommandOp.FENCE)
        await rig.cycles(70)
        rig.slow = set()
    await rig.start(entries=False)
    assert await rig.close(0, 0) == Reason.UNKNOWN
    assert await rig.fence() == Reason.OK
    await rig.idle()
    assert not rig.messages
    cover("producer.reset_in_traffic")


@ProducerRig.test(rate=0, prompt=1, fits=lambda cfg: cfg.handles >= NEWS_ENTRIES * cfg.ranks)
async def close_all_rate(rig, cfg, rng):
    """CLOSE_ALL over all handles: one close per 3 cycles after the drain, and full packets, when
    the links take them at once."""
    handles, ranks = cfg.handles, cfg.ranks
    await rig.start(entries=False)
    targets = [
        {"rank": index * ranks // handles, "region": index % cfg.regions}
        for index in range(handles)
    ]
    await rig.write_all([rig.mine(epoch=9, replica=[target]) for target in targets])
    rig.credits = dict.fromkeys(range(ranks), 1 << 20)
    await rig.cycles(4)
    start = rig.cycle
    assert await rig.close_all(9) == Reason.OK
    answered = rig.cycle
    await rig.idle()
    assert len(rig.messages) == handles
    spread = (rig.stamps[-1] - rig.stamps[0]) / (handles - 1)
    rig.dut._log.info(
        "close all: answered after %d cycles, first close after %d, %.2f cycles per close",
        answered - start,
        rig.stamps[0] - start,
        spread,
    )
    assert spread <= 3.5, f"{spread:.2f} cycles per close"
    assert rig.stamps[0] - start <= 2 * handles + 60
    assert rig.packets == [NEWS_ENTRIES] * (handles // NEWS_ENTRIES), rig.packets
    cover("producer.close_all_rate")
