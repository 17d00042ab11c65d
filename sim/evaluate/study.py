# SPDX-License-Identifier: Apache-2.0
"""What experiments have in common: options, reports, points of a grid, speed-ups, the paper's
averages.

An experiment has ``points(options)``, the layers to simulate, and ``report(options, results)``,
rows for the CSV, a short table, notes and a plot. Speed-up is always another system's time over the
hub's: above 1 the hub is faster.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from sim.evaluate.machine.hardware import load_data
from sim.evaluate.page.charts import Plot
from sim.evaluate.schemes import SCHEMES

from .end_to_end import forward_us
from .runner import Point, machine_of
from .systems import replaced

__all__ = [
    "ABLATIONS",
    "HUB",
    "IN_SWITCH",
    "JUDGED",
    "PAPER_LINKS",
    "PAPER_SYSTEMS",
    "UNBUILT",
    "Experiment",
    "Options",
    "Report",
    "forward",
    "grid",
    "mean",
    "models_of",
    "paper",
    "rows_of",
    "speedup",
    "systems_of",
    "tokens_of",
]

HUB = "moe_hub"
#: The machine whose figures are judged: the paper calibrates its simulator on H800.
JUDGED = "h800"
#: The same with the links of the paper's set-up, twice as fast: what hangs on them.
PAPER_LINKS = "h800_400"
PAPER_SYSTEMS = ("megatron", "fastermoe", "tutel", "comet", "ccfuser")
ABLATIONS = ("moe_hub_base", "moe_hub_packets", "moe_hub_signal", HUB)
#: What nobody has built: asked for by name.
UNBUILT = ("row_flags", "expert_flags", "moe_hub_by_expert", "moe_hub_once")
#: What needs switches that copy rows and add answers up: asked for by name.
IN_SWITCH = ("nvls", "dysharp", "moe_hub_in_switch", "moe_hub_fused", "moe_hub_fused_in_switch")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What narrows or changes the experiments: empty means what each of them takes by itself.

    ``ranks``: GPUs. ``skew``: of the made-up routing. ``jitter``: microseconds that a GPU begins a
    layer late, mean, where an experiment asks for it. ``gpu``, ``fabric``: fields of the machine to
    replace, ``constants``: of software, as :class:`sim.evaluate.runner.Point` has them; what an
    experiment varies itself it varies. ``traces``: paths of routing logs."""

    models: tuple = ()
    tokens: tuple = ()
    systems: tuple = ()
    machine: str = ""
    ranks: int | None = None
    skew: float | None = None
    jitter: float | None = None
    gpu: tuple = ()
    fabric: tuple = ()
    constants: tuple = ()
    traces: tuple = ()
    seed: int = 1

    @property
    def changed(self):
        """Whether what is simulated is not what the experiment takes by itself, but for the systems
        and the seed."""
        return bool(
            self.models
            or self.tokens
            or self.machine
            or self.ranks is not None
            or self.skew is not None
            or self.jitter is not None
            or self.gpu
            or self.fabric
            or self.constants
        )

    def fields(self):
        """Fields of every point that are not what they are by default."""
        found = {name: getattr(self, name) for name in ("ranks", "skew")}
        found = {name: value for name, value in found.items() if value is not None}
        return found | {
            name: getattr(self, name)
            for name in ("gpu", "fabric", "constants")
            if getattr(self, name)
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """Outcome of an experiment: ``rows`` for the CSV, ``summary`` for the terminal, ``notes``, one
    line each, ``plot``."""

    rows: list
    summary: list
    notes: list = field(default_factory=list)
    plot: Plot | None = None


@dataclass(frozen=True)
class Experiment:
    """One experiment; ``points(options)``, ``report(options, results)``; see the module's text."""

    name: str
    title: str
    points: Callable
    report: Callable


@cache
def paper():
    """What the paper averages over: its models, tokens, GPUs and skew; and its averages, {(metric,
    system): value}."""
    data = load_data("published.toml")
    averages = {
        (figure["metric"], figure["over"][0]): figure["value"]
        for figure in data["figure"]
        if figure["system"] == HUB
        and figure.get("set") == "moe_hub_paper"
        and len(figure.get("over", ())) == 1
    }
    return data["set"]["moe_hub_paper"], averages


def models_of(options):
    """Models to simulate; the paper's by default."""
    return options.models or tuple(paper()[0]["models"])


def tokens_of(options, default=None):
    """Token counts over all ranks; ``default``, or the paper's."""
    return options.tokens or tuple(default or paper()[0]["tokens"])


def systems_of(options, default=None):
    """The systems to compare, those that exist, and the hub."""
    others = (*ABLATIONS[:-1], *UNBUILT, *IN_SWITCH)
    wanted = options.systems or default or [name for name in SCHEMES if name not in others]
    ordered = [
        name
        for name in (*PAPER_SYSTEMS, *sorted(SCHEMES))
        if name in SCHEMES and name in wanted and name != HUB
    ]
    return (*dict.fromkeys(ordered), HUB)


def grid(options, systems, models, tokens, **fixed):
    """Points of all combinations; ``fixed``: fields that all of them have."""
    for name in ("gpu", "fabric", "constants"):  # a field that is varied is what it is varied to
        if name in fixed:
            fixed[name] = (*getattr(options, name), *fixed[name])
    fixed = {"machine": options.machine or JUDGED, "seed": options.seed} | options.fields() | fixed
    return [
        Point(system, model, count, **fixed)
        for model in models
        for count in tokens
        for system in systems
    ]


def speedup(results, point):
    """Time of the point's system over the hub's on the same layer."""
    return results[point].us / results[replace(point, system=HUB)].us


def rows_of(results, points):
    """CSV rows of the points, with the speed-up of the hub."""
    return [results[point].row() | {"speedup_of_hub": speedup(results, point)} for point in points]


def mean(values):
    """Arithmetic mean, None of nothing."""
    values = list(values)
    return float(np.mean(values)) if values else None


def forward(results, point):
    """Forward time of the whole model, microseconds."""
    with replaced(point.constants):
        return forward_us(machine_of(point), point.shape, point.tokens, results[point].us)
