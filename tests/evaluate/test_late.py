# SPDX-License-Identifier: Apache-2.0
"""Ranks that begin a layer late or never: what the layer becomes, and what the experiments make of
it."""

from math import inf

import numpy as np
import pytest

from sim.evaluate.machine.compute import TILE_ROWS, expert_gemms, group_tiles
from sim.evaluate.machine.engine import Cluster, run_layer
from sim.evaluate.machine.hardware import load_data, machine
from sim.evaluate.machine.workload import Workload
from sim.evaluate.questions.decode import DRAWS, decode_points, delays, jitters
from sim.evaluate.questions.late import DELAYS, LATE, late_points, late_report
from sim.evaluate.questions.shared import HOSTS, host_of
from sim.evaluate.runner import Result
from sim.evaluate.schemes import SCHEMES
from sim.evaluate.study import HUB, Options
from sim.evaluate.systems import override
from sim.workload.models import model as shape

RANKS = 4
BOX = machine("h800", RANKS)
LOAD = Workload.make(shape("olmoe-1b-7b"), RANKS, 64)
MANY = Workload.make(shape("mixtral-8x7b"), RANKS, 2000, skew=0.05)
#: They cannot begin with any row before all ranks have come.
TOGETHER = ("megatron", "comet", "deepep_v1_ll", "deepep_v1_normal", "deepep_v2", "expert_flags")


def late_by(us, load=LOAD):
    return tuple(us if rank == LATE else 0.0 for rank in range(load.ranks))


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_late_by_nothing_is_on_time_and_all_rows_are_usable(name):
    layer = run_layer(SCHEMES[name], BOX, LOAD)
    assert run_layer(SCHEMES[name], BOX, LOAD, delays=late_by(0.0)) == layer
    assert layer.usable_rows == tuple(LOAD.pair_rows.sum(axis=0))


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_all_late_is_the_same_layer_later(name):
    """But for what happens at the same time, to the last digit, which may happen in another
    order."""
    before = run_layer(SCHEMES[name], BOX, LOAD)
    after = run_layer(SCHEMES[name], BOX, LOAD, delays=(300.0,) * RANKS)
    assert after.rank_us == pytest.approx([us + 300.0 for us in before.rank_us], rel=3e-3)
    assert after.wire_bytes == before.wire_bytes


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_later_is_never_earlier(name):
    """Blocks that find an SM in another order may end the layer a little earlier."""
    ends = [run_layer(SCHEMES[name], BOX, LOAD, delays=late_by(us)) for us in (0.0, 30.0, 400.0)]
    slowest = [layer.us for layer in ends]
    assert slowest[1] > 0.99 * slowest[0] and slowest[2] > 0.99 * slowest[1]
    gate = Cluster(BOX, LOAD).gate_us(LATE)
    assert ends[-1].rank_us[LATE] > 400.0 + gate
    assert slowest[2] < slowest[0] + 401.0


def test_a_graph_that_is_late_is_as_late():
    with override("host", graph=1):
        before = run_layer(SCHEMES["deepep_v2"], BOX, LOAD)
        assert run_layer(SCHEMES["deepep_v2"], BOX, LOAD, delays=late_by(0.0)) == before
        after = run_layer(SCHEMES["deepep_v2"], BOX, LOAD, delays=(50.0,) * RANKS)
    assert after.us == pytest.approx(before.us + 50.0)


@pytest.mark.parametrize("wrong", [(0.0,) * 3, (0.0, 0.0, -1.0, 0.0)])
def test_delays_are_of_all_ranks(wrong):
    with pytest.raises(ValueError, match="delays"):
        Cluster(BOX, LOAD, delays=wrong)


# -- a rank that never comes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", TOGETHER)
def test_without_one_rank_nobody_has_rows(name):
    layer = run_layer(SCHEMES[name], BOX, LOAD, delays=late_by(inf))
    assert layer.rank_us == (inf,) * RANKS and layer.us == inf
    assert layer.usable_rows == (0,) * RANKS


