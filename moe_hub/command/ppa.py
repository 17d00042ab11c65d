# SPDX-License-Identifier: Apache-2.0
"""``moe-hub ppa``: area and clock of every block, the hub and its growth, side by side, against
targets and peers.

Exit code 0: all that was asked for is measured and every target is
met; 1: a target is missed or could not be measured, or a tool failed; 2: a wrong option.
"""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from flow.synth.liberty import libraries
from flow.synth.page import draw, page
from flow.synth.ppa import STEPS, Measurement
from flow.synth.targets import judge
from flow.tables import screen
from moe_hub.files import output_folder, write_text

from .console import Progress, fail, table_console
from .options import number, one_of, option

__all__ = ["ppa"]


def ppa(
    only: option(
        list[str] | None,
        "Run this step only, may be repeated; "
        f"the rest is shown as it was kept. Of {', '.join(STEPS)}.",
        metavar="STEP",
        parser=one_of(STEPS),
    ) = None,
    liberty: option(
        list[Path] | None,
        "Standard cells, may be repeated; .lib or .lib.gz; files of "
        "several libraries are told apart.",
        exists=True,
        dir_okay=False,
    ) = None,
    seeds: number(1, 1000, "Placements of each part; the median counts.") = 3,
    jobs: number(1, 1024, "Runs at a time; by default, cores.", "--jobs", "-j") = None,
    output: option(Path, "Folder for files and results.", "--output", "-o") = Path("build/synth"),
    results: option(Path, "The page to write.", "--page") = Path("docs/results/ppa.md"),
):
    """Area and clock of blocks, lane and hub: measure what has changed, judge every target, write
    the page."""
    output_folder(output)
    output_folder(results.parent)
    measurement = Measurement(
        output, libraries(liberty or (), output / "liberty"), range(1, seeds + 1)
    )
    for name in only or ():
        if name not in measurement.steps():
            fail(f"only = {name!r}: needs --liberty FILE, a library of standard cells")
    raise typer.Exit(report(measurement, only or measurement.steps(), jobs, output, results))


def report(measurement, steps, jobs, output, results):
    """Runs the steps, prints, writes ``ppa.json`` into ``output`` and the page with its pictures;
    returns the exit code."""
    console = table_console()
    with Progress() as progress:
        for step in steps:
            progress.stage(f"{step}: {STEPS[step]}")
            measurement.run(step, jobs, lambda text: progress.stage(f"  {text}"))
    errors = [each for lines in measurement.errors.values() for each in lines]
    goals = list(judge(measurement))
    table = screen(("target", "found", ""), title="Area and clock")
    for goal in goals:
        table.add_row(
            goal.text,
            goal.value,
            goal.word,
            style={True: None, False: "bold", None: "dim"}[goal.met],
        )
    console.print(table)
    for error in errors:
        console.print(f"failed: {error}", highlight=False, markup=False)
    found = {
        "blocks": measurement.blocks(),
        "targets": [asdict(goal) for goal in goals],
        "errors": errors,
    }
    write_text(output / "ppa.json", json.dumps(found | measurement.hub_figures(), indent=1) + "\n")
    pictures = draw(measurement, results.parent.parent / "images")
    write_text(results, page(measurement, goals, errors, pictures))
    print(f"results: {output / 'ppa.json'}, {results}")
    return 0 if not errors and all(goal.met for goal in goals) else 1
