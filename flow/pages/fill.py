# SPDX-License-Identifier: Apache-2.0
"""A page's tables and numbers, written between marks in its text from CSV files.

A page has ``<!-- table: NAME -->`` where a table begins and ``<!-- end -->`` behind it; what lies
between is written anew. So are numbers in its text, see ``values.py``. Same files, same text.
"""

import re

from .rows import NotRun, read
from .values import VALUE, look_up

__all__ = ["MARK", "NOT_RUN", "fill"]

MARK = re.compile(r"<!-- table: ([a-z0-9_]+) -->\n(.*?)<!-- end -->", re.S)
NOT_RUN = "Not run yet:"


def fill(text, folder, tables, command="moe-hub"):
    """The page's text with its tables and numbers written anew; of experiments that have not been
    run, the page says so, and their numbers stay. ``tables``: {name: text of a folder's CSV files}.
    ``command``: what runs an experiment whose name stands behind it.

    Raises ValueError for an unknown table and for a number that no row has.
    """

    def table(match):
        name = match.group(1)
        if name not in tables:
            raise ValueError(f"table = {name!r}: must be one of {', '.join(tables)}")
        try:
            body = tables[name](folder)
        except NotRun as error:
            body = f"{NOT_RUN} `{command} {error.name}`.\n"
        return f"<!-- table: {name} -->\n\n{body}\n<!-- end -->"

    def number_of(match):
        try:
            found = look_up(match.group(1), lambda name: read(folder, name))
        except NotRun:
            found = match.group(2)
        return f"<!-- = {match.group(1)} -->{found}<!-- . -->"

    return VALUE.sub(number_of, MARK.sub(table, text))
