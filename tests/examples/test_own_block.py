# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: Apache-2.0
"""``examples/own_block``: a block of one's own, tested beside the hub."""

import pytest

from examples.own_block.bench import STRIDE, TILE
from examples.own_block.job_maker import HubWithJobs, JobMaker
from hub_rtl.contract.config import preset
from sim.bench.runner import run_bench

BASE = (0x1000, 0x2000)


@pytest.mark.night
def test_own_block():
    cfg = preset("tiny")
    run_bench(
        HubWithJobs(cfg, BASE, STRIDE * TILE),
        name="own_block",
        module="examples.own_block.bench",
        cfg=cfg,
        params={"base": BASE},
    )


def test_tile_bytes():
    with pytest.raises(ValueError, match="tile_bytes = 96: must be a power of two"):
        JobMaker(preset("tiny"), BASE, 96)
