# SPDX-License-Identifier: Apache-2.0
"""A rank late or gone: how much of its delay the others see at their layer's end, and what they can
do with the rows that are there when it never comes."""

from math import inf

import numpy as np

from sim.evaluate.page.charts import Plot
from sim.evaluate.runner import workload_of
from sim.evaluate.study import Report, grid, systems_of

from .shared import cases, hosted, lines_over

__all__ = ["DELAYS", "LATE", "late_points", "late_report"]

LATE = 0  # the rank
DELAYS = (0.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, inf)  # microseconds; the last never comes
CASES = (("deepseek-v3", 512), ("mixtral-8x7b", 8192))  # decode, and much to do for each expert
SYSTEMS = (
    "megatron",
    "comet",
    "deepep_v1_normal",
    "deepep_v1_ll",
    "deepep_v2",
    "row_flags",
    "expert_flags",
    "moe_hub_by_expert",
)


def late_points(options):
    """CUDA graphs where a system can be one, a host in C++ where it waits for its host."""
    asked = [
        (model, count)
        for model in options.models or (dict(CASES) if not options.tokens else (CASES[0][0],))
        for count in options.tokens or (dict(CASES).get(model, CASES[0][1]),)
    ]
    return [
        point
        for model, count in asked
        for system in systems_of(options, SYSTEMS)
        for us in DELAYS
        for point in grid(
            options,
            (system,),
            (model,),
            (count,),
            constants=hosted(system),
            delays=tuple(us if rank == LATE else 0.0 for rank in range(options.ranks or 8)),
        )
    ]


def _others(ends):
    """Of the ranks that were on time."""
    return [us for rank, us in enumerate(ends) if rank != LATE]


def _usable(result):
    """Percentage of the rows that the others sent each other with which an expert could begin."""
    sent = np.delete(np.delete(workload_of(result.point).pair_rows, LATE, 0), LATE, 1).sum()
    return 100 * min(1.0, sum(_others(result.usable_rows)) / int(sent))


def _share(after, before, us):
    return 100 * (after - before) / us if 0 < us < inf else None


def late_report(options, results):
    points, summary = late_points(options), []
    for (model, tokens, system), own in cases(
        points, lambda p: (p.model, p.tokens, p.system)
    ).items():
        on_time = results[own[0]]
        middle = float(np.median(_others(on_time.rank_us)))
        for point in own:
            result, us = results[point], point.delays[LATE]
            median, comes = float(np.median(_others(result.rank_us))), us < inf
            summary.append(
                {
                    "model": model,
                    "tokens": tokens,
                    "system": system,
                    "delay, us": us if comes else "never",
                    "median of the others, us": median if comes else None,
                    "slowest, us": result.us if comes else None,
                    "of it at the median, %": _share(median, middle, us),
                    "of it at the slowest, %": _share(result.us, on_time.us, us),
                    "of it at the first rows, %": _share(
                        result.first_ready_us, on_time.first_ready_us, us
                    ),
                    "usable rows, %": 100.0 if comes else _usable(result),
                }
            )
    shown = [
        row | {"delay, us": int(row["delay, us"])}
        for row in summary
        if row["delay, us"] not in (0.0, "never")
    ]
    panels = lines_over(
        cases(shown, lambda row: f"{row['model']}, {row['tokens']:,} tokens"),
        "delay, us",
        lambda row: row["of it at the median, %"],
        xlabel="µs that one GPU begins late",
        ylabel="% of it at the end of the median GPU",
        line=100.0,
    )
    return Report(
        rows=[results[point].row() for point in points],
        summary=summary,
        plot=Plot(title="One GPU begins late, the others are on time", panels=panels),
        notes=[
            f"GPU {LATE} is late; median of the others, slowest of all; CUDA graphs, or a host in "
            "C++ where a system waits for it",
            "never: usable are rows of the others that an expert of theirs could begin with",
        ],
    )
