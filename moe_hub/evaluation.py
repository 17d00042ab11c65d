# SPDX-License-Identifier: Apache-2.0
"""The model of the whole machine: its experiments, and a single layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flow.pages.rows import csv_text
from sim.evaluate.experiments import EXPERIMENTS, STANDARD
from sim.evaluate.kept import Kept
from sim.evaluate.machine.workload import TYPICAL_SKEW
from sim.evaluate.own_machine import machine_asked
from sim.evaluate.page.charts import draw
from sim.evaluate.runner import Point, Result, run_points
from sim.evaluate.schemes import scheme
from sim.evaluate.study import HUB, JUDGED, Experiment, Options, Report, systems_of
from sim.evaluate.systems import override
from sim.workload.models import model as shape_of

from .files import write_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Evaluation", "Prediction", "evaluate", "predict"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What ``evaluate`` found. ``reports``: by name of the experiment."""

    reports: Mapping[str, Report]

    def frame(self, experiment: str) -> pd.DataFrame:
        """All rows of an experiment, as its CSV file has them; columns whose names end in ``us``
        are microseconds."""
        return _table(self.reports[experiment].rows)

    def summary(self, experiment: str) -> pd.DataFrame:
        """The short table of an experiment."""
        return _table(self.reports[experiment].summary)

    def notes(self, experiment: str) -> list[str]:
        """What is to be said beside the table, a line each."""
        return list(self.reports[experiment].notes)

    def write(self, folder: str | Path) -> list[Path]:
        """Writes ``NAME.csv``, ``NAME-summary.csv`` and, where there is a plot, ``NAME.png`` of
        each experiment; returns their paths. Raises OSError."""
        paths = []
        for name, report in self.reports.items():
            for file, rows in ((name, report.rows), (f"{name}-summary", report.summary)):
                paths.append(Path(folder, f"{file}.csv"))
                write_text(paths[-1], csv_text(rows))
            if report.plot:
                paths.append(Path(folder, f"{name}.png"))
                draw(report.plot, paths[-1])
        return paths


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One layer on the model, by system. ``results``: in the order of the systems."""

    results: Sequence[Result]

    def frame(self) -> pd.DataFrame:
        """A row for each system.

        Index ``system``; ``layer_us``; ``speedup_of_hub``: its time over the hub's, if that was
        asked for; ``first_ready_us``, ``all_ready_us``: an expert's input, first and last;
        ``wire_bytes``, ``payload_bytes``: over all links; ``sm_busy``: share of the GPUs' SMs;
        ``imbalance``: rows of the fullest rank over the mean.
        """
        hub = next((result.us for result in self.results if result.point.system == HUB), None)
        return _table(
            {
                "system": result.point.system,
                "layer_us": result.us,
                "speedup_of_hub": result.us / hub if hub else None,
                **{
                    name: getattr(result, name)
                    for name in (
                        "first_ready_us",
                        "all_ready_us",
                        "wire_bytes",
                        "payload_bytes",
                        "sm_busy",
                        "imbalance",
                    )
                },
            }
            for result in self.results
        ).set_index("system")

    def phases(self) -> pd.DataFrame:
        """Where the time goes: a row for each system, a column for each phase, microseconds."""
        return _table(
            {"system": result.point.system} | dict(result.breakdown) for result in self.results
        ).set_index("system")

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return self.frame().round(3).to_html()


def _table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas

    return pandas.DataFrame(list(rows))


def order(
    experiments: Sequence[str] = (),
    *,
    models: Sequence[str] = (),
    total_tokens: Sequence[int] = (),
    systems: Sequence[str] = (),
    machine: str = "",
    ranks: int | None = None,
    skew: float | None = None,
    jitter: float | None = None,
    gpu: Mapping[str, float] | None = None,
    fabric: Mapping[str, float] | None = None,
    constants: Mapping[str, float] | None = None,
    traces: Sequence[str | Path] = (),
    seed: int = 1,
) -> tuple[list[Experiment], Options]:
    """What ``evaluate`` is asked for by the same parameters, checked. Raises ValueError."""
    names = list(experiments or STANDARD) + (["traces"] if traces and not experiments else [])
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"experiment = {name!r}: must be one of {', '.join(EXPERIMENTS)}")
    if "traces" in names and not traces:
        raise ValueError("traces: needs at least one --trace FILE")
    _known(models, systems, machine, total_tokens)
    machine_asked(machine or JUDGED, ranks or 8).changed(gpu=gpu, fabric=fabric)
    if skew is not None and skew < 0:
        raise ValueError(f"skew = {skew}: must be at least 0")
    if jitter is not None and not 0 <= jitter < inf:
        raise ValueError(f"jitter = {jitter}: must be at least 0 microseconds")
    return [EXPERIMENTS[name] for name in dict.fromkeys(names)], Options(
        models=tuple(models),
        tokens=tuple(total_tokens),
        systems=tuple(systems),
        machine=machine,
        ranks=ranks,
        skew=skew,
        jitter=jitter,
        gpu=tuple((gpu or {}).items()),
        fabric=tuple((fabric or {}).items()),
        constants=_constants(constants),
        traces=tuple(map(str, traces)),
        seed=seed,
    )


def _constants(values: Mapping[str, float] | None) -> tuple:
    """(section, name, value) of each ``section.name``. Raises ValueError for one there is not."""
    found = []
    for path, value in (values or {}).items():
        section, _, name = path.partition(".")
        with override(section, **{name: value}):
            found.append((section, name, value))
    return tuple(found)


def _known(models, systems, machine, tokens):
    """Raises ValueError for what there is not."""
    for model in models:
        shape_of(model)
    for system in systems:
        scheme(system)
    if machine:
        machine_asked(machine)
    for count in tokens:
        if count < 1:
            raise ValueError(f"tokens = {count}: must be at least 1")


def evaluate(
    *experiments: str,
    models: Sequence[str] = (),
    total_tokens: Sequence[int] = (),
    systems: Sequence[str] = (),
    machine: str = "",
    ranks: int | None = None,
    skew: float | None = None,
    jitter: float | None = None,
    gpu: Mapping[str, float] | None = None,
    fabric: Mapping[str, float] | None = None,
    constants: Mapping[str, float] | None = None,
    traces: Sequence[str | Path] = (),
    seed: int = 1,
    jobs: int | None = None,
    fresh: bool = False,
    scheduler: str | None = None,
    progress: Any = None,
) -> Evaluation:
    """Runs experiments of the model of the whole machine; the standard set, 20 minutes, without
    any name.

    Layers that were simulated before are read back, so that an interrupted run goes on.

    Parameters:
        experiments: Names of ``sim.evaluate.experiments.EXPERIMENTS``.
        models: Only these models; names, or TOML files that have one model each.
        total_tokens: Only so many tokens, over all GPUs.
        systems: Only these systems beside the hub.
        machine: Another machine than the experiment's: a name, or a TOML file that says what
            is not as in one of them.
        ranks: GPUs, in place of the experiment's.
        skew: Of the made-up routing: 0, all experts alike.
        jitter: Mean of the microseconds that a GPU begins a layer late, in ``decode``.
        gpu: Fields of the machine's GPU, in place of its own.
        fabric: Fields of its fabric, ``link_gbps`` for instance, in place of its own.
        constants: Of software, ``host.eager_op_us`` for instance, in place of those of
            ``sim/evaluate/data/systems.toml``.
        traces: Routing logs of experiment ``traces``.
        seed: Of the made-up routing.
        jobs: Processes; all cores by default.
        fresh: Simulate layers again that were kept from before; they are kept then, so that an
            interrupted run goes on without it.
        scheduler: Address of a Dask scheduler, in place of the cores here.
        progress: A ``moe_hub.command.console.Progress`` that is told how far it is.

    Raises:
        ValueError: There is no such experiment, model, system or machine, or the cluster does not
            answer.
        OSError: A log cannot be read.
    """
    chosen, options = order(
        experiments,
        models=models,
        total_tokens=total_tokens,
        systems=systems,
        machine=machine,
        ranks=ranks,
        skew=skew,
        jitter=jitter,
        gpu=gpu,
        fabric=fabric,
        constants=constants,
        traces=traces,
        seed=seed,
    )
    results = run_points(
        [point for experiment in chosen for point in experiment.points(options)],
        jobs=jobs,
        scheduler=scheduler,
        progress=progress,
        kept=Kept(fresh=fresh),
    )
    return Evaluation(
        reports={experiment.name: experiment.report(options, results) for experiment in chosen}
    )


def predict(
    model: str = "deepseek-v3",
    *,
    ranks: int = 8,
    tokens: int = 128,
    systems: Sequence[str] = (),
    machine: str = "",
    gpu: Mapping[str, float] | None = None,
    fabric: Mapping[str, float] | None = None,
    constants: Mapping[str, float] | None = None,
    skew: float = TYPICAL_SKEW,
    trace: str | Path | None = None,
    seed: int = 1,
    jobs: int | None = 1,
) -> Prediction:
    """What the model of the whole machine says of one layer: seconds.

    Parameters:
        model: Shape of the layer, a name of ``sim.workload.models.MODELS`` or a TOML file.
        ranks: GPUs.
        tokens: Per rank, as ``moe_hub.run`` takes them; 0 with ``trace``: all of the log.
        systems: Names of ``sim.evaluate.schemes.SCHEMES``; by default all that are compared.
            The hub is always among them.
        machine: A machine of ``sim/evaluate/data/hardware.toml`` or a TOML file; the
            experiments' by default.
        gpu: Fields of the machine's GPU, in place of its own.
        fabric: Fields of its fabric, ``link_gbps`` for instance, in place of its own.
        constants: Of software, ``host.eager_op_us`` for instance, in place of those of
            ``sim/evaluate/data/systems.toml``.
        skew: Of the made-up routing: 0, all experts alike.
        trace: Routing log in place of made-up routing.
        seed: Of the made-up routing.
        jobs: Processes; 1 does it in this one, None takes all cores.

    Raises:
        ValueError: There is no such model, system, machine or field, or the layer cannot be.
        OSError: The log cannot be read.
    """
    _known((model,), systems, machine, () if trace and not tokens else (tokens,))
    points = [
        Point(
            system,
            model,
            ranks * tokens,
            ranks=ranks,
            skew=skew,
            seed=seed,
            trace=str(trace or ""),
            gpu=tuple((gpu or {}).items()),
            fabric=tuple((fabric or {}).items()),
            constants=_constants(constants),
            **({"machine": machine} if machine else {}),
        )
        for system in systems_of(Options(systems=tuple(systems)))
    ]
    results = run_points(points, jobs=jobs)
    return Prediction(results=[results[point] for point in points])
