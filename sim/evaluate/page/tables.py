# SPDX-License-Identifier: Apache-2.0
"""Rows of an experiment as a CSV and as a table on the terminal."""

import csv
import io

from rich.table import Table

__all__ = ["csv_text", "rich_table", "shown"]


def shown(value):
    """A cell: numbers with a sensible number of digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.1f}"
        if abs(value) >= 100
        else f"{value:.3f}"
    )


def _columns(rows):
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_text(rows):
    """The rows (dictionaries) as CSV; numbers with six digits, so that the bytes do not depend on
    the last bit."""
    out = io.StringIO()
    columns = _columns(rows)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = (row.get(name) for name in columns)
        writer.writerow(
            [
                "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else cell
                for cell in cells
            ]
        )
    return out.getvalue()


def rich_table(title, rows):
    """The rows as a table of rich; columns of numbers are aligned to the right."""
    table = Table(title=title, title_justify="left")
    for name in _columns(rows):
        numeric = any(isinstance(row.get(name), (int, float)) for row in rows)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(shown(row.get(name)) for name in _columns(rows)))
    return table
