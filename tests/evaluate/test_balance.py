# SPDX-License-Identifier: Apache-2.0
"""Experts placed by their loads: no row and no expert is lost, loads drift as they are said to."""

import numpy as np
import pytest

from sim.evaluate.kept import Kept
from sim.evaluate.machine.engine import Cluster
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.placement import (
    as_numbered,
    balance,
    drifted,
    imbalance,
    pack,
    placed,
    replicate,
    shares_at,
)
from sim.evaluate.machine.workload import Workload, WorkloadError
from sim.evaluate.questions.balance import (
    HOUR,
    Placement,
    balance_points,
    balance_report,
    placements,
)
from sim.evaluate.runner import Point, Result, run_point, workload_of
from sim.evaluate.study import Options
from sim.workload.models import model as shape

MODEL = shape("olmoe-1b-7b")  # 8 of 64 experts
LOADS = shares_at(MODEL, 1, 0.09, 30, 0.9)


# -- replicas and packing --------------------------------------------------------------------------


@pytest.mark.parametrize("ranks, replicas", [(1, 0), (1, 7), (2, 0), (4, 8), (5, 1), (8, 64)])
def test_no_expert_is_nowhere_and_ranks_have_equally_many(ranks, replicas):
    copies, rank_of = balance(LOADS, ranks, replicas)
    assert set(copies) == set(range(64)) and len(copies) == 64 + replicas
    assert set(np.bincount(rank_of, minlength=ranks)) == {(64 + replicas) // ranks}
    assert (np.diff(rank_of) >= 0).all()


def test_the_hottest_expert_gets_the_replica():
    assert sorted(replicate(np.array([90.0, 10.0, 20.0, 10.0]), 3)) == [0, 0, 0, 0, 1, 2, 3]
    assert sorted(replicate(np.array([90.0, 50.0, 20.0, 10.0]), 2)) == [0, 0, 1, 1, 2, 3]
    heaviest = [(LOADS / np.bincount(replicate(LOADS, more))).max() for more in range(0, 128, 16)]
    assert all(after <= before for before, after in zip(heaviest, heaviest[1:], strict=False))


def test_the_heaviest_goes_first_to_the_rank_with_least():
    assert pack([5.0, 4.0, 3.0, 3.0, 2.0, 1.0], 2).tolist() == [0, 1, 1, 0, 1, 0]
    assert pack([9.0, 1.0, 1.0, 1.0], 2).tolist() == [0, 1, 1, 0]  # 1 is full


def test_experts_that_do_not_divide_are_refused():
    with pytest.raises(WorkloadError, match=r"65 experts .* multiple of ranks = 4"):
        balance(LOADS, 4, 1)


def test_busiest_over_the_mean():
    assert imbalance(np.array([0.5, 0.3, 0.2]), np.arange(3), np.array([0, 1, 1])) == 1.0
    assert imbalance(np.array([0.5, 0.5]), np.array([0, 0, 1]), np.array([0, 1, 1])) == 1.5
    even = Workload.make(MODEL, 5, 640, skew=0.09)
    shares = even.loads / even.loads.sum()
    assert imbalance(shares, *as_numbered(64, 5)) == pytest.approx(even.imbalance)


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens, replicas", [(4, 0), (7, 8), (500, 8), (500, 64)])
def test_rows_of_all_replicas_add_up(tokens, replicas):
    before = Workload.make(MODEL, 4, tokens, skew=0.09)
    copies, rank_of = balance(LOADS, 4, replicas)
    after = placed(before, copies, rank_of)
    assert (copies[after.experts] == before.experts).all()
    assert (after.source_of == before.source_of).all() and after.tokens == tokens
    for expert in range(64):
        own = after.loads[copies == expert]
        assert own.sum() == before.loads[expert] and own.max() - own.min() <= 1
        each = after.rows[:, copies == expert]  # and those of each rank
        assert (each.max(axis=1) - each.min(axis=1) <= 1).all()
    assert after.pair_rows.sum() == tokens * MODEL.top_k


def test_the_router_has_as_many_experts_as_before():
    before = Workload.make(MODEL, 4, 64)
    after = placed(before, *balance(LOADS, 4, 64))
    assert after.shape.experts == 128 and after.model is MODEL
    box = machine("h800", 4)
    assert Cluster(box, after).gate_us(1) == Cluster(box, before).gate_us(1)


# -- drift -----------------------------------------------------------------------------------------


def test_the_skew_stays_while_experts_trade_places():
    day = np.array([shares_at(MODEL, 1, 0.09, hour, 0.9) for hour in range(12)])
    assert np.allclose(np.sort(day, axis=1), np.sort(day[0])) and len({*map(tuple, day)}) == 12
    assert day.std(axis=1) == pytest.approx(np.full(12, 0.09 * 8 / 64), rel=1e-3)
    again = np.array([shares_at(MODEL, 1, 0.09, hour, 0.9) for hour in range(12)])
    assert (day == again).all()
    assert (shares_at(MODEL, 2, 0.09, 5, 0.9) != day[5]).any()


def test_loads_are_as_much_alike_as_is_said():
    """Correlation of logarithms, an hour apart; the ends of the distribution are cut."""
    for kept in (0.0, 0.5, 0.95):
        logs = [np.log(shares_at(shape("deepseek-v3"), 1, 0.03, h, kept)) for h in range(40)]
        found = [np.corrcoef(a, b)[0, 1] for a, b in zip(logs, logs[1:], strict=False)]
        assert np.mean(found) == pytest.approx(kept, abs=0.03)
    still = [shares_at(MODEL, 1, 0.03, hour, 1.0) for hour in (0, 9)]
    assert (still[0] == still[1]).all()


@pytest.mark.parametrize(
    "wrong, says",
    [({"hour": -1, "kept": 0.9}, "hour = -1"), ({"hour": 1, "kept": 1.1}, "kept = 1.1")],
)
def test_wrong_drift_is_refused(wrong, says):
    with pytest.raises(WorkloadError, match=says):
        drifted(MODEL, 4, 64, 1, 0.03, **wrong)


def test_without_a_placement_experts_lie_as_numbered():
    plain = drifted(MODEL, 4, 640, 1, 0.05, hour=3, kept=0.9)
    assert (plain.rank_of == as_numbered(64, 4)[1]).all()
    assert plain.loads / plain.loads.sum() == pytest.approx(
        shares_at(MODEL, 1, 0.05, 3, 0.9), abs=2e-3
    )
    placed_now = drifted(MODEL, 4, 640, 1, 0.05, hour=3, kept=0.9, replicas=0)
    assert sorted(placed_now.loads) == sorted(plain.loads)
    older = drifted(MODEL, 4, 640, 1, 0.05, hour=3, kept=0.9, replicas=0, age=3)
    known = balance(shares_at(MODEL, 1, 0.05, 0, 0.9), 4, 0)
    assert (older.loads == plain.loads[known[0]]).all()


# -- the experiment --------------------------------------------------------------------------------

SMALL = Options(models=("olmoe-1b-7b",), tokens=(64,), ranks=4, skew=0.05)


def test_replicas_fit_the_ranks():
    for ranks in (4, 8, 16, 32, 72):
        assert all((256 + (p.replicas or 0)) % ranks == 0 for p in placements(256, ranks)[1:])
    assert placements(256, 8)[0] == Placement() and placements(64, 7) == [Placement()]
    assert Placement(8, 0).busiest(shape("deepseek-v3"), 32, 1, 0.05, HOUR) is None


def test_what_is_left_of_a_skew():
    """A skew costs 60 us as numbered and 15 with any placement: a quarter is left."""

    class Times(dict):
        def __missing__(self, point):
            chosen = dict(point.balance)
            us = 100.0 + (point.skew > 0) * (15.0 if "replicas" in chosen else 60.0)
            return Result(point, us, 1.0, 2.0, 100, 80, 0.5, 1.0, ())

    report = balance_report(SMALL, Times())
    assert {point.skew for point in balance_points(SMALL)} == {0.0, 0.05}
    for row in report.summary:
        left = 100.0 if row["placement"] == "as numbered" else 25.0
        assert row["of the skew's cost left, %"] == pytest.approx(left)
    assert balance_report(SMALL, Times()).summary == report.summary

    class Even(dict):
        def __missing__(self, point):
            return Result(point, 100.0, 1.0, 2.0, 100, 80, 0.5, 1.0, ())

    for row in balance_report(SMALL, Even()).summary:  # nothing is left of nothing
        assert row["of the skew's cost left, %"] is None


def test_a_point_has_its_own_workload_and_is_kept(tmp_path):
    chosen = (("hour", 30), ("kept", 0.9), ("replicas", 8), ("age", 1))
    point = Point("deepep_v2", "olmoe-1b-7b", 64, ranks=4, delays=(5.0, 0, 0, 0), balance=chosen)
    assert workload_of(point).shape.experts == 72
    result = run_point(point)
    assert run_point(point) == result and result.row()["delays"] == "5 0 0 0"
    kept = Kept(tmp_path)
    kept.put(point, result, 1.0)
    assert Result(point, **kept.get(point)[0]) == result
