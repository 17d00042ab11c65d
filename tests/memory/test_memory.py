# SPDX-License-Identifier: Apache-2.0
"""Memory writer and the shared 64-bit port against AXI memory; bugs."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.memory.flag_port import SpillPortMerge
from hub_rtl.memory.memory import MemoryWriter
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

CONFIGS = {
    "small": preset("small"),
    "odd": preset(
        "tiny", ranks=3, packet_bytes=256, slice_bytes=128, write_depth=2, regions=1, dep_ranges=1
    ),
}


def run(name, tests=None, bug=None):
    cfg = CONFIGS[name]
    run_bench(
        MemoryWriter(cfg),
        name=f"writer_{name}",
        module="sim.cocotb.memory.tests,sim.cocotb.memory.moments",
        tests=tests,
        cfg=cfg,
        params={"writes": 50},
        bug=bug,
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_writer(name):
    run(name)


def test_shared_port():
    run_bench(
        SpillPortMerge(),
        name="spill_port",
        module="sim.cocotb.memory.shared_port",
        params={"words": 60},
    )


@pytest.mark.night
@pytest.mark.parametrize(
    "bug, cfg, test",
    [
        ("memory.bad_answer_is_good", "odd", "traffic"),
        ("memory.quiesce_misses_accepted", "odd", "traffic"),
        ("memory.quiesce_misses_ack", "small", "quiesce_moments"),
        ("memory.written_lost_at_answer", "small", "counts_both_ways"),
        ("memory.accepted_lost_at_ack", "small", "counts_both_ways"),
    ],
)
def test_bug_is_noticed(bug, cfg, test):
    """An error of the memory is acknowledged as good; the command of the strobe's cycle is not
    waited for; of two events in one cycle only one is counted."""
    assert_caught(lambda: run(cfg, [test], bug=bug))
