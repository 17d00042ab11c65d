# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub run``: a whole MoE layer on the generated Verilog."""

import json
import sys
from pathlib import Path

import typer

from hub_rtl.contract.config import PRESETS
from hub_rtl.contract.config import preset as preset_of
from sim.system.building import HarnessError, build
from sim.system.fabric import HOP_NS, one_way
from sim.system.figures import behind, layer_report, table
from sim.system.history import BIN, history, link_use
from sim.system.layer import MARK_START, plan_layer
from sim.system.views import VIEWS, write_views
from sim.system.ways import BASELINES, WAYS
from sim.workload.asked import asked_routing, asked_shape
from sim.workload.models import MODELS
from sim.workload.numbering import NUMBERINGS

from .console import Progress, fail, output_folder, table_console, write_text
from .options import (
    LatencyOption,
    SettingsOption,
    changes_of,
    flag,
    number,
    one_of,
    option,
    several,
)

__all__ = ["run"]

LONGEST = 10**9  # cycles that a wait can be told to take


def simulate(progress, text, system, folder, plan):
    """Builds and runs; returns the result."""
    progress.stage(f"{text}: building {plan.cfg.ranks} hubs from Verilog")
    program = build(plan.cfg)
    progress.stage(f"{text}: simulating")

    def show(cycle, done, seconds):
        rate = cycle * plan.cfg.ranks / max(seconds, 0.1)
        progress.show(
            f"{text}: cycle {cycle:,}, {done} of {plan.cfg.ranks} ranks done, {rate:,.0f} "
            "hub cycles/s"
        )

    return system.run(program, folder=folder, progress=show)


def run(
    model: option(str, f"Shape of the layer: {', '.join(MODELS)}.") = "deepseek-v3",
    ranks: number(2, 128, "GPUs, each with its hub.") = 8,
    tokens: number(0, 1 << 20, "Tokens per rank; 0 with --trace: all of the log.") = 16,
    lanes: number(1, 32, "Lanes of each hub: 1, or the preset's.") = None,
    trace: option(Path | None, "Routing log (JSON lines) in place of made-up routing.") = None,
    hot: number(0, 100, "Percent of made-up choices that go to experts of rank 0.") = None,
    experts: number(1, 2048, "Experts, in place of the model's.") = None,
    row_bytes: number(
        16, 16384, "Bytes of a dispatched row without its return column, in place of the model's."
    ) = None,
    packet_bytes: number(128, 256, "Largest payload of a packet: 128, or the preset's.") = None,
    preset: option(
        str | None, f"Hubs of this preset ({', '.join(PRESETS)}) in place of the roomy one."
    ) = None,
    settings: SettingsOption = None,
    tile_rows: number(1, 1024, "Rows of a tile, a power of two.") = None,
    numbering: option(
        str, f"What a RowID is: {', '.join(NUMBERINGS)}.", parser=one_of(NUMBERINGS)
    ) = "token",
    expert_cycles: number(0, LONGEST, "Cycles the expert stand-in takes per tile.") = 200,
    latency: LatencyOption = HOP_NS,
    memory_latency: number(1, 1 << 20, "Cycles until memory answers, also for spilled rows.") = 20,
    baseline: option(
        list[list],
        "Also run the layer as software does without the hub, and compare: "
        + "; ".join(f"{name} ({WAYS[name].line})" for name in BASELINES)
        + ". May be repeated.",
        parser=several(BASELINES),
    ) = (),
    close_at_end: flag(
        "--close-at-end", "Producers do not tell what comes; they close when all is stored."
    ) = False,
    prefix_cycles: number(0, LONGEST, "Cycles of the prefix sums of --baseline address.") = 500,
    threads: number(1, 128, "Threads of the simulation; the result does not depend on it.") = 2,
    max_cycles: number(1, 10**12, "Watchdog, cycles.") = 50_000_000,
    seed: number(0, 2**32 - 1, "Of data and made-up routing.") = 1,
    output: option(Path, f"Folder of report.json, {', '.join(VIEWS)}.", "--output", "-o") = Path(
        "build/run"
    ),
    keep: flag("--keep", "Keep logs and memory images in the output folder.") = False,
):
    """Run one MoE layer through the generated Verilog and check every byte.

    Exit code 0: every byte, event and register is as the golden model says; 1: it is not; 2: the
    order was wrong.
    """
    shape = asked_shape(model, trace, experts, row_bytes)
    routing = asked_routing(shape, trace, ranks, tokens, seed, hot)
    plan = plan_layer(
        shape,
        routing,
        ranks=ranks,
        lanes=lanes,
        tile_rows=tile_rows,
        seed=seed,
        packet_bytes=packet_bytes,
        base=preset_of(preset) if preset else None,
        changes=changes_of(settings),
        numbering=numbering,
    )
    cycles = one_way(latency, plan.cfg)
    surroundings = {
        "latency": cycles,
        "window": cycles,
        "mem_latency": memory_latency,
        "threads": threads,
        "max_cycles": max_cycles,
        "bin": BIN,
        "bin_from": MARK_START,
        "seed": seed,
        "expert_cycles": expert_cycles,
    }
    names = dict.fromkeys(["hub", *(name for names in baseline for name in names)])
    own = {
        "hub": {"close_at_end": close_at_end},
        "address": {"prefix_cycles": prefix_cycles},
    }
    systems = {
        name: WAYS[name].programs(plan, **surroundings, **own.get(name, {})) for name in names
    }
    output_folder(output)
    reports, histories, wrong = {}, {}, False
    with Progress() as progress:
        for name, system in systems.items():
            title = WAYS[name].title
            try:
                result = simulate(progress, title, system, output / name if keep else None, plan)
            except HarnessError as error:
                fail(error, 1)
            progress.stage(f"{title}: comparing every byte with the golden model")
            verdict = WAYS[name].check(plan, result)
            for line in verdict.differences:
                print(f"moe-hub: {title}: {line}", file=sys.stderr)
            wrong |= not verdict.good
            if result.timed_out:
                reports[name] = {"way": name, "differences": verdict.differences}
            else:
                histories[name] = history(plan, result, name)
                reports[name] = layer_report(plan, result, verdict, name)
                reports[name]["latency_cycles"] = cycles
                reports[name]["link_use"] = link_use(histories[name])
            if not keep:
                result.remove()
        progress.stage("drawing")
        views = write_views(histories, reports, output)
    write_text(output / "report.json", json.dumps(reports, indent=1) + "\n")
    if all("rows" in report for report in reports.values()):
        console = table_console()
        console.print(table(reports))
        for sentence in behind(reports):
            print(sentence)
    print(f"report: {output / 'report.json'}")
    for path in views:
        print(f"{VIEWS[path.name]}: {path}")
    if wrong:
        raise typer.Exit(1)
