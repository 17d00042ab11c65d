# SPDX-License-Identifier: Apache-2.0
"""Pictures of a layer's run: what the links did, tiles becoming usable, answers coming back."""

import numpy as np
from matplotlib.patheffects import withStroke

from flow.pictures import legend_below, picture

from .formats import LinkUse
from .history import USES, best_software

__all__ = ["draw_before_after", "draw_timeline"]

INK = "#1c2128"
ORDER = [use.words for use in USES.values()]  # of the legend
NAMED = 0.4  # of the links' cycles without a flit: such a gap is called by its cause
LEAST_NAMED = 0.1  # of the picture's width


def _stack(axes, told, use):
    """Cycles of links by use, [bin, use], one above the other."""
    at = told.us(np.minimum(np.arange(len(use) + 1) * told.bin, told.layer))
    share = 100 * use / np.maximum(use.sum(axis=1, keepdims=True), 1)
    low = np.zeros(len(use))
    for kind, how in USES.items():
        high = low + share[:, kind]
        if use[:, kind].any():
            axes.fill_between(
                at,
                np.append(low, low[-1]),
                np.append(high, high[-1]),
                step="post",
                color=how.light,
                linewidth=0,
                label=how.words,
            )
        low = high
    axes.set(ylim=(0, 100), yticks=(0, 50, 100))
    axes.grid(visible=False)
    return share


def _share(axes, told, cycles, dashes, text):
    """A line of steps: which share of these times is over."""
    if not cycles:
        return
    done = 100 * np.arange(len(cycles) + 1) / len(cycles)
    at = told.us(np.array([cycles[0], *cycles]))
    for width, colour, style, label in ((3.2, "#ffffffa0", "-", None), (1.5, INK, dashes, text)):
        axes.plot(at, done, drawstyle="steps-post", lw=width, color=colour, ls=style, label=label)


def _lines(axes, told, usable, answers):
    _share(axes, told, usable, "-", "tiles usable, % of all")
    _share(axes, told, answers, (0, (3, 2)), "answers back, % of all")


def _name_gaps(axes, told, share, longest):
    """Wide gaps are called by their cause."""
    idle = share[:, LinkUse.SENT] < 100 * (1 - NAMED)
    cause = np.where(idle, share[:, 1:].argmax(axis=1) + 1, LinkUse.SENT)
    edges = np.flatnonzero(np.diff(cause, prepend=-1, append=-1))
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        if cause[begin] == LinkUse.SENT or (end - begin) * told.bin < LEAST_NAMED * longest:
            continue
        middle = told.us((begin + end) / 2 * told.bin)
        words = USES[LinkUse(int(cause[begin]))].words.replace(" ", "\n", 1)
        text = axes.text(middle, 74, words, ha="center", va="center", weight="bold", zorder=5)
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def draw_timeline(told, path, title):
    """Every rank's links in a run; ``told``: its :class:`~sim.system.history.History`."""
    with picture(path, 1.5 + 0.62 * told.ranks) as figure:
        panels = figure.subplots(told.ranks, 1, sharex=True, squeeze=False)[:, 0]
        for rank, axes in enumerate(panels):
            _stack(axes, told, told.use[rank].sum(axis=1))
            _lines(axes, told, told.usable[rank], told.answers[rank])
            axes.set_ylabel(f"rank {rank}", rotation=0, ha="right", va="center")
            axes.set_yticks((0, 100))
        panels[-1].set_xlabel("time since the start of the layer, µs")
        panels[-1].set_xlim(0, told.us(told.layer))
        figure.supylabel("cycles of the link, %", fontsize=9.5)
        figure.suptitle(title, x=0.01, ha="left")
        legend_below(figure, 4, ORDER)


def draw_before_after(histories, path, title):
    """All links together, the hub's way above, below it the ways of software, the best first, on
    one axis of time. ``histories``: by name of the way."""
    best = best_software(histories)
    order = sorted(histories.values(), key=lambda told: (told.way != "hub", told.layer))
    longest = max(told.layer for told in order)
    with picture(path, 1.1 + 1.45 * len(order)) as figure:
        panels = figure.subplots(len(order), 1, sharex=True, squeeze=False)[:, 0]
        for axes, told in zip(panels, order, strict=True):
            share = _stack(axes, told, told.use.sum(axis=(0, 2)))
            _name_gaps(axes, told, share, longest)
            _lines(axes, told, sorted(sum(told.usable, [])), sorted(sum(told.answers, [])))
            axes.axvline(told.us(told.layer), color=INK, lw=1.5)
            name = {"hub": "With the hub", best: f"Best software, {told.title}"}
            first = min(cycles[0] for cycles in told.usable if cycles)
            axes.set_title(
                f"{name.get(told.way, f'Software, {told.title}')}: {told.us(told.layer):,.1f} µs, "
                f"first tile usable after {told.us(first):,.1f} µs"
            )
            axes.set_ylabel("link cycles, %")
        panels[-1].set_xlabel("time since the start of the layer, µs")
        panels[-1].set_xlim(0, order[0].us(longest) * 1.005)
        figure.suptitle(title, x=0.01, ha="left")
        legend_below(figure, 4, ORDER)
