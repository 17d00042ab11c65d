# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the memory writer against AXI memory, and of the shared 64-bit port."""

from collections import deque

import cocotb

from hub_rtl.contract.records import FLAG, MEMORY_COUNTS, types_of
from sim.bench.axi import AxiMemory
from sim.bench.runner import bench_params
from sim.bench.streams import (
    GRID,
    Codec,
    StreamPort,
    StreamSink,
    StreamSource,
    bus_pulse,
    bus_read,
    start_clock,
)
from sim.golden.memory import MemoryWriterModel
from sim.quality.coverage import cover

BAD_PAGE = 0x7000  # the memory answers writes to this page with an error


class TB:
    """One MemoryWriter with memory behind it and the golden model beside it."""

    def __init__(self, dut, salt, idle=None, stall=None, latency=(1, 40)):
        self.cfg, self.params, self.rng = bench_params(salt)
        cfg, rng, self.dut = self.cfg, self.rng, dut
        types = types_of(cfg)
        self.bench = bench = start_clock(dut, watchdog=500)
        dut.quiesce.value = 0
        self.writes = StreamSource(bench, "i_write", types.write, idle, rng)
        self.data = StreamSource(bench, "i_data", types.beat, idle, rng)
        self.memory = AxiMemory(
            bench,
            "mem__",
            latency=latency,
            rng=rng,
            error=lambda addr, length: addr >> 12 == BAD_PAGE >> 12,
            pause=dict.fromkeys(("aw", "w", "b"), stall),
        )
        self.acks = StreamSink(bench, "o_ack", types.ack, stall, rng)
        self.model = MemoryWriterModel(cfg)
        self.bursts = []
        # Any of the three codes that are not OKAY is an error.
        answer = self.memory.b.put
        self.memory.b.put = lambda item: answer(
            item | {"resp": rng.randint(1, 3)} if item["resp"] else item
        )
        self.counts = dict.fromkeys(("writes", "beats", "stall_aw", "stall_w"), 0)
        self._strobes = (0, None)  # cycle, counts due then
        self._context = Codec(types.context)
        self._accepted = self._acked = 0
        self.strobe = False
        self.writes.on_item(lambda item, cycle: self._note("_accepted"))
        self.acks.on_item(lambda item, cycle: self._note("_acked"))
        self.memory.b.on_item(lambda item, cycle: self.model.answer(item["resp"]))
        bench.on_sample(self._look)

    def _note(self, name):
        setattr(self, name, 1)

    def _look(self, cycle):
        model, dut = self.model, self.dut
        assert int(dut.mem__bready.value), "bready is 0"
        assert int(dut.outstanding.value) == model.outstanding
        assert bool(int(dut.quiescing.value)) == model.quiescing, f"quiescing in cycle {cycle}"
        counts, (due, strobes) = bus_read(dut, "counts", MEMORY_COUNTS), self._strobes
        assert due != cycle or counts == strobes, (
            f"counts in cycle {cycle}: {counts}, must be {strobes}"
        )
        for name, value in counts.items():
            self.counts[name] += value
        (aw, aw_ready), (w, w_ready) = (
            (
                int(getattr(dut, f"mem__{channel}valid").value),
                int(getattr(dut, f"mem__{channel}ready").value),
            )
            for channel in ("aw", "w")
        )
        self._strobes = (
            cycle + 1,
            {
                "writes": aw & aw_ready,
                "beats": w & w_ready,
                "stall_aw": aw & ~aw_ready,
                "stall_w": w & ~w_ready,
            },
        )
        if self._accepted:
            model.accepted()
        if self.strobe:
            model.quiesce()
        if self._acked:
            model.acked()
        self._accepted = self._acked = 0
        self.strobe = False

    def put(self, beats=None, bad=None, data=True):
        """A random command with its beats; ``bad``: into the page that errs."""
        rng = self.rng
        beats = beats or rng.choice(
            (1, self.cfg.packet_flits, rng.randint(1, self.cfg.packet_flits), 16)
        )
        page = (
            BAD_PAGE
            if (rng.random() < 0.1 if bad is None else bad)
            else rng.choice((0x1000, rng.getrandbits(36) << 12))
        )
        addr = page + 16 * rng.randrange(257 - beats)
        flits = [
            (rng.getrandbits(128), rng.choice((0xFFFF, 0xFFFF, rng.getrandbits(16), 0)))
            for _ in range(beats)
        ]
        context = self._context.unpack(rng.getrandbits(self._context.width))
        self.bursts.append(self.model.command(addr, flits, context))
        self.writes.put({"addr": addr, "beats": beats, "context": context})
        items = [
            {"data": word, "strb": strobe, "last": int(n == beats - 1)}
            for n, (word, strobe) in enumerate(flits)
        ]
        if data:
            self.data.put(*items)
        return items

    async def quiesce(self):
        self.strobe = True
        await bus_pulse(self.bench, "quiesce", 1)

    async def done(self, limit=20000):
        count = len(self.bursts)
        await self.bench.until(
            lambda: self.acks.count == count, limit=limit, what=f"{count} acknowledgements"
        )
        await self.bench.cycles(3)

    def finish(self):
        """Bursts, acknowledgements and the whole memory are as the model says, and nothing else
        came."""
        assert self.memory.aw.items == self.bursts
        assert self.acks.items == self.model.expected_acks
        assert self.memory.memory.written() == self.model.memory
        assert self.memory.idle and self.model.outstanding == 0
        assert (
            self.counts["writes"] == len(self.bursts)
            and self.counts["beats"] == self.memory.w.count
        )


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def traffic(dut, grid):
    """Random bursts on the grid, answers after 1 to 40 cycles, some errors, quiesce at random
    times."""
    idle, stall = grid
    tb = TB(dut, f"traffic{grid}", idle, stall)
    await tb.bench.reset()
    for _ in range(tb.params["writes"]):
        tb.put()
    for _ in range(12):
        await tb.bench.cycles(tb.rng.randint(1, 30))
        await tb.quiesce()
    await tb.done()
    tb.finish()
    cover(f"memory.grid.{idle}.{stall}")
    cover("memory.error", any(not ack["ok"] for ack in tb.acks.items))
    cover("memory.stall_aw", tb.counts["stall_aw"] > 0)
    cover("memory.stall_w", tb.counts["stall_w"] > 0)


