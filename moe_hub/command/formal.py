# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub formal``."""

from pathlib import Path
from typing import Annotated

import typer

from formal.kit.engine import TASKS, MissingTool, tools
from formal.kit.report import write_report
from formal.kit.run import passed, run_checks, summary_table, targets
from formal.kit.table import load_table

from .console import Progress, fail, table_console
from .options import flag, number, one_of, option

__all__ = ["formal"]

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CHECK]...", help="Names, or blocks (all their checks); all by default."
    ),
]


def _chosen(table, names, quick):
    blocks = {check.block for check in table.values()}
    for name in names:
        if name not in table and name not in blocks:
            fail(f"{name}: no such check; `moe-hub formal --list` prints them")
    return [
        check
        for check in table.values()
        if (not names or check.name in names or check.block in names) and (check.quick or not quick)
    ]


def formal(
    checks: Names = None,
    quick: flag("--quick", "Only the short set.") = False,
    nightly: flag("--nightly", "Slow covers too.") = False,
    task: option(list[str] | None, f"Only these: {', '.join(TASKS)}.", parser=one_of(TASKS)) = None,
    jobs: number(1, 1024, "Tasks at a time; by default, cores.", "--jobs", "-j") = None,
    force: flag("--force", "Run again what has not changed.") = False,
    patience: number(
        1, 1000, "Time limits are so many times those of the table (a machine that is busy)."
    ) = 1,
    report: option(Path | None, "Markdown file for the results.") = None,
    names: flag("--list", "Print the names of the checks and end.") = False,
):
    """Prove the hub's promises with SymbiYosys; exit code 1 if one is not proved."""
    table = load_table()
    try:
        tools()
    except MissingTool as error:
        fail(error)
    chosen, console = _chosen(table, checks or [], quick), table_console()
    if names:
        print("\n".join(check.name for check in chosen))
        return
    with Progress() as progress:
        progress.stage(f"proofs: {len(chosen)} checks")
        outcomes = run_checks(
            chosen, tuple(task or TASKS), jobs, force, progress, nightly, patience
        )
    console.print(summary_table(chosen, outcomes))
    good, whole = passed(chosen, outcomes), len(chosen) == len(table) and not task
    goals = list(targets(chosen, outcomes)) if whole else []
    for text, met in goals:
        console.print(f"{'met   ' if met else 'MISSED'} {text}", highlight=False, soft_wrap=True)
    if report:
        write_report(report, chosen, outcomes, goals)
    if not good or not all(met for _, met in goals):
        raise typer.Exit(1)
