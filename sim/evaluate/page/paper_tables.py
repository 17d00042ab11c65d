# SPDX-License-Identifier: Apache-2.0
"""Tables of the paper's comparison: machines, averages, sweeps, what they hang on."""

from flow.pages.rows import read
from sim.evaluate.machine.hardware import machine
from sim.evaluate.study import JUDGED, PAPER_LINKS, PAPER_SYSTEMS
from sim.evaluate.systems import values_of

from .numbers import NAMES, error, mean, number, percent, ratio
from .rows import SHOWN_GPUS, compared, grid, markdown, summary, systems_in, titles

__all__ = ["TABLES"]

MACHINES_SHOWN = (JUDGED, PAPER_LINKS, "h100", "b200", "gb200_nvl72", "gh200_nvl32")


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
        systems = compared(rows)
        found = grid(
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
                *titles(systems),
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
        systems = compared(rows)
        found = grid(
            rows,
            lambda r: int(r[column]),
            lambda r: r["system"],
            lambda r: float(r["speedup_of_hub"]),
        )
        return markdown(
            [heading, *titles(systems)],
            [
                [number(value), *(ratio(mean(cells[s])) if s in cells else "" for s in systems)]
                for value, cells in sorted(found.items())
            ],
        )

    return table


def _sensitivity(folder):
    """The changes that move a mean most, and the first row, nothing changed."""
    base, *rows = read(folder, "sensitivity-summary")
    rows = [row for row in rows if "." not in row["assumption"]]
    rows.sort(key=lambda row: -float(row["largest change, %"]))
    return markdown(
        ["changed", "to", *titles(PAPER_SYSTEMS), "largest change, %"],
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
                    number(values_of(section)[name], 3),
                    row["value"],
                    ratio(base[system]),
                    ratio(row[system]),
                    error(row[system], base[system]),
                ]
                for system in systems_in(row)
            ]
    return markdown(
        ["system", "constant", "fitted", "changed to", "hub over it", "then", "change, %"],
        lines,
        left=2,
    )


def _pangu(folder):
    rows = [row for row in read(folder, "pangu-summary") if row["system"] != "moe_hub"]
    hub = {
        (row["ranks"], row["tokens"]): row
        for row in read(folder, "pangu-summary")
        if row["system"] == "moe_hub"
    }
    systems = compared(rows)
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
        ["GPUs", "tokens", "hub's layer, µs", "hub's forward, ms", *titles(systems)], lines
    )


TABLES = {
    "machines": _machines,
    "averages": _averages,
    "ranges": _ranges,
    "points": _points("layer"),
    "points_end": _points("end-to-end"),
    "tokens": _means("tokens", "tokens", lambda row: row["ranks"] == SHOWN_GPUS),
    "averages_gpus": _means("ranks", "GPUs"),
    "pangu": _pangu,
    "sensitivity": _sensitivity,
    "fitted": _fitted,
    "skew": summary("skew", {"skew": ("std of the fractions", str)}),
    "gpus": summary("gpus", {"model": ("model", str), "GPUs": ("GPUs", str)}),
    "ablation": summary("ablation", {"machine": ("machine", str), "tokens": ("tokens", number)}),
    "links": summary("links", {"GB/s per GPU and direction": ("GB/s", str)}),
    "shapes": summary(
        "shapes",
        {
            "model": ("model", str),
            "top-k": ("top-k", str),
            "experts": ("experts", str),
            "ratio": ("bytes, rows per expert over per rank", ratio),
            "hub, us": ("hub, µs", number),
        },
    ),
    "traces": summary(
        "traces",
        {
            "model": ("model", str),
            "tokens": ("tokens", number),
            "skew": ("std", ratio),
            "busiest rank over mean": ("busiest rank", ratio),
            "hub, us": ("hub, µs", number),
        },
    ),
}
