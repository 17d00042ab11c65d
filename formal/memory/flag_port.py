# SPDX-License-Identifier: Apache-2.0
"""Promises of the shared 64-bit memory port (``hub_rtl/memory/flag_port.py``,
docs/blocks/memory.md).

The two sides' writes are told apart by the top bit of address and word, 1 for flags: the port looks
at neither.
"""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec, moves, same
from hub_rtl.contract.axi import RESP_OKAY
from hub_rtl.memory.flag_port import WORDS_OUTSTANDING, SpillPortMerge

__all__ = [
    "AnswersFindTheirSide",
    "NothingIdles",
    "ReadsPass",
    "SidesInTurn",
    "FlagsLeaveOnce",
    "SpillWritesLeaveOnce",
    "WritesArePaired",
]


class _SharedPort(Spec):
    """The port with free inputs, the marks on its writes, and what crosses its ports.
    ``outstanding``: most writes that wait for their answer; every place of their queue is alike."""

    def __init__(self, outstanding=WORDS_OUTSTANDING):
        super().__init__()
        self.outstanding = outstanding

    def build(self, m):
        m.submodules.dut = self.dut = dut = SpillPortMerge(self.outstanding)
        self.free_inputs(dut)
        spill, mem, flag = dut.spill, dut.mem, dut.i_flag
        self.suppose("mark of spill addresses", ~spill.aw.payload[-1], when=spill.aw.valid)
        self.suppose("mark of spill words", ~spill.w.payload[-1], when=spill.w.valid)
        self.suppose(
            "mark of flags", flag.payload.addr[-1] & flag.payload.data[-1], when=flag.valid
        )
        self.spill_aw, self.spill_w = moves(spill.aw), moves(spill.w)
        self.flag = moves(flag)
        self.aw, self.w, self.b = (
            mem.awvalid & mem.awready,
            mem.wvalid & mem.wready,
            mem.bvalid & mem.bready,
        )
        self.specify(m, dut)

    def difference(self, name, plus, minus, most=31):
        """How many more of ``plus`` than of ``minus`` there were in the cycles before; ``most``
        bounds it."""
        count = Signal(range(-most, most + 1), name=name.replace(" ", "_"))
        self.m.d.sync += count.eq(count + plus - minus)
        return count

    def honest_memory(self):
        """Assumes that memory answers only a write of which it has the address and the word.
        Returns the writes that it may answer, by address and by word."""
        owed = [
            self.difference(f"owed_{name}", taken, self.b)
            for name, taken in (("aw", self.aw), ("w", self.w))
        ]
        self.suppose(
            "answers are to writes", (owed[0] > 0) & (owed[1] > 0), when=self.dut.mem.bvalid
        )
        return owed


class FlagsLeaveOnce(_SharedPort):
    """Every flag leaves as one write, in order, its address and its word unchanged (shown for the
    low byte)."""

    def specify(self, m, dut):
        mem, flag = dut.mem, dut.i_flag.payload
        self.always_fifo(
            "address", self.flag, flag.addr[:8], self.aw & mem.awaddr[-1], mem.awaddr[:8], most=4
        )
        self.always_fifo(
            "word", self.flag, flag.data[:8], self.w & mem.wdata[-1], mem.wdata[:8], most=4
        )


class SpillWritesLeaveOnce(_SharedPort):
    """Every spill write is taken whole and leaves once, in order, its address and its word
    unchanged (shown for the low byte)."""

    def specify(self, m, dut):
        mem, spill = dut.mem, dut.spill
        self.always_fifo(
            "address",
            self.spill_aw,
            spill.aw.payload[:8],
            self.aw & ~mem.awaddr[-1],
            mem.awaddr[:8],
            most=2,
        )
        self.always_fifo(
            "word",
            self.spill_w,
            spill.w.payload[:8],
            self.w & ~mem.wdata[-1],
            mem.wdata[:8],
            most=2,
        )
        self.always("address and word are taken together", self.spill_aw == self.spill_w)


class WritesArePaired(_SharedPort):
    """The n-th address and the n-th word on the port are of one write; all bytes are enabled, each
    burst is one word."""

    def specify(self, m, dut):
        mem = dut.mem
        self.pairs(m, self.aw & mem.awaddr[-1], self.w & mem.wdata[-1])
        self.always(
            "constant fields",
            same(mem, awid=0, awlen=0, awsize=3, awburst=1, awcache=0, awprot=0, wstrb=0xFF)
            & mem.wlast,
        )

    def pairs(self, m, flag_aw, flag_w):
        """The address and the word of an arbitrary flag have the same place among all addresses and
        all words."""
        chosen = Signal()
        follows = Signal()
        done = Signal(2)
        self.free(chosen)
        ahead = self.difference("address ahead", self.aw & ~done[0], self.w & ~done[1], 3)
        leaves = Cat(flag_aw, flag_w)
        for n in range(2):
            before = self.difference(f"flags {n}", self.flag & ~follows, leaves[n] & ~done[n], 7)
            # Once the flag is chosen, `before` counts down to it.
            with m.If(
                (follows | (self.flag & chosen)) & leaves[n] & (before == Mux(follows, 1, 0))
            ):
                m.d.sync += done[n].eq(1)
        with m.If(self.flag & chosen):
            m.d.sync += follows.eq(1)
        self.always("address and word leave as a pair", ahead == 0, when=done.all())


