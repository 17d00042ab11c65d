# SPDX-License-Identifier: Apache-2.0
"""Rows of an experiment as a table on the terminal."""

from rich.table import Table

from flow.pages.rows import columns

__all__ = ["rich_table", "shown"]


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


def rich_table(title, rows):
    """The rows as a table of rich; columns of numbers are aligned to the right."""
    table = Table(title=title, title_justify="left")
    for name in columns(rows):
        numeric = any(isinstance(row.get(name), (int, float)) for row in rows)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(shown(row.get(name)) for name in columns(rows)))
    return table
