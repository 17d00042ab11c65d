# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of RejectSender. RefusalLog: `report_log.py`."""

import cocotb

from hub_rtl.contract.records import types_of
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, StreamSink, StreamSource, start_clock
from sim.golden.refusals import RejectModel
from sim.quality.coverage import cover

BOUND = 60  # cycles per waiting message: no rank waits longer for its turn


def refusal(cfg, rng, **fields):
    return {
        "known": rng.randrange(2),
        "plain": rng.randrange(2),
        "report": 1,
        "region": rng.getrandbits(11),
        "epoch": rng.randrange(16),
        "rowid": rng.getrandbits(24),
        "src": rng.randrange(cfg.ranks),
        "reason": rng.randrange(1, 16),
        "bytes": rng.randrange(cfg.packet_bytes + 1),
        **fields,
    }


class Rejects:
    """The sender between a source of refusals and a link with few control credits."""

    def __init__(self, dut, salt="", idle=None, stall=None):
        self.dut = dut
        self.cfg, _, self.rng = cfg, _, rng = bench_params(salt)
        self.bench = start_clock(dut, watchdog=2000)
        self.source = StreamSource(
            self.bench, "i_refused", types_of(cfg).refusal, pause=idle, rng=rng
        )
        self.sink = StreamSink(self.bench, "o_control", pause=stall, rng=rng)
        self.model = RejectModel(cfg)
        self.source.on_item(self._refused)
        self.sink.on_item(self._sent)
        self.bench.add(self)
        self.dead, self.poor, self.rival = set(), set(), 0.0
        self.clear()

    def clear(self, forget=True):
        cfg = self.cfg
        self.model.owed.clear()
        self.came, self.fresh = {}, None  # cycle: (refusal, messages owed before it)
        self.credits = dict.fromkeys(range(cfg.ranks), 1)
        self.shown, self.due = dict(self.credits), []
        self.done = self.other = self.was_busy = 0
        self.dropped = self.sent = self.reported = 0
        self.messages = []

    def drive(self):
        dut, ranks = self.dut, range(self.cfg.ranks)
        dut.ctl_ready.value = sum((self.shown[rank] > 0) << rank for rank in ranks)
        dut.peer_dead.value = sum(1 << rank for rank in self.dead if rank < self.cfg.ranks)
        dut.ctl_done.value, dut.ctl_other.value = self.done, self.other
        self.done = 0

    def sample(self):
        cycle = self.bench.cycle
        for event in [event for event in self.due if event[0] <= cycle]:
            _, what, rank = event
            if what == "back" and rank in self.poor:
                continue
            self.due.remove(event)
            if what == "other":
                self.other &= ~(1 << rank)
                continue
            self.credits[rank] += what == "back"
            self.shown[rank] += 1 if what == "back" else -1
        if self.fresh is not None:
            self.came[cycle] = self.fresh, len(self.model.owed) - 1
            self.fresh = None
        busy = int(self.dut.ctl_busy.value)
        # The other sender: it chooses a rank with a credit that we do not show as busy, and takes
        # the credit at once.
        rank = self.rng.randrange(self.cfg.ranks)
        if (
            self.rng.random() < self.rival
            and self.shown[rank] > 0
            and not (self.was_busy | self.other) >> rank & 1
        ):
            self.other |= 1 << rank
            self.credits[rank] -= 1
            self.due += [
                (cycle + 12, "show", rank),
                (cycle + 14, "other", rank),
                (cycle + 25, "back", rank),
            ]
            assert self.credits[rank] >= 0, f"cycle {cycle}: both senders chose rank {rank}"
        self.was_busy = busy
        self.sent += int(self.dut.sent.value)
        if int(self.dut.dropped.value):
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

    async def ready(self):
        await self.bench.reset()

    async def finish(self):
        """All that can be sent is sent; the rest was counted."""
        self.poor, self.rival = set(), 0.0
        await self.source.drained()
        await self.bench.until(
            lambda: self.sink.count + self.dropped >= self.reported, 5000, "all messages"
        )
        await self.bench.cycles(30)
        assert self.sink.count + self.dropped == self.reported and self.sent == self.sink.count
        assert all(one["src"] in self.dead for one in self.model.owed)


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def rejects(dut, grid):
    """Random refusals, with and without report; few credits, a rival sender, dead ranks and unknown
    ones in the end."""
    idle, stall = grid
    t = Rejects(dut, str(grid), idle, stall)
    await t.ready()
    for _ in range(4):
        t.poor = {t.rng.randrange(t.cfg.ranks)} if t.rng.random() < 0.5 else set()
        t.rival = t.rng.choice((0.0, 0.3))
        for _ in range(15):
            t.source.put(refusal(t.cfg, t.rng, report=int(t.rng.random() < 0.6)))
            await t.bench.cycles(t.rng.choice((1, 10, 20)))
        await t.bench.cycles(100)
    await t.finish()
    for rank in range(t.cfg.ranks):
        unknown = range(t.cfg.ranks, 128)
        t.dead = {rank, *unknown}
        before, sent = t.dropped, t.sent
        choices = [rank, t.rng.choice(unknown), 127, *range(t.cfg.ranks)] * 2
        for src in t.rng.sample(choices, len(choices)):
            t.source.put(refusal(t.cfg, t.rng, src=src))
            await t.bench.cycles(40)
        await t.finish()
        gone = sum(src in t.dead for src in choices)
        assert (t.dropped - before, t.sent - sent) == (gone, len(choices) - gone)
        t.model.owed.clear()
    cover("refusals.reject_dead", t.dropped)
    cover(f"refusals.grid.{idle}.{stall}")


