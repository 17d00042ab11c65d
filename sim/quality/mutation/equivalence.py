# SPDX-License-Identifier: Apache-2.0
"""Proofs that a mutant does the same as the unmutated design: no input, ever, makes one output bit
differ.

Inputs are free: nothing is assumed of the surroundings. Both start as the simulation does, memories
and registers without a reset at 0. What differs (:mod:`.miter`) goes to ABC: whether any step may
differ that starts alike, bounded search for a difference, signal correspondence, then
property-directed reachability.

Large memories are cut out first: what both write and where they look is compared, what they read is
free and the same. Where all that is equal, so is what the memories hold; a difference there proves
nothing.
"""

import re
import resource
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from .miter import Miter
from .netlist import SELECT, WRITE, yosys

__all__ = ["Prover", "abc", "constant_zero"]

SEARCH_SECONDS = 1
PROVE_SECONDS = 5
STEP_SECONDS = 40  # of the processor, at most, for one call of ABC
LARGE = 2000  # bits of a memory that is cut out
_MEMORY = re.compile(r"^  reg (?:\[(\d+):0\] )?\\?(\S+) +\[(\d+):0\];$", re.M)
QUICK, STRONG = "&get; &scorr; &put", "scorr"  # which decides more, and takes thirty times as long


class Prover:
    """Decides mutants of ``netlist`` (:class:`.netlist.Mutated`), one or in several threads; files
    go beside its own.

    ``strobes``: outputs whose bit 0 says that the others count.
    """

    def __init__(self, netlist, strobes=()):
        self._folder = netlist.aiger.parent
        self._whole = Miter(netlist.aiger, SELECT, strobes)
        cut = _without_memories(self._folder, netlist.verilog)
        self._cut = Miter(cut, SELECT, strobes) if cut else None
        self._writing = Lock()  # a Miter has one graph for all mutants

    def decide(self, number):
        """``"equivalent"``, ``"different"`` (some input shows it), or ``"open"``."""
        with TemporaryDirectory(dir=self._folder) as folder:
            return self._decide(number, Path(folder) / "miter.aig")

    def _decide(self, number, path):
        def written(write):
            with self._writing:
                return write(number, path)

        if not written(self._whole.write_step) or "UNSATISFIABLE" in self._run(path, "dsat"):
            return "equivalent"
        if self._cut is not None and (
            not written(self._cut.write) or self._proved(path, QUICK, STRONG) == "equivalent"
        ):
            return "equivalent"
        if not written(self._whole.write):
            return "equivalent"
        found = self._run(path, f"bmc3 -T {SEARCH_SECONDS} -F 200")
        if "was asserted" in found:
            return "different"
        if self._cut is not None:  # what STRONG could say was asked of the smaller circuit
            return self._proved(path, QUICK)
        return self._proved(path, QUICK, STRONG)

    def _proved(self, path, *correspondences):
        """What these and reachability say of a circuit."""
        for step, commands in enumerate(correspondences):
            small = path.with_name(f"small_{step}.aig")
            small.unlink(missing_ok=True)
            self._run(path, f"{commands}; write_aiger {small.name}")
            if small.exists():
                path = small
            said = self._run(path, f"pdr -T {PROVE_SECONDS}")
            if "was asserted" in said:
                return "different"
            # `pdr` does not decide an output that is already constant.
            if "Property proved" in said or constant_zero(path):
                return "equivalent"
        return "open"

    @staticmethod
    def _run(path, commands):
        return abc(path.parent, f"read_aiger {path.name}; {commands}", STEP_SECONDS)


def abc(folder, commands, seconds):
    """What ABC says to commands in a folder; nothing more when it takes more seconds of the
    processor."""
    import pyosys

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    return subprocess.run(
        [Path(pyosys.__file__).parent / "yosys-abc", "-q", commands],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=limit,
    ).stdout


def _without_memories(folder, verilog):
    """AIGER file of the netlist whose large memories are ports; None if it has none."""
    large = [
        name
        for high, name, last in _MEMORY.findall(verilog)
        if (int(high or 0) + 1) * (int(last) + 1) >= LARGE
    ]
    if not large:
        return None
    yosys(
        folder,
        "cut",
        "read_verilog core.v",
        "proc -norom",
        "memory_collect",
        "opt_clean",
        *(f"expose -evert c:{name}" for name in large),
        *WRITE[WRITE.index("memory_map") : -1],
        "write_aiger -ascii -zinit -symbols cut.aag",
    )
    return folder / "cut.aag"


def constant_zero(path):
    """An AIGER file has neither gates nor registers, and its only output is constant 0."""
    head, output = path.read_bytes().split(b"\n")[:2]
    _, _, _, registers, _, gates = head.split()[:6]
    return registers == gates == output == b"0"
