# SPDX-License-Identifier: Apache-2.0
"""The rules of the house, each as a test: they keep a tree in which a stranger knows each room."""

import ast
import subprocess
import sys
import tomllib

import pytest

from sim.bench.runner import ROOT

#: From below to above: nothing imports what stands to its right.
LAYERS = ("contract", "parts", "block", "hub", "flow", "sim", "formal", "moe_hub")
TOPS = ("hub_rtl", "flow", "sim", "formal", "moe_hub")
BLOCKS = sorted({path.parent.name for path in ROOT.glob("hub_rtl/*/__init__.py")} - {*LAYERS})
SOURCES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))


def layer(module):
    """Where a module of the project stands in :data:`LAYERS`, and the block it belongs to."""
    top, *rest = module.split(".")
    if top != "hub_rtl":
        return top, None
    return ("block", rest[0]) if rest and rest[0] in BLOCKS else (rest[0] if rest else None, None)


def imports(path):
    """Absolute names of the project's modules that a file imports, whole or in part."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            whole = "." not in node.module
            names = [f"{node.module}.{a.name}" for a in node.names] if whole else [node.module]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in TOPS)


@pytest.mark.parametrize("block", BLOCKS)
def test_one_word(block):
    """A block's word is its room in every wing, and the prefix of its bins and checks."""
    for folder in (f"hub_rtl/{block}", f"formal/{block}", f"sim/cocotb/{block}", f"tests/{block}"):
        assert (ROOT / folder).is_dir(), folder
    for file in (
        f"hub_rtl/{block}/{block}.py",
        f"sim/golden/{block}.py",
        f"docs/blocks/{block}.md",
    ):
        assert (ROOT / file).exists(), file
    plan = tomllib.loads((ROOT / f"docs/testplan/{block}.toml").read_text())["item"]
    checks = tomllib.loads((ROOT / f"formal/{block}/checks.toml").read_text())["check"]
    names = [name for item in plan for name in (item["id"], *item.get("bins", ()))]
    wrong = [name for name in names if not name.startswith(f"{block}.")]
    wrong += [check["name"] for check in checks if not check["name"].startswith(f"{block}.")]
    assert not wrong, wrong


def test_no_arrow_up():
    """contract <- parts <- blocks <- hub <- flow <- sim <- formal <- moe_hub; no block imports
    another."""
    wrong = []
    for path in SOURCES:
        place = path.relative_to(ROOT)
        own, block = layer(".".join(place.with_suffix("").parts))
        for name in imports(path):
            other, other_block = layer(name)
            if own is None or other is None:
                continue
            if LAYERS.index(other) > LAYERS.index(own) or other == own and block != other_block:
                wrong.append(f"{place} imports {name}")
    assert not wrong, wrong


def test_small_steps():
    """No `elaborate` over 80 lines."""
    long = []
    for path in sorted((ROOT / "hub_rtl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "elaborate":
                lines = node.end_lineno - node.lineno + 1
                if lines > 80:
                    long.append(f"{path.relative_to(ROOT)}: {lines}")
    assert not long, long


def takes_its_name(value):
    """Whether a value is a signal or a memory's port that is called as the variable it goes to."""
    if not isinstance(value, ast.Call) or any(each.arg == "name" for each in value.keywords):
        return False
    made = ast.unparse(value.func)
    return made in ("Signal", "Signal.like") or made.endswith((".read_port", ".write_port"))


def test_signals_have_statements_of_their_own():
    """From one that makes several, Amaranth takes no name or only the last one, depending on the
    version of Python, and so would the names in the Verilog."""
    shared = []
    for top in ("hub_rtl", "flow", "formal", "examples"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Assign):
                    continue
                value, several = node.value, isinstance(node.targets[0], ast.Tuple)
                values = getattr(value, "elts", [getattr(value, "elt", None)])
                if several and any(map(takes_its_name, values)):
                    shared.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not shared, shared


@pytest.mark.parametrize("rule", [("format", "--check"), ("check",)], ids=["format", "check"])
def test_formatted(rule):
    """As the formatter leaves it: one statement per line, 100 columns; nothing that the checker
    finds."""
    command = [sys.executable, "-m", "ruff", *rule, "--quiet", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stdout


def test_merged_to_the_end():
    """No source and no page keeps the marks of a merge."""
    marks = tuple(7 * mark + " " for mark in "<>")
    pages = (
        path for where in ("*.md", "docs/**/*.md", "formal/*/*.toml") for path in ROOT.glob(where)
    )
    for path in (*SOURCES, *pages):
        left = [line for line in path.read_text().splitlines() if line.startswith(marks)]
        assert not left, (path.relative_to(ROOT), left)


def test_only_gates():
    """What is in `hub_rtl` becomes gates, or is the contract that all share."""
    for path in sorted((ROOT / "hub_rtl").rglob("*.py")):
        if path.parent.name == "contract" or path.name == "__init__.py":
            continue
        assert "amaranth" in path.read_text() or path.stem == "placing", path.relative_to(ROOT)


def test_no_idle_test():
    """A cocotb test that is for some sizes only says so (`needs`): none returns early."""
    for path in sorted((ROOT / "sim" / "cocotb").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            tested = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
            if any(".test(" in each for each in tested):
                inner = [x for x in ast.walk(node) if isinstance(x, ast.FunctionDef | ast.Lambda)]
                inner += [x for x in ast.walk(node) if isinstance(x, ast.AsyncFunctionDef)][1:]
                inside = {id(each) for function in inner for each in ast.walk(function)}
                early = [x for x in ast.walk(node) if isinstance(x, ast.Return)]
                where = f"{path.relative_to(ROOT)}: {node.name} returns early"
                assert all(id(each) in inside for each in early), where
