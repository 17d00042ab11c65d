# SPDX-License-Identifier: Apache-2.0
"""Rule of the house: a proof sees ports and what a part declares in its ``observe``, nothing else;
a test reads no private attribute of what it tests."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: What shows the fragments of a part, or replaces it; the kit alone makes fragments.
SPIES = {"Fragment", "mock", "unittest"}
KIT = ROOT / "formal" / "kit"


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
        elif isinstance(node, ast.ImportFrom | ast.Import):
            module = [] if isinstance(node, ast.Import) else (node.module or "").split(".")
            words = {*module, *(word for each in node.names for word in each.name.split("."))}
            if any(map(_private, words)) or (path.parent != KIT and words & SPIES):
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith("$signal"):
                yield f"{node.lineno}: {node.value}"


def found(folder, what):
    """``{file: lines}`` of the files in which ``what`` finds some."""
    files = {
        str(each.relative_to(ROOT)): list(what(each)) for each in (ROOT / folder).rglob("*.py")
    }
    return {name: lines for name, lines in files.items() if lines}


def test_proofs_see_ports_and_what_is_declared():
    assert found("formal", spying) == {}


def test_tests_read_nothing_private():
    assert found("tests", private) == {}
