"""Memory writer and the shared 64-bit port against AXI memory; planted bugs."""

import pytest

from hub_rtl.config import preset
from hub_rtl.flag_port import SpillPortMerge
from hub_rtl.memory_writer import MemoryWriter
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

MODULE = "sim.cocotb.memory_writer"
WRITER = ["traffic", "rate", "full", "address_first", "valid_first", "reset_in_traffic"]
CONFIGS = {
    "small": preset("small"),
    "odd": preset("tiny", ranks=3, packet_bytes=256, write_depth=2, regions=1, dep_ranges=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_writer(name):
    cfg = CONFIGS[name]
    run_bench(MemoryWriter(cfg), name=f"writer_{name}", module=MODULE, tests=WRITER, cfg=cfg, params={"writes": 50})


def test_shared_port():
    run_bench(SpillPortMerge(), name="spill_port", module=MODULE, tests=["shared_port"], params={"words": 60})


def test_planted_answer_ignored():
    """An error of the memory is acknowledged as good."""
    cfg = CONFIGS["odd"]
    with planted("hub_rtl/memory_writer.py", "mem.bresp == RESP_OKAY", "mem.bresp != 3") as module:
        assert_caught(lambda: run_bench(module.MemoryWriter(cfg), name="writer_planted", module=MODULE, tests=["traffic"],
                                        cfg=cfg, params={"writes": 50}))


def test_planted_quiesce_forgets():
    """The command accepted in the cycle of the strobe is not waited for."""
    cfg = CONFIGS["odd"]
    with planted("hub_rtl/memory_writer.py", "self.outstanding + accepted, before", "self.outstanding, before") as module:
        assert_caught(lambda: run_bench(module.MemoryWriter(cfg), name="writer_planted", module=MODULE, tests=["traffic"],
                                        cfg=cfg, params={"writes": 50}))
