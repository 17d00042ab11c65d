# SPDX-License-Identifier: Apache-2.0
"""The experiment of switches that copy and add: its layers, and what is made of their times."""

import pytest

from sim.evaluate.questions.in_switch import CASES, MODELS, in_switch_points, in_switch_report
from sim.evaluate.runner import Result, machine_of
from sim.evaluate.study import HUB, IN_SWITCH, Options


def results_of(points, us, wire_bytes):
    return {
        point: Result(point, us(point), 1.0, 2.0, wire_bytes(point), 80, 0.5, 1.0, ())
        for point in points
    }


def test_every_system_runs_on_both_machines():
    points = in_switch_points(Options())
    cases = {(p.machine, p.ranks, p.tokens // p.ranks) for p in points}
    assert cases == {(box, ranks, n) for box, ranks, counts in CASES for n in counts}
    for case in {(p.machine, p.model, p.tokens) for p in points}:
        own = {p.system for p in points if (p.machine, p.model, p.tokens) == case}
        assert own == {HUB, "moe_hub_once", "deepep_v1_normal", "deepep_v2", *IN_SWITCH}
    assert {p.model for p in points} == set(MODELS)
    assert all(machine_of(point).ranks == point.ranks for point in points)


@pytest.mark.parametrize(
    "options, wanted",
    [
        (Options(machine="gh200_nvl32"), {("gh200_nvl32", 32, 16384)}),
        (Options(machine="b200", tokens=(64,)), {("b200", 8, 64)}),
        (Options(machine="h800", ranks=4), {("h800", 4, 512), ("h800", 4, 4096)}),
    ],
)
def test_options_narrow_it(options, wanted):
    assert {(p.machine, p.ranks, p.tokens) for p in in_switch_points(options)} == wanted


def test_a_systems_time_and_bytes_are_over_the_hubs():
    options = Options(models=("olmoe-1b-7b",))
    points = in_switch_points(options)
    report = in_switch_report(
        options,
        results_of(
            points,
            lambda p: 40.0 if p.system == "nvls" else 10.0,
            lambda p: 300 if p.system == "dysharp" else 600,
        ),
    )
    for row in report.summary:
        assert (row["nvls"], row["dysharp"], row["hub, us"]) == (4.0, 1.0, 10.0)
        assert (row["dysharp, wire bytes"], row["nvls, wire bytes"]) == (0.5, 1.0)
        tokens = row["GPUs"] * row["tokens per GPU"]
        assert row["hub, wire bytes per token"] == 600 / tokens
    assert len(report.rows) == len(points)
    assert [len(panel.x) for panel in report.plot.panels] == [len(report.summary)] * 2
