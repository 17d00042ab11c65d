# SPDX-License-Identifier: Apache-2.0
"""The paper's figures: layer and end-to-end speed-up by system, layer time over tokens,
ablation."""

from dataclasses import replace

from sim.evaluate.end_to_end import has_attention
from sim.evaluate.study import (
    ABLATIONS,
    HUB,
    JUDGED,
    PAPER_LINKS,
    PAPER_SYSTEMS,
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


SHOWN = 8  # GPUs of the plots over tokens


def main_points(options):
    """The paper's points, 2 to 16 GPUs, and other systems than the paper's on eight; on the paper's
    links, what hangs on them, eight GPUs."""
    gpus = [options.ranks] if options.ranks else paper()[0]["ranks"]
    cases = [(options.machine or JUDGED, ranks) for ranks in gpus]
    if not options.machine:
        cases.append((PAPER_LINKS, options.ranks or SHOWN))
    return [
        point
        for name, ranks in cases
        for model in models_of(options)
        if ranks <= shape(model).experts
        for point in grid(
            options,
            systems_of(options, None if ranks == (options.ranks or SHOWN) else PAPER_SYSTEMS),
            (model,),
            [tokens for tokens in tokens_of(options) if tokens >= ranks],
            machine=name,
            ranks=ranks,
        )
    ]


def _against_paper(options, points, ratio, metric):
    """Averages per system; of the paper's points on the machine that is judged, beside the
    paper's."""
    rows = []
    for name in dict.fromkeys(point.machine for point in points):
        for system in systems_of(options)[:-1]:
            ratios = [
                ratio(point) for point in points if (point.machine, point.system) == (name, system)
            ]
            judged = name == JUDGED and not options.changed
            theirs = paper()[1].get((metric, system)) if judged else None
            rows.append(
                {
                    "machine": name,
                    "hub over": system,
                    "points": len(ratios),
                    "mean": mean(ratios),
                    "smallest": min(ratios),
                    "largest": max(ratios),
                    "paper": theirs,
                    "error, %": theirs and 100 * (mean(ratios) / theirs - 1),
                }
            )
    return rows


def _shown(points):
    """Those of the first machine with the number of GPUs that plots show."""
    first = [point for point in points if point.machine == points[0].machine]
    ranks = {point.ranks for point in first}
    return [p for p in first if p.ranks == (SHOWN if SHOWN in ranks else max(ranks))]


def _by_tokens(options, points, value, **panel):
    """One panel per model, tokens across, one line per system; of the first machine, eight
    GPUs."""
    panels, first = [], _shown(points)
    for model in models_of(options):
        series = {
            system: tuple(
                value(point) for point in first if (point.model, point.system) == (model, system)
            )
            for system in systems_of(options)
        }
        tokens = tuple(dict.fromkeys(point.tokens for point in first if point.model == model))
        panels.append(
            Panel(title=model, x=tokens, series=series, xlabel="tokens, all GPUs", **panel)
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
    points = _shown(main_points(options))
    machine_name, ranks = points[0].machine, points[0].ranks
    summary = [
        {"model": model, "system": system}
        | {f"{p.tokens}": results[p].us for p in points if (p.model, p.system) == (model, system)}
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
        notes=[f"microseconds, {machine_name}, {ranks} GPUs"],
        plot=Plot(title=f"MoE layer over tokens, {ranks} GPUs, {machine_name}", panels=panels),
    )


def end_report(options, results):
    points = [point for point in main_points(options) if has_attention(shape(point.model))]

    def ratio(point):
        return forward(results, point) / forward(results, replace(point, system=HUB))

    rows = [
        {
            "machine": point.machine,
            "model": point.model,
            "ranks": point.ranks,
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
    """Parts of the hub and COMET, on the machine that is judged and on the paper's links."""
    machines = (options.machine,) if options.machine else (JUDGED, PAPER_LINKS)
    return [
        point
        for name in machines
        for point in grid(
            options, ("comet", *ABLATIONS), models_of(options), tokens_of(options), machine=name
        )
    ]


def ablation_report(options, results):
    """From routing to the end of GEMM1, by length: COMET's time over each."""
    points = ablation_points(options)

    def gain(point):
        return results[replace(point, system="comet")].gemm1_us / results[point].gemm1_us

    machines, systems = dict.fromkeys(p.machine for p in points), ABLATIONS
    summary = [
        {"machine": name, "tokens": tokens}
        | {
            system: mean(
                gain(p) for p in points if (p.machine, p.tokens, p.system) == (name, tokens, system)
            )
            for system in systems
        }
        for name in machines
        for tokens in dict.fromkeys(p.tokens for p in points)
    ]
    first = _shown(points)
    panels = [
        Panel(
            title=model,
            kind="bars",
            x=tuple(dict.fromkeys(point.tokens for point in first)),
            xlabel="tokens, all GPUs",
            ylabel="COMET's time over it",
            line=1.0,
            series={
                s: tuple(gain(p) for p in first if (p.model, p.system) == (model, s))
                for s in systems
            },
        )
        for model in models_of(options)
    ]
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        notes=["from routing to the end of GEMM1: COMET's time over each, mean over models"],
        plot=Plot(title=f"Routing to the end of GEMM1, 8 GPUs, {points[0].machine}", panels=panels),
    )
