"""Two joined hubs under cocotb, set up through their registers, against the system's golden model."""

import importlib

import pytest

from hub_rtl.config import preset
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench
from sim.cocotb.hub_pair import pair_verilog

TINY = preset("tiny")
SMALL = preset("small", lanes=2)


def test_planted_close_without_source():
    """The own rank's CLOSE must say who closed: without it rank 1's close counts as rank 0's."""
    with planted("hub_rtl/top/hub_control.py", "to_own[n].payload.src.eq(self.rank)", "to_own[n].payload.src.eq(0)",
                 also=["hub_rtl.hub", "sim.cocotb.hub_pair"]):
        text = importlib.import_module("sim.cocotb.hub_pair").pair_verilog(TINY, "pair_planted")
    caught = assert_caught(lambda: run_bench(text, module="sim.cocotb.hub", name="pair_planted", cfg=TINY, tests=["many_rows"]))
    assert caught


@pytest.mark.parametrize("name, cfg", [("pair_tiny", TINY), ("pair_small", SMALL)])
def test_pair(name, cfg):
    run_bench(pair_verilog(cfg, name), module="sim.cocotb.hub,sim.cocotb.hub_faults", name=name, cfg=cfg)
