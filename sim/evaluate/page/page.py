# SPDX-License-Identifier: Apache-2.0
"""The tables of the results page, written between marks in its text from the CSV files of the
experiments.

A page has ``<!-- table: NAME -->`` where a table begins and ``<!-- end -->`` behind it; what lies
between is written anew. :data:`TABLES` has the names. So are numbers in its text, see
``values.py``. Same files, same text.
"""

import csv
import re
from pathlib import Path

from flow import tables
from sim.evaluate.machine.hardware import machine
from sim.evaluate.study import JUDGED, PAPER_LINKS, PAPER_SYSTEMS
from sim.evaluate.systems import constants, provenance, ranges

from .numbers import NAMES, error, mean, number, percent, ratio
from .values import VALUE, look_up

__all__ = ["MARK", "NOT_RUN", "SHOWN_GPUS", "TABLES", "NotRun", "fill", "markdown", "read"]

MARK = re.compile(r"<!-- table: ([a-z0-9_]+) -->\n(.*?)<!-- end -->", re.S)
MACHINES_SHOWN = (JUDGED, PAPER_LINKS, "h100", "b200", "gb200_nvl72", "gh200_nvl32")
SHOWN_GPUS = "8"  # of tables over tokens
NOT_RUN = "Not run yet:"


class NotRun(ValueError):
    """An experiment's file is not there."""

    def __init__(self, path, experiment):
        super().__init__(f"{path}: is not there; run `moe-hub evaluate {experiment}` first")
        self.experiment = experiment


def read(folder, name):
    """Rows of one of the experiments' CSV files. Raises :class:`NotRun`."""
    path = Path(folder) / f"{name}.csv"
    if not path.is_file():
        raise NotRun(path, name.removesuffix("-summary"))
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown(head, rows, left=1):
    """A Markdown table; all columns but the first ``left`` are aligned to the right."""
    marks = "| --- " * left + "| ---: " * (len(head) - left) + "|"
    return "\n".join(tables.markdown(head, rows, marks)) + "\n"


def _names(systems):
    return [NAMES.get(system, system) for system in systems]


def _systems(rows, column="system"):
    present = dict.fromkeys(row[column] for row in rows)
    return [name for name in NAMES if name in present and name != "moe_hub"]


def _machines(folder):
    rows = []
    for name in MACHINES_SHOWN:
        made = machine(name, 8)
        gpu, fabric = made.gpu, made.fabric
        payload = fabric.max_payload_bytes
        share = payload / (payload + fabric.header_flits * fabric.flit_bytes)
        rows.append(
            [
                f"`{name}`",
                gpu.sms,
                number(gpu.gemm_tflops("bf16")),
                number(gpu.gemm_tflops("fp8")),
                number(gpu.stream_gbps),
                number(fabric.link_gbps),
                number(fabric.link_gbps * share),
                fabric.planes,
            ]
        )
    return markdown(
        [
            "machine",
            "SMs",
            "BF16 TFLOP/s reached",
            "FP8 reached",
            "HBM GB/s reached",
            "link GB/s, raw",
            "of it payload",
            "switch planes",
        ],
        rows,
    )


def _averages(folder):
    """The paper's ten averages and ours."""
    found = {
        name: {
            row["hub over"]: row
            for row in read(folder, f"{name}-summary")
            if row["machine"] == JUDGED
        }
        for name in ("layer", "end-to-end")
    }
    rows = []
    for system in PAPER_SYSTEMS:
        cells = [NAMES[system]]
        for name in found:
            row = found[name][system]
            cells += [row["paper"], ratio(row["mean"], 3), error(row["mean"], row["paper"])]
        rows.append(cells)
    return markdown(
        [
            "hub over",
            *(
                f"{metric}, {what}"
                for metric in ("layer", "end to end")
                for what in ("paper", "ours", "error, %")
            ),
        ],
        rows,
    )


def _ranges(folder):
    """Mean, least and largest speed-up over every system, on both machines."""
    rows = []
    for made in (JUDGED, PAPER_LINKS):
        of = {
            name: {
                row["hub over"]: row
                for row in read(folder, f"{name}-summary")
                if row["machine"] == made
            }
            for name in ("layer", "end-to-end")
        }
        for system in (name for name in NAMES if name in of["layer"]):
            one, whole = of["layer"][system], of["end-to-end"][system]
            rows.append(
                [
                    f"`{made}`",
                    NAMES[system],
                    ratio(one["mean"]),
                    f"{ratio(one['smallest'])} … {ratio(one['largest'])}",
                    ratio(whole["mean"]),
                    f"{ratio(whole['smallest'])} … {ratio(whole['largest'])}",
                ]
            )
    return markdown(
        ["machine", "hub over", "layer, mean", "range", "end to end, mean", "range"], rows, left=2
    )


