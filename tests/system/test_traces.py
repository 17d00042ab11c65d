# SPDX-License-Identifier: Apache-2.0
"""Routing logs: the reader's refusals, the statistics, the generator and its fit."""

import json
import re

import numpy as np
import pytest

from sim.bench.runner import ROOT
from sim.workload.traces import (
    Routing,
    Skew,
    TraceError,
    busiest_over_mean,
    fit_skew,
    generate,
    gini,
    read_trace,
    write_trace,
)

META = {"type": "meta", "model_id": "made-up", "top_k": 2, "num_experts": 4}
ROUTE = {
    "type": "route",
    "req_id": "r0",
    "token_idx": 0,
    "layer": 0,
    "topk_ids": [1, 3],
    "topk_weights": [0.75, 0.25],
}


def written(path, *lines):
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )
    return path


def test_read(tmp_path):
    routing = read_trace(
        written(
            tmp_path / "log",
            META,
            ROUTE,
            "",
            {**ROUTE, "layer": 1, "topk_ids": [0, 2], "extra": None},
        )
    )
    assert routing.experts.tolist() == [[1, 3], [0, 2]]
    assert routing.weights.tolist() == [[0.75, 0.25]] * 2
    assert (routing.tokens, routing.top_k, routing.num_experts, routing.source) == (
        2,
        2,
        4,
        "made-up",
    )


def test_layer_filter(tmp_path):
    path = written(tmp_path / "log", META, ROUTE, {**ROUTE, "layer": 5, "topk_ids": [0, 2]})
    routing = read_trace(path, layer=5)
    assert routing.experts.tolist() == [[0, 2]]
    assert routing.source == "made-up, layer 5"
    with pytest.raises(
        TraceError, match="^.*log:3: no route lines of layer 2; the layers are: 0, 5$"
    ):
        read_trace(path, layer=2)


@pytest.mark.parametrize(
    "lines, text",
    [
        (["{"], "1: not JSON: "),
        ([[1]], "1: must be a JSON object"),
        ([{"type": "other"}], '1: type = "other": must be "meta" or "route"'),
        ([{}], '1: type = null: must be "meta" or "route"'),
        ([ROUTE], "1: route line before the meta line"),
        ([META, META], "2: second meta line"),
        ([], "0: no meta line"),
        ([META], "1: no route lines"),
        ([{"type": "meta", "top_k": 2}], "1: no 'num_experts', must be a positive integer"),
        ([{**META, "num_experts": 0}], "1: num_experts = 0: must be a positive integer"),
        ([{**META, "top_k": 5}], "1: top_k = 5: must be an integer between 1 and 4"),
        ([{**META, "top_k": True}], "1: top_k = true: must be an integer between 1 and 4"),
        ([META, {**ROUTE, "req_id": 7}], "2: req_id = 7: must be a string"),
        ([META, {**ROUTE, "token_idx": -1}], "2: token_idx = -1: must be an integer from 0 on"),
        ([META, {**ROUTE, "layer": "x"}], '2: layer = "x": must be an integer from 0 on'),
        (
            [META, ROUTE, {**ROUTE, "topk_ids": [1]}],
            "3: topk_ids = [1]: must be a list of 2 integers",
        ),
        (
            [META, {**ROUTE, "topk_ids": [1, 2.5]}],
            "2: topk_ids = [1, 2.5]: must be a list of 2 integers",
        ),
        ([META, {**ROUTE, "topk_ids": [1, 4]}], "2: expert 4: must be between 0 and 3"),
        ([META, {**ROUTE, "topk_ids": [1, 1]}], "2: topk_ids = [1, 1]: an expert is named twice"),
        (
            [META, {**ROUTE, "topk_weights": [1, -1]}],
            "2: topk_weights = [1, -1]: must be a list of 2 numbers from 0 on",
        ),
        (
            [META, json.dumps(ROUTE).replace("0.75", "NaN")],
            "2: topk_weights = [NaN, 0.25]: must be a list of 2 numbers from 0 on",
        ),
        (
            [META, {key: ROUTE[key] for key in ROUTE if key != "topk_weights"}],
            "2: no 'topk_weights', must be a list of 2 numbers",
        ),
    ],
)
def test_refused(tmp_path, lines, text):
    path = written(tmp_path / "log", *lines)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:{text}")
    assert "\n" not in str(caught.value)


def test_long_value_is_cut(tmp_path):
    path = written(tmp_path / "log", META, {**ROUTE, "topk_ids": list(range(1000))})
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert len(str(caught.value)) < len(str(path)) + 120


def test_statistics():
    assert gini([5, 5, 5, 5]) == 0
    assert gini([0, 0, 0, 8]) == 0.75
    assert gini([0, 0]) == 0
    assert busiest_over_mean([1, 2, 3, 2]) == 1.5
    assert busiest_over_mean([0, 0]) == 1
    routing = Routing(np.array([[0, 1], [0, 3]]), np.ones((2, 2)), 6)
    assert routing.loads.tolist() == [2, 1, 0, 1, 0, 0]
    assert routing.rank_loads(3).tolist() == [3, 1, 0]
    assert routing.window(1, 1).experts.tolist() == [[0, 3]]
    with pytest.raises(ValueError, match="^tokens 1 .. 2: there are 2$"):
        routing.window(1, 2)


