# SPDX-License-Identifier: Apache-2.0
"""What the best software could do on the same links, and what another order of rows or one row per
GPU would be worth."""

from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.study import (
    HUB,
    PAPER_SYSTEMS,
    Report,
    grid,
    mean,
    rows_of,
    speedup,
    systems_of,
    tokens_of,
)

from .shared import (
    BASELINE_MODELS,
    BASELINES,
    GRAPHLESS,
    HOSTS,
    by_model,
    cases,
    host_of,
    launchable,
)

__all__ = ["SEEDS", "baseline_points", "baseline_report"]

SEEDS = 5
BASELINE_TOKENS = (8, 128, 1024, 8192)
HOST_TOKENS = 1024  # up to here the host is asked about: behind it no layer waits for one


def baseline_points(options):
    return [
        point
        for host, constants in HOSTS.items()
        for seed in range(options.seed, options.seed + SEEDS)
        for point in grid(
            options,
            launchable(options, (*PAPER_SYSTEMS, *BASELINES), host),
            options.models or BASELINE_MODELS,
            [
                count
                for count in tokens_of(options, BASELINE_TOKENS)
                if count >= (options.ranks or 8) and (host == "graph" or count <= HOST_TOKENS)
            ],
            constants=constants,
            seed=seed,
        )
    ]


def baseline_report(options, results):
    points = baseline_points(options)
    systems = systems_of(options, (*PAPER_SYSTEMS, *BASELINES))[:-1]
    summary = []
    for (model, tokens, host), own in cases(
        points, lambda p: (p.model, p.tokens, host_of(p))
    ).items():
        times = [results[point].us for point in own if point.system == HUB]
        summary.append(
            {
                "model": model,
                "tokens": tokens,
                "host": host,
                "hub, us": mean(times),
                "hub, range %": 100 * (max(times) / min(times) - 1),
            }
            | {
                system: mean(speedup(results, p) for p in own if p.system == system)
                for system in systems
            }
        )
        summary[-1]["best flags over best order"] = _best(summary[-1])
    graphs = [row for row in summary if row["host"] == "graph"]
    panels = [
        Panel(
            title=model,
            kind="lines",
            x=tuple(row["tokens"] for row in own),
            xlabel="tokens over all GPUs",
            log_x=True,
            line=1.0,
            series={
                system: tuple(row[system] for row in own)
                for system in systems
                if system not in GRAPHLESS
            },
            ylabel="a system's time over the hub's",
        )
        for model, own in by_model(graphs).items()
    ]
    return Report(
        rows=[
            row | {"host": host_of(point)}
            for row, point in zip(rows_of(results, points), points, strict=True)
        ],
        summary=summary,
        plot=Plot(title="The best software, and other hubs, CUDA graphs", panels=panels),
        notes=[f"a system's time over the hub's, mean of {SEEDS} routings; who launches: host"],
    )


def _best(row):
    """The faster of the two flags over the hub with the better of its two orders; None where one
    was not asked for."""
    try:
        return min(row["row_flags"], row["expert_flags"]) / min(1.0, row["moe_hub_by_expert"])
    except KeyError:
        return None
