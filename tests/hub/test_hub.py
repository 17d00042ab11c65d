# SPDX-License-Identifier: Apache-2.0
"""Two joined hubs under cocotb, set up through their registers, against the system's golden
model."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.parts.mutants import mutated
from sim.bench.runner import run_bench
from sim.cocotb.hub.pair import pair_verilog
from sim.quality.caught import assert_caught

TINY = preset("tiny")
SMALL = preset("small", lanes=2)


def test_close_without_source_is_noticed():
    """News must say who closed: else a rank's close counts as the consumer's own."""
    with mutated("hub.news_of_destination"):
        text = pair_verilog(TINY, "pair_mutant")
    caught = assert_caught(
        lambda: run_bench(
            text, module="sim.cocotb.hub.tests", name="pair_mutant", cfg=TINY, tests=["many_rows"]
        )
    )
    assert caught


@pytest.mark.parametrize("name, cfg", [("pair_tiny", TINY), ("pair_small", SMALL)])
def test_pair(name, cfg):
    run_bench(
        pair_verilog(cfg, name),
        module="sim.cocotb.hub.tests,sim.cocotb.hub.faults",
        name=name,
        cfg=cfg,
    )
