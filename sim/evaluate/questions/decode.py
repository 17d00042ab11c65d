# SPDX-License-Identifier: Apache-2.0
"""What a token waits for in decode: percentiles of a layer and of all layers of a model, over
routing that drifts, of ranks that begin together or not."""

import numpy as np

from sim.evaluate.machine.hardware import load_data
from sim.evaluate.page.charts import Plot
from sim.evaluate.study import HUB, Report, grid, rows_of, tokens_of
from sim.workload.models import model as shape

from .shared import HOSTS, by_model, cases, launchable, lines_over

__all__ = ["DRAWS", "PERCENTILES", "decode_points", "decode_report", "delays", "jitters"]

DECODE_MODELS = ("deepseek-v3", "kimi-k2", "qwen3-235b-a22b", "gpt-oss-120b")
DECODE_TOKENS = (1, 8, 64, 256)  # per GPU
DECODE_SYSTEMS = ("row_flags", "expert_flags", "moe_hub_by_expert", "deepep_v1_ll", "deepep_v2")
DRIFT = (0.01, 0.02, 0.032, 0.04)  # skews that the routing passes through
DRAWS = 16  # layers of a point, at the skews in turn
TOKENS = 2000  # made of layers that are drawn from these
PERCENTILES = 50, 95, 99
JITTER = 0x117  # of the seed: other numbers than those of a layer's routing
JITTER_MODELS, JITTER_TOKENS = ("deepseek-v3", "gpt-oss-120b"), (8,)
MEASURED_RANKS = 8


def jitters():
    """Mean delays of a rank, microseconds, at which the last of eight comes as far behind the first
    as it was measured: of n exponential delays those two are apart by 1 + 1/2 + ... + 1/(n - 1)
    means."""
    apart = sum(1 / n for n in range(1, MEASURED_RANKS))
    return tuple(entry["value"] / apart for entry in load_data("questions.toml")["jitter"].values())


def delays(seed, ranks, mean_us):
    """Microseconds that each rank begins behind the first; none where the mean is 0. Same
    arguments, same delays; twice the mean, twice the delays."""
    if not mean_us:
        return ()
    drawn = np.random.default_rng([seed, JITTER]).exponential(mean_us, ranks)
    return tuple(round(float(us), 3) for us in drawn - drawn.min())


def _draws(options):
    return [
        (options.seed + draw, DRIFT[draw % len(DRIFT)] if options.skew is None else options.skew)
        for draw in range(DRAWS)
    ]


def _by_jitter(options):
    """{mean delay: points}: that which was asked for; else none, and with fewer points those that
    were measured."""
    ranks = options.ranks or 8
    asked = {options.jitter or 0.0: (DECODE_MODELS, DECODE_TOKENS)}
    if options.jitter is None:
        asked |= dict.fromkeys(jitters(), (JITTER_MODELS, JITTER_TOKENS))
    return {
        mean_us: [
            point
            for seed, skew in _draws(options)
            for point in grid(
                options,
                launchable(options, DECODE_SYSTEMS),
                options.models or models,
                tokens_of(options, tuple(ranks * count for count in tokens)),
                constants=HOSTS["graph"],
                seed=seed,
                skew=skew,
                delays=delays(seed, ranks, mean_us),
            )
        ]
        for mean_us, (models, tokens) in asked.items()
    }


def decode_points(options):
    return [point for points in _by_jitter(options).values() for point in points]


def decode_report(options, results):
    points = decode_points(options)
    summary = [
        row
        for jitter, own in _by_jitter(options).items()
        for row in _rows(options, results, jitter, own)
    ]
    calm = [row for row in summary if row["jitter, us"] == summary[0]["jitter, us"]]
    panels = lines_over(
        by_model(calm),
        "tokens per GPU",
        lambda row: row["token p99, ms"],
        xlabel="tokens per GPU",
        ylabel="expert layers of a token, p99, ms",
    )
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title=f"Decode, {points[0].ranks} GPUs, CUDA graphs", panels=panels),
        notes=[
            f"{DRAWS} layers with skews {', '.join(f'{skew:g}' for skew in DRIFT)} in turn",
            f"a token is all expert layers of a model, drawn from these {TOKENS:,} times",
            "jitter: mean delay with which a GPU begins a layer; a layer is timed from the first",
        ],
    )


def _rows(options, results, jitter, points):
    """Of the points with one jitter."""
    summary, percentile = [], {}
    for (model, tokens, system), own in cases(
        points, lambda p: (p.model, p.tokens, p.system)
    ).items():
        times = np.array([results[point].us for point in own])
        rng = np.random.default_rng(options.seed)  # of all systems the same draws
        drawn = rng.integers(len(times), size=(TOKENS, shape(model).moe_layers))
        whole = times[drawn].sum(axis=1) / 1e3
        layer, token = np.percentile(times, PERCENTILES), np.percentile(whole, PERCENTILES)
        percentile[model, tokens, system] = float(token[0]), float(token[-1])
        summary.append(
            {
                "model": model,
                "GPUs": own[0].ranks,
                "tokens per GPU": tokens // own[0].ranks,
                "jitter, us": jitter,
                "system": system,
                "tokens": tokens,
            }
            | {f"layer p{p}, us": float(us) for p, us in zip(PERCENTILES, layer, strict=True)}
            | {f"token p{p}, ms": float(ms) for p, ms in zip(PERCENTILES, token, strict=True)}
        )
    for row in summary:
        case = row["model"], row["tokens"]
        for name, at in (("hub over it, p50", 0), ("hub over it, p99", 1)):
            row[name] = percentile[*case, row["system"]][at] / percentile[*case, HUB][at]
        del row["tokens"]
    return summary
