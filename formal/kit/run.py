# SPDX-License-Identifier: Apache-2.0
"""Runs checks in parallel and tells what came out of them."""

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from flow.tables import screen
from flow.workers import end_with_parent

from .engine import BUILD, TASKS, Outcome, run_task
from .ports import ports_without_assertion

__all__ = ["passed", "results", "run_checks", "summary_table", "targets", "verdict"]


COLUMNS = ("check", "properties", "lemmas", "result", "covers", "planted bug", "engine", "seconds")


def verdict(check, outcome):
    """The outcome of a task in one or two words, and whether it is the wanted one."""
    status, task = outcome.status, outcome.task
    if status in ("error", "unknown"):
        return {"error": "ERROR", "unknown": "UNDETERMINED"}[status], False
    good = "proved" if check.mode == "prove" else f"holds to {check.depth}"
    words = {
        "prove": {"pass": good, "fail": "FAILED"},
        "cover": {"pass": f"{len(outcome.covers)} reached", "fail": "NOT REACHED"},
        "bug": {"pass": "bug NOT CAUGHT", "fail": "bug caught"},
    }[task]
    return words[status], (status == "fail") == (task == "bug")


def _task(check, task, force, patience):
    try:
        return run_task(check, task, force, patience)
    except Exception as error:  # a broken specification must not end the run of the others
        return Outcome(check.name, task, "error", 0.0, log=f"{type(error).__name__}: {error}")


def run_checks(
    checks, tasks=TASKS, jobs=None, force=False, progress=None, nightly=False, patience=1
):
    """Outcomes ``{(check name, task): Outcome}``. Covers that are ``nightly`` only with
    ``nightly``. Time limits are ``patience`` times those of the table. What is undetermined is
    tried once more when all else is done: ABC gives each promise its time by the clock, so that no
    two runs are the same.

    ``progress``: is told of each task as it ends: ``show(text)`` when it came out as wanted,
    ``note(text)``, to be kept in sight, when not.
    """
    outcomes = {}
    # Proofs first: they take longest, and the run must not end with one core idle.
    work = [
        (check, task)
        for task in tasks
        for check in checks
        if task != "cover" or nightly or check.covers == "always"
    ]
    again = []
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs or os.cpu_count(), context, end_with_parent) as pool:
        for turn, todo in (("", work), ("again ", again)):
            futures = {pool.submit(_task, *each, force, patience): each for each in todo}
            for done, future in enumerate(as_completed(futures), 1):
                (check, task), outcome = futures[future], future.result()
                outcomes[check.name, task] = outcome
                if outcome.status == "unknown" and not turn:
                    again.append((check, task))
                if progress is not None:
                    _tell(progress, f"{turn}[{done}/{len(todo)}]", check, outcome)
    return outcomes


def _tell(progress, place, check, outcome):
    word, good = verdict(check, outcome)
    line = (
        f"{place} {check.name} {outcome.task}: {word}"
        + (f" ({', '.join(outcome.failed)})" if outcome.failed else "")
        + (" (cached)" if outcome.cached else f" {outcome.seconds:.1f} s")
    )
    if good:
        progress.show(line)
    else:
        more = outcome.log if outcome.status == "error" else f"  see {outcome.folder}"
        progress.note(f"{line}\n{more}")


def passed(checks, outcomes):
    """Whether every task of ``checks`` that was run came out as wanted."""
    table = {check.name: check for check in checks}
    return all(verdict(table[name], outcome)[1] for (name, _), outcome in outcomes.items())


def _promises(names):
    """Without the lemmas, which only help a proof."""
    return [name for name in names if not name.startswith("lemma: ")]


def results(checks, outcomes):
    """Rows of text for each check: name, properties, lemmas, result, covers, bug, engine,
    seconds."""
    for check in checks:
        found = {task: outcomes.get((check.name, task)) for task in TASKS}
        words = {task: verdict(check, each)[0] if each else "-" for task, each in found.items()}
        if not found["cover"] and check.covers == "nightly":
            words["cover"] = "nightly"
        known = [each for each in found.values() if each]
        names = max((each.properties for each in known), key=len)
        promises = len(_promises(names))
        yield (
            check.name,
            str(promises),
            str(len(names) - promises),
            words["prove"],
            words["cover"],
            words["bug"],
            check.engine,
            f"{sum(each.seconds for each in known):.0f}",
        )


def summary_table(checks, outcomes):
    """:func:`results` for the screen."""
    return screen((*COLUMNS[:-1], "s"), results(checks, outcomes))


def targets(checks, outcomes):
    """``(text, met)`` of each target of the whole table."""
    proofs = [(check, outcomes[check.name, "prove"]) for check in checks]
    written = sum(len(_promises(outcome.properties)) for _, outcome in proofs)
    unbounded = sum(
        len(_promises(outcome.properties))
        for check, outcome in proofs
        if verdict(check, outcome)[0] == "proved"
    )
    unclear = sum(outcome.status in ("unknown", "error") for outcome in outcomes.values())
    covers = sum(
        len(outcome.covers)
        for outcome in outcomes.values()
        if outcome.task == "cover" and outcome.status == "pass"
    )
    caught = sum(outcome.status == "fail" for outcome in outcomes.values() if outcome.task == "bug")
    share = unbounded / written if written else 0
    yield f"properties: {written} (at least 60) in {len(checks)} checks", written >= 60
    yield f"proved without bound: {unbounded} = {share:.1%} (at least 90 %)", share >= 0.9
    yield f"undetermined tasks: {unclear} (0)", unclear == 0
    yield (
        f"covers reached: {covers}; planted bugs caught: {caught} of {len(checks)}",
        caught == len(checks),
    )
    bare = ports_without_assertion(
        {port for _, outcome in proofs for port in outcome.ports}, str(BUILD / "yosys")
    )
    yield (
        f"block ports under no assertion: {len(bare)} (0){': ' if bare else ''}{', '.join(bare)}",
        not bare,
    )
