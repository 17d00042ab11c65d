# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub compare``: the page of layers beside software."""

from pathlib import Path

from moe_hub.files import output_folder, write_text
from sim.system.building import HarnessError
from sim.system.compare import compare as compared

from .console import Progress, fail
from .options import number, option

__all__ = ["compare"]


def compare(
    model: option(list[str] | None, "Model of a --trace, in the same order.") = None,
    trace: option(
        list[Path] | None, "Routing log (JSON lines), run whole; may be repeated."
    ) = None,
    page: option(Path, "The page that is written.") = Path("docs/results/layers.md"),
    threads: number(1, 128, "Threads of the simulation; the result does not depend on it.") = 2,
):
    """Run layers at the paper's latency, the hub's way and software's, and write their page.

    Runs are kept in the build folder until design, harness or programs change. Exit code 1: a run
    was wrong.
    """
    models, traces = model or (), trace or ()
    if len(models) != len(traces):
        raise ValueError(
            f"compare: {len(models)} models for {len(traces)} logs: each --trace needs its --model"
        )
    output_folder(page.parent)
    try:
        with Progress() as progress:
            text = compared(tuple(zip(models, traces, strict=True)), threads, progress.stage)
    except (AssertionError, HarnessError) as error:
        fail(error, 1)
    write_text(page, text)
    print(page)
