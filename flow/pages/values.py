# SPDX-License-Identifier: Apache-2.0
"""Numbers in the text of the results page, looked up in the experiments' CSV files.

A number stands as ``<!-- = ORDER -->1.57<!-- . -->``; what lies between is written anew. An order
has parts, with ``;`` between them:

    layer-summary; mean; machine=h800; hub over=comet            the cell of the one row that fits
    layer-summary; count; machine=h800; abs error, %<=10         rows that fit
    layer; max speedup_of_hub; machine=h800; system=tutel        min, max, mean, median of a column
    layer-summary + end-to-end-summary; count; ...               rows of both files
    published; median abs error, %; role=test; as .1f            Python's format; .2f by default

Same files, same text.
"""

import re
from statistics import mean, median

__all__ = ["VALUE", "WrongOrder", "look_up"]

VALUE = re.compile(r"<!-- = (.*?) -->(.*?)<!-- \. -->", re.S)
CONDITION = re.compile(r"^(abs )?(.+?)\s*(<=|>=|!=|=)\s*(.*)$")
OVER = {"min": min, "max": max, "mean": mean, "median": median}


class WrongOrder(ValueError):
    """A number of the text that no row, or more than one, has; one line."""


def _fits(row, absolute, column, sign, wanted):
    if column not in row:
        raise WrongOrder(f"column = {column!r}: must be one of {', '.join(row)}")
    if sign in ("=", "!="):
        return (row[column] == wanted) == (sign == "=")
    if not row[column]:
        return False
    number = abs(float(row[column])) if absolute else float(row[column])
    return number <= float(wanted) if sign == "<=" else number >= float(wanted)


def look_up(order, read):
    """The text of a number; ``read(name)``: rows of a CSV file. Raises :class:`WrongOrder`, and
    what ``read`` raises."""
    files, wanted, *rest = (part.strip() for part in order.split(";"))
    form = next((part[3:] for part in rest if part.startswith("as ")), ".2f")
    rows = [row for name in files.split("+") for row in read(name.strip())]
    for part in rest:
        if not part.startswith("as "):
            match = CONDITION.match(part)
            if not match:
                raise WrongOrder(f"{order}: {part!r} is no condition")
            rows = [row for row in rows if _fits(row, *match.groups())]
    if wanted == "count":
        return f"{len(rows):,}"
    name, _, column = wanted.partition(" ")
    over = OVER.get(name) if column else None
    if not over:
        column = wanted
    absolute, column = column.startswith("abs "), column.removeprefix("abs ")
    if not rows or (not over and len(rows) > 1):
        raise WrongOrder(f"{order}: {len(rows)} rows fit, must be {'some' if over else 'one'}")
    if column not in rows[0]:
        raise WrongOrder(f"{order}: column = {column!r}: must be one of {', '.join(rows[0])}")
    numbers = [float(row[column]) for row in rows if row[column] != ""]
    if not numbers:
        return "–"  # the row says nothing there
    numbers = [abs(number) for number in numbers] if absolute else numbers
    return format(over(numbers) if over else numbers[0], form).replace("-", "−")
