# SPDX-License-Identifier: Apache-2.0
"""The page of layers beside software: its text from figures, and that its commands are its runs."""

import shlex
from dataclasses import replace
from functools import partial

import pytest
from typer.testing import CliRunner

import moe_hub.command.compare
import moe_hub.layer
from moe_hub.command.cli import app
from sim.system import compare
from sim.system.compare import BESIDE, HOT, WAITING, Case, logs_of
from sim.system.figures import STALLS
from sim.system.ways import BASELINES, WAYS
from sim.workload.traces import generate, write_trace


class Planned(Exception):
    """A run has come to its programs."""


def noted(names, name, programs, *given, **more):
    names.append(name)
    return programs(*given, **more)


@pytest.fixture
def log(tmp_path):
    """The case of a whole log."""
    write_trace(generate(tokens=40, top_k=2, experts=16, seed=3), tmp_path / "log.jsonl")
    (case,) = logs_of([("olmoe-1b-7b", tmp_path / "log.jsonl")])
    return case


def test_a_command_of_a_log_is_its_run(log, monkeypatch, tmp_path):
    plan = planned_by(log, monkeypatch, tmp_path)
    assert plan.routing.tokens == 40 and plan.shape.experts == 16


@pytest.mark.parametrize("case", dict.fromkeys([*WAITING, *BESIDE, *HOT]), ids=Case.command.fget)
def test_a_command_of_the_page_is_its_run(case, monkeypatch, tmp_path):
    planned_by(case, monkeypatch, tmp_path)


def planned_by(case, monkeypatch, tmp_path):
    """What stands beside a line is what was measured: routing, hub, tiles, fabric, ways. Gives the
    plan."""
    seen = {}
    original = moe_hub.layer.plan_layer

    def planned(*given, **more):
        seen["plan"] = original(*given, **more)
        return seen["plan"]

    def simulated(progress, text, system, folder, plan):
        seen["settings"] = system.settings
        raise Planned

    monkeypatch.setattr(moe_hub.layer, "simulate", simulated)
    for way, made in WAYS.items():
        programs = partial(noted, seen.setdefault("ways", []), way, made.programs)
        monkeypatch.setitem(WAYS, way, replace(made, programs=programs))
    monkeypatch.setattr(moe_hub.layer, "plan_layer", planned)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(case.command)
    assert words[0] == "moe-hub"
    result = CliRunner().invoke(app, words[1:])
    assert isinstance(result.exception, Planned), result.output
    plan = case.plan()
    assert (seen["plan"].routing.experts == plan.routing.experts).all()
    assert (seen["plan"].cfg, seen["plan"].tile_rows) == (plan.cfg, plan.tile_rows)
    assert seen["plan"].shape == plan.shape
    assert seen["settings"]["latency"] == case.cycles
    assert seen["ways"] == ["hub", *case.baselines]
    return plan


#: Figures of a report that only a log's table shows.
FIGURES = (
    *("rows", "store_bytes", "link_bytes", "packets", "wire_efficiency", "merge_ratio"),
    *("links_busy", "compared_bytes", "mismatches"),
)


def report(way, case):
    base = 1000 * case.tokens + case.cycles + (500 if way == "hub" else 0)
    more = {"all_ready": {"first": base + 7}, "last_row": [base + 4], "last_close": base + 5}
    figures = dict.fromkeys(FIGURES, base)
    return {
        **figures,
        "tile_rows": case.tile_rows or 4,
        "usable": {"first": base, "last": base + 2, "median": base + 1},
        "answers": {"first": base + 3},
        "layer_cycles": base + 9,
        "bound_cycles": base // 2,
        "efficiency": 0.5,
        "stalls": dict.fromkeys(STALLS, 0),
        **(more if way == "hub" else {}),
    }


def stub(case):
    return {way: report(way, case) for way in ("hub", *case.baselines)}


def test_page_is_made_of_figures():
    text = compare.page(stub)
    assert text == compare.page(stub)
    for case in (*WAITING, *BESIDE, *HOT):
        assert case.command in text
    assert "| 1 | 781 | 576 / 2 | 2,290 | 1,140 | 50 % | 2,286 | 2,281 | 2,282 | 2,283 |" in text
    assert "| 1 | 781 | 1024 / 15 |" in text and "| 4 | 1,563 |" in text
    for case in BESIDE:
        for name in case.baselines:
            assert f"The hub is not ahead of {WAYS[name].title} in: first usable" in text
    assert "the first region of all ends 3 cycles after the last row has come to rank 0" in text


def test_logs_stand_behind_the_rest(log):
    text = compare.page(stub, [log])
    assert text.startswith(compare.page(stub).rstrip())
    assert log.command in text and "--trace log.jsonl" in log.command
    assert "### olmoe-1b-7b: 40 tokens, top-2 of 16 experts" in text
    assert f"| layer, cycles | {1290:,} | {790:,} | {790:,} | {790:,} |" in text
    ratio = " | ".join([f"{790 / 1290:.2f}"] * len(BASELINES))
    assert f"| olmoe-1b-7b: layer | {ratio} |" in text


@pytest.mark.parametrize(
    "words, error",
    [
        (["--trace", "log.jsonl"], "0 models for 1 logs: each --trace needs its --model"),
        (["--trace", "none.jsonl", "--model", "olmoe-1b-7b"], "none.jsonl: No such file"),
    ],
)
def test_wrong_logs_are_found_before_a_run(words, error, monkeypatch, tmp_path):
    monkeypatch.setattr(compare, "measured", None)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["compare", *words])
    assert result.exit_code == 2 and error in result.stderr and result.stderr.count("\n") == 1


def test_a_wrong_run_is_a_failure(monkeypatch, tmp_path):
    def wrong(*given):
        raise AssertionError("hub: rank 0: 1 bytes of memory differ, first at 0x10")

    monkeypatch.setattr(moe_hub.command.compare, "compared", wrong)
    result = CliRunner().invoke(app, ["compare", "--page", str(tmp_path / "page.md")])
    assert result.exit_code == 1 and "rank 0: 1 bytes" in result.stderr
    assert not (tmp_path / "page.md").exists()