@pytest.mark.parametrize("name", ["moe_hub", "moe_hub_by_expert"])
@pytest.mark.parametrize("load", [LOAD, MANY], ids=["few rows", "many"])
def test_without_one_rank_the_hub_has_whole_groups(name, load):
    """An expert's last group waits for all producers' word of how much they send."""
    first, _ = expert_gemms(load.shape)
    layer = run_layer(SCHEMES[name], BOX, load, delays=late_by(inf, load))
    for rank in set(range(RANKS)) - {LATE}:
        own = load.experts_of(rank)
        group = TILE_ROWS * group_tiles(BOX.gpu, first, len(own))
        came, total = np.delete(load.rows, LATE, 0)[:, own].sum(axis=0), load.loads[own]
        assert layer.usable_rows[rank] == (np.minimum(came, total - 1) // group * group).sum()
    assert layer.us == inf


def test_a_scheme_that_hangs_by_itself_is_still_told():
    def hangs(cluster):
        cluster.env.process(cluster.gate(cluster.gpus[0]))

    with pytest.raises(RuntimeError, match="rank 0 never finished"):
        run_layer(hangs, BOX, LOAD)


# -- what is made of it ----------------------------------------------------------------------------

SMALL = Options(models=("olmoe-1b-7b",), tokens=(64,), ranks=RANKS)


def test_a_delay_passes_as_much_as_it_moves_the_others():
    """Half of it reaches the others, all of it the late one."""

    class Times(dict):
        def __missing__(self, point):
            us = point.delays[LATE]
            ends = tuple(100.0 + us * (1.0 if rank == LATE else 0.5) for rank in range(RANKS))
            return Result(
                point, max(ends), 10.0 + us / 4, 2.0, 1, 1, 0.5, 1.0, (), None, ends, (8,) * RANKS
            )

    points = late_points(SMALL)
    assert {host_of(point) for point in points} == {"C++", "graph"}
    summary = late_report(SMALL, Times()).summary
    assert len(summary) == len(points) == len(DELAYS) * len({p.system for p in points})
    for row in summary:
        if row["delay, us"] in (0.0, "never"):
            assert row["of it at the median, %"] is None
        else:
            assert row["of it at the median, %"] == pytest.approx(50.0)
            assert row["of it at the slowest, %"] == pytest.approx(100.0)
            assert row["of it at the first rows, %"] == pytest.approx(25.0)
        if row["delay, us"] == "never":
            sent = np.delete(np.delete(LOAD.pair_rows, LATE, 0), LATE, 1).sum()
            assert row["usable rows, %"] == pytest.approx(100 * 8 * (RANKS - 1) / sent)
            assert row["slowest, us"] is None
    assert late_report(SMALL, Times()).summary == summary


def test_jitter_is_as_far_apart_as_measured():
    measured = [entry["value"] for entry in load_data("questions.toml")["jitter"].values()]
    for mean_us, apart in zip(jitters(), measured, strict=True):
        drawn = [max(delays(seed, 8, mean_us)) for seed in range(4000)]
        assert np.mean(drawn) == pytest.approx(apart, rel=0.03)


def test_jitter_is_drawn_once_for_all_systems():
    assert delays(3, 8, 0.0) == ()
    assert delays(3, 8, 5.0) == delays(3, 8, 5.0) != delays(4, 8, 5.0)
    assert min(delays(3, 8, 5.0)) == 0.0 and len(delays(3, 5, 5.0)) == 5
    assert delays(3, 8, 10.0) == pytest.approx(2 * np.array(delays(3, 8, 5.0)), abs=2e-3)
    asked = decode_points(Options(models=("olmoe-1b-7b",), tokens=(64,), jitter=5.0))
    assert {p.delays for p in asked} == {delays(seed, 8, 5.0) for seed in range(1, 1 + DRAWS)}
    by_system = {s: [p.delays for p in asked if p.system == s] for s in {p.system for p in asked}}
    assert all(own == by_system[HUB] for own in by_system.values())
    assert all(set(HOSTS["graph"]) <= set(point.constants) for point in asked)
    plain = decode_points(Options(models=("olmoe-1b-7b",), tokens=(64,)))
    assert len(plain) == (1 + len(jitters())) * len(asked)
