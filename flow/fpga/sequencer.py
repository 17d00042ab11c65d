# SPDX-License-Identifier: Apache-2.0
"""Plays a hub's register accesses from a ROM: the software of the self-test."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiLite
from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import CSR_ADDR

__all__ = ["Sequencer"]

KINDS = {"write": 0, "poll": 1, "go": 2, "end": 3}
WORD = data.StructLayout({"kind": 2, "address": CSR_ADDR, "value": 32, "mask": 32})


class Sequencer(wiring.Component):
    """Makes the accesses of ``steps`` one after the other, and stops at each ``go`` until told to
    go on.

    Latency: about six cycles an access, and the bus. Illegal input: an access that is answered with
    an error sets ``error`` for good.

    Parameters: ``steps``, list of :class:`~flow.fpga.plan.Step`. Ports: ``axil`` Out, AXI4-Lite;
    ``waits`` Out, at a ``go``; ``go_on`` In, strobe; ``ended`` Out; ``error`` Out.
    """

    def __init__(self, steps):
        self._steps = [
            {
                "kind": KINDS[step.kind],
                "address": step.address,
                "value": step.value,
                "mask": step.mask,
            }
            for step in steps
        ]
        super().__init__(
            {
                "axil": Out(AxiLite(CSR_ADDR)),
                "waits": Out(1),
                "go_on": In(1),
                "ended": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rom = rom = Memory(shape=WORD, depth=len(self._steps), init=self._steps)
        read = rom.read_port()
        place = Signal(index_width(len(self._steps) + 1))
        axil = self.axil
        step = read.data
        m.d.comb += [
            read.addr.eq(place),
            axil.awaddr.eq(step.address),
            axil.araddr.eq(step.address),
            axil.wdata.eq(step.value),
            axil.wstrb.eq(-1),
            axil.bready.eq(1),
            axil.rready.eq(1),
        ]
        answered = (axil.bvalid & axil.bready) | (axil.rvalid & axil.rready)
        with m.If(
            answered
            & (
                Cat(axil.bresp, axil.rresp)
                & Cat(axil.bvalid.replicate(2), axil.rvalid.replicate(2))
            ).any()
        ):
            m.d.sync += self.error.eq(1)
        with m.If(axil.awready):
            m.d.sync += axil.awvalid.eq(0)
        with m.If(axil.wready):
            m.d.sync += axil.wvalid.eq(0)
        with m.If(axil.arready):
            m.d.sync += axil.arvalid.eq(0)
        with m.FSM():
            with m.State("FETCH"):
                m.next = "BEGIN"
            with m.State("BEGIN"):
                with m.Switch(step.kind):
                    with m.Case(KINDS["write"]):
                        m.d.sync += [
                            axil.awvalid.eq(1),
                            axil.wvalid.eq(1),
                        ]
                        m.next = "WRITE"
                    with m.Case(KINDS["poll"]):
                        m.d.sync += axil.arvalid.eq(1)
                        m.next = "READ"
                    with m.Case(KINDS["go"]):
                        m.next = "GO"
                    with m.Case(KINDS["end"]):
                        m.next = "END"
            with m.State("WRITE"):
                with m.If(axil.bvalid):
                    m.d.sync += place.eq(place + 1)
                    m.next = "FETCH"
            with m.State("READ"):
                with m.If(axil.rvalid):
                    with m.If((axil.rdata & step.mask) == step.value):
                        m.d.sync += place.eq(place + 1)
                    m.next = "FETCH"
            with m.State("GO"):
                m.d.comb += self.waits.eq(1)
                with m.If(self.go_on):
                    m.d.sync += place.eq(place + 1)
                    m.next = "FETCH"
            with m.State("END"):
                m.d.comb += self.ended.eq(1)
        return m
