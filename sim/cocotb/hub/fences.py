# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of two joined hubs: remote fences, judged by what is in memory when they answer."""

from hub_rtl.contract.packets import CommandOp, Reason
from sim.bench.streams import GRID
from sim.quality.coverage import cover
from sim.system.system import plain_operand

from .rig import HubRig

BASE, SPAN = 0x60000, 0x8000


class FenceRig(HubRig):
    """Two nodes whose memories take their time, and what each has stored where."""

    async def start(self):
        await super().start()
        for node in self.nodes:
            for source in range(2):
                self.model.window(node.rank, source, BASE, BASE + SPAN)
                await node.drive(lambda d, s=source: d.window(s, BASE, BASE + SPAN))
            self.slow(node, 2, 9)
        self.stored = {node.rank: {} for node in self.nodes}  # {(rank, address): bytes}

    def slow(self, node, least, most):
        for writer in node.writers:
            writer.later_b.latency = (least, most)

    def put(self, node, number, rank=None):
        """A store of 32 bytes in a place of its own."""
        rank = self.rng.randrange(2) if rank is None else rank
        addr = BASE + 32 * (2 * number + node.rank)
        data = self.bytes(32)
        self.stored[node.rank][rank, addr] = data
        node.store(plain_operand(rank, addr), data, 0xFFFFFFFF)

    def missing(self, node):
        """What the node has stored and is not in memory."""
        return [
            (rank, addr)
            for (rank, addr), data in self.stored[node.rank].items()
            if self.nodes[rank].memory.read(addr, 32) != data
        ]


@FenceRig.test(grid=GRID[::4])
async def remote_fence(rig, cfg, rng, grid):
    """Stores to both ranks whose memories answer late, more of them behind the fence: when it
    answers, all before it is in memory; after a fence that is not remote it is not."""
    number, waited = 0, 0
    for turn in range(6):
        for node in rig.nodes:
            rig.slow(node, *((2, 9) if turn == 5 else (60, 200)))
        for _ in range(rng.randint(1, 24)):
            for node in rig.nodes:
                rig.put(node, number)
            number += 1
        await rig.answered()
        fencer = rig.nodes[turn % 2]
        if turn < 2:
            assert await fencer.command(CommandOp.FENCE) == Reason.OK
            waited += len(rig.missing(fencer)) > 0
        before = dict(rig.stored[fencer.rank])
        for _ in range(9):  # behind the fence
            rig.put(rig.nodes[turn % 2], number)
            number += 1
        rig.stored[fencer.rank] = before | {}
        assert await fencer.command(CommandOp.FENCE_REMOTE) == Reason.OK
        missing = rig.missing(fencer)
        assert not missing, f"rank {fencer.rank}: not in memory: {missing}"
    assert waited, "no store was under way when a fence answered"
    await rig.settle((0, 0))
    rig.check()
    cover("hub.remote_fence")


@FenceRig.test()
async def remote_fence_tells(rig, cfg, rng):
    """A store outside the window, or one that memory refuses, spoils the next remote fence and
    only that one; a dead peer ends one that would wait for ever."""
    here, there = rig.nodes
    number = 0

    async def fence():
        rig.put(here, number + 8)
        await rig.answered()
        return await here.command(CommandOp.FENCE_REMOTE)

    for fault in ("window", "memory"):
        assert await fence() == Reason.OK
        number += 16
        rig.put(here, number, rank=1)
        if fault == "window":
            here.store(plain_operand(1, BASE + SPAN), rig.bytes(32), 1)
        else:
            *_, (_, addr) = rig.stored[0]
            there.errors.add(addr // cfg.slice_bytes * cfg.slice_bytes)
        assert await fence() == Reason.INCOMPLETE, fault
        there.errors.clear()
        number += 16
        cover(f"hub.remote_fence.{fault}")
    assert await fence() == Reason.OK
    rig.slow(there, 1 << 20, 1 << 20)
    rig.put(here, number + 16, rank=1)
    await rig.answered()
    here.commands.put(
        dict.fromkeys(("handle", "epoch", "owner", "abort", "replica", "bytes16", "more"), 0)
        | {"op": int(CommandOp.FENCE_REMOTE), "tag": 1}
    )
    answered = here.command_answers.count
    await rig.cycles(400)
    assert here.command_answers.count == answered
    await here.drive(lambda d: d.drain({1}))
    assert (await here.command_answers.recv())["status"] == Reason.PEER_DEAD
    cover("hub.remote_fence.dead")
