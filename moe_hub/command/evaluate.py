# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub evaluate``: runs experiments of the system model, prints their tables, writes
CSV files and plots."""

from pathlib import Path
from typing import Annotated

import typer

from .console import Progress, output_folder, table_console, write_text
from .options import flag, number, option, whole

__all__ = ["evaluate"]


def _chosen(names, traces):
    """The experiments called ``names``; the standard set without any, the traces with it where some
    are given."""
    from sim.evaluate.experiments import EXPERIMENTS, STANDARD

    names = list(names or STANDARD) + (["traces"] if traces and not names else [])
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"experiment = {name!r}: must be one of {', '.join(EXPERIMENTS)}")
    if "traces" in names and not traces:
        raise ValueError("traces: needs at least one --trace FILE")
    return [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def _command(console, names, output, models, tokens, traces, page, scheduler):
    """(exit code,) of a command that is no experiment; None when ``names`` has none."""
    from sim.evaluate.commands import COMMANDS, PAGE, calibrate, fit, validate, write_page

    asked = [name for name in names if name in COMMANDS]
    if not asked:
        return None
    if len(names) > 1:
        raise ValueError(f"{asked[0]}: must stand alone")
    if scheduler:
        raise ValueError(f"--scheduler {scheduler}: {asked[0]} runs on this machine")
    if asked == ["calibrate"]:
        return (calibrate(console),)
    if asked == ["fit"]:
        return (fit(console),)
    if asked == ["validate"]:
        if len(tokens or ()) > 1:
            raise ValueError("validate: takes one --tokens, tokens per rank")
        return (validate(console, models or (), traces or (), (tokens or [64])[0]),)
    return (write_page(console, page or PAGE, output),)


def _options(models, tokens, systems, machine, traces, seed):
    """Checked options."""
    from sim.evaluate.machine.hardware import machine as machine_named
    from sim.evaluate.schemes import scheme
    from sim.evaluate.study import Options
    from sim.workload.models import model as shape

    for model in models:
        shape(model)
    for system in systems:
        scheme(system)
    if machine:
        machine_named(machine)
    for count in tokens:
        if count < 1:
            raise ValueError(f"tokens = {count}: must be at least 1")
    return Options(
        models=tuple(models),
        tokens=tuple(tokens),
        systems=tuple(systems),
        machine=machine,
        traces=tuple(map(str, traces)),
        seed=seed,
    )


def _write(console, folder, experiment, report):
    """CSV, plot and table of one experiment."""
    from sim.evaluate.page.charts import draw
    from sim.evaluate.page.tables import csv_text, rich_table

    write_text(folder / f"{experiment.name}.csv", csv_text(report.rows))
    write_text(folder / f"{experiment.name}-summary.csv", csv_text(report.summary))
    if report.plot:
        draw(report.plot, folder / f"{experiment.name}.png")
    console.print(rich_table(experiment.title, report.summary))
    for note in report.notes:
        console.print(note)
    console.print(f"{folder / experiment.name}.csv, -summary.csv, .png\n", highlight=False)


def evaluate(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments, all of the standard set by default: layer, "
            "end-to-end, tokens, skew, gpus, ablation, links, shapes, pangu, "
            "traces, sensitivity, published, gemm. Or one of: calibrate, fit, "
            "validate, page."
        ),
    ] = None,
    output: option(Path, "Folder of CSV files and plots.", "--output", "-o") = Path(
        "build/evaluate"
    ),
    model: option(list[str] | None, "Only this model, may be repeated.") = None,
    tokens: option(
        list[int] | None,
        "Only so many tokens over all GPUs, may be repeated.",
        parser=whole(0, 1 << 24),
    ) = None,
    system: option(list[str] | None, "Only this system beside the hub, may be repeated.") = None,
    machine: option(str, "Another machine than the experiment's.") = "",
    trace: option(
        list[Path] | None, "Routing log (JSON lines) for `traces`, may be repeated."
    ) = None,
    seed: number(0, 2**32 - 1, "Of the made-up routing.") = 1,
    jobs: number(1, 1024, "Processes; all cores by default.") = None,
    page: option(
        Path | None, "Results page whose tables and pictures are written from the CSV files."
    ) = None,
    fresh: flag("--fresh", "Simulate layers again that were kept from before.") = False,
    scheduler: option(
        str | None, "Address of a Dask scheduler, in place of the cores here."
    ) = None,
):
    """Compare MoE-Hub with software systems on a model of the whole machine: tables, CSV files,
    plots.

    `calibrate` measures the hub's figures on the Verilog anew (ten minutes); `fit` fits the free
    constants of the software systems anew; `validate` compares the network model with the RTL
    (--model, --trace, --tokens per rank); `page` writes the results page from the CSV files that
    are there.

    Exit code 1: `validate` found an error above its limit. 2: the order was wrong.
    """
    from sim.evaluate.commands import write_page
    from sim.evaluate.kept import Kept
    from sim.evaluate.runner import run_points

    console = table_console()
    if code := _command(console, experiments or [], output, model, tokens, trace, page, scheduler):
        raise typer.Exit(code[0])
    chosen = _chosen(experiments, trace)
    options = _options(model or (), tokens or (), system or (), machine, trace or (), seed)
    points = [point for experiment in chosen for point in experiment.points(options)]
    output_folder(output)
    with Progress() as progress:
        results = run_points(
            points,
            jobs=jobs,
            scheduler=scheduler,
            progress=progress,
            kept=None if fresh else Kept(),
        )
    for experiment in chosen:
        _write(console, output, experiment, experiment.report(options, results))
    if page:
        write_page(console, page, output)
