# SPDX-License-Identifier: Apache-2.0
"""Pictures of the results page, drawn from the CSV files of the experiments; same files, same
bytes."""

from pathlib import Path

from matplotlib.ticker import NullLocator

from flow.pages.rows import NotRun, read
from flow.pictures import legend_below, picture
from sim.evaluate.schemes import SCHEMES
from sim.evaluate.study import JUDGED, PAPER_SYSTEMS, paper

from .numbers import mean
from .rows import SHOWN_GPUS

__all__ = ["PICTURES", "draw_all"]

TITLES = {
    "mixtral-8x7b": "Mixtral 8x7B",
    "qwen2-moe-2.7b": "Qwen2-MoE-2.7B",
    "phi-3.5-moe": "Phi-3.5-MoE",
    "deepseek-v3": "DeepSeek-V3",
}
BASE = "megatron"


def _main(folder, name="layer"):
    """{(model, tokens, system): speed-up of the hub over the system} on eight GPUs of the machine
    that is judged; 1 for the hub."""
    return {
        (row["model"], int(row["tokens"]), row["system"]): float(row["speedup_of_hub"])
        for row in read(folder, name)
        if (row["machine"], row["ranks"]) == (JUDGED, SHOWN_GPUS)
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
        axes.set_title(TITLES.get(model, model))
        axes.set_ylabel("speed-up over\nMegatron-TE")
        axes.grid(axis="x", visible=False)
    panels[-1].set_xlabel("tokens over 8 GPUs")


def _averages(folder, figure):
    """The paper's ten averages beside ours."""
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
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
            if row["machine"] == JUDGED
        }
        for number, system in enumerate(PAPER_SYSTEMS):
            row, theirs, first = ours[system], paper()[1][metric, system], not number
            axes.plot(
                [float(row["smallest"]), float(row["largest"])],
                [number, number],
                color=SCHEMES[system].color,
                linewidth=7,
                alpha=0.35,
                solid_capstyle="butt",
                label="ours, range of points" if first else None,
            )
            axes.plot(
                float(row["mean"]),
                number,
                "o",
                color=SCHEMES[system].color,
                markersize=9,
                label="ours, mean" if first else None,
            )
            axes.plot(
                theirs,
                number,
                "D",
                color="black",
                markersize=7,
                markerfacecolor="none",
                markeredgewidth=1.7,
                label="paper, mean" if first else None,
            )
        axes.axvline(1, color="black", linewidth=0.9)
        axes.grid(axis="y", visible=False)
        axes.set(title=title, xlabel="a system's time over the hub's")
        axes.set_xlim(0)
    titles = [SCHEMES[system].title for system in PAPER_SYSTEMS]
    panels[0].set_yticks(range(len(titles)), titles)
    panels[0].set_ylim(len(titles) - 0.5, -0.5)


def _lines(axes, rows, x, systems, value=float):
    for system in systems:
        points = [(value(row[x]), float(row[system])) for row in rows if row.get(system)]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                marker="o",
                markersize=4.5,
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
    first.set(title="Tokens, mean of the paper's models", xlabel="tokens over 8 GPUs")
    _lines(second, read(folder, "skew-summary"), "skew", shown)
    second.set(
        title="Skew, 8,192 tokens", xlabel="standard deviation of the experts' shares of tokens"
    )
    large = [row for row in read(folder, "gpus-summary") if row["model"] == "deepseek-v3"]
    _lines(third, large, "GPUs", (*shown, "deepep_v1_normal"))
    _steps(third, [8, 16, 32, 64])
    third.set(title="GPUs of an NVL72, DeepSeek-V3", xlabel="GPUs, 256 tokens each")
    _lines(fourth, read(folder, "links-summary"), "GB/s per GPU and direction", shown)
    fourth.set(title="Bandwidth, H800", xlabel="GB/s per GPU and direction")
    for axes in (first, third):
        axes.set_ylabel("a system's time\nover the hub's")


def _shapes(folder, figure):
    """Bytes that one row per expert costs, against the speed-up over a system that sends one per
    rank."""
    axes = figure.subplots()
    rows = sorted(read(folder, "shapes-summary"), key=lambda row: float(row["ratio"]))
    places = range(len(rows))
    axes.barh(
        places,
        [float(row["ratio"]) for row in rows],
        0.8,
        color="#d5d9de",
        label="dispatched bytes, hub over DeepEP",
    )
    for system, marker in (("deepep_v1_normal", "s"), ("deepep_v2", "o"), ("comet", "^")):
        axes.plot(
            [float(row[system]) for row in rows],
            places,
            marker,
            color=SCHEMES[system].color,
            label=f"{SCHEMES[system].title}'s time over the hub's",
        )
    axes.axvline(1, color="black", linewidth=0.9)
    axes.set_yticks(places, [f"{row['model']}, {row['top-k']} of {row['experts']}" for row in rows])
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel="ratio")
    axes.secondary_xaxis("top")
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("model, experts chosen of all")


