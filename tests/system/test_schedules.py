# SPDX-License-Identifier: Apache-2.0
"""Announcements under random schedules: the golden scoreboard concludes nothing that the rows do
not say, and each planted bug is found."""

from collections import Counter

import pytest

from hub_rtl.contract.packets import EventKind
from sim.bench.runner import bench_seed
from sim.system.schedules import BUGS, Schedule, Wrong

FIRST = 10000 * bench_seed()


def test_random_schedules():
    stats = Counter()
    for seed in range(FIRST, FIRST + 150):
        try:
            stats += Schedule(seed).run()
        except Wrong as wrong:
            pytest.fail(f"schedule {seed}: {wrong}")
    assert all(
        stats[what] > 50 for what in (EventKind.ALL, EventKind.ERROR, "rest", "rest early")
    ), stats


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(name):
    with pytest.raises(Wrong):
        for seed in range(FIRST, FIRST + 2000):
            BUGS[name].run(seed)
