# SPDX-License-Identifier: Apache-2.0
"""AXI4-Lite front end of the registers: turns the bus into single accesses."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiLite
from hub_rtl.contract.fields import CSR_ADDR, REGISTER
from hub_rtl.contract.register_map import PAGE_BYTES
from hub_rtl.parts.mutants import mutant

__all__ = ["FIRST_WORDS", "AxiLiteTarget", "RegisterBus"]

RESP_SLVERR = 2
PAGE_BITS = (PAGE_BYTES // 4).bit_length() - 1
FIRST_WORDS = 64  # of a page: all registers but the counters lie there


class RegisterBus(wiring.Signature):
    """One access at a time: ``request`` with ``write``, ``addr``, ``data`` stays until ``done``;
    ``error`` and ``read_data`` belong to ``done``. ``addr`` numbers 32-bit words; one-hot:
    ``page``, its page, and ``word``, its word there modulo FIRST_WORDS."""

    def __init__(self):
        super().__init__(
            {
                "request": Out(1),
                "write": Out(1),
                "addr": Out(CSR_ADDR - 2),
                "page": Out(1 << CSR_ADDR - 2 - PAGE_BITS),
                "word": Out(FIRST_WORDS),
                "data": Out(REGISTER),
                "done": In(1),
                "error": In(1),
                "read_data": In(REGISTER),
            }
        )


class AxiLiteTargetObserve(NamedTuple):
    """What a proof may see of an :class:`AxiLiteTarget`: the write that it holds."""

    aw_held: Signal  #: an address is held
    aw_addr: Signal  #: in words
    w_held: Signal  #: data are held
    w_data: Signal
    w_full: Signal  #: all its bytes are enabled


class AxiLiteTarget(wiring.Component):
    """AXI4-Lite target, 32 bits, one access at a time.

    Contract: every address handshake gets exactly one answer, SLVERR when the register file reports
    an error. Addresses are taken to the word; ``awprot`` and ``arprot`` are ignored. Latency:
    answer three cycles after the access began; one access every five cycles at best, every four
    while reads and writes wait. Order: reads and writes in turn when both wait. ``awready``,
    ``wready`` and ``arready`` come from registers and never wait for an answer being taken beyond
    one held access per channel. Illegal input: a write without all byte strobes answers SLVERR and
    has no effect.

    Ports: ``axil`` In :class:`~hub_rtl.contract.axi.AxiLite`; ``bus`` Out :class:`RegisterBus`.
    Source: our own; AMBA AXI4-Lite.
    """

    observe: AxiLiteTargetObserve  # once elaborated

    def __init__(self):
        super().__init__({"axil": In(AxiLite(CSR_ADDR)), "bus": Out(RegisterBus())})

    def elaborate(self, platform):
        m = Module()
        a, bus = self.axil, self.bus
        aw_held = Signal()
        w_held = Signal()
        ar_held = Signal()
        aw_addr = Signal(CSR_ADDR - 2)
        ar_addr = Signal(CSR_ADDR - 2)
        w_data = Signal(32)
        w_full = Signal()
        self.observe = AxiLiteTargetObserve(aw_held, aw_addr, w_held, w_data, w_full)
        self._hold(m, aw_held, aw_addr, w_held, w_data, w_full, ar_held, ar_addr)
        with m.If(a.bready):
            m.d.sync += a.bvalid.eq(0)
        with m.If(a.rready):
            m.d.sync += a.rvalid.eq(0)

        read_next = Signal()  # a write was served last
        can_write = Signal()
        can_read = Signal()
        m.d.comb += [
            can_write.eq(aw_held & w_held & ~a.bvalid),
            can_read.eq(ar_held & ~a.rvalid),
        ]
        reads = Signal()
        at = Signal(CSR_ADDR - 2)
        m.d.comb += [
            bus.data.eq(w_data),
            reads.eq(can_read & (read_next | ~can_write)),
            at.eq(Mux(reads, ar_addr, aw_addr)),
        ]
        with m.If(~bus.request):
            m.d.sync += [
                bus.write.eq(~reads),
                bus.addr.eq(at),
                bus.page.eq(1 << at[PAGE_BITS:]),
                bus.word.eq(1 << at[: FIRST_WORDS.bit_length() - 1]),
            ]
            with m.If(reads):
                m.d.sync += [
                    bus.request.eq(1),
                    read_next.eq(0),
                ]
            with m.Elif(can_write):
                m.d.sync += read_next.eq(1)
                with m.If(w_full):
                    m.d.sync += bus.request.eq(1)
                with m.Else():
                    m.d.sync += [
                        a.bvalid.eq(1),
                        a.bresp.eq(RESP_SLVERR),
                        aw_held.eq(0),
                        w_held.eq(0),
                    ]
        with m.Elif(bus.done):
            m.d.sync += bus.request.eq(0)
            with m.If(bus.write):
                m.d.sync += [
                    a.bvalid.eq(1),
                    a.bresp.eq(bus.error * RESP_SLVERR),
                    aw_held.eq(0),
                    w_held.eq(0),
                ]
            with m.Else():
                m.d.sync += [
                    a.rvalid.eq(1),
                    a.rresp.eq(bus.error * RESP_SLVERR),
                    ar_held.eq(mutant("register_bank.read_never_ends", 0, ar_held)),
                    a.rdata.eq(bus.read_data),
                ]
        return m

    def _hold(self, m, aw_held, aw_addr, w_held, w_data, w_full, ar_held, ar_addr):
        """One access per channel is taken and held until it was served."""
        a = self.axil
        m.d.comb += [
            a.awready.eq(~aw_held),
            a.wready.eq(~w_held),
            a.arready.eq(
                mutant("register_bank.address_taken_over_answer", ~ar_held, ~ar_held | a.rready)
            ),
        ]
        with m.If(a.awvalid & ~aw_held):
            m.d.sync += [
                aw_held.eq(1),
                aw_addr.eq(a.awaddr[2:]),
            ]
        with m.If(a.wvalid & ~w_held):
            m.d.sync += [
                w_held.eq(1),
                w_data.eq(a.wdata),
                w_full.eq(
                    mutant("register_bank.part_strobe_is_whole", a.wstrb.all(), a.wstrb.any())
                ),
            ]
        with m.If(a.arvalid & ~ar_held):
            m.d.sync += [
                ar_held.eq(1),
                ar_addr.eq(a.araddr[2:]),
            ]
