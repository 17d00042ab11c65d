# SPDX-License-Identifier: Apache-2.0
"""Functional coverage and the test-plan reader."""

import pytest

from sim.quality import coverage, testplan

ITEM = """
[[item]]
id = "x.one"
name = "One | two"
guarantee = ["G1"]
stimulus = "s"
checking = "c"
tests = ["tests/test_x.py::test_one"]
bins = ["x.full", "x.empty"]
"""


@pytest.fixture
def folders(monkeypatch, tmp_path):
    plan = tmp_path / "docs" / "testplan"
    plan.mkdir(parents=True)
    monkeypatch.setattr(coverage, "FOLDER", tmp_path / "coverage")
    monkeypatch.setattr(coverage, "PLAN", plan)
    monkeypatch.setattr(coverage, "noted", set())
    monkeypatch.setattr(testplan, "PLAN", plan)
    monkeypatch.setattr(testplan, "ROOT", tmp_path)
    monkeypatch.delenv("MOE_HUB_COVERAGE", raising=False)
    (plan / "x.toml").write_text(ITEM)
    return tmp_path


def test_report(folders):
    coverage.cover("x.full")
    coverage.cover("x.empty", condition=False)
    coverage.merge("bench", ["x.full", "x.more"])
    lines = []
    assert coverage.report(lines.append) == ["x.empty"]
    assert lines[0].split() == ["hit", "x.full", "x.one", "bench,", "python"]
    assert lines[1].split() == ["MISSED", "x.empty", "x.one"]
    assert (
        lines[2].startswith("extra   x.more ") and lines[3] == "1 of 2 planned bins hit, 1 missed"
    )
    short = []
    assert coverage.report(short.append, short=True) == ["x.empty"]
    assert short == [lines[1], lines[3]]


def test_simulator_writes_at_once(folders, monkeypatch):
    """Each bin is written when it is first hit, once: a simulator may end without exit handlers."""
    monkeypatch.setenv("MOE_HUB_COVERAGE", str(folders / "bins"))
    for name in ("x.full", "x.full", "x.empty"):
        coverage.cover(name)
    assert (folders / "bins").read_text() == "x.full\nx.empty\n"
    assert coverage.hit_bins() == {}


def test_page(folders):
    text = testplan.page()
    assert (
        "| x.one | One \\| two | G1 | s | c | `tests/test_x.py::test_one` | `x.full`<br>`x.empty` |"
        in text
    )
    assert "| G1 | " in text and text.endswith("\n")


@pytest.mark.parametrize(
    "old, new, text",
    [
        ('id = "x.one"', "", "item 1 (no id): id must be a str"),
        ('["G1"]', '["G8"]', "item 1 (x.one): guarantee must be of G1, "),
        ('["tests/test_x.py::test_one"]', "[]", "item 1 (x.one): no test"),
        ('name = "One | two"', 'name = "n"\nowner = "me"', "item 1 (x.one): unknown field owner"),
        ("[[item]]", "[[row]]", "'item'"),
        ("[[item]]", "[[item", "Expected"),
    ],
)
def test_plan_refused(folders, old, new, text):
    (folders / "docs" / "testplan" / "x.toml").write_text(ITEM.replace(old, new))
    with pytest.raises(ValueError) as caught:
        testplan.items()
    assert str(caught.value).startswith("docs/testplan/x.toml: " + text)
    assert "\n" not in str(caught.value)


def test_ids_are_unique(folders):
    (folders / "docs" / "testplan" / "y.toml").write_text(ITEM)
    with pytest.raises(
        ValueError, match="y.toml: item 1 .x.one.: this id is in docs/testplan/x.toml too"
    ):
        testplan.items()
