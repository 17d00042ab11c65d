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
from sim.system.compare import BESIDE, HOT, WAITING, Case
from sim.system.ways import WAYS


class Planned(Exception):
    """A run has come to its programs."""


def noted(names, name, programs, *given, **more):
    names.append(name)
    return programs(*given, **more)


@pytest.mark.parametrize("case", dict.fromkeys([*WAITING, *BESIDE, *HOT]), ids=Case.command.fget)
def test_a_command_of_the_page_is_its_run(case, monkeypatch, tmp_path):
    """What stands beside a line is what was measured: routing, hub, tiles, fabric, ways."""
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
    assert seen["settings"]["latency"] == case.cycles
    assert seen["ways"] == ["hub", *case.baselines]


def report(way, case):
    base = 1000 * case.tokens + case.cycles + (500 if way == "hub" else 0)
    more = {"all_ready": {"first": base + 7}, "last_row": [base + 4], "last_close": base + 5}
    return {
        "tile_rows": case.tile_rows or 4,
        "usable": {"first": base, "last": base + 2, "median": base + 1},
        "layer_cycles": base + 9,
        "bound_cycles": base // 2,
        "efficiency": 0.5,
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
    assert "| 1 | 22.3 % | 22.3 % |" in text


def test_a_wrong_run_is_a_failure(monkeypatch, tmp_path):
    def wrong(*given):
        raise AssertionError("hub: rank 0: 1 bytes of memory differ, first at 0x10")

    monkeypatch.setattr(moe_hub.command.compare, "compared", wrong)
    result = CliRunner().invoke(app, ["compare", "--page", str(tmp_path / "page.md")])
    assert result.exit_code == 1 and "rank 0: 1 bytes" in result.stderr
    assert not (tmp_path / "page.md").exists()
