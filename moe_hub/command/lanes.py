# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub lanes``: how evenly routing uses the lanes of a link."""

from itertools import groupby
from pathlib import Path

from flow.pages.fill import fill
from flow.pages.rows import csv_text
from flow.tables import screen
from hub_rtl.contract.config import PRESETS
from moe_hub.files import output_folder, write_text
from sim.workload.lane_table import RUNS, TABLES, lane_rows
from sim.workload.numbering import NUMBERINGS

from .console import table_console
from .options import number, option, whole

__all__ = ["lanes"]


def lanes(
    trace: option(
        list[Path] | None, "Routing log (JSON lines) beside made-up routing; may be repeated."
    ) = None,
    model: option(str, "Shape of the layer of the made-up routing.") = "deepseek-v3",
    ranks: number(2, 128, "GPUs.") = 8,
    count: option(
        list[int] | None,
        f"Slices that rows are pinned to; may be repeated. [default: {PRESETS['nvl8'].lanes}]",
        "--lanes",
        parser=whole(1, 32),
    ) = None,
    seed: number(0, 2**32 - 1 - RUNS, "Of made-up routing.") = 1,
    output: option(Path, "Folder of lanes.csv.", "--output", "-o") = Path("build/lanes"),
    page: option(Path | None, "A page to write the tables and numbers of, beside its text.") = None,
):
    """Show how much of its links a rank can use, by tokens per rank and by what the RowIDs are.

    The mean over lanes (slices) divided by the fullest lane, of the rows to other ranks; the mean
    over ranks, and over at most eight runs of tokens that the log has room for.
    """
    text = page.read_text(encoding="utf-8") if page else ""
    output_folder(output)
    rows = lane_rows(model, trace or (), ranks, count or [PRESETS["nvl8"].lanes], seed)
    write_text(output / "lanes.csv", csv_text(rows))
    if page:
        write_text(page, fill(text, output, TABLES))
    console, head = table_console(), ("tokens per rank", *NUMBERINGS)
    for (slices, routing), lines in groupby(rows, lambda row: (row["slices"], row["routing"])):
        table = screen(
            ("tokens per rank", *(f"RowID by {name}, %" for name in NUMBERINGS)),
            ([str(line[name]) for name in head] for line in lines),
            title=f"use of {slices} lanes: {routing}, {ranks} ranks",
        )
        console.print(table)
