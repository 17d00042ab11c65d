# SPDX-License-Identifier: Apache-2.0
"""Two hubs with their links joined: the smallest system, as one Verilog text."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from flow.verilog.netlist import ModuleLibrary, to_rtlil, to_verilog
from hub_rtl.contract.ports import hub_interfaces
from hub_rtl.hub.hub import Hub

__all__ = ["HubPair", "pair_verilog", "SIDES"]

SIDES = ("a", "b")


class HubPair(wiring.Component):
    """Hubs ``a`` and ``b``; lane i of one speaks to lane i of the other. All other ports are there
    twice, as ``a_<port>`` and ``b_<port>``."""

    def __init__(self, cfg, library):
        self._hubs = {side: library.place("moehub", lambda: Hub(cfg, library)) for side in SIDES}
        self._cfg = cfg
        self._outer = [
            port
            for interface in hub_interfaces(cfg)
            if interface.kind != "axi4-stream"
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
            for lane in range(self._cfg.lanes):
                for name in ("tdata", "tvalid", "tlast"):
                    m.d.comb += getattr(receiver, f"s_axis_link{lane}_{name}").eq(
                        getattr(sender, f"m_axis_link{lane}_{name}")
                    )
                m.d.comb += getattr(sender, f"m_axis_link{lane}_tready").eq(
                    getattr(receiver, f"s_axis_link{lane}_tready")
                )
        return m


def pair_verilog(cfg, name):
    """Verilog of a :class:`HubPair`; the hub is in it once."""
    library = ModuleLibrary()
    top = to_rtlil(HubPair(cfg, library), name)
    return to_verilog([*library.rtlil.values(), top])
