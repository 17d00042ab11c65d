"""Which ports of a block some assertion looks at: those in its cone of influence, through memories too."""

import importlib
import inspect
import re
import subprocess

from amaranth.lib import wiring

from hub_rtl.config import preset

__all__ = ["BLOCKS", "asserted_ports", "ports_of", "ports_without_assertion"]

#: The blocks every port of which must be under an assertion.
BLOCKS = {"LogicalDestinationDecoder": "decoder", "StoreMerge": "steer", "StoreSteer": "steer",
          "PacketManager": "packet_manager", "LinkPort": "link", "LoopPort": "loop_port",
          "SlotAllocator": "slot_allocator", "MemoryWriter": "memory_writer", "ReadinessScoreboard": "scoreboard",
          "ProducerControl": "producer_control", "RejectSender": "report", "RefusalLog": "report",
          "SpillPortMerge": "flag_port", "CsrBank": "csr", "Hub": "hub"}
MORE_ARGUMENTS = {"StoreMerge": {"count": 2}}


def ports_of(part):
    """Names of all ports of a component, streams by member and arrays as one: ``i_store.valid``."""
    paths = [path for path, _, _ in part.signature.flatten(part)]
    return list(dict.fromkeys(".".join(name for name in path if isinstance(name, str)) for path in paths))


def asserted_ports(spec, yosys, path):
    """``Class.port`` for each port, of the parts that a specification wraps, in the cone of an assertion.

    ``path``: the specification's RTLIL; ``yosys``: the program.
    """
    found = path.with_suffix(".cone")
    commands = (f"read_rtlil {path}", "hierarchy -top top", "proc", "flatten", "memory_collect",
                "chformal -assume -cover -remove", f"tee -q -o {found} select -list t:$check %ci* w:* %i")
    subprocess.run([yosys, "-p", "; ".join(commands)], stdout=subprocess.DEVNULL, check=True)
    wires = {re.sub(r"__\d+(?=__|$)", "", line.strip().removeprefix("top/")) for line in found.read_text().splitlines()}
    return sorted(f"{type(part).__name__}.{port}" for name, (part, *_) in spec.m._named_submodules.items()
                  if isinstance(part, wiring.Component) for port in ports_of(part)
                  if f"{name}.{port.replace('.', '__')}" in wires)


def ports_without_assertion(asserted):
    """``Class.port`` of each port of :data:`BLOCKS` that is not in ``asserted``."""
    cfg, missing = preset("tiny"), []
    for name, module in BLOCKS.items():
        block = getattr(importlib.import_module(f"hub_rtl.{module}"), name)
        given = inspect.signature(block).parameters
        part = block(**{"cfg": cfg} if "cfg" in given else {}, **MORE_ARGUMENTS.get(name, {}))
        part._MustUse__silence = True       # only its signature is wanted; else Amaranth warns that it was never elaborated
        missing += [f"{name}.{port}" for port in ports_of(part) if f"{name}.{port}" not in asserted]
    return missing
