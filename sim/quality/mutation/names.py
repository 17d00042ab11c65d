# SPDX-License-Identifier: Apache-2.0
"""Which mutants of meaning there are: read from the source of ``hub_rtl``, so that a name is known
without elaborating what contains it (:mod:`hub_rtl.parts.mutants` says how they are written)."""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import hub_rtl
from hub_rtl.parts.mutants import MutantError

__all__ = ["Named", "catalogue", "known"]

RTL = Path(hub_rtl.__file__).parent
KINDS = ("mutant", "variant", "bug")


@dataclass(frozen=True)
class Named:
    """``kind``: the function that holds it; ``variant`` is a netlist of its own. ``right`` and
    ``wrong``: the source of both ("" of an extra statement). ``file`` from the project's root."""

    name: str
    kind: str
    file: str
    line: int
    right: str = ""
    wrong: str = ""

    @property
    def block(self):
        return self.name.partition(".")[0]


@functools.cache
def catalogue(folder=RTL):
    """{name: Named} of all files below ``folder``, in their order. Raises MutantError for a name
    that is no literal, has not its block's word before the dot, or is written twice."""
    found = {}
    for path in sorted(folder.glob("*/*.py")):
        if path.name == "mutants.py":
            continue
        block, file = path.parent.name, f"{folder.name}/{path.relative_to(folder).as_posix()}"
        for call in _calls(ast.parse(path.read_text())):
            each = _named(call, file)
            where = f"{file}:{call.lineno}: {each.name}"
            if not re.fullmatch(rf"{block}\.[a-z][a-z0-9_]*", each.name):
                raise MutantError(f"{where}: must be {block}.what_is_wrong")
            if each.name in found:
                other = found[each.name]
                raise MutantError(f"{where}: is at {other.file}:{other.line} already")
            found[each.name] = each
    return found


def known(name):
    """The :class:`Named` of this name. Raises MutantError if there is none."""
    if name not in catalogue():
        raise MutantError(f"{name}: no such mutant; `moe-hub mutate --list` prints them")
    return catalogue()[name]


def _calls(tree):
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS
    ]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _named(call, file):
    name = call.args[0] if call.args else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        raise MutantError(f"{file}:{call.lineno}: a mutant's name must be a literal")
    sides = [ast.unparse(_plain(side)) for side in call.args[1:3]]
    return Named(name.value, call.func.id, file, call.lineno, *sides)


class _Plain(ast.NodeTransformer):
    """Other mutants within: their right side only."""

    def visit_Call(self, node):
        self.generic_visit(node)
        inner = isinstance(node.func, ast.Name) and node.func.id in ("mutant", "variant")
        return node.args[1] if inner else node


def _plain(node):
    return _Plain().visit(node)
