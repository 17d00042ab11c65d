# SPDX-License-Identifier: Apache-2.0
"""Four small hubs of two lanes: what the system tests have in common."""

import random

import numpy as np

from flow.driver import Handle, Region
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import EventKind
from sim.bench.runner import bench_seed
from sim.quality.coverage import cover

from .scenario import Scenario

__all__ = [
    "CFG",
    "PATTERNS",
    "PLAIN",
    "ROW",
    "RANKS",
    "SPILL",
    "FourHubs",
    "all_to_all",
    "everything_logged",
    "finish",
    "name_regions",
    "thrash",
    "region",
    "scatter",
    "verify",
]

CFG = preset("small", lanes=2)
RANKS = range(CFG.ranks)
ROW = 272  # two full packets and one unit of 16 bytes
ROWS = 0x4000  # first region's memory
SPILL = (0x1000, 0x4000)
PLAIN = 0x30000  # memory for plain stores
TRAVEL = 400  # cycles in which a fenced store has arrived and been judged
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


class FourHubs(Scenario):
    """Four ranks, and the random numbers of the run; ``settings`` of the harness."""

    def __init__(self, **settings):
        super().__init__(CFG, hidden=[SPILL], seed=bench_seed(), mem_spill=SPILL, **settings)
        self.rng = random.Random(bench_seed())

    def row(self, rank, handle, rowid, data=None, **more):
        """See :meth:`Scenario.row`; a row of random bytes unless ``data`` is given."""
        super().row(rank, handle, rowid, data or self.rng.randbytes(ROW), **more)

    def settle(self, rank):
        """The rank goes on when all that it has stored has arrived and been judged."""
        self.fence(rank)
        self.wait(rank, TRAVEL)

    def hide(self, *regions):
        """The memory of these regions, which are those of :func:`region`, is not compared."""
        self.hidden += [region(index).base for index in regions]


def all_to_all(s, regions=2, epochs=(0,), **changes):
    """Every rank opens `regions` regions; handle rank * regions + index names them at every
    producer."""
    for rank in RANKS:
        for index in range(regions):
            s.region(rank, index, region(index, **changes), epochs)
        name_regions(s, rank, regions)
    s.barrier()


def name_regions(s, rank, regions=2, **more):
    """Handle dest * regions + index of a producer names that region."""
    for dest in RANKS:
        for index in range(regions):
            entry = Handle(targets=((dest, index),), row_bytes=ROW, **more)
            s.handle(rank, dest * regions + index, entry)


def thrash(s, dest):
    """Each rank sends 32 rows to one rank, every row begun before one is completed: more than the
    RAT has places. To the end of the run."""
    all_to_all(s, regions=1, capacity=128, row_span=128, base=(0x4000, 0x20000))
    rows = [(rank, rank * 32 + n, s.rng.randbytes(ROW)) for n in range(32) for rank in RANKS]
    for rank, rowid, data in rows:
        s.row(rank, dest, rowid, data[:128])
    for rank in RANKS:
        s.sync(rank)
        s.fence(rank)
    s.barrier()
    for rank, rowid, data in rows:
        s.row(rank, dest, rowid, data[128:], row_off=8)
    for rank in RANKS:
        s.close_all(rank)
    finish(s, regions=1)


def finish(s, regions=2, epochs=(0,)):
    """Waits for ALL of everything, then reads the regions' registers."""
    for rank in RANKS:
        s.wait_all(rank, regions * len(epochs))
    s.barrier()
    for rank in RANKS:
        for index in range(regions):
            for epoch in epochs:
                s.query(rank, index, epoch)


def scatter(s, rows=10, epoch=0):
    """Each rank sends `rows` rows to random regions, in pieces of random order and class, and
    closes."""
    rng = s.rng
    for rank in RANKS:
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


def everything_logged(result):
    """Events, placements and packets of all ranks, cycle for cycle, to compare runs."""
    names = ("events", "allocs", "packets")
    return [result.log(name, rank).tobytes() for rank in RANKS for name in names]


def note_bins(result):
    """Coverage: what the run was seen to do."""
    for rank in RANKS:
        events, packets, allocs = (
            result.log(name, rank) for name in ("events", "packets", "allocs")
        )
        masked = packets["low"] >> np.uint64(5) & np.uint64(1)
        cover("system.masked_packet", bool((masked == 1).any()))
        cover("system.own_rank", bool((allocs["rowid"] // 16 == rank).any()))
        cover(
            "system.last_tile_partial",
            bool(((events["kind"] == EventKind.READY) & (events["rows"] % 4 != 0)).any()),
        )
        cover("system.overflow", bool(allocs["overflow"].any()))
        cover("system.spill", result.ranks[rank]["spill_writes"] > 0)
        cover("system.region_full", bool((events["refused"] == 1).any()))
