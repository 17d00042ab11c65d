# SPDX-License-Identifier: Apache-2.0
"""Figures of the experiments: panels of grouped bars or of lines, described by data alone; same
data, same bytes."""

from dataclasses import dataclass, field

from matplotlib.ticker import NullLocator

from flow.pictures import legend_below, picture
from sim.evaluate.schemes import SCHEMES

from .numbers import NAMES

__all__ = ["Panel", "Plot", "draw"]

COLORS = ("#2a6f97", "#e0a32e", "#6a994e", "#7d5ba6", "#c97b63")
MARKERS = "osv^D<>ph*X"
LONG = 8  # letters of a label from which on bars lie, so that their names can be read
MANY = 24  # bars from which on a panel has the whole width


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes.

    ``kind``: ``bars`` or ``lines``. ``x``: labels of the groups, or values of a line's points.
    ``series``: {name: values, one per x, None where there is none}. ``xlabel``, ``ylabel``: with
    the unit. ``line``: a value to draw across. ``log_x``, ``log_y``: powers of two, of ten.
    """

    title: str
    kind: str
    x: tuple
    series: dict
    ylabel: str
    xlabel: str = ""
    line: float | None = None
    log_x: bool = False
    log_y: bool = False

    @property
    def lies(self):
        """Names stand beside their bars."""
        return self.kind == "bars" and max(len(str(x)) for x in self.x) > LONG

    @property
    def bars(self):
        return len(self.x) * len(self.series) if self.kind == "bars" else 0

    @property
    def height(self):
        """Inches."""
        return 0.75 + max(0.075 * self.bars, 0.2 * len(self.x)) if self.lies else 2.5


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure: its panels in rows of ``columns``, or of fewer where they need the width."""

    title: str
    panels: list = field(default_factory=list)
    columns: int = 2


def _color(name, names):
    """The same system has the same colour in every figure."""
    known = SCHEMES.get(name)
    return known.color if known else COLORS[names.index(name) % len(COLORS)]


def _label(name):
    return NAMES.get(name, name)


def _bars(axes, panel, names):
    width = 0.84 / len(panel.series)
    draw_bars, groups = (axes.barh, axes.set_yticks) if panel.lies else (axes.bar, axes.set_xticks)
    for number, (name, values) in enumerate(panel.series.items()):
        places = [i + (number - (len(panel.series) - 1) / 2) * width for i in range(len(panel.x))]
        lengths = [value or 0 for value in values]
        draw_bars(places, lengths, width, label=_label(name), color=_color(name, names))
    labels = [f"{x:,}" if isinstance(x, int) else str(x) for x in panel.x]
    groups(range(len(panel.x)), labels)
    axes.grid(axis="y" if panel.lies else "x", visible=False)
    if panel.lies:
        axes.set_ylim(len(panel.x) - 0.5, -0.5)  # the first on top


def _lines(axes, panel, names):
    for name, values in panel.series.items():
        points = [(x, y) for x, y in zip(panel.x, values, strict=True) if y is not None]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                label=_label(name),
                color=_color(name, names),
                marker=MARKERS[names.index(name) % len(MARKERS)],
                markersize=4.5,
                linewidth=2.4 if name == "moe_hub" else 1.5,
            )
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(*_apart(panel.x))
        axes.xaxis.set_minor_locator(NullLocator())


def _apart(values, most=7):
    """Those of the values that can be read side by side on a logarithmic axis, and their texts."""
    least = (values[-1] / values[0]) ** (1 / most)
    shown = []
    for value in values:
        if not shown or value >= shown[-1] * least:
            shown.append(value)
    return shown, [f"{value:,}" for value in shown]


def _panel(axes, panel, names):
    (_bars if panel.kind == "bars" else _lines)(axes, panel, names)
    if panel.line is not None:
        across = axes.axvline if panel.lies else axes.axhline
        across(panel.line, color="black", linewidth=0.9, linestyle="--")
    if panel.log_y:
        axes.set_yscale("log")
    across, up = (panel.ylabel, panel.xlabel) if panel.lies else (panel.xlabel, panel.ylabel)
    axes.set(title=panel.title, xlabel=across, ylabel=up)


def draw(plot, path):
    """Writes the figure as a PNG."""
    wide = any(panel.lies or panel.bars > MANY for panel in plot.panels)
    columns = 1 if wide else min(plot.columns, len(plot.panels))
    rows = [plot.panels[n : n + columns] for n in range(0, len(plot.panels), columns)]
    heights = [max(panel.height for panel in row) for row in rows]
    names = list(dict.fromkeys(name for panel in plot.panels for name in panel.series))
    with picture(path, 0.7 + 0.22 * -(-len(names) // 5) + sum(heights)) as figure:
        grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
        for number, panel in enumerate(plot.panels):
            _panel(figure.add_subplot(grid[divmod(number, columns)]), panel, names)
        figure.suptitle(plot.title, x=0.01, ha="left")
        legend_below(figure, 5)
