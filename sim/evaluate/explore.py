# SPDX-License-Identifier: Apache-2.0
"""What to build: hubs with other slices and pools, the layer's time on the model against their area
from measured gates.

The time is of the whole-machine model, the area of :mod:`sim.evaluate.hub_area`. Swept is what both
know: how many slices there are, entries of the packet manager's pool, places of the receive pool,
which go to the sources that need them; links and bytes of a slice are those of the hubs in the
table. Not swept is what the model does not see: row table (RAT) and victim store (nothing spills in
the model), control credits, writes outstanding; the rows of a readiness tile, which there are the
rows of a GEMM's tile. Nor the clock: links and hub have preset ``nvl8``'s, as nothing here tells
what another hub would reach.
"""

from dataclasses import asdict, dataclass
from itertools import product

from flow.pages.rows import read
from flow.pictures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, legend_below, picture
from flow.synth.area_table import PLACES, source_key
from hub_rtl.contract.config import preset
from hub_rtl.contract.fields import LANE
from sim.evaluate.machine.network_settings import hub_preset, links_for, loops_for
from sim.evaluate.page.numbers import number
from sim.evaluate.page.rows import markdown
from sim.workload.models import model as shape_of

from .hub_area import Built, NotMeasured, area_table
from .own_machine import machine_asked
from .runner import Point
from .study import HUB, JUDGED, Report

__all__ = ["TABLES", "Sweep", "draw_front", "hubs", "preset_hub", "points", "report"]

RANKS = 8  # of preset nvl8: the hubs whose gates are in the table


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is asked. ``tokens``: per rank. ``slices``: by default as many as the machine's links
    need, one more, and twice as many. ``places``: of the receive pool, for each link of its slice.
    ``pools``: entries of a slice's packet manager."""

    model: str = "deepseek-v3"
    tokens: int = 128
    ranks: int = RANKS
    machine: str = JUDGED
    seed: int = 1
    slices: tuple = ()
    places: tuple = (96, PLACES, 384)
    pools: tuple = (64, 128)

    def __post_init__(self):
        shape_of(self.model)
        if not 2 <= self.ranks <= RANKS:
            raise ValueError(
                f"ranks = {self.ranks}: must be between 2 and {RANKS}, the gates are of hubs for "
                f"{RANKS}"
            )
        if self.tokens < 1:
            raise ValueError(f"tokens = {self.tokens}: must be at least 1")
        machine_asked(self.machine, self.ranks)


