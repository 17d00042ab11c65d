# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of RefusalLog."""

from collections import Counter, deque

from hub_rtl.contract.packets import HEADER, PacketType, pack, unpack
from hub_rtl.refusals.refusals import RefusalLog
from sim.bench.rig import Rig
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


class LogRig(Rig):
    """The log with its pulses; judges in every cycle what is logged, and when."""

    block = RefusalLog

    def __init__(self, dut, salt, watched=True):
        super().__init__(dut, salt, watchdog=0)
        self.model = LogModel(self.cfg)
        self.headers = {}  # of bad packets: lane, header and reason, by the entry
        self.drain = WAITING * (2 + 2 * self.cfg.lanes) + 20  # cycles after which nothing waits
        self.quiet()
        if watched:
            self.on_sample(self._look)

    async def start(self):
        await self.reset()
        self.turns = Turns()
        self.model.sources.clear()
        self.entries = []  # what the log holds
        self._lost, self._losses = 0, Counter()  # what is lost; what becomes so, by cycle
        self._logged, self._index = set(), None  # cycles of `logged`; the index of the cycle before

    def _look(self, cycle):
        ports = ("count", "lost", "logged", "index", "clear")
        count, lost, logged, index, clear = map(self.get, ports)
        self._lost += self._losses.pop(cycle, 0)
        assert count == len(self.entries), (
            f"cycle {cycle}: {count} entries, must be {len(self.entries)}"
        )
        assert lost == self._lost, f"cycle {cycle}: {lost} lost, must be {self._lost}"
        assert logged == (cycle in self._logged), f"cycle {cycle}: `logged` is {logged}"
        if self._index is not None and self._index < count:
            entry = self.get("entry")
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
        shown = self.get("o_bad")
        assert shown["en"] == (entry is not None), (
            f"cycle {cycle}: `o_bad` is {shown}, {entry} is logged"
        )
        if entry is not None:
            came = (shown["lane"], shown["header"], shown["reason"])
            assert self.headers[id(entry)] == came, f"cycle {cycle}: `o_bad` is {shown}"

    def quiet(self):
        """No pulse: what lies beside means nothing."""
        lanes = [f"{name}__{n}" for name in ("stores", "bad") for n in range(self.cfg.lanes)]
        for port in (*lanes, "refusal", "reject"):
            noise = self.rng.getrandbits(self.codec(port).width)
            self.set(port, noise & ~1 if port in lanes else noise)
        self.set("refusal_valid", 0)
        self.set("reject_valid", 0)
        self.now = {}

    async def pulses(self, chance):
        """One cycle with random pulses."""
        cfg, rng = self.cfg, self.rng
        for n in range(cfg.lanes):
            if rng.random() < chance:
                self.store(n)
            if rng.random() < chance:
                flit, reason = rng.getrandbits(128), rng.choice((9, 10))
                self.set(f"bad__{n}", {"en": 1, "header": flit, "reason": reason})
                self.model.bad(n, flit, reason)
                self._came("bad", n)
                self.headers[id(self.now["bad", n])] = n, flit, reason
        if rng.random() < chance:
            item = refusal(self.codec("refusal"), cfg, rng, report=rng.randrange(2))
            self.set("refusal", item)
            self.set("refusal_valid", 1)
            self.model.refusal(item)
            if item["report"]:
                self._came("refusal")
        if rng.random() < chance:
            fields = {name: rng.getrandbits(width) for name, (_, width) in HEADER.items()}
            flit = pack(HEADER, **fields | {"type": PacketType.REJECT})
            report = unpack(REJECT, flit)
            self.set("reject", {name: report[name] for name in REPORT})
            self.set("reject_valid", 1)
            self.model.reject(flit)
            self._came("reject")
        self.set("index", rng.randrange(cfg.log_depth))
        await self.cycles(1)
        self.quiet()

    async def many_pulses(self, cycles, chance):
        for _ in range(cycles):
            await self.pulses(chance)

    def _came(self, *source):
        self.now[source] = self.model.sources[source][-1]

    def store(self, lane):
        """A pulse of a lane's decoder."""
        codec = self.codec(f"stores__{lane}")
        pulse = codec.unpack(self.rng.getrandbits(codec.width))
        pulse |= {"en": 1, "reason": self.rng.randrange(1, 16)}
        self.set(f"stores__{lane}", pulse)
        self.model.store(lane, pulse)
        self._came("store", lane)

    async def check(self, overflow=False):
        """Reads all entries and the number of lost ones; the log is empty afterwards."""
        await self.sampled()
        count, lost = self.get("count"), self.get("lost")
        await self.cycles(1)
        entries = []
        for n in range(count):
            self.set("index", n)
            await self.cycles(1)
            await self.sampled()
            entries.append(self.get("entry"))
            await self.cycles(1)
        self.model.check(entries, lost, overflow)
        assert entries == self.entries
        await self.pulse("clear")
        self.model.sources.clear()
        return lost


