# SPDX-License-Identifier: Apache-2.0
"""Code coverage: points of a small program counted over its runs, and told by kind."""

import pytest

from sim.bench.runner import ROOT
from sim.quality import code_coverage
from sim.quality.code_coverage import BLOCKS, count, keep

TEXT = "module toy(a);\n  if (dump_module) begin end\n  if (a) begin\n  end\nendmodule\n"


def record(kind, line, what, number, module="toy"):
    field = {"f": "toy.v", "l": line, "n": 1, "t": kind, "page": f"v_{kind}", "o": what}
    body = "".join(f"\x01{key}\x02{value}" for key, value in {**field, "h": module}.items())
    return f"C '{body}' {number}\n"


@pytest.fixture
def put(monkeypatch, tmp_path):
    monkeypatch.setattr(code_coverage, "FOLDER", tmp_path / "counts")

    def put(*records, text=TEXT):
        (tmp_path / "coverage.dat").write_text("# SystemC::Coverage-3\n" + "".join(records))
        keep("toy", text, tmp_path / "coverage.dat")

    return put


def test_runs_are_added(put):
    put(record("branch", 3, "if", 0), record("branch", 3, "else", 7), record("line", 3, "", 1))
    put(record("branch", 3, "if", 0), record("branch", 3, "else", 0), record("line", 3, "", 0))
    assert count("toy") == (
        {"line": (1, 1), "branch": (1, 2)},
        ["branch of toy: if (a) begin"],
    )
    put(record("branch", 3, "if", 2))
    assert count("toy")[0]["branch"] == (2, 2)


def test_what_does_not_count(put):
    put(record("branch", 2, "if", 0), record("toggle", 1, "a:0->1", 0), record("expr", 3, "", 0))
    assert count("toy") == ({"line": (0, 0), "branch": (0, 0)}, [])


def test_modules_by_a_pattern(put):
    put(record("line", 3, "", 1, "top.loop"), record("line", 3, "", 0, "top.link"))
    assert count("toy", r"\.loop\b")[0]["line"] == (1, 1)


def test_another_text_starts_again(put):
    put(record("line", 3, "", 1))
    put(record("line", 3, "", 0), text=TEXT + "\n")
    assert count("toy")[0]["line"] == (0, 1)


def test_every_part_has_tests():
    for name, (_, _, folder, _) in BLOCKS.items():
        assert list((ROOT / "tests" / folder).glob("test_*.py")), name


def test_a_part_without_counts_is_told(put, monkeypatch, capsys, tmp_path):
    """The others are, too; no page is written."""
    monkeypatch.setattr(code_coverage, "BLOCKS", {"toy": ("toy",), "lost": ("gone",)})
    monkeypatch.setattr(code_coverage, "PAGE", tmp_path / "page.md")
    put(record("line", 3, "", 1))
    assert code_coverage.main(judged=True) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [
        "toy: line 1/1, branch 0/0",
        "lost: no test has built its bench gone: nothing is counted",
    ]
    assert not (tmp_path / "page.md").exists()
