# SPDX-License-Identifier: Apache-2.0
"""Experiments `overlap` and `training`: which layers they simulate, and what is made of their
times."""

import pytest

from sim.evaluate.experiments import EXPERIMENTS
from sim.evaluate.pipelines.run import PROGRAMS
from sim.evaluate.questions.overlap import OVERLAPS, compute_us, overlap_points, overlap_report
from sim.evaluate.questions.training import STEPS, training_points, training_report
from sim.evaluate.runner import Point, Result, run_point
from sim.evaluate.study import HUB, Options

SMALL = Options(models=("olmoe-1b-7b",), tokens=(64,))
TIMES = dict(zip((*OVERLAPS, *STEPS), (400, 390, 380, 320, 900, 950, 1200, 880, 700), strict=True))


class Times(dict):
    """A result of every point: by its program, the hub's half as long."""

    def __missing__(self, point):
        us = TIMES[point.program] / (2 if point.system == HUB else 1)
        return Result(point, us, us, us, 100, 80, 0.5, 1.0, ())


def test_every_program_is_asked_for():
    assert {*OVERLAPS, *STEPS} == set(PROGRAMS)
    assert {p.program for p in training_points(SMALL)} == set(STEPS)
    own = overlap_points(Options(models=("deepseek-v3",)))
    assert {p.program for p in own} == set(OVERLAPS)


def test_a_shared_expert_is_asked_where_there_is_one():
    assert {p.program for p in overlap_points(SMALL)} == set(OVERLAPS) - {"shared expert"}
    assert all(row["shared expert, us"] is None for row in overlap_report(SMALL, Times()).summary)


def test_all_systems_are_asked_the_same():
    for points in (overlap_points(SMALL), training_points(SMALL)):
        asked = {}
        for point in points:
            asked.setdefault(point.system, []).append((point.program, point.tokens))
        assert HUB in asked and len({tuple(cases) for cases in asked.values()}) == 1


def test_what_overlap_hides():
    point = overlap_points(SMALL)[0]
    alone = compute_us(point)
    for row in overlap_report(SMALL, Times()).summary:
        share = 1 if row["system"] == HUB else 2
        assert row["best"] == "two batches" and row["best, us"] == 160 * share
        assert row["hidden by it, %"] == pytest.approx(100 * 40 * share / (200 * share - alone))
        assert row["one stream over the hub's"] == row["best over the hub's best"] == share
        assert row["best over the hub's one stream"] == pytest.approx(0.8 * share)


def test_kernels_alone_are_less_than_a_layer():
    point = overlap_points(SMALL)[0]
    assert 0 < compute_us(point) < run_point(point).us


def test_the_best_step_recomputes_nothing():
    for row in training_report(SMALL, Times()).summary:
        share = 0.5 if row["system"] == HUB else 1
        assert row["best"] == "forward beside" and row["best, us"] == 700 * share
        assert row["best over step"] == pytest.approx(7 / 9)
        assert row["step over the hub's"] == row["best over the hub's best"] == 2 * share


def test_a_program_is_in_the_row_where_there_is_one():
    plain = Point(HUB, "tiny", 16, ranks=2)
    row = run_point(plain).row()
    assert "program" not in row
    assert run_point(Point(HUB, "tiny", 16, ranks=2, program="two batches")).row()["program"]


def test_same_seed_same_report():
    for name in ("overlap", "training"):
        reports = [EXPERIMENTS[name].report(SMALL, Times()) for _ in range(2)]
        assert reports[0].summary == reports[1].summary and reports[0].rows == reports[1].rows
