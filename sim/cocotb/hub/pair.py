# SPDX-License-Identifier: Apache-2.0
"""Two hubs: the smallest system, as one Verilog text."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from flow.verilog.netlist import ModuleLibrary, to_rtlil, to_verilog
from hub_rtl.contract.ports import hub_interfaces
from hub_rtl.hub.hub import Hub

__all__ = ["HubPair", "pair_verilog", "SIDES"]

SIDES = ("a", "b")


class HubPair(wiring.Component):
    """Hubs ``a`` and ``b``, with their ports as ``a_<port>`` and ``b_<port>``. Link i of one is
    joined to link i of the other; if slices have several links, whose packets shall overtake each
    other, their ports are there for a switch."""

    def __init__(self, cfg, library):
        self._hubs = {side: library.place("moehub", lambda: Hub(cfg, library)) for side in SIDES}
        self._joined = range(cfg.links if cfg.slice_links == 1 else 0)
        self._outer = [
            port
            for interface in hub_interfaces(cfg)
            if interface.kind != "axi4-stream" or not self._joined
            for port in interface.ports
        ]
        super().__init__(
            {
                f"{side}_{port.name}": (In if port.direction == "in" else Out)(port.width)
                for side in SIDES
                for port in self._outer
            }
        )

    def elaborate(self, platform):
        m = Module()
        for side, hub in self._hubs.items():
            m.submodules[f"hub_{side}"] = hub
            for port in self._outer:
                outer, inner = getattr(self, f"{side}_{port.name}"), getattr(hub, port.name)
                m.d.comb += inner.eq(outer) if port.direction == "in" else outer.eq(inner)
        for sender, receiver in (self._hubs.values(), reversed(self._hubs.values())):
            for link in self._joined:
                for name in ("tdata", "tvalid", "tlast"):
                    m.d.comb += getattr(receiver, f"s_axis_link{link}_{name}").eq(
                        getattr(sender, f"m_axis_link{link}_{name}")
                    )
                m.d.comb += getattr(sender, f"m_axis_link{link}_tready").eq(
                    getattr(receiver, f"s_axis_link{link}_tready")
                )
        return m


def pair_verilog(cfg, name):
    """Verilog of a :class:`HubPair`; the hub is in it once."""
    library = ModuleLibrary()
    top = to_rtlil(HubPair(cfg, library), name)
    return to_verilog([*library.rtlil.values(), top])
