"""Commands ``moe-hub run`` (a whole MoE layer on the generated Verilog), ``moe-hub bench`` (speed figures) and
``moe-hub lanes`` (how evenly routing uses the lanes of a link)."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hub_rtl.config import PRESETS, ConfigError
from hub_rtl.config import preset as preset_of
from hub_rtl.models import MODELS, ModelShape
from hub_rtl.models import model as model_of
from hub_rtl.tools.console import fail, table_console
from sim.numbering import NUMBERINGS, lane_use
from sim.traces import TraceError, generate, read_trace

__all__ = ["run", "bench", "lanes"]

BIN = 256           # cycles per bin of the timeline
LATENCY = 64        # cycles from hub to hub, switch included
LANE_TOKENS, LANE_RUNS = (16, 32, 64, 128, 256, 512, 1024), 8


def _routing(shape, trace, ranks, tokens, seed):
    """Routing from a log, or made up; ``tokens`` per rank."""
    if trace is None:
        return generate(tokens=ranks * tokens, top_k=shape.top_k, experts=shape.experts, seed=seed)
    routing = read_trace(trace)
    if tokens:
        if ranks * tokens > routing.tokens:
            raise ConfigError(f"tokens = {tokens}: {trace} has only {routing.tokens // ranks} per rank for {ranks} ranks")
        routing = routing.window(0, ranks * tokens)
    return routing


def _shape(name, trace, experts, row_bytes):
    """The model's shape; a log says how many experts there are and how many a token takes."""
    shape = model_of(name)
    if trace is not None:
        routing = read_trace(trace)
        shape = _changed(shape, experts=routing.num_experts, top_k=routing.top_k)
    if experts is not None:
        shape = _changed(shape, experts=experts)
    if row_bytes is not None:
        shape = _changed(shape, dispatch_bytes=row_bytes)
    return shape


def _changed(shape, **changes):
    fields = {name: getattr(shape, name) for name in ModelShape.__dataclass_fields__} | changes
    return ModelShape(**fields)


def _simulate(console, text, system, folder, plan):
    """Builds and runs with a progress line; returns the result."""
    from sim.system import build
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{text}: building {plan.cfg.ranks} hubs from Verilog")
        program = build(plan.cfg)
        bar.update(task, description=f"{text}: simulating")

        def show(cycle, done, seconds):
            rate = cycle * plan.cfg.ranks / max(seconds, 0.1)
            bar.update(task, description=f"{text}: cycle {cycle:,}, {done} of {plan.cfg.ranks} ranks done, "
                                         f"{rate:,.0f} hub cycles/s")

        return system.run(program, folder=folder, progress=show)


