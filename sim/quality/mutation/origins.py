# SPDX-License-Identifier: Apache-2.0
"""Which gate of the source a mutant of a netlist is: proved, for Yosys merges gates, drops readers
and moves what holds a register into its enable.

The source with the gate changed is made into a netlist like the other one; both together go to ABC.
Between resets only: no check has one. What memories read is free and the same in both, as
:mod:`.equivalence` has it for the large ones; what they are told must be the same.
"""

from .equivalence import abc, constant_zero
from .gates import designs, gates
from .netlist import READ, yosys

__all__ = ["Origins"]

SECONDS = 120  # of the processor, at most, for ABC
FLAT = READ.partition("flatten\n")[2].splitlines()  # what a netlist went through


class Origins:
    """Gates of the mutants of ``netlist`` (:class:`.netlist.Mutated`); files go into a folder
    beside its own."""

    def __init__(self, netlist):
        self._folder = netlist.aiger.parent / "origins"
        self._folder.mkdir(exist_ok=True)
        self._parts, self._flat = designs(netlist)
        (self._top,) = self._flat.cells

    def gates(self, mutant):
        """What the mutant may be as it is written (:func:`.gates.gates`)."""
        return gates(self._parts, self._flat, mutant)

    def proved(self, gate, mutant):
        """The change of this gate is the mutant."""
        changes = self._parts.changes(gate, (gate.module, gate.cell.name))
        if not changes:
            return False
        control = "" if mutant.control is None else f" -ctrlbit {mutant.control}"
        yosys(
            self._folder,
            "same",
            "read_rtlil ../parts.il",
            *changes,
            f"flatten {self._top}",
            f"hierarchy -top {self._top}",
            *FLAT,
            f"rename {self._top} written",
            "expose -evert t:$mem_v2",
            "opt_clean",
            "design -stash written",
            "read_rtlil ../flat.il",
            "setattr -unset init w:*",  # all are 0
            f"mutate -mode {mutant.mode} -module {self._top} -cell {_flat(mutant.cell)} "
            f"-port {mutant.port} -portbit {mutant.bit}{control}",
            f"rename {self._top} netlist",
            "expose -evert t:$mem_v2",
            "opt_clean",
            "design -stash netlist",
            "design -copy-from written written",
            "design -copy-from netlist netlist",
            "miter -equiv -flatten written netlist miter",
            "hierarchy -top miter",
            "delete -port miter/in_*rst",
            "setundef -zero -undriven miter",
            "setattr -unset init w:*",
            "zinit -all",
            "setundef -zero",
            "techmap",
            "opt_clean",
            "dffunmap",
            "aigmap",
            "write_aiger -zinit same.aig",
        )
        small = self._folder / "small.aig"
        small.unlink(missing_ok=True)
        steps = "read_aiger same.aig; &get; &scorr; &put; scorr; write_aiger small.aig"
        abc(self._folder, steps, SECONDS)
        return small.exists() and constant_zero(small)


def _flat(cell):
    """A mutant's cell as Yosys calls it."""
    path, dot, name = cell.partition(".$")
    places = "".join("\\" + each + "." for each in path.split("."))
    return f"$flatten{places}${name}" if dot else cell
