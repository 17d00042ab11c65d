# SPDX-License-Identifier: Apache-2.0
"""Which check notices a mutant of meaning (:mod:`hub_rtl.parts.mutants`), its own or another's,
and which one notices a mutant of a block's netlist."""

import dataclasses
from pathlib import Path

from amaranth import Signal
from amaranth.back import rtlil

from flow.kept import digest
from hub_rtl.parts.mutants import selectable
from sim.quality.mutation import gates, origins
from sim.quality.mutation.gates import START, as_written
from sim.quality.mutation.origins import Origins

from .elaborate import elaborate, specification
from .engine import holds, run_task
from .table import FOLDER

__all__ = ["GateNotice", "Notice"]


class Notice:
    """Asks checks for mutants. ``checks``: of the table; ``blocks``: only their checks are asked,
    beside those whose bug the mutant is."""

    def __init__(self, checks, blocks=(), write=print):
        self._checks = [each for each in checks if not blocks or each.block in blocks]
        self._owners = [each for each in checks if each not in self._checks]
        self._write, self._reached, self._answers = write, {}, {}

    def __call__(self, name, quick=False):
        """Name of the first check, of the quick ones only with ``quick``, in which a promise fails;
        "" when there is none. Those whose bug it is come first."""
        own = [each for each in (*self._checks, *self._owners) if each.bug == name]
        others = [each for each in self._checks if each not in own and name in self._names(each)]
        for check in (*own, *others):
            if (check.quick or not quick) and self._fails(check, name):
                return check.name
        return ""

    def _names(self, check):
        """The mutants that a check can see; variants are seen by their own checks only."""
        if check.name not in self._reached:
            select = Signal(10, name="mutant")
            with selectable(select) as numbers:
                spec = specification(check)
                rtlil.convert(spec, ports=[spec.clk, select], emit_src=False)
            self._reached[check.name] = set(numbers)
        return self._reached[check.name]

    def _fails(self, check, name):
        if (check.name, name) not in self._answers:
            outcome = run_task(dataclasses.replace(check, bug=name), "bug")
            self._answers[check.name, name] = outcome.status == "fail"
            self._write(f"  {name}: {check.name}: {outcome.status}")
        return self._answers[check.name, name]


class GateNotice:
    """Asks checks for mutants of netlists (:mod:`sim.quality.mutation.netlist`): the gate of
    the source that the mutant is (:mod:`sim.quality.mutation.origins`) is changed alike in the
    check's own design. ``checks``: those that are asked; a check is asked only if it holds of the
    design as it is."""

    def __init__(self, checks, write=print):
        self._checks, self._write = list(checks), write
        self._designs, self._origins = {}, {}

    @property
    def key(self):
        """Another one when the checks, or what they are made with, have changed."""
        texts = {
            str(path): path.read_text()
            for word in ("kit", *sorted({check.block for check in self._checks}))
            for path in sorted((FOLDER / word).glob("*.*"))
        }
        texts |= {each.__name__: Path(each.__file__).read_text() for each in (gates, origins)}
        return digest(repr(([check.name for check in self._checks], texts)))

    def __call__(self, netlist, mutant):
        """Name of the first check that notices, "" when there is none: one of its promises or
        lemmas fails or is no longer proved by induction. Files go beside the netlist's."""
        if netlist.key not in self._origins:
            self._origins[netlist.key] = Origins(netlist)
        known = self._origins[netlist.key]
        for gate in known.gates(mutant):
            name = self._who_notices(gate, netlist)
            if name and known.proved(gate, mutant):
                self._write(f"  {name}: {mutant}")
                return name
        return ""

    def _who_notices(self, gate, netlist):
        for check in self._checks:
            folder = netlist.aiger.parent / "checks" / check.name
            if folder not in self._designs:
                self._designs[folder] = self._design(check, folder)
            design = self._designs[folder]
            place = design.place(gate)
            changes = design.changes(gate, place) if place else ()
            if changes and self._holds(check, folder, *changes) is False:
                return check.name
        return ""

    def _design(self, check, folder):
        """The check's :class:`~sim.quality.mutation.gates.Design`; its text stays in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        text, _ = elaborate(check, sources=True)
        (folder / "design.il").write_text(text)
        design = as_written(folder, "top")
        if not self._holds(check, folder):
            raise RuntimeError(f"{check.name}: not proved of the design as it is")
        return design

    @staticmethod
    def _holds(check, folder, *change):
        text = (folder / "parts.il").read_text()
        return holds(check, text, folder / "run", (*change, START))
