# SPDX-License-Identifier: Apache-2.0
"""Shares the hub's 64-bit memory port between the spill engine and the scoreboard's flag writes."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import BURST_INCR, RESP_OKAY, Axi4, SpillSignature
from hub_rtl.contract.fields import ADDR, AXI_RESP, BYTE, WORD
from hub_rtl.contract.records import FLAG
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.stream import StreamRegister

__all__ = ["SpillPortMerge"]

WORDS_OUTSTANDING = 16  # writes whose answer has not come


class SpillPortMerge(wiring.Component):
    """One AXI4 master for single 64-bit words: the spill engine's reads and writes, and flag
    writes.

    Contract: writes of both sides leave in turn when both wait, each side's in its order, all bytes
    enabled, ID 0; answers to spill writes go back to the spill engine, flag writes that fail are
    counted. Reads are the spill engine's alone.

    Latency: one cycle from a spill write to ``awvalid``, two from a flag; one write per cycle. Read
    addresses pass within the cycle, since the spill engine offers them from registers; read data
    take one cycle.

    Ordering and stalls: at most 17 writes wait for their answer, those in its registers included. A
    spill write is taken when its address and its word are both there. ``bready`` waits for the
    spill engine only, and only for its own answers; the spill engine must take them always. On
    illegal input: an answer without a write is not taken.

    Parameters: ``outstanding``, words of the queue of writes without an answer.

    Ports: ``spill`` In :class:`~hub_rtl.contract.axi.SpillSignature`; ``i_flag`` In stream {addr,
    data}; ``mem`` Out :class:`~hub_rtl.contract.axi.Axi4` (48, 64); ``flag_error`` Out, strobe;
    ``busy`` Out: some write has no answer yet. Source: docs/interfaces.md section 7.
    """

    def __init__(self, outstanding=WORDS_OUTSTANDING):
        super().__init__(
            {
                "spill": In(SpillSignature()),
                "i_flag": In(stream.Signature(FLAG)),
                "mem": Out(Axi4(ADDR, WORD)),
                "flag_error": Out(1),
                "busy": Out(1),
            }
        )
        self._outstanding = outstanding

    def elaborate(self, platform):
        m = Module()
        m.submodules.flag_in = flag_in = StreamRegister(FLAG)
        m.submodules.aw_out = aw_out = StreamRegister(ADDR)
        m.submodules.w_out = w_out = StreamRegister(WORD)
        m.submodules.owners = owners = RamQueue(1, self._outstanding)  # 1: a flag write
        m.submodules.arbiter = arbiter = RoundRobin(2)
        wiring.connect(m, wiring.flipped(self.i_flag), flag_in.i)
        is_flag = self._choose(m, arbiter, flag_in, aw_out, w_out, owners)
        m.d.comb += [
            aw_out.i.payload.eq(self.spill.aw.payload),
            w_out.i.payload.eq(self.spill.w.payload),
            self.busy.eq(owners.o.valid | arbiter.requests.any()),
        ]
        with m.If(is_flag):
            m.d.comb += [
                aw_out.i.payload.eq(flag_in.o.payload.addr),
                w_out.i.payload.eq(
                    mutant(
                        "memory.flag_writes_spill_data",
                        flag_in.o.payload.data,
                        self.spill.w.payload,
                    )
                ),
            ]
        self._write(m, aw_out, w_out)
        self._answer(m, owners)
        self._read(m)
        return m

    def _choose(self, m, arbiter, flag_in, aw_out, w_out, owners):
        """The write that goes next, when address, word and owner have a place; 1: a flag's."""
        spill = self.spill
        go = Signal()
        is_flag = Signal()
        room = arbiter.requests.any() & aw_out.i.ready & w_out.i.ready & owners.i.ready
        m.d.comb += [
            arbiter.requests.eq((spill.aw.valid & spill.w.valid) | (flag_in.o.valid << 1)),
            go.eq(mutant("memory.flag_port_one_at_a_time", room, room & ~owners.o.valid)),
            arbiter.advance.eq(mutant("memory.flag_port_has_priorities", go, 0)),
            is_flag.eq(arbiter.grant_onehot[1]),
            spill.aw.ready.eq(mutant("memory.spill_address_gone_with_flag", go & ~is_flag, go)),
            spill.w.ready.eq(go & ~is_flag),
            flag_in.o.ready.eq(mutant("memory.flag_gone_with_spill_write", go & is_flag, go)),
            aw_out.i.valid.eq(go),
            w_out.i.valid.eq(go),
            owners.i.valid.eq(go),
            owners.i.payload.eq(is_flag),
        ]
        return is_flag

    def _write(self, m, aw_out, w_out):
        """Addresses and words to memory."""
        mem = self.mem
        m.d.comb += [
            mem.awvalid.eq(
                mutant(
                    "memory.address_withdrawn_with_data",
                    aw_out.o.valid,
                    aw_out.o.valid & w_out.o.valid,
                )
            ),
            mem.awaddr.eq(aw_out.o.payload),
            mem.awsize.eq(3),
            mem.awburst.eq(BURST_INCR),
            aw_out.o.ready.eq(mem.awready),
            mem.wvalid.eq(w_out.o.valid),
            mem.wdata.eq(w_out.o.payload),
            mem.wstrb.eq((1 << WORD // BYTE) - 1),
            mem.wlast.eq(1),
            w_out.o.ready.eq(mem.wready),
        ]

    def _answer(self, m, owners):
        """Answers to their owners: the spill engine's back to it, a flag's is looked at here."""
        spill, mem = self.spill, self.mem
        m.d.comb += [
            spill.b.valid.eq(mem.bvalid & owners.o.valid & ~owners.o.payload),
            spill.b.payload.eq(mem.bresp),
            mem.bready.eq(owners.o.valid & (owners.o.payload | spill.b.ready)),
            owners.o.ready.eq(
                mutant("memory.answer_gone_before_reader", mem.bvalid & mem.bready, mem.bvalid)
            ),
        ]
        m.d.sync += self.flag_error.eq(
            mem.bvalid & mem.bready & owners.o.payload & (mem.bresp != RESP_OKAY)
        )

    def _read(self, m):
        """The spill engine's reads."""
        spill, mem = self.spill, self.mem
        m.submodules.r = r = StreamRegister(data.StructLayout({"data": WORD, "resp": AXI_RESP}))
        wiring.connect(m, r.o, wiring.flipped(spill.r))
        m.d.comb += [
            mem.arvalid.eq(spill.ar.valid),
            mem.araddr.eq(spill.ar.payload),
            mem.arsize.eq(3),
            mem.arburst.eq(BURST_INCR),
            spill.ar.ready.eq(mem.arready),
            r.i.valid.eq(mem.rvalid),
            r.i.payload.data.eq(mem.rdata),
            r.i.payload.resp.eq(mutant("memory.read_fault_hidden", mem.rresp, 0)),
            mem.rready.eq(r.i.ready),
        ]
