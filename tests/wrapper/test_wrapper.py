# SPDX-License-Identifier: Apache-2.0
"""Models that others made judge the AXI wrapper: generated hubs among them, and bugs of AXI that
they, or the rules of AXI, must notice."""

from functools import lru_cache

import pytest

from hub_rtl.contract.config import preset
from sim.bench.runner import BenchFailure, run_bench
from sim.cocotb.wrapper.hubs import BUGS, hubs_verilog

#: What the monitor says of each bug.
BROKEN = {
    "wrapper.wlast_early": r"b_m_axi_0_w: last is 1 with beat 1 of \d",
    "wrapper.bready_dropped": r"b_m_axi_0_b: .* was not taken within \d+ cycles",
    "wrapper.response_before_data": r"b_s_axil_b: a response, and no burst with its address and",
    "wrapper.awvalid_dropped": r"b_m_axi_0_aw: valid was withdrawn",
    "wrapper.wstrb_moves": r"b_m_axi_0_w: changed while it waited",
    "wrapper.event_dropped": r"b_m_axis_event_t: valid was withdrawn",
}


@lru_cache
def text(name, hubs):
    return hubs_verilog(preset(name), f"wrapper_{name}", hubs)


def judge(name, hubs, tests=None, **params):
    run_bench(
        text(name, hubs),
        name=f"wrapper_{name}",
        module="sim.cocotb.wrapper.tests",
        tests=tests,
        cfg=preset(name),
        params={"hubs": hubs} | params,
    )


def test_two_tiny_hubs():
    judge("tiny", 2)


@pytest.mark.night
def test_small_hub():
    judge("small", 1)


def bug(name, **params):
    """The exception with which two tiny hubs and a bug around one of them end."""
    with pytest.raises(BenchFailure) as caught:
        judge("tiny", 2, ["rows/pauses=random"], planted=[*BUGS].index(name) + 1, **params)
    return caught


@pytest.mark.night
@pytest.mark.parametrize("name", BUGS)
def test_rules_of_axi(name):
    """The monitor names the port and the rule."""
    caught = bug(name)
    assert [*caught.value.failed.values()] == ["ProtocolError"]
    caught.match(BROKEN[name])


@pytest.mark.night
@pytest.mark.parametrize("name", ["wrapper.wlast_early", "wrapper.response_before_data"])
def test_models_alone(name):
    """Without the monitor: the memory that others made refuses the beat; registers do not hold what
    their master wrote."""
    assert [*bug(name, monitor=False).value.failed.values()] == ["AssertionError"]
