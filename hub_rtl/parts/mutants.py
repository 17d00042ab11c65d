# SPDX-License-Identifier: Apache-2.0
"""Bugs by name: a wrong value written beside the right one, and a context that asks for it.

::

    m.d.comb += self.o_ack.valid.eq(
        mutant("memory.acknowledges_unanswered", held & answered, held)
    )

Unless somebody asks, :func:`mutant` returns ``right`` itself: the Verilog is byte for byte that of
the line without it. Proofs and single tests ask for one bug::

    with mutated("memory.acknowledges_unanswered"):
        text = to_verilog(MemoryWriter(cfg), "writer")

A campaign asks for all of them in one netlist, chosen by a signal::

    select = Signal(8)
    with selectable(select) as numbers:          # {name: value of `select`}, filled as it goes
        text = verilog.convert(component, ports=[*ports, select])

What is written how:

* a wrong operand, bank or bound: ``mutant(name, right, wrong)``. ``wrong`` takes the shape of
  ``right`` where that is an expression, so that both ways of asking mean the same design;
* a missing statement: ``x.eq(mutant(name, new, x))``; a missing condition:
  ``m.If(mutant(name, condition, weaker))``;
* a ``wrong`` that makes signals or statements when it is evaluated: a function without arguments;
* an extra statement: ``if (asked := bug(name)) is not None:`` around it, and within it
  ``with m.If(asked):``;
* a different *structure* (a depth, a range, a slice, the order of a list):
  ``variant(name, right, wrong)``. That cannot be chosen by a signal; it is a netlist of its own.

Names are literals, ``block.what_is_wrong`` with the word of the block that the file belongs to;
each is written at one place. :mod:`sim.quality.mutation.names` reads them from the source and
refuses what breaks this.
"""

import contextlib
import enum

from amaranth import Const, Mux, Shape, Value, ValueCastable

__all__ = ["MutantError", "bug", "mutant", "mutated", "selectable", "variant"]


class MutantError(ValueError):
    """A mutant that is not there, or not reached; one line that names it."""


class _One:
    """One bug is asked for."""

    def __init__(self, name):
        self.name = name
        self.reached = False

    def condition(self, name):
        if name != self.name:
            return None
        self.reached = True
        return Const(1)

    def structure(self, name):
        return self.condition(name) is not None


class _All:
    """All bugs are asked for; the signal ``select`` chooses."""

    def __init__(self, select):
        self.select = select
        self.numbers = {}

    def condition(self, name):
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        if number >> len(self.select):
            raise MutantError(f"{name}: a select of {len(self.select)} bits has no number for it")
        return self.select == number

    def structure(self, name):
        return False


_asked = None


@contextlib.contextmanager
def _asking(request):
    global _asked
    if _asked is not None:
        raise MutantError("mutants within mutants: ask for one at a time")
    _asked = request
    try:
        yield request
    finally:
        _asked = None


@contextlib.contextmanager
def mutated(name):
    """What is elaborated inside the block has the bug ``name``. Raises :class:`MutantError` when
    none of it contains that."""
    with _asking(_One(name)) as request:
        yield
    if not request.reached:
        raise MutantError(f"{name}: no such mutant in what was elaborated")


@contextlib.contextmanager
def selectable(select):
    """What is elaborated inside the block has each of its bugs, but variants, while ``select`` is
    its number, and none at 0; gives {name: number}, complete once it is elaborated."""
    with _asking(_All(select)) as request:
        yield request.numbers


def bug(name):
    """A condition, 1 while the bug ``name`` is wanted; None when nobody asks for it."""
    return None if _asked is None else _asked.condition(name)


def variant(name, right, wrong):
    """``right``, or ``wrong`` where this bug alone is asked for: of any type, for structure."""
    return wrong if _asked is not None and _asked.structure(name) else right


def mutant(name, right, wrong):
    """``right`` itself, or ``wrong`` while this bug is wanted; an expression like ``right``."""
    condition = bug(name)
    if condition is None:
        return right
    if callable(wrong) and not isinstance(wrong, (type, enum.Enum)):
        wrong = wrong()
    if isinstance(right, (list, tuple)):
        return [_choice(condition, bad, good) for good, bad in zip(right, wrong, strict=True)]
    return _choice(condition, wrong, right)


def _choice(condition, wrong, right):
    if isinstance(right, (int, enum.Enum)) and not isinstance(condition, Const):
        chosen = Mux(condition, wrong, right)
        return type(right)(chosen) if isinstance(right, enum.Enum) else chosen
    if isinstance(right, (int, enum.Enum)):
        return wrong
    if isinstance(right, ValueCastable):
        layout = right.shape()
        return layout(_choice(condition, Value.cast(wrong), Value.cast(right)))
    wrong = _in_shape(Value.cast(wrong), right.shape())
    return wrong if isinstance(condition, Const) else Mux(condition, wrong, right)


def _in_shape(value, shape):
    """``value`` cut or extended to ``shape``."""
    if value.shape() == shape:
        return value
    if len(value) < shape.width:
        value = value | Const(0, Shape(shape.width, value.shape().signed))
    value = value[: shape.width]
    return value.as_signed() if shape.signed else value
