# SPDX-License-Identifier: Apache-2.0
"""The ways in which a layer runs on the same hubs, links and memory: the hub's, and what software
does without it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hub_rtl.contract.packets import EventKind

from .baseline import baseline_programs, check_baseline, tile_cycles
from .fixed_slots import check_fixed_slots, flags_programs, rowflag_programs, set_cycles
from .layer import MARK_START, hub_programs
from .layer_check import check_layer

__all__ = ["BASELINES", "WAYS", "Way"]


@dataclass(frozen=True)
class Way:
    """``title``: for a table; ``line``: what it is, and what is usable when.

    ``programs(plan, **settings)`` gives the system, ``check(plan, result)`` the verdict on its run,
    ``usable(plan, result)`` for each rank a list of the cycles, since its start, at which each tile
    or set became usable.
    """

    title: str
    line: str
    programs: Callable
    check: Callable
    usable: Callable


def _ready(plan, result):
    """READY events of regions."""
    out = []
    for rank in range(plan.cfg.ranks):
        log, start = result.log("events", rank), result.marks(rank).get(MARK_START, 0)
        tiles = log[(log["kind"] == EventKind.READY) & (log["plain"] == 0)]
        out.append((tiles["cycle"].astype(np.int64) - start).tolist())
    return out


WAYS = {
    "hub": Way(
        "hub",
        "row-sparse stores; a tile of any producers' rows, at its READY",
        hub_programs,
        check_layer,
        _ready,
    ),
    "address": Way(
        "address-centric",
        "counts exchanged, offsets, rows, fence, flags; a tile, with the flags of its sources",
        baseline_programs,
        check_baseline,
        tile_cycles,
    ),
    "flags": Way(
        "flags",
        "fixed slots, a fence and a flag per source and expert; a set, with its flag",
        flags_programs,
        check_fixed_slots,
        set_cycles,
    ),
    "rowflag": Way(
        "row-flag",
        "fixed slots, counts sent at once, no fence, no flag; a set, with its rows' last words",
        rowflag_programs,
        check_fixed_slots,
        set_cycles,
    ),
}
BASELINES = tuple(name for name in WAYS if name != "hub")
