# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of RefusalLog."""

from collections import Counter, deque

import cocotb

from hub_rtl.contract.packets import HEADER, PacketType, pack, unpack
from hub_rtl.contract.records import BAD_PACKET, LOG_ENTRY, REJECT_REPORT, STORE_REFUSAL, types_of
from sim.bench.runner import bench_params
from sim.bench.streams import Codec, bus_write, start_clock
from sim.golden.refusals import REJECT, LogModel
from sim.quality.coverage import cover

from .tests import refusal

REPORT = ("region", "epoch", "rowid", "reason", "src")  # of a received REJECT
LATENCY = 4  # cycles from a pulse to `count`
LOSS = 3  # cycles from a pulse that finds no place to `lost`
WAITING = 8  # cycles with pulses that wait, of bad packets and of all others


class Line:
    """Pulses that wait for the log: all of one cycle share a place; they leave lowest source
    first."""

    def __init__(self):
        self._words = deque()  # (cycle from which on it can be given out, entries left)
        self._free = 0  # cycle from which on the next word can be given out

    def head(self, cycle):
        """What it offers in this cycle, None if nothing."""
        return (
            self._words[0][1][0]
            if self._words and cycle >= max(self._words[0][0], self._free)
            else None
        )

    def step(self, cycle, entries, taken):
        """One cycle: ``entries`` come, ``taken``: the head leaves. Returns how many are lost."""
        room = len(self._words) < WAITING
        if taken:
            self._words[0][1].popleft()
            if not self._words[0][1]:
                self._words.popleft()
                self._free = cycle + 1
        if entries and room:
            self._words.append((cycle + LATENCY - 1, deque(entries)))
        return 0 if room else len(entries)


class Turns:
    """Which pulses are kept, in which order and cycle: one entry per cycle, bad packets and others
    in turn."""

    def __init__(self):
        self._lines, self._next = {"other": Line(), "bad": Line()}, "other"

    def step(self, cycle, pulses, clear):
        """One cycle with ``pulses`` {source: entry}: the entry that is logged, None if none,
        whether it is a bad packet, and the number of lost ones."""
        order = sorted(self._lines, key=lambda kind: kind != self._next)
        served = (
            next((kind for kind in order if self._lines[kind].head(cycle) is not None), None)
            if not clear
            else None
        )
        entry = self._lines[served].head(cycle) if served else None
        if served:
            self._next = "bad" if served == "other" else "other"
        lost = 0
        for kind, line in self._lines.items():
            came = [
                pulses[source]
                for source in sorted(pulses, key=place)
                if (source[0] == "bad") == (kind == "bad")
            ]
            lost += line.step(cycle, came, kind == served)
        return entry, served == "bad", lost


def place(source):
    """Where a source stands among those of one cycle."""
    return ("refusal", "reject", "store", "bad").index(source[0]), source[1:]