@cocotb.test()
async def rate(dut):
    """Memory ready, commands waiting: a beat in every cycle over all bursts; latencies as
    documented."""
    tb = TB(dut, "rate", latency=1)
    await tb.bench.reset()
    for n in range(40):
        tb.put(beats=tb.cfg.packet_flits if n % 2 else 4)
    await tb.done()
    tb.finish()
    assert (
        tb.memory.aw.stamps[0] - tb.writes.stamps[0]
        == 1
        == tb.memory.w.stamps[0] - tb.data.stamps[0]
    )
    assert tb.acks.stamps[0] - tb.memory.b.stamps[0] == 1
    cycles = tb.memory.w.stamps[-1] - tb.memory.w.stamps[0] + 1
    if tb.cfg.write_depth >= 4:
        assert cycles == tb.memory.w.count, f"{tb.memory.w.count} beats in {cycles} cycles"
        cover("memory.rate")
    # Command and first beat in the same cycle, one burst after the other.
    for _ in range(10):
        tb.put(beats=1)
        await tb.bench.until(lambda: not tb.data.pending, limit=50)
        assert tb.data.stamps[-1] == tb.writes.stamps[-1]
        await tb.bench.cycles(4)
    await tb.done()


@cocotb.test()
async def full(dut):
    """Acknowledgements not taken: exactly ``write_depth`` commands are issued, all answers are
    taken, then all goes on."""
    tb = TB(dut, "full", stall=None)
    tb.acks.set_pause("stop")
    await tb.bench.reset()
    depth = tb.cfg.write_depth
    for _ in range(2 * depth + 3):
        tb.put()
    await tb.bench.cycles(80 + depth * (tb.cfg.packet_flits + 2))
    assert (
        tb.writes.count == depth == tb.memory.aw.count
        and tb.memory.b.count == depth
        and tb.memory.idle
    )
    cover("memory.full")
    await tb.quiesce()
    await tb.bench.cycles(20)
    assert int(dut.quiescing.value), "quiescing ended before the acknowledgements were taken"
    tb.acks.set_pause("random", tb.rng)
    await tb.done()
    tb.finish()
    cover("memory.empty_after_full")


@cocotb.test()
async def address_first(dut):
    """An address leaves before its data is there; data never before its address; a stray answer
    changes nothing."""
    tb = TB(dut, "address", latency=2)
    await tb.bench.reset()
    items = tb.put(beats=4, bad=False, data=False)
    await tb.bench.cycles(10)
    assert tb.memory.aw.count == 1 and tb.memory.w.count == 0
    tb.model.answer, answer = (lambda resp: None), tb.model.answer
    tb.memory._unanswered.append({})
    tb.memory.outstanding += 1
    tb.memory.b.put({"resp": 2})  # nothing has been written yet
    await tb.bench.cycles(6)
    tb.model.answer = answer
    assert tb.acks.count == 0
    cover("memory.stray_answer")
    tb.data.put(*items)
    await tb.done(100)
    later = {"data": 1, "strb": 0xFFFF, "last": 1}
    tb.data.put(later)
    await tb.bench.cycles(10)
    assert tb.data.pending == 1, "data was taken without a command"
    cover("memory.data_waits")
    tb.bursts.append(tb.model.command(0x1000, [(1, 0xFFFF)], tb._context.unpack(5)))
    tb.writes.put({"addr": 0x1000, "beats": 1, "context": 5})
    await tb.done(100)
    assert tb.data.stamps[-1] == tb.writes.stamps[-1], "a beat waits for nothing but its command"
    tb.finish()


