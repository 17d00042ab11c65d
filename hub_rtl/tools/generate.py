"""Writes the hub: Verilog, JSON sidecar, C header.

Same configuration, same bytes: nothing in the files depends on time, place, hash seed or order of a dictionary.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..config import HubConfig
from ..top.hub_ports import hub_interfaces
from .register_text import registers_header
from ..registers import VERSION, register_map

__all__ = ["TOP", "Generated", "generate", "sidecar", "write_files"]

TOP = "moehub"


@dataclass(frozen=True)
class Generated:
    """Texts of one hub, and the RTLIL they were made of."""

    verilog: str
    sidecar: dict
    header: str

    def files(self):
        return {f"{TOP}.v": self.verilog, f"{TOP}.json": json.dumps(self.sidecar, indent=1) + "\n",
                f"{TOP}_regs.h": self.header}


def generate(cfg):
    """The :class:`Generated` texts of a configuration."""
    from ..hub import Hub
    from .netlist import ModuleLibrary, memories, to_rtlil, to_verilog
    library = ModuleLibrary()
    top = to_rtlil(Hub(cfg, library=library), TOP)
    texts = [*library.rtlil.values(), top]
    return Generated(to_verilog(texts), sidecar(cfg, memories(texts, TOP)), registers_header(cfg))


def sidecar(cfg, memory_list):
    """What tools need to know about the Verilog."""
    registers = register_map(cfg)
    derived = {name: getattr(cfg, name) for name in sorted(vars(HubConfig)) if isinstance(vars(HubConfig)[name], property)}
    return {
        "name": TOP, "version": ".".join(map(str, VERSION)),
        "clock": "clk", "reset": {"name": "rst", "active": 1, "synchronous": True},
        "parameters": cfg.as_dict(),
        "derived": derived | {"flit_bytes": cfg.flit_bytes, "store_bytes": cfg.store_bytes},
        "interfaces": [{
            "name": interface.name, "kind": interface.kind, "index": interface.index, "text": interface.text,
            "ports": [{"name": p.name, "field": p.field, "direction": p.direction, "width": p.width} for p in interface.ports],
        } for interface in hub_interfaces(cfg)],
        "address_map": {page.name: page.base for page in registers.pages},
        "registers": {path: address for path, address, _ in registers},
        "register_map": registers.as_dict(),
        "memories": memory_list,
        "memory_bits": sum(m["depth"] * m["width"] for m in memory_list),
    }


def write_files(folder, files):
    """Writes all files or none: first under temporary names in ``folder``, then renamed."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        for name, text in files.items():
            Path(scratch, name).write_text(text)
        for name in files:
            os.replace(Path(scratch, name), folder / name)
    return [folder / name for name in files]
