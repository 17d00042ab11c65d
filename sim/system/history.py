# SPDX-License-Identifier: Apache-2.0
"""What happened in a layer's run, in the order of time: how every link was used and why it was
idle, tiles, answers. Pictures, page and trace are made of this."""

from dataclasses import dataclass

import numpy as np

from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.packets import EventKind

from .fabric import cycle_ns
from .formats import LinkUse
from .layer import MARK_CLOSED, MARK_END, MARK_START, MARK_STORED
from .ways import WAYS

__all__ = ["BIN", "USES", "History", "Tile", "Use", "best_software", "history", "link_use"]

BIN = 32  # cycles of a bin of the harness
MOST_BINS = 1024  # of a history: as many neighbours are added up as that takes


@dataclass(frozen=True)
class Use:
    """One of :class:`~sim.system.formats.LinkUse` for a reader: in few words, and in more; its
    colour on white and on black."""

    words: str
    means: str
    light: str
    dark: str


#: In the order in which they are stacked. The colour-blind tell neighbours apart, by lightness too.
USES = {
    LinkUse.SENT: Use("sending", "a flit leaves", "#2f6f9f", "#4f9bd0"),
    LinkUse.WIRE: Use("fabric waits", "a flit waits for the fabric", "#7a5230", "#b98a5e"),
    LinkUse.CREDIT: Use(
        "no credit",
        "packets are ready, their receivers have not granted a place yet",
        "#d55e00",
        "#f07a1f",
    ),
    LinkUse.ROOM: Use(
        "no room", "stores wait: the hub has no room for their receivers", "#e6a817", "#f2bd3c"
    ),
    LinkUse.INSIDE: Use(
        "in the hub",
        "bytes are on their way through the hub, or wait for the rest of their packet",
        "#f3e08a",
        "#8f8135",
    ),
    LinkUse.SOFTWARE: Use(
        "software waits",
        "the program waits before its next store: for counts, offsets, a fence",
        "#c2569b",
        "#d873b3",
    ),
    LinkUse.EXPERT: Use(
        "experts compute", "no store is there; experts are at work", "#6fbf9b", "#2f8f6b"
    ),
    LinkUse.NOTHING: Use("nothing to send", "none of these", "#e4e6ea", "#3a3f47"),
}


@dataclass(frozen=True)
class Tile:
    """A tile of a region: number of its group in the region, rows; cycles of its first row's
    placing and of its READY."""

    region: int
    number: int
    rows: int
    first: int
    ready: int


@dataclass(frozen=True, kw_only=True)
class History:
    """A run. Times are cycles of the hub's clock since the layer's start.

    ``layer``: its length; ``bin``: cycles of a bin, of which the last may reach beyond the layer.
    By rank, bin, link: ``use``, cycles of the links' clock by LinkUse, and ``received``, flits; by
    rank and bin: ``written``, bytes that reached memory. Lists by rank, of times in order:
    ``usable``, of tiles or sets; ``tiles``, of the hub's way alone; ``answers``, of tiles of
    tokens; ``steps``, by name: what the rank's program had done.
    """

    way: str
    cfg: HubConfig
    layer: int
    bin: int
    use: np.ndarray
    received: np.ndarray
    written: np.ndarray
    usable: list
    tiles: list
    answers: list
    steps: list

    @property
    def title(self):
        return WAYS[self.way].title

    @property
    def ranks(self):
        return self.cfg.ranks

    @property
    def bins(self):
        return self.use.shape[1]

    def us(self, cycles):
        """Microseconds that so many cycles take."""
        return cycles * cycle_ns(self.cfg) / 1000


STEPS = {MARK_STORED: "stored", MARK_CLOSED: "closed", MARK_END: "end"}


def history(plan, result, way):
    """The :class:`History` of a run the way called ``way`` that ended; its system had the settings
    ``bin`` = :data:`BIN` and ``bin_from`` = MARK_START."""
    ranks = range(plan.cfg.ranks)
    marks = [result.marks(rank) for rank in ranks]
    starts = [m[MARK_START] for m in marks]
    layer = max(m[MARK_END] for m in marks) - min(starts)
    logs = [result.log("events", rank) for rank in ranks]
    bins = -(-layer // BIN)
    together = 1
    while -(-bins // together) > MOST_BINS:
        together *= 2
    raw = [result.bins(rank)[:bins] for rank in ranks]

    def joined(values):
        """[rank, bin, ...] of values by rank and the harness' bins."""
        values = np.stack(values).astype(np.int64)
        left = -values.shape[1] % together
        values = np.pad(values, [(0, 0), (0, left), *[(0, 0)] * (values.ndim - 2)])
        return values.reshape(values.shape[0], -1, together, *values.shape[2:]).sum(axis=2)

    return History(
        way=way,
        cfg=plan.cfg,
        layer=layer,
        bin=BIN * together,
        use=joined([each["links"]["use"] for each in raw]),
        received=joined([each["links"]["received"] for each in raw]),
        written=joined([each["written"] for each in raw]),
        usable=[sorted(cycles) for cycles in WAYS[way].usable(plan, result)],
        tiles=[
            _tiles(plan, result, rank, start) if way == "hub" else []
            for rank, start in zip(ranks, starts, strict=True)
        ],
        answers=[
            _since(log[(log["kind"] == EventKind.READY) & (log["plain"] == 1)]["cycle"], start)
            for log, start in zip(logs, starts, strict=True)
        ],
        steps=[
            {name: m[mark] - start for mark, name in STEPS.items() if mark in m}
            for m, start in zip(marks, starts, strict=True)
        ],
    )


def _since(cycles, start):
    return sorted((cycles.astype(np.int64) - start).tolist())


def _tiles(plan, result, rank, start):
    """The tiles of a rank in the order of their READY. A tile's first row is the first for which
    one of its slots was taken."""
    allocs, events = result.log("allocs", rank), result.log("events", rank)
    shift = plan.tile_rows.bit_length() - 1
    first = {}
    for row in allocs[allocs["overflow"] == 0].tolist():
        cycle, _, slot, region, *_ = row
        first.setdefault((region, slot >> shift), cycle - start)
    ready = events[(events["kind"] == EventKind.READY) & (events["plain"] == 0)]
    out = []
    for event in ready:
        region, cycle = int(event["region"]), int(event["cycle"]) - start
        number = int(event["group"]) - plan.region(region).group_base
        out.append(Tile(region, number, int(event["rows"]), first[region, number], cycle))
    return out


def link_use(told):
    """What all links did, for ``report.json``: cycles of a bin, number of bins, and cycles of the
    links' clock by LinkUse, over all ranks and links. ``told``: a :class:`History`."""
    total = told.use.sum(axis=(0, 1, 2))
    return {
        "bin_cycles": told.bin,
        "bins": told.bins,
        "cycles": {kind.name.lower(): int(total[kind]) for kind in USES},
    }


def best_software(histories):
    """Name of the way of software whose layer was shortest, None without one. ``histories``: by
    name of the way."""
    others = [told for name, told in histories.items() if name != "hub"]
    return min(others, key=lambda told: told.layer).way if others else None
