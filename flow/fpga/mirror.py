# SPDX-License-Identifier: Apache-2.0
"""A hub's far end that is the hub itself: what it sends to its peer comes back as from that
peer."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import header_layout

__all__ = ["Mirror"]


class Mirror(wiring.Component):
    """Sends a link's packets back with source and destination exchanged.

    Contract: two hubs of one plan do the same at the same time, so that each of them hears from
    the other what it says itself. With a mirror one hub hears that: its peer's rows, credits and
    news are its own. Combinational; one flit per cycle. ``i`` waits for ``o``.

    Ports: ``i`` In, ``o`` Out, AXI4-Stream of flits, a packet up to ``tlast``.
    """

    def __init__(self):
        super().__init__({"i": In(AxiStream(FLIT)), "o": Out(AxiStream(FLIT))})

    def elaborate(self, platform):
        m = Module()
        header = header_layout()
        sent = header(self.i.tdata)
        seen = Signal(header)
        inside = Signal()
        m.d.comb += [
            seen.eq(sent),
            seen.src.eq(sent.dst),
            seen.dst.eq(sent.src),
            self.o.tdata.eq(self.i.tdata),
            self.o.tvalid.eq(self.i.tvalid),
            self.o.tlast.eq(self.i.tlast),
            self.i.tready.eq(self.o.tready),
        ]
        with m.If(~inside):
            m.d.comb += self.o.tdata.eq(seen)
        with m.If(self.i.tvalid & self.i.tready):
            m.d.sync += inside.eq(~self.i.tlast)
        return m
