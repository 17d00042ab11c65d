# SPDX-License-Identifier: Apache-2.0
"""Wide packet manager: traffic against the golden model, promises on latency, rate, order and
drain, bugs."""

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.wide_packet_manager.wide_packet_manager import WidePacketManager
from sim.bench.runner import run_bench

MODULE = ",".join(f"sim.cocotb.wide_packet_manager.{name}" for name in ("tests",))
#: Configuration, and bytes of a slice.
CONFIGS = {
    "tiny": (preset("tiny"), 16),
    "small": (preset("small"), 64),
    # 256-byte packets, ranks no power of two, few of everything; a part is a whole block of 128.
    "odd": (
        preset(
            "small",
            ranks=3,
            pool_depth=8,
            packet_bytes=256,
            handles=3,
            replicas=1,
            regions=1,
            max_row_bytes=512,
        ),
        128,
    ),
    "whole": (preset("small", pool_depth=32), 128),
}


def run(config, *tests, bug=None):
    cfg, slice_bytes = CONFIGS[config]
    params = {"slice_bytes": slice_bytes}
    run_bench(
        WidePacketManager(cfg, **params),
        name=f"wide_packet_manager_{config}",
        module=MODULE,
        tests=list(tests),
        cfg=cfg,
        params=params,
        bug=bug,
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_random_traffic(config):
    run(config, "random_traffic")


@pytest.mark.parametrize("config", CONFIGS)
def test_directed(config):
    run(config, "latency")
