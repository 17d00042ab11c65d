# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub lanes``: how evenly routing uses the lanes of a link."""

from pathlib import Path

from flow.tables import screen
from hub_rtl.contract.config import PRESETS
from sim.workload.models import model as model_of
from sim.workload.numbering import NUMBERINGS, lane_use
from sim.workload.traces import generate, read_trace

from .console import table_console
from .options import number, option

__all__ = ["lanes"]

LANE_TOKENS, LANE_RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), 8


def lanes(
    trace: option(Path | None, "Routing log (JSON lines) in place of made-up routing.") = None,
    model: option(str, "Without a log: shape of the layer.") = "deepseek-v3",
    ranks: number(2, 128, "GPUs.") = 8,
    count: number(1, 32, "Slices that rows are pinned to.", "--lanes") = PRESETS["nvl8"].lanes,
    seed: number(0, 2**32 - 1 - LANE_RUNS, "Of made-up routing.") = 1,
):
    """Show how much of its links a rank can use, by tokens per rank and by what the RowIDs are.

    The mean over lanes (slices) divided by the fullest lane, of the rows to other ranks; the mean
    over ranks, and over at most eight runs of tokens that the log has room for.
    """
    log = read_trace(trace) if trace else None
    shape = model_of(model)
    table = screen(
        ("tokens per rank", *(f"RowID by {name}, %" for name in NUMBERINGS)),
        title=f"use of {count} lanes: {trace.name if trace else shape.name}, {ranks} ranks",
    )
    for tokens in LANE_TOKENS:
        total = ranks * tokens
        if log is None:
            runs = [
                generate(tokens=total, top_k=shape.top_k, experts=shape.experts, seed=seed + n)
                for n in range(LANE_RUNS)
            ]
        else:
            runs = [
                log.window(n * total, total) for n in range(min(LANE_RUNS, log.tokens // total))
            ]
        if runs:
            means = (
                sum(lane_use(run, ranks, count, name).mean() for run in runs) / len(runs)
                for name in NUMBERINGS
            )
            table.add_row(str(tokens), *(f"{100 * mean:.1f}" for mean in means))
    table_console().print(table)
