# SPDX-License-Identifier: Apache-2.0
"""Receive pool: traffic against the golden model, promises on latency, rate, grants, bugs."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.receive_pool.receive_pool import ReceivePool
from sim.bench.runner import run_bench

MODULE = "sim.cocotb.receive_pool.tests"
#: Configuration, slice and pool.
CONFIGS = {
    # The least: one link, one source, its two reserved places.
    "tiny": (preset("tiny"), {"slice_bytes": 16, "links": 1, "places": 2}),
    "small": (preset("small"), {"slice_bytes": 64, "links": 3, "places": 40}),
    # Nothing is a power of two; a part is half a block.
    "odd": (
        preset("tiny", ranks=3, packet_bytes=256),
        {"slice_bytes": 128, "links": 2, "places": 7},
    ),
}

DIRECTED = [
    "latency",
    "rate",
    "turns",
    "one_stands_still",
    "need",
    "abuse",
    "false_returns",
    "totals_wrap",
]


def run(config, *tests, bug=None):
    cfg, pool = CONFIGS[config]
    params = {"period": 200, **pool}
    run_bench(
        ReceivePool(cfg, **params),
        name=f"receive_pool_{config}",
        module=MODULE,
        tests=list(tests),
        cfg=cfg,
        params={"packets": 40, **params},
        bug=bug,
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_traffic(config):
    run(config, "traffic")


@pytest.mark.parametrize("config", CONFIGS)
def test_directed(config):
    run(config, *DIRECTED)
