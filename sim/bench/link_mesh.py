# SPDX-License-Identifier: Apache-2.0
"""Designs for the link benches: all ranks' link ports side by side, without wires between them."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.link.link import LinkPort
from hub_rtl.link.loop_port import LoopPort

__all__ = ["LinkMesh"]


class LinkMesh(wiring.Component):
    """One LinkPort per rank (``p0__...``, ``p1__...``) and the LoopPort of rank 0 (``loop__...``);
    own numbers are tied.

    ``ranks``: only so many have a port (all by default).
    """

    def __init__(self, cfg, lane=0, ranks=None):
        self._cfg, self._lane = cfg, lane
        ranks = cfg.ranks if ranks is None else ranks
        self._ports = {
            **{f"p{rank}": LinkPort(cfg) for rank in range(ranks)},
            "loop": LoopPort(cfg),
        }
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
                port.rank.eq(0 if name == "loop" else int(name[1:])),
                port.lane.eq(self._lane),
            ]
        return m
