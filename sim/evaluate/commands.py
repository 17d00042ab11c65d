# SPDX-License-Identifier: Apache-2.0
"""What ``moe-hub evaluate`` does beside experiments: measure the hub, fit constants, write down
predictions, compare network and RTL, write the results page."""

from pathlib import Path

from sim.evaluate.page.tables import rich_table

__all__ = ["COMMANDS", "PAGE", "calibrate", "fit", "predict", "validate", "write_page"]

COMMANDS = "calibrate", "fit", "predict", "validate", "page"
PAGE = Path(__file__).parents[2] / "docs" / "results" / "evaluation.md"


def calibrate(console):
    """Measures the hub's figures on the Verilog anew, writes ``data/hub.json``. Returns the exit
    code, 0."""
    from .calibrate import HUB_FILE, write

    figures = write()
    console.print(rich_table("Latencies of the hub, cycles", [figures["latency_cycles"]]))
    console.print(f"{HUB_FILE}")
    return 0


def fit(console):
    """Fits all free constants anew, writes ``data/fitted.toml`` and ``data/fitted_hardware.toml``,
    prints what was found. Returns the exit code, 0."""
    from .fit import FITTED_FILE, HARDWARE_FILE, fit_all, write

    software, machines = fit_all(lambda name: console.print(f"fitting {name} ..."))
    write(software, FITTED_FILE)
    write(machines, HARDWARE_FILE)
    rows = [
        {
            "of": system,
            "constant": name,
            "value": value,
            "figure": figure,
            "error left, %": 100 * left,
        }
        for system, constants in (software | machines).items()
        for name, (value, errors) in constants.items()
        for figure, left in errors.items()
    ]
    console.print(rich_table("Constants fitted on published figures of role fit", rows))
    console.print(f"{FITTED_FILE}")
    console.print(f"{HARDWARE_FILE}")
    return 0


def predict(console):
    """Writes down what the model says of figures that nobody has looked up: lines that
    ``docs/results/predictions.md`` has not. Returns the exit code, 0. Raises ValueError where the
    model is of no commit."""
    from .predictions import PAGE as RECORD
    from .predictions import commit_of, read
    from .predictions import predict as predicted

    before = RECORD.read_text(encoding="utf-8")
    after = predicted(before, commit_of(), lambda figure: console.print(f"{figure.id} ..."))
    RECORD.write_text(after, encoding="utf-8")
    console.print(f"{RECORD}: {len(read(after)) - len(read(before))} new, {len(read(after))} lines")
    return 0


def validate(console, models, traces, tokens):
    """Compares the network model with the RTL and writes ``docs/results/network_validation.md``.

    ``models``: names of :mod:`sim.workload.models`; ``traces``: a routing log for each of the first
    of them, made-up routing for the others; ``tokens``: per rank, a case each, 0: all of a log.
    Returns 0 when all that is judged is within 5 %, else 1. Raises ValueError and OSError for wrong
    orders.
    """
    from sim.system.building import HarnessError

    from .validate import PAGE as RESULT
    from .validate import Case, page, validation_table
    from .validate import validate as compare

    if not models:
        raise ValueError("validate: needs --model MODEL, and --trace FILE for each that has a log")
    if len(traces) > len(models):
        raise ValueError(
            f"validate: {len(traces)} logs for {len(models)} models: each log needs its --model"
        )
    logs = [*map(Path, traces), *[None] * (len(models) - len(traces))]
    try:
        comparisons = compare(
            [
                Case(model=model, trace=log, tokens=count)
                for model, log in zip(models, logs, strict=True)
                for count in tokens
            ]
        )
    except HarnessError as error:
        console.print(f"moe-hub: {error}")
        return 1
    for comparison in comparisons:
        console.print(validation_table(comparison))
    RESULT.write_text(page(comparisons))
    return 0 if all(comparison.good for comparison in comparisons) else 1


def write_page(console, path, folder):
    """Writes a results page's tables and pictures, ``../images/evaluation_*.png``, from the CSV
    files in ``folder``."""
    from flow.pages.fill import fill
    from sim.evaluate.page.page import TABLES
    from sim.evaluate.page.plots import draw_all

    text = fill(path.read_text(encoding="utf-8"), folder, TABLES, "moe-hub evaluate")
    drawn = draw_all(folder, path.parent.parent / "images")
    path.write_text(text, encoding="utf-8")
    console.print(f"{path}, {', '.join(picture.name for picture in drawn)}", highlight=False)
    return 0
