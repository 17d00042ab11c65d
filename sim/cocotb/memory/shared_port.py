# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the shared 64-bit port against AXI memory."""

from hub_rtl.memory.flag_port import SpillPortMerge
from sim.bench.axi import AxiMemory, spill_port
from sim.bench.rig import Rig
from sim.bench.streams import GRID, StreamSink, StreamSource
from sim.quality.coverage import cover

from .rig import any_error

MOST = 17  # writes that wait for their answer


def refused(addr):
    """The memory behind the shared port answers such an address with an error."""
    return addr % 0x100 == 0xF8


class SharedRig(Rig):
    """The shared 64-bit port with AXI memory behind it and sources at both sides."""

    def __init__(self, dut, salt, idle=None, stall=None, latency=(1, 20)):
        super().__init__(dut, salt, idle, stall, watchdog=500)
        rng = self.rng
        self.memory = AxiMemory(
            self,
            "mem__",
            latency=latency,
            rng=rng,
            error=lambda addr, length: refused(addr),
            pause=stall,
        )
        self.aw, self.w, self.ar = (
            StreamSource(self, spill_port(dut, "spill__", name), None, idle, rng)
            for name in ("aw", "w", "ar")
        )
        self.b, self.r = (
            StreamSink(self, spill_port(dut, "spill__", name), None, stall, rng) for name in "br"
        )
        self.code, self.errors = rng.randint(1, 3), 0
        any_error(self.memory, lambda: self.code)
        self.on_sample(self._count)

    def component(self):
        return SpillPortMerge()

    def _count(self, cycle):
        self.errors += self.get("flag_error")


@SharedRig.test(grid=GRID)
async def shared_port(rig, cfg, rng, grid):
    """Spill writes, spill reads and flags at once: every word arrives, each side in order, errors
    go to the right side."""
    memory = rig.memory
    # Pages of 64 KiB: each side has its own, all over the address space.
    pages = rng.sample(range(1 << 32), 24)
    sides, read = {"spill": pages[::3], "flags": pages[1::3]}, pages[2::3]
    sent = {name: [] for name in sides}
    flag_errors, image = 0, {}
    for n in range(rig.params["words"]):
        for name, side in sides.items():
            page = rng.choice(side)
            addr, word = (page << 16) + 8 * rng.randrange(1 << 13), rng.getrandbits(64)
            bad = refused(addr)
            sent[name].append((addr, word))
            if not bad:
                image |= {addr + k: word >> 8 * k & 0xFF for k in range(8)}
            if name == "flags":
                rig.i_flag.put({"addr": addr, "data": word})
                flag_errors += bad
            else:
                rig.aw.put(addr)
                rig.w.put(word)
                rig.b.expect(rig.code if bad else 0)
        if n % 3 == 0:
            addr = (read[n % 8] << 16) + 8 * rng.randrange(1 << 10) + 0x2000 * (n // 8)
            memory.memory.write(addr, (word := rng.getrandbits(64)).to_bytes(8, "little"))
            image |= {addr + k: word >> 8 * k & 0xFF for k in range(8)}
            rig.ar.put(addr)
            rig.r.expect(word | (2 if refused(addr) else 0) << 64)
    total = 2 * rig.params["words"]
    await rig.until(
        lambda: len(memory.writes) == total and memory.idle and not rig.ar.pending,
        limit=20000,
        what="all words",
    )
    await rig.cycles(60)
    rig.b.finish()
    rig.r.finish()
    for name, side in sides.items():
        log = [
            (entry["addr"], int.from_bytes(entry["data"], "little"))
            for entry in memory.writes
            if entry["addr"] >> 16 in side
        ]
        assert log == sent[name] and all(entry["strb"] == 0xFF for entry in memory.writes)
    assert rig.errors == flag_errors and memory.memory.written() == image and not rig.get("busy")
    assert memory.most_outstanding <= 18
    if grid == ("none", "none"):
        first = [entry["addr"] >> 16 in sides["spill"] for entry in memory.writes[8:24]]
        assert first.count(True) == 8, "the sides do not take turns"
    cover(f"memory.flag.grid.{'.'.join(grid)}")
    cover("memory.flag.error", flag_errors > 0)


@SharedRig.test(latency=250)
async def port_fills(rig, cfg, rng):
    """Memory that answers late: as many writes wait as there is room for, of both sides in turn,
    and ``busy`` shows them from the first to the last; again after a reset in the middle."""
    memory, count = rig.memory, 3 * MOST
    for turn in range(5):
        addresses = [0x10000 * n for n in rng.sample(range(1 << 32), count)]
        spills, flags = addresses[::2], addresses[1::2]
        if turn == 1:  # one side alone
            spills, flags = spills + flags, []
        await rig.sampled()
        assert not rig.get("busy")
        await rig.cycles(1)
        for addr in spills:
            rig.aw.put(addr)
            rig.w.put(rng.getrandbits(64))
            rig.b.expect(0)
        for addr in flags:
            rig.i_flag.put({"addr": addr, "data": rng.getrandbits(64)})
        begin, written = rig.cycle, len(memory.writes)
        await rig.until(lambda: memory.outstanding == MOST, 30, "a full port")
        await rig.cycles(100)
        assert memory.outstanding == memory.most_outstanding == MOST, memory.outstanding
        if turn == 2:
            await rig.reset()
            memory.most_outstanding = 0
            continue
        while len(memory.writes) - written < count or not memory.idle:
            await rig.sampled()
            assert rig.get("busy") or memory.idle or rig.cycle < begin + 4
            await rig.cycles(1)
            assert rig.cycle - begin < 3000, "it stands still"
        order = [entry["addr"] for entry in memory.writes[written:]]
        assert [addr for addr in order if addr in flags] == flags
        assert [addr for addr in order if addr not in flags] == spills
        memory.most_outstanding = 0
        await rig.cycles(20)
        rig.b.finish()
    cover("memory.flag.full")
