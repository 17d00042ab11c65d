# SPDX-License-Identifier: Apache-2.0
"""The gate of a mutant in another design that has the same part: that a check may be asked for it.

A gate is known by its kind, the lines of source that made it, and its place among those of its
module that are alike in both; in parts that many blocks share also by the name of the instance and
by the file that it is in, unless the check is of the part itself. That of a register is the cell
that writes it; of its data, where they come in behind its enable. What Yosys made of branches has
no line; it is known by the signal that they give a value to. What it made later, from several
gates, is in no other design; whether a gate still is what it was made from is proved
(:mod:`.origins`).
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from .netlist import SOURCE, yosys

__all__ = ["START", "Design", "Gate", "as_written", "designs", "gates"]

_CHUNK = re.compile(r"(\S+)(?: \[(\d+)(?::(\d+))?\])?")
_CONSTANT = re.compile(r"(\d+)'|-?\d+$")  # a number alone has 32 bits
_SIGNAL = r"(\{.*?\}|\S+(?: \[[\d:]+\])?)"
_TWO = re.compile(f"{_SIGNAL} {_SIGNAL}")
_OUTPUTS = "\\Y", "\\Q"
_BRANCH = "$procmux$"  # how cells are called that Yosys made of branches
START = "zinit -all"


@dataclass(frozen=True)
class Cell:
    """``sources``: lines of the project that made it, or the signal whose value it chooses;
    ``pins``: {port: what is connected}."""

    name: str
    kind: str
    sources: tuple
    pins: dict = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Gate:
    """What is changed: ``cell``, the ``place`` of ``alike`` of its module, at bit ``bit`` of
    ``port``; ``mode`` and ``control`` as Yosys' ``mutate`` has them. ``twins``: the others of its
    module that have the same inputs are changed, too: they are one gate in a netlist. ``held``: it
    is of a register that has an enable there."""

    module: str
    cell: Cell
    instance: tuple | None
    place: int
    alike: int
    twins: bool
    port: str
    bit: int
    mode: str
    control: int | None
    held: bool


class Design:
    """Cells of a design in RTLIL after ``proc``, module by module."""

    def __init__(self, text):
        self.cells, self._widths = {}, {}  # {module: {name: Cell}}, {module: {wire: bits}}
        self._joined = {}  # {module: [(wires, what they are connected to)]}
        self._roots = {}  # {module: {(wire, bit): the one that it is connected to}}
        self._drivers = {}  # {module: {(wire, bit): (cell, bit of its output)}}
        sources, cells, widths, joined, cell = (), {}, {}, [], None
        for line in text.splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "module":
                cells, widths = self.cells.setdefault(rest, {}), self._widths.setdefault(rest, {})
                joined = self._joined.setdefault(rest, [])
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
            elif word == "connect":
                joined.append(_TWO.fullmatch(rest).groups())
        for module, cells in self.cells.items():
            self._name_branches(module, cells)

    def _name_branches(self, module, cells):
        """Branches get what they give a value to as their source: a wire with a name, the register
        that takes it, or the lines of the gate that reads it."""
        goes, readers = {of: _wire(to) for to, of in self._joined[module]}, {}
        for cell in cells.values():
            if cell.name.startswith(_BRANCH):
                for signal in _inputs(cell).values():
                    for wire, *_ in _CHUNK.findall(signal.strip("{} ")):
                        goes.setdefault(wire, _wire(cell.pins["\\Y"]))
            elif "\\D" in cell.pins:
                goes.setdefault(_wire(cell.pins["\\D"]), _wire(cell.pins["\\Q"]))
            else:
                readers |= dict.fromkeys(map(_wire, _inputs(cell).values()), cell.sources)
        for name, cell in cells.items():
            if name.startswith(_BRANCH) and not cell.sources:
                wire, passed = _wire(cell.pins["\\Y"]), set()
                while not wire.startswith("\\") and wire in goes and wire not in passed:
                    passed.add(wire)
                    wire = goes[wire]
                known = (wire,) if wire.startswith("\\") else readers.get(wire, ())
                cells[name] = replace(cell, sources=known)

    def bits(self, module, signal):
        """``[(wire, bit)]`` of a connection, its lowest first; of constants the wire is ""."""
        found, widths = [], self._widths[module]
        inner = signal[1:-1] if signal.startswith("{") else signal
        for wire, high, low in reversed(_CHUNK.findall(inner.strip())):
            if constant := _CONSTANT.match(wire):
                found += [("", bit) for bit in range(int(constant[1] or 32))]
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

    def twins(self, module, cell):
        """The cells of a module with the kind and the inputs of ``cell``, itself among them."""
        return [
            each
            for each in self.cells[module].values()
            if each.kind == cell.kind and _inputs(each) == _inputs(cell)
        ]

    def changes(self, gate, place):
        """Yosys' commands for this gate's change at ``(module, cell name)``; none when data and
        their control bit come into a register at different cells."""
        module, name = place
        cell, commands = self.cells[module][name], []
        for each in self.twins(module, cell) if gate.twins else [cell]:
            places = [
                self._changed(module, each, bit, gate)
                for bit in (gate.bit, gate.control)
                if bit is not None
            ]
            if len({tuple(pin[:2] for pin in pins) for pins in places}) > 1:
                return []
            for (name, port, bit), *other in zip(*places, strict=True):
                control = f" -ctrlbit {other[0][2]}" if other else ""
                commands.append(
                    f"mutate -mode {gate.mode} -module {module} -cell {name} -port {port} "
                    f"-portbit {bit}{control}"
                )
        return commands

    def root(self, module, bit):
        """The bit ``(wire, number)`` that a bit is connected to in the end."""
        if module not in self._roots:
            roots = self._roots[module] = {}
            for to, of in self._joined.get(module, ()):
                roots |= zip(self.bits(module, to), self.bits(module, of), strict=True)
        while bit in self._roots[module]:
            bit = self._roots[module][bit]
        return bit

    def driver(self, module, bit):
        """``(cell, bit of its output)`` of what drives a bit, or None."""
        if module not in self._drivers:
            self._drivers[module] = {
                each: (cell, number)
                for cell in self.cells.get(module, {}).values()
                for port in (cell.pins.keys() & _OUTPUTS if cell.kind.startswith("$") else ())
                for number, each in enumerate(self.bits(module, cell.pins[port]))
            }
        return self._drivers[module].get(self.root(module, bit))

    def _changed(self, module, cell, bit, gate):
        """``(cell name, port, bit)`` of all that has to be changed. What holds a register reads its
        output: where that is inverted it is inverted there again, for an enable holds as ever."""
        if gate.port == "\\D":
            return [self.data(module, cell, bit)]
        held = gate.held and gate.port == "\\Q" and not gate.mode.startswith("const")
        return [(cell.name, gate.port, bit), *(self.held(module, cell, bit) if held else ())]

    def held(self, module, register, bit):
        """``(cell name, port, bit)`` of each multiplexer by which a bit of a register stays."""
        found, left = {}, [self.bits(module, register.pins["\\D"])[bit]]
        own = self.root(module, self.bits(module, register.pins["\\Q"])[bit])
        while left:
            driver = self.driver(module, left.pop())
            if driver and driver[0].kind == "$mux":
                cell, number = driver
                for port in ("\\A", "\\B"):
                    of = self.bits(module, cell.pins[port])[number]
                    if self.root(module, of) == own:
                        found[cell.name, port, number] = True
                    else:
                        left.append(of)
        return list(found)

    def data(self, module, register, bit):
        """``(cell name, port, bit)`` where a bit of a register's data comes in behind reset and
        enables: what keeps the register's own value, or the register."""
        found, to = (register.name, "\\D", bit), self.bits(module, register.pins["\\D"])[bit]
        own = self.bits(module, register.pins["\\Q"])[bit]
        while (driver := self.driver(module, to)) and driver[0].kind == "$mux":
            cell, number = driver
            low, high = (self.bits(module, cell.pins[port])[number] for port in ("\\A", "\\B"))
            (select,) = self.bits(module, cell.pins["\\S"])
            if self.root(module, low) == own:
                found, to = (cell.name, "\\B", number), high
            elif self.root(module, high) == own:
                found, to = (cell.name, "\\A", number), low
            elif self.root(module, select) == ("\\rst", 0):
                to = low
            else:
                break
        return found


