# SPDX-License-Identifier: Apache-2.0
"""Names that a reader knows, for the Verilog of a hub: a pass over its RTLIL, and comments.

Amaranth names a port of an inner module only if it is a whole signal; the field of a record, or an
expression, is ``port_3`` or ``$12``. Here such a port gets the name of the field, of the signals
that are made of it, ``record__17_1`` if it is bits 17 to 1 of a record, or the name of what it is
inside an inner module, or outside. An expression that is a signal gets the signal's name, and what
a register takes next is ``register__next``. Only names change: the gates stay, and what connects
them.
"""

import inspect
import re
import textwrap

__all__ = ["about", "commented", "readable", "without_numbers"]

_MODULES = re.compile(r"^(?=module )", re.M)
_WIRE = re.compile(r"^  wire width (\d+) (?:(input|output) \d+ +)?(\S+)$", re.M)
_WIRE_BLOCK = re.compile(r"^(?:  attribute .*\n)*  wire width \d+ (\S+)\n\n?", re.M)
_INIT = re.compile(r"^  attribute \\init \S+\n(?:  attribute .*\n)*  wire .*?(\S+)$", re.M)
_START = re.compile(r"^  attribute \\init .*\n", re.M)
_ALIAS = re.compile(r"^connect (\\\S+) (.+)$", re.M)
_CELL = re.compile(r"^  cell (\S+) (\S+)\n((?:    .*\n)*)  end$", re.M)
_PIN = re.compile(r"^    connect (\\\S+) (.*)$", re.M)
_PART = re.compile(r"[\\$]\S+ \[(\d+)(?::(\d+))?\]|(\d+)'\S+")
_SLICE = re.compile(r"([\\$]\S+) \[(?:(\d+):)?(\d+)\]")
_NAMELESS = re.compile(r"\\port_\d+")
_BACK_END = re.compile(r"(\\\$auto\$[\w.]+:\d+:(\w+)\$\d+ )")
# A signal of the module, but where it is the name of a cell's pin.
_SIGNAL = re.compile(r"(?<!\n    connect )(?<!\S)[\\$]\S+")


def _private(name):
    return name.startswith(("$", "\\$")) or bool(_NAMELESS.fullmatch(name))


def _identifier(name):
    """`\\a.b[0]` of RTLIL is `a__b_0`."""
    return re.sub(r"\W+", "_", name[1:].replace(".", "__")).strip("_")


def _bits(high, low):
    return f"{high}_{low}" if high > low else f"{low}"


def _place(net, whole):
    """(highest, lowest) bit of a net in a concatenation, or None if it is not one of its parts."""
    at = 0
    for part in reversed(list(_PART.finditer(whole))):
        high, low, constant = part.groups()
        width = int(constant or int(high) - int(low or high) + 1)
        if part[0] == net:
            return at + width - 1, at
        at += width
    return None


