# SPDX-License-Identifier: Apache-2.0
"""What switches that copy rows and add answers up would be worth: with DySHARP's kernel, with
NVLink SHARP as it is, and on top of the hub.

Four hubs that are not built say what is due to which: a row once to each GPU; the same through the
switch; the same in one token-centric kernel; both. One routing.
"""

from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.study import HUB, IN_SWITCH, Report, grid, rows_of, speedup, systems_of

__all__ = ["in_switch_points", "in_switch_report"]

SYSTEMS = ("deepep_v1_normal", "deepep_v2", "moe_hub_once", *IN_SWITCH)
MODELS = ("gpt-oss-120b", "deepseek-v3")
#: (machine, GPUs, tokens per GPU): DySHARP's, and the one that is judged.
CASES = (("h800", 8, (128, 1024)), ("gh200_nvl32", 32, (512,)))


def in_switch_points(options):
    return [
        point
        for machine, ranks, counts in CASES
        if options.machine in ("", machine)
        for point in grid(
            options,
            systems_of(options, SYSTEMS),
            options.models or MODELS,
            options.tokens or [(options.ranks or ranks) * count for count in counts],
            **{"machine": machine, "ranks": options.ranks or ranks},
        )
    ] or grid(
        options, systems_of(options, SYSTEMS), options.models or MODELS, options.tokens or (8192,)
    )


def in_switch_report(options, results):
    points = in_switch_points(options)
    cases = {}
    for point in points:
        cases.setdefault((point.machine, point.ranks, point.model, point.tokens), []).append(point)
    summary = []
    for (machine, ranks, model, tokens), own in cases.items():
        hub = next(results[point] for point in own if point.system == HUB)
        others = [point for point in own if point.system != HUB]
        summary.append(
            {
                "machine": machine,
                "GPUs": ranks,
                "model": model,
                "tokens per GPU": tokens // ranks,
                "hub, us": hub.us,
                "hub, wire bytes per token": hub.wire_bytes / tokens,
            }
            | {point.system: speedup(results, point) for point in others}
            | {
                f"{point.system}, wire bytes": results[point].wire_bytes / hub.wire_bytes
                for point in others
            }
        )
    systems = systems_of(options, SYSTEMS)[:-1]
    panels = [
        Panel(
            title=what,
            kind="bars",
            x=tuple(
                f"{row['GPUs']} x {row['machine']}\n{row['model']}, {row['tokens per GPU']}"
                for row in summary
            ),
            line=1.0,
            series={s: tuple(row[f"{s}{which}"] for row in summary) for s in systems},
            ylabel=label,
        )
        for what, which, label in (
            ("time", "", "a system's time over the hub's"),
            ("bytes on the links", ", wire bytes", "a system's bytes over the hub's"),
        )
    ]
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title="Switches that copy and add", panels=panels, columns=1),
        notes=["a system's time over the hub's: below 1 it is faster"],
    )