def as_written(folder, top):
    """The :class:`Design` in ``folder/design.il``; its text is in ``parts.il`` then. As in a
    netlist all registers start at 0, by inverters where they have to; :data:`START` says so again
    when a register has been changed."""
    steps = (
        "read_rtlil design.il",
        f"hierarchy -top {top}",
        "proc -norom",
        START,
        "setattr -unset init w:*",
        "write_rtlil parts.il",
    )
    yosys(folder, "parts", *steps)
    return Design((folder / "parts.il").read_text())


def designs(netlist):
    """``(parts, flat)`` of a netlist (:class:`.netlist.Mutated`): its :class:`Design` as it is
    written, and the one that its mutants were drawn of."""
    folder = netlist.aiger.parent
    flat = Design((folder / "flat.il").read_text())
    (top,) = flat.cells
    return as_written(folder, top), flat


def gates(parts, flat, mutant):
    """Each :class:`Gate` that a mutant of the netlist with these :func:`designs` may be as it is
    written, the likelier first; none when Yosys made it from other gates."""
    (top, cells), port, control = *flat.cells.items(), "\\" + mutant.port, mutant.control
    held = False
    if mutant.cell.startswith("$auto$"):
        cell = cells.get(mutant.cell)
        if not cell or "dff" not in cell.kind or port not in ("\\D", "\\Q"):
            return []
        held, wires = "\\EN" in cell.pins, flat.bits(top, cell.pins["\\Q"])
        places = [_path(top, wires[bit]) for bit in (mutant.bit, control) if bit is not None]
        module, drivers = places[0][0], [parts.driver(*place) for place in places]
        if None in drivers or len({driver[0] for driver in drivers}) > 1:
            return []
        (cell, bit), *other = drivers
        control = other[0][1] if other else None
    else:
        path, dot, name = mutant.cell.partition(".$")
        module, name = (f"{top}.{path}", f"${name}") if dot else (top, mutant.cell)
        cell, bit = parts.cells.get(module, {}).get(name), mutant.bit
    if not cell or not cell.sources:
        return []
    alike = parts.alike(module, cell)
    where = module, cell, parts.instance(module), alike.index(cell), len(alike)
    return [
        Gate(*where, twins, port, bit, mutant.mode, control, held)
        for twins in (True, False)  # those that have any are most likely one gate now
        if not twins or len(parts.twins(module, cell)) > 1
    ]


def _path(top, bit):
    """``(module, bit in it)`` of a bit of the flat design."""
    path, dot, name = bit[0].removeprefix("\\").rpartition(".")
    return (f"{top}.{path}" if dot else top), (f"\\{name}" if dot else bit[0], bit[1])


def _wire(signal):
    """The wire of a connection to one wire, or to a part of it."""
    return signal.partition(" [")[0]


def _inputs(cell):
    return {port: signal for port, signal in cell.pins.items() if port not in _OUTPUTS}


def _kin(cell):
    return cell.kind, cell.sources


def _shared(cell):
    """All that made it is of parts that many blocks have, or has a name that many signals have."""
    return all(each.startswith(("hub_rtl/parts/", "amaranth/", "\\")) for each in cell.sources)
