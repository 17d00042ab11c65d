# SPDX-License-Identifier: Apache-2.0
"""One netlist with all mutants of meaning of a component (:mod:`hub_rtl.parts.mutants`), chosen by
one more input: a block is compiled once, whatever number of its bugs a bench has to notice."""

import os

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hub_rtl.parts.mutants import MutantError, selectable

__all__ = ["CHOICE", "SELECT", "WIDTH", "choose", "number_of", "with_mutants"]

SELECT = "mutsel"
WIDTH = 10
CHOICE = "MOE_HUB_MUTANT"  # environment of the simulator: the mutant's number


class Selectable(wiring.Component):
    """``component`` with one more input, which chooses one of its mutants of meaning."""

    def __init__(self, component):
        super().__init__({**component.signature.members, SELECT: In(WIDTH)})
        self._component = component

    def elaborate(self, platform):
        m = Module()
        m.submodules.component = inner = self._component
        outer = {path: value for path, _, value in self.signature.flatten(self)}
        for path, member, value in inner.signature.flatten(inner):
            into, out = (value, outer[path])[:: 1 if member.flow is In else -1]
            m.d.comb += into.eq(out)
        return m


def with_mutants(component, convert):
    """``(text, {name: number})``: ``convert(whole)`` of the component with its mutants, variants
    left out, in the order of elaboration."""
    whole = Selectable(component)
    with selectable(getattr(whole, SELECT)) as numbers:
        text = convert(whole)
    return text, numbers


def number_of(bug, numbers):
    """The value of the input that chooses ``bug``."""
    if bug not in numbers:
        raise MutantError(f"{bug}: no such mutant in what was elaborated")
    return numbers[bug]


def choose(dut):
    """In the simulator: chooses the mutant that this run was asked for, if it was."""
    if CHOICE in os.environ:
        getattr(dut, SELECT).value = int(os.environ[CHOICE])
