# SPDX-License-Identifier: Apache-2.0
"""What the expert part of a training step takes, forward and backward, and what recomputing and
late gradients of weights change."""

from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.study import HUB, Report, grid, rows_of, systems_of, tokens_of

from .shared import by_model, cases

__all__ = ["STEPS", "training_points", "training_report"]

#: Programs, the plain step first.
STEPS = ("step", "step, activation", "step, layer", "step, delayed", "forward beside")
SYSTEMS = ("megatron", "deepep_v1_normal", "deepep_v2", "expert_flags", "moe_hub_by_expert")
MODELS = ("mixtral-8x7b", "qwen2-moe-2.7b")  # others by name: DeepSeek-V3 takes ten times as long
TOKENS = (8192,)


def training_points(options):
    return [
        point
        for program in STEPS
        for point in grid(
            options,
            systems_of(options, SYSTEMS),
            options.models or MODELS,
            tokens_of(options, TOKENS),
            program=program,
        )
    ]


def training_report(options, results):
    points = training_points(options)
    summary = []
    for (model, tokens, system), own in cases(
        points, lambda p: (p.model, p.tokens, p.system)
    ).items():
        times = {point.program: results[point].us for point in own}
        best = min(("step", "step, delayed", "forward beside"), key=times.get)
        summary.append(
            {"model": model, "tokens": tokens, "system": system}
            | {f"{name}, us": times[name] for name in STEPS}
            | {"best": best, "best, us": times[best], "best over step": times[best] / times["step"]}
        )
    hub = {(row["model"], row["tokens"]): row for row in summary if row["system"] == HUB}
    for row in summary:
        mine = hub[row["model"], row["tokens"]]
        row["step over the hub's"] = row["step, us"] / mine["step, us"]
        row["best over the hub's best"] = row["best, us"] / mine["best, us"]
    panels = [
        Panel(
            title=f"{model}, {tokens:,} tokens",
            kind="bars",
            x=tuple(row["system"] for row in own),
            series={name: tuple(row[f"{name}, us"] for row in own) for name in STEPS},
            ylabel="µs, forward and backward",
        )
        for model, of_model in by_model(summary).items()
        for tokens, own in _by_tokens(of_model)
    ]
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title="Expert part of a training step", panels=panels),
        notes=[
            "forward, backward and gradients of weights of one layer; nothing recomputed in step, "
            "step, delayed and forward beside, of which best is the fastest"
        ],
    )


def _by_tokens(rows):
    return cases(rows, lambda row: row["tokens"]).items()
