"""Readiness scoreboard: bench against the golden model, planted bugs, configurations."""

import importlib

import pytest

from hub_rtl.config import preset
from hub_rtl.scoreboard import ReadinessScoreboard
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench, to_verilog

CONFIGS = {
    "small": (preset("small", lanes=2), 5),
    "tiny": (preset("tiny"), 8),
    "odd": (preset("small", regions=3, ranks=3, groups=8, combine_depth=1), 6),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_against_golden(name):
    """All cocotb tests of the scoreboard on one configuration."""
    cfg, epochs = CONFIGS[name]
    run_bench(ReadinessScoreboard(cfg), name=f"scoreboard_{name}", module="sim.cocotb.scoreboard", cfg=cfg,
              params={"epochs": epochs})
