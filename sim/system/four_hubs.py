# SPDX-License-Identifier: Apache-2.0
"""Four small hubs of two lanes: what the system tests have in common."""

import numpy as np

from flow.driver import Handle, Region
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import EventKind, PacketType
from sim.bench.runner import bench_seed
from sim.quality.coverage import cover

from .scenario import Scenario

__all__ = [
    "CFG",
    "PATTERNS",
    "PLAIN",
    "ROW",
    "SPILL",
    "all_to_all",
    "finish",
    "region",
    "scatter",
    "scenario",
    "verify",
]

CFG = preset("small", lanes=2)
ROW = 272  # two full packets and one unit of 16 bytes
ROWS = 0x4000  # first region's memory
SPILL = (0x1000, 0x4000)
PLAIN = 0x30000  # memory for plain stores
PATTERNS = {"none": (0, 0), "cyclic": (1, 0), "random": (2, 50)}


def region(index, **changes):
    """A region of 16 slots, tiles of 4, that all four ranks close."""
    base = ROWS + index * 0x4000
    fields = {
        "base": (base, base + 0x2000),
        "stride": 384,
        "row_bytes": ROW,
        "capacity": 16,
        "group_base": 4 * index,
        "log2_tile": 2,
        "expected": 4,
        "row_span": 64,
        "spill_base": (SPILL[0] + index * 1024, SPILL[0] + index * 1024 + 512),
    }
    return Region(**{**fields, **changes})


def scenario(**settings):
    """Four ranks; settings of the harness."""
    return Scenario(CFG, hidden=[SPILL], seed=bench_seed(), mem_spill=SPILL, **settings)


def all_to_all(s, regions=2, epochs=(0,), **changes):
    """Every rank opens `regions` regions; handle rank * regions + index names them at every
    producer."""
    for rank in range(CFG.ranks):
        for index in range(regions):
            s.region(rank, index, region(index, **changes), epochs)
        for dest in range(CFG.ranks):
            for index in range(regions):
                s.handle(
                    rank, dest * regions + index, Handle(targets=((dest, index),), row_bytes=ROW)
                )
    s.barrier()


def finish(s, regions=2, epochs=(0,)):
    """Waits for ALL of everything, then reads the regions' registers."""
    for rank in range(CFG.ranks):
        s.program(rank).wait_events(EventKind.ALL, regions * len(epochs))
    s.barrier()
    for rank in range(CFG.ranks):
        for index in range(regions):
            for epoch in epochs:
                s.query(rank, index, epoch)


def scatter(s, rng, rows=10, epoch=0):
    """Each rank sends `rows` rows to random regions, in pieces of random order and class, and
    closes."""
    for rank in range(CFG.ranks):
        for n in range(rows):
            handle, rowid = rng.randrange(8), rank * 16 + n
            data = rng.randbytes(ROW)
            cuts = sorted({0, *rng.sample(range(2, 17, 2), 2)})
            pieces = list(zip(cuts, [*cuts[1:], 17], strict=True))
            rng.shuffle(pieces)
            for low, high in pieces:
                s.row(
                    rank,
                    handle,
                    rowid,
                    data[low * 16 : high * 16],
                    epoch=epoch,
                    row_off=low,
                    cls=rng.randrange(2),
                )
        s.close_all(rank, epoch)


def verify(s, harness):
    """Runs the scenario; everything must be as the model says."""
    result = s.run(harness)
    differences = s.differences(result)
    if not differences:
        note_bins(result)
    result.remove()
    assert not differences, "\n".join(differences)


def note_bins(result):
    """Coverage: what the run was seen to do."""
    for rank in range(CFG.ranks):
        events, packets, allocs = (
            result.log(name, rank) for name in ("events", "packets", "allocs")
        )
        kinds, masked = (
            packets["low"] & np.uint64(15),
            packets["low"] >> np.uint64(5) & np.uint64(1),
        )
        cover("system.masked_packet", bool(((kinds != PacketType.CLOSE) & (masked == 1)).any()))
        cover("system.own_rank", bool((allocs["rowid"] // 16 == rank).any()))
        cover(
            "system.last_tile_partial",
            bool(((events["kind"] == EventKind.READY) & (events["rows"] % 4 != 0)).any()),
        )
        cover("system.overflow", bool(allocs["overflow"].any()))
        cover("system.spill", result.ranks[rank]["spill_writes"] > 0)
        cover("system.region_full", bool((events["refused"] == 1).any()))
