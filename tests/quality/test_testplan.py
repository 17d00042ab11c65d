# SPDX-License-Identifier: Apache-2.0
"""The test plan is true: its tests exist, its bins can be hit, every guarantee and every reason is
in it."""

import ast
import re

from hub_rtl.contract.packets import Reason
from sim.bench.runner import ROOT
from sim.quality import testplan

PLAN = testplan.items()
ITEMS = [item for block in PLAN.values() for item in block]


def test_page_is_up_to_date():
    assert testplan.PAGE.read_text() == testplan.page(), "run `make plan`"


def test_named_tests_exist():
    functions = {}
    for item in ITEMS:
        for node in item["tests"]:
            path, _, name = node.partition("::")
            if path not in functions:
                tree = ast.parse((ROOT / path).read_text())
                functions[path] = {
                    part.name for part in tree.body if isinstance(part, ast.FunctionDef)
                }
            assert name.partition("[")[0] in functions[path], (
                f"{item['id']}: there is no test {node}"
            )


def cover_calls():
    """Patterns of all bins that some ``cover(...)`` can note. A computed name stands for every
    string of its file."""
    patterns = set()
    for folder in ("sim", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            calls = [
                node
                for node in ast.walk(tree)
                if isinstance(node, ast.Call)
                and node.args
                and getattr(node.func, "id", getattr(node.func, "attr", None)) == "cover"
            ]
            for call in calls:
                name = call.args[0]
                if isinstance(name, ast.Constant):
                    patterns.add(re.escape(name.value))
                elif isinstance(name, ast.JoinedStr):
                    patterns.add(
                        "".join(
                            re.escape(part.value) if isinstance(part, ast.Constant) else ".+"
                            for part in name.values
                        )
                    )
                else:
                    patterns |= {
                        re.escape(node.value)
                        for node in ast.walk(tree)
                        if isinstance(node, ast.Constant) and isinstance(node.value, str)
                    }
    return re.compile("|".join(sorted(patterns)))


def test_bins_can_be_hit():
    known = cover_calls()
    for item in ITEMS:
        for name in item["bins"]:
            assert known.fullmatch(name), f"{item['id']}: no test covers the bin {name}"


def test_bins_belong_to_one_item():
    names = [name for item in ITEMS for name in item["bins"]]
    assert len(names) == len(set(names))


def test_every_block_has_a_plan():
    blocks = {path.stem for path in (ROOT / "docs" / "blocks").glob("*.md")}
    assert blocks <= set(PLAN), f"no test plan for {', '.join(sorted(blocks - set(PLAN)))}"


def test_every_guarantee_is_tested():
    for name in testplan.GUARANTEES:
        assert any(name in item["guarantee"] for item in ITEMS), name


def test_every_reason_is_tested():
    text = " ".join(str(value) for item in ITEMS for value in item.values())
    missing = [
        reason.name
        for reason in Reason
        if reason != Reason.OK and not re.search(rf"\b{reason.name}\b", text)
    ]
    assert not missing, f"no test-plan item names {', '.join(missing)}"
