# SPDX-License-Identifier: Apache-2.0
"""The test plan: ``docs/testplan.md``, written from ``docs/testplan/*.toml``.

One file per block, a list of ``[[item]]`` with ``id``, ``name``, ``guarantee`` (list of G1..G7, may
be empty), ``stimulus``, ``checking``, ``tests`` (pytest node ids) and ``bins`` (functional
coverage, may be empty). ``moe-hub plan`` writes the page; with ``--check`` it only compares (exit
code 1 when the page is out of date).
"""

import tomllib

from flow.tables import markdown
from sim.bench.runner import ROOT

__all__ = ["GUARANTEES", "PAGE", "PLAN", "items", "page"]

PLAN = ROOT / "docs" / "testplan"
PAGE = ROOT / "docs" / "testplan.md"
GUARANTEES = {
    "G1": "no byte lost, duplicated or altered; bytes outside a mask untouched",
    "G2": "one row, one slot; slots dense from 0; addresses inside region or window",
    "G3": "ready only when memory has acknowledged every byte; exactly once",
    "G4": "no deadlock: placed or reported, all-ready or ERROR",
    "G5": "misbehaviour harms only itself",
    "G6": "every refusal and error counted, named and readable",
    "G7": "same inputs, same outputs, same Verilog",
}
FIELDS = {
    "id": str,
    "name": str,
    "guarantee": list,
    "stimulus": str,
    "checking": str,
    "tests": list,
    "bins": list,
}


HEADS = "Id", "What", "Guarantees", "Stimulus", "Checking", "Tests", "Coverage bins"


def items():
    """``{block: [items]}`` of all plan files. Raises ValueError, one line, for an item that is not
    as it must be."""
    plan, seen = {}, {}
    for path in sorted(PLAN.glob("*.toml")):
        name = path.relative_to(ROOT)
        try:
            plan[path.stem] = tomllib.loads(path.read_text())["item"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise ValueError(f"{name}: {error}") from None
        for number, item in enumerate(plan[path.stem], 1):
            where = f"{name}: item {number} ({item.get('id', 'no id')})"
            for field, kind in FIELDS.items():
                if not isinstance(item.get(field), kind):
                    raise ValueError(f"{where}: {field} must be a {kind.__name__}")
            if set(item) - set(FIELDS):
                raise ValueError(
                    f"{where}: unknown field {', '.join(sorted(set(item) - set(FIELDS)))}"
                )
            if set(item["guarantee"]) - set(GUARANTEES):
                raise ValueError(f"{where}: guarantee must be of {', '.join(GUARANTEES)}")
            if not item["tests"]:
                raise ValueError(f"{where}: no test")
            if item["id"] in seen:
                raise ValueError(f"{where}: this id is in {seen[item['id']]} too")
            seen[item["id"]] = name
    return plan


def _cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def _row(item):
    tests, bins = (
        "<br>".join(f"`{_cell(each)}`" for each in item[name]) for name in ("tests", "bins")
    )
    texts = [_cell(item[name]) for name in ("id", "name", "stimulus", "checking")]
    return *texts[:2], ", ".join(item["guarantee"]), *texts[2:], tests, bins


def page():
    """Text of ``docs/testplan.md``."""
    plan = items()
    lines = [
        "# Test plan",
        "",
        "<!-- Written by `make plan` from docs/testplan/*.toml: edit those. -->",
        "",
        "What is tested, how it is provoked, what is checked, and by which test. Guarantees "
        "are those of "
        "[architecture.md](architecture.md). `make coverage` tells which coverage bins the "
        "last run hit.",
        "",
        "## Guarantees",
        "",
    ]
    everything = [item for block in plan.values() for item in block]
    lines += markdown(
        "| | Promise | Items |",
        (
            (
                name,
                promise,
                ", ".join(item["id"] for item in everything if name in item["guarantee"]),
            )
            for name, promise in GUARANTEES.items()
        ),
        "|---|---|---|",
    )
    for block, rows in plan.items():
        lines += ["", f"## {block}", "", *markdown(HEADS, map(_row, rows))]
    return "\n".join(lines) + "\n"


def main(check=False):
    """``moe-hub plan``; returns the exit code."""
    text = page()
    if check:
        same = PAGE.exists() and PAGE.read_text() == text
        print(
            f"{PAGE.relative_to(ROOT)} is "
            f"{'up to date' if same else 'out of date: run `make plan`'}"
        )
        return 0 if same else 1
    PAGE.write_text(text)
    print(f"{PAGE.relative_to(ROOT)}: {sum(map(len, items().values()))} items")
    return 0
