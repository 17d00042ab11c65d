# SPDX-License-Identifier: Apache-2.0
"""RowIDs that a producer chooses: unique, in the rank's range, and even over the lanes."""

import numpy as np
import pytest

from sim.workload.numbering import NUMBERINGS, lane_use
from sim.workload.traces import Routing, generate


@pytest.mark.parametrize("name", NUMBERINGS)
@pytest.mark.parametrize("tokens, first", [(1, 0), (7, 0), (64, 100)])
def test_unique_in_the_rank_s_range(name, tokens, first):
    """No expert gets a RowID twice; ranks whose ranges of tokens do not overlap cannot collide."""
    experts = generate(tokens=tokens, top_k=3, experts=5, seed=tokens).experts
    rowids = NUMBERINGS[name](experts, first)
    assert rowids.shape == experts.shape
    assert first <= rowids.min() and rowids.max() < first + tokens
    for expert in range(5):
        chosen = rowids[experts == expert]
        assert len(set(chosen.tolist())) == len(chosen)


def test_places_count_per_expert():
    experts = np.array([[0, 1], [1, 2], [1, 0]])
    assert NUMBERINGS["place"](experts, 10).tolist() == [[10, 10], [11, 10], [12, 11]]


def test_each_expert_s_rows_go_round_the_lanes():
    """Two ranks, all rows of rank 0 to expert 1 of rank 1: as even as whole rows can be."""
    routing = Routing(np.tile([[1]], (20, 1)), np.ones((20, 1)), 2)
    assert lane_use(routing, 2, 3, "place").tolist() == [pytest.approx(10 / 3 / 4), 1]


def test_places_use_more_of_the_link():
    """At 128 tokens of top-4 the fullest of 18 lanes would leave a quarter of the link idle; not so
    with places."""
    routing = generate(tokens=8 * 128, top_k=4, experts=60, seed=1)
    token, place = (lane_use(routing, 8, 18, name).mean() for name in ("token", "place"))
    assert token < 0.80 <= place
