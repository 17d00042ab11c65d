# SPDX-License-Identifier: Apache-2.0
"""Proofs that a mutant does the same as the unmutated design: no input, ever, makes one output bit
differ.

Both are cofactors of one and-inverter graph, by ``mutsel``. Registers that the mutation cannot
reach are found first and shared (all are, until their next state differs in structure; what is left
is proved by that induction); the rest is a miter for ABC: bounded search for a difference, signal
correspondence, then property-directed reachability. Inputs are free: nothing is assumed of the
surroundings. Both start as the simulation does, memories and registers without a reset at 0. A
payload counts while its valid is 1 only, as the contract of all streams and AXI channels says; so
do the fields of a strobe.
"""

import heapq
import re
import resource
import subprocess
from collections import ChainMap
from pathlib import Path

__all__ = ["Prover"]

SEARCH_SECONDS = 1
PROVE_SECONDS = 5


class Prover:
    """Decides mutants of the netlist in the ASCII AIGER file ``path``; files go beside it.

    ``strobes``: outputs whose bit 0 says that the others count.
    """

    def __init__(self, path, select, strobes=()):
        import pyosys

        self._abc = Path(pyosys.__file__).parent / "yosys-abc"
        self._folder = path.parent
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
        self._counts = {
            number: outs[valid]
            for name, number in outs.items()
            if (valid := _valid(name, strobes)) in outs
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

    def decide(self, number):
        """``"equivalent"``, ``"different"`` (some input shows it), or ``"open"``."""
        plain = self._plain
        other = {}  # what is not as in `plain`
        self._spread(
            other, {variable: 1 for variable, bit in self._select.items() if number >> bit & 1}
        )
        apart = set()
        while True:
            reached = {
                register for variable in other for register in self._after.get(variable, ())
            } - apart
            if not reached:
                break
            apart |= reached
            for register in reached - self._twins.keys():
                self._twins[register] = self._leaf()
            self._spread(other, {register: self._twins[register] for register in reached})
        mutant = ChainMap(other, plain)
        bad = 0
        for index, out in enumerate(self._outputs):
            differs = self._xor(_literal(plain, out), _literal(mutant, out))
            if index in self._counts:
                differs = self._and(differs, _literal(plain, self._outputs[self._counts[index]]))
            bad = 1 ^ self._and(1 ^ bad, 1 ^ differs)
        if bad == 0:
            return "equivalent"
        registers = {}
        for variable, after in self._latches.items():
            registers[plain[variable] >> 1] = _literal(plain, after)
            if variable in apart:
                registers[self._twins[variable] >> 1] = _literal(mutant, after)
        return self._abc_verdict(self._write(bad, registers))

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

    def _write(self, bad, registers):
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
        path = self._folder / "miter.aig"
        path.write_bytes(data)
        return path

    def _abc_verdict(self, path):
        if "was asserted" in self._run(f"read_aiger {path.name}; bmc3 -T {SEARCH_SECONDS} -F 200"):
            return "different"
        small = path.with_name("small.aig")
        small.unlink(missing_ok=True)
        # Not `scorr`: it decides a few more, and takes thirty times as long.
        self._run(f"read_aiger {path.name}; &get; &scorr; &put; write_aiger {small.name}")
        left = small if small.exists() else path
        said = self._run(f"read_aiger {left.name}; print_stats; pdr -T {PROVE_SECONDS}")
        if "was asserted" in said:
            return "different"
        # `pdr` does not decide an output that is already constant.
        if (
            "Property proved" in said
            or re.search(r"lat = +0 +and = +0 ", said)
            and _constant_zero(left)
        ):
            return "equivalent"
        return "open"

    def _run(self, commands):
        """What ABC says; nothing more when it takes too much processor time."""

        def limit():
            seconds = 2 * (SEARCH_SECONDS + PROVE_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

        return subprocess.run(
            [self._abc, "-q", commands],
            cwd=self._folder,
            capture_output=True,
            text=True,
            preexec_fn=limit,
        ).stdout


def _valid(name, strobes):
    """Name of the output that says whether the output bit ``name`` counts; itself, or one that does
    not exist, if always."""
    port, _, bit = name.partition("[")
    if port in strobes and bit != "0]":
        return f"{port}[0]"
    if port.endswith("__payload"):
        return port.replace("__payload", "__valid")
    channel = re.match(r"(.*__(?:aw|ar|w|r|b))(?!valid|ready)[a-z]+$", port)
    return f"{channel[1]}valid" if channel else ""


def _constant_zero(path):
    """The only output of an AIGER file without gates and registers is constant 0."""
    return path.read_bytes().split(b"\n")[1] == b"0"


def _literal(values, literal):
    return values[literal >> 1] ^ literal & 1
