# SPDX-License-Identifier: Apache-2.0
"""From components to one Verilog text, with equal parts written once.

Amaranth gives every instance of a component its own module. A hub has the same lane 18 times, so
:class:`ModuleLibrary` converts each lane-level component once and places the others as instances of
that module.
"""

import gc
import re
from contextlib import contextmanager
from pathlib import Path

import amaranth
from amaranth import ClockSignal, Instance, ResetSignal
from amaranth.back import rtlil, verilog
from amaranth.hdl import Fragment, ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

import hub_rtl
from hub_rtl.contract.ports import CLOCKS

__all__ = [
    "ModuleLibrary",
    "Placed",
    "memories",
    "module_names",
    "rare_collections",
    "to_rtlil",
    "to_verilog",
]

_MODULE = re.compile(r"^module \\(\S+)$", re.M)
_CELL = re.compile(r"^  cell \\(\S+) \\(\S+)$", re.M)
_INSTANCE = re.compile(r"^  cell \\(\S+) \\(\S+)\n((?:    .*\n)*)  end\n", re.M)
_CONNECT = re.compile(r"^    connect \\(\S+) ", re.M)
_NAMELESS = re.compile(r"\\(port\$\d+\$\d+)(?!\S)")
_PORT = re.compile(r"^  wire width (\d+) (input|output) \d+ +\\(\S+)$", re.M)
_NUMBER = re.compile(r"\$\d+(?=\.|$)")
_WIRE = re.compile(r"^  wire width (\d+) (?:(?:input|output) \d+ +)?\\(\S+)$", re.M)
_SOURCE = re.compile(r'^ *attribute \\src "(.*)"\n', re.M)
_MEMORY = re.compile(r"^  memory width (\d+) size (\d+) \\(\S+)$", re.M)


def _bits(value):
    return value.as_value() if isinstance(value, ValueCastable) else value


class Placed(wiring.Component):
    """Instance of a library module: the ports of the component it stands for, nothing inside."""

    def __init__(self, module, signature, domains):
        super().__init__(signature)
        self._module, self._domains = module, domains

    def elaborate(self, platform):
        ports = {}
        for domain, (clock, reset) in self._domains.items():
            ports |= {f"i_{clock}": ClockSignal(domain), f"i_{reset}": ResetSignal(domain)}
        for path, member, value in self.signature.flatten(self):
            flow = "i" if member.flow == wiring.In else "o"
            ports[f"{flow}_{'__'.join(map(str, path))}"] = _bits(value)
        return Instance(self._module, **ports)


class ModuleLibrary:
    """Components that are written as modules of their own, each once.

    ``place(name, make)`` returns a component to put into ``m.submodules``; ``make()`` builds the
    real one, at the first call for ``name``. ``rtlil`` holds the text of each module tree,
    ``components`` who they are; ``source``: see :func:`to_rtlil`.
    """

    def __init__(self, source=False):
        self.rtlil, self.components = {}, {}
        self._known, self._source = {}, source

    def place(self, name, make):
        if name not in self._known:
            component = make()
            self.rtlil[name] = to_rtlil(component, name, self.components, self._source)
            ports = _PORT.findall(
                self.rtlil[name].split("\nmodule \\" + name + "\n")[1].split("\nend\n")[0]
            )
            names = {port for _, _, port in ports}
            domains = {domain: pins for domain, pins in CLOCKS.items() if pins[0] in names}
            self._known[name] = (component.signature, domains)
        return Placed(name, *self._known[name])


@contextmanager
def rare_collections():
    """For a conversion by Amaranth: its netlist is millions of objects that all live to the end.
    Looking through them for garbage as often as Python does takes a third of the time; never to
    look takes twice the memory of a large hub."""
    usual = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def to_rtlil(component, name, components=None, source=False):
    """RTLIL of a component and what is below it, equal modules once; module names have letters,
    digits and ``_`` only.

    ``components``: a dictionary to be filled, {module: its component's class}. ``source``: modules,
    signals and cells say which line of the source they are from, as ``hub_rtl/parts/ram.py:66``.
    """
    with rare_collections():
        design = _design(component, name)
        text, _ = rtlil.convert_fragment(design, name=name, emit_src=source)
    text = _SOURCE.sub(_from_package, text)
    plain = _plain_names(_MODULE.findall(text))
    text = _MODULE.sub(lambda match: f"module \\{plain[match[1]]}", text)
    text = _CELL.sub(
        lambda match: (
            f"  cell \\{plain.get(match[1], match[1])} \\{re.sub(r'[^A-Za-z0-9_]', '_', match[2])}"
        ),
        text,
    )
    text = _merge_equal(text, name)
    if components is not None:
        kept = set(module_names(text))
        for fragment, placed in design.fragments.items():
            module = plain.get(".".join(placed.name))
            if module in kept and fragment.origins:
                components[module] = type(fragment.origins[0])
    return text


