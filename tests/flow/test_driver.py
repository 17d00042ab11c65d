# SPDX-License-Identifier: Apache-2.0
"""What software computes and writes for a producer's promises."""

import random

import pytest

from flow.driver import Driver, Recorder, rows_per_replica
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import replica_of
from hub_rtl.contract.registers import register_map


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_rows_per_replica(replicas):
    """The split of consecutive RowIDs is that of the hubs."""
    rng = random.Random(replicas)
    for _ in range(200):
        first, count = rng.randrange(1 << 20), rng.choice((0, 1, 2, 3, 5, rng.randrange(200)))
        wanted = [0] * replicas
        for rowid in range(first, first + count):
            wanted[replica_of(rowid, replicas)] += 1
        assert rows_per_replica(first, count, replicas) == wanted, (first, count)


def test_announce():
    """One write of the first handle, then one per handle; ``more`` but for the last."""
    cfg, log = preset("small"), Recorder()
    Driver(cfg, log).announce(3, 2, [272, 0], owner=1)
    address = register_map(cfg).address
    writes = [(at, value) for kind, at, value, _ in log.accesses if kind == "write"]
    assert writes == [
        (address("control.ANNOUNCE_TO"), 1 << 4 | 2 << 8 | 3 << 16),
        (address("control.ANNOUNCE"), 17 | 1 << 31),
        (address("control.ANNOUNCE"), 0),
    ]
