# SPDX-License-Identifier: Apache-2.0
"""Pictures of the results page, drawn from the CSV files of the experiments; same files, same
bytes."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from sim.evaluate.schemes import SCHEMES
from sim.evaluate.study import PAPER_SYSTEMS, paper

from .charts import STYLE, save
from .numbers import mean
from .page import PAPER_MACHINE, NotRun, read

__all__ = ["PICTURES", "draw_all"]

PAGE_STYLE = STYLE | {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
}
TITLES = {
    "mixtral-8x7b": "Mixtral 8x7B",
    "qwen2-moe-2.7b": "Qwen2-MoE-2.7B",
    "phi-3.5-moe": "Phi-3.5-MoE",
    "deepseek-v3": "DeepSeek-V3",
}
BASE = "megatron"


def _main(folder, name="layer"):
    """{(model, tokens, system): speed-up of the hub over the system} on the paper's machine; 1 for
    the hub."""
    return {
        (row["model"], int(row["tokens"]), row["system"]): float(row["speedup_of_hub"])
        for row in read(folder, name)
        if row["machine"] == PAPER_MACHINE
    }


def _bars(axes, groups, series):
    """Grouped bars: ``series``, {system: a value for each group}."""
    width = 0.84 / len(series)
    for number, (system, values) in enumerate(series.items()):
        places = [i + (number - (len(series) - 1) / 2) * width for i in range(len(groups))]
        axes.bar(
            places, values, width * 0.94, color=SCHEMES[system].color, label=SCHEMES[system].title
        )
    axes.set_xticks(range(len(groups)), groups)


def _layer(folder, figure):
    """The paper's form: speed-up over Megatron-TE by system, a panel per model, tokens across, the
    mean at the right."""
    found, systems = _main(folder), (*PAPER_SYSTEMS, "moe_hub")
    models = list(dict.fromkeys(model for model, _, _ in found))
    tokens = sorted({count for _, count, _ in found})
    panels = figure.subplots(len(models), 1, sharex=True)
    for axes, model in zip(panels, models, strict=True):
        series = {}
        for system in systems:
            values = [found[model, count, BASE] / found[model, count, system] for count in tokens]
            series[system] = [*values, mean(values)]
        _bars(axes, [*(f"{count:,}" for count in tokens), "mean"], series)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.axvline(len(tokens) - 0.5, color="black", linewidth=0.6, linestyle=":")
        axes.set_title(TITLES.get(model, model), loc="left")
        axes.set_ylabel("speed-up over\nMegatron-TE")
        axes.grid(axis="x", visible=False)
    panels[-1].set_xlabel("tokens over 8 GPUs")


def _averages(folder, figure):
    """The paper's ten averages beside ours."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (name, metric, title) in zip(
        panels,
        (
            ("layer", "layer_speedup", "MoE layer"),
            ("end-to-end", "end_to_end_speedup", "end to end"),
        ),
        strict=True,
    ):
        ours = {
            row["hub over"]: row
            for row in read(folder, f"{name}-summary")
            if row["machine"] == PAPER_MACHINE
        }
        for number, system in enumerate(PAPER_SYSTEMS):
            row, theirs = ours[system], paper()[1][metric, system]
            axes.plot(
                [number, number],
                [float(row["smallest"]), float(row["largest"])],
                color=SCHEMES[system].color,
                linewidth=5,
                alpha=0.35,
                solid_capstyle="butt",
                label="ours, range of points" if not number else None,
            )
            axes.plot(
                number,
                float(row["mean"]),
                "o",
                color=SCHEMES[system].color,
                markersize=8,
                label="ours, mean" if not number else None,
            )
            axes.plot(
                number,
                theirs,
                "D",
                color="black",
                markersize=6,
                markerfacecolor="none",
                markeredgewidth=1.5,
                label="paper, mean" if not number else None,
            )
        axes.set_xticks(
            range(len(PAPER_SYSTEMS)),
            [SCHEMES[system].title for system in PAPER_SYSTEMS],
            rotation=20,
        )
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_title(title, loc="left")
    panels[0].set_ylabel("speed-up of the hub over")


def _lines(axes, rows, x, systems, value=float):
    for system in systems:
        points = [(value(row[x]), float(row[system])) for row in rows if row.get(system)]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                marker="o",
                markersize=3.5,
                color=SCHEMES[system].color,
                label=SCHEMES[system].title,
                linestyle="--" if system == "ideal" else "-",
            )
    axes.axhline(1, color="black", linewidth=0.8)


