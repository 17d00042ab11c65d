# SPDX-License-Identifier: Apache-2.0
"""Rows of figures, dictionaries, as CSV files: what pages are written from."""

import csv
import io
from pathlib import Path

__all__ = ["NotRun", "columns", "csv_text", "read"]


class NotRun(ValueError):
    """The file is not there of what is called ``name``."""

    def __init__(self, path, name):
        super().__init__(f"{path}: is not there, {name} has not been run")
        self.name = name


def columns(rows):
    """Names of the columns, in the order in which rows bring them."""
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_text(rows):
    """The rows (dictionaries) as CSV; numbers with six digits, so that the bytes do not depend on
    the last bit."""
    out = io.StringIO()
    names = columns(rows)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = (row.get(name) for name in names)
        writer.writerow(
            [
                "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else cell
                for cell in cells
            ]
        )
    return out.getvalue()


def read(folder, name):
    """Rows of the file ``name``.csv in a folder, all cells text. Raises :class:`NotRun`."""
    path = Path(folder) / f"{name}.csv"
    if not path.is_file():
        raise NotRun(path, name.removesuffix("-summary"))
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
