# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub bench``: speed figures."""

import json
from pathlib import Path

import typer

from flow.pages.fill import fill
from moe_hub.files import output_folder, write_text
from sim.system.bench_lanes import line_rate
from sim.system.bench_speed import TABLES, measure, speed_table
from sim.system.bench_wide import wide_rates
from sim.system.fabric import HOP_NS

from .console import Progress, table_console
from .options import LatencyOption, flag, option, whole

__all__ = ["bench"]

PAGE_LANES = (1, 2, 4, 9, 18)


def bench(
    output: option(Path, "Folder for bench.json.", "--output", "-o") = Path("build/bench"),
    quick: flag("--quick", "Without the lines that take longer than seconds.") = False,
    latency: LatencyOption = HOP_NS,
    wide: flag("--wide", "Only this: rates of the blocks of a wide slice.") = False,
    lanes: option(
        list[int] | None,
        "Only this: do rows that are all new keep a link of so "
        "many lanes full? May be repeated; 18 lanes take three minutes.",
        parser=whole(1, 32),
    ) = None,
    page: option(
        Path | None,
        f"Everything, also --wide and --lanes {', '.join(map(str, PAGE_LANES))}, and a page to "
        "write the table of; some twenty minutes.",
    ) = None,
):
    """Measure speed: link use, latencies, merging, simulation rate. Exit code 1 when a target is
    missed."""
    text = page.read_text(encoding="utf-8") if page else ""
    output_folder(output)
    lines = []
    with Progress() as progress:
        if page or not (wide or lanes):
            lines += measure(quick=quick, hop_ns=latency, report=progress.stage)
        if page or wide:
            progress.stage("blocks of a wide slice")
            lines += wide_rates()
        for count in PAGE_LANES if page else lanes or ():
            progress.stage(f"line rate of {count} lanes")
            lines += line_rate(count)
    table_console().print(speed_table(lines))
    write_text(
        output / "bench.json", json.dumps([line.as_dict() for line in lines], indent=1) + "\n"
    )
    if page:
        write_text(page, fill(text, output, TABLES))
    if not all(line.met for line in lines):
        raise typer.Exit(1)
