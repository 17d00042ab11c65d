# SPDX-License-Identifier: Apache-2.0
"""The circuit in which a mutant differs from the unmutated design.

Both are cofactors of one and-inverter graph, by ``mutsel``. Registers that the mutation cannot
reach are found first and shared: all are, until their next state differs in structure; what is left
is proved by that induction. A payload counts while its valid is 1 only, as the contract of all
streams and AXI channels says; so do the fields of a strobe, a memory's address while it is read or
written, and the bits that are written into it.
"""

import heapq
import re
from collections import ChainMap, Counter
from itertools import zip_longest

__all__ = ["Miter"]


class Miter:
    """Differences between the unmutated design and a mutant in the ASCII AIGER file ``path``.

    ``select``: the input that chooses the mutant; ``strobes``: outputs whose bit 0 says that the
    others count.
    """

    def __init__(self, path, select, strobes=()):
        lines = path.read_text().splitlines()
        _, inputs, latches, outputs, ands = map(int, lines[0].split()[1:6])
        table = [
            tuple(map(int, line.split()))
            for line in lines[1 : 1 + inputs + latches + outputs + ands]
        ]
        self._inputs = [line[0] >> 1 for line in table[:inputs]]
        self._latches = {line[0] >> 1: line[1] for line in table[inputs : inputs + latches]}
        self._outputs = [line[0] for line in table[inputs + latches : inputs + latches + outputs]]
        self._ands = [(gate >> 1, a, b) for gate, a, b in table[inputs + latches + outputs :]]
        named = re.findall(r"^([io])(\d+) (.*)$", "\n".join(lines[1 + len(table) :]), re.M)
        names = {number: name for kind, number, name in named if kind == "i"}
        outs = {name: int(number) for kind, number, name in named if kind == "o"}
        widths = Counter(name.partition("[")[0] for name in outs)
        self._counts = {
            number: valid
            for name, number in outs.items()
            if (valid := [outs[one] for one in _valids(name, strobes, widths) if one in outs])
        }
        self._select = {}  # variable: bit of `mutsel`
        for index, variable in enumerate(self._inputs):
            if found := re.fullmatch(rf"{select}\[(\d+)\]", names.get(str(index), "")):
                self._select[variable] = int(found[1])
        self._readers = {}  # variable: places in `_ands`
        for place, (_, a, b) in enumerate(self._ands):
            for variable in {a >> 1, b >> 1}:
                self._readers.setdefault(variable, []).append(place)
        self._after = {}  # variable: registers whose next state it is
        for variable, after in self._latches.items():
            self._after.setdefault(after >> 1, []).append(variable)
        # The unmutated design in the graph of both: {variable: literal}.
        self._next, self._known, self._gates = 1, {}, {}
        self._plain = {0: 0} | {
            variable: 0 if variable in self._select else self._leaf() for variable in self._inputs
        }
        self._plain |= {variable: self._leaf() for variable in self._latches}
        for gate, a, b in self._ands:
            self._plain[gate] = self._and(_literal(self._plain, a), _literal(self._plain, b))
        self._twins = {}  # register: its literal in the mutant, where it is not shared

    def write_step(self, number, path):
        """Writes to ``path``, as binary AIGER, the circuit without registers whose only output is 1
        when, with the same contents of all registers, something differs that counts, or what a
        register holds next; whether it may."""
        plain, other = self._plain, self._changed(number)
        mutant = ChainMap(other, plain)
        after = (self._latches[register] for register in self._reached(other))
        moved = [self._xor(_literal(plain, each), _literal(mutant, each)) for each in after]
        bad = self._any([*self._differences(mutant), *moved])
        if bad != 0:
            path.write_bytes(self._circuit(bad, {}))
        return bad != 0

    def write(self, number, path):
        """Writes to ``path``, as binary AIGER, the circuit whose only output is 1 when something
        differs that counts; whether it may."""
        plain, other = self._plain, self._changed(number)
        apart = set()
        while reached := self._reached(other) - apart:
            apart |= reached
            for register in reached - self._twins.keys():
                self._twins[register] = self._leaf()
            self._spread(other, {register: self._twins[register] for register in reached})
        mutant = ChainMap(other, plain)
        bad = self._any(self._differences(mutant))
        if bad == 0:
            return False
        registers = {}
        for variable, after in self._latches.items():
            registers[plain[variable] >> 1] = _literal(plain, after)
            if variable in apart:
                registers[self._twins[variable] >> 1] = _literal(mutant, after)
        path.write_bytes(self._circuit(bad, registers))
        return True

    def _changed(self, number):
        """What is not as in ``_plain`` when the mutant is on and all registers are the same."""
        other = {}
        self._spread(
            other, {variable: 1 for variable, bit in self._select.items() if number >> bit & 1}
        )
        return other

    def _reached(self, other):
        """Registers whose next state is not the same."""
        return {register for variable in other for register in self._after.get(variable, ())}

    def _differences(self, mutant):
        """For each output whether it differs and counts."""
        plain, differences = self._plain, []
        for index, out in enumerate(self._outputs):
            differs = self._xor(_literal(plain, out), _literal(mutant, out))
            if index in self._counts:
                valids = [_literal(plain, self._outputs[one]) for one in self._counts[index]]
                differs = self._and(differs, self._any(valids))
            differences.append(differs)
        return differences

    def _leaf(self):
        self._next += 1
        return (self._next - 1) << 1

    def _and(self, a, b):
        if a > b:
            a, b = b, a
        if a == 0 or a == b ^ 1:
            return 0
        if a == 1 or a == b:
            return b
        if (a, b) not in self._known:
            self._known[a, b] = literal = self._leaf()
            self._gates[literal >> 1] = (a, b)
        return self._known[a, b]

    def _xor(self, a, b):
        return 1 ^ self._and(1 ^ self._and(a, 1 ^ b), 1 ^ self._and(1 ^ a, b))

    def _any(self, literals):
        """Their disjunction, as a tree."""
        while len(literals) > 1:
            pairs = zip_longest(literals[::2], literals[1::2], fillvalue=0)
            literals = [1 ^ self._and(1 ^ a, 1 ^ b) for a, b in pairs]
        return literals[0] if literals else 0

    def _spread(self, other, changes):
        """Adds to ``other`` the changes and what follows from them; the gates are in an order in
        which inputs come first."""
        plain, both = self._plain, ChainMap(other, self._plain)
        heap = []
        other |= changes
        waiting = set()

        def wake(variable):
            for place in self._readers.get(variable, ()):
                if place not in waiting:
                    waiting.add(place)
                    heapq.heappush(heap, place)

        for variable in changes:
            wake(variable)
        while heap:
            place = heapq.heappop(heap)
            waiting.discard(place)
            gate, a, b = self._ands[place]
            value = self._and(_literal(both, a), _literal(both, b))
            if value != both[gate]:
                if value == plain[gate]:
                    del other[gate]
                else:
                    other[gate] = value
                wake(gate)

    def _circuit(self, bad, registers):
        """Binary AIGER of what the literal ``bad`` depends on."""
        gates = self._gates
        seen, todo = set(), [bad >> 1]
        while todo:
            node = todo.pop()
            if node in seen or node == 0:
                continue
            seen.add(node)
            todo += [
                literal >> 1
                for literal in gates.get(node, (registers[node],) if node in registers else ())
            ]
        used = sorted(seen)
        inputs = [node for node in used if node not in gates and node not in registers]
        latches = [node for node in used if node in registers]
        ands = [node for node in used if node in gates]
        number = {0: 0} | {node: n for n, node in enumerate([*inputs, *latches, *ands], 1)}

        def literal(old):
            return number[old >> 1] << 1 | old & 1

        out = [f"aig {len(used)} {len(inputs)} {len(latches)} 1 {len(ands)}"]
        out += [str(literal(registers[node])) for node in latches] + [str(literal(bad))]
        data = bytearray("\n".join(out).encode() + b"\n")
        for node in ands:
            high, low = sorted(map(literal, gates[node]), reverse=True)
            for delta in (2 * number[node] - high, high - low):
                while delta > 0x7F:
                    data.append(delta & 0x7F | 0x80)
                    delta >>= 7
                data.append(delta)
        return data


def _valids(name, strobes, widths):
    """Names of outputs: the output bit ``name`` counts while one of them is 1, or always if there
    are none. ``widths``: bits of each output."""
    port, _, bit = name.partition("[")
    if port in strobes and bit != "0]":
        return [f"{port}[0]"]
    if port.endswith("__payload"):
        return [port.replace("__payload", "__valid")]
    if port.endswith(".WR_DATA"):
        return [name.replace(".WR_DATA", ".WR_EN")]
    if port.endswith((".RD_ADDR", ".WR_ADDR")):
        enable = port.replace("_ADDR", "_EN")
        return [enable, *(f"{enable}[{bit}]" for bit in range(widths[enable]))]
    channel = re.match(r"(.*__(?:aw|ar|w|r|b))(?!valid|ready)[a-z]+$", port)
    return [f"{channel[1]}valid"] if channel else []


def _literal(values, literal):
    return values[literal >> 1] ^ literal & 1