@LogRig.test()
async def keeps_oldest(rig, cfg, rng):
    """Sparse pulses of all sources: the log holds the oldest, in order per source, and counts the
    rest; cleared and again."""
    for number in range(6):
        while rig.model.total < cfg.log_depth * (0.5, 1.0, 2.5)[number % 3] or not rig.model.total:
            await rig.pulses(0.3)
            await rig.cycles(2 * cfg.lanes + 2)
        await rig.cycles(10)
        lost = await rig.check()
        cover("refusals.log_full", lost)
        cover("refusals.log_partial", not lost)
    await rig.pulses(1.0)
    await rig.start()
    await rig.cycles(20)
    await rig.check()
    cover("refusals.log_reset")


@LogRig.test()
async def all_at_once(rig, cfg, rng):
    """Any number of sources at the same time, also in a few cycles after each other: every entry is
    whole, none is doubled."""
    for _ in range(60):
        chance = rng.choice((0.2, 0.5, 1.0))
        await rig.many_pulses(rng.choice((1, 2, 2, 6)), chance)
        await rig.cycles(rig.drain)
        await rig.check(overflow=True)


@LogRig.test()
async def pulses_while_cleared(rig, cfg, rng):
    """What comes while ``clear`` is held waits, as far as there are places for it, and is logged
    afterwards."""
    for _ in range(6):
        rig.set("clear", 1)
        for _ in range(WAITING):
            rig.store(0)
            await rig.cycles(1)
            rig.quiet()
        await rig.cycles(rng.randrange(3))
        rig.set("clear", 0)
        await rig.cycles(12)
        await rig.check()
    for _ in range(6):  # from all sources: they take turns, what finds no place is told
        rig.set("clear", 1)
        await rig.many_pulses(WAITING + 4, 0.4)
        rig.set("clear", 0)
        await rig.cycles(rig.drain)
        await rig.pulse("clear")
        rig.model.sources.clear()


@LogRig.test()
async def storm(rig, cfg, rng):
    """Every source pulses in every cycle: what is not kept is counted, exactly."""
    for chance in (1.0, 0.5):
        await rig.many_pulses(40, chance)
        await rig.cycles(rig.drain)
        assert await rig.check(overflow=True) > 0
    cover("refusals.log_storm")


@LogRig.test(watched=False)
async def many_lost(rig, cfg, rng):
    """All sources pulse for a long time: the count of lost ones is exact far beyond the log's
    depth."""
    cycles = 40000
    for n in range(cfg.lanes):
        rig.store(n)
        rig.set(f"bad__{n}", {"en": 1})
    rig.set("refusal", {"report": 1})
    rig.set("refusal_valid", 1)
    rig.set("reject_valid", 1)
    before = None

    def grows(cycle):
        nonlocal before
        lost = rig.get("lost")
        assert before is None or 0 <= lost - before <= 3 + 2 * cfg.lanes, (
            f"cycle {cycle}: {before}, then {lost} lost"
        )
        before = lost

    await rig.cycles(cfg.log_depth + 20)  # until everything is full
    rig.on_sample(grows)
    await rig.cycles(cycles - cfg.log_depth - 20)
    rig.quiet()
    await rig.cycles(rig.drain)
    await rig.sampled()
    assert rig.get("count") == cfg.log_depth
    assert rig.get("lost") == cycles * (2 + 2 * cfg.lanes) - cfg.log_depth