class Log:
    """The log with its pulses; judges in every cycle what is logged, and when."""

    def __init__(self, dut, watched=True):
        self.dut = dut
        self.cfg, _, self.rng = bench_params()
        cfg = self.cfg
        self.bench = start_clock(dut, watchdog=0)
        self.model = LogModel(cfg)
        self.codec = {
            "stores": Codec(STORE_REFUSAL),
            "bad": Codec(BAD_PACKET),
            "refusal": Codec(types_of(cfg).refusal),
            "reject": Codec(REJECT_REPORT),
        }
        self.entry, self.first_bad = Codec(LOG_ENTRY), Codec(types_of(cfg).first_bad)
        self.headers = {}  # of bad packets: lane, header and reason, by the entry
        dut.index.value = dut.clear.value = 0
        self.drain = WAITING * (2 + 2 * cfg.lanes) + 20  # cycles after which nothing waits
        self.quiet()
        if watched:
            self.bench.on_sample(self._look)

    async def reset(self):
        await self.bench.reset()
        self.turns = Turns()
        self.model.sources.clear()
        self.entries = []  # what the log holds
        self._lost, self._losses = 0, Counter()  # what is lost; what becomes so, by cycle
        self._logged, self._index = set(), None  # cycles of `logged`; the index of the cycle before

    def _look(self, cycle):
        dut = self.dut
        count, lost, logged, index, clear = [
            int(getattr(dut, name).value) for name in ("count", "lost", "logged", "index", "clear")
        ]
        self._lost += self._losses.pop(cycle, 0)
        assert count == len(self.entries), (
            f"cycle {cycle}: {count} entries, must be {len(self.entries)}"
        )
        assert lost == self._lost, f"cycle {cycle}: {lost} lost, must be {self._lost}"
        assert logged == (cycle in self._logged), f"cycle {cycle}: `logged` is {logged}"
        if self._index is not None and self._index < count:
            entry = self.entry.unpack(int(dut.entry.value))
            assert entry == self.entries[self._index], (
                f"cycle {cycle}: entry {self._index} is {entry}"
            )
        self._index = index
        entry, is_bad, homeless = self.turns.step(cycle, self.now, clear)
        self._judge_bad(cycle, entry if is_bad else None)
        if entry is not None:
            self._logged.add(cycle + 1)
            if len(self.entries) < self.cfg.log_depth:
                self.entries.append(entry)
            else:
                self._losses[cycle + 2] += 1
        if homeless:
            self._logged.add(cycle + LOSS - 1)
            self._losses[cycle + LOSS] += homeless
        if clear:
            self.entries.clear()
            self._lost = 0
            self._losses.pop(cycle + 1, None)

    def _judge_bad(self, cycle, entry):
        """``o_bad`` shows the whole header of the bad packet that is logged."""
        shown = self.first_bad.unpack(int(self.dut.o_bad.value))
        assert shown["en"] == (entry is not None), (
            f"cycle {cycle}: `o_bad` is {shown}, {entry} is logged"
        )
        if entry is not None:
            came = (shown["lane"], shown["header"], shown["reason"])
            assert self.headers[id(entry)] == came, f"cycle {cycle}: `o_bad` is {shown}"

    def quiet(self):
        """No pulse: what lies beside means nothing."""
        for name in ("stores", "bad"):
            for n in range(self.cfg.lanes):
                bus_write(
                    self.dut, f"{name}__{n}", self.rng.getrandbits(self.codec[name].width) & ~1
                )
        self.dut.refusal_valid.value = self.dut.reject_valid.value = 0
        self.dut.refusal.value = self.rng.getrandbits(self.codec["refusal"].width)
        self.dut.reject.value = self.rng.getrandbits(self.codec["reject"].width)
        self.now = {}

    async def pulses(self, chance):
        """One cycle with random pulses."""
        cfg, rng, dut = self.cfg, self.rng, self.dut
        for n in range(cfg.lanes):
            if rng.random() < chance:
                self.store(n)
            if rng.random() < chance:
                flit, reason = rng.getrandbits(128), rng.choice((9, 10))
                bus_write(
                    dut, f"bad__{n}", {"en": 1, "header": flit, "reason": reason}, self.codec["bad"]
                )
                self.model.bad(n, flit, reason)
                self._came("bad", n)
                self.headers[id(self.now["bad", n])] = n, flit, reason
        if rng.random() < chance:
            item = refusal(cfg, rng, report=rng.randrange(2), plain=rng.randrange(2))
            bus_write(dut, "refusal", item, self.codec["refusal"])
            dut.refusal_valid.value = 1
            self.model.refusal(item)
            if item["report"]:
                self._came("refusal")
        if rng.random() < chance:
            flit = pack(
                HEADER,
                **{name: rng.getrandbits(width) for name, (_, width) in HEADER.items()}
                | {"type": PacketType.REJECT},
            )
            bus_write(
                dut,
                "reject",
                {name: value for name, value in unpack(REJECT, flit).items() if name in REPORT},
                self.codec["reject"],
            )
            dut.reject_valid.value = 1
            self.model.reject(flit)
            self._came("reject")
        dut.index.value = rng.randrange(cfg.log_depth)
        await self.bench.cycles(1)
        self.quiet()

    def _came(self, *source):
        self.now[source] = self.model.sources[source][-1]

    def store(self, lane):
        """A pulse of a lane's decoder."""
        rng = self.rng
        pulse = {
            "en": 1,
            "handle": rng.getrandbits(11),
            "rowid": rng.getrandbits(24),
            "plain": rng.randrange(2),
            "rank": rng.getrandbits(7),
            "reason": rng.randrange(1, 16),
            "owner": rng.randrange(16),
            "epoch": rng.randrange(16),
        }
        bus_write(self.dut, f"stores__{lane}", pulse, self.codec["stores"])
        self.model.store(lane, pulse)
        self._came("store", lane)

    async def check(self, overflow=False):
        """Reads all entries and the number of lost ones; the log is empty afterwards."""
        await self.bench.sampled()
        count, lost = int(self.dut.count.value), int(self.dut.lost.value)
        await self.bench.cycles(1)
        entries = []
        for n in range(count):
            self.dut.index.value = n
            await self.bench.cycles(1)
            await self.bench.sampled()
            entries.append(self.entry.unpack(int(self.dut.entry.value)))
            await self.bench.cycles(1)
        self.model.check(entries, lost, overflow)
        assert entries == self.entries
        self.dut.clear.value = 1
        await self.bench.cycles(1)
        self.dut.clear.value = 0
        self.model.sources.clear()
        return lost


