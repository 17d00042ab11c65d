# SPDX-License-Identifier: Apache-2.0
"""Pictures of area and clock."""

from flow.pictures import BLUE, GREEN, ORANGE, RED, legend_below, picture

from .census import REST, UNITS
from .peers import peer_of
from .sweeps import fit_line
from .targets import FPGA_MHZ

__all__ = ["draw_areas", "draw_clocks", "draw_lanes", "draw_sweeps"]


def draw_areas(figures, counts, path):
    """Gates of one of each unit, and memory bits; ``figures``: {unit: generic figures}."""
    names = sorted(figures, key=lambda name: figures[name]["kge"])
    colour = {"lane": BLUE, "slice": BLUE, "loop": GREEN, "hub": ORANGE}
    colours = [colour[UNITS[name].per] if name in UNITS else ORANGE for name in names]
    labels = [f"{name} × {counts[name]}" if name != REST else "what joins them" for name in names]
    with picture(path, 0.26 * len(names) + 1.2) as figure:
        gates, bits = figure.subplots(1, 2, sharey=True)
        gates.barh(labels, [figures[name]["kge"] for name in names], color=colours)
        gates.set(title="Gates, memories apart", xlabel="kGE of one")
        bits.barh(labels, [figures[name]["memory_bits"] / 1024 for name in names], color=colours)
        bits.set(title="Memories", xlabel="Kibit of one")
        for axes in (gates, bits):
            axes.grid(axis="y", visible=False)
            axes.margins(y=0.01)
        for each, text in (
            (BLUE, "every slice"),
            (GREEN, "every loopback slice"),
            (ORANGE, "once per hub"),
        ):
            gates.barh([labels[0]], [0], color=each, label=text)
        legend_below(figure)


def draw_clocks(found, path):
    """ECP5 clock of blocks and hub beside target and peer; ``found``: {part: {"ecp5": figures}}."""
    names = [name for name, flows in found.items() if "ecp5" in flows]
    with picture(path, 0.3 * len(names) + 1.3) as figure:
        axes = figure.subplots()
        axes.barh(
            names,
            [found[name]["ecp5"]["mhz"] for name in names],
            color=BLUE,
            label="median of the seeds",
        )
        for at, name in enumerate(names):
            runs, peer, first = found[name]["ecp5"]["runs"], peer_of(name), at == 0
            axes.plot(runs, [at] * len(runs), "k|", ms=9, label="each seed" if first else None)
            if peer:
                axes.plot([peer.mhz], [at], "D", color=ORANGE)
        axes.plot([], [], "D", color=ORANGE, label="nearest peer")
        axes.axvline(FPGA_MHZ, color=RED, lw=2, label="target of the hub")
        axes.set_xlabel("clock on ECP5-85F speed 8, MHz")
        axes.set_ylim(len(names) - 0.5, -0.5)  # the first on top
        axes.grid(axis="y", visible=False)
        legend_below(figure)


def draw_lanes(series, path):
    """Area over slices with its line; ``series``: {title: [(slices, slice kGE, shared kGE,
    hub kGE)]}."""
    styles = zip((BLUE, ORANGE, GREEN), ("o", "s", "^"), strict=True)
    with picture(path, 3.9) as figure:
        axes = figure.subplots()
        for (title, points), (colour, marker) in zip(series.items(), styles, strict=False):
            xs = [x for x, *_ in points]
            line = fit_line(xs, [total for *_, total in points])
            axes.plot(xs, [total for *_, total in points], marker, color=colour, label=title)
            axes.plot(
                [0, max(xs)],
                [line.start, line.start + line.slope * max(xs)],
                color=colour,
                lw=1.2,
                label=f"{line.start:.0f} + {line.slope:.1f} × slices, R² = {line.r2:.5f}",
            )
        axes.set(xlim=0, ylim=(0, 1.05 * axes.get_ylim()[1]), xticks=xs)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("slices (one loopback slice beside them)")
        axes.set_ylabel("the hub, memories apart, kGE")
        axes.legend()


def draw_sweeps(sweeps, path):
    """One panel per sweep; ``sweeps``: [(Sweep, {title: [(value, slice kGE, shared kGE,
    hub kGE)]})]."""
    rows = -(-len(sweeps) // 2)
    with picture(path, 2.5 * rows + 0.6) as figure:
        axes = [*figure.subplots(rows, 2, squeeze=False).flat]
        for panel, (sweep, series) in zip(axes, sweeps, strict=False):
            for (title, points), dashes in zip(series.items(), ("-", "--", ":"), strict=False):
                xs = [x * sweep.scale for x, *_ in points]
                for at, (marker, colour, what) in enumerate(
                    (("o", BLUE, "a slice"), ("s", ORANGE, "shared")), 1
                ):
                    values = [point[at] for point in points]
                    label = f"{what}, {title}"
                    panel.plot(xs, values, marker + dashes, color=colour, label=label)
            panel.set_xscale("log", base=2)
            panel.set_xticks(xs, [f"{x:,}" for x in xs])
            panel.minorticks_off()
            panel.set_ylim(0, 1.08 * panel.get_ylim()[1])
            panel.set_xlabel(sweep.axis)
            panel.set_ylabel("memories apart, kGE")
        for panel in axes[len(sweeps) :]:
            panel.set_visible(False)
        legend_below(figure, 3)
