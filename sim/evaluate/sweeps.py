# SPDX-License-Identifier: Apache-2.0
"""Sweeps beyond the paper's figures: skew and real routing, GPUs, links, shapes of models, Pangu
Ultra MoE."""

from dataclasses import replace

import numpy as np

from sim.evaluate.machine.workload import TYPICAL_SKEW
from sim.evaluate.page.charts import Panel, Plot
from sim.workload.models import EVALUATED
from sim.workload.models import model as shape
from sim.workload.traces import read_trace

from .runner import workload_of
from .study import (
    HUB,
    Report,
    forward,
    grid,
    mean,
    models_of,
    rows_of,
    speedup,
    systems_of,
    tokens_of,
)

__all__ = [
    "gpu_points",
    "link_points",
    "pangu_points",
    "pangu_report",
    "shape_points",
    "shape_report",
    "skew_points",
    "trace_points",
    "trace_report",
    "varied_report",
]

LINKS = (200.0, 450.0, 900.0)  # GB/s per GPU and direction
SKEWS = (0.0, 0.01, 0.02, TYPICAL_SKEW, 0.04, 0.05)
PANGU_RANKS = (8, 16, 64)
LARGE_SYSTEMS = (
    "megatron",
    "comet",
    "deepep_v1_normal",
    "deepep_v2",
    "ideal",
)  # those that are used on many GPUs
SHAPE_SYSTEMS = ("megatron", "comet", "deepep_v1_normal", "deepep_v2", "mori", "ideal")


def varied_report(points, key, label, title, log_x=False, group="machine"):
    """Report of a sweep: ``key(point)`` is varied; the table has the mean speed-up for each value
    and each ``group``."""

    def means(layers, systems, results):
        return {
            system: mean(speedup(results, p) for p in layers if p.system == system)
            for system in systems
        }

    def report(options, results):
        layers = points(options)
        systems = [
            system for system in dict.fromkeys(point.system for point in layers) if system != HUB
        ]
        cases = dict.fromkeys((getattr(point, group), key(point)) for point in layers)
        summary = [
            {group: name, label: value}
            | means(
                [p for p in layers if (getattr(p, group), key(p)) == (name, value)],
                systems,
                results,
            )
            for name, value in cases
        ]
        panels = []
        for model in dict.fromkeys(point.model for point in layers):
            own = [point for point in layers if point.model == model]
            values = tuple(dict.fromkeys(key(point) for point in own))
            at = [means([p for p in own if key(p) == value], systems, results) for value in values]
            panels.append(
                Panel(
                    title=f"{model}, {own[0].machine}",
                    kind="lines",
                    x=values,
                    xlabel=label,
                    log_x=log_x,
                    line=1.0,
                    series={s: tuple(row[s] for row in at) for s in systems},
                    ylabel="speed-up of the hub",
                )
            )
        return Report(
            rows=rows_of(results, layers),
            summary=summary,
            plot=Plot(title=title, panels=panels, columns=2),
            notes=["a system's time over the hub's, mean over models and tokens"],
        )

    return report


def skew_points(options):
    return [
        point
        for skew in SKEWS
        for point in grid(
            options, systems_of(options), models_of(options), tokens_of(options, (8192,)), skew=skew
        )
    ]


def link_points(options):
    return [
        point
        for link in LINKS
        for point in grid(
            options,
            systems_of(options),
            models_of(options),
            tokens_of(options, (512, 8192, 32768)),
            machine=options.machine or "h800",
            fabric=(("link_gbps", link),),
        )
    ]


def gpu_points(options):
    """1,024 tokens per GPU on the paper's machine; 256 on an NVL72 for a model with experts for all
    of them."""
    points = []
    for model in models_of(options):
        for ranks in [options.ranks] if options.ranks else (2, 4, 8, 16):
            if ranks <= shape(model).experts:
                points += grid(
                    options,
                    systems_of(options),
                    (model,),
                    tokens_of(options, (1024 * ranks,)),
                    ranks=ranks,
                )
    if not options.models and not options.ranks:
        for ranks in (8, 16, 32, 64, 72):
            points += grid(
                options,
                systems_of(options, LARGE_SYSTEMS),
                ("deepseek-v3",),
                (256 * ranks,),
                ranks=ranks,
                machine="gb200_nvl72",
            )
    return points


def trace_points(options):
    points = []
    for path in options.traces:
        routing = read_trace(path)
        wanted = routing.num_experts, routing.top_k
        fitting = [name for name in EVALUATED if (shape(name).experts, shape(name).top_k) == wanted]
        if not fitting:
            raise ValueError(
                f"{path}: no model of models.toml has top-{routing.top_k} of "
                f"{routing.num_experts} experts"
            )
        points += grid(options, systems_of(options), (fitting[0],), (0,), trace=str(path))
    return points


