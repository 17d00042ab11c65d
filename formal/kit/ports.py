# SPDX-License-Identifier: Apache-2.0
"""Which ports of a block some assertion looks at: those in its cone of influence, through memories
too."""

import importlib
import inspect
import json
import re
import subprocess
import tempfile
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Fragment
from amaranth.lib import wiring

from hub_rtl.contract.config import preset

__all__ = ["BLOCKS", "asserted_ports", "ports_of", "ports_without_assertion"]

#: The blocks every port of which must be under an assertion.
BLOCKS = {
    "LogicalDestinationDecoder": "decoder.decoder",
    "StoreMerge": "decoder.steer",
    "StoreSteer": "decoder.steer",
    "PacketManager": "packet_manager.packet_manager",
    "LinkPort": "link.link",
    "LoopPort": "link.loop_port",
    "LinkSlice": "hub.link_slice",
    "SlotAllocator": "slot_allocator.slot_allocator",
    "MemoryWriter": "memory.memory",
    "ReadinessScoreboard": "scoreboard.scoreboard",
    "ProducerControl": "producer.producer",
    "FenceAsks": "remote_fence.remote_fence",
    "FenceAnswers": "remote_fence.remote_fence",
    "RejectSender": "refusals.refusals",
    "RefusalLog": "refusals.refusals",
    "SpillPortMerge": "memory.flag_port",
    "CsrBank": "register_bank.register_bank",
    "Hub": "hub.hub",
}
MORE_ARGUMENTS = {"StoreMerge": {"count": 2}}


def ports_of(part):
    """Names of all ports of a component, streams by member and arrays as one: ``i_store.valid``."""
    paths = [path for path, _, _ in part.signature.flatten(part)]
    return list(
        dict.fromkeys(".".join(name for name in path if isinstance(name, str)) for path in paths)
    )


def asserted_ports(spec, yosys, path):
    """``Class.port`` for each port, of the parts that a specification wraps, in the cone of an
    assertion.

    ``path``: the specification's RTLIL; ``yosys``: the program.
    """
    top = _netlist(yosys, path)
    bits = _cone(top["cells"].values(), lambda cell: cell["type"] == "$check")
    wires = {
        _plain(name) for name, net in top["netnames"].items() if not bits.isdisjoint(net["bits"])
    }
    named = {
        name: part for name, part in spec.wrapped.items() if isinstance(part, wiring.Component)
    }
    found = {
        f"{block}.{port}"
        for name, part in named.items()
        for port in ports_of(part)
        for block in _blocks(part)
        if f"{name}.{port.replace('.', '__')}" in wires
    }
    # A part in a wrapper has no name of its own: its ports lie in the top or one level below.
    open_wires = {name.split(".")[-1] for name in wires if name.count(".") <= 1}
    for part in spec.parts:
        if not any(part is each for each in named.values()):
            found |= {
                f"{block}.{port}"
                for port in ports_of(part)
                for block in _blocks(part)
                if port.replace(".", "__") in open_wires
            }
    return sorted(found)


def _blocks(part):
    """The block that a component is, or extends to look into it."""
    names = [each.__name__ for each in type(part).__mro__]
    return [name for name in names if name in BLOCKS] or names[:1]


def _netlist(yosys, path):
    """Cells and nets of the flattened design; aliases of a net have the same bits, and nothing is
    folded away."""
    netlist = path.with_suffix(".json")
    commands = (
        f"read_rtlil {path}",
        "hierarchy -top top",
        "proc -noopt",
        "flatten",
        "memory_collect",
        "opt_clean",
        "chformal -assume -cover -remove",
        f"write_json {netlist}",
    )
    subprocess.run([yosys, "-p", "; ".join(commands)], stdout=subprocess.DEVNULL, check=True)
    top = json.loads(netlist.read_text())["modules"]["top"]
    netlist.unlink()
    return top


def _plain(name):
    """A net's name without the numbers of arrays."""
    return re.sub(r"__\d+(?=__|$)", "", name)


def _cone(cells, is_end, more=()):
    """Bits that the inputs of some cells, and the bits ``more``, depend on, over any number of
    cycles."""
    drivers, todo = {}, list(more)
    for cell in cells:
        inputs = [
            bit
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input"
            for bit in bits
        ]
        if is_end(cell):
            todo += inputs
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                drivers.update(dict.fromkeys(bits, inputs))
    seen = set()
    while todo:
        bit = todo.pop()
        if bit not in seen and not isinstance(bit, str):  # a string is a constant
            seen.add(bit)
            todo += drivers.get(bit, ())
    return seen


def ports_without_assertion(asserted, yosys):
    """``Class.port`` of each port of :data:`BLOCKS` that is not in ``asserted`` and that there is
    something to say of: not an output tied to a constant, nor an input that no output depends
    on."""
    cfg, missing = preset("tiny"), []
    for name, module in BLOCKS.items():
        block = getattr(importlib.import_module(f"hub_rtl.{module}"), name)
        given = inspect.signature(block).parameters
        part = block(**{"cfg": cfg} if "cfg" in given else {}, **MORE_ARGUMENTS.get(name, {}))
        bare = [port for port in ports_of(part) if f"{name}.{port}" not in asserted]
        if bare:
            idle = _idle_ports(part, yosys)
            missing += [f"{name}.{port}" for port in bare if port.replace(".", "__") not in idle]
        else:
            Fragment.get(part, None)  # else Amaranth warns of a part that was not elaborated
    return missing


def _idle_ports(part, yosys):
    """Ports whose bits are all constant, or that no output depends on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "top.il")
        path.write_text(rtlil.convert(part, name="top", emit_src=False))
        top = _netlist(yosys, path)
    ends = [
        bit
        for port in top["ports"].values()
        if port["direction"] == "output"
        for bit in port["bits"]
    ]
    used = _cone(top["cells"].values(), lambda cell: False, ends)
    live = {
        _plain(name) for name, port in top["ports"].items() if not used.isdisjoint(port["bits"])
    }
    return {_plain(name) for name in top["ports"]} - live
