# SPDX-License-Identifier: Apache-2.0
"""Questions that no published figure answers: which layers they simulate, and what is made of their
times."""

import pytest

from sim.evaluate.experiments import EXPERIMENTS
from sim.evaluate.questions.baselines import SEEDS, baseline_points, baseline_report
from sim.evaluate.questions.decode import DRAWS, PERCENTILES, decode_points, decode_report
from sim.evaluate.questions.energy import energy_points, energy_report
from sim.evaluate.questions.seeds import CASES, over_seeds
from sim.evaluate.questions.seeds import SEEDS as DRAWN
from sim.evaluate.questions.shared import GRAPHLESS, HOSTS, host_of
from sim.evaluate.runner import Point, Result, run_point
from sim.evaluate.study import HUB, Experiment, Options, Report
from sim.workload.models import model as shape

SMALL = Options(models=("olmoe-1b-7b",), tokens=(64,))


def times(of):
    """Results by point: ``of(point)`` microseconds."""

    class Times(dict):
        def __missing__(self, point):
            return Result(point, of(point), 1.0, 2.0, 100, 80, 0.5, 1.0, ())

    return Times()


def test_every_host_launches_what_it_can():
    points = baseline_points(SMALL)
    assert {host_of(point) for point in points} == set(HOSTS)
    for host in HOSTS:
        own = [point for point in points if host_of(point) == host]
        assert {point.seed for point in own} == set(range(1, 1 + SEEDS))
        assert not {p.system for p in own} & set(GRAPHLESS) or host != "graph"
        assert {p.system for p in own} >= {HUB, "row_flags", "expert_flags", "deepep_v2"}


def test_what_is_no_graph_is_what_asks_its_host():
    """The list of :data:`GRAPHLESS` is of the schemes as they are."""
    for point in baseline_points(SMALL):
        if host_of(point) == "Python" and point.seed == 1:
            asks = "host sync" in dict(run_point(point).breakdown)
            assert asks == (point.system in GRAPHLESS), point.system


def test_every_rank_has_a_token():
    points = baseline_points(Options(models=("deepseek-v3",), ranks=16))
    assert {point.ranks for point in points} == {16}
    assert min(point.tokens for point in points) == 128


def test_means_are_over_the_routings():
    results = times(lambda p: (2.0 if p.system == "mori" else 1.0) * (10.0 + p.seed))
    summary = baseline_report(SMALL, results).summary
    assert [row["host"] for row in summary] == list(HOSTS)
    for row in summary:
        assert row["mori"] == 2.0 and row["deepep_v2"] == 1.0
        assert row["hub, us"] == pytest.approx(13.0)
        assert row["hub, range %"] == pytest.approx(100 * (15 / 11 - 1))
    assert summary[-1]["megatron"] is None and summary[0]["megatron"] == 1.0


def test_a_token_is_all_expert_layers():
    """Where each layer takes the same, a token takes it as often as the model has expert layers;
    where they differ, percentiles are in order and lie within the layers'."""
    layers = shape("olmoe-1b-7b").moe_layers
    alike = decode_report(SMALL, times(lambda p: 50.0 if p.system == HUB else 100.0)).summary
    for row in alike:
        us = 50.0 if row["system"] == HUB else 100.0
        assert {row[f"layer p{p}, us"] for p in PERCENTILES} == {us}
        assert row["token p50, ms"] == pytest.approx(us * layers / 1e3)
        assert row["hub over it, p99"] == pytest.approx(us / 50.0)
    for row in decode_report(SMALL, times(lambda p: 10.0 * p.seed)).summary:
        token = [row[f"token p{p}, ms"] for p in PERCENTILES]
        assert 10.0 * layers / 1e3 < token[0] < token[1] < token[2] < 160.0 * layers / 1e3
        assert row["layer p50, us"] == pytest.approx(85.0)


def test_decode_drifts_and_all_systems_see_the_same():
    points = decode_points(SMALL)
    routings = {(p.seed, p.skew) for p in points}
    assert len(routings) == DRAWS and len({skew for _, skew in routings}) > 1
    for system in {point.system for point in points}:
        assert {(p.seed, p.skew) for p in points if p.system == system} == routings


def test_energy_is_bits_times_links():
    """100 bytes on the wire, two links of 5.5 pJ a bit: 8,800 pJ over 64 tokens."""
    report = energy_report(SMALL, times(lambda p: 10.0))
    assert {row["system"] for row in report.summary} == {p.system for p in energy_points(SMALL)}
    for row in report.summary:
        assert row["links, uJ per token"] == pytest.approx(8800e-6 / 64)
        assert row["over the hub"] == 1.0 and row["of it payload, %"] == 80


def asking(name, points):
    """An experiment of these points."""
    return Experiment(name, "", points, lambda options, results: Report(rows=[], summary=[]))


def drawn(tokens=(64,), **changed):
    """Points of two systems."""
    return [
        Point(system, "olmoe-1b-7b", count, **changed) for count in tokens for system in ("a", HUB)
    ]


def test_figures_of_one_routing_are_asked_of_five():
    """Speed-ups 1.1 to 1.5 of the hub's: their standard deviation over their mean; a system that is
    as fast in one routing and faster in another is on either side."""
    points, report = over_seeds([asking("one", lambda options: drawn(seed=7))])
    assert {p.seed for p in points(Options(seed=7))} == set(range(7, 7 + DRAWN))
    (row,) = report(Options(), times(lambda p: 10.0 + p.seed if p.system == "a" else 10.0)).summary
    assert row["deviation, largest %"] == pytest.approx(100 * 0.025**0.5 / 1.3)
    assert row["deviation, median %"] == row["deviation, largest %"]
    assert (row["figures"], row["on either side of 1"], row["of"]) == (1, 0, "a")
    (row,) = report(Options(), times(lambda p: 8.0 + p.seed if p.system == "a" else 10.0)).summary
    assert row["on either side of 1"] == 1


def test_what_shares_points_is_one_row_and_what_has_seeds_of_its_own_none():
    def alone(options):
        return drawn(tokens=range(8, 80, 8))

    def has_seeds(options):
        return [point for seed in (1, 2) for point in drawn(seed=seed)]

    nothing = drawn(trace="log"), drawn(ranks=32), drawn(delays=(0.0, float("inf"))), drawn()[:1]
    others = [asking(str(n), lambda options, own=own: own) for n, own in enumerate(nothing)]
    shared = [asking("x", alone), asking("y", has_seeds), asking("z", alone)]
    points, report = over_seeds([*shared, *others])
    (row,) = report(Options(), times(lambda p: 10.0)).summary
    assert row["experiments"] == "x, z" and row["cases"] == CASES
    assert {p.system for p in points(Options())} == {"a", HUB}
    assert len(points(Options())) == CASES * DRAWN * 2


def test_same_seed_same_report():
    for name in ("baselines", "decode", "energy"):
        reports = [
            EXPERIMENTS[name].report(SMALL, times(lambda p: 10.0 + p.seed)) for _ in range(2)
        ]
        assert reports[0].summary == reports[1].summary and reports[0].rows == reports[1].rows
