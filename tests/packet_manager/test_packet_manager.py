# SPDX-License-Identifier: Apache-2.0
"""Packet manager: traffic against the golden model, promises on latency, rate, order and drain,
bugs."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.packet_manager.packet_manager import PacketManager
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

MODULE = ",".join(
    f"sim.cocotb.packet_manager.{name}" for name in ("tests", "limits", "places", "moments")
)
CONFIGS = {
    "tiny": preset("tiny"),
    "small": preset("small"),
    # 256-byte packets, ranks no power of two, few of everything.
    "odd": preset(
        "small",
        ranks=3,
        pool_depth=8,
        packet_bytes=256,
        handles=3,
        replicas=1,
        regions=1,
        max_row_bytes=512,
    ),
}
DIRECTED = [
    "latency",
    "back_to_back",
    "wire_efficiency",
    "sustained",
    "order",
    "starvation",
    "timers",
    "pool_full",
    "fence_and_close",
    "dead_peer",
    "same_address",
    "next_batch",
    "young_and_dead",
]
PLACES = [
    "places",
    "neighbours",
    "marks_of_one",
    "place_in_a_moment",
    "old_at_once",
    "leaving_is_enough",
]
MOMENTS = [
    "half_sectors",
    "tail_marks",
    "quota_moments",
    "lock_moments",
    "death_moments",
    "timer_moments",
]


def run(config, *tests, bug=None):
    cfg = CONFIGS[config]
    run_bench(
        PacketManager(cfg),
        name=f"packet_manager_{config}",
        module=MODULE,
        tests=list(tests),
        cfg=cfg,
        bug=bug,
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_random_traffic(config):
    run(config, "random_traffic")


@pytest.mark.parametrize("config", CONFIGS)
def test_directed(config):
    run(config, *DIRECTED, *(PLACES if config != "small" else ()))


@pytest.mark.parametrize("config", CONFIGS)
def test_moments(config):
    run(config, *MOMENTS)


def test_saturated_ages():
    run("tiny", "ages_saturate")


def test_can_accept():
    run("small", "can_accept")


#: The cocotb test that must notice.
MUTANTS = {
    "packet_manager.locked_entry_merges": "random_traffic",
    "packet_manager.merges_into_closed": "random_traffic",
    "packet_manager.drained_before_ledger": "fence_and_close",
    "packet_manager.left_entries_stay_old": "next_batch",
    "packet_manager.fresh_visited_twice": "young_and_dead",
    "packet_manager.squeezes_in_vain": "place_in_a_moment",
    "packet_manager.lower_unit_missing_inside": "half_sectors",
    "packet_manager.tail_not_marked": "tail_marks",
    "packet_manager.mark_misses_released": "tail_marks",
    "packet_manager.place_taken_and_given": "quota_moments",
    "packet_manager.lock_misses_late_write": "lock_moments",
    "packet_manager.locked_entry_sunk": "death_moments",
    "packet_manager.full_counts_as_expired": "timer_moments",
    "packet_manager.claim_not_seen": "random_traffic",
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants(name):
    assert_caught(lambda: run("tiny", MUTANTS[name], bug=name))
