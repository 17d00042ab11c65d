"""Command ``moe-hub synth``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..config import ConfigError
from ..tools.console import fail, table_console
from ..tools.options import PresetOption, SettingsOption, configured
from .liberty import libraries
from .measure import FLOWS, FlowError, Settings, measure
from .parts import PARTS
from .tables import markdown, screen
from .targets import TARGET_PRESET, clock_targets

__all__ = ["synth"]


def synth(parts: Annotated[list[str] | None, typer.Argument(metavar="[PART]...",
                                                            help=f"Of {', '.join(PARTS)}; all by default.")] = None,
          preset: PresetOption = "fpga", settings: SettingsOption = None,
          flow: Annotated[list[str] | None, typer.Option("--flow", help=f"Of {', '.join(FLOWS)}, may be repeated; by default "
                                                         "generic and ecp5, and cells with --liberty.")] = None,
          liberty: Annotated[list[Path] | None, typer.Option("--liberty", exists=True, dir_okay=False,
                                                             help="Standard cells, may be repeated; .lib or .lib.gz.")] = None,
          target: Annotated[int, typer.Option("--target", min=1, help="Delay in ps that the cell mapper aims for.")] = 200,
          seeds: Annotated[int, typer.Option("--seeds", min=1, help="Placements of each part; the median counts.")] = 3,
          jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time; by default, cores.")] = None,
          force: Annotated[bool, typer.Option("--force", help="Measure again what has not changed.")] = False,
          output: Annotated[Path, typer.Option("--output", "-o", help="Folder for files and results.")] = Path("build/synth")):
    """Area and speed of the blocks: gates, ECP5 place and route, standard cells. Exit code 1 when a target is missed."""
    try:
        cfg = configured(preset, settings)
    except ConfigError as error:
        fail(error)
    for name in parts or ():
        if name not in PARTS:
            fail(f"part = {name!r}: must be one of {', '.join(PARTS)}")
    flows = tuple(flow) if flow else ("generic", "ecp5", *(["cells"] if liberty else []))
    for name in flows:
        if name not in FLOWS:
            fail(f"--flow {name}: must be one of {', '.join(FLOWS)}")
    if "cells" in flows and not liberty:
        fail("--flow cells: needs --liberty FILE, a library of standard cells")
    chosen, console = list(dict.fromkeys(parts or PARTS)), table_console()
    try:
        given = libraries(liberty or (), output / "liberty")
        if len(given) > 1:
            raise ValueError(f"--liberty: files of {', '.join(each.name for each in given)}: must be of one library")
    except (ValueError, OSError) as error:
        fail(error)
    options = Settings(tuple(range(1, seeds + 1)), given[0] if given else None, target)
    try:
        found = measure(cfg, chosen, flows, options, output, jobs, force,
                        lambda text: console.print(text, highlight=False))
    except FlowError as error:
        fail(error, 1)
    counts = {name: PARTS[name].count(cfg) for name in chosen}
    for name in flows:
        console.print(screen(name, found, counts))
    (output / cfg.name / "synth.json").write_text(json.dumps({"configuration": cfg.as_dict(), "parts": found}, indent=1) + "\n")
    (output / cfg.name / "synth.md").write_text(markdown(found, counts, flows))
    print(f"results: {output / cfg.name / 'synth.json'}, {output / cfg.name / 'synth.md'}")
    goals = list(clock_targets(found)) if cfg.name == TARGET_PRESET and "ecp5" in flows else []
    for goal in goals:
        console.print(f"{goal.word:12} {goal.text}: {goal.value}", highlight=False)
    if any(goal.met is False for goal in goals):
        raise typer.Exit(1)
