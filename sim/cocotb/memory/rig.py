# SPDX-License-Identifier: Apache-2.0
"""The memory writer with AXI memory behind it and the golden model beside it."""

from hub_rtl.contract.records import types_of
from hub_rtl.memory.memory import MemoryWriter
from sim.bench.axi import AxiMemory
from sim.bench.rig import Rig
from sim.bench.streams import Codec
from sim.golden.memory import MemoryWriterModel

BAD_PAGE = 0x7000  # the memory answers writes to this page with an error


def any_error(memory, code):
    """The memory answers errors with ``code()``: any but OKAY is one."""
    answer = memory.b.put
    memory.b.put = lambda item: answer(item | {"resp": code()} if item["resp"] else item)


class WriterRig(Rig):
    block = MemoryWriter

    def __init__(self, dut, salt, idle=None, stall=None, latency=(1, 40)):
        super().__init__(dut, salt, idle, stall, watchdog=500)
        rng = self.rng
        self.parts = self.cfg.packet_bytes // self.cfg.slice_bytes  # beats of a full packet
        self.memory = AxiMemory(
            self,
            "mem__",
            latency=latency,
            rng=rng,
            error=lambda addr, length: addr >> 12 == BAD_PAGE >> 12,
            pause=stall,
        )
        any_error(self.memory, lambda: rng.randint(1, 3))
        self._context = Codec(types_of(self.cfg).context)
        self.forget()
        self.strobe = False
        self.memory.b.on_item(lambda item, cycle: self.model.answer(item["resp"]))
        self.on_sample(self._look)

    def forget(self):
        """Everything as after a reset."""
        self.model, self.bursts = MemoryWriterModel(self.cfg), []
        self.counts = dict.fromkeys(("writes", "beats", "stall_aw", "stall_w"), 0)
        self._strobes = (0, None)  # cycle, counts due then

    def offered(self, channel):
        """Valid and ready of a channel of the memory port."""
        return [
            int(getattr(self.dut, f"mem__{channel}{name}").value) for name in ("valid", "ready")
        ]

    def _look(self, cycle):
        model = self.model
        assert int(self.dut.mem__bready.value), "bready is 0"
        assert self.get("outstanding") == model.outstanding
        assert bool(self.get("quiescing")) == model.quiescing, f"quiescing in cycle {cycle}"
        counts, (due, strobes) = self.get("counts"), self._strobes
        assert due != cycle or counts == strobes, (
            f"counts in cycle {cycle}: {counts}, must be {strobes}"
        )
        for name, value in counts.items():
            self.counts[name] += value
        (aw, aw_ready), (w, w_ready) = self.offered("aw"), self.offered("w")
        self._strobes = (
            cycle + 1,
            {
                "writes": aw & aw_ready,
                "beats": w & w_ready,
                "stall_aw": aw & ~aw_ready,
                "stall_w": w & ~w_ready,
            },
        )
        if self.i_write.stamps[-1:] == [cycle]:
            model.accepted()
        if self.strobe:
            model.quiesce()
        if self.o_ack.stamps[-1:] == [cycle]:
            model.acked()
        self.strobe = False

    def put(self, beats=None, bad=None, data=True):
        """A random command with its beats; ``bad``: into the page that errs."""
        rng, size = self.rng, self.cfg.slice_bytes
        beats = beats or rng.choice((1, self.parts, rng.randint(1, self.parts), 16))
        page = (
            BAD_PAGE
            if (rng.random() < 0.1 if bad is None else bad)
            else rng.choice((0x1000, rng.getrandbits(36) << 12))
        )
        addr = page + size * rng.randrange(4096 // size + 1 - beats)
        full = (1 << size) - 1
        words = [
            (rng.getrandbits(8 * size), rng.choice((full, full, rng.getrandbits(size), 0)))
            for _ in range(beats)
        ]
        self.command(addr, words, rng.getrandbits(self._context.width))
        items = [
            {"data": word, "strb": strobe, "last": int(n == beats - 1)}
            for n, (word, strobe) in enumerate(words)
        ]
        if data:
            self.i_data.put(*items)
        return items

    def put_many(self, count, beats=None):
        for _ in range(count):
            self.put(beats)

    def command(self, addr, words, context):
        self.bursts.append(self.model.command(addr, words, self._context.unpack(context)))
        self.i_write.put({"addr": addr, "beats": len(words), "context": context})

    async def quiesce(self):
        self.strobe = True
        await self.pulse("quiesce")

    async def done(self, limit=20000):
        count = len(self.bursts)
        await self.until(
            lambda: self.o_ack.count == count, limit=limit, what=f"{count} acknowledgements"
        )
        await self.cycles(3)

    async def finish(self):
        """Bursts, acknowledgements and the whole memory are as the model says, and nothing else
        came."""
        await self.done()
        assert self.memory.aw.items == self.bursts
        assert self.o_ack.items == self.model.expected_acks
        assert self.memory.memory.written() == self.model.memory
        assert self.memory.idle and self.model.outstanding == 0
        assert (
            self.counts["writes"] == len(self.bursts)
            and self.counts["beats"] == self.memory.w.count
        )
