# SPDX-License-Identifier: Apache-2.0
"""Design for the bench of slices: those of all ranks side by side, without wires between them."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.hub.link_slice import LinkSlice

__all__ = ["SliceMesh"]


class SliceMesh(wiring.Component):
    """One LinkSlice per rank (``p0__...``, ``p1__...``), the first of its hub. Their ranks are
    ports, so that the slices are alike and compiled once."""

    def __init__(self, cfg):
        self._ports = {f"p{rank}": LinkSlice(cfg) for rank in range(cfg.ranks)}
        members = {}
        for name, port in self._ports.items():
            inner = {
                key: member for key, member in port.signature.members.items() if key != "first"
            }
            members[name] = Out(wiring.Signature(inner))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        for name, port in self._ports.items():
            m.submodules[name] = port
            inner = {path: value for path, _, value in port.signature.flatten(port)}
            outer = getattr(self, name)
            for path, member, value in outer.signature.flatten(outer):
                into = member.flow == In
                m.d.comb += inner[path].eq(value) if into else value.eq(inner[path])
        return m
