# SPDX-License-Identifier: Apache-2.0
"""Design for the bench of slices: those of all ranks side by side, without wires between them."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.hub.link_slice import LinkSlice

__all__ = ["SliceMesh"]


class SliceMesh(wiring.Component):
    """One LinkSlice per rank (``p0__...``, ``p1__...``); own numbers are tied."""

    def __init__(self, cfg):
        self._ports = {f"p{rank}": LinkSlice(cfg) for rank in range(cfg.ranks)}
        members = {}
        for name, port in self._ports.items():
            inner = {
                key: member
                for key, member in port.signature.members.items()
                if key not in ("rank", "lane")
            }
            members[name] = Out(wiring.Signature(inner))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        for name, port in self._ports.items():
            m.submodules[name] = port
            outer = wiring.flipped(getattr(self, name))
            for key, member in getattr(self, name).signature.members.items():
                inside, outside = getattr(port, key), getattr(outer, key)
                if member.is_signature:
                    wiring.connect(m, inside, outside)
                elif member.flow == In:
                    m.d.comb += inside.eq(outside)
                else:
                    m.d.comb += outside.eq(inside)
            m.d.comb += [
                port.rank.eq(int(name[1:])),
                port.lane.eq(0),
            ]
        return m
