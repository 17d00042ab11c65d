# SPDX-License-Identifier: Apache-2.0
"""Remote fences: both ends against the golden model, latency, bugs."""

from functools import partial

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.remote_fence.remote_fence import FenceAnswers, FenceAsks
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

CONFIGS = {
    "least": preset("tiny"),
    "odd": preset("tiny", ranks=3, packet_bytes=256),
    "wide": preset("small", ranks=8),
}
ENDS = {"asks": FenceAsks, "answers": FenceAnswers}


def run(end, config, *tests, bug=None):
    cfg = CONFIGS[config]
    run_bench(
        partial(ENDS[end], cfg),
        name=f"remote_fence_{end}_{config}",
        module=f"sim.cocotb.remote_fence.{end}",
        tests=list(tests),
        cfg=cfg,
        params={"packets": 150, "events": 600},
        bug=bug,
    )


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("end", ENDS)
def test_end(end, config):
    run(end, config)


@pytest.mark.night
@pytest.mark.parametrize(
    "end, bug, test",
    [
        ("asks", "remote_fence.owes_for_ever", "nobody_owes"),
        ("asks", "remote_fence.sent_at_begin_missed", "packet_meets_fence"),
        ("asks", "remote_fence.phase_of_each_beat", "packet_meets_fence"),
        ("answers", "remote_fence.refusal_beside_ack_lost", "ends_meet"),
        ("answers", "remote_fence.refused_never_counted", "ends_meet"),
        ("answers", "remote_fence.phases_counted_together", "traffic"),
        ("answers", "remote_fence.bad_ack_is_good", "traffic"),
        ("answers", "remote_fence.answered_one_early", "traffic"),
    ],
)
def test_bug(end, bug, test):
    """A packet beside a fence, or in two phases; one that is counted for another, twice or never;
    an answer too early, or too good."""
    assert_caught(lambda: run(end, "odd", test, bug=bug))
