# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub evaluate``: runs experiments of the system model, prints their tables, writes
CSV files and plots."""

from pathlib import Path
from typing import Annotated

import typer

from moe_hub.files import output_folder

from .console import Progress, table_console
from .options import flag, number, option, whole

__all__ = ["evaluate"]


def _command(console, names, output, models, tokens, traces, page, scheduler):
    """(exit code,) of a command that is no experiment; None when ``names`` has none."""
    from sim.evaluate.commands import COMMANDS, PAGE, calibrate, fit, predict, validate, write_page

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
    if asked == ["predict"]:
        return (predict(console),)
    if asked == ["validate"]:
        return (validate(console, models or (), traces or (), tokens or [16]),)
    return (write_page(console, page or PAGE, output),)


def _changes(texts):
    """Parameters of :func:`moe_hub.evaluate` for ``PART.NAME=VALUE``. Raises ValueError."""
    found = {"gpu": {}, "fabric": {}, "constants": {}}
    for text in texts:
        path, _, value = text.partition("=")
        part, _, name = path.partition(".")
        try:
            number = float(value)
        except ValueError:
            number = None
        if not name or number is None:
            raise ValueError(f"--set {text}: must be PART.NAME=VALUE, a number")
        number = int(number) if number == int(number) else number
        if part in ("gpu", "fabric"):
            found[part][name] = number
        else:
            found["constants"][path] = number
    return found


def evaluate(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments, all of the standard set by default: layer, "
            "end-to-end, tokens, skew, gpus, ablation, links, shapes, pangu, baselines, "
            "decode, late, balance, energy, overlap, training, in-switch, traces, sensitivity, "
            "published, alltoall, gemm. Or one of: calibrate, fit, predict, validate, page."
        ),
    ] = None,
    output: option(Path, "Folder of CSV files and plots.", "--output", "-o") = Path(
        "build/evaluate"
    ),
    model: option(
        list[str] | None, "Only this model, a name or a TOML file; may be repeated."
    ) = None,
    tokens: option(
        list[int] | None,
        "Only so many tokens over all GPUs, may be repeated.",
        parser=whole(0, 1 << 24),
    ) = None,
    system: option(list[str] | None, "Only this system beside the hub, may be repeated.") = None,
    machine: option(str, "Another machine than the experiment's, a name or a TOML file.") = "",
    trace: option(
        list[Path] | None, "Routing log (JSON lines) for `traces`, may be repeated."
    ) = None,
    ranks: number(2, 72, "GPUs, in place of the experiment's.") = None,
    skew: option(
        float | None, "Of the made-up routing: standard deviation of eight experts' shares."
    ) = None,
    jitter: option(
        float | None, "Mean microseconds that a GPU begins a layer late, in `decode`."
    ) = None,
    change: option(
        list[str] | None,
        "Another number than the model's, may be repeated: gpu.sms, fabric.link_gbps, "
        "host.eager_op_us, comet.combine_ctas, ... as hardware.toml and systems.toml have them.",
        "--set",
        "-s",
        metavar="PART.NAME=VALUE",
    ) = None,
    seed: number(0, 2**32 - 1, "Of the made-up routing.") = 1,
    jobs: number(1, 1024, "Processes; all cores by default.") = None,
    page: option(
        Path | None, "Results page whose tables and pictures are written from the CSV files."
    ) = None,
    fresh: flag(
        "--fresh",
        "Simulate layers again that were kept from before; without it an interrupted run goes on.",
    ) = False,
    scheduler: option(
        str | None, "Address of a Dask scheduler, in place of the cores here."
    ) = None,
):
    """Compare MoE-Hub with software systems on a model of the whole machine: tables, CSV files,
    plots.

    `calibrate` measures the hub's figures on the Verilog anew (ten minutes); `fit` fits the free
    constants of the software systems anew; `predict` writes down what the model says of figures
    that have not been looked up; `validate` compares the network model with the RTL
    (--model, --trace, --tokens per rank); `page` writes the results page from the CSV files that
    are there.

    Exit code 1: `validate` found an error above its limit. 2: the order was wrong.
    """
    from moe_hub.evaluation import evaluate as evaluated
    from moe_hub.evaluation import order
    from sim.evaluate.commands import write_page
    from sim.evaluate.experiments import EXPERIMENTS
    from sim.evaluate.page.tables import rich_table

    console = table_console()
    if code := _command(console, experiments or [], output, model, tokens, trace, page, scheduler):
        raise typer.Exit(code[0])
    asked = {
        "models": model or (),
        "total_tokens": tokens or (),
        "systems": system or (),
        "machine": machine,
        "ranks": ranks,
        "skew": skew,
        "jitter": jitter,
        **_changes(change or ()),
        "traces": trace or (),
        "seed": seed,
    }
    order(experiments or (), **asked)  # a wrong one is told before a folder is made
    output_folder(output)
    with Progress() as progress:
        done = evaluated(
            *experiments or (),
            **asked,
            jobs=jobs,
            fresh=fresh,
            scheduler=scheduler,
            progress=progress,
        )
    done.write(output)
    for name, report in done.reports.items():
        console.print(rich_table(EXPERIMENTS[name].title, report.summary))
        for note in report.notes:
            console.print(note)
        console.print(f"{output / name}.csv, -summary.csv, .png\n", highlight=False)
    if page:
        write_page(console, page, output)
