# SPDX-License-Identifier: Apache-2.0
"""Workloads of the system model: how many rows go where, how uneven, and what de-duplication
saves."""

import numpy as np
import pytest

from hub_rtl.contract.config import ConfigError
from sim.evaluate.machine.workload import TYPICAL_SKEW, Workload, WorkloadError
from sim.workload.models import MODELS
from sim.workload.models import model as shape
from sim.workload.traces import generate


@pytest.mark.parametrize("name", MODELS)
def test_shapes_have_a_source_and_whole_rows(name):
    model = shape(name)
    assert len(model.source) > 5
    assert model.dispatch_bytes % 16 == 0 and model.combine_bytes % 16 == 0
    assert model.moe_layers >= 1


def test_rows_are_counted_once():
    load = Workload.make(shape("deepseek-v3"), 8, 1000)
    assert load.rows.shape == (8, 256) and load.rows.sum() == 8000
    assert load.tokens_of.tolist() == [125] * 8
    assert (load.pair_rows.sum(axis=1) == 1000).all()
    assert np.concatenate([load.experts_of(rank) for rank in range(8)]).tolist() == list(range(256))
    assert sum(load.rows_at(rank).sum() for rank in range(8)) == 8000
    assert (load.distinct <= np.minimum(load.pair_rows, 125)).all()
    assert all(len(set(row)) == 8 for row in load.experts.tolist())


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen2-moe-2.7b", "deepseek-v3"])
@pytest.mark.parametrize("skew", [0.0, 0.01, TYPICAL_SKEW, 0.05])
def test_skew_is_what_was_asked_for(name, skew):
    assert Workload.make(shape(name), 8, 8192, skew=skew).measured_skew == pytest.approx(
        skew, abs=0.002
    )


def test_for_eight_experts_skew_is_the_standard_deviation_of_the_fractions():
    loads = Workload.make(shape("mixtral-8x7b"), 8, 32768, skew=0.04).loads
    assert (loads / loads.sum()).std() == pytest.approx(0.04, rel=0.02)


@pytest.mark.parametrize(
    "name, ranks, mean",
    [
        ("deepseek-v3", 8, 5.29),
        ("deepseek-v3", 64, 7.68),
        ("mixtral-8x7b", 8, 2.0),
        ("nemotron-3-super", 8, 7.60),
        ("kimi-k3", 16, 10.35),
    ],
)
def test_even_routing_reaches_as_many_ranks_as_drawing_at_random(name, ranks, mean):
    load = Workload.make(shape(name), ranks, 8192, skew=0)
    assert load.distinct.sum() / load.tokens == pytest.approx(mean, rel=0.01)


def test_same_arguments_same_workload():
    first, again, other = (
        Workload.make(shape("phi-3.5-moe"), 8, 512, seed=seed) for seed in (3, 3, 4)
    )
    assert (first.experts == again.experts).all() and (first.experts != other.experts).any()


def test_routing_of_a_log_is_taken_as_it_is_and_repeated():
    routing = generate(tokens=100, top_k=8, experts=64, seed=2)
    load = Workload.make(shape("olmoe-1b-7b"), 4, routing=routing)
    assert load.tokens == 100 and (load.loads == routing.loads).all()
    twice = Workload.make(shape("olmoe-1b-7b"), 4, 200, routing=routing)
    assert (twice.loads == 2 * routing.loads).all()


def test_experts_that_do_not_divide_by_the_ranks():
    load = Workload.make(shape("qwen1.5-moe-a2.7b"), 8, 64)
    assert [len(load.experts_of(rank)) for rank in range(8)] == [8] * 4 + [7] * 4
    runs = Workload.make(shape("qwen1.5-moe-a2.7b"), 8, 64, placement="runs")
    assert [len(runs.experts_of(rank)) for rank in range(8)] == [8] * 7 + [4]


def test_one_expert_per_rank_needs_no_deduplication():
    assert Workload.make(shape("mixtral-8x7b"), 8, 1024).duplication == 1
    assert Workload.make(shape("nemotron-3-super"), 8, 1024).duplication == pytest.approx(
        2.89, rel=0.02
    )


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"ranks": 8, "tokens": 4}, "tokens = 4"),
        ({"ranks": 16, "tokens": 64}, "ranks = 16"),
        ({"ranks": 8, "tokens": 64, "skew": 0.4}, "skew"),
        ({"ranks": 8, "tokens": 64, "placement": "random"}, "placement = 'random'"),
        ({"ranks": 8, "routing": generate(tokens=64, top_k=3, experts=8)}, "routing: top-3"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(arguments, text):
    with pytest.raises(WorkloadError, match=text) as error:
        Workload.make(shape("mixtral-8x7b"), **arguments)
    assert "\n" not in str(error.value)


def test_unknown_model():
    with pytest.raises(ConfigError, match="model = 'gpt-99'"):
        shape("gpt-99")