def trace_report(options, results):
    points = trace_points(options)
    summary = []
    for model in dict.fromkeys(point.model for point in points):
        own = [point for point in points if point.model == model]
        load = workload_of(own[0])
        summary.append(
            {
                "model": model,
                "tokens": load.tokens,
                "busiest rank over mean": load.imbalance,
                "skew": load.measured_skew,
                "hub, us": results[own[-1]].us,
            }
            | {point.system: speedup(results, point) for point in own[:-1]}
        )
    panel = Panel(
        title="real routing",
        kind="bars",
        x=tuple(row["model"] for row in summary),
        line=1.0,
        series={s: tuple(row[s] for row in summary) for s in systems_of(options)[:-1]},
        ylabel="speed-up of the hub",
    )
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title="Routing of real models", panels=[panel]),
    )


def shape_points(options):
    names = options.models or EVALUATED
    return grid(
        options,
        systems_of(options, SHAPE_SYSTEMS),
        names,
        tokens_of(options, (4096,)),
        machine=options.machine or "h800",
    )


def shape_report(options, results):
    points = shape_points(options)
    summary = []
    for point in points:
        if point.system != HUB:
            continue
        load, model = workload_of(point), shape(point.model)
        off = ~np.eye(point.ranks, dtype=bool)
        rows, distinct = int(load.pair_rows[off].sum()), int(load.distinct[off].sum())
        summary.append(
            {
                "model": point.model,
                "tokens": point.tokens,
                "top-k": model.top_k,
                "experts": model.experts,
                "rows per expert, MB": rows * model.dispatch_bytes / 1e6,
                "rows per rank, MB": distinct * model.dispatch_bytes / 1e6,
                "ratio": load.duplication,
                "hub, us": results[point].us,
            }
            | {
                other.system: speedup(results, other)
                for other in points
                if (other.model, other.tokens) == (point.model, point.tokens)
                and other.system != HUB
            }
        )
    systems = [system for system in systems_of(options, SHAPE_SYSTEMS) if system != HUB]
    ordered = sorted(summary, key=lambda row: row["ratio"])
    panels = [
        Panel(
            title="bytes: one row per expert over one row per rank",
            kind="bars",
            x=tuple(r["model"] for r in ordered),
            series={"dispatch bytes": tuple(r["ratio"] for r in ordered)},
            ylabel="ratio of bytes",
            line=1.0,
        ),
        Panel(
            title="speed-up of the hub",
            kind="bars",
            x=tuple(r["model"] for r in ordered),
            ylabel="a system's time over the hub's",
            line=1.0,
            series={system: tuple(r[system] for r in ordered) for system in systems},
        ),
    ]
    return Report(
        rows=[
            row | {"duplication": next(s["ratio"] for s in summary if s["model"] == row["model"])}
            for row in rows_of(results, points)
        ],
        summary=summary,
        notes=[
            "dispatch bytes on links, all ranks; a system that de-duplicates sends a token "
            "once per rank"
        ],
        plot=Plot(title=f"Shapes of models, 8 GPUs, {points[0].machine}", panels=panels, columns=1),
    )


def pangu_points(options):
    name = options.machine or "gb200_nvl72"
    points = []
    for ranks in [options.ranks] if options.ranks else PANGU_RANKS:
        points += grid(
            options,
            systems_of(options, LARGE_SYSTEMS),
            ("pangu-ultra-moe-718b",),
            tokens_of(options, tuple(ranks * count for count in (128, 512))),
            ranks=ranks,
            machine=name,
        )
    return points


def pangu_report(options, results):
    points = pangu_points(options)
    summary = [
        {
            "ranks": p.ranks,
            "tokens": p.tokens,
            "system": p.system,
            "layer, us": results[p].us,
            "forward, ms": forward(results, p) / 1e3,
            "speed-up of hub, layer": speedup(results, p),
            "end to end": forward(results, p) / forward(results, replace(p, system=HUB)),
        }
        for p in points
    ]
    panels = []
    for ranks in dict.fromkeys(p.ranks for p in points):
        own = [p for p in points if p.ranks == ranks]
        panels.append(
            Panel(
                title=f"{ranks} GPUs",
                kind="bars",
                x=tuple(dict.fromkeys(p.tokens for p in own)),
                line=1.0,
                series={
                    s: tuple(speedup(results, p) for p in own if p.system == s)
                    for s in systems_of(options, LARGE_SYSTEMS)[:-1]
                },
                xlabel="tokens, all GPUs",
                ylabel="speed-up of the hub, layer",
            )
        )
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title="Pangu Ultra MoE, 718B", panels=panels),
    )
