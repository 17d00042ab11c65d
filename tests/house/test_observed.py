# SPDX-License-Identifier: Apache-2.0
"""Rule of the house: a proof sees ports and what a part declares in its ``observe``, nothing
else."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Files that still look into frames, private attributes or modules. The list only shrinks.
SPYING = {
    *(
        f"formal/packet_manager/{name}.py"
        for name in (
            *("counts", "emitter", "entries", "parts", "quota", "selector", "timer", "whole"),
        )
    ),
    *(
        f"formal/scoreboard/{name}.py"
        for name in (
            *("combiner", "events", "flags", "ledger", "life", "openings"),
            *("readiness", "tiles", "whole"),
        )
    ),
    *(
        f"formal/slot_allocator/{name}.py"
        for name in (
            *("checks", "closed", "inner", "issue", "lookup", "packets", "pairs", "purge"),
            *("waits", "whole"),
        )
    ),
}
#: Modules whose names show the frames or fragments of a part.
SPIES = {"parts": "look_into", "inner": "Inside", "readiness": "Opened"}


def spying(path):
    """What a file does that the rule forbids, one line each."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            own |= ast.unparse(node.value) == "super()"
            if node.attr == "setprofile" or (
                node.attr.startswith("_") and not node.attr.startswith("__") and not own
            ):
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
