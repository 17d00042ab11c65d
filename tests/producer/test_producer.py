# SPDX-License-Identifier: Apache-2.0
"""ProducerControl under cocotb, against its golden model."""

import pytest

from hub_rtl.contract.config import HubConfig
from hub_rtl.producer.producer import ProducerControl
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

SMALLEST = HubConfig(
    name="smallest",
    ranks=2,
    lanes=1,
    handles=1,
    regions=1,
    groups=4,
    capacity=1,
    max_row_bytes=16,
    pool_depth=4,
    ctl_credits=1,
    tag_width=4,
)
ODD = HubConfig(
    name="odd",
    ranks=3,
    lanes=3,
    loop_lanes=2,
    handles=5,
    replicas=4,
    regions=5,
    max_row_bytes=2000,
    pool_depth=4,
    tag_width=5,
)
WIDE = HubConfig(
    name="wide", ranks=8, lanes=18, loop_lanes=3, handles=256, regions=64, pool_depth=64
)
TESTS = [
    "random_commands",
    "every_fault",
    "two_epochs_ahead",
    "slow_peer",
    "dead_peer",
    "many_fences",
    "software_reads",
    "reset_in_traffic",
    "latency",
    "turns",
    "blocked_messages",
    "software_turns",
    "before_cleared",
    "drains",
    "dead_turns",
]
MOMENTS = [
    "sink_meets_verdict",
    "fence_meets_answer",
    "close_all_but_one",
    "hold_ends_in_close_all",
    "write_meets_close",
    "death_meets_message",
]
MODULES = ",".join(f"sim.cocotb.producer.{part}" for part in ("tests", "limits", "moments"))


def run(component, cfg, name, tests=TESTS, bug=None):
    run_bench(
        component,
        name=name,
        module=MODULES,
        tests=tests,
        cfg=cfg,
        params={"commands": 40},
        bug=bug,
    )


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_producer_control(cfg):
    run(ProducerControl(cfg), cfg, f"producer_{cfg.name}")


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_moments(cfg):
    run(ProducerControl(cfg), cfg, f"producer_{cfg.name}", MOMENTS)


def test_many_peers():
    run(
        ProducerControl(WIDE),
        WIDE,
        "producer_wide",
        ["close_all_rate", "blocked_messages"],
    )


def test_long_packet_is_noticed():
    """A NEWS packet has 16 entries at most."""
    bug, test = "producer.packet_of_17_closes", ["close_all_rate"]
    assert_caught(lambda: run(ProducerControl(WIDE), WIDE, "producer_wide", test, bug))


def test_early_close_is_noticed():
    """A close that does not wait for its peer to drain carries too few bytes."""
    bug = "producer.close_while_draining"
    assert_caught(lambda: run(ProducerControl(ODD), ODD, "producer", ["random_commands"], bug=bug))


@pytest.mark.parametrize(
    "name, test",
    [
        ("producer.sink_at_verdict_missed", "sink_meets_verdict"),
        ("producer.held_by_last_only", "close_all_but_one"),
        ("producer.unpend_lost_at_access", "write_meets_close"),
    ],
)
def test_moments_are_noticed(name, test):
    """Of two events in one cycle, or of one handle and the others, only one counts."""
    assert_caught(lambda: run(ProducerControl(ODD), ODD, "producer", [test], bug=name))
