"""Common to all tests: the seed is shown, generated folders are found from the project's root."""

import os
from pathlib import Path

import pytest

from sim.bench.runner import bench_seed

ROOT = Path(__file__).resolve().parents[1]


def pytest_report_header(config):
    return f"seed: MOE_HUB_SEED={bench_seed()}"


@pytest.fixture(scope="session")
def root():
    """The project's root folder."""
    return ROOT


@pytest.fixture
def rng():
    """NumPy generator of the run's seed."""
    import numpy
    return numpy.random.default_rng(bench_seed())


@pytest.fixture(autouse=True)
def _from_root(monkeypatch):
    """Tests may be started from any folder."""
    if Path(os.getcwd()) != ROOT:
        monkeypatch.chdir(ROOT)
