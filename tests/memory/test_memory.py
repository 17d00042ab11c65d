# SPDX-License-Identifier: Apache-2.0
"""Memory writer and the shared 64-bit port against AXI memory; bugs."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.memory.flag_port import SpillPortMerge
from hub_rtl.memory.memory import MemoryWriter
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

MODULE = "sim.cocotb.memory.tests,sim.cocotb.memory.moments"
WRITER = [
    "traffic",
    "rate",
    "full",
    "address_first",
    "valid_first",
    "reset_in_traffic",
    "quiesce_moments",
    "counts_both_ways",
]
CONFIGS = {
    "small": preset("small"),
    "odd": preset("tiny", ranks=3, packet_bytes=256, write_depth=2, regions=1, dep_ranges=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_writer(name):
    cfg = CONFIGS[name]
    run_bench(
        MemoryWriter(cfg),
        name=f"writer_{name}",
        module=MODULE,
        tests=WRITER,
        cfg=cfg,
        params={"writes": 50},
    )


def test_shared_port():
    run_bench(
        SpillPortMerge(),
        name="spill_port",
        module=MODULE,
        tests=["shared_port"],
        params={"words": 60},
    )


def test_ignored_answer_is_noticed():
    """An error of the memory is acknowledged as good."""
    cfg = CONFIGS["odd"]
    assert_caught(
        lambda: run_bench(
            MemoryWriter(cfg),
            name="writer",
            module=MODULE,
            tests=["traffic"],
            cfg=cfg,
            params={"writes": 50},
            bug="memory.bad_answer_is_good",
        )
    )


def test_forgetful_quiesce_is_noticed():
    """The command accepted in the cycle of the strobe is not waited for."""
    cfg = CONFIGS["odd"]
    assert_caught(
        lambda: run_bench(
            MemoryWriter(cfg),
            name="writer",
            module=MODULE,
            tests=["traffic"],
            cfg=cfg,
            params={"writes": 50},
            bug="memory.quiesce_misses_accepted",
        )
    )


@pytest.mark.parametrize(
    "name, test",
    [
        ("memory.quiesce_misses_ack", "quiesce_moments"),
        ("memory.written_lost_at_answer", "counts_both_ways"),
        ("memory.accepted_lost_at_ack", "counts_both_ways"),
    ],
)
def test_two_at_once_are_noticed(name, test):
    """Of two events in one cycle only one is counted."""
    cfg = CONFIGS["small"]
    assert_caught(
        lambda: run_bench(
            MemoryWriter(cfg),
            name="writer",
            module=MODULE,
            tests=[test],
            cfg=cfg,
            params={"writes": 50},
            bug=name,
        )
    )
