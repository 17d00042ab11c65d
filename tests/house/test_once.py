# SPDX-License-Identifier: Apache-2.0
"""Rule 3 of the house: a width is stated once, in ``hub_rtl/contract/fields.py``."""

import ast

import pytest

from sim.bench.runner import ROOT

SOURCES = sorted(set((ROOT / "hub_rtl").rglob("*.py")) - {ROOT / "hub_rtl/contract/fields.py"})
#: What makes a member out of a width, which comes first.
MAKERS = {"In", "Out", "Signature", "ArrayLayout", "array", "AxiStream", "Axi4", "Axi4Write"}


def called(node):
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def widths(value):
    """Nodes that stand for a width in a member's shape."""
    if isinstance(value, ast.Call) and called(value) in MAKERS:
        shape = value.func.value if called(value) == "array" else value.args[0]
        axi = value.args[1:] if called(value).startswith("Axi4") else []
        return [width for part in (shape, *axi) for width in widths(part)]
    return value.elts[1:] if isinstance(value, ast.Tuple) else [value]


def declared(tree):
    """Nodes that stand for the width of a field: of a layout, of a signature, of a register."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and all(
            isinstance(k, ast.Constant | None) for k in node.keys
        ):
            for value in node.values:
                yield from widths(value)
        if isinstance(node, ast.Call) and called(node) in ("Field", "_word"):
            yield from node.args[:1] if ast.unparse(node.func) == "data.Field" else node.args[2:3]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_literal_is_a_width(path):
    tree = ast.parse(path.read_text())
    found = [n for n in declared(tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    literal = [f"{path.name}:{n.lineno}: {n.value}" for n in found if n.value > 1]
    assert not literal, f"widths = {', '.join(literal)}: must be names of contract/fields.py"