class AnswersFindTheirSide(_SharedPort):
    """Each answer goes to the side whose write it answers: a spill write's to the spill engine,
    with its response; a flag's raises ``flag_error`` in the next cycle unless OKAY. Only the spill
    engine's readiness keeps an answer waiting, and only its own. ``busy`` exactly while a flag that
    was taken, or a spill write that is offered whole, is without answer."""

    def specify(self, m, dut):
        spill, mem = dut.spill, dut.mem
        owed = self.honest_memory()
        flag_next = Signal()
        self.always_fifo(
            "answer", self.aw, mem.awaddr[-1], self.b, flag_next, most=self.outstanding + 1
        )
        m.d.comb += flag_next.eq(~spill.b.valid)
        self.always(
            "response to the spill engine", spill.b.payload == mem.bresp, when=spill.b.valid
        )
        self.always("taken together", self.b == (spill.b.ready | flag_next), when=mem.bvalid)
        self.always(
            "failed flag is told",
            dut.flag_error == self.past(self.b & flag_next & (mem.bresp != RESP_OKAY)),
            when=self.started,
        )
        flags = self.difference("flags", self.flag, self.b & flag_next)
        spills = self.difference("spills", self.spill_aw, self.b & ~flag_next)
        self.always(
            "busy while one waits",
            dut.busy == ((flags > 0) | (spills > 0) | (spill.aw.valid & spill.w.valid)),
        )
        self.reach("all places used", owed[0] == self.outstanding)


class NothingIdles(_SharedPort):
    """A spill write whose address and word are at the inputs, or a flag taken in an earlier cycle,
    is offered in the next cycle while fewer than the most wait for their answer and memory takes
    words."""

    def specify(self, m, dut):
        mem = dut.mem
        self.honest_memory()
        is_flag = mem.awaddr[-1]
        flags = self.difference("flags", self.flag, self.aw & is_flag)
        inside = self.difference("spill", self.spill_aw, self.aw & ~is_flag)
        accepted = self.difference("accepted", self.spill_aw + self.flag, self.b)
        spill_waits = dut.spill.aw.valid & dut.spill.w.valid
        waiting = Signal(5)
        m.d.comb += waiting.eq(flags + inside + spill_waits)
        may_go = (accepted <= self.outstanding - spill_waits) & ~self.past(
            mem.wvalid & ~mem.wready, "words_wait"
        )
        self.always(
            "address offered",
            mem.awvalid,
            when=self.past((waiting > self.aw) & may_go, "should_go"),
        )
        self.always("flag accepted", dut.i_flag.ready, when=flags == 0)


class SidesInTurn(_SharedPort):
    """While a flag waits, at most five spill writes leave before it (two that have left the
    arbiter, and one before it and before each flag ahead); at most three flags leave while a whole
    spill write waits at the inputs, and one while it is inside."""

    def specify(self, m, dut):
        mem, offered = dut.mem, dut.spill.aw.valid & dut.spill.w.valid
        is_flag = mem.awaddr[-1]
        flag, spill = self.aw & is_flag, self.aw & ~is_flag
        *_, flag_waits = self.always_fifo("flag", self.flag, 0, flag, 0, most=4)
        *_, spill_inside = self.always_fifo("spill", self.spill_aw, 0, spill, 0, most=2)
        for name, waits, other, most in (
            ("flag", flag_waits, spill, 5),
            ("spill", offered & ~self.spill_aw, flag, 3),
            ("spill inside", spill_inside, flag, 1),
        ):
            passed = Signal(3, name=f"{name.replace(' ', '_')}_passed")
            m.d.sync += passed.eq(Mux(waits, passed + (other & (passed != 7)), 0))
            self.always(f"{name} not passed by many", passed <= most)
            self.reach(f"{name} passed", passed > 0)


class ReadsPass(_SharedPort):
    """Reads are the spill engine's alone: addresses pass within the cycle, data in order and
    unchanged, at most two inside."""

    def specify(self, m, dut):
        spill, mem = dut.spill, dut.mem
        data = Signal(66)
        m.d.comb += data.eq(mem.rdata | mem.rresp << 64)
        self.always(
            "address",
            (mem.arvalid == spill.ar.valid)
            & (spill.ar.ready == mem.arready)
            & (mem.araddr == spill.ar.payload),
        )
        self.always_fifo(
            "data",
            mem.rvalid & mem.rready,
            data,
            moves(spill.r),
            spill.r.payload,
            most=2,
        )
        self.always(
            "constant fields",
            same(mem, arid=0, arlen=0, arsize=3, arburst=1, arcache=0, arprot=0),
        )
