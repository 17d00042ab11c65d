# SPDX-License-Identifier: Apache-2.0
"""RowIDs that a producer chooses: unique, in the rank's range, and even over the lanes."""

import numpy as np
import pytest

from hub_rtl.contract.fields import LANE_KEY
from sim.workload.numbering import NUMBERINGS, lane_use
from sim.workload.traces import Routing, generate


def rowids_of(name, experts, first=0, lanes=3, own=None):
    experts = np.asarray(experts)
    own = np.zeros(experts.shape, dtype=bool) if own is None else np.asarray(own)
    return NUMBERINGS[name].rowids(experts, first, lanes, own)


def lanes_of(rowids, experts, lanes):
    return ((rowids + experts) % (1 << LANE_KEY) % lanes).tolist()


@pytest.mark.parametrize("name", NUMBERINGS)
@pytest.mark.parametrize("lanes", [1, 2, 5, 18])
@pytest.mark.parametrize("tokens, first", [(1, 0), (7, 0), (64, 100), (64, (1 << LANE_KEY) - 9)])
def test_unique_in_the_rank_s_range(name, tokens, first, lanes):
    """No expert gets a RowID twice; ranks' ranges do not overlap, so they cannot collide."""
    experts = generate(tokens=tokens, top_k=3, experts=5, seed=tokens).experts.astype(np.int64)
    rowids = rowids_of(name, experts, first, lanes, experts < 2)
    _, length = NUMBERINGS[name].starts([tokens], lanes)
    assert rowids.shape == experts.shape
    assert first <= rowids.min() and rowids.max() < first + length
    for expert in range(5):
        chosen = rowids[experts == expert]
        assert len(set(chosen.tolist())) == len(chosen)


def test_ranges_follow_each_other():
    assert NUMBERINGS["token"].starts([3, 4, 4], 6).tolist() == [0, 3, 7, 11]
    assert NUMBERINGS["turn"].starts([3, 4, 7], 6).tolist() == [0, 6, 12, 24]


def test_places_count_per_expert():
    assert rowids_of("place", [[0, 1], [1, 2], [1, 0]], 10).tolist() == [
        [10, 10],
        [11, 10],
        [12, 11],
    ]


def test_rows_go_round_the_lanes_in_turn():
    """Whomever they are for; those to the own rank by themselves."""
    experts = np.array([[3, 0], [1, 4], [2, 3], [4, 1]])
    own = experts < 2
    lanes = np.array(lanes_of(rowids_of("turn", experts, 100, 3, own), experts, 3))
    assert lanes[~own].tolist() == [0, 1, 2, 0, 1]
    assert lanes[own].tolist() == [0, 1, 2]


def test_a_full_lane_leaves_the_row_to_the_emptiest():
    """Every other row is for expert 0: of two lanes its turn is always the first one's, which has
    two RowIDs in a range of four; the rows behind make up for it."""
    experts = np.array([[0, 1], [0, 2], [0, 3], [0, 4]])
    lanes = lanes_of(rowids_of("turn", experts, 0, 2), experts, 2)
    assert lanes == [[0, 1], [0, 1], [1, 0], [1, 0]]


def test_each_expert_s_rows_go_round_the_lanes():
    """Two ranks, all rows of rank 0 to expert 1 of rank 1: as even as whole rows can be."""
    routing = Routing(np.tile([[1]], (20, 1)), np.ones((20, 1)), 2)
    for name in ("place", "turn"):
        assert lane_use(routing, 2, 3, name).tolist() == [pytest.approx(10 / 3 / 4), 1]


def test_turns_are_as_even_as_whole_rows_can_be():
    """A rank's fullest lane has one row more than the others at most, as no expert needs more of a
    lane than there is."""
    routing = generate(tokens=8 * 16, top_k=8, experts=256, seed=1)
    rows = [(routing.experts[16 * r : 16 * r + 16] // 32 != r).sum() for r in range(8)]
    even = [count / 6 / -(-count // 6) for count in rows]
    assert lane_use(routing, 8, 6, "turn").tolist() == pytest.approx(even)


def test_places_use_more_of_the_link():
    """At 128 tokens of top-4 the fullest of 18 lanes would leave a quarter of the link idle; not so
    with places."""
    routing = generate(tokens=8 * 128, top_k=4, experts=60, seed=1)
    token, place = (lane_use(routing, 8, 18, name).mean() for name in ("token", "place"))
    assert token < 0.80 <= place
