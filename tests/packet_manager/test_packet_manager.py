# SPDX-License-Identifier: Apache-2.0
"""Packet manager: traffic against the golden model, promises on latency, rate, order and drain,
bugs."""

from functools import partial

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.packet_manager.packet_manager import PacketManager
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

MODULE = ",".join(
    f"sim.cocotb.packet_manager.{name}"
    for name in ("tests", "limits", "places", "moments", "lists", "ways", "visits", "room")
)
CONFIGS = {
    "tiny": preset("tiny", slice_bytes=16),
    "small": preset("small"),
    # 256-byte packets, ranks no power of two, few of everything.
    "odd": preset(
        "small",
        ranks=3,
        pool_depth=8,
        packet_bytes=256,
        slice_bytes=128,
        handles=3,
        replicas=1,
        regions=1,
        max_row_bytes=512,
    ),
    # What the rate is promised for.
    "wide": preset("small", ranks=8, pool_depth=128, slice_bytes=64),
}


def run(config, *tests, bug=None):
    cfg = CONFIGS[config]
    run_bench(
        partial(PacketManager, cfg),
        name=f"packet_manager_{config}",
        module=MODULE,
        tests=list(tests),
        cfg=cfg,
        bug=bug,
    )


ALL = [
    "random_traffic",
    "latency",
    "interleaved",
    "sustained",
    "starvation",
    "timers",
    "fence_and_close",
    "dead_peer",
    "same_address",
    "next_batch",
    "young_and_dead",
    "neighbours",
    "marks_of_one",
    "old_at_once",
    "units",
    "mark_moments",
    "quota_moments",
    "lock_moments",
    "death_moments",
    "timer_moments",
    "marks_meet",
    "behind_a_marked_one",
    "lists",
    "old_lists",
    "bucket_after_bucket",
    "list_begins",
    "sweeps",
    "timer_bounds",
    "own_maximum",
    "lowered_maximum",
    "given_back",
    "room_for_all",
    "locked_ahead",
    "ranks_in_turn",
]
MORE = {
    "tiny": ["ages_saturate"],
    "small": [
        "order",
        "places",
        "pool_full",
        "place_in_a_moment",
        "leaving_is_enough",
        "ways",
        "ways_at_once",
        "behind_one_that_waits",
    ],
    "odd": [],
}


@pytest.mark.parametrize("config", ["tiny", pytest.param("small", marks=pytest.mark.night), "odd"])
def test_traffic(config):
    run(config, *ALL, *MORE[config])


def test_order_and_places():
    """What four ranks and sixteen places are for."""
    run("small", *MORE["small"])


def test_rate():
    run("wide", "rate", "can_accept")


#: The cocotb test that must notice.
MUTANTS = {
    "packet_manager.twin_not_seen": "same_address",
    "packet_manager.second_not_seen": "random_traffic",
    "packet_manager.match_has_left": "random_traffic",
    "packet_manager.way_given_twice": "random_traffic",
    "packet_manager.parts_of_entry_before": "random_traffic",
    "packet_manager.sent_before_landed": "lock_moments",
    "packet_manager.ready_twice": "random_traffic",
    "packet_manager.taken_without_credit": "random_traffic",
    "packet_manager.push_at_last_pop": "place_in_a_moment",
    "packet_manager.rest_comes_always": "order",
    "packet_manager.nobody_behind": "order",
    "packet_manager.full_counts_as_expired": "timer_moments",
    "packet_manager.mark_misses_tail": "mark_moments",
    "packet_manager.drained_before_ledger": "fence_and_close",
    "packet_manager.opened_at_mark": "mark_moments",
    "packet_manager.judged_by_entry_before": "timers",
    "packet_manager.squeezes_in_vain": "leaving_is_enough",
    "packet_manager.one_entry_over_maximum": "places",
}


@pytest.mark.night
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants(name):
    assert_caught(lambda: run("small", MUTANTS[name], bug=name))
