# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub run``: a whole MoE layer on the generated Verilog."""

import sys
from pathlib import Path

import typer

from hub_rtl.contract.config import PRESETS
from moe_hub.files import output_folder
from moe_hub.layer import LIMITS
from moe_hub.layer import run as run_layer
from sim.system.building import HarnessError
from sim.system.fabric import HOP_NS
from sim.system.figures import behind, table
from sim.system.layer import ORDERS
from sim.system.views import VIEWS
from sim.system.ways import BASELINES, WAYS
from sim.workload.models import MODELS
from sim.workload.numbering import NUMBERINGS

from .console import Progress, fail, table_console
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


def run(
    model: option(
        str, f"Shape of the layer: {', '.join(MODELS)}; or a TOML file that has one."
    ) = "deepseek-v3",
    ranks: number(*LIMITS["ranks"], "GPUs, each with its hub.") = 8,
    tokens: number(*LIMITS["tokens"], "Tokens per rank; 0 with --trace: all of the log.") = 16,
    lanes: number(*LIMITS["lanes"], "Lanes of each hub: 1, or the preset's.") = None,
    trace: option(Path | None, "Routing log (JSON lines) in place of made-up routing.") = None,
    hot: number(*LIMITS["hot"], "Percent of made-up choices that go to experts of rank 0.") = None,
    experts: number(*LIMITS["experts"], "Experts, in place of the model's.") = None,
    row_bytes: number(
        *LIMITS["row_bytes"],
        "Bytes of a dispatched row without its return column, in place of the model's.",
    ) = None,
    packet_bytes: number(
        *LIMITS["packet_bytes"], "Largest payload of a packet: 128, or the preset's."
    ) = None,
    preset: option(
        str | None, f"Hubs of this preset ({', '.join(PRESETS)}) in place of the roomy one."
    ) = None,
    settings: SettingsOption = None,
    tile_rows: number(*LIMITS["tile_rows"], "Rows of a tile, a power of two.") = None,
    numbering: option(
        str, f"What a RowID is: {', '.join(NUMBERINGS)}.", parser=one_of(NUMBERINGS)
    ) = "token",
    order: option(
        str, f"In which a rank stores its rows: {', '.join(ORDERS)}.", parser=one_of(ORDERS)
    ) = "token",
    expert_cycles: number(
        *LIMITS["expert_cycles"], "Cycles the expert stand-in takes per tile."
    ) = 200,
    latency: LatencyOption = HOP_NS,
    memory_latency: number(
        *LIMITS["memory_latency"], "Cycles until memory answers, also for spilled rows."
    ) = 20,
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
    prefix_cycles: number(
        *LIMITS["prefix_cycles"], "Cycles of the prefix sums of --baseline address."
    ) = 500,
    threads: number(
        *LIMITS["threads"], "Threads of the simulation; the result does not depend on it."
    ) = 2,
    max_cycles: number(*LIMITS["max_cycles"], "Watchdog, cycles.") = 50_000_000,
    seed: number(*LIMITS["seed"], "Of data and made-up routing.") = 1,
    output: option(Path, f"Folder of report.json, {', '.join(VIEWS)}.", "--output", "-o") = Path(
        "build/run"
    ),
    keep: flag("--keep", "Keep logs and memory images in the output folder.") = False,
):
    """Run one MoE layer through the generated Verilog and check every byte.

    Exit code 0: every byte, event and register is as the golden model says; 1: it is not; 2: the
    order was wrong.
    """
    output_folder(output)
    with Progress() as progress:
        try:
            done = run_layer(
                model,
                ranks=ranks,
                tokens=tokens,
                lanes=lanes,
                trace=trace,
                hot=hot,
                experts=experts,
                row_bytes=row_bytes,
                packet_bytes=packet_bytes,
                preset=preset,
                changes=changes_of(settings),
                tile_rows=tile_rows,
                numbering=numbering,
                order=order,
                expert_cycles=expert_cycles,
                hop_ns=latency,
                memory_latency=memory_latency,
                baselines=[name for names in baseline for name in names],
                close_at_end=close_at_end,
                prefix_cycles=prefix_cycles,
                threads=threads,
                max_cycles=max_cycles,
                seed=seed,
                keep=output if keep else None,
                progress=progress,
            )
        except HarnessError as error:
            fail(error, 1)
        progress.stage("drawing")
        report, *views = done.write(output)
    for way, lines in done.differences.items():
        for line in lines:
            print(f"moe-hub: {WAYS[way].title}: {line}", file=sys.stderr)
    if done.ended:
        console = table_console()
        console.print(table(done.reports))
        for sentence in behind(done.reports):
            print(sentence)
    print(f"report: {report}")
    for path in views:
        print(f"{VIEWS[path.name]}: {path}")
    if not done.good:
        raise typer.Exit(1)
