"""cocotb tests of RefusalLog."""

from collections import deque

import cocotb

from hub_rtl.formats import HEADER, PacketType, pack
from hub_rtl.producer.handles import store_refusal
from hub_rtl.report import bad_packet, log_entry
from hub_rtl.types import types_of
from sim.bench.coverage import cover
from sim.bench.runner import bench_params
from sim.bench.streams import Codec, bus_write, start_clock
from sim.cocotb.report import refusal
from sim.golden.report import LogModel

PLACES = 2      # for entries that wait, at each source and where the sources meet


class Turns:
    """Which pulses are kept, in which order and cycle: one entry per cycle, sources in turn; what finds no place is lost."""

    def __init__(self, sources):
        self._waiting = {source: deque() for source in sources}
        self._met = deque()
        self._next = list(sources)          # the one whose turn it is comes first

    def step(self, pulses, clear):
        """One cycle with ``pulses`` {source: entry}: the entry that is logged, None if none, and the number of lost ones."""
        logged = self._met[0] if self._met and not clear else None
        room = len(self._met) < PLACES
        places = {source: len(queue) < PLACES for source, queue in self._waiting.items()}
        if logged is not None:
            self._met.popleft()
        served = next((source for source in self._next if self._waiting[source]), None)
        if room and served is not None:
            self._met.append(self._waiting[served].popleft())
            turn = self._next.index(served) + 1
            self._next = self._next[turn:] + self._next[:turn]
        for source, entry in pulses.items():
            if places[source]:
                self._waiting[source].append(entry)
        return logged, sum(not places[source] for source in pulses)


class Log:
    """The log with its pulses; judges in every cycle what is logged, and when."""

    def __init__(self, dut, watched=True):
        self.dut = dut
        self.cfg, _, self.rng = bench_params()
        cfg = self.cfg
        self.bench = start_clock(dut, watchdog=0)
        self.model = LogModel(cfg)
        self.codec = {"stores": Codec(store_refusal(cfg)), "bad": Codec(bad_packet()), "refusal": Codec(types_of(cfg).refusal)}
        self.entry = Codec(log_entry())
        dut.index.value = dut.clear.value = 0
        self.quiet()
        if watched:
            self.bench.on_sample(self._look)

    async def reset(self):
        await self.bench.reset()
        lanes = range(self.cfg.lanes)
        self.turns = Turns([("refusal",), ("reject",), *(("store", n) for n in lanes), *(("bad", n) for n in lanes)])
        self.model.sources.clear()
        self.entries = []               # what the log holds
        self._before = deque(maxlen=2)  # (count, lost, logged, index) of the last cycles

    def _look(self, cycle):
        dut = self.dut
        now = count, lost, logged, index = [int(getattr(dut, name).value) for name in ("count", "lost", "logged", "index")]
        assert count == len(self.entries), f"cycle {cycle}: {count} entries, must be {len(self.entries)}"
        if self._before:
            shown = self._before[-1][3]
            entry = self.entry.unpack(int(dut.entry.value)) if shown < count else None
            assert entry is None or entry == self.entries[shown], f"cycle {cycle}: entry {shown} is {entry}"
        if len(self._before) == 2:      # `logged` comes with the entry, or one cycle before `lost` grows
            (count0, *_), (count1, lost1, logged1, _) = self._before
            assert logged1 == (count1 > count0 or lost > lost1), f"cycle {cycle - 1}: `logged` is {logged1}"
        self._before.append(now)
        clear = int(dut.clear.value)
        entry, _ = self.turns.step(self.now, clear)
        if entry is not None and len(self.entries) < self.cfg.log_depth:
            self.entries.append(entry)
        if clear:
            self.entries.clear()
            self._before.clear()

    def quiet(self):
        """No pulse: what lies beside means nothing."""
        for name in ("stores", "bad"):
            for n in range(self.cfg.lanes):
                bus_write(self.dut, f"{name}__{n}", self.rng.getrandbits(self.codec[name].width) & ~1)
        self.dut.refusal_valid.value = self.dut.reject_valid.value = 0
        self.dut.refusal.value = self.rng.getrandbits(self.codec["refusal"].width)
        self.dut.reject_flit.value = self.rng.getrandbits(128)
        self.now = {}

    async def pulses(self, chance):
        """One cycle with random pulses."""
        cfg, rng, dut = self.cfg, self.rng, self.dut
        for n in range(cfg.lanes):
            if rng.random() < chance:
                self.store(n)
            if rng.random() < chance:
                flit, reason = rng.getrandbits(128), rng.choice((9, 10))
                bus_write(dut, f"bad__{n}", {"en": 1, "header": flit, "reason": reason}, self.codec["bad"])
                self.model.bad(n, flit, reason)
                self._came("bad", n)
        if rng.random() < chance:
            item = refusal(cfg, rng, report=rng.randrange(2), plain=rng.randrange(2))
            bus_write(dut, "refusal", item, self.codec["refusal"])
            dut.refusal_valid.value = 1
            self.model.refusal(item)
            if item["report"]:
                self._came("refusal")
        if rng.random() < chance:
            flit = pack(HEADER, **{name: rng.getrandbits(width) for name, (_, width) in HEADER.items()}
                        | {"type": PacketType.REJECT})
            dut.reject_valid.value, dut.reject_flit.value = 1, flit
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
        pulse = {"en": 1, "handle": rng.getrandbits(11), "rowid": rng.getrandbits(24), "plain": rng.randrange(2),
                 "rank": rng.getrandbits(7), "reason": rng.randrange(1, 16), "owner": rng.randrange(16),
                 "epoch": rng.randrange(16)}
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
    """Sparse pulses of all sources: the log holds the oldest, in order per source, and counts the rest; cleared and again."""
    t = Log(dut)
    await t.reset()
    for number in range(6):
        while t.model.total < t.cfg.log_depth * (0.5, 1.0, 2.5)[number % 3] or not t.model.total:
            await t.pulses(0.3)
            await t.bench.cycles(2 * t.cfg.lanes + 2)
        await t.bench.cycles(10)
        lost = await t.check()
        cover("report.log_full", lost)
        cover("report.log_partial", not lost)
    await t.pulses(1.0)
    await t.reset()
    await t.bench.cycles(20)
    await t.check()
    cover("report.log_reset")


