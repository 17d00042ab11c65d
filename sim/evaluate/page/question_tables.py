# SPDX-License-Identifier: Apache-2.0
"""Tables of questions that no published figure answers."""

from flow.pages.rows import read
from sim.evaluate.study import PAPER_SYSTEMS

from .numbers import NAMES, mean, number, percent, ratio
from .rows import compared, grid, markdown, summary, titles

__all__ = ["TABLES"]


def _baselines(folder):
    """Mean of the routings and half of their range: software and hubs in CUDA graphs."""
    rows = [row for row in read(folder, "baselines") if row["host"] == "graph"]
    systems = compared(rows)
    found = grid(
        rows,
        lambda r: (r["model"], r["tokens"]),
        lambda r: r["system"],
        lambda r: (float(r["speedup_of_hub"]), float(r["us"])),
    )
    lines = []
    for (model, tokens), cells in found.items():
        line = [model, number(tokens), number(mean([us for _, us in cells["moe_hub"]]), 1)]
        for system in systems:
            ratios = [one for one, _ in cells[system]]
            half = (max(ratios) - min(ratios)) / 2
            line.append(f"{ratio(mean(ratios))} ± {ratio(half)}")
        lines.append(line)
    return markdown(["model", "tokens", "hub, µs", *titles(systems)], lines)


def _hosts(folder):
    """By who launches the kernels: systems that the paper compares, and DeepEP V2."""
    rows = read(folder, "baselines-summary")
    tokens = {int(row["tokens"]) for row in rows if row["host"] != "graph"}
    shown = [name for name in (*PAPER_SYSTEMS, "deepep_v2") if name in rows[0]]
    lines = [
        [
            row["model"],
            number(row["tokens"]),
            row["host"],
            number(row["hub, us"], 1),
            *(ratio(row[system]) if row[system] else "" for system in shown),
        ]
        for row in rows
        if int(row["tokens"]) in tokens
    ]
    return markdown(["model", "tokens", "host", "hub, µs", *titles(shown)], lines)


def _by_system(rows, case):
    """({(model, case): {system: row}}, systems beside the hub); ``case``: a column."""
    found = {}
    for row in rows:
        found.setdefault((row["model"], row[case]), {})[row["system"]] = row
    return found, compared(rows)


def _decode(folder):
    """A token's expert layers through the hub, and the others' over it; all GPUs begin together."""
    rows = [row for row in read(folder, "decode-summary") if not float(row["jitter, us"])]
    found, systems = _by_system(rows, "tokens per GPU")
    lines = []
    for (model, tokens), cells in found.items():
        hub = cells["moe_hub"]
        layers = " / ".join(number(hub[f"layer p{p}, us"], 1) for p in (50, 95, 99))
        whole = " / ".join(ratio(hub[f"token p{p}, ms"]) for p in (50, 95, 99))
        line = [model, tokens, layers, whole]
        for system in systems:
            row = cells[system]
            line.append(f"{ratio(row['hub over it, p50'])} / {ratio(row['hub over it, p99'])}")
        lines.append(line)
    return markdown(
        ["model", "tokens per GPU", "hub's layer, µs", "hub's token, ms", *titles(systems)], lines
    )


def _jitter(folder):
    """The 99th percentile of a token where GPUs begin a layer apart, and where they do not."""
    rows = read(folder, "decode-summary")
    cases = {(r["model"], r["tokens per GPU"]) for r in rows if float(r["jitter, us"])}
    found = grid(
        [row for row in rows if (row["model"], row["tokens per GPU"]) in cases],
        lambda r: (r["model"], r["tokens per GPU"], r["jitter, us"]),
        lambda r: r["system"],
        lambda r: r["token p99, ms"],
    )
    systems = [name for name in NAMES if name in next(iter(found.values()))]
    lines = [
        [model, tokens, f"{float(us):.1f}", *(ratio(cells[system][0]) for system in systems)]
        for (model, tokens, us), cells in sorted(found.items(), key=lambda item: item[0][:2])
    ]
    return markdown(["model", "tokens per GPU", "jitter, µs", *titles(systems)], lines)


def _late(folder):
    """How much of a delay is left at the end of the median of the others, and of the slowest."""
    found = grid(
        [row for row in read(folder, "late-summary") if row["of it at the median, %"]],
        lambda r: (r["model"], number(r["tokens"]), r["system"]),
        lambda r: f"{float(r['delay, us']):.0f} µs",
        lambda r: (
            f"{float(r['of it at the median, %']):.0f} / {float(r['of it at the slowest, %']):.0f}"
        ),
    )
    delays = next(iter(found.values()))
    lines = [
        [model, tokens, NAMES[system], *(cells[us][0] for us in delays)]
        for (model, tokens, system), cells in found.items()
    ]
    return markdown(["model", "tokens", "system", *delays], lines, left=3)


