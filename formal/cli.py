"""Command ``moe-hub formal``."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from .engine import TASKS, MissingTool, tools
from .run import run_checks, summary, verdict
from .table import TableError, load_table

__all__ = ["formal"]


def _fail(text):
    print(f"moe-hub: {text}", file=sys.stderr)
    raise typer.Exit(2)


Names = Annotated[list[str] | None, typer.Argument(metavar="[CHECK]...",
                                                   help="Names, or blocks (all their checks); all by default.")]


def formal(checks: Names = None,
           quick: Annotated[bool, typer.Option("--quick", help="Only the short set.")] = False,
           task: Annotated[list[str] | None, typer.Option("--task", help=f"Only these: {', '.join(TASKS)}.")] = None,
           jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Tasks at a time; by default, cores.")] = None,
           force: Annotated[bool, typer.Option("--force", help="Run again what has not changed.")] = False,
           names: Annotated[bool, typer.Option("--list", help="Print the names of the checks and end.")] = False):
    """Prove the hub's promises with SymbiYosys; exit code 1 when one is not proved."""
    try:
        table = load_table()
        tools()
    except (TableError, MissingTool) as error:
        _fail(error)
    chosen = [check for check in table.values() if (not checks or check.name in checks or check.block in checks)
              and (check.quick or not quick)]
    unknown = [name for name in checks or () if name not in table and name not in {check.block for check in table.values()}]
    if unknown:
        _fail(f"{unknown[0]}: no such check; `moe-hub formal --list` prints them")
    if names:
        for check in chosen:
            print(check.name)
        return
    for each in task or ():
        if each not in TASKS:
            _fail(f"--task {each}: must be one of {', '.join(TASKS)}")
    console = Console()
    outcomes = run_checks(chosen, tuple(task or TASKS), jobs, force, console)
    console.print(summary(chosen, outcomes))
    if not all(verdict(table[name], outcome)[1] for (name, _), outcome in outcomes.items()):
        raise typer.Exit(1)
