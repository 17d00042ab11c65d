# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: Apache-2.0
"""Small stream parts under cocotb, and with them the bench itself."""

import pytest

from hub_rtl.parts.stream import StreamMerge, StreamQueue, StreamRegister
from sim.bench.runner import run_bench
from sim.cocotb.parts.tests import ITEM
from sim.quality.caught import assert_caught


def run_register(part, name="lib_register", bug=None):
    run_bench(
        part,
        name=name,
        module="sim.cocotb.parts.tests",
        tests=["keeps_order", "send_one_by_one", "reset_while_stalled"],
        params={"items": 60, "latency": 1},
        bug=bug,
    )


def test_register():
    run_register(StreamRegister(ITEM))


@pytest.mark.parametrize("depth", [3, 5])
def test_queue(depth):
    run_bench(
        StreamQueue(ITEM, depth),
        name=f"lib_queue_{depth}",
        module="sim.cocotb.parts.tests",
        tests=["keeps_order", "send_one_by_one", "fills_and_empties", "reset_while_stalled"],
        params={"items": 60, "latency": 2, "depth": depth},
    )


def test_merge():
    run_bench(
        StreamMerge(ITEM, 3),
        name="lib_merge",
        module="sim.cocotb.parts.tests",
        tests=["merges"],
        params={"items": 30, "count": 3, "packets": False},
    )


def test_merge_packets():
    run_bench(
        StreamMerge(ITEM, 2, packets=True),
        name="lib_merge_packets",
        module="sim.cocotb.parts.tests",
        tests=["merges"],
        params={"items": 40, "count": 2, "packets": True},
    )


def test_lost_item_is_noticed():
    """A skid stage that forgets its spare item loses one under back-pressure."""
    bug = "parts.register_loses_spare"
    assert_caught(lambda: run_register(StreamRegister(ITEM), bug=bug))


def test_queue_depth_refused():
    with pytest.raises(ValueError, match="^depth = 2: must be at least 3"):
        StreamQueue(8, 2)
