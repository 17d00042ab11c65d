# SPDX-License-Identifier: Apache-2.0
"""How evenly routing uses a hub's slices, by tokens per rank and by what the RowIDs are: rows of
figures, and the table of ``docs/results/lanes.md``. ``moe-hub lanes``.
"""

from flow.pages.rows import read
from flow.tables import markdown

from .models import model as model_of
from .numbering import NUMBERINGS, lane_use
from .traces import generate, read_trace

__all__ = ["RUNS", "TABLES", "lane_rows"]

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # per rank
RUNS = 8  # of tokens, at most


def _made_up(shape, total, seed):
    drawn = {"tokens": total, "top_k": shape.top_k, "experts": shape.experts}
    return [generate(**drawn, seed=seed + number) for number in range(RUNS)]


def _windows(log, total):
    return [log.window(number * total, total) for number in range(min(RUNS, log.tokens // total))]


def lane_rows(model, traces, ranks, slices, seed):
    """A row, dictionary, for each routing, number of slices and tokens per rank: percent of its
    links that a rank can use, by numbering; means over ranks and runs of tokens.

    ``model``: whose made-up routing comes first; ``traces``: files of logs, each as far as its
    tokens reach; ``slices``: several numbers. Raises ValueError and OSError for a model or a log.
    """
    shape = model_of(model)
    logs = [(path.stem, read_trace(path)) for path in traces]
    rows = []
    for count in slices:
        for name, log in [(f"{shape.name}, made up", None), *logs]:
            for tokens in TOKENS:
                total = ranks * tokens
                runs = _windows(log, total) if log else _made_up(shape, total, seed)
                if not runs:
                    break
                means = {
                    way: sum(lane_use(run, ranks, count, way).mean() for run in runs) / len(runs)
                    for way in NUMBERINGS
                }
                shares = {way: f"{100 * mean:.1f}" for way, mean in means.items()}
                rows.append({"routing": name, "slices": count, "tokens per rank": tokens, **shares})
    return rows


def _table(folder):
    """A table for each number of slices: a column for each routing and numbering."""
    rows = read(folder, "lanes")
    names = list(dict.fromkeys(row["routing"] for row in rows))
    head = ("tokens per rank", *(f"{name}: {way}, %" for name in names for way in NUMBERINGS))
    parts = []
    for slices in dict.fromkeys(row["slices"] for row in rows):
        lines = {}
        for row in rows:
            if row["slices"] == slices:
                cells = {(row["routing"], way): row[way] for way in NUMBERINGS}
                lines.setdefault(row["tokens per rank"], {}).update(cells)
        body = [
            (
                f"{int(tokens):,}",
                *(cells.get((name, way), "") for name in names for way in NUMBERINGS),
            )
            for tokens, cells in lines.items()
        ]
        parts += [f"{slices} slices:", "", *markdown(head, body, "--:"), ""]
    return "\n".join(parts)


TABLES = {"lanes": _table}