def _grid(rows, of_row, columns, value):
    """{key of a row: {column: value}} in the order of the rows."""
    table = {}
    for row in rows:
        if columns(row) is not None:
            table.setdefault(of_row(row), {}).setdefault(columns(row), []).append(value(row))
    return table


def _points(name):
    def table(folder):
        rows = [
            row
            for row in read(folder, name)
            if row["machine"] == JUDGED and row["system"] != "moe_hub"
        ]
        hub = {
            (row["model"], row["ranks"], row["tokens"]): row[
                "layer_us" if name == "end-to-end" else "us"
            ]
            for row in read(folder, name)
            if row["machine"] == JUDGED and row["system"] == "moe_hub"
        }
        systems = _systems(rows)
        found = _grid(
            rows,
            lambda r: (r["model"], r["ranks"], r["tokens"]),
            lambda r: r["system"],
            lambda r: float(r["speedup_of_hub"]),
        )
        lines = [
            [
                model,
                ranks,
                number(tokens),
                *([number(hub[model, ranks, tokens], 1)] if name == "layer" else []),
                *(ratio(mean(cells[s])) if s in cells else "" for s in systems),
            ]
            for (model, ranks, tokens), cells in found.items()
        ]
        return markdown(
            [
                "model",
                "GPUs",
                "tokens",
                *(["hub, µs"] if name == "layer" else []),
                *_names(systems),
            ],
            lines,
            left=1,
        )

    return table


def _means(column, heading, keep=lambda row: True):
    """Mean speed-up of the layer by a column of the paper's points."""

    def table(folder):
        rows = [
            row
            for row in read(folder, "layer")
            if row["machine"] == JUDGED and row["system"] != "moe_hub" and keep(row)
        ]
        systems = _systems(rows)
        found = _grid(
            rows,
            lambda r: int(r[column]),
            lambda r: r["system"],
            lambda r: float(r["speedup_of_hub"]),
        )
        return markdown(
            [heading, *_names(systems)],
            [
                [number(value), *(ratio(mean(cells[s])) if s in cells else "" for s in systems)]
                for value, cells in sorted(found.items())
            ],
        )

    return table


def _summary(name, shown, keep=lambda row: True):
    """Columns of a summary: ``shown``, {column: (heading, text of a cell)}, then a ratio for every
    system."""

    def table(folder):
        rows = [row for row in read(folder, f"{name}-summary") if keep(row)]
        systems = [system for system in NAMES if system in rows[0]]
        lines = [
            [
                *(text(row[column]) for column, (_, text) in shown.items()),
                *(ratio(row[system]) if row[system] else "" for system in systems),
            ]
            for row in rows
        ]
        return markdown([*(heading for heading, _ in shown.values()), *_names(systems)], lines)

    return table


def _sensitivity(folder):
    """The changes that move a mean most, and the first row, nothing changed."""
    base, *rows = read(folder, "sensitivity-summary")
    rows = [row for row in rows if "." not in row["assumption"]]
    rows.sort(key=lambda row: -float(row["largest change, %"]))
    return markdown(
        ["changed", "to", *_names(PAPER_SYSTEMS), "largest change, %"],
        [
            [
                row["assumption"],
                row["value"],
                *(ratio(row[system]) for system in PAPER_SYSTEMS),
                percent(row["largest change, %"]) if row is not base else "",
            ]
            for row in (base, *rows)
        ],
        left=2,
    )


def _fitted(folder):
    """What the speed-up over a system becomes when a constant that was fitted for it is another."""
    base, *rows = read(folder, "sensitivity-summary")
    lines = []
    for row in rows:
        if "." in row["assumption"]:
            section, name = row["assumption"].split(".")
            lines += [
                [
                    NAMES[system],
                    f"`{name}`",
                    number(vars(constants(section))[name], 3),
                    row["value"],
                    ratio(base[system]),
                    ratio(row[system]),
                    error(row[system], base[system]),
                ]
                for system in _systems_in(row)
            ]
    return markdown(
        ["system", "constant", "fitted", "changed to", "hub over it", "then", "change, %"],
        lines,
        left=2,
    )


def _systems_in(row):
    return [name for name in NAMES if row.get(name)]


def _published_rows(folder, keep):
    rows = [
        [
            f"`{row['figure']}`",
            row["role"],
            number(row["published"], 3),
            number(row["ours"], 3),
            row["unit"],
            f"{float(row['error, %']):+.1f}",
            percent(row["target, %"]),
            row["met"],
        ]
        for row in read(folder, "published")
        if keep(row)
    ]
    return markdown(
        ["figure", "role", "published", "ours", "unit", "error, %", "target, %", "met"], rows
    )


