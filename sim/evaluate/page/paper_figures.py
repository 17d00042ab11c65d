# SPDX-License-Identifier: Apache-2.0
"""The paper's figures: layer and end-to-end speed-up by system, layer time over tokens,
ablation."""

from dataclasses import replace

from sim.evaluate.end_to_end import has_attention
from sim.evaluate.study import (
    ABLATIONS,
    HUB,
    Report,
    forward,
    grid,
    mean,
    models_of,
    paper,
    rows_of,
    speedup,
    systems_of,
    tokens_of,
)
from sim.workload.models import model as shape

from .charts import Panel, Plot
from .numbers import NAMES

__all__ = [
    "ablation_points",
    "ablation_report",
    "end_report",
    "layer_report",
    "main_points",
    "tokens_report",
]


def main_points(options):
    machines = (options.machine,) if options.machine else ("h800_400", "h800")
    return [
        point
        for name in machines
        for point in grid(
            options, systems_of(options), models_of(options), tokens_of(options), machine=name
        )
    ]


def _against_paper(options, points, ratio, metric):
    """Averages per system beside the paper's."""
    rows = []
    for name in dict.fromkeys(point.machine for point in points):
        for system in systems_of(options)[:-1]:
            ratios = [
                ratio(point) for point in points if (point.machine, point.system) == (name, system)
            ]
            theirs = paper()[1].get((metric, system))
            rows.append(
                {
                    "machine": name,
                    "hub over": system,
                    "mean": mean(ratios),
                    "smallest": min(ratios),
                    "largest": max(ratios),
                    "paper": theirs,
                    "error, %": theirs and 100 * (mean(ratios) / theirs - 1),
                }
            )
    return rows


def _by_tokens(options, points, value, **panel):
    """One panel per model, tokens across, one line per system; of the first machine."""
    panels, first = [], [point for point in points if point.machine == points[0].machine]
    for model in models_of(options):
        series = {
            system: tuple(
                value(point) for point in first if (point.model, point.system) == (model, system)
            )
            for system in systems_of(options)
        }
        panels.append(
            Panel(
                title=model, x=tokens_of(options), series=series, xlabel="tokens, all GPUs", **panel
            )
        )
    return panels


def layer_report(options, results):
    points = main_points(options)
    base = "megatron" if "megatron" in systems_of(options) else HUB
    panels = _by_tokens(
        options,
        points,
        lambda point: results[replace(point, system=base)].us / results[point].us,
        kind="bars",
        line=1.0,
        ylabel=f"speed-up over {NAMES[base]}",
    )
    return Report(
        rows=rows_of(results, points),
        plot=Plot(title="MoE layer, 8 GPUs", panels=panels),
        summary=_against_paper(
            options, points, lambda point: speedup(results, point), "layer_speedup"
        ),
    )


def tokens_report(options, results):
    points = main_points(options)
    machine_name = points[0].machine
    summary = [
        {"model": model, "system": system}
        | {
            f"{p.tokens}": results[p].us
            for p in points
            if (p.machine, p.model, p.system) == (machine_name, model, system)
        }
        for model in models_of(options)
        for system in systems_of(options)
    ]
    panels = _by_tokens(
        options,
        points,
        lambda point: results[point].us,
        kind="lines",
        log_x=True,
        log_y=True,
        ylabel="layer, µs",
    )
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        notes=[f"microseconds, {machine_name}"],
        plot=Plot(title=f"MoE layer over tokens, 8 GPUs, {machine_name}", panels=panels),
    )


def end_report(options, results):
    points = [point for point in main_points(options) if has_attention(shape(point.model))]

    def ratio(point):
        return forward(results, point) / forward(results, replace(point, system=HUB))

    rows = [
        {
            "machine": point.machine,
            "model": point.model,
            "tokens": point.tokens,
            "system": point.system,
            "forward_us": forward(results, point),
            "layer_us": results[point].us,
            "speedup_of_hub": ratio(point),
        }
        for point in points
    ]
    base = "megatron" if "megatron" in systems_of(options) else HUB
    kept = replace(options, models=tuple(dict.fromkeys(point.model for point in points)))
    panels = _by_tokens(
        kept,
        points,
        lambda p: forward(results, replace(p, system=base)) / forward(results, p),
        kind="bars",
        line=1.0,
        ylabel=f"speed-up over {NAMES[base]}",
    )
    return Report(
        rows=rows,
        summary=_against_paper(options, points, ratio, "end_to_end_speedup"),
        plot=Plot(title="Forward pass of the whole model, 8 GPUs", panels=panels),
    )


def ablation_points(options):
    machines = (options.machine,) if options.machine else ("h800_400", "h800")
    return [
        point
        for name in machines
        for point in grid(
            options,
            ABLATIONS,
            models_of(options),
            tokens_of(options, (128, 512, 2048, 8192, 32768)),
            machine=name,
        )
    ]


def ablation_report(options, results):
    points = ablation_points(options)

    def gain(point):
        return results[replace(point, system=ABLATIONS[0])].us / results[point].us

    summary = [
        {"machine": name, "tokens": tokens}
        | {
            system: mean(
                gain(p) for p in points if (p.machine, p.tokens, p.system) == (name, tokens, system)
            )
            for system in ABLATIONS
        }
        for name in dict.fromkeys(p.machine for p in points)
        for tokens in dict.fromkeys(p.tokens for p in points)
    ]
    first = [point for point in points if point.machine == points[0].machine]
    tokens = tuple(dict.fromkeys(point.tokens for point in first))
    panels = [
        Panel(
            title=model,
            kind="bars",
            x=tokens,
            xlabel="tokens, all GPUs",
            ylabel="speed-up over the base",
            line=1.0,
            series={
                s: tuple(gain(p) for p in first if (p.model, p.system) == (model, s))
                for s in ABLATIONS
            },
        )
        for model in models_of(options)
    ]
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        notes=["speed-up over the base, mean over models"],
        plot=Plot(title=f"What each part of the hub gives, {points[0].machine}", panels=panels),
    )
