# SPDX-License-Identifier: Apache-2.0
"""Receive pool: traffic against the golden model, promises on latency, rate, grants, bugs."""

from functools import partial

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.receive_pool.receive_pool import ReceivePool
from sim.bench.runner import run_bench
from sim.bench.slice_pair import SlicePair
from sim.quality.caught import assert_caught

MODULE = "sim.cocotb.receive_pool.tests,sim.cocotb.receive_pool.policy"
#: Configuration, slice and pool.
CONFIGS = {
    # The least: one link, one source, its two reserved places.
    "tiny": (preset("tiny"), {"slice_bytes": 16, "links": 1, "places": 2}),
    "small": (preset("small"), {"slice_bytes": 64, "links": 3, "places": 40}),
    # Two places for each source and one more.
    "few": (preset("tiny", ranks=3), {"slice_bytes": 32, "links": 3, "places": 5}),
    # Nothing is a power of two; a part is half a block.
    "odd": (
        preset("tiny", ranks=3, packet_bytes=256),
        {"slice_bytes": 128, "links": 2, "places": 37},
    ),
    "wide": (
        preset("small", ranks=8),
        {"slice_bytes": 64, "links": 3, "places": 576, "period": 1024},
    ),
}

DIRECTED = [
    "latency",
    "offered_before_taken",
    "waits_for_clearing",
    "rate",
    "turns",
    "one_stands_still",
    "need",
    "silent_at_first",
    "abuse",
    "false_returns",
    "claims_beyond_all",
    "totals_wrap",
    "limits_are_exact",
    "messages_wait",
]


def run(config, *tests, bug=None):
    cfg, pool = CONFIGS[config]
    params = {"period": 200, **pool}
    run_bench(
        partial(ReceivePool, cfg, **params),
        name=f"receive_pool_{config}",
        module=MODULE,
        tests=list(tests),
        cfg=cfg,
        params={"packets": 25, **params},
        bug=bug,
    )


@pytest.mark.parametrize("config", ["tiny", "small", "few", "odd"])
def test_traffic(config):
    run(config, "traffic")


@pytest.mark.parametrize("config", ["tiny", "small", "odd"])
def test_directed(config):
    run(config, *DIRECTED)


def test_policy():
    run("odd", "need_is_met", "shared_by_two", "each_period", "returns_wrap", "links_take_turns")


def test_few_places():
    run("few", "silent_at_first", "one_stands_still", "abuse", "false_returns")


def test_rate():
    run("wide", "over_a_microsecond")


def pair(tests=(), bug=None):
    cfg = preset("tiny", ranks=3)
    params = {"slice_bytes": 64, "links": 2, "places": 12, "period": 200}
    run_bench(
        partial(SlicePair, cfg, **params),
        name="slice_pair",
        module="sim.cocotb.receive_pool.pair",
        tests=list(tests),
        cfg=cfg,
        params={"records": 40, **params},
        bug=bug,
    )


def test_from_record_to_record():
    pair()


#: The cocotb test that must notice.
MUTANTS = {
    "receive_pool.cut_packet_not_poisoned": "traffic",
    "receive_pool.pick_at_append_not_seen": "traffic",
    "receive_pool.lists_not_in_turn": "traffic",
    "receive_pool.ticket_without_room": "rate",
    "receive_pool.admitted_without_grant": "abuse",
    "receive_pool.place_beyond_the_last": "need",
    "receive_pool.used_grants_taken_back": "false_returns",
    "receive_pool.never_asks_back": "need",
    "receive_pool.need_not_noticed": "need",
    "receive_pool.few_need_little": "shared_by_two",
    "receive_pool.idle_one_needs_most": "silent_at_first",
    "receive_pool.hunger_not_noticed": "need",
    "receive_pool.idle_ones_forgotten": "need",
    "receive_pool.level_ignored": "shared_by_two",
    "receive_pool.freed_places_lost": "returns_wrap",
    "receive_pool.places_given_twice": "need",
    "receive_pool.listed_at_first_beat": "traffic",
    "receive_pool.held_source_chosen": "turns",
    "receive_pool.parts_behind_are_there": "traffic",
    "receive_pool.place_freed_at_every_beat": "traffic",
    "receive_pool.taken_while_clearing": "waits_for_clearing",
    "receive_pool.offered_when_asked": "offered_before_taken",
    "receive_pool.any_claim_is_tried": "claims_beyond_all",
}


@pytest.mark.night
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants(name):
    assert_caught(lambda: run("small", MUTANTS[name], bug=name))


@pytest.mark.night
def test_mutants_of_policy():
    """The level is in the shares for a period only, and of three sources."""
    assert_caught(lambda: run("odd", "each_period", bug="receive_pool.level_rises_slowly"))
