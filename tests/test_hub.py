"""Two joined hubs under cocotb, set up through their registers, against the system's golden model."""

import pytest

from hub_rtl.config import preset
from sim.bench.runner import run_bench
from sim.cocotb.hub_pair import pair_verilog

TINY = preset("tiny")
SMALL = preset("small", lanes=2)


@pytest.mark.parametrize("name, cfg", [("pair_tiny", TINY), ("pair_small", SMALL)])
def test_pair(name, cfg):
    run_bench(pair_verilog(cfg, name), module="sim.cocotb.hub", name=name, cfg=cfg)