@cocotb.test()
async def input_never_stalls(dut):
    """A refusal per cycle while nothing can be sent: the input takes all, the queue keeps its
    depth, the rest is counted."""
    t = Rejects(dut)
    await t.ready()
    t.credits = dict.fromkeys(range(t.cfg.ranks), 0)
    t.shown = dict(t.credits)
    await t.bench.cycles(4)
    for _ in range(t.cfg.reject_depth + 30):
        t.source.put(refusal(t.cfg, t.rng))
    await t.source.drained()
    assert t.source.stamps == list(
        range(t.source.stamps[0], t.source.stamps[0] + t.cfg.reject_depth + 30)
    )
    await t.bench.cycles(30)
    assert t.dropped == 30 and not t.messages
    t.credits = dict.fromkeys(range(t.cfg.ranks), 1)
    t.shown = dict(t.credits)
    await t.finish()
    cover("refusals.reject_never_stalls")


@cocotb.test()
async def all_dead(dut):
    """A refusal per cycle for ranks that are all dead: every one is counted as dropped, none is
    sent, then all goes on."""
    t = Rejects(dut)
    await t.ready()
    t.dead = set(range(t.cfg.ranks))
    for _ in range(t.cfg.reject_depth + 60):
        t.source.put(refusal(t.cfg, t.rng))
    await t.finish()
    assert t.dropped == t.cfg.reject_depth + 60 and not t.messages
    t.dead = set()
    t.model.owed.clear()
    t.source.put(refusal(t.cfg, t.rng))
    await t.finish()
    assert len(t.messages) == 1


@cocotb.test()
async def poor_rank(dut):
    """A rank without credits does not hold up messages to another one for long."""
    t = Rejects(dut)
    await t.ready()
    t.credits[0] = t.shown[0] = 0
    await t.bench.cycles(4)
    waiting = max(1, t.cfg.reject_depth - 1)
    for _ in range(waiting):
        t.source.put(refusal(t.cfg, t.rng, src=0))
    await t.bench.cycles(50)
    if t.cfg.reject_depth > 1:
        for _ in range(3):
            t.source.put(refusal(t.cfg, t.rng, src=1))
            start, count = t.bench.cycle, len(t.messages)
            await t.bench.until(
                lambda n=count: len(t.messages) > n,
                BOUND * (waiting + 1),
                "message to the other rank",
            )
            assert t.messages[-1][1] == 1 and t.bench.cycle - start <= 8 * (waiting + 1) + 40
    assert all(rank for _, rank in t.messages)
    t.credits[0] = t.shown[0] = 1
    await t.finish()
    cover("refusals.reject_poor_rank")


@cocotb.test()
async def one_reject(dut):
    """Nine cycles from a refusal to its message."""
    t = Rejects(dut)
    await t.ready()
    t.source.put(refusal(t.cfg, t.rng))
    await t.finish()
    assert [b - a for a, b in zip(t.source.stamps, t.sink.stamps, strict=True)] == [9]
    t.source.put(refusal(t.cfg, t.rng))
    await t.bench.cycles(4)
    await t.bench.reset()
    await t.bench.cycles(30)
    assert not t.messages, "a reset forgets"
    cover("refusals.reset_in_traffic")
