# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the sender's end of remote fences."""

from collections import Counter

from hub_rtl.remote_fence.remote_fence import FenceAsks
from sim.bench.rig import Rig
from sim.bench.slice_sender import random_record
from sim.bench.streams import GRID
from sim.golden.remote_fence import TOTALS, Sent
from sim.quality.coverage import cover

SHOWN = 3  # cycles from the last answer until nobody is waited for


class AsksRig(Rig):
    """The part, packets through it, and peers that answer after a while.

    ``silent``: ranks that do not answer.
    """

    block = FenceAsks

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=800)
        self.silent = set()
        self.o_record.on_item(self._passed)
        self.o_ask.on_item(self._asked)
        self.on_sample(self._look)

    async def start(self):
        self.model, self.went = Sent(self.cfg.ranks), []
        self.inside, self.offered = None, False  # phase of the packet inside; it waits whole
        self.answers, self.told, self.idle_since, self.asks = [], 0, 0, []
        self.told_bad = self.seen_bad = 0
        self.begun, self.fenced = [], None  # packets: (cycle, rank); cycle of a fence
        self.set("fence", 0)
        self.set("answered", 0)
        await super().start()
        await self.until(lambda: not self.get("clearing"), what="clearing")

    def put(self, **fields):
        """A record to some rank, often a plain one."""
        rng = self.rng
        head = {"rank": rng.randrange(self.cfg.ranks), "plain": int(rng.random() < 0.7), **fields}
        beats = random_record(self.cfg, self.cfg.slice_bytes, rng, **head)
        self.i_record.put(*beats)
        self.went += beats

    def _passed(self, beat, cycle):
        """Beats come as they went, but for the phase, which is one in all beats of a packet."""
        head = beat["header"]
        phase = head.pop("phase")
        wanted = self.went.pop(0)
        wanted = {**wanted, "header": {n: v for n, v in wanted["header"].items() if n != "phase"}}
        assert beat == wanted, f"{beat}\n expected {wanted}"
        assert phase == 0 or head["plain"]
        self._begins(head, phase, cycle)
        assert self.inside in (None, phase), "a packet of two phases"
        self.inside, self.offered = None if beat["last"] else phase, False

    def _begins(self, head, phase, cycle):
        """A packet counts when its first beat is offered."""
        if self.inside is None and not self.offered and head["plain"]:
            self.model.begins(head["rank"], phase)
            self.begun.append((cycle, head["rank"]))

    def _asked(self, item, cycle):
        self.model.ask(**item)
        self.asks.append(item)
        self.answers.append((cycle + self.rng.randint(1, 40), item["rank"]))

    def _look(self, cycle):
        """Who is waited for is shown, and soon nobody else. A fence shows in the next cycle, and
        covers what began up to its own."""
        port = self.o_record.port
        if port.is_valid() and not port.is_ready():
            head = port.unpack(port.read())["header"]
            self._begins(head, head["phase"], cycle)
            self.offered = True
        if self.fenced is not None:
            self.model.fence(Counter(rank for at, rank in self.begun if at <= self.fenced))
        self.fenced = cycle if self.get("fence") else None
        shown = {r for r in range(self.cfg.ranks) if self.get("unanswered") >> r & 1}
        waits = self.model.waits()
        assert waits <= shown, f"ranks {waits - shown} are not waited for"
        if not waits:
            self.idle_since += 1
            assert self.idle_since < SHOWN or not shown, f"ranks {shown} are waited for in vain"
        else:
            self.idle_since = 0
        self.seen_bad += self.get("incomplete")

    async def step(self):
        """One cycle, with an answer if one is due."""
        due = [
            each for each in self.answers if each[0] <= self.cycle and each[1] not in self.silent
        ]
        if due:
            self.answers.remove(due[0])
            rank, bad = due[0][1], int(self.rng.random() < 0.2)
            self.set("answered", {"en": 1, "what": {"rank": rank, "bad": bad}})
            self.told_bad += bad
            self.model.answer(rank)
        await self.cycles(1)
        self.moved()
        self.set("answered", 0)
        self.set("fence", 0)

    def fence(self):
        """A fence begins with the next cycle."""
        self.set("fence", 1)

    async def settle(self):
        for cycle in range(4000):
            await self.step()
            if cycle > SHOWN and not (self.i_record.pending or self.model.waits()):
                break
        for _ in range(SHOWN + 3):
            await self.step()
        assert not self.get("unanswered") and not self.went
        assert self.seen_bad == self.told_bad


@AsksRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Records of all kinds, fences one after the other: each question covers all that went before,
    nothing that goes later is of its phase, and a fence waits for all answers."""
    for _ in range(rig.params["packets"]):
        rig.put()
    for _ in range(12):
        rig.fence()
        await rig.step()
        for cycle in range(3000):
            await rig.step()
            if cycle > SHOWN and not rig.model.waits():
                break
        for _ in range(rng.choice((0, 0, 3, 20))):
            await rig.step()
    await rig.settle()
    assert {ask["phase"] for ask in rig.asks} == {0, 1}
    cover(f"remote_fence.asks.{'.'.join(grid)}")


@AsksRig.test()
async def silent_peer(rig, cfg, rng):
    """A rank does not answer a fence; the next one waits for that answer, and asks then for what
    went since."""
    for _ in range(3):
        rank = rng.randrange(cfg.ranks)
        rig.put(rank=rank, plain=1)
        await rig.i_record.drained()
        rig.silent = {rank}
        rig.fence()
        await rig.step()
        for _ in range(50):
            await rig.step()
        assert rig.get("unanswered") == 1 << rank
        rig.put(rank=rank, plain=1)
        await rig.i_record.drained()
        asked = len(rig.asks)
        rig.fence()
        for _ in range(60):
            await rig.step()
        assert len(rig.asks) == asked, "asked again without an answer"
        rig.silent = set()
        await rig.settle()
        assert len(rig.asks) == asked + 1
    cover("remote_fence.silent_peer")


@AsksRig.test()
async def nobody_owes(rig, cfg, rng):
    """Rows alone, and a second fence behind the first: nobody is asked."""
    for _ in range(9):
        rig.put(plain=0)
    rig.put(plain=1, rank=0)
    await rig.i_record.drained()
    for _ in range(2):
        rig.fence()
        await rig.settle()
    assert [ask["rank"] for ask in rig.asks] == [0]
    cover("remote_fence.nobody_owes")


@AsksRig.test(stall="random")
async def packet_meets_fence(rig, cfg, rng):
    """A packet's beats in every cycle around a fence and its question: it is covered, or of the
    other phase, and nothing between."""
    parts = cfg.packet_bytes // cfg.slice_bytes
    whole = {"mask": (1 << cfg.packet_bytes) - 1, "rank": 1, "plain": 1}
    for at in range(2 * parts + 6):
        for _ in range(3):
            rig.put(**whole)
        for _ in range(at):
            await rig.step()
        rig.fence()
        await rig.step()
        await rig.settle()
    cover("remote_fence.packet_meets_fence")


@AsksRig.test()
async def totals_wrap(rig, cfg, rng):
    """More packets than totals count, to one rank and then to others, in both phases."""
    for rank in rng.sample(range(cfg.ranks), min(3, cfg.ranks)):
        wanted, sent = TOTALS // 2 + rng.randrange(TOTALS), 0
        while sent < wanted:
            burst = rng.randrange(1, TOTALS // 3)
            for _ in range(burst):
                rig.put(rank=rank, plain=1, mask=1)
            sent += burst
            await rig.i_record.drained()
            rig.fence()
            await rig.settle()
    cover("remote_fence.asks_wrap")


@AsksRig.test()
async def reset_forgets(rig, cfg, rng):
    """A reset with a question open: counts of all ranks in both phases and questions begin
    anew."""

    async def one_each():
        for rank in range(cfg.ranks):
            rig.put(plain=1, rank=rank)
        await rig.i_record.drained()
        rig.fence()

    for _ in range(3):
        for _ in range(2):
            await one_each()
            await rig.settle()
        await one_each()
        rig.silent = set(range(cfg.ranks))
        for _ in range(9):
            await rig.step()
        rig.silent = set()
        await rig.start()
        for _ in range(2):
            await one_each()
            await rig.settle()
        assert [ask["total"] for ask in rig.asks] == [1] * 2 * cfg.ranks
    cover("remote_fence.asks_reset")
