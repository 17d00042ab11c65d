# SPDX-License-Identifier: Apache-2.0
"""Writes the hub: Verilog, its AXI wrapper, registers, and the files with which tools take them in.

Same configuration, same bytes: nothing in the files depends on time, place, hash seed or order of a
dictionary.
"""

import dataclasses
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.ports import CLOCKS, hub_interfaces
from hub_rtl.contract.registers import VERSION, register_map

from .axi_wrapper import AXI_TOP, axi_instance, axi_sidecar, axi_wrapper, link_clock_sidecar
from .flow_files import constraints, fusesoc_core, verilator_waivers
from .ipxact import ipxact_component
from .licence import LICENCE, SPDX
from .readable import about, commented, readable, without_numbers
from .register_rdl import registers_systemrdl
from .register_text import registers_header
from .testbench import BENCH, self_checking_bench
from .words_text import words_sidecar

__all__ = ["RAMS", "TOP", "Generated", "generate", "named", "sidecar", "write_files"]

TOP = "moehub"
RAMS = f"{TOP}_rams.v"
NAME_RULE = "must be a lower-case letter, then at most 30 lower-case letters, digits and _"


@dataclass(frozen=True)
class Generated:
    """Texts of one hub. ``rams``: Verilog of the memory modules, empty when memories are left
    inside the hub's modules. ``about``: {module: comment above it} in the written files; in
    ``verilog`` there is none, so that a better word makes no other design of it."""

    cfg: HubConfig
    verilog: str
    rams: str
    sidecar: dict
    about: dict = dataclasses.field(default_factory=dict)

    def sources(self):
        """{file name: text} of the Verilog: the hub, memory modules if any, the AXI wrapper."""
        return {
            f"{TOP}.v": f"// {SPDX}\n{commented(self.verilog, self.about)}",
            **({RAMS: self.rams} if self.rams else {}),
            f"{AXI_TOP}.v": axi_wrapper(self.cfg, TOP),
        }

    def files(self):
        """{file name: text} of everything that is written."""
        sources = self.sources()
        return {
            **sources,
            f"{AXI_TOP}.vt": axi_instance(self.cfg),
            f"{TOP}.f": "\n".join([f"// {SPDX}", *sources, ""]),
            f"{TOP}.json": json.dumps(self.sidecar, indent=1) + "\n",
            f"{TOP}_regs.h": registers_header(self.cfg),
            f"{TOP}.rdl": registers_systemrdl(self.cfg),
            f"{TOP}.sdc": constraints(self.cfg),
            f"{TOP}.vlt": verilator_waivers(f"{TOP}.v"),
            f"{BENCH}.v": self_checking_bench(self.cfg),
            f"{TOP}.xml": ipxact_component(self.cfg, list(sources), f"{TOP}.sdc", f"{BENCH}.v"),
            f"{TOP}.core": fusesoc_core(
                TOP, list(sources), f"{TOP}.vlt", f"{TOP}.sdc", f"{BENCH}.v"
            ),
        }


def generate(cfg, ram_modules=False, source=False):
    """The :class:`Generated` texts of a configuration; ``ram_modules``: every memory is an instance
    of a module of its own; ``source``: the Verilog says what is from which line of the source."""
    from hub_rtl.hub.hub import Hub

    from .netlist import ModuleLibrary, memories, to_rtlil, to_verilog
    from .ram_modules import RamShape, ram_modules_verilog, with_ram_modules

    library = ModuleLibrary(source)
    top = to_rtlil(Hub(cfg, library=library), TOP, library.components, source)
    texts, rams = readable([*library.rtlil.values(), top]), ""
    found = memories(texts, TOP)
    if ram_modules:
        texts, shapes = with_ram_modules(texts, found)
        rams = ram_modules_verilog(shapes)
        sizes = [field.name for field in dataclasses.fields(RamShape)]
        found = [
            memory | {"ram": RamShape(*(memory.get(size, 1) for size in sizes)).name}
            for memory in found
        ]
    verilog = without_numbers(to_verilog(texts, source))
    comments = {module: about(component) for module, component in library.components.items()}
    return Generated(cfg, verilog, rams, sidecar(cfg, found), comments)


def named(files, name):
    """The files of a hub, {file name: text}, with ``name`` where they say ``moehub``: every module,
    macro, type and file name, so that two hubs stand in one design.

    ``name``: an identifier in lower case. Raises ValueError if it is none. All generated names
    begin with the word, so this is a change of words in the text, and nothing can be forgotten.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
        raise ValueError(f"name = {name}: {NAME_RULE}")

    def renamed(text):
        text = re.sub(rf"(?<![A-Za-z0-9_]){TOP}(?![A-Za-z0-9])", name, text)
        return re.sub(rf"(?<![A-Za-z0-9_]){TOP.upper()}(?![A-Za-z0-9])", name.upper(), text)

    return {renamed(file): renamed(text) for file, text in files.items()}


def sidecar(cfg, memory_list):
    """What tools need to know about the Verilog."""
    registers = register_map(cfg)
    derived = {
        name: getattr(cfg, name)
        for name in sorted(vars(HubConfig))
        if isinstance(vars(HubConfig)[name], property)
    }
    return {
        "license": LICENCE,
        "name": TOP,
        "version": ".".join(map(str, VERSION)),
        "clock": "clk",
        "reset": {"name": "rst", "active": 1, "synchronous": True},
        **link_clock_sidecar(cfg, *CLOCKS["link"], active=1),
        "parameters": cfg.as_dict(),
        "derived": derived | {"flit_bytes": cfg.flit_bytes, "store_bytes": cfg.slice_bytes},
        "interfaces": [
            {
                "name": interface.name,
                "kind": interface.kind,
                "index": interface.index,
                "text": interface.text,
                "ports": [
                    {"name": p.name, "field": p.field, "direction": p.direction, "width": p.width}
                    for p in interface.ports
                ],
            }
            for interface in hub_interfaces(cfg)
        ],
        "axi_wrapper": axi_sidecar(cfg),
        "address_map": {page.name: page.base for page in registers.pages},
        "registers": {path: address for path, address, _ in registers},
        "register_map": registers.as_dict(),
        **words_sidecar(),
        "memories": memory_list,
        "memory_bits": sum(m["depth"] * m["width"] for m in memory_list),
    }


def write_files(folder, files):
    """Writes all files or none: first under temporary names in ``folder``, then renamed."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        for name, text in files.items():
            try:
                Path(scratch, name).write_text(text)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(folder / name)) from None
        for name in files:
            os.replace(Path(scratch, name), folder / name)
    return [folder / name for name in files]