@cocotb.test()
async def valid_first(dut):
    """Memory that takes nothing: address and first beat are offered all the same, and so is all
    that fits behind them."""
    tb = TB(dut, "valid", latency=1)
    tb.memory.aw.set_pause("stop")
    tb.memory.w.set_pause("stop")
    await tb.bench.reset()
    tb.put(beats=4)
    await tb.bench.cycles(3)
    await tb.bench.sampled()
    assert int(dut.mem__awvalid.value) and int(dut.mem__wvalid.value), "valid waits for ready"
    assert tb.data.count == 2
    tb.put(beats=1)
    tb.put(beats=1)
    await tb.bench.cycles(4)
    assert tb.writes.count == 2, "a second address is kept while the first waits"
    tb.memory.aw.set_pause(None)
    tb.memory.w.set_pause(None)
    await tb.done()
    tb.finish()


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with bursts half way: afterwards the writer is empty and works as at the start."""
    tb = TB(dut, "reset", "random", "random")
    await tb.bench.reset()
    for _ in range(12):
        tb.put()
    await tb.bench.cycles(37)
    await tb.bench.reset()
    tb.model, tb.bursts = MemoryWriterModel(tb.cfg), []
    tb.memory.memory._pages.clear()
    tb.acks.count = tb.memory.w.count = 0
    tb.counts = dict.fromkeys(tb.counts, 0)
    for _ in range(tb.cfg.write_depth + 3):
        tb.put()
    await tb.done()
    tb.finish()
    cover("memory.reset_in_traffic")


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def shared_port(dut, grid):
    """Spill writes, spill reads and flags at once: every word arrives, each side in order, errors
    go to the right side."""
    idle, stall = grid
    _, params, rng = bench_params(f"shared{grid}")
    bench = start_clock(dut, watchdog=500)
    memory = AxiMemory(
        bench,
        "mem__",
        latency=(1, 20),
        rng=rng,
        error=lambda addr, length: addr % 0x100 == 0xF8,
        pause=dict.fromkeys(("aw", "w", "b", "ar", "r"), stall),
    )
    aw, w, ar = (
        StreamSource(bench, StreamPort(dut, f"spill__{name}"), None, idle, rng)
        for name in ("aw", "w", "ar")
    )
    b, r = (
        StreamSink(bench, StreamPort(dut, f"spill__{name}"), None, stall, rng)
        for name in ("b", "r")
    )
    flag = StreamSource(bench, "i_flag", FLAG, idle, rng)
    code, answer = rng.randint(1, 3), memory.b.put  # any code but OKAY is an error
    memory.b.put = lambda item: answer(item | {"resp": code} if item["resp"] else item)
    errors = [0]
    bench.on_sample(lambda cycle: errors.__setitem__(0, errors[0] + int(dut.flag_error.value)))
    await bench.reset()
    pages = rng.sample(
        range(1 << 32), 24
    )  # of 64 KiB: each side has its own, all over the address space
    spill, flags, read = (pages[n::3] for n in range(3))
    sides = {"spill": deque(), "flags": deque()}
    flag_errors, image = 0, {}
    for n in range(params["words"]):
        for name, side in sides.items():
            page = rng.choice(spill if name == "spill" else flags)
            addr, word = (page << 16) + 8 * rng.randrange(1 << 13), rng.getrandbits(64)
            bad = addr % 0x100 == 0xF8
            side.append((addr, word))
            if not bad:
                image |= {addr + k: word >> 8 * k & 0xFF for k in range(8)}
            if name == "flags":
                flag.put({"addr": addr, "data": word})
                flag_errors += bad
            else:
                aw.put(addr)
                w.put(word)
                b.expect(code if bad else 0)
        if n % 3 == 0:
            addr = (read[n % 8] << 16) + 8 * rng.randrange(1 << 10) + 0x2000 * (n // 8)
            memory.memory.write(addr, (word := rng.getrandbits(64)).to_bytes(8, "little"))
            image |= {addr + k: word >> 8 * k & 0xFF for k in range(8)}
            ar.put(addr)
            r.expect(word | (2 if addr % 0x100 == 0xF8 else 0) << 64)
    total = 2 * params["words"]
    await bench.until(
        lambda: len(memory.writes) == total and memory.idle and not ar.pending,
        limit=20000,
        what="all words",
    )
    await bench.cycles(60)
    b.finish()
    r.finish()
    for name, side in sides.items():
        mine = spill if name == "spill" else flags
        log = [
            (e["addr"], int.from_bytes(e["data"], "little"))
            for e in memory.writes
            if e["addr"] >> 16 in mine
        ]
        assert log == list(side) and all(e["strb"] == 0xFF for e in memory.writes)
    assert errors[0] == flag_errors and memory.memory.written() == image and not int(dut.busy.value)
    assert memory.most_outstanding <= 18
    if grid == ("none", "none"):
        first = [entry["addr"] >> 16 in spill for entry in memory.writes[8:24]]
        assert first.count(True) == 8, "the sides do not take turns"
    cover(f"memory.flag.grid.{idle}.{stall}")
    cover("memory.flag.error", flag_errors > 0)
