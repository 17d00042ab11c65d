# SPDX-License-Identifier: Apache-2.0
"""The gate of a mutant in another design that has the same part: that a check may be asked for it.

A gate is known by its kind, the lines of source that made it, and its place among those of its
module that are alike in both; in parts that many blocks share also by the name of the instance and
by the file that it is in, unless the check is of the part itself. That of a register is the cell
that writes it. What Yosys made later, from several gates, is in no other design.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from .netlist import SOURCE, yosys

__all__ = ["Design", "Gate", "as_written", "designs", "gate"]

_CHUNK = re.compile(r"(\S+)(?: \[(\d+)(?::(\d+))?\])?")
_CONSTANT = re.compile(r"(\d+)'")


@dataclass(frozen=True)
class Cell:
    """``sources``: lines of the project that made it; ``pins``: {port: what is connected}."""

    name: str
    kind: str
    sources: tuple
    pins: dict = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Gate:
    """What is changed: ``cell``, the ``place`` of ``alike`` of its module, at bit ``bit`` of
    ``port``; ``mode`` and ``control`` as Yosys' ``mutate`` has them."""

    cell: Cell
    instance: tuple | None
    place: int
    alike: int
    port: str
    bit: int
    mode: str
    control: int | None


class Design:
    """Cells of a design in RTLIL after ``proc``, module by module."""

    def __init__(self, text):
        self.cells, self._widths = {}, {}  # {module: {name: Cell}}, {module: {wire: bits}}
        sources, cells, widths, cell = (), {}, {}, None
        for line in text.splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "module":
                cells, widths = self.cells.setdefault(rest, {}), self._widths.setdefault(rest, {})
            elif word == "attribute" and rest.startswith("\\src "):
                given = rest.split('"')[1].split("|")
                sources = tuple(sorted(SOURCE.sub(r"\1", each) for each in given))
            elif word == "cell":
                kind, name = rest.split()
                cells[name] = cell = Cell(name, kind, sources)
                sources = ()
            elif word == "wire":
                words = rest.split()
                widths[words[-1]] = int(words[words.index("width") + 1]) if "width" in words else 1
                sources = ()
            elif word == "connect" and line.startswith("    "):
                port, _, signal = rest.partition(" ")
                cell.pins[port] = signal

    def bits(self, module, signal):
        """``[(wire, bit)]`` of a connection, its lowest first; of constants the wire is ""."""
        found, widths = [], self._widths[module]
        inner = signal[1:-1] if signal.startswith("{") else signal
        for wire, high, low in reversed(_CHUNK.findall(inner.strip())):
            if constant := _CONSTANT.match(wire):
                found += [("", bit) for bit in range(int(constant[1]))]
            elif high:
                found += [(wire, bit) for bit in range(int(low or high), int(high) + 1)]
            else:
                found += [(wire, bit) for bit in range(widths[wire])]
        return found

    def alike(self, module, cell):
        """The cells of a module that are of the kind and the source of ``cell``, in order."""
        return [each for each in self.cells[module].values() if _kin(each) == _kin(cell)]

    def place(self, gate):
        """``(module, cell name)`` of this gate here, the first of several copies of its block;
        None when there is none, or when it is not clear which instance of a shared part it is."""
        shared, found = _shared(gate.cell), []
        for module in self.cells:
            alike = self.alike(module, gate.cell)
            known = (
                not shared or self.instance(module) in (None, gate.instance) or not gate.instance
            )
            if known and len(alike) == gate.alike:
                cell = alike[gate.place]
                if max(gate.bit, gate.control or 0) < len(self.bits(module, cell.pins[gate.port])):
                    found.append((module, cell.name))
        return None if not found or shared and len(found) > 1 else found[0]

    def instance(self, module):
        """``(name, file)`` of a module: how it is called, and the file of the block in which; None
        when it is in no block, but itself what a check is about."""
        outer, _, name = module.rpartition(".")
        while outer:
            files = Counter(
                source.partition(":")[0]
                for cell in self.cells[outer].values()
                if not _shared(cell)
                for source in cell.sources
                if "/formal/" not in source
            )
            if files:
                return re.sub(r"\$\d+$", "", name), files.most_common(1)[0][0]
            outer = outer.rpartition(".")[0]
        return None

    def writer(self, module, wire, bit):
        """``(cell, bit of its output)`` of the register that is ``wire``, or None."""
        for cell in self.cells.get(module, {}).values():
            if "dff" in cell.kind and "\\Q" in cell.pins:
                bits = self.bits(module, cell.pins["\\Q"])
                if (wire, bit) in bits:
                    return cell, bits.index((wire, bit))
        return None


def as_written(folder, top):
    """The :class:`Design` in ``folder/design.il``; its text is in ``parts.il`` then."""
    steps = "read_rtlil design.il", f"hierarchy -top {top}", "proc", "write_rtlil parts.il"
    yosys(folder, "parts", *steps)
    return Design((folder / "parts.il").read_text())


def designs(netlist):
    """``(parts, flat)`` of a netlist (:class:`.netlist.Mutated`): its :class:`Design` as it is
    written, and the one that its mutants were drawn of."""
    folder = netlist.aiger.parent
    flat = Design((folder / "flat.il").read_text())
    (top,) = flat.cells
    return as_written(folder, top), flat


def gate(parts, flat, mutant):
    """The :class:`Gate` of a mutant of the netlist with these :func:`designs`, None when Yosys made
    it from others."""
    (top, cells), port = *flat.cells.items(), "\\" + mutant.port
    bit, control = mutant.bit, mutant.control
    if mutant.cell.startswith("$auto$"):
        cell = cells.get(mutant.cell)
        if not cell or "dff" not in cell.kind or port not in ("\\D", "\\Q"):
            return None
        wires = flat.bits(top, cell.pins["\\Q"])
        module, wire = _path(top, wires[bit][0])
        found = parts.writer(module, wire, wires[bit][1])
        if not found:
            return None
        cell, bit = found
        if control is not None:
            other = parts.writer(*_path(top, wires[control][0]), wires[control][1])
            if not other or other[0] is not cell:
                return None
            control = other[1]
    else:
        path, dot, name = mutant.cell.partition(".$")
        module, name = (f"{top}.{path}", f"${name}") if dot else (top, mutant.cell)
        cell = parts.cells.get(module, {}).get(name)
        if not cell:
            return None
    alike = parts.alike(module, cell)
    return Gate(
        cell, parts.instance(module), alike.index(cell), len(alike), port, bit, mutant.mode, control
    )


def _path(top, wire):
    """``(module, wire in it)`` of a wire of the flat design."""
    path, dot, name = wire.removeprefix("\\").rpartition(".")
    return (f"{top}.{path}" if dot else top), f"\\{name}" if dot else wire


def _kin(cell):
    return cell.kind, cell.sources


def _shared(cell):
    """All that made it is of parts that many blocks have."""
    return all(each.startswith(("hub_rtl/parts/", "amaranth/")) for each in cell.sources)
