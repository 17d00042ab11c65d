# SPDX-License-Identifier: Apache-2.0
"""Rule of the house: a proof sees ports and what a part declares in its ``observe``, nothing else;
a test reads no private attribute of what it tests."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Files that still look into frames, private attributes or modules. The list only shrinks.
SPYING = {
    f"formal/{block}/{name}.py"
    for block, names in {
        "scoreboard": "events flags ledger life readiness whole",
    }.items()
    for name in names.split()
}
#: Modules whose names show the frames or fragments of a part.
SPIES = {"readiness": "Opened"}


def _private(name):
    return name.startswith("_") and not name.startswith("__")


def private(path):
    """Private attributes of others that a file reads or replaces, one line each."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            own = ast.unparse(node.value) in ("self", "cls", "super()")
            if _private(node.attr) and not own:
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            for each in node.args[1:2]:
                if isinstance(each, ast.Constant) and _private(str(each.value)):
                    yield f"{node.lineno}: {ast.unparse(node)}"


def spying(path):
    """What a specification does that the rule forbids, one line each."""
    yield from private(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr == "setprofile":
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            if node.module == "unittest" or node.module == "unittest.mock":
                yield f"{node.lineno}: {node.module}"
            spy = SPIES.get((node.module or "").split(".")[-1])
            if spy in [each.name for each in node.names]:
                yield f"{node.lineno}: {spy}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith("$signal"):
                yield f"{node.lineno}: {node.value}"


def test_proofs_see_ports_and_what_is_declared():
    found = {
        str(path.relative_to(ROOT)): list(spying(path)) for path in (ROOT / "formal").rglob("*.py")
    }
    found = {name: lines for name, lines in found.items() if lines}
    assert {name: found[name] for name in found.keys() - SPYING} == {}
    assert sorted(SPYING - found.keys()) == [], "they no longer do: take them off the list"


def test_tests_read_nothing_private():
    found = {
        str(path.relative_to(ROOT)): list(private(path)) for path in (ROOT / "tests").rglob("*.py")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
