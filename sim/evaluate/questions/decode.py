# SPDX-License-Identifier: Apache-2.0
"""What a token waits for in decode: percentiles of a layer and of all layers of a model, over
routing that drifts."""

import numpy as np

from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.study import HUB, Report, grid, rows_of, tokens_of
from sim.workload.models import model as shape

from .shared import HOSTS, by_model, cases, launchable

__all__ = ["DRAWS", "PERCENTILES", "decode_points", "decode_report"]

DECODE_MODELS = ("deepseek-v3", "kimi-k2", "qwen3-235b-a22b", "gpt-oss-120b")
DECODE_TOKENS = (1, 8, 64, 256)  # per GPU
DECODE_SYSTEMS = ("row_flags", "expert_flags", "moe_hub_by_expert", "deepep_v1_ll", "deepep_v2")
DRIFT = (0.01, 0.02, 0.032, 0.04)  # skews that the routing passes through
DRAWS = 16  # layers of a point, at the skews in turn
TOKENS = 2000  # made of layers that are drawn from these
PERCENTILES = 50, 95, 99


def _draws(options):
    return [
        (options.seed + draw, DRIFT[draw % len(DRIFT)] if options.skew is None else options.skew)
        for draw in range(DRAWS)
    ]


def decode_points(options):
    ranks = options.ranks or 8
    return [
        point
        for seed, skew in _draws(options)
        for point in grid(
            options,
            launchable(options, DECODE_SYSTEMS),
            options.models or DECODE_MODELS,
            tokens_of(options, tuple(ranks * count for count in DECODE_TOKENS)),
            constants=HOSTS["graph"],
            seed=seed,
            skew=skew,
        )
    ]


def decode_report(options, results):
    points = decode_points(options)
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
    panels = [
        Panel(
            title=model,
            kind="lines",
            x=tuple(dict.fromkeys(row["tokens per GPU"] for row in own)),
            xlabel="tokens per GPU",
            log_x=True,
            series={
                system: tuple(row["token p99, ms"] for row in own if row["system"] == system)
                for system in dict.fromkeys(row["system"] for row in own)
            },
            ylabel="expert layers of a token, p99, ms",
        )
        for model, own in by_model(summary).items()
    ]
    return Report(
        rows=rows_of(results, points),
        summary=summary,
        plot=Plot(title=f"Decode, {points[0].ranks} GPUs, CUDA graphs", panels=panels),
        notes=[
            f"{DRAWS} layers with skews {', '.join(f'{skew:g}' for skew in DRIFT)} in turn",
            f"a token is all expert layers of a model, drawn from these {TOKENS:,} times",
        ],
    )
