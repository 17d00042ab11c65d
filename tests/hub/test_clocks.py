# SPDX-License-Identifier: Apache-2.0
"""What passes between the two clocks of a hub, in its netlist: nothing but through the crossings,
and there through a synchroniser."""

import json
import re

import pytest
from amaranth.back import rtlil

from flow.synth.yosys import run_yosys
from hub_rtl.contract.config import preset
from hub_rtl.contract.ports import clocks, hub_interfaces
from hub_rtl.hub.hub import Hub
from hub_rtl.hub.link_slice import LinkSlice
from hub_rtl.parts.mutants import mutated

CFG = preset("tiny", slice_links=2, slice_bytes=64, link_clock=True)
PASSES = (
    "read_rtlil hub.il",
    "proc",
    "memory_collect",
    "flatten",
    "opt_clean",
    "write_json hub.json",
)
#: Outputs of which each bit depends on the same bit of the inputs alone.
BITWISE = {"$mux", "$and", "$or", "$xor", "$xnor", "$not", "$pos"}
#: Where the other clock's flip-flops may lead to: synchronisers, and a queue's memory.
ENTRIES = re.compile(
    r"link\d+\.crossing\d+\.(rank_seen|dead_seen|ready_seen|taken\.ff_sync"
    r"|\w+\.(produce_cdc|consume_cdc|rst_cdc|storage))"
)


class Netlist:
    """A flat netlist as drivers of bits; which clocks' flip-flops lead to a bit, through logic."""

    def __init__(self, module, domain_of):
        self.sources, self.gates, self.states = {}, {}, []
        for name, port in module["ports"].items():
            self.sources |= dict.fromkeys(port["bits"], domain_of(name))
        for name, cell in module["cells"].items():
            path = name.replace("$flatten", "").replace("\\", "").partition(".$")[0]
            self._add(path, cell["type"], cell["connections"])

    def _add(self, path, kind, pins):
        inputs = {name: bits for name, bits in pins.items() if name not in ("Q", "Y", "RD_DATA")}
        if kind == "$mem_v2":
            reads, writes = (self.sources[pins[f"{way}_CLK"][0]] for way in ("RD", "WR"))
            self.sources |= dict.fromkeys(pins["RD_DATA"], reads)
            for way, domain in (("RD", reads), ("WR", writes)):
                bits = [bit for pin, all in inputs.items() if pin.startswith(way) for bit in all]
                self.states.append((path, domain, bits))
            self.states.append((path, reads, [("memory", writes)]))
        elif "CLK" in pins:
            domain = self.sources[pins["CLK"][0]]
            self.sources |= dict.fromkeys(pins["Q"], domain)
            self.states.append((path, domain, [bit for bits in inputs.values() for bit in bits]))
        elif "Y" in pins:
            every = [bit for bits in inputs.values() for bit in bits]
            for n, bit in enumerate(pins["Y"]):
                same = [bits[min(n, len(bits) - 1)] for bits in inputs.values() if bits]
                self.gates[bit] = same if kind in BITWISE else every

    def clocks_of(self, bit, known):
        """Domains of the flip-flops and ports that lead to a bit."""
        if not isinstance(bit, int):  # a constant, or what a memory keeps
            return {bit[1]} if isinstance(bit, tuple) else set()
        if bit in self.sources:
            return {self.sources[bit]}
        if bit not in known:
            known[bit] = set()
            for each in self.gates.get(bit, ()):
                known[bit] = known[bit] | self.clocks_of(each, known)
        return known[bit]


def entries(component, domain_of, folder):
    """{flip-flop or memory to which the other domain leads: some logic stands between};
    ``domain_of`` a port."""
    (folder / "hub.il").write_text(rtlil.convert(component, name="hub", emit_src=False))
    run_yosys(PASSES, folder)
    netlist = Netlist(json.loads((folder / "hub.json").read_text())["modules"]["hub"], domain_of)
    found, known = {}, {}
    for name, domain, inputs in netlist.states:
        foreign = [bit for bit in inputs if netlist.clocks_of(bit, known) - {domain}]
        if foreign:
            logic = any(bit in netlist.gates for bit in foreign)
            found[name] = found.get(name, False) or logic
    return found


def test_only_through_crossings(tmp_path):
    """Both ways something passes; all of it enters a synchroniser of a crossing, and straight from
    a flip-flop."""
    pins = {pin: domain for domain, both in clocks(CFG).items() for pin in both}
    pins |= {port.name: i.domain for i in hub_interfaces(CFG) for port in i.ports}
    found = entries(Hub(CFG), pins.get, tmp_path)
    assert len(found) > 50
    assert all(ENTRIES.fullmatch(name) for name in found), found
    assert not any(found.values()), found


@pytest.mark.night
def test_bug_of_a_level(tmp_path):
    """A level that crosses as it is, is seen."""

    def domain_of(pin):
        return "link" if pin.startswith(("tx__", "rx__", "link_")) else "sync"

    with mutated("link.level_crosses_as_it_is"):
        found = entries(LinkSlice(CFG), domain_of, tmp_path)
    assert [name for name in found if not ENTRIES.fullmatch(f"link0.{name}")]
