# SPDX-License-Identifier: Apache-2.0
"""The one style of all pictures. They are read at the width of a README, about 830 pixels: there a
point of type is 1.4 pixels, so no text is smaller than 8 points."""

from contextlib import contextmanager
from pathlib import Path

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "RED", "WIDTH", "legend_below", "picture"]

#: Of Okabe and Ito, which the colour-blind tell apart; markers and dashes differ too.
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY = "#9aa1a9"
WIDTH = 8.3  # inches, 100 pixels of a README each
SHARP = 150  # pixels of the file for an inch, for sharp screens too

STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9.5,
    "figure.titlesize": 11.5,
    "figure.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dfe3e8",
    "axes.edgecolor": "#59636e",
    "xtick.color": "#59636e",
    "ytick.color": "#59636e",
    "xtick.labelcolor": "#1c2128",
    "ytick.labelcolor": "#1c2128",
    "text.color": "#1c2128",
    "axes.labelcolor": "#1c2128",
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "legend.frameon": False,
}


@contextmanager
def picture(path, height):
    """A matplotlib figure of :data:`WIDTH` and so many inches, to be drawn in; then written to
    ``path`` as a PNG. Same drawing, same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), dpi=SHARP, layout="constrained")
        yield figure
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})


def legend_below(figure, columns=6, first=()):
    """One legend of all axes, each name once, below them, in at most so many columns; names of
    ``first`` that are there come first."""
    labelled = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {label: handle for group in labelled for handle, label in zip(*group, strict=True)}
    order = [label for label in first if label in handles]
    handles = {label: handles[label] for label in [*order, *handles]}
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=min(len(handles), columns),
        columnspacing=1.4,
        handlelength=1.6,
    )
