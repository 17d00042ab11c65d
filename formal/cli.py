"""Command ``moe-hub formal``."""

from pathlib import Path
from typing import Annotated

import typer

from hub_rtl.tools.console import fail, table_console

from .engine import TASKS, MissingTool, tools
from .report import write_report
from .run import passed, run_checks, summary_table, targets
from .table import TableError, load_table

__all__ = ["formal"]

Names = Annotated[list[str] | None, typer.Argument(metavar="[CHECK]...",
                                                   help="Names, or blocks (all their checks); all by default.")]


def _chosen(table, names, quick):
    blocks = {check.block for check in table.values()}
    for name in names:
        if name not in table and name not in blocks:
            fail(f"{name}: no such check; `moe-hub formal --list` prints them")
    return [check for check in table.values() if (not names or check.name in names or check.block in names)
            and (check.quick or not quick)]


def formal(checks: Names = None,
           quick: Annotated[bool, typer.Option("--quick", help="Only the short set.")] = False,
           task: Annotated[list[str] | None, typer.Option("--task", help=f"Only these: {', '.join(TASKS)}.")] = None,
           jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Tasks at a time; by default, cores.")] = None,
           force: Annotated[bool, typer.Option("--force", help="Run again what has not changed.")] = False,
           report: Annotated[Path | None, typer.Option("--report", help="Markdown file for the results.")] = None,
           names: Annotated[bool, typer.Option("--list", help="Print the names of the checks and end.")] = False):
    """Prove the hub's promises with SymbiYosys; exit code 1 if one is not proved."""
    for each in task or ():
        if each not in TASKS:
            fail(f"--task {each}: must be one of {', '.join(TASKS)}")
    try:
        table = load_table()
        tools()
    except (TableError, MissingTool) as error:
        fail(error)
    chosen, console = _chosen(table, checks or [], quick), table_console()
    if names:
        print("\n".join(check.name for check in chosen))
        return
    outcomes = run_checks(chosen, tuple(task or TASKS), jobs, force, console)
    console.print(summary_table(chosen, outcomes))
    good, whole = passed(chosen, outcomes), len(chosen) == len(table) and not task
    goals = list(targets(chosen, outcomes)) if whole else []
    for text, met in goals:
        console.print(f"{'met   ' if met else 'MISSED'} {text}", highlight=False, soft_wrap=True)
    if report:
        write_report(report, chosen, outcomes, goals)
    if not good or not all(met for _, met in goals):
        raise typer.Exit(1)