def _gone(folder):
    """Which of the others' rows can be used where one rank never comes."""
    found = grid(
        [row for row in read(folder, "late-summary") if row["delay, us"] == "never"],
        lambda r: r["system"],
        lambda r: f"{r['model']}, {number(r['tokens'])} tokens",
        lambda r: f"{float(r['usable rows, %']):.0f}",
    )
    cases = next(iter(found.values()))
    return markdown(
        ["usable rows, %", *cases],
        [
            [NAMES[name], *(found[name][case][0] for case in cases)]
            for name in NAMES
            if name in found
        ],
    )


def _time_and_left(row):
    left = row["of the skew's cost left, %"]
    return number(row["layer, us"]) + (f" ({float(left):.0f} %)" if left else "")


def _balance(folder):
    """Layers by placement: time, and what is left of the skew's cost; rows over the day."""
    rows = read(folder, "balance-summary")
    day = [column for column in rows[0] if column.startswith("busiest over the day")]
    found = grid(
        rows,
        lambda r: (r["model"], r["skew"], r["placement"], *(r[column] for column in day)),
        lambda r: r["system"],
        _time_and_left,
    )
    systems = [name for name in NAMES if name in next(iter(found.values()))]
    lines = [
        [
            model,
            skew,
            placement,
            *(cells[system][0] for system in systems),
            *(ratio(value) if value else "" for value in busiest),
        ]
        for (model, skew, placement, *busiest), cells in found.items()
    ]
    heads = [column.removeprefix("busiest over the day, ") for column in day]
    return markdown(["model", "skew", "placement", *titles(systems), *heads], lines, left=3)


def _energy(folder):
    """Energy of the links per token, a column for each model."""
    rows = read(folder, "energy-summary")
    models = list(dict.fromkeys(row["model"] for row in rows))
    found = {(row["model"], row["system"]): row for row in rows}
    present = {row["system"] for row in rows}
    lines = []
    for system in (name for name in NAMES if name in present):
        line = [NAMES[system]]
        for model in models:
            row = found.get((model, system))
            line.append(
                f"{float(row['links, uJ per token']):.1f} ({ratio(row['over the hub'])})"
                if row
                else ""
            )
        lines.append(line)
    return markdown(["system", *models], lines)


def _overlap(folder):
    """The hub's layer, and every system's in one stream and in its best form over it."""
    found, systems = _by_system(read(folder, "overlap-summary"), "tokens")
    lines = []
    for (model, tokens), cells in found.items():
        hub = cells["moe_hub"]
        line = [model, number(tokens)]
        line += [number(hub[f"{name}, us"], 1) for name in ("compute alone", "one stream", "best")]
        for system in systems:
            row = cells[system]
            one = float(row["one stream over the hub's"])
            best = float(row["best over the hub's one stream"])
            line.append(ratio(one) if one == best else f"{ratio(one)} → {ratio(best)}")
        lines.append(line)
    return markdown(
        ["model", "tokens", "kernels alone, µs", "hub, one stream", "hub, best", *titles(systems)],
        lines,
    )


def _training(folder):
    """Microseconds of a layer's expert part in a training step, by program."""
    rows = read(folder, "training-summary")
    programs = [column for column in rows[0] if column.endswith(", us") and column != "best, us"]
    lines = [
        [
            row["model"],
            NAMES[row["system"]],
            *(number(row[program]) for program in programs),
            ratio(row["step over the hub's"]),
            ratio(row["best over the hub's best"]),
        ]
        for row in sorted(rows, key=lambda r: list(NAMES).index(r["system"]))
    ]
    lines.sort(key=lambda line: [row["model"] for row in rows].index(line[0]))
    return markdown(
        [
            "model",
            "system",
            *(program.replace(", us", "") for program in programs),
            "step over the hub's",
            "best over the hub's best",
        ],
        lines,
        left=2,
    )


def _seeds(folder):
    """By experiment, how far another routing moves its figures."""
    lines = [
        [
            row["experiments"],
            row["figures"],
            percent(row["deviation, median %"]),
            percent(row["deviation, largest %"]),
            f"{NAMES[row['of']]}, {row['model']}, {number(row['tokens'])} on {row['GPUs']}",
            row["on either side of 1"],
        ]
        for row in read(folder, "seeds-summary")
    ]
    head = ["experiments", "figures", "median, %", "largest, %", "of", "either side of 1"]
    return markdown(head, lines)


TABLES = {
    "baselines": _baselines,
    "hosts": _hosts,
    "decode": _decode,
    "jitter": _jitter,
    "late": _late,
    "gone": _gone,
    "balance": _balance,
    "energy": _energy,
    "seeds": _seeds,
    "overlap": _overlap,
    "training": _training,
    "in_switch": summary(
        "in-switch",
        {
            "machine": ("machine", str),
            "GPUs": ("GPUs", str),
            "model": ("model", str),
            "tokens per GPU": ("tokens per GPU", number),
            "hub, us": ("hub, µs", number),
        },
    ),
}
