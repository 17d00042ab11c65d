# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub lanes``: how evenly routing uses the lanes of a link."""

from pathlib import Path
from typing import Annotated

import typer

from flow.tables import screen
from sim.workload.models import model as model_of
from sim.workload.numbering import NUMBERINGS, lane_use
from sim.workload.traces import generate, read_trace

from .console import table_console
from .options import whole

__all__ = ["lanes"]

LANE_TOKENS, LANE_RUNS = (16, 32, 64, 128, 256, 512, 1024), 8


def lanes(
    trace: Annotated[
        Path | None, typer.Option(help="Routing log (JSON lines) in place of made-up routing.")
    ] = None,
    model: Annotated[str, typer.Option(help="Without a log: shape of the layer.")] = "deepseek-v3",
    ranks: Annotated[int, typer.Option(parser=whole(2, 128), help="GPUs.")] = 8,
    count: Annotated[
        int, typer.Option("--lanes", parser=whole(1, 32), help="Lanes of each GPU's link.")
    ] = 18,
    seed: Annotated[
        int, typer.Option(parser=whole(0, 2**32 - 1 - LANE_RUNS), help="Of made-up routing.")
    ] = 1,
):
    """Show how much of its link a rank can use, by tokens per rank and by what the RowIDs are.

    The mean over lanes divided by the fullest lane, of the rows to other ranks; the mean over
    ranks, and over at most eight runs of tokens that the log has room for.
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
