# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub explore``: hubs of other sizes, the layer's time on the model against their
area."""

from pathlib import Path

from moe_hub.files import output_folder, write_text

from .console import Progress, fail, table_console
from .options import flag, number, option, whole

__all__ = ["explore"]

FOLDER = Path("build/synth")  # as `make ppa` has it: what it counted is not counted again


def _measure(jobs):
    """Counts the gates anew; seconds where they are kept from before."""
    from flow.synth.area_table import write_table
    from flow.synth.measure import FlowError
    from sim.evaluate.hub_area import FILE

    with Progress() as progress:
        try:
            write_table(FILE, output_folder(FOLDER), jobs, progress.stage)
        except FlowError as error:
            fail(error, 1)
    print(FILE)


def explore(
    model: option(str, "Shape of the layer, a name or a TOML file.") = "deepseek-v3",
    tokens: number(1, 1 << 20, "Of each rank.") = 128,
    ranks: number(2, 8, "GPUs.") = 8,
    machine: option(str, "Machine, a name or a TOML file.") = "h800",
    slices: option(
        list[int] | None,
        "Slices, may be repeated; by default what the links need, one more, and twice as many.",
        parser=whole(1, 32),
    ) = None,
    places: option(
        list[int] | None,
        "Places of a slice's receive pool for each of its links, may be repeated; 96, 192 and 384.",
        parser=whole(1, 2047),
    ) = None,
    pool: option(
        list[int] | None,
        "Entries of a slice's packet manager, may be repeated; 64 and 128.",
        parser=whole(4, 256),
    ) = None,
    seed: number(0, 2**32 - 1, "Of the made-up routing.") = 1,
    jobs: number(1, 1024, "Processes; all cores by default.", "--jobs", "-j") = None,
    scheduler: option(
        str | None, "Address of a Dask scheduler, in place of the cores here."
    ) = None,
    output: option(Path, "Folder of the CSV file and the plot.", "--output", "-o") = Path(
        "build/explore"
    ),
    page: option(
        Path | None,
        "A page to write the table, the numbers and the picture of, beside its own text.",
    ) = None,
    measure: flag(
        "--measure",
        "Count the gates of the table of areas anew, in about ten processor minutes, and end.",
    ) = False,
):
    """Find out what to build: layer time on the model against area from measured gates, for hubs
    with other slices and pools; which no other is better than, and what is better than preset nvl8.

    Swept is what both know: slices, entries of the packet manager's pool, places of the receive
    pool; credits are the shares of these places. Slices have the links and bytes of the hubs whose
    gates were counted. Not swept, as the model does not see it: the row table (RAT), the victim
    store, control credits, rows of a readiness tile. Nor the clock, which is preset nvl8's.

    Exit code 1: a tool failed while gates were counted. 2: the order was wrong.
    """
    if measure:
        return _measure(jobs)
    from flow.pages.fill import fill
    from flow.pages.rows import csv_text
    from sim.evaluate.explore import TABLES, Sweep, draw_front, points, report
    from sim.evaluate.kept import Kept
    from sim.evaluate.page.tables import rich_table
    from sim.evaluate.runner import run_points

    asked = {"slices": slices, "places": places, "pools": pool}
    sweep = Sweep(
        model=model,
        tokens=tokens,
        ranks=ranks,
        machine=machine,
        seed=seed,
        **{name: tuple(dict.fromkeys(values)) for name, values in asked.items() if values},
    )
    layers = points(sweep)  # a wrong order is told before a folder is made
    text = page.read_text(encoding="utf-8") if page else ""
    output_folder(output)
    with Progress() as progress:
        results = run_points(layers, jobs=jobs, scheduler=scheduler, progress=progress, kept=Kept())
    done = report(sweep, results)
    write_text(output / "explore.csv", csv_text(done.rows))
    draw_front(sweep, done.rows, output / "explore.png")
    if page:
        write_text(page, fill(text, output, TABLES))
        draw_front(sweep, done.rows, page.parent.parent / "images" / "explore.png")
    console = table_console()
    console.print(rich_table("Hubs that none is better than, and the preset's", done.summary))
    for note in done.notes:
        console.print(note, highlight=False, markup=False)
    console.print(f"{output / 'explore'}.csv, .png", highlight=False)
