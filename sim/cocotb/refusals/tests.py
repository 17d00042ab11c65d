# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of RejectSender. RefusalLog: `report_log.py`."""

from hub_rtl.refusals.refusals import RejectSender
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.golden.refusals import RejectModel
from sim.quality.coverage import cover

BOUND = 60  # cycles per waiting message: no rank waits longer for its turn


def refusal(codec, cfg, rng, **fields):
    """Random, of a rank that there is, to be reported, but for these fields."""
    drawn = {"report": 1, "src": rng.randrange(cfg.ranks), "reason": rng.randrange(1, 16)}
    drawn["bytes"] = rng.randrange(cfg.packet_bytes + 1)
    return codec.unpack(rng.getrandbits(codec.width)) | drawn | fields


class RejectRig(Rig):
    """The sender between a source of refusals and a link with few control credits."""

    block = RejectSender

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=2000)
        self.model = RejectModel(self.cfg)
        self.i_refused.on_item(self._refused)
        self.o_control.on_item(self._sent)
        self.add(self)
        self.dead, self.poor = set(), set()
        self.clear()

    def clear(self, forget=True):
        self.model.owed.clear()
        self.came, self.fresh = {}, None  # cycle: (refusal, messages owed before it)
        self.give(1)
        self.due = []
        self.done = 0
        self.dropped = self.sent = self.reported = 0
        self.messages = []

    def drive(self):
        ranks = range(self.cfg.ranks)
        self.set("ctl_ready", sum((self.visible[rank] > 0) << rank for rank in ranks))
        self.set("peer_dead", sum(1 << rank for rank in self.dead if rank < self.cfg.ranks))
        self.set("ctl_done", self.done)
        self.done = 0

    def sample(self):
        cycle = self.cycle
        for event in [event for event in self.due if event[0] <= cycle]:
            _, what, rank = event
            if what == "back" and rank in self.poor:
                continue
            self.due.remove(event)
            self.credits[rank] += what == "back"
            self.visible[rank] += 1 if what == "back" else -1
        if self.fresh is not None:
            self.came[cycle] = self.fresh, len(self.model.owed) - 1
            self.fresh = None
        self.sent += self.get("sent")
        if self.get("dropped"):
            self.dropped += 1
            arrived, before = self.came.get(cycle - 2, (None, 0))
            if arrived is not None and arrived["src"] not in self.dead:
                self.model.dropped_full(arrived, before)
                cover("refusals.reject_full")

    def _refused(self, item, cycle):
        self.model.refused(item)
        self.reported += item["report"]
        if item["report"]:
            self.fresh = item

    def _sent(self, flit, cycle):
        rank = self.model.sent(flit)["src"]
        assert self.credits[rank] > 0, f"cycle {cycle}: no control credit for rank {rank}"
        self.credits[rank] -= 1
        self.done |= 1 << rank
        self.due += [(cycle + 2, "show", rank), (cycle + self.rng.randint(8, 20), "back", rank)]
        self.messages.append((cycle, rank))

    def give(self, count):
        """So many control credits for each rank."""
        self.credits = dict.fromkeys(range(self.cfg.ranks), count)
        self.visible = dict(self.credits)

    def put(self, **fields):
        self.i_refused.put(refusal(self.i_refused.port.codec, self.cfg, self.rng, **fields))

    async def finish(self):
        """All that can be sent is sent; the rest was counted."""
        self.poor = set()
        await self.i_refused.drained()
        await self.until(
            lambda: self.o_control.count + self.dropped >= self.reported, 5000, "all messages"
        )
        await self.cycles(30)
        assert (
            self.o_control.count + self.dropped == self.reported
            and self.sent == self.o_control.count
        )
        assert all(one["src"] in self.dead for one in self.model.owed)


@RejectRig.test(grid=GRID)
async def rejects(rig, cfg, rng, grid):
    """Random refusals, with and without report; few credits, dead ranks and unknown ones in the
    end."""
    for _ in range(4):
        rig.poor = {rng.randrange(cfg.ranks)} if rng.random() < 0.5 else set()
        for _ in range(15):
            rig.put(report=int(rng.random() < 0.6))
            await rig.cycles(rng.choice((1, 10, 20)))
        await rig.cycles(100)
    await rig.finish()
    for rank in range(cfg.ranks):
        unknown = range(cfg.ranks, 128)
        rig.dead = {rank, *unknown}
        before, sent = rig.dropped, rig.sent
        choices = [rank, rng.choice(unknown), 127, *range(cfg.ranks)] * 2
        for src in rng.sample(choices, len(choices)):
            rig.put(src=src)
            await rig.cycles(40)
        await rig.finish()
        gone = sum(src in rig.dead for src in choices)
        assert (rig.dropped - before, rig.sent - sent) == (gone, len(choices) - gone)
        rig.model.owed.clear()
    cover("refusals.reject_dead", rig.dropped)
    cover(f"refusals.grid.{'.'.join(grid)}")


@RejectRig.test()
async def input_never_stalls(rig, cfg, rng):
    """A refusal per cycle while nothing can be sent: the input takes all, the queue keeps its
    depth, the rest is counted."""
    rig.give(0)
    await rig.cycles(4)
    for _ in range(cfg.reject_depth + 30):
        rig.put()
    await rig.i_refused.drained()
    assert rig.i_refused.stamps == list(
        range(rig.i_refused.stamps[0], rig.i_refused.stamps[0] + cfg.reject_depth + 30)
    )
    await rig.cycles(30)
    assert rig.dropped == 30 and not rig.messages
    rig.give(1)
    cover("refusals.reject_never_stalls")


@RejectRig.test()
async def all_dead(rig, cfg, rng):
    """A refusal per cycle for ranks that are all dead: every one is counted as dropped, none is
    sent, then all goes on."""
    rig.dead = set(range(cfg.ranks))
    for _ in range(cfg.reject_depth + 60):
        rig.put()
    await rig.finish()
    assert rig.dropped == cfg.reject_depth + 60 and not rig.messages
    rig.dead = set()
    rig.model.owed.clear()
    rig.put()
    await rig.finish()
    assert len(rig.messages) == 1


@RejectRig.test()
async def poor_rank(rig, cfg, rng):
    """A rank without credits does not hold up messages to another one for long."""
    rig.credits[0] = rig.visible[0] = 0
    await rig.cycles(4)
    waiting = max(1, cfg.reject_depth - 1)
    for _ in range(waiting):
        rig.put(src=0)
    await rig.cycles(50)
    if cfg.reject_depth > 1:
        for _ in range(3):
            rig.put(src=1)
            start, count = rig.cycle, len(rig.messages)
            await rig.until(
                lambda n=count: len(rig.messages) > n,
                BOUND * (waiting + 1),
                "message to the other rank",
            )
            assert rig.messages[-1][1] == 1 and rig.cycle - start <= 8 * (waiting + 1) + 40
    assert all(rank for _, rank in rig.messages)
    rig.credits[0] = rig.visible[0] = 1
    cover("refusals.reject_poor_rank")


@RejectRig.test(finish=False)
async def one_reject(rig, cfg, rng):
    """Five cycles from a refusal to its message."""
    rig.put()
    await rig.finish()
    assert [b - a for a, b in zip(rig.i_refused.stamps, rig.o_control.stamps, strict=True)] == [5]
    rig.put()
    await rig.cycles(4)
    await rig.reset()
    await rig.cycles(30)
    assert not rig.messages, "a reset forgets"
    cover("refusals.reset_in_traffic")
