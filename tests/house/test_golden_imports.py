# SPDX-License-Identifier: Apache-2.0
"""The golden model stands apart from the design: it shares numbers and bit formats with it, never
logic."""

import ast

import pytest

from sim.bench.runner import ROOT

SHARED = {
    f"hub_rtl.contract.{name}" for name in ("config", "fields", "packets")
}  # plain Python, without Amaranth
#: What the formats compute; the design has its own gates for it, the golden model may use it.
COMPUTED = {"pack", "unpack", "lane_of", "replica_of", "row_hash"}


def imported(path):
    """{module: names taken from it}, relative imports with the leading dots cut off."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update({alias.name: set() for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            whole = node.module in ("hub_rtl", "hub_rtl.contract")
            modules = {f"{node.module}.{name}" for name in names} if whole else {node.module or "."}
            for module in modules:
                found.setdefault(module, set()).update(set() if whole else names)
    return found


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sim" / "golden").glob("*.py")), ids=lambda path: path.stem
)
def test_golden_model_shares_no_logic(path):
    modules = imported(path)
    assert {name for name in modules if name.split(".")[0] == "hub_rtl"} <= SHARED
    assert not {name for name in modules if name.split(".")[0] in ("amaranth", "cocotb")}


def test_design_computes_by_itself():
    """No gate is made by calling what the golden model calls."""
    for path in sorted((ROOT / "hub_rtl").rglob("*.py")):
        for module, names in imported(path).items():
            if module.split(".")[-1] == "packets":
                assert not names & COMPUTED, (
                    f"{path.relative_to(ROOT)} takes {', '.join(sorted(names & COMPUTED))}"
                )
