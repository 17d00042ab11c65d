# SPDX-License-Identifier: Apache-2.0
"""A specification as RTLIL, with or without its bug."""

import contextlib
import importlib
import re
import warnings
from pathlib import Path

from flow.verilog.netlist import rare_collections
from hub_rtl.parts.mutants import mutated

__all__ = ["build", "elaborate"]

ROOT = Path(__file__).resolve().parents[2]

_NAMELESS = re.compile(r'^  cell \$check \S+\n(?=    parameter \\FORMAT "([^"]*)"$)', re.M)
_MEMINIT = re.compile(r"^(?:  attribute .*\n)*  cell \$meminit\S* .*\n(?:    .*\n)*  end\n", re.M)


def elaborate(check, bug=False, sources=False):
    """``(rtlil, spec)`` of a check: the text, in which each property's cell has the property's
    name, and the specification. ``sources``: with the lines of source that made each cell.

    Amaranth's warnings are errors.
    """
    with mutated(check.bug) if bug else contextlib.nullcontext():
        return _elaborate(check, sources)


def specification(check):
    """The specification of a check, not elaborated."""
    module, _, name = check.spec.partition(":")
    spec_class = getattr(importlib.import_module(f"formal.{module}"), name)
    arguments = dict(check.arguments)
    if check.preset:
        config = importlib.import_module("hub_rtl.contract.config")
        arguments["cfg"] = config.preset(check.preset, **check.set)
    spec = spec_class(**arguments)
    spec.before = check.before
    return spec


def build(check):
    """The specification of a check with its properties and assumptions, without the text."""
    from amaranth.hdl import Fragment

    spec = specification(check)
    Fragment.get(spec, None)
    return spec


def _elaborate(check, sources):
    from amaranth.back import rtlil
    from amaranth.hdl import Fragment

    from .table import TableError, undischarged

    spec = specification(check)
    with warnings.catch_warnings(), rare_collections():
        warnings.simplefilter("error")
        body = Fragment.get(spec, None)
        spec.wrapped = {name: part.origins[0] for part, name, _ in body.subfragments}
        text = rtlil.convert(body, name="top", ports=[spec.clk], emit_src=sources)
    missing = undischarged(check, spec.assumptions)
    if missing:
        raise TableError(f"check {check.name!r}: proved_by says nothing of {missing[0]!r}")
    if check.memories == "any":
        text = _MEMINIT.sub("", text)
    return _NAMELESS.sub(lambda match: f"  cell $check \\{identifier(match[1])}\n", text), spec


def identifier(name):
    """A property's name as that of a cell; no signal is called so."""
    return "p_" + re.sub(r"\W+", "_", name)
