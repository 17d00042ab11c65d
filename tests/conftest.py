# SPDX-License-Identifier: Apache-2.0
"""Common to all tests."""

from pathlib import Path

import pytest

from sim.bench.runner import ROOT, bench_seed


def pytest_report_header(config):
    from sim.campaign.run import again, commit_seed

    return [
        f"seed: MOE_HUB_SEED={bench_seed()}",
        f"seeds of the campaign change with the commit: {again(commit_seed())}",
    ]


@pytest.fixture(autouse=True)
def _from_root(monkeypatch):
    """Tests may be started from any folder."""
    if Path.cwd() != ROOT:
        monkeypatch.chdir(ROOT)


@pytest.fixture(scope="session")
def harness():
    """The program of the four-hub systems, built once."""
    from sim.system.building import build
    from sim.system.four_hubs import CFG

    return build(CFG)


@pytest.fixture
def simulate(harness):
    """Runs scenarios of :mod:`sim.system.misuse`; their files go away with the test."""
    from sim.system.misuse import Runs

    runs = Runs(harness)
    yield runs
    runs.remove()
