# SPDX-License-Identifier: Apache-2.0
"""Picture of a layer's run: per rank, how busy its link is, bytes that reach memory, and tiles
becoming ready."""

from pathlib import Path

import numpy as np

from hub_rtl.contract.packets import EventKind

from .fabric import hub_cycles
from .layer import MARK_START

__all__ = ["draw_timeline"]


def draw_timeline(plan, result, path, bin_cycles, title=""):
    """Writes the picture to ``path`` (the ending says the format). ``bin_cycles``: cycles per bin
    of the harness' log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cfg = plan.cfg
    figure, axes = plt.subplots(
        cfg.ranks, 1, sharex=True, figsize=(11, 1.1 * cfg.ranks + 1.4), squeeze=False
    )
    for rank, axis in enumerate(axes[:, 0]):
        start = result.marks(rank).get(MARK_START, 0)
        bins = result.bins(rank)[start // bin_cycles :].astype(float)
        at = np.arange(len(bins)) * bin_cycles
        busy = 100 * hub_cycles(cfg, bins[:, :2]) / (bin_cycles * cfg.links)
        axis.fill_between(
            at, busy[:, 0], step="post", color="#4878a8", alpha=0.7, label="link out, %"
        )
        axis.plot(
            at, busy[:, 1], drawstyle="steps-post", color="#c05020", lw=0.8, label="link in, %"
        )
        axis.set_ylim(0, 105)
        axis.set_ylabel(f"rank {rank}", fontsize=8)
        axis.tick_params(labelsize=7)
        log = result.log("events", rank)
        share = axis.twinx()
        for plain, colour, text in ((0, "#208040", "tiles ready"), (1, "#803090", "answers ready")):
            cycles = (
                np.sort(
                    log["cycle"][(log["kind"] == EventKind.READY) & (log["plain"] == plain)].astype(
                        np.int64
                    )
                )
                - start
            )
            if len(cycles):
                done = np.arange(1, len(cycles) + 1) / len(cycles)
                share.plot(cycles, done, drawstyle="steps-post", color=colour, lw=1.2, label=text)
        done = log["cycle"][log["kind"] == EventKind.ALL].astype(np.int64) - start
        if len(done):
            axis.axvline(done.max(), color="black", lw=0.7, ls=":")
        share.set_ylim(0, 1.05)
        share.set_yticks([])
        if rank == 0:
            handles = [*axis.get_legend_handles_labels()[0], *share.get_legend_handles_labels()[0]]
            figure.legend(
                handles, [h.get_label() for h in handles], loc="upper right", fontsize=7, ncol=4
            )
    axes[-1, 0].set_xlabel(
        "cycles from the start of the layer; dotted: all rows of the rank are ready", fontsize=8
    )
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
