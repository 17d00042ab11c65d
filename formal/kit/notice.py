# SPDX-License-Identifier: Apache-2.0
"""Which check notices a mutant (:mod:`hub_rtl.parts.mutants`), its own or another's."""

import dataclasses

from amaranth import Signal
from amaranth.back import rtlil

from hub_rtl.parts.mutants import selectable

from .elaborate import specification
from .engine import run_task

__all__ = ["Notice"]


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
