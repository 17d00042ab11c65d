# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the receiver's end of remote fences."""

from hub_rtl.contract.packets import Reason
from hub_rtl.remote_fence.remote_fence import FenceAnswers
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.golden.remote_fence import TOTALS, Dealt
from sim.quality.coverage import cover


class AnswersRig(Rig):
    """The part; packets that are acknowledged or refused, and ranks that ask about them."""

    block = FenceAnswers

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=800)
        self.o_refused.on_item(self._refused)
        self.o_answer.on_item(self._answered)
        self.on_sample(self._look)

    async def start(self):
        self.model, self.counted = Dealt(), False
        self.wanted, self.offered = [], []  # refusals that come out; that go in
        # Of each rank: the phase that is sent now, packets of each on their way and sent.
        self.phase = [0] * self.cfg.ranks
        self.flying = {(rank, p): 0 for rank in range(self.cfg.ranks) for p in (0, 1)}
        self.sent = dict.fromkeys(self.flying, 0)
        for port in ("asked", "acked"):
            self.set(port, 0)
        await super().start()
        await self.until(lambda: not self.get("clearing"), what="clearing")

    def send(self, rank, count=1):
        """Plain packets of this rank are on their way."""
        key = rank, self.phase[rank]
        self.flying[key] += count
        self.sent[key] += count

    def ask(self, rank):
        """The rank asks about its phase, and sends in the other one from now on."""
        phase = self.phase[rank]
        total = self.sent[rank, phase] % TOTALS
        self.phase[rank] ^= 1
        self.model.asks[rank] = total, phase
        self.set("asked", {"en": 1, "what": {"rank": rank, "total": total, "phase": phase}})

    def ack(self, rank, phase, bad=0):
        self.flying[rank, phase] -= 1
        self.model.deal(rank, phase, bad)
        self.set("acked", {"en": 1, "rank": rank, "phase": phase, "bad": bad})

    def refuse(self, rank, phase, plain=1):
        """A refusal, of a plain packet or of a row."""
        self.flying[rank, phase] -= plain
        drawn = {"known": 0, "report": self.rng.randrange(2), "region": 0, "epoch": 0, "rowid": 0}
        item = {**drawn, "plain": plain, "phase": phase * plain, "src": rank, "bytes": 16}
        item["reason"] = int(Reason.WINDOW)
        self.i_refused.put(item)
        self.wanted.append(item)
        self.offered.append(item)

    def _refused(self, item, cycle):
        assert item == self.wanted.pop(0), f"{item}"

    def _look(self, cycle):
        """A plain refusal counts in the first cycle in which it is offered beside no
        acknowledgement."""
        port = self.i_refused.port
        if not port.is_valid():
            self.counted = False
            return
        item = self.offered[0]
        if item["plain"] and not self.counted and not self.get("acked")["en"]:
            self.model.deal(item["src"], item["phase"], 1)
            self.counted = True
        if port.is_ready():
            self.counted = False
            self.offered.pop(0)

    def _answered(self, item, cycle):
        self.model.answer(item["rank"], item["bad"])

    async def step(self, cycles=1):
        for _ in range(cycles):
            await self.cycles(1)
            self.moved()
            self.set("acked", 0)
            self.set("asked", 0)

    async def settle(self):
        """What is on its way is acknowledged, and all are answered."""
        for (rank, phase), count in self.flying.items():
            for _ in range(count):
                self.ack(rank, phase)
                await self.step()
        await self.until(lambda: not self.wanted and not self.model.due(), what="answers")
        assert not self.model.asks


@AnswersRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Packets of all ranks and both phases end in any order, some refused, some badly; whoever
    asks is answered when the last of the phase has ended, and told if one ended badly."""
    busy = 0.9 if grid == ("none", "none") else rng.random()
    for _ in range(rig.params["events"]):
        rank = rng.randrange(cfg.ranks)
        rig.send(rank, rng.choice((0, 0, 1, 2)))
        if rank not in rig.model.asks and rng.random() < 0.1:
            rig.ask(rank)
        ends = [key for key, count in rig.flying.items() if count]
        if ends and rng.random() < busy:
            rig.ack(*rng.choice(ends), bad=int(rng.random() < 0.05))
        ends = [key for key, count in rig.flying.items() if count]
        if ends and rng.random() < 0.1:
            rig.refuse(*rng.choice(ends), plain=int(rng.random() < 0.8))
        await rig.step()
    await rig.settle()
    cover(f"remote_fence.answers.{'.'.join(grid)}")


@AnswersRig.test()
async def ends_meet(rig, cfg, rng):
    """The last acknowledgement, the last refusal and the question in every order and distance."""
    for at in range(-9, 9):
        for refused_at in range(-2, 3):
            rank = rng.randrange(cfg.ranks)
            phase = rig.phase[rank]
            rig.send(rank, 2)
            for cycle in range(-9, 9):
                if cycle == at:
                    rig.ask(rank)
                if cycle == refused_at:
                    rig.refuse(rank, phase)
                if cycle == 0:
                    rig.ack(rank, phase)
                await rig.step()
            await rig.settle()
    cover("remote_fence.ends_meet")


@AnswersRig.test(stall="stop")
async def answers_wait(rig, cfg, rng):
    """Nobody takes answers or refusals: acknowledgements go on, and all comes later."""
    for rank in range(cfg.ranks):
        rig.send(rank, 3)
        rig.refuse(rank, 0)
        rig.ask(rank)
        await rig.step()
    for rank in range(cfg.ranks):
        for _ in range(2):
            rig.ack(rank, 0)
            await rig.step()
    await rig.step(40)
    assert rig.model.asks and rig.wanted
    rig.pause(None, rig.o_answer, rig.o_refused)
    await rig.settle()
    cover("remote_fence.answers_wait")


@AnswersRig.test()
async def totals_wrap(rig, cfg, rng):
    """More packets than the totals count, all of one rank and without a gap."""
    for _ in range(2):
        rig.send(1, TOTALS // 2 + 9)
        for _ in range(TOTALS // 2 + 9):
            rig.ack(1, rig.phase[1])
            await rig.step()
        for _ in range(2):
            rig.ask(1)
            await rig.step(12)
            assert not rig.model.asks
    assert rig.sent[1, 0] > TOTALS
    cover("remote_fence.totals_wrap")


@AnswersRig.test()
async def turns(rig, cfg, rng):
    """Whoever may be answered is, 5 cycles after and 3 for each other rank that asks, whatever
    packets these wait for."""
    for _ in range(24):
        due, *others = rng.sample(range(cfg.ranks), rng.randint(1, cfg.ranks))
        for rank in others:
            rig.send(rank)
            rig.ask(rank)
            await rig.step(rng.randrange(1, 9))
        phase = rig.phase[due]
        rig.send(due)
        rig.ask(due)
        await rig.step(rng.randrange(1, 9))
        rig.ack(due, phase)
        since = rig.cycle
        await rig.step(9 + 3 * cfg.ranks)
        took = rig.o_answer.stamps[-1] - since
        assert due not in rig.model.asks and took <= 7 + 3 * len(others), took
        await rig.settle()
    cover("remote_fence.turns")


@AnswersRig.test()
async def far_totals(rig, cfg, rng):
    """Totals of ranks and phases somewhere in their range, each asked for when one packet is
    missing: nobody is answered before."""
    for rank in rng.sample(range(cfg.ranks), min(3, cfg.ranks)):
        for _ in range(2):
            phase, count = rig.phase[rank], rng.randrange(1, TOTALS)
            rig.send(rank, count)
            for _ in range(count - 1):
                rig.ack(rank, phase)
                await rig.step()
            rig.ask(rank)
            await rig.step(12)
            assert rank in rig.model.asks
            rig.ack(rank, phase, bad=rng.randrange(2))
            await rig.step(12)
            assert rank not in rig.model.asks
    for rank in range(cfg.ranks):  # each with its own total at the same time
        rig.send(rank, 2)
        rig.ask(rank)
        await rig.step()
    await rig.step(30)
    await rig.settle()
    cover("remote_fence.far_totals")


@AnswersRig.test()
async def latency(rig, cfg, rng):
    """An answer is offered 5 cycles after the last acknowledgement, and after the question."""
    for last in ("acknowledgement", "question"):
        rig.send(0)
        phase = rig.phase[0]
        steps = [lambda p=phase: rig.ack(0, p), lambda: rig.ask(0)]
        for step in steps if last == "question" else steps[::-1]:
            await rig.step(12)
            since = rig.cycle
            step()
        await rig.step(12)
        took = rig.o_answer.stamps[-1] - since
        assert 4 <= took <= 7, f"{took} cycles after the {last}"
    cover("remote_fence.latency")


@AnswersRig.test()
async def reset_forgets(rig, cfg, rng):
    """A reset with packets counted of all ranks in both phases, and a question open: counts and
    questions begin anew."""
    for _ in range(3):
        for rank in 2 * [*range(cfg.ranks)]:
            rig.send(rank)
            rig.ask(rank)
            await rig.step()
            await rig.settle()
        rig.send(1, 5)
        for _ in range(4):
            rig.ack(1, rig.phase[1])
            await rig.step()
        rig.ask(1)
        await rig.step(9)
        await rig.start()
        await rig.step(9)
        for rank in 2 * [*range(cfg.ranks)]:
            rig.send(rank)
            rig.ask(rank)
            await rig.step(9)
            assert rig.model.asks
            await rig.settle()
    cover("remote_fence.answers_reset")
