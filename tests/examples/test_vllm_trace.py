# SPDX-License-Identifier: Apache-2.0
"""``examples/vllm_trace``: a log that is written by the wrapper is read back, and becomes a
picture."""

import numpy as np
import pytest

from examples.vllm_trace.picture import main, matrix
from examples.vllm_trace.route_logger import RouteLogger
from sim.workload.traces import generate, read_trace

ROUTING = generate(tokens=16, top_k=2, experts=4, seed=5)


def router(start, stop):
    """As a server calls it: some tokens at a time."""
    return ROUTING.weights[start:stop], ROUTING.experts[start:stop]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "routes.jsonl"
    with path.open("w") as file:
        logger = RouteLogger(file, "made/up", num_experts=4, top_k=2)
        logged = logger.wrap(router, layer=0)
        for start, stop in ((0, 5), (5, 6), (6, 16)):
            weights, ids = logged(start, stop)
            assert ids is not None and weights.shape == ids.shape
    return path


def test_log_is_read_back(log):
    read = read_trace(log)
    assert (read.experts == ROUTING.experts).all() and np.allclose(read.weights, ROUTING.weights)
    assert (read.num_experts, read.top_k) == (4, 2)


@pytest.mark.parametrize("sizes", [{"num_experts": 3, "top_k": 2}, {"num_experts": 4, "top_k": 1}])
def test_another_model(sizes, tmp_path):
    with (tmp_path / "log").open("w") as file:
        logged = RouteLogger(file, "made/up", **sizes).wrap(router, layer=0)
        with pytest.raises(ValueError, match=r"topk_ids = \[.*\]: must be "):
            logged(0, 16)


def test_matrix():
    """Every row is in it once; here of one token per rank to an expert per rank."""
    rows = matrix(ROUTING, 4)
    assert rows.sum() == 32 and (rows.sum(axis=1) == 8).all()
    assert (rows.sum(axis=0) == ROUTING.loads).all()


def test_picture(log, tmp_path, capsys):
    hubs = ["--ranks", "4", "--preset", "small", "--lanes", "2"]  # the system tests have built them
    asked = ["--model", "tiny", "--tokens", "4", *hubs]
    assert main([str(log), *asked, "-o", str(tmp_path / "layer.png")]) == 0
    assert (tmp_path / "layer.png").read_bytes()[:4] == b"\x89PNG"
    assert "rowflag" in capsys.readouterr().out


def test_a_wrong_log_is_one_line(tmp_path, capsys):
    (tmp_path / "log").write_text("no\n")
    assert main([str(tmp_path / "log"), "-o", str(tmp_path / "layer.png")]) == 2
    said = capsys.readouterr().err
    assert said.count("log:1: ") == 1 and not (tmp_path / "layer.png").exists()
