"""Packet manager: traffic against the golden model, promises on latency, rate, order and drain, planted bugs."""

import importlib

import pytest

from hub_rtl.config import preset
from hub_rtl.packet_manager import PacketManager
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

MODULE = "sim.cocotb.packet_manager,sim.cocotb.packet_manager_limits,sim.cocotb.packet_manager_places"
CONFIGS = {
    "tiny": preset("tiny"),
    "small": preset("small"),
    # 256-byte packets, ranks no power of two, few of everything.
    "odd": preset("small", ranks=3, pool_depth=8, packet_bytes=256, handles=3, replicas=1, regions=1, max_row_bytes=512),
}
DIRECTED = ["latency", "back_to_back", "wire_efficiency", "sustained", "order", "starvation", "timers", "pool_full",
            "fence_and_close", "dead_peer", "same_address", "next_batch", "young_and_dead"]
PLACES = ["places", "neighbours", "marks_of_one", "place_in_a_moment", "old_at_once"]


def run(config, *tests, component=None):
    cfg = CONFIGS[config]
    run_bench(component or PacketManager(cfg), name=f"packet_manager_{config}", module=MODULE, tests=list(tests), cfg=cfg)


@pytest.mark.parametrize("config", CONFIGS)
def test_random_traffic(config):
    run(config, "random_traffic")


@pytest.mark.parametrize("config", CONFIGS)
def test_directed(config):
    run(config, *DIRECTED, *(PLACES if config != "small" else ()))


def test_saturated_ages():
    run("tiny", "ages_saturate")


def test_can_accept():
    run("small", "can_accept")


# Bug: (file, good text, bad text, cocotb test that must fail)
BUGS = {
    "locked_entry_merges": ("hub_rtl/pool/pool.py", "same.eq(equal_tag & ~self.locking)", "same.eq(equal_tag)",
                            "random_traffic"),
    "closed_on_the_way": ("hub_rtl/pool/pool.py", "& stays[n])", "& opened[n])", "random_traffic"),
    "drained_before_ledger": ("hub_rtl/packet_manager.py", "range(LEDGER_CYCLES + 1)", "range(1)", "fence_and_close"),
    "left_but_old": ("hub_rtl/pool/pool_timer.py", "self.valid & self.old & ~self.locked", "self.old & ~self.locked",
                     "next_batch"),
    "visited_twice": ("hub_rtl/pool/pool_timer.py", "first.eq(fresh & ~run)", "first.eq(0)", "young_and_dead"),
    "squeezed_in_vain": ("hub_rtl/pool/pool.py", "soon.eq(self.locked | left)", "soon.eq(self.locked)", "place_in_a_moment"),
    "claim_not_seen": ("hub_rtl/pool/pool_quota.py", "Mux(claimed, places_after, places)", "places", "random_traffic"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted(bug):
    path, good, bad, test = BUGS[bug]
    name = "hub_rtl.packet_manager"
    with planted(path, good, bad, also=[name] if name.replace(".", "/") not in path else []):
        component = importlib.import_module(name).PacketManager(CONFIGS["tiny"])
        assert_caught(lambda: run("tiny", test, component=component))
