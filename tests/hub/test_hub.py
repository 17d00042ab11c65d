# SPDX-License-Identifier: Apache-2.0
"""Two joined hubs under cocotb, set up through their registers, against the system's golden
model."""

from functools import partial

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.hub.news_split import NewsSplit
from sim.bench.runner import run_bench
from sim.bench.slice_mesh import SliceMesh
from sim.cocotb.hub.pair import pair_verilog
from sim.quality.caught import assert_caught

TINY = preset("tiny")
SMALL = preset("small", lanes=2, ranks=2)
LINKS = preset("tiny", slice_links=2, slice_bytes=64, log_depth=16, link_clock=True)


@pytest.mark.parametrize(
    "name, cfg",
    [("pair_small", SMALL), pytest.param("pair_links", LINKS, marks=pytest.mark.night)],
)
def test_pair(name, cfg):
    run_bench(
        pair_verilog(cfg, name),
        module="sim.cocotb.hub.tests,sim.cocotb.hub.faults,sim.cocotb.hub.fences",
        name=name,
        cfg=cfg,
    )


def slices(slice_links, tests=None, bug=None, link_period=None, **more):
    cfg = preset("tiny", ranks=3, packet_bytes=256, slice_links=slice_links, **more)
    run_bench(
        partial(SliceMesh, cfg),
        name=f"slices_{slice_links}" + "_clocks" * cfg.link_clock,
        module="sim.cocotb.hub.slices",
        tests=tests,
        cfg=cfg,
        params={"packets": 25} | ({"link_period": link_period} if link_period else {}),
        bug=bug,
    )


def test_slices_over_switch():
    slices(1, pool_places=6)


@pytest.mark.night
def test_slices_of_several_links():
    """Records overtake each other between links; a pool is filled from all of them."""
    slices(2, slice_bytes=64, pool_places=24)


def test_line_rate():
    """Two thirds of the links' clock are enough for a slice of 64 bytes with three links."""
    cfg = preset(
        "tiny", slice_links=3, slice_bytes=64, pool_depth=8, pool_places=64, link_clock=True
    )
    run_bench(
        partial(SliceMesh, cfg),
        name="slices_rate",
        module="sim.cocotb.hub.slices",
        tests=["line_rate"],
        cfg=cfg,
    )


@pytest.mark.night
@pytest.mark.parametrize("bug, test", [("link.queue_read_in_reset", "everyone_to_everyone")])
def test_bug_of_clocks(bug, test):
    """An item that one side wrote while the other was in reset is lost."""
    assert_caught(
        lambda: slices(
            2, [test], bug, 2714, slice_bytes=64, pool_places=24, ctl_credits=2, link_clock=True
        )
    )


@pytest.mark.parametrize("link_period", [1334, 1002, 2714])
def test_slices_of_two_clocks(link_period):
    """Links at about 3 : 2, 2 : 1 and 3 : 4 against the hub, the phase drifting."""
    slices(
        2, slice_bytes=64, pool_places=24, ctl_credits=2, link_clock=True, link_period=link_period
    )


@pytest.mark.night
@pytest.mark.parametrize("bug", ["hub.messages_by_sender", "link.plain_record_in_turn"])
def test_bug_of_links(bug):
    """What slices tell each other, and what is stored to one place, keeps to a link."""
    assert_caught(lambda: slices(2, ["everyone_to_everyone"], bug, slice_bytes=64, pool_places=24))


def split(tests=None, bug=None, slice_bytes=32):
    cfg = TINY.replace(slice_bytes=slice_bytes)
    run_bench(
        partial(NewsSplit, cfg),
        name=f"news_split_{slice_bytes}",
        module="sim.cocotb.hub.news",
        tests=tests,
        cfg=cfg,
        bug=bug,
    )


@pytest.mark.parametrize("slice_bytes", [16, 32, 128])
def test_news_split(slice_bytes):
    split(slice_bytes=slice_bytes)


@pytest.mark.night
@pytest.mark.parametrize("bug", ["hub.lost_entry_believed", "hub.last_entries_dropped"])
def test_bug_of_split(bug):
    """What did not come is no entry; a beat ends with its last entry, not with the first."""
    assert_caught(lambda: split(["splits"], bug))