def _published_groups(folder):
    """How many figures, their median error, how many meet their target: by role and system."""
    groups = {}
    for row in read(folder, "published"):
        key = ("the paper's own", "") if row["group"] else (row["role"], row["system"])
        groups.setdefault(key, []).append(row)
        if not row["group"]:
            groups.setdefault((row["role"], "all of them"), []).append(row)
    lines = []
    for (role, system), rows in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][1] != "all of them", item[0][1])
    ):
        errors = sorted(abs(float(row["error, %"])) for row in rows)
        middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
        met = sum(row["met"] == "yes" for row in rows)
        lines.append(
            [role, NAMES.get(system, system), len(rows), f"{middle:.1f}", f"{max(errors):.0f}", met]
        )
    return markdown(
        ["role", "system", "figures", "median error, %", "largest, %", "within target"],
        lines,
        left=2,
    )


def _gemm(folder):
    rows = [
        [
            f"{row['groups']} × {row['rows']}",
            f"{number(row['n'])} × {number(row['k'])}",
            number(row["tflops"]),
            number(row["ours"]),
            f"{float(row['error, %']):+.1f}",
            row["role"],
        ]
        for row in read(folder, "gemm")
    ]
    return markdown(["groups × rows", "N × K", "published", "ours", "error, %", "role"], rows)


def _alltoall(folder):
    """NCCL's all-to-all where there is a published time of it."""
    rows = [
        [
            f"{row['GPUs']} × {row['machine']}",
            number(row["bytes"]),
            row["protocol"],
            row["channels per peer"],
            number(row["published, us"], 2),
            number(row["us"], 2),
            number(row["GB/s"], 1),
            f"{float(row['error, %']):+.1f}",
            row["role"],
        ]
        for row in read(folder, "alltoall")
        if row["published, us"]
    ]
    head = ["GPUs", "bytes of a GPU", "protocol", "channels per peer", "published, µs", "ours, µs"]
    return markdown([*head, "GB/s", "error, %", "role"], rows)


def _host_calls(folder):
    """What a call takes on the host, by kind: of systems.toml, no experiment."""
    used = provenance("host")
    rows = [
        [f"`{name}`", used[name][0], f"{low:g} – {high:g}", used[name][1]]
        for name, (low, high) in ranges("host").items()
    ]
    return markdown(["kind", "µs", "range", "source"], rows)


def _pangu(folder):
    rows = [row for row in read(folder, "pangu-summary") if row["system"] != "moe_hub"]
    hub = {
        (row["ranks"], row["tokens"]): row
        for row in read(folder, "pangu-summary")
        if row["system"] == "moe_hub"
    }
    systems = _systems(rows)
    both = {
        (
            row["ranks"],
            row["tokens"],
            row["system"],
        ): f"{ratio(row['speed-up of hub, layer'])} / {ratio(row['end to end'])}"
        for row in rows
    }
    lines = [
        [
            ranks,
            number(tokens),
            number(row["layer, us"], 1),
            number(row["forward, ms"], 2),
            *(both[ranks, tokens, system] for system in systems),
        ]
        for (ranks, tokens), row in hub.items()
    ]
    return markdown(
        ["GPUs", "tokens", "hub's layer, µs", "hub's forward, ms", *_names(systems)], lines
    )