@pytest.mark.parametrize(
    "experts, weights, count, text",
    [
        ([[0, 1]], [[1.0]], 4, "must both be"),
        ([[0, 1, 2]], [[1.0] * 3], 2, "k = 3: must be between 1 and num_experts = 2"),
        ([[0, 4]], [[1.0] * 2], 4, "between 0 and 3"),
        ([[2, 2]], [[1.0] * 2], 4, "one expert twice"),
    ],
)
def test_routing_refused(experts, weights, count, text):
    with pytest.raises(ValueError, match=text):
        Routing(np.array(experts), np.array(weights), count)


def test_generate_is_sound_and_repeatable():
    arguments = {"tokens": 200, "top_k": 3, "experts": 10, "skew": Skew(alpha=1.0)}
    one, same, other = generate(**arguments), generate(**arguments), generate(**arguments, seed=2)
    assert (one.experts == same.experts).all() and (one.weights == same.weights).all()
    assert (one.experts != other.experts).any()
    assert one.experts.shape == (200, 3)
    assert np.allclose(one.weights.sum(axis=1), 1) and (np.diff(one.weights, axis=1) <= 0).all()


def test_generate_limits():
    assert generate(tokens=5, top_k=4, experts=4).loads.tolist() == [5] * 4
    assert generate(tokens=0, top_k=1, experts=1).loads.tolist() == [0]
    with pytest.raises(ValueError, match="^top_k = 5: must be between 1 and experts = 4$"):
        generate(tokens=1, top_k=5, experts=4)
    with pytest.raises(
        ValueError, match="^skew alpha = -1, hot = 1.0: alpha must be from 0 on, hot above 0$"
    ):
        generate(tokens=1, top_k=1, experts=4, skew=Skew(-1))


def test_more_alpha_more_skew():
    values = [
        generate(tokens=500, top_k=4, experts=32, skew=Skew(alpha)).gini
        for alpha in (0, 0.3, 0.6, 1.2)
    ]
    assert values == sorted(values)


# Statistics of layer 0 of OLMoE-1B-7B (GSM8K questions) and of Qwen1.5-MoE-A2.7B.
@pytest.mark.parametrize(
    "top_k, experts, target, busiest", [(8, 64, 0.295, 5.08), (4, 60, 0.118, 1.48)]
)
def test_fit(top_k, experts, target, busiest):
    shape = {"top_k": top_k, "experts": experts, "tokens": 1000}
    assert generate(**shape, skew=fit_skew(**shape, gini=target)).gini == pytest.approx(
        target, abs=0.003
    )
    fitted = generate(**shape, skew=fit_skew(**shape, busiest=busiest))
    assert fitted.busiest_over_mean == pytest.approx(busiest, rel=0.02)


def test_fit_both():
    shape = {"top_k": 8, "experts": 64, "tokens": 1000}
    skew = fit_skew(**shape, gini=0.295, busiest=5.08)
    assert skew.hot > 1
    fitted = generate(**shape, skew=skew)
    assert fitted.gini == pytest.approx(0.295, abs=0.003)
    assert fitted.busiest_over_mean == pytest.approx(5.08, rel=0.02)


def test_fit_limits():
    assert fit_skew(top_k=2, experts=8, gini=0.0, tokens=100) == Skew(0)
    for arguments, text in (
        ({}, "gini or busiest must be given"),
        ({"gini": 0.9}, "below 1 - top_k/experts = 0.750"),
        ({"busiest": 0.5}, "at least 1"),
        ({"busiest": 4.5}, "below experts/top_k = 4.000"),
    ):
        with pytest.raises(ValueError, match=text):
            fit_skew(top_k=2, experts=8, **arguments)


def test_write_and_read_back(tmp_path):
    routing = generate(tokens=50, top_k=2, experts=8, skew=Skew(0.5, 2.0))
    write_trace(routing, tmp_path / "log", layer=3)
    back = read_trace(tmp_path / "log", layer=3)
    assert (back.experts == routing.experts).all()
    assert np.allclose(back.weights, routing.weights, atol=6e-6)


def test_the_page_of_the_format(tmp_path):
    """The log of docs/routing_log.md is read as the page says, and its line of an error is what is
    said."""
    page = (ROOT / "docs" / "routing_log.md").read_text()
    [log] = re.findall(r"test_traces.py -->\n```json\n(.*?)```", page, re.S)
    path = tmp_path / "routes.jsonl"
    path.write_text(log)
    routing = read_trace(path)
    assert routing.num_experts == 8 and routing.source == "allenai/OLMoE-1B-7B-0924"
    assert routing.experts.tolist() == [[3, 5], [5, 0]]
    path.write_text(log.replace("[5, 0]", "[5, 5]"))
    with pytest.raises(TraceError) as error:
        read_trace(path)
    said = str(error.value).replace(str(tmp_path) + "/", "")
    assert f"moe-hub: {said}\n" in page
