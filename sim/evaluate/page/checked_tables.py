# SPDX-License-Identifier: Apache-2.0
"""Tables of what was published or measured, beside ours."""

from flow.pages.rows import read
from sim.evaluate.systems import provenance, ranges

from .numbers import NAMES, number, percent
from .rows import markdown

__all__ = ["TABLES"]


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


TABLES = {
    "alltoall": _alltoall,
    "gemm": _gemm,
    "host_calls": _host_calls,
    "published_groups": _published_groups,
    "published_fit": lambda folder: _published_rows(folder, lambda row: row["role"] == "fit"),
    "published_test": lambda folder: _published_rows(
        folder, lambda row: row["role"] == "test" and not row["group"]
    ),
}
