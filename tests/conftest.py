"""Common to all tests."""

from pathlib import Path

import pytest

from sim.bench.runner import ROOT, bench_seed


def pytest_report_header(config):
    return f"seed: MOE_HUB_SEED={bench_seed()}"


@pytest.fixture(autouse=True)
def _from_root(monkeypatch):
    """Tests may be started from any folder."""
    if Path.cwd() != ROOT:
        monkeypatch.chdir(ROOT)
