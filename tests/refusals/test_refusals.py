# SPDX-License-Identifier: Apache-2.0
"""RejectSender and RefusalLog under cocotb, against their golden models."""

import pytest

from hub_rtl.contract.config import HubConfig
from hub_rtl.refusals.refusals import RefusalLog, RejectSender
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

SMALLEST = HubConfig(
    name="smallest",
    ranks=2,
    lanes=1,
    handles=1,
    regions=1,
    groups=4,
    capacity=1,
    max_row_bytes=16,
    pool_depth=4,
    log_depth=1,
    reject_depth=1,
)
ODD = HubConfig(
    name="odd", ranks=3, lanes=3, loop_lanes=2, handles=5, regions=5, log_depth=13, reject_depth=5
)


def run(component, cfg, name, tests=None, module="sim.cocotb.refusals.tests", bug=None):
    run_bench(component, name=name, module=module, tests=tests, cfg=cfg, bug=bug)


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_reject_sender(cfg):
    run(RejectSender(cfg), cfg, f"report_reject_{cfg.name}")


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_refusal_log(cfg):
    run(RefusalLog(cfg), cfg, f"report_log_{cfg.name}", module="sim.cocotb.refusals.log")


def test_shared_credit_is_noticed():
    """A sender that does not wait for its message to settle uses a credit twice."""
    bug = "refusals.one_credit_for_two"
    assert_caught(lambda: run(RejectSender(ODD), ODD, "report", ["rejects"], bug=bug))
