# SPDX-License-Identifier: Apache-2.0
"""Two joined hubs under cocotb, set up through their registers, against the system's golden
model."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.hub.news_split import NewsSplit
from sim.bench.runner import run_bench
from sim.cocotb.hub.pair import pair_verilog
from sim.quality.caught import assert_caught

TINY = preset("tiny")
SMALL = preset("small", lanes=2)


@pytest.mark.parametrize("name, cfg", [("pair_tiny", TINY), ("pair_small", SMALL)])
def test_pair(name, cfg):
    run_bench(
        pair_verilog(cfg, name),
        module="sim.cocotb.hub.tests,sim.cocotb.hub.faults",
        name=name,
        cfg=cfg,
    )


def split(tests=None, bug=None):
    run_bench(
        NewsSplit(TINY),
        name="news_split",
        module="sim.cocotb.hub.news",
        tests=tests,
        cfg=TINY,
        bug=bug,
    )


def test_news_split():
    split()


@pytest.mark.parametrize(
    "bug", ["hub.padded_entry_believed", "hub.last_entry_waits", "hub.news_of_destination"]
)
def test_bug_of_split(bug):
    """What the link put in for a lost flit is no entry; the odd last entry ends its packet; news
    are of their source: else a rank's close counts as the consumer's own."""
    assert_caught(lambda: split(["splits"], bug))
