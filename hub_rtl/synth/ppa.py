"""``make ppa``: area and clock of every block, the hub and its growth, side by side, against targets and peers.

``python -m hub_rtl.synth.ppa --help`` lists the options. Exit code 0: all that was asked for is measured and every target is
met; 1: a target is missed or could not be measured, or a tool failed; 2: a wrong option.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..tools.console import fail, table_console
from .liberty import libraries
from .page import draw, page
from .ppa_run import STEPS, Measurement
from .targets import judge

__all__ = ["ppa"]


def ppa(only: Annotated[list[str] | None, typer.Option("--only", metavar="STEP", help="Run this step only, may be repeated; "
                                                       f"the rest is shown as it was kept. Of {', '.join(STEPS)}.")] = None,
        liberty: Annotated[list[Path] | None, typer.Option("--liberty", exists=True, dir_okay=False,
                                                           help="Standard cells, may be repeated; .lib or .lib.gz; files of "
                                                           "several libraries are told apart.")] = None,
        seeds: Annotated[int, typer.Option("--seeds", min=1, help="Placements of each part; the median counts.")] = 3,
        jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time; by default, cores.")] = None,
        output: Annotated[Path, typer.Option("--output", "-o", help="Folder for files and results.")] = Path("build/synth"),
        results: Annotated[Path, typer.Option("--page", help="The page to write.")] = Path("docs/results/ppa.md")):
    """Measure what has changed, judge every target, write the page."""
    try:
        measurement = Measurement(output, libraries(liberty or (), output / "liberty"), range(1, seeds + 1))
    except (ValueError, OSError) as error:
        fail(error, command="make ppa")
    for name in only or ():
        if name not in STEPS:
            fail(f"--only {name}: must be one of {', '.join(STEPS)}", command="make ppa")
        if name not in measurement.steps():
            fail(f"--only {name}: needs --liberty FILE, a library of standard cells", command="make ppa")
    raise typer.Exit(report(measurement, only or measurement.steps(), jobs, output, results))


def report(measurement, steps, jobs, output, results):
    """Runs the steps, prints, writes ``ppa.json`` into ``output`` and the page with its pictures; returns the exit code."""
    console = table_console()
    for step in steps:
        console.print(f"{step}: {STEPS[step]}", highlight=False)
        measurement.run(step, jobs, lambda text: console.print(f"  {text}", highlight=False))
    errors = [each for lines in measurement.errors.values() for each in lines]
    goals = list(judge(measurement))
    table = Table("target", "found", "", title="Area and clock")
    for goal in goals:
        table.add_row(goal.text, goal.value, goal.word, style={True: None, False: "bold", None: "dim"}[goal.met])
    console.print(table)
    for error in errors:
        console.print(f"failed: {error}", highlight=False, markup=False)
    output.mkdir(parents=True, exist_ok=True)
    found = {"blocks": measurement.blocks(), "targets": [asdict(goal) for goal in goals], "errors": errors}
    (output / "ppa.json").write_text(json.dumps(found | measurement.hub_figures(), indent=1) + "\n")
    pictures = draw(measurement, results.parent.parent / "images")
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(page(measurement, goals, errors, pictures))
    print(f"results: {output / 'ppa.json'}, {results}")
    return 0 if not errors and all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    typer.run(ppa)