def _steps(axes, values):
    """Logarithmic, marked where there are points."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.xaxis.set_minor_locator(NullLocator())


def _sweeps(folder, figure):
    """Where the hub gains and where not: tokens, skew, GPUs of an NVL72, bandwidth."""
    shown = ("comet", "ccfuser", "deepep_v1_ll", "deepep_v2", "mori", "ideal")
    (first, second), (third, fourth) = figure.subplots(2, 2)
    found = _main(folder)
    tokens = sorted({count for _, count, _ in found})
    models = dict.fromkeys(model for model, _, _ in found)
    rows = [
        {"tokens": count}
        | {system: mean([found[model, count, system] for model in models]) for system in shown}
        for count in tokens
    ]
    _lines(first, rows, "tokens", shown)
    _steps(first, tokens[::2])
    first.set_title("tokens over 8 GPUs, mean of the paper's models", loc="left")
    _lines(second, read(folder, "skew-summary"), "skew", shown)
    second.set_title("skew (standard deviation), 8,192 tokens", loc="left")
    large = [row for row in read(folder, "gpus-summary") if row["model"] == "deepseek-v3"]
    _lines(third, large, "GPUs", (*shown, "deepep_v1_normal"))
    _steps(third, [8, 16, 32, 64])
    third.set_title("GPUs, DeepSeek-V3, NVL72, 256 tokens each", loc="left")
    _lines(fourth, read(folder, "links-summary"), "GB/s per GPU and direction", shown)
    fourth.set_title("GB/s per GPU and direction, H800", loc="left")
    for axes in (first, third):
        axes.set_ylabel("speed-up of the hub over")


def _shapes(folder, figure):
    """Bytes that one row per expert costs, against the speed-up over a system that sends one per
    rank."""
    axes = figure.subplots()
    rows = sorted(read(folder, "shapes-summary"), key=lambda row: float(row["ratio"]))
    places = range(len(rows))
    axes.bar(
        places,
        [float(row["ratio"]) for row in rows],
        0.8,
        color="#dddddd",
        label="dispatch bytes, hub over DeepEP",
    )
    for system, marker in (("deepep_v1_normal", "s"), ("deepep_v2", "o"), ("comet", "^")):
        axes.plot(
            places,
            [float(row[system]) for row in rows],
            marker,
            color=SCHEMES[system].color,
            markersize=5,
            label=f"speed-up over {SCHEMES[system].title}",
        )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(
        places,
        [f"{row['model']} ({row['top-k']}/{row['experts']})" for row in rows],
        rotation=60,
        ha="right",
    )
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("ratio")


def _ablation(folder, figure):
    """What each part of the hub adds."""
    steps = ("moe_hub_base", "moe_hub_packets", "moe_hub_signal", "moe_hub")
    rows = read(folder, "ablation-summary")
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    for axes, made in zip(figure.subplots(1, len(machines), sharey=True), machines, strict=True):
        own = [row for row in rows if row["machine"] == made]
        _bars(
            axes,
            [f"{int(row['tokens']):,}" for row in own],
            {step: [float(row[step]) for row in own] for step in steps},
        )
        axes.set(
            title=f"{made}",
            xlabel="tokens over 8 GPUs",
            ylabel="speed-up over the base" if made == machines[0] else "",
        )
        axes.grid(axis="x", visible=False)


#: name: (function, inches wide and high)
PICTURES = {
    "layer": (_layer, 9.5, 6.6),
    "averages": (_averages, 9, 3.6),
    "sweeps": (_sweeps, 9.5, 6.4),
    "shapes": (_shapes, 9.5, 5),
    "ablation": (_ablation, 9, 3.2),
}


def draw_all(folder, images):
    """Draws ``images/evaluation_<name>.png``, the pictures whose experiments have been run; their
    paths."""
    paths = []
    for name, (picture, width, height) in PICTURES.items():
        with matplotlib.rc_context(PAGE_STYLE):
            figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
            try:
                picture(folder, figure)
            except NotRun:
                continue
            paths.append(Path(images) / f"evaluation_{name}.png")
            save(figure, paths[-1], 6)
    return paths
