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


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        ("one_credit_for_two", "rejects"),
        ("queue_wraps_early", "poor_rank"),
        ("room_forgets_one_in_hand", "input_never_stalls"),
        ("unasked_is_sent", "rejects"),
        ("dead_with_credit_is_sent", "all_dead"),
        ("unknown_rank_goes_round", "rejects"),
        ("full_queue_not_counted", "input_never_stalls"),
        ("back_collides_with_new", "rejects"),
    ],
)
def test_bug_of_sender(name, test):
    """A credit serves two messages; a place of the queue is lost, or counted twice; who did not
    ask, is dead or does not exist gets a report; what is lost is not counted."""
    name = f"refusals.{name}"
    assert_caught(lambda: run(RejectSender(ODD), ODD, "report", [test], bug=name))


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        ("bad_packet_of_destination", "all_at_once"),
        ("log_turn_stays", "all_at_once"),
        ("clear_takes_bad_packet", "pulses_while_cleared"),
        ("log_one_short", "keeps_oldest"),
        ("full_log_loses_silently", "many_lost"),
    ],
)
def test_bug_of_log(name, test):
    """An entry names the wrong rank; one kind keeps the other waiting; clearing takes what comes; a
    place is missing; a loss is not counted."""
    name, module = f"refusals.{name}", "sim.cocotb.refusals.log"
    assert_caught(lambda: run(RefusalLog(ODD), ODD, "report_log", [test], module, name))
