# SPDX-License-Identifier: Apache-2.0
"""Pictures of area and clock. Colours are those of Okabe and Ito, which the colour-blind tell
apart; markers differ too."""

from pathlib import Path

from .census import REST, UNITS
from .peers import peer_of
from .sweeps import fit_line
from .targets import FPGA_MHZ

__all__ = ["draw_areas", "draw_clocks", "draw_lanes", "draw_sweeps"]

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"


def _figure(width, height, columns=1, rows=1):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, list(axes.flat)


def _save(figure, path):
    from matplotlib import pyplot as plt

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def draw_areas(figures, counts, path):
    """Gates of one of each unit, and memory bits; ``figures``: {unit: generic figures}."""
    names = sorted(figures, key=lambda name: figures[name]["kge"])
    figure, (gates, bits) = _figure(10, 0.28 * len(names) + 1.2, 2)
    colour = {"lane": BLUE, "slice": BLUE, "loop": GREEN, "hub": ORANGE}
    colours = [colour[UNITS[name].per] if name in UNITS else ORANGE for name in names]
    labels = [f"{name} × {counts[name]}" if name != REST else "what joins them" for name in names]
    gates.barh(labels, [figures[name]["kge"] for name in names], color=colours)
    gates.set_xlabel("kGE of one, memories apart", fontsize=8)
    bits.barh(labels, [figures[name]["memory_bits"] / 1024 for name in names], color=colours)
    bits.set_yticklabels([])
    bits.set_xlabel("Kibit of memory of one", fontsize=8)
    for colour, text in (
        (BLUE, "every lane"),
        (GREEN, "every loopback lane"),
        (ORANGE, "once per hub"),
    ):
        gates.barh([labels[0]], [0], color=colour, label=text)
    gates.legend(fontsize=8, loc="lower right", frameon=False)
    _save(figure, path)


def draw_clocks(found, path):
    """ECP5 clock of blocks and hub beside target and peer; ``found``: {part: {"ecp5": figures}}."""
    names = [name for name, flows in found.items() if "ecp5" in flows]
    figure, (axis,) = _figure(9, 3.6)
    axis.bar(
        names,
        [found[name]["ecp5"]["mhz"] for name in names],
        color=BLUE,
        label="median of the seeds",
    )
    for at, name in enumerate(names):
        runs, peer = found[name]["ecp5"]["runs"], peer_of(name)
        axis.plot([at] * len(runs), runs, "k_", ms=6, label="each seed" if at == 0 else None)
        if peer:
            axis.plot([at], [peer.mhz], "D", color=ORANGE, ms=5)
    axis.axhline(FPGA_MHZ, color=RED, lw=2, label="target of the hub")
    axis.plot([], [], "D", color=ORANGE, ms=5, label="nearest peer")
    axis.set_ylabel("MHz, ECP5-85F speed 8", fontsize=8)
    axis.set_xticks(range(len(names)), names, rotation=35, ha="right")
    axis.legend(fontsize=8, ncol=4, frameon=False)
    _save(figure, path)


def draw_lanes(series, path):
    """Area over slices with its line; ``series``: {title: [(slices, slice kGE, shared kGE,
    hub kGE)]}."""
    figure, (axis,) = _figure(7, 4)
    styles = zip((BLUE, ORANGE, GREEN), ("o", "s", "^"), strict=True)
    for (title, points), (colour, marker) in zip(series.items(), styles, strict=False):
        xs = [x for x, *_ in points]
        line = fit_line(xs, [total for *_, total in points])
        axis.plot(xs, [total for *_, total in points], marker, color=colour, ms=6, label=title)
        axis.plot(
            [0, max(xs)],
            [line.start, line.start + line.slope * max(xs)],
            color=colour,
            lw=1,
            label=f"{line.start:.0f} + {line.slope:.1f} × slices, R² = {line.r2:.5f}",
        )
    axis.set_xlim(0)
    axis.set_ylim(0)
    axis.set_xticks(xs)
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlabel("slices (one loopback slice beside them)", fontsize=8)
    axis.set_ylabel("kGE of the hub, memories apart", fontsize=8)
    axis.legend(fontsize=8, frameon=False)
    _save(figure, path)


def draw_sweeps(sweeps, path):
    """One panel per sweep; ``sweeps``: [(Sweep, {title: [(value, slice kGE, shared kGE,
    hub kGE)]})]."""
    figure, axes = _figure(9, 3 * -(-len(sweeps) // 2), 2, -(-len(sweeps) // 2))
    for axis, (sweep, series) in zip(axes, sweeps, strict=False):
        for (title, points), dashes in zip(series.items(), ("-", "--", ":"), strict=False):
            xs = [x * sweep.scale for x, *_ in points]
            for at, (marker, colour, what) in enumerate(
                (("o", BLUE, "a slice"), ("s", ORANGE, "shared")), 1
            ):
                values = [point[at] for point in points]
                label = f"{what}, {title}"
                axis.plot(xs, values, marker + dashes, color=colour, ms=4, lw=1.2, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xticks(xs, [f"{x:,}" for x in xs])
        axis.minorticks_off()
        axis.set_ylim(0)
        axis.set_xlabel(sweep.axis, fontsize=8)
        axis.set_ylabel("kGE, memories apart", fontsize=8)
        axis.legend(fontsize=7, frameon=False)
    for axis in axes[len(sweeps) :]:
        axis.set_visible(False)
    _save(figure, path)