@cocotb.test()
async def keeps_oldest(dut):
    """Sparse pulses of all sources: the log holds the oldest, in order per source, and counts the
    rest; cleared and again."""
    t = Log(dut)
    await t.reset()
    for number in range(6):
        while t.model.total < t.cfg.log_depth * (0.5, 1.0, 2.5)[number % 3] or not t.model.total:
            await t.pulses(0.3)
            await t.bench.cycles(2 * t.cfg.lanes + 2)
        await t.bench.cycles(10)
        lost = await t.check()
        cover("refusals.log_full", lost)
        cover("refusals.log_partial", not lost)
    await t.pulses(1.0)
    await t.reset()
    await t.bench.cycles(20)
    await t.check()
    cover("refusals.log_reset")


@cocotb.test()
async def all_at_once(dut):
    """Any number of sources at the same time, also in a few cycles after each other: every entry is
    whole, none is doubled."""
    t = Log(dut)
    await t.reset()
    for _ in range(60):
        chance = t.rng.choice((0.2, 0.5, 1.0))
        for _ in range(t.rng.choice((1, 2, 2, 6))):
            await t.pulses(chance)
        await t.bench.cycles(t.drain)
        await t.check(overflow=True)


@cocotb.test()
async def pulses_while_cleared(dut):
    """What comes while ``clear`` is held waits, as far as there are places for it, and is logged
    afterwards."""
    t = Log(dut)
    await t.reset()
    for _ in range(6):
        dut.clear.value = 1
        for _ in range(WAITING):
            t.store(0)
            await t.bench.cycles(1)
            t.quiet()
        await t.bench.cycles(t.rng.randrange(3))
        dut.clear.value = 0
        await t.bench.cycles(12)
        await t.check()
    for _ in range(6):  # from all sources: they take turns, what finds no place is told
        dut.clear.value = 1
        for _ in range(WAITING + 4):
            await t.pulses(0.4)
        dut.clear.value = 0
        await t.bench.cycles(t.drain)
        dut.clear.value = 1
        await t.bench.cycles(1)
        dut.clear.value = 0
        t.model.sources.clear()


@cocotb.test()
async def storm(dut):
    """Every source pulses in every cycle: what is not kept is counted, exactly."""
    t = Log(dut)
    await t.reset()
    for chance in (1.0, 0.5):
        for _ in range(40):
            await t.pulses(chance)
        await t.bench.cycles(t.drain)
        assert await t.check(overflow=True) > 0
    cover("refusals.log_storm")


@cocotb.test()
async def many_lost(dut):
    """All sources pulse for a long time: the count of lost ones is exact far beyond the log's
    depth."""
    t = Log(dut, watched=False)
    await t.reset()
    cycles = 40000
    for n in range(t.cfg.lanes):
        t.store(n)
        bus_write(dut, f"bad__{n}", {"en": 1}, t.codec["bad"])
    bus_write(dut, "refusal", {"report": 1}, t.codec["refusal"])
    dut.refusal_valid.value = dut.reject_valid.value = 1
    before = None

    def grows(cycle):
        nonlocal before
        lost = int(dut.lost.value)
        assert before is None or 0 <= lost - before <= 3 + 2 * t.cfg.lanes, (
            f"cycle {cycle}: {before}, then {lost} lost"
        )
        before = lost

    await t.bench.cycles(t.cfg.log_depth + 20)  # until everything is full
    t.bench.on_sample(grows)
    await t.bench.cycles(cycles - t.cfg.log_depth - 20)
    t.quiet()
    await t.bench.cycles(t.drain)
    await t.bench.sampled()
    assert int(dut.count.value) == t.cfg.log_depth
    assert int(dut.lost.value) == cycles * (2 + 2 * t.cfg.lanes) - t.cfg.log_depth
