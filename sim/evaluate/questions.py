# SPDX-License-Identifier: Apache-2.0
"""Questions that no published figure answers: what the best software could do on the same links,
what another order of rows or one row per GPU would be worth, what a token waits for in decode, and
what its bytes cost on the links.

Times are of several routings; a ratio whose range over them has 1 in it claims nothing.
"""

import numpy as np

from sim.evaluate.machine.hardware import load_data, machine
from sim.evaluate.page.charts import Panel, Plot
from sim.workload.models import model as shape

from .study import (
    ABLATIONS,
    HUB,
    IN_SWITCH,
    JUDGED,
    PAPER_SYSTEMS,
    UNBUILT,
    Report,
    grid,
    mean,
    rows_of,
    speedup,
    systems_of,
    tokens_of,
)

__all__ = [
    "HOSTS",
    "baseline_points",
    "baseline_report",
    "decode_points",
    "decode_report",
    "energy_points",
    "energy_report",
    "host_of",
]

SEEDS = 5
BASELINES = ("deepep_v1_ll", "deepep_v2", "mori", *UNBUILT, "ideal")  # the last sends nothing
BASELINE_MODELS = ("mixtral-8x7b", "qwen2-moe-2.7b", "deepseek-v3")
BASELINE_TOKENS = (8, 128, 1024, 8192)
#: They wait for their host in every layer, so no layer of theirs is a CUDA graph.
GRAPHLESS = (*PAPER_SYSTEMS, "deepep_v1_normal")
HOST_TOKENS = 1024  # up to here the host is asked about: behind it no layer waits for one
#: Who launches the kernels: constants of software, of each point.
HOSTS = {
    "Python": (),
    "C++": (("host", "eager_op_us", machine(JUDGED, 8).gpu.launch_us),),
    "graph": (("host", "graph", 1),),
}
DECODE_MODELS = ("deepseek-v3", "kimi-k2", "qwen3-235b-a22b", "gpt-oss-120b")
DECODE_TOKENS = (1, 8, 64, 256)  # per GPU
DECODE_SYSTEMS = ("row_flags", "expert_flags", "moe_hub_by_expert", "deepep_v1_ll", "deepep_v2")
DRIFT = (0.01, 0.02, 0.032, 0.04)  # skews that the routing passes through
DRAWS = 16  # layers of a point, at the skews in turn
TOKENS = 2000  # made of layers that are drawn from these
PERCENTILES = 50, 95, 99
ENERGY_TOKENS = 8192


def host_of(point):
    """The name in :data:`HOSTS` of who launches a point's kernels."""
    return next(
        name for name in ("graph", "C++", "Python") if set(HOSTS[name]) <= set(point.constants)
    )


def _systems(options, default, host="graph"):
    """The systems to compare, and the hub: those that this host can launch."""
    return tuple(
        system
        for system in systems_of(options, default)
        if host != "graph" or system not in GRAPHLESS
    )


def baseline_points(options):
    return [
        point
        for host, constants in HOSTS.items()
        for seed in range(options.seed, options.seed + SEEDS)
        for point in grid(
            options,
            _systems(options, (*PAPER_SYSTEMS, *BASELINES), host),
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


def _cases(points, key):
    """{key: points}, in their order."""
    found = {}
    for point in points:
        found.setdefault(key(point), []).append(point)
    return found


def baseline_report(options, results):
    points = baseline_points(options)
    systems = systems_of(options, (*PAPER_SYSTEMS, *BASELINES))[:-1]
    summary = []
    for (model, tokens, host), own in _cases(
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
        for model, own in _by_model(graphs).items()
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


def _by_model(rows):
    found = {}
    for row in rows:
        found.setdefault(row["model"], []).append(row)
    return found


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
            _systems(options, DECODE_SYSTEMS),
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
    for (model, tokens, system), own in _cases(
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
        for model, own in _by_model(summary).items()
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


def energy_points(options):
    return grid(
        options,
        systems_of(
            options,
            (*PAPER_SYSTEMS, "deepep_v1_normal", ABLATIONS[0], *BASELINES[:-1], *IN_SWITCH),
        ),
        options.models or BASELINE_MODELS,
        tokens_of(options, (ENERGY_TOKENS,)),
    )


def energy_report(options, results):
    """Energy of the links alone: memory, switch and everything that computes are not in it."""
    points = [point for point in energy_points(options) if results[point].wire_bytes]
    link = {name: entry["value"] for name, entry in load_data("energy.toml")["link"].items()}

    def microjoules(point):
        bits = 8 * results[point].wire_bytes * link["hops"]
        return bits * link["pj_per_bit"] * 1e-6 / point.tokens

    summary = []
    for (model, tokens), own in _cases(points, lambda p: (p.model, p.tokens)).items():
        hub = next(microjoules(point) for point in own if point.system == HUB)
        for point in own:
            result = results[point]
            summary.append(
                {
                    "model": model,
                    "tokens": tokens,
                    "system": point.system,
                    "wire, bytes per token": result.wire_bytes / tokens,
                    "of it payload, %": 100 * result.payload_bytes / result.wire_bytes,
                    "links, uJ per token": microjoules(point),
                    "over the hub": microjoules(point) / hub,
                }
            )
    panels = [
        Panel(
            title=model,
            kind="bars",
            x=tuple(row["system"] for row in own),
            series={"links": tuple(row["links, uJ per token"] for row in own)},
            ylabel="µJ per token and layer",
        )
        for model, own in _by_model(summary).items()
    ]
    return Report(
        rows=[
            row | {"links, uJ per token": microjoules(point)}
            for row, point in zip(rows_of(results, points), points, strict=True)
        ],
        summary=summary,
        plot=Plot(title="Energy on the links, a layer there and back", panels=panels),
        notes=[
            f"{link['pj_per_bit']} pJ per bit and link, {link['hops']} links; headers, flags and "
            "credits are in it, memory and the switch are not"
        ],
    )