def _ablation(folder, figure):
    """What each part of the hub adds, from routing to the end of GEMM1."""
    steps = ("moe_hub_base", "moe_hub_packets", "moe_hub_signal", "moe_hub")
    rows = read(folder, "ablation-summary")
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    for axes, made in zip(figure.subplots(1, len(machines), sharey=True), machines, strict=True):
        own = [row for row in rows if row["machine"] == made][::2]
        _bars(
            axes,
            [f"{int(row['tokens']):,}" for row in own],
            {step: [float(row[step]) for row in own] for step in steps},
        )
        axes.set(
            title=f"{made}",
            xlabel="tokens over 8 GPUs",
            ylabel="COMET's time over it" if made == machines[0] else "",
        )
        axes.grid(axis="x", visible=False)


def _baselines(folder, figure):
    """Software that could be, and hubs that are not built: a panel per model, tokens across."""
    shown = ("deepep_v2", "row_flags", "expert_flags", "moe_hub_by_expert", "moe_hub_once", "ideal")
    rows = [row for row in read(folder, "baselines-summary") if row["host"] == "graph"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    for axes, model in zip(figure.subplots(1, len(models), sharey=True), models, strict=True):
        own = [row for row in rows if row["model"] == model]
        _lines(axes, own, "tokens", shown)
        _steps(axes, [int(row["tokens"]) for row in own])
        axes.set(
            title=TITLES.get(model, model),
            xlabel="tokens over 8 GPUs",
            ylabel="a system's time\nover the hub's" if model == models[0] else "",
        )


def _alltoall(folder, figure):
    """NCCL's all-to-all by size: the model's curve, published times as points."""
    rows = read(folder, "alltoall")
    made = list(dict.fromkeys((row["machine"], row["GPUs"]) for row in rows))
    for axes, (name, ranks) in zip(figure.subplots(1, len(made), sharey=True), made, strict=True):
        own = [row for row in rows if (row["machine"], row["GPUs"]) == (name, ranks)]
        places = [int(row["bytes"]) for row in own]
        axes.plot(places, [float(row["us"]) for row in own], color="#2a6f97", label="model")
        known = [row for row in own if row["published, us"]]
        axes.plot(
            [int(row["bytes"]) for row in known],
            [float(row["published, us"]) for row in known],
            "D",
            color="black",
            markersize=5,
            markerfacecolor="none",
            label="published",
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([1 << 12, 1 << 20, 1 << 28], ["4 KB", "1 MB", "256 MB"])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set(title=f"{ranks} × {name}", xlabel="bytes of a GPU")
        if (name, ranks) == made[0]:
            axes.set_ylabel("µs")


def _late(folder, figure):
    """How much of one GPU's delay is left at the end of the others' layer."""
    rows = [row for row in read(folder, "late-summary") if row["of it at the median, %"]]
    cases = list(dict.fromkeys((row["model"], row["tokens"]) for row in rows))
    for axes, case in zip(figure.subplots(1, len(cases), sharey=True), cases, strict=True):
        own = [row for row in rows if (row["model"], row["tokens"]) == case]
        for system in dict.fromkeys(row["system"] for row in own):
            points = [
                {"us": row["delay, us"], system: float(row["of it at the median, %"]) / 100}
                for row in own
                if row["system"] == system
            ]
            _lines(axes, points, "us", (system,))
        _steps(axes, sorted({int(float(row["delay, us"])) for row in own}))
        axes.set(
            title=f"{TITLES.get(case[0], case[0])}, {int(case[1]):,} tokens",
            xlabel="µs that one GPU of eight begins late",
            ylabel="share of it at the end\nof the median GPU" if case == cases[0] else "",
        )


def _balance(folder, figure):
    """Rows of the busiest GPU over the day, and what is left in the layer's time."""
    every = read(folder, "balance-summary")
    rows = [row for row in every if row["skew"] == every[-1]["skew"]]
    placements = list(dict.fromkeys(row["placement"] for row in rows))
    day = [column for column in rows[0] if column.startswith("busiest over the day")]
    first, second = figure.subplots(1, 2, sharey=True)
    for column in day:
        values = {row["placement"]: row[column] for row in rows}
        points = [(float(values[p]), n) for n, p in enumerate(placements) if values[p]]
        label = column.removeprefix("busiest over the day, ")
        first.plot(*zip(*points, strict=True), "o", markersize=5, label=label)
    for system in dict.fromkeys(row["system"] for row in rows):
        points = [
            (float(row["over no skew"]), placements.index(row["placement"]))
            for row in rows
            if row["system"] == system
        ]
        made = SCHEMES[system]
        second.plot(*zip(*points, strict=True), "s", color=made.color, label=made.title)
    for axes in (first, second):
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_yticks(range(len(placements)), placements)
        axes.set_ylim(len(placements) - 0.5, -0.5)
    first.set(title="Rows, mean of the day", xlabel="busiest GPU over the mean")
    second.set(title=f"Layer, {rows[0]['GPUs']} GPUs", xlabel="time over that without skew")


STEPS = (
    ("first_ready_us", "gate, counts, first rows on their way", "#d5d9de"),
    ("all_ready_us", "rows arrive; GEMM1 where a system does not wait for all", "#7fb2d6"),
    ("us", "rest of the GEMMs, answers, sums", "#24557a"),
)
SHOWN_TOKENS = "8192"


def _steps_of_a_layer(folder, figure):
    """A layer's time from the gate to the last sum, cut where its first and its last rows can be
    used."""
    rows = [
        row
        for row in read(folder, "layer")
        if (row["machine"], row["ranks"], row["tokens"]) == (JUDGED, SHOWN_GPUS, SHOWN_TOKENS)
        and not row["system"].startswith("flashdmoe")
    ]
    models = list(dict.fromkeys(row["model"] for row in rows))
    systems = sorted({row["system"] for row in rows}, key=lambda name: SCHEMES[name].place)
    panels = figure.subplots(1, len(models), sharey=True)
    for axes, model in zip(panels, models, strict=True):
        own = {row["system"]: row for row in rows if row["model"] == model}
        start = [0.0] * len(systems)
        for column, label, color in STEPS:
            end = [float(own[system][column]) for system in systems]
            lengths = [b - a for a, b in zip(start, end, strict=True)]
            axes.barh(range(len(systems)), lengths, 0.8, left=start, color=color, label=label)
            start = end
        axes.grid(axis="y", visible=False)
        axes.set(title=TITLES.get(model, model), xlabel="µs")
    panels[0].set_yticks(range(len(systems)), [SCHEMES[system].title for system in systems])
    panels[0].set_ylim(len(systems) - 0.5, -0.5)


PROGRAMS_SHOWN = {
    "overlap": ("compute alone", "one stream", "shared expert", "two halves", "two batches"),
    "training": ("step, layer", "step, activation", "step", "step, delayed", "forward beside"),
}
MARKS = ("#b0b7bf", "|"), ("#24557a", "o"), ("#e0a32e", "s"), ("#6a994e", "^"), ("#d00000", "D")


def _programs(name):
    """A panel per model: the time of a layer in each program, by system."""

    def draw(folder, figure):
        rows = [row for row in read(folder, f"{name}-summary") if row["tokens"] == SHOWN_TOKENS]
        models = list(dict.fromkeys(row["model"] for row in rows))
        systems = sorted({row["system"] for row in rows}, key=lambda name: SCHEMES[name].place)
        panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
        for axes, model in zip(panels, models, strict=True):
            own = {row["system"]: row for row in rows if row["model"] == model}
            for program, (color, marker) in zip(PROGRAMS_SHOWN[name], MARKS, strict=True):
                points = [
                    (float(cell), place)
                    for place, system in enumerate(systems)
                    if (cell := own[system][f"{program}, us"])
                ]
                if points:
                    axes.plot(
                        *zip(*points, strict=True),
                        marker,
                        color=color,
                        label=program,
                        markersize=14 if marker == "|" else 6,
                        markeredgewidth=2.5 if marker == "|" else 0.8,
                    )
            axes.set(title=TITLES.get(model, model), xlabel="µs per layer")
        panels[0].set_yticks(range(len(systems)), [SCHEMES[system].title for system in systems])
        panels[0].set_ylim(len(systems) - 0.5, -0.5)

    return draw


#: name: (function, inches high, columns of the legend)
PICTURES = {
    "layer": (_layer, 6.4, 6),
    "averages": (_averages, 3.2, 3),
    "sweeps": (_sweeps, 6.2, 4),
    "shapes": (_shapes, 8.7, 2),
    "ablation": (_ablation, 3.2, 4),
    "breakdown": (_steps_of_a_layer, 3.4, 1),
    "baselines": (_baselines, 3.2, 3),
    "alltoall": (_alltoall, 3.0, 2),
    "late": (_late, 3.6, 5),
    "balance": (_balance, 3.9, 6),
    "overlap": (_programs("overlap"), 3.2, 5),
    "training": (_programs("training"), 3.0, 5),
}


def draw_all(folder, images):
    """Draws ``images/evaluation_<name>.png``, the pictures whose experiments have been run; their
    paths."""
    paths = []
    for name, (draw, height, columns) in PICTURES.items():
        path = Path(images) / f"evaluation_{name}.png"
        try:
            with picture(path, height) as figure:
                draw(folder, figure)
                legend_below(figure, columns)
        except NotRun:
            continue
        paths.append(path)
    return paths
