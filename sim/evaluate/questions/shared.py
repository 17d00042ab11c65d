# SPDX-License-Identifier: Apache-2.0
"""What questions have in common: who launches the kernels, and points and rows by case."""

from sim.evaluate.host import GRAPH, cpp
from sim.evaluate.machine.hardware import machine
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


def cases(points, key):
    """{key: points}, in their order."""
    found = {}
    for point in points:
        found.setdefault(key(point), []).append(point)
    return found


def by_model(rows):
    """{model: rows}, in their order."""
    found = {}
    for row in rows:
        found.setdefault(row["model"], []).append(row)
    return found


def hosted(system):
    """Constants of the best host that a system can have: none, a CUDA graph, or one in C++."""
    return HOSTS["C++" if system in GRAPHLESS else "graph"]