def _needed(sweep, links):
    """Slices of so many links that carry what the machine's do."""
    return -(-links_for(machine_asked(sweep.machine, sweep.ranks).fabric) // links)


def _hub(kind, slices, places, pool):
    """A hub. Raises ConfigError for one that cannot be."""
    built = Built(
        lanes=slices,
        loop_lanes=loops_for(RANKS, slices),
        slice_links=kind[0],
        slice_bytes=kind[1],
        pool_depth=pool,
        pool_places=places,
    )
    preset("nvl8", **asdict(built))
    return built


def preset_hub(sweep):
    """Preset ``nvl8`` with as many slices as the machine's links need."""
    made = hub_preset(RANKS)
    kind = made["slice_links"], made["slice_bytes"]
    return _hub(kind, _needed(sweep, kind[0]), made["pool_places"], made["pool_depth"])


def hubs(sweep):
    """``({Built: Area}, [why others are left out])``, the preset's among them. Raises ValueError
    when a value breaks a rule of the hub, or the preset's area is not in the table."""
    table, own = area_table(), preset_hub(sweep)
    found, left = {own: table.area(own)}, []
    for kind in table.kinds():
        needed = _needed(sweep, kind[0])
        usual = [n for n in (needed, needed + 1, 2 * needed) if n * kind[0] <= 1 << LANE]
        for slices, places, pool in product(sweep.slices or usual, sweep.places, sweep.pools):
            built = _hub(kind, slices, places * kind[0], pool)
            try:
                found[built] = table.area(built)
            except NotMeasured as error:
                left.append(str(error))
    return found, list(dict.fromkeys(left))


def point(sweep, built):
    """The layer of a hub."""
    return Point(
        HUB,
        sweep.model,
        sweep.tokens * sweep.ranks,
        machine=sweep.machine,
        ranks=sweep.ranks,
        seed=sweep.seed,
        network=(("built", built.options),),
    )


def points(sweep):
    """Layers to simulate."""
    return [point(sweep, built) for built in hubs(sweep)[0]]


def dominates(one, other):
    """Is one row at least as fast and as small as another, and better in one of both?"""
    pairs = [(one[name], other[name]) for name in ("us", "mm2")]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _row(built, area, result):
    return {
        "slices": built.lanes,
        "links": built.slice_links,
        "bytes": built.slice_bytes,
        "pool": built.pool_depth,
        "places": built.pool_places,
        "loopback slices": built.loop_lanes,
        "us": result.us,
        "first_ready_us": result.first_ready_us,
        "all_ready_us": result.all_ready_us,
        "mm2": area.mm2,
        "kge": area.kge,
        "memory_kbit": (area.bits + area.small_bits) / 1e3,
    }


def report(sweep, results):
    """:class:`sim.evaluate.study.Report` of ``{point: result}``: all hubs, smallest first; of the
    summary those that no other is better than, and the preset's with what is better than it."""
    (found, left), own = hubs(sweep), preset_hub(sweep)
    rows = []
    for built, area in found.items():
        row = _row(built, area, results[point(sweep, built)])
        rows.append({"hub": "preset" if built == own else ""} | row)
    rows.sort(key=lambda row: (row["mm2"], row["us"]))
    for row in rows:
        row["pareto"] = int(not any(dominates(other, row) for other in rows))
    mine = next(row for row in rows if row["hub"])
    summary = [row for row in rows if row["pareto"] or row["hub"]]
    rows = [row | {"us over preset, %": 100 * (row["us"] / mine["us"] - 1)} for row in rows]
    return Report(rows=rows, summary=summary, notes=[*_answer(rows, mine), *_limits(left)])


def _named(row):
    return (
        f"{row['slices']} slices of {row['links']} links x {row['bytes']} bytes, pool of "
        f"{row['pool']}, {row['places']} places"
    )


def _answer(rows, mine):
    """What is better than the preset's hub."""
    better = [row for row in rows if dominates(row, mine)]
    said = f"preset: {mine['us']:.1f} us, {mine['mm2']:.3f} mm2"
    if not better:
        return [f"{said}; no hub of the sweep is as fast and as small"]
    smallest = min(better, key=lambda row: (row["mm2"], row["us"]))
    fastest = min(better, key=lambda row: (row["us"], row["mm2"]))
    return [f"{said}; as fast and as small, or better: {len(better)}"] + [
        f"{what}: {_named(row)}: {row['us']:.1f} us ({100 * (row['us'] / mine['us'] - 1):+.1f} %), "
        f"{row['mm2']:.3f} mm2 ({100 * (row['mm2'] / mine['mm2'] - 1):+.1f} %)"
        for what, row in (("smallest", smallest), ("fastest", fastest))
    ]


def _limits(left):
    table = area_table()
    off = max((abs(row["error_percent"]) for row in table.left_out()), default=0.0)
    lines = [
        "us: one routing on the model; rows are not pinned to slices there, so slices differ in "
        "rate, credits and pool only",
        f"mm2: ASAP7 cells and memories without wires, from gates counted at commit {table.commit} "
        f"({table.tool}); a measured value left out is within {off:.1f} % of its neighbours' line",
    ]
    if table.key != source_key():
        lines.append(
            "the hub has changed since its gates were counted: `moe-hub explore --measure`"
        )
    return lines + [f"left out: {each}" for each in left]


def _table(folder):
    """Hubs that none is better than, and the preset's."""
    shown = ("slices", "pool", "places")
    return markdown(
        ["slices", "pool", "places", "layer, µs", "mm²", "kGE", "memory, kbit", ""],
        [
            [number(row[name]) for name in shown]
            + [f"{float(row['us']):.1f}", f"{float(row['mm2']):.3f}"]
            + [f"{float(row[name]):,.0f}" for name in ("kge", "memory_kbit")]
            + [row["hub"]]
            for row in read(folder, "explore")
            if row["hub"] or row["pareto"] == "1"
        ],
    )


#: Of ``docs/results/explore.md``, for :func:`flow.pages.fill.fill`.
TABLES = {"explore": _table}


def draw_front(sweep, rows, path):
    """Layer time against area: a marker for each hub, a line through those that none is better
    than."""
    kinds = {(row["slices"], row["links"], row["bytes"]) for row in rows}
    colors, markers = (BLUE, ORANGE, GREEN, PURPLE, GREY), "osD^v"
    with picture(path, 4.6) as figure:
        axes = figure.add_subplot()
        for number, kind in enumerate(sorted(kinds)):
            own = [row for row in rows if (row["slices"], row["links"], row["bytes"]) == kind]
            axes.scatter(
                [row["mm2"] for row in own],
                [row["us"] for row in own],
                label=f"{kind[0]} slices of {kind[1]} links x {kind[2]} bytes",
                color=colors[number % len(colors)],
                marker=markers[number % len(markers)],
                s=34,
                zorder=3,
            )
        front = [row for row in rows if row["pareto"]]
        axes.step(
            [row["mm2"] for row in front],
            [row["us"] for row in front],
            where="post",
            color="black",
            linewidth=1.0,
            label="none is faster and as small",
            zorder=2,
        )
        mine = next(row for row in rows if row["hub"])
        axes.scatter(
            [mine["mm2"]],
            [mine["us"]],
            s=190,
            facecolor="none",
            edgecolor=RED,
            linewidth=1.8,
            label="preset nvl8's",
            zorder=4,
        )
        axes.set(xlabel="area of the hub, mm² (ASAP7, no wires)", ylabel="layer, µs")
        figure.suptitle(
            f"{shape_of(sweep.model).name}, {sweep.tokens} tokens per rank, {sweep.ranks} ranks, "
            f"{sweep.machine}",
            x=0.01,
            ha="left",
        )
        legend_below(figure, 3)
