# SPDX-License-Identifier: Apache-2.0
"""What questions have in common: who launches the kernels, and points and rows by case."""

from sim.evaluate.host import GRAPH, cpp
from sim.evaluate.machine.hardware import machine
from sim.evaluate.page.charts import Panel
from sim.evaluate.study import JUDGED, PAPER_SYSTEMS, UNBUILT, systems_of

__all__ = [
    "BASELINES",
    "BASELINE_MODELS",
    "GRAPHLESS",
    "HOSTS",
    "by_model",
    "cases",
    "host_of",
    "hosted",
    "launchable",
    "lines_over",
]

BASELINES = ("deepep_v1_ll", "deepep_v2", "mori", *UNBUILT, "ideal")  # the last sends nothing
BASELINE_MODELS = ("mixtral-8x7b", "qwen2-moe-2.7b", "deepseek-v3")
#: They wait for their host in every layer, so no layer of theirs is a CUDA graph.
GRAPHLESS = (*PAPER_SYSTEMS, "deepep_v1_normal")
#: Who launches the kernels: constants of software, of each point.
HOSTS = {
    "Python": (),
    "C++": cpp(machine(JUDGED, 8).gpu.launch_us),
    "graph": GRAPH,
}


def host_of(point):
    """The name in :data:`HOSTS` of who launches a point's kernels."""
    return next(
        name for name in ("graph", "C++", "Python") if set(HOSTS[name]) <= set(point.constants)
    )


def launchable(options, default, host="graph"):
    """The systems to compare, and the hub: those that this host can launch."""
    return tuple(
        system
        for system in systems_of(options, default)
        if host != "graph" or system not in GRAPHLESS
    )


def cases(items, key):
    """{key: points or rows}, in their order."""
    found = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def by_model(rows):
    """{model: rows}, in their order."""
    return cases(rows, lambda row: row["model"])


def lines_over(rows_of, x, value, *, xlabel, ylabel, **panel):
    """A panel for each title of ``rows_of``, {title: rows}: ``value(row)`` of each system over the
    column ``x``."""
    return [
        Panel(
            title=title,
            kind="lines",
            x=tuple(dict.fromkeys(row[x] for row in own)),
            xlabel=xlabel,
            log_x=True,
            series={
                system: tuple(value(row) for row in own if row["system"] == system)
                for system in dict.fromkeys(row["system"] for row in own)
            },
            ylabel=ylabel,
            **panel,
        )
        for title, own in rows_of.items()
    ]


def hosted(system):
    """Constants of the best host that a system can have: none, a CUDA graph, or one in C++."""
    return HOSTS["C++" if system in GRAPHLESS else "graph"]