def _baselines(folder):
    """Mean of the routings and half of their range: software and hubs in CUDA graphs."""
    rows = [row for row in read(folder, "baselines") if row["host"] == "graph"]
    systems = _systems(rows)
    found = _grid(
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
    return markdown(["model", "tokens", "hub, µs", *_names(systems)], lines)


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
    return markdown(["model", "tokens", "host", "hub, µs", *_names(shown)], lines)


def _decode(folder):
    """A token's expert layers through the hub, and the others' over it; all GPUs begin together."""
    found = _grid(
        [row for row in read(folder, "decode-summary") if not float(row["jitter, us"])],
        lambda r: (r["model"], r["tokens per GPU"]),
        lambda r: r["system"],
        lambda r: r,
    )
    systems = [name for name in NAMES if name in next(iter(found.values())) and name != "moe_hub"]
    lines = []
    for (model, tokens), cells in found.items():
        hub = cells["moe_hub"][0]
        layers = " / ".join(number(hub[f"layer p{p}, us"], 1) for p in (50, 95, 99))
        whole = " / ".join(ratio(hub[f"token p{p}, ms"]) for p in (50, 95, 99))
        line = [model, tokens, layers, whole]
        for system in systems:
            row = cells[system][0]
            line.append(f"{ratio(row['hub over it, p50'])} / {ratio(row['hub over it, p99'])}")
        lines.append(line)
    return markdown(
        ["model", "tokens per GPU", "hub's layer, µs", "hub's token, ms", *_names(systems)], lines
    )


def _jitter(folder):
    """The 99th percentile of a token where GPUs begin a layer apart, and where they do not."""
    rows = read(folder, "decode-summary")
    cases = {(r["model"], r["tokens per GPU"]) for r in rows if float(r["jitter, us"])}
    found = _grid(
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
    return markdown(["model", "tokens per GPU", "jitter, µs", *_names(systems)], lines)


def _late(folder):
    """How much of a delay is left at the end of the median of the others, and of the slowest."""
    found = _grid(
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
    found = _grid(
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
    found = _grid(
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
    return markdown(["model", "skew", "placement", *_names(systems), *heads], lines, left=3)


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
    found = _grid(
        read(folder, "overlap-summary"),
        lambda r: (r["model"], r["tokens"]),
        lambda r: r["system"],
        lambda r: r,
    )
    systems = [name for name in NAMES if name in next(iter(found.values())) and name != "moe_hub"]
    lines = []
    for (model, tokens), cells in found.items():
        hub = cells["moe_hub"][0]
        line = [model, number(tokens)]
        line += [number(hub[f"{name}, us"], 1) for name in ("compute alone", "one stream", "best")]
        for system in systems:
            row = cells[system][0]
            one = float(row["one stream over the hub's"])
            best = float(row["best over the hub's one stream"])
            line.append(ratio(one) if one == best else f"{ratio(one)} → {ratio(best)}")
        lines.append(line)
    return markdown(
        ["model", "tokens", "kernels alone, µs", "hub, one stream", "hub, best", *_names(systems)],
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


def _text(value):
    return value


TABLES = {
    "machines": _machines,
    "averages": _averages,
    "ranges": _ranges,
    "points": _points("layer"),
    "points_end": _points("end-to-end"),
    "tokens": _means("tokens", "tokens", lambda row: row["ranks"] == SHOWN_GPUS),
    "averages_gpus": _means("ranks", "GPUs"),
    "baselines": _baselines,
    "hosts": _hosts,
    "decode": _decode,
    "jitter": _jitter,
    "late": _late,
    "gone": _gone,
    "balance": _balance,
    "energy": _energy,
    "alltoall": _alltoall,
    "overlap": _overlap,
    "training": _training,
    "gemm": _gemm,
    "host_calls": _host_calls,
    "pangu": _pangu,
    "sensitivity": _sensitivity,
    "fitted": _fitted,
    "skew": _summary("skew", {"skew": ("std of the fractions", _text)}),
    "gpus": _summary("gpus", {"model": ("model", _text), "GPUs": ("GPUs", _text)}),
    "ablation": _summary("ablation", {"machine": ("machine", _text), "tokens": ("tokens", number)}),
    "links": _summary("links", {"GB/s per GPU and direction": ("GB/s", _text)}),
    "shapes": _summary(
        "shapes",
        {
            "model": ("model", _text),
            "top-k": ("top-k", _text),
            "experts": ("experts", _text),
            "ratio": ("bytes, rows per expert over per rank", ratio),
            "hub, us": ("hub, µs", number),
        },
    ),
    "in_switch": _summary(
        "in-switch",
        {
            "machine": ("machine", _text),
            "GPUs": ("GPUs", _text),
            "model": ("model", _text),
            "tokens per GPU": ("tokens per GPU", number),
            "hub, us": ("hub, µs", number),
        },
    ),
    "traces": _summary(
        "traces",
        {
            "model": ("model", _text),
            "tokens": ("tokens", number),
            "skew": ("std", ratio),
            "busiest rank over mean": ("busiest rank", ratio),
            "hub, us": ("hub, µs", number),
        },
    ),
    "published_groups": _published_groups,
    "published_fit": lambda folder: _published_rows(folder, lambda row: row["role"] == "fit"),
    "published_test": lambda folder: _published_rows(
        folder, lambda row: row["role"] == "test" and not row["group"]
    ),
}


def fill(text, folder):
    """The page's text with its tables and numbers written anew; of experiments that have not been
    run, the page says so, and their numbers stay.

    Raises ValueError for an unknown table and for a number that no row has.
    """

    def table(match):
        name = match.group(1)
        if name not in TABLES:
            raise ValueError(f"table = {name!r}: must be one of {', '.join(TABLES)}")
        try:
            body = TABLES[name](folder)
        except NotRun as error:
            body = f"{NOT_RUN} `moe-hub evaluate {error.experiment}`.\n"
        return f"<!-- table: {name} -->\n\n{body}\n<!-- end -->"

    def number_of(match):
        try:
            found = look_up(match.group(1), lambda name: read(folder, name))
        except NotRun:
            found = match.group(2)
        return f"<!-- = {match.group(1)} -->{found}<!-- . -->"

    return VALUE.sub(number_of, MARK.sub(table, text))
