# SPDX-License-Identifier: Apache-2.0
"""Figures of the experiments: panels of grouped bars or of lines, described by data alone; same
data, same bytes."""

from dataclasses import dataclass, field

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from sim.evaluate.schemes import SCHEMES

__all__ = ["STYLE", "Panel", "Plot", "draw", "save"]

#: Of all figures of an evaluation.
STYLE = {"axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True}

COLORS = ("#2a6f97", "#e0a32e", "#6a994e", "#7d5ba6", "#c97b63")
MARKERS = "osv^D<>ph*X"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes.

    ``kind``: ``bars`` or ``lines``. ``x``: labels of the groups, or values of a line's points.
    ``series``: {name: values, one per x, None where there is none}. ``line``: a value to draw
    across. ``log_x``, ``log_y``: powers of two, of ten.
    """

    title: str
    kind: str
    x: tuple
    series: dict
    xlabel: str = ""
    ylabel: str = ""
    line: float | None = None
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure: its panels in rows of ``columns``, and where its numbers come from."""

    title: str
    panels: list = field(default_factory=list)
    columns: int = 3


def _color(name, names):
    """The same system has the same colour in every figure."""
    known = SCHEMES.get(name)
    return known.color if known else COLORS[names.index(name) % len(COLORS)]


def _bars(axes, panel, names):
    width = 0.8 / len(panel.series)
    for number, (name, values) in enumerate(panel.series.items()):
        places = [i + (number - (len(panel.series) - 1) / 2) * width for i in range(len(panel.x))]
        axes.bar(
            places, [value or 0 for value in values], width, label=name, color=_color(name, names)
        )
    axes.set_xticks(
        range(len(panel.x)), panel.x, rotation=90 if max(len(str(x)) for x in panel.x) > 8 else 0
    )


def _lines(axes, panel, names):
    for name, values in panel.series.items():
        points = [(x, y) for x, y in zip(panel.x, values, strict=True) if y is not None]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                label=name,
                color=_color(name, names),
                marker=MARKERS[names.index(name) % 11],
                markersize=3.5,
                linewidth=2 if name == "moe_hub" else 1.2,
            )
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(panel.x, [f"{x:,}" for x in panel.x], rotation=45)
        axes.xaxis.set_minor_locator(NullLocator())


def save(figure, path, columns):
    """Writes the figure as a PNG, with one legend of all its axes below it, in at most so many
    columns."""
    labelled = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {label: handle for group in labelled for handle, label in zip(*group, strict=True)}
    columns = min(len(handles), columns)
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False
    )
    figure.savefig(path, metadata={"Software": None})


def draw(plot, path):
    """Writes the figure as a PNG."""
    columns = min(plot.columns, len(plot.panels))
    rows = -(-len(plot.panels) // columns)
    widest = max(
        len(panel.x) * (len(panel.series) if panel.kind == "bars" else 1) for panel in plot.panels
    )
    with matplotlib.rc_context(STYLE | {"font.size": 8}):
        figure = Figure(
            figsize=(min(20, columns * max(4.2, widest * 0.13)), 0.7 + 3.0 * rows),
            dpi=110,
            layout="constrained",
        )
        names = list(dict.fromkeys(name for panel in plot.panels for name in panel.series))
        for number, panel in enumerate(plot.panels):
            axes = figure.add_subplot(rows, columns, number + 1)
            (_bars if panel.kind == "bars" else _lines)(axes, panel, names)
            if panel.line is not None:
                axes.axhline(panel.line, color="black", linewidth=0.8, linestyle="--")
            if panel.log_y:
                axes.set_yscale("log")
            axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
        figure.suptitle(plot.title)
        save(figure, path, 8)