@cocotb.test()
async def all_at_once(dut):
    """Any number of sources at the same time, also in a few cycles after each other: every entry is whole, none is doubled."""
    t = Log(dut)
    await t.reset()
    for _ in range(60):
        chance = t.rng.choice((0.2, 0.5, 1.0))
        for _ in range(t.rng.choice((1, 2, 2, 6))):
            await t.pulses(chance)
        await t.bench.cycles(6 * t.cfg.lanes + 12)
        await t.check(overflow=True)


@cocotb.test()
async def pulses_while_cleared(dut):
    """What comes while ``clear`` is held waits, as far as there are places for it, and is logged afterwards."""
    t = Log(dut)
    await t.reset()
    for _ in range(6):
        dut.clear.value = 1
        for _ in range(2 * PLACES):
            t.store(0)
            await t.bench.cycles(1)
            t.quiet()
        await t.bench.cycles(t.rng.randrange(3))
        dut.clear.value = 0
        await t.bench.cycles(12)
        await t.check()


@cocotb.test()
async def storm(dut):
    """Every source pulses in every cycle: what is not kept is counted, exactly."""
    t = Log(dut)
    await t.reset()
    for chance in (1.0, 0.5):
        for _ in range(40):
            await t.pulses(chance)
        await t.bench.cycles(4 * t.cfg.lanes + 20)
        assert await t.check(overflow=True) > 0
    cover("report.log_storm")


@cocotb.test()
async def many_lost(dut):
    """All sources pulse for a long time: the count of lost ones is exact far beyond the log's depth."""
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
        assert not t.now or before in (None, lost - 2 - 2 * t.cfg.lanes), f"cycle {cycle}: {before}, then {lost} lost"
        before = lost
    await t.bench.cycles(t.cfg.log_depth + 20)      # until everything is full
    t.bench.on_sample(grows)
    await t.bench.cycles(cycles - t.cfg.log_depth - 20)
    t.quiet()
    await t.bench.cycles(4 * t.cfg.lanes + 20)
    await t.bench.sampled()
    assert int(dut.count.value) == t.cfg.log_depth
    assert int(dut.lost.value) == cycles * (2 + 2 * t.cfg.lanes) - t.cfg.log_depth
