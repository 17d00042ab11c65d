"""Runs checks in parallel and tells what came out: ``moe-hub formal``."""

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from .engine import TASKS, Outcome, run_task

__all__ = ["run_checks", "summary", "verdict"]

def verdict(check, outcome):
    """One or two words of the outcome of a task, and whether it is the wanted one."""
    status = outcome.status
    if status == "error":
        return "ERROR", False
    if status == "unknown":
        return "UNDETERMINED", False
    if outcome.task == "prove":
        return ("FAILED", False) if status == "fail" else (f"holds to {check.depth}" if check.mode == "bmc" else "proved", True)
    if outcome.task == "cover":
        return (f"{len(outcome.covers)} reached", True) if status == "pass" else ("NOT REACHED", False)
    return ("bug caught", True) if status == "fail" else ("bug NOT CAUGHT", False)


def _task(check, task, force):
    try:
        return run_task(check, task, force)
    except Exception as error:      # a broken specification must not end the others' run
        return Outcome(check.name, task, "error", 0.0, log=f"{type(error).__name__}: {error}")


def run_checks(checks, tasks=TASKS, jobs=None, force=False, console=None):
    """Outcomes {(check name, task): Outcome}; a line on ``console`` for each as it comes."""
    console = console or Console()
    outcomes, work = {}, [(check, task) for check in checks for task in tasks]
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_task, check, task, force): check for check, task in work}
        for done, future in enumerate(as_completed(futures), 1):
            check, outcome = futures[future], future.result()
            outcomes[check.name, outcome.task] = outcome
            word, good = verdict(check, outcome)
            console.print(f"[{done}/{len(work)}] {check.name} {outcome.task}: {word}"
                          + (f" ({', '.join(outcome.failed)})" if outcome.failed else "")
                          + (" (cached)" if outcome.cached else f" {outcome.seconds:.1f} s"), markup=False, highlight=False)
            if not good:
                text = outcome.log if outcome.status == "error" else f"  see {outcome.folder}"
                console.print(text, markup=False, highlight=False)
    return outcomes


def summary(checks, outcomes):
    """The table of results, a row per check."""
    table = Table("check", "properties", "result", "covers", "bug", "engine", "s")
    for check in checks:
        found = {task: outcomes.get((check.name, task)) for task in TASKS}
        words = {task: verdict(check, each)[0] if each else "-" for task, each in found.items()}
        known = next(each for each in found.values() if each)
        table.add_row(check.name, str(len(known.properties)), words["prove"], words["cover"], words["bug"], check.engine,
                      f"{sum(each.seconds for each in found.values() if each):.1f}")
    return table