def _design(component, name):
    """As Amaranth's back end makes it of a component's signature."""
    ports = {}
    for path, member, value in component.signature.flatten(component):
        way = PortDirection.Input if member.flow == wiring.In else PortDirection.Output
        ports["__".join(map(str, path))] = (_bits(value), way)
    return Fragment.get(component, None).prepare(ports=ports, hierarchy=(name,))


def _plain_names(modules):
    """{module's name in Amaranth: in Verilog}. The number of one that is called as a signal beside
    it is left out where one word is left to one module."""
    plain = {}
    for module in modules:
        short = re.sub(r"\W", "_", _NUMBER.sub("", module))
        plain[module] = re.sub(r"\W", "_", module) if short in plain.values() else short
    if len(set(plain.values())) != len(plain):
        raise ValueError(f"{modules[0]}: two modules would get one name")
    return plain


def _from_package(attribute):
    """The attribute with a path from the package's folder on; none for a file outside."""
    # The longer one first: the libraries may be installed inside the repository.
    roots = sorted(
        (Path(each.__file__).parents[1] for each in (hub_rtl, amaranth)), key=lambda p: len(p.parts)
    )
    places = []
    for place in map(Path, attribute[1].split("|")):
        root = next((root for root in reversed(roots) if place.is_relative_to(root)), None)
        places += [place.relative_to(root).as_posix()] if root else []
    return attribute[0].replace(attribute[1], "|".join(places)) if places else ""


def _merge_equal(text, top):
    """Modules that differ only in their names (and in those of merged children) are kept once,
    under the first one's name.

    Ports that carry no name of their own are numbered over the whole design by Amaranth; here they
    are numbered per module.
    """
    head, *parts = re.split(r'^(?=attribute \\generator "Amaranth"$)', text, flags=re.M)
    bodies = {_MODULE.search(part)[1]: part for part in parts}
    kept, known, renamed, out = {}, {}, {}, []

    def instance(match):
        kind, name, connections = match.groups()
        if kind not in kept:
            return match[0]
        names = renamed[kept[kind], kind]
        connections = _CONNECT.sub(lambda c: f"    connect \\{names.get(c[1], c[1])} ", connections)
        return f"  cell \\{kept[kind]} \\{name}\n{connections}  end\n"

    def visit(module):
        if module in kept:
            return
        body = bodies[module]
        for child in dict.fromkeys(kind for kind, _ in _CELL.findall(body) if kind in bodies):
            visit(child)
        body = _INSTANCE.sub(instance, body)
        names = {name: f"port_{n}" for n, name in enumerate(dict.fromkeys(_NAMELESS.findall(body)))}
        body = _NAMELESS.sub(lambda match: "\\" + names[match[1]], body)
        alike = _SOURCE.sub("", _MODULE.sub("module", body))
        kept[module] = known.setdefault(alike, module)
        renamed[kept[module], module] = names
        if kept[module] == module:
            out.append(body)

    visit(top)
    return head + "".join(out)


def to_verilog(texts, source=False):
    """Verilog of RTLIL texts, one after the other. ``source``: with the attributes that say where
    in the source something is from."""
    # The pinned Amaranth's own calls of Yosys: `amaranth.back.verilog.convert` has the same passes.
    if not source:
        return verilog._convert_rtlil_text("\n".join(texts), strip_internal_attrs=True)
    removed = ("generator", "top", "amaranth.hierarchy", "amaranth.decoding")
    text = re.sub(rf"^ *attribute \\({'|'.join(removed)}) .*\n", "", "\n".join(texts), flags=re.M)
    return verilog._convert_rtlil_text(text)


def module_names(text):
    """Names of the modules in an RTLIL text."""
    return _MODULE.findall(text)


def memories(texts, top):
    """Every memory below ``top``: [{path, module, depth, width, granules, cleared, collision}].

    The wrapper :class:`~hub_rtl.parts.ram.Ram` is known by the names in it; other memories are the
    storage of queues, which never read the word that is being written; the users of a wrapper
    without bypass do not either, or do not use what they get. ``cleared``: a walker writes 0 to
    every word after reset.
    """
    modules = {}
    for text in texts:
        for part in re.split(r"^(?=module )", text, flags=re.M)[1:]:
            modules[_MODULE.match(part)[1]] = (
                _CELL.findall(part),
                {n: int(w) for w, n in _WIRE.findall(part)},
                _MEMORY.findall(part),
            )
    found = []

    def walk(module, path):
        cells, wires, words = modules[module]
        for width, depth, name in words:
            ram = name == "memory"
            found.append(
                {
                    "path": path if ram else f"{path}.{name}",
                    "module": module,
                    "depth": int(depth),
                    "width": int(width),
                    "granules": wires["write__en"] if ram else 1,
                    **({"clocks": 2} if {"clk", "link_clk"} <= set(wires) else {}),
                    "cleared": ram and "walk" in wires,
                    "collision": "new data, by a bypass outside the memory"
                    if "kept" in wires
                    else "not used",
                }
            )
        for cell, name in cells:
            if cell in modules:
                walk(cell, f"{path}.{name}")

    walk(top, top)
    return found
