# SPDX-License-Identifier: Apache-2.0
"""Rows of the experiments' CSV files, and what the page's tables have in common."""

from flow import tables
from flow.pages.rows import read

from .numbers import NAMES, ratio

__all__ = [
    "SHOWN_GPUS",
    "compared",
    "grid",
    "markdown",
    "summary",
    "systems_in",
    "titles",
]

SHOWN_GPUS = "8"  # of tables over tokens


def markdown(head, rows, left=1):
    """A Markdown table; all columns but the first ``left`` are aligned to the right."""
    marks = "| --- " * left + "| ---: " * (len(head) - left) + "|"
    return "\n".join(tables.markdown(head, rows, marks)) + "\n"


def titles(systems):
    """Systems as their authors write them."""
    return [NAMES.get(system, system) for system in systems]


def compared(rows, column="system"):
    """Systems of the rows beside the hub, in the order of the page."""
    present = dict.fromkeys(row[column] for row in rows)
    return [name for name in NAMES if name in present and name != "moe_hub"]


def systems_in(row):
    return [name for name in NAMES if row.get(name)]


def grid(rows, of_row, columns, value):
    """{key of a row: {column: value}} in the order of the rows."""
    table = {}
    for row in rows:
        if columns(row) is not None:
            table.setdefault(of_row(row), {}).setdefault(columns(row), []).append(value(row))
    return table


def summary(name, shown, keep=lambda row: True):
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
        return markdown([*(heading for heading, _ in shown.values()), *titles(systems)], lines)

    return table
