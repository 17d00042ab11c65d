# SPDX-License-Identifier: Apache-2.0
"""How much of the communication software can hide with two micro-batches or a shared expert, and at
which price."""

from sim.evaluate.machine.compute import expert_gemms, gate_us, grouped_gemm_us, pass_us
from sim.evaluate.page.charts import Plot
from sim.evaluate.pipelines.overlap import dense, shared
from sim.evaluate.runner import machine_of, workload_of
from sim.evaluate.study import HUB, Report, grid, rows_of, systems_of, tokens_of
from sim.workload.models import model as shape

from .shared import BASELINE_MODELS, by_model, cases, lines_over

__all__ = ["OVERLAPS", "compute_us", "overlap_points", "overlap_report"]

#: Programs, the first without any overlap but the system's own.
OVERLAPS = ("one stream", "shared expert", "two halves", "two batches")
SYSTEMS = (
    "megatron",
    "deepep_v1_normal",
    "deepep_v1_ll",
    "deepep_v2",
    "expert_flags",
    "moe_hub_by_expert",
)
TOKENS = (128, 1024, 8192)


def _programs(model):
    """Those that a model has something for."""
    return [name for name in OVERLAPS if name != "shared expert" or shape(model).shared]


def overlap_points(options):
    return [
        point
        for model in options.models or BASELINE_MODELS
        for program in _programs(model)
        for point in grid(
            options,
            systems_of(options, SYSTEMS),
            [model],
            tokens_of(options, TOKENS),
            program=program,
        )
    ]


def compute_us(point):
    """A layer's kernels alone, one after the other without gaps, on the busiest rank: attention and
    shared experts, gate, GEMMs, activation, sum. Microseconds."""
    made, work = machine_of(point), workload_of(point)
    gpu, first, second = made.gpu, *expert_gemms(work.shape)

    def rank_us(rank):
        rows, tokens = work.rows_at(rank), int(work.tokens_of[rank])
        beside = dense(gpu, work.shape, tokens, 2) + shared(work.shape, tokens)
        return (
            sum(kernel.us(gpu) for kernel in beside)
            + gate_us(gpu, work.shape, tokens)
            + grouped_gemm_us(gpu, first, rows)
            + pass_us(gpu, int(rows.sum()) * 6 * work.shape.inter)
            + grouped_gemm_us(gpu, second, rows)
            + pass_us(gpu, tokens * (work.shape.top_k + 1) * work.shape.combine_bytes)
        )

    return max(rank_us(rank) for rank in range(made.ranks))


def overlap_report(options, results):
    points = overlap_points(options)
    summary, kernels = [], {}
    for (model, tokens, system), own in cases(
        points, lambda p: (p.model, p.tokens, p.system)
    ).items():
        times = {point.program: results[point].us for point in own}
        if (model, tokens) not in kernels:
            kernels[model, tokens] = compute_us(own[0])
        alone, one = kernels[model, tokens], times[OVERLAPS[0]]
        best = min(times, key=times.get)
        summary.append(
            {"model": model, "tokens": tokens, "system": system, "compute alone, us": alone}
            | {f"{name}, us": times.get(name) for name in OVERLAPS}
            | {
                "best": best,
                "best, us": times[best],
                "best over one stream": times[best] / one,
                "hidden by it, %": 100 * (one - times[best]) / (one - alone),
            }
        )
    hub = {(row["model"], row["tokens"]): row for row in summary if row["system"] == HUB}
    for row in summary:
        mine = hub[row["model"], row["tokens"]]
        row["one stream over the hub's"] = row["one stream, us"] / mine["one stream, us"]
        row["best over the hub's best"] = row["best, us"] / mine["best, us"]
        row["best over the hub's one stream"] = row["best, us"] / mine["one stream, us"]
    panels = lines_over(
        by_model(summary),
        "tokens",
        lambda row: row["two batches, us"] / row["one stream, us"],
        xlabel="tokens over all GPUs",
        ylabel="two micro-batches over one stream",
        line=1.0,
    )
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title="Time of a layer in two micro-batches", panels=panels),
        notes=[
            "hidden by it: what the best form saves, of what one stream takes beside its kernels; "
            "where it is 0, one stream is the best form"
        ],
    )