def run(
    model: Annotated[str, typer.Option(help=f"Shape of the layer: {', '.join(MODELS)}.")] = "deepseek-v3",
    ranks: Annotated[int, typer.Option(help="GPUs, each with its hub.")] = 8,
    tokens: Annotated[int, typer.Option(help="Tokens per rank; 0 with --trace: all of the log.")] = 16,
    lanes: Annotated[int, typer.Option(help="Link ports of each hub.")] = 1,
    trace: Annotated[Path | None, typer.Option(help="Routing log (JSON lines) in place of made-up routing.")] = None,
    experts: Annotated[int | None, typer.Option(help="Experts, in place of the model's.")] = None,
    row_bytes: Annotated[int | None, typer.Option(help="Bytes of a dispatched row without its return column, in place of the "
                                                       "model's.")] = None,
    packet_bytes: Annotated[int, typer.Option(help="Largest payload of a packet: 128 or 256.")] = 128,
    preset: Annotated[str | None, typer.Option(help=f"Hubs of this preset ({', '.join(PRESETS)}) in place of ones made to "
                                                    "measure.")] = None,
    tile_rows: Annotated[int | None, typer.Option(help="Rows of a tile, a power of two.")] = None,
    numbering: Annotated[str, typer.Option(help=f"What a RowID is: {', '.join(NUMBERINGS)}.")] = "token",
    expert_cycles: Annotated[int, typer.Option(help="Cycles the expert stand-in takes per tile.")] = 200,
    latency: Annotated[int, typer.Option(help="Cycles from hub to hub.")] = LATENCY,
    baseline: Annotated[bool, typer.Option("--baseline", help="Also run the address-centric way and compare.")] = False,
    prefix_cycles: Annotated[int, typer.Option(help="Cycles of the baseline's prefix sums.")] = 500,
    threads: Annotated[int, typer.Option(help="Threads of the simulation; the result does not depend on it.")] = 2,
    max_cycles: Annotated[int, typer.Option(help="Watchdog, cycles.")] = 50_000_000,
    seed: Annotated[int, typer.Option(help="Of data and made-up routing.")] = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of report.json, timeline.png.")] = Path("build/run"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep logs and memory images in the output folder.")] = False,
):
    """Run one MoE layer through the generated Verilog and check every byte.

    Exit code 0: every byte, event and register is as the golden model says; 1: it is not; 2: the order was wrong.
    """
    from sim.layer import hub_programs, plan_layer
    from sim.layer_check import check_layer
    from sim.report import baseline_report, layer_report, table
    from sim.system import HarnessError
    from sim.timeline import draw_timeline

    console = Console(stderr=True)
    settings = {"latency": latency, "window": latency, "threads": threads, "max_cycles": max_cycles, "bin": BIN, "seed": seed}
    try:
        shape = _shape(model, trace, experts, row_bytes)
        routing = _routing(shape, trace, ranks, tokens, seed)
        plan = plan_layer(shape, routing, ranks=ranks, lanes=lanes, tile_rows=tile_rows, seed=seed, packet_bytes=packet_bytes,
                          base=preset_of(preset) if preset else None, numbering=numbering)
        ways = [("hub", hub_programs(plan, expert_cycles=expert_cycles, **settings), check_layer, layer_report)]
        if baseline:
            from sim.baseline import baseline_programs, check_baseline
            ways.append(("address-centric", baseline_programs(plan, prefix_cycles, expert_cycles=expert_cycles, **settings),
                         check_baseline, baseline_report))
    except (ConfigError, TraceError, ValueError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    reports = []
    output.mkdir(parents=True, exist_ok=True)
    for name, system, check, figures in ways:
        try:
            result = _simulate(console, name, system, output / name if keep else None, plan)
        except HarnessError as error:
            fail(error, 1)
        with console.status(f"{name}: comparing every byte with the golden model"):
            verdict = check(plan, result)
        for line in verdict.differences:
            print(f"moe-hub: {name}: {line}", file=sys.stderr)
        if not result.timed_out:
            reports.append(figures(plan, result, verdict))
        else:
            reports.append(None)
        if name == "hub":
            draw_timeline(plan, result, output / "timeline.png", BIN,
                          f"{shape.name}, {routing.tokens} tokens, {ranks} ranks, {lanes} lane(s)")
        if not keep:
            result.remove()
        if not verdict.good:
            reports[-1] = reports[-1] or {"way": name, "differences": verdict.differences}
    (output / "report.json").write_text(json.dumps(dict(zip(("hub", "baseline"), reports, strict=False)), indent=1) + "\n")
    if all(report and "rows" in report for report in reports):
        table_console().print(table(*reports))
    print(f"report: {output / 'report.json'}, picture: {output / 'timeline.png'}")
    if any(report is None or report["differences"] for report in reports):
        raise typer.Exit(1)


def bench(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for bench.json.")] = Path("build/bench"),
    quick: Annotated[bool, typer.Option("--quick", help="Without the lines that take longer than seconds.")] = False,
    lanes: Annotated[list[int] | None, typer.Option(min=1, max=32, help="Only this: do rows that are all new keep a link of so "
                                                    "many lanes full? May be repeated; 18 lanes take three minutes.")] = None,
):
    """Measure speed: link use, latencies, merging, simulation rate. Exit code 1 when a target is missed."""
    from sim.bench_lanes import line_rate
    from sim.bench_speed import measure, speed_table

    lines = [line for count in lanes for line in line_rate(count)] if lanes else measure(quick=quick)
    table_console().print(speed_table(lines))
    output.mkdir(parents=True, exist_ok=True)
    (output / "bench.json").write_text(json.dumps([line.as_dict() for line in lines], indent=1) + "\n")
    if not all(line.met for line in lines):
        raise typer.Exit(1)


def lanes(
    trace: Annotated[Path | None, typer.Option(help="Routing log (JSON lines) in place of made-up routing.")] = None,
    model: Annotated[str, typer.Option(help="Without a log: shape of the layer.")] = "deepseek-v3",
    ranks: Annotated[int, typer.Option(min=2, help="GPUs.")] = 8,
    count: Annotated[int, typer.Option("--lanes", min=1, help="Lanes of each GPU's link.")] = 18,
    seed: Annotated[int, typer.Option(help="Of made-up routing.")] = 1,
):
    """Show how much of its link a rank can use, by tokens per rank and by what the RowIDs are.

    The mean over lanes divided by the fullest lane, of the rows to other ranks; the mean over ranks, and over at most eight
    runs of tokens that the log has room for.
    """
    try:
        whole = read_trace(trace) if trace else None
        shape = model_of(model)
    except (ConfigError, TraceError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    table = Table("tokens per rank", *(f"RowID by {name}, %" for name in NUMBERINGS),
                  title=f"use of {count} lanes: {trace.name if trace else shape.name}, {ranks} ranks")
    for tokens in LANE_TOKENS:
        total = ranks * tokens
        if whole is None:
            runs = [generate(tokens=total, top_k=shape.top_k, experts=shape.experts, seed=seed + n) for n in range(LANE_RUNS)]
        else:
            runs = [whole.window(n * total, total) for n in range(min(LANE_RUNS, whole.tokens // total))]
        if runs:
            means = (sum(lane_use(run, ranks, count, name).mean() for run in runs) / len(runs) for name in NUMBERINGS)
            table.add_row(str(tokens), *(f"{100 * mean:.1f}" for mean in means))
    table_console().print(table)