class _Module:
    """One module of RTLIL. ``known``: the modules so far by their names, the inner ones of this one
    among them."""

    def __init__(self, text, known):
        self.text, self.known = text, known
        known[text.split(None, 2)[1]] = self
        self.wires = {name: (int(width), way) for width, way, name in _WIRE.findall(text)}
        self.initial = set(_INIT.findall(text))
        self.aliases = _ALIAS.findall(text)
        self.connected = {left for left, _ in self.aliases}
        self.cells = [(kind, name, _PIN.findall(body)) for kind, name, body in _CELL.findall(text)]
        self.taken = set(re.findall(r"(?<=[\\])\S+", text))
        # New names; wires that are no longer there, connections that are no longer needed.
        self.names, self.gone, self.idle = {}, set(), set()

    def whole(self, name):
        """All bits of a signal, as RTLIL says it behind a signal that they drive."""
        high = self.wires[name][0] - 1
        return f"{name} [{high}:0]" if high else f"{name} [0]"

    def name(self, old, wanted):
        """Gives a signal the name that is wanted, with a number behind it if that is taken."""
        free, number = wanted, 1
        while free in self.taken:
            free, number = f"{wanted}_{number}", number + 1
        self.taken.add(free)
        self.names[old] = f"\\{free}"

    def nameless(self):
        """Ports without a name: [(port, direction)]."""
        return [
            (port, way)
            for port, (_, way) in self.wires.items()
            if way and _NAMELESS.fullmatch(port) and port not in self.names
        ]

    def pin(self, kind, pin):
        """The name that a cell's pin has now."""
        return self.known[kind].names.get(pin, pin) if kind in self.known else pin

    def name_ports(self):
        """By what the module knows of them."""
        for port, way in self.nameless():
            nets = {right for left, right in self.aliases if left == port} | {self.whole(port)}
            parts = self.known_in_parts(port)
            wanted = self.known_here(nets) or self.known_inside(nets, way)
            if wanted or 0 < len(parts) <= 3:
                self.name(port, wanted or "__".join(parts))

    def name_inner_ports(self):
        """Those of inner modules by what is connected to them."""
        for kind, _, pins in self.cells:
            for port, _ in self.known[kind].nameless() if kind in self.known else ():
                wanted = self.known_here({dict(pins)[port]})
                if wanted:
                    self.known[kind].name(port, wanted)

    def known_here(self, nets):
        """What the module calls these bits: a signal rather than a field, a field rather than bits
        of a record."""
        known = [(left, right) for left, right in self.aliases if not _private(left)]
        same = [left for left, right in known if right in nets]
        if same:
            return _identifier(min(same, key=lambda left: (left.count("."), left.count("$"))))
        for left, right in known:
            for place in filter(None, (_place(net, right) for net in sorted(nets))):
                return f"{_identifier(left)}__{_bits(*place)}"
        for net in sorted(nets):
            signal, bits = re.fullmatch(r"(\S+) \[([\d:]+)\]|.*", net).groups()
            if signal and not _private(signal):
                return f"{_identifier(signal)}__{bits.replace(':', '_')}"
        return None

    def name_rest(self):
        """Those of many parts, which nobody has as one."""
        for port, _ in self.nameless():
            parts = self.known_in_parts(port)
            if parts:
                self.name(port, f"{parts[0]}__to__{parts[-1]}")

    def known_in_parts(self, port):
        """The signals that are made of nothing but its bits, lowest first."""
        made = []
        for left, right in self.aliases:
            parts = _SLICE.findall(right)
            if parts and not _private(left) and {signal for signal, _, _ in parts} == {port}:
                low = min(int(low) for _, _, low in parts)
                high = max(int(high or low) for _, high, low in parts)
                made.append((low, -high, left.count("$"), left.count("."), left))
        names, covered = [], -1
        for low, high, _, _, left in sorted(made):
            if low > covered:
                names.append(_identifier(left))
                covered = -high
        return names

    def known_inside(self, nets, way):
        """What an inner module calls them."""
        for kind, cell, pins in self.cells:
            for pin, right in pins:
                name = self.pin(kind, pin)
                if kind in self.known and right in nets and not _NAMELESS.fullmatch(name):
                    return name[1:] if way == "input" else f"{cell[1:]}__{name[1:]}"
        return None

    def name_expressions(self):
        """An expression that is a signal; what a register takes next."""
        for name, (width, way) in self.wires.items():
            if not way and _private(name):
                same = [left for left, right in self.aliases if right == self.whole(name)]
                same = [
                    left
                    for left in same
                    if self.wires[left][0] == width
                    and left not in self.initial
                    and not (_private(left) and left not in self.names)
                ]
                if same:
                    left = min(same, key=lambda left: (not self.wires[left][1], left.count(".")))
                    self.names[name] = self.names.get(left, left)
                    self.gone.add(name)
                    self.idle.add(f"connect {left} {self.whole(name)}")
        for kind, _, pins in self.cells:
            pins = dict(pins)
            if kind.startswith(("$dff", "$adff", "$sdff")):
                taken, register = pins["\\D"].partition(" ")[0], pins["\\Q"].partition(" ")[0]
                register = self.names.get(register, register)
                if (
                    taken in self.wires
                    and taken not in self.names
                    and _private(taken)
                    and not _private(register)
                    and pins["\\D"] == self.whole(taken)
                ):
                    self.name(taken, f"{register[1:]}__next")

    def kept(self, wire):
        """A wire, unless another one has its place. One that is connected to a register does not
        say for itself how that one starts: Icarus knows no such attribute of more than 63 bits."""
        if wire[1] in self.gone:
            return ""
        return _START.sub("", wire[0]) if wire[1] in self.connected else wire[0]

    def renamed(self):
        """The text with the new names, those of inner modules' ports too."""

        def cell(match):
            pins = _PIN.sub(lambda p: f"    connect {self.pin(match[1], p[1])} {p[2]}", match[3])
            return f"  cell {match[1]} {match[2]}\n{pins}  end"

        text = _CELL.sub(cell, _WIRE_BLOCK.sub(self.kept, self.text))
        text = _ALIAS.sub(lambda match: "" if match[0] in self.idle else match[0], text)
        return _SIGNAL.sub(lambda match: self.names.get(match[0], match[0]), text)


def readable(texts):
    """RTLIL texts with names for a reader; each has the inner modules of a module before it."""
    known, split = {}, []
    for text in texts:
        head, *parts = _MODULES.split(text)
        split.append((head, [_Module(part, known) for part in parts]))
    for module in known.values():
        module.name_ports()
    for module in reversed(known.values()):
        module.name_inner_ports()
    for module in known.values():
        module.name_rest()
        module.name_expressions()
    return ["".join([head, *(module.renamed() for module in parts)]) for head, parts in split]


def about(component):
    """A component's class, and the first sentence of what it says of itself."""
    text = " ".join(inspect.cleandoc(component.__doc__ or "").partition("\n\n")[0].split())
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "").replace("→", "->")
    first = re.split(r"(?<=[.?!]) (?=[A-Z])", text)[0]
    return f"{component.__module__}.{component.__qualname__}: {first}"


def commented(verilog, texts):
    """Verilog with comments above its modules; ``texts``: {module: comment}."""

    def comment(match):
        if match[2] not in texts:
            return match[0]
        lines = textwrap.wrap(texts[match[2]], 97, break_long_words=False, break_on_hyphens=False)
        return "".join(f"// {line}\n" for line in lines) + match[0]

    return re.sub(r"^((?:\(\* .* \*\)\n)*)module (\w+)\(", comment, verilog, flags=re.M)


def without_numbers(verilog):
    """Verilog without Yosys' own names, whose numbers change with every module before them: what it
    puts in each module, so that its processes run at the start, is ``at_start``, the others are
    ``$not_1`` and the like, counted in each module."""
    start = "at_start"
    while re.search(rf"\b{start}\b", verilog):
        start += "_"

    def renamed(module):
        names = {}
        for name, kind in _BACK_END.findall(module):
            alike = sum(known.startswith(f"\\${kind.lower()}_") for known in names.values())
            names.setdefault(
                name, start if kind == "dump_module" else f"\\${kind.lower()}_{alike + 1} "
            )
        return _BACK_END.sub(lambda match: names[match[1]], module)

    return "".join(map(renamed, _MODULES.split(verilog)))
