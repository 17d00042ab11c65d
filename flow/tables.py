# SPDX-License-Identifier: Apache-2.0
"""A table in its two forms: Markdown for a page, rich for the terminal."""

from rich.table import Table

__all__ = ["cells", "markdown", "screen"]


def cells(row):
    """One line of a Markdown table."""
    return f"| {' | '.join(map(str, row))} |"


def markdown(head, rows, marks="---"):
    """Lines of a Markdown table. ``head``: names of the columns, or that line. ``marks``: of all
    columns, or the line below the head (``--:`` aligns to the right)."""
    line = marks if marks.startswith("|") else "|" + f"{marks}|" * len(head)
    return [head if isinstance(head, str) else cells(head), line, *map(cells, rows)]


def screen(head, rows=(), title=None, right=()):
    """A table for the terminal. ``right``: names of the columns that are aligned to the right."""
    table = Table(title=title)
    for name in head:
        table.add_column(name, justify="right" if name in right else "left")
    for row in rows:
        table.add_row(*row)
    return table
