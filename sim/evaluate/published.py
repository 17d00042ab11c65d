# SPDX-License-Identifier: Apache-2.0
"""Every published figure beside what the model says: ``data/published.toml``, ours, the error, good
or bad.

for row in rows():      # figures of role "test" and "fit"
    print(row.figure.id, row.figure.value, row.ours, row.error)
"""

from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import geometric_mean, mean, median

from sim.evaluate.machine.compute import expert_gemms, grouped_gemm_us, pass_us
from sim.evaluate.machine.engine import run_layer
from sim.evaluate.machine.hardware import load_data, machine
from sim.evaluate.machine.workload import Workload
from sim.evaluate.pipelines.run import run_program
from sim.evaluate.schemes import scheme
from sim.workload.models import ModelShape
from sim.workload.models import model as shape

from . import bench, runner
from .end_to_end import forward_us
from .runner import Point

__all__ = [
    "Figure",
    "Layers",
    "Row",
    "ask",
    "figure",
    "figures",
    "hardware",
    "median_error",
    "no_rows",
    "points_of",
    "rows",
]

PLAIN = "system", "model", "tokens", "machine", "ranks", "skew"  # of a point with nothing replaced
COMMUNICATION = ("counts", "dispatch", "combine")
ROLES = ("fit", "test", "input", "out of scope")
UNITS = {"gbps": "GB/s", "us": "us", "ms": "ms"}


@dataclass(frozen=True)
class Figure:
    """One published figure; fields as in ``data/published.toml``, ``source`` in full words."""

    id: str
    system: str
    metric: str
    value: float
    source: str
    role: str
    hardware: str | None = None
    ranks: int | None = None
    workload: str | None = None
    set: str | None = None
    over: tuple = ()
    options: dict = field(default_factory=dict)
    target: float = 0.15
    group: str = ""
    bound: str = ""
    reason: str = ""
    note: str = ""

    @property
    def unit(self):
        """Unit of the value; empty for ratios and fractions."""
        return UNITS.get(self.metric.rsplit("_", 1)[-1], "")


@dataclass(frozen=True)
class Row:
    """A figure with ours."""

    figure: Figure
    ours: float

    @property
    def error(self):
        """Relative error, ours / published - 1; 0 above a published lower bound."""
        error = self.ours / self.figure.value - 1
        return 0.0 if self.figure.bound == "lower" and error > 0 else error

    @property
    def met(self):
        """Whether the error is within the figure's target."""
        return abs(self.error) <= self.figure.target


@cache
def _data():
    return load_data("published.toml")


@cache
def figures():
    """All :class:`Figure`, in the order of the file. Raises ValueError for a metric, role or source
    that is not there."""
    data, result = _data(), []
    for entry in data["figure"]:
        for name, known in (
            ("metric", data["metric"]),
            ("source", data["source"]),
            ("role", ROLES),
        ):
            if entry[name] not in known:
                raise ValueError(
                    f"{entry['id']}: {name} = {entry[name]!r}: must be one of {', '.join(known)}"
                )
        if entry["role"] == "out of scope" and not entry.get("reason"):
            raise ValueError(f"{entry['id']}: role 'out of scope' needs a reason")
        result.append(
            Figure(
                **entry
                | {"source": data["source"][entry["source"]], "over": tuple(entry.get("over", ()))}
            )
        )
    return tuple(result)


@cache
def _by_id():
    return {figure.id: figure for figure in figures()}


def figure(id):
    """The figure called ``id``. Raises ValueError when there is none."""
    if id not in _by_id():
        raise ValueError(f"figure = {id!r}: there is none of that id in published.toml")
    return _by_id()[id]


# -- what a figure is about ------------------------------------------------------------------------


def machine_of(figure, ranks=None):
    """(machine, options of its nodes) of a figure; ``ranks``: where its set has several."""
    return hardware(figure.hardware, ranks or figure.ranks)


def hardware(name, ranks):
    """(machine, options of its nodes) of a ``hardware`` of published.toml."""
    entry = _data()["hardware"][name]
    base = replace(machine(entry["base"]), max_ranks=max(ranks, 72))
    nodes = {name: entry[name] for name in ("nodes_of", "nic_gbps") if name in entry}
    return base.changed(gpu=entry.get("gpu"), fabric=entry.get("fabric"), ranks=ranks), nodes


def plain_shape(*, hidden, inter, experts, top_k, dtype="bf16", name="published"):
    """A shape of a benchmark that is no model."""
    return ModelShape(
        name=name,
        layers=1,
        hidden=hidden,
        experts=experts,
        top_k=top_k,
        inter=inter,
        dtype=dtype,
        made_up=True,
        source="benchmark",
    )


def workload_of(figure):
    """The workload of a figure that has one: uniform routing, as the systems' benchmarks draw
    it."""
    entry = {
        name: value
        for name, value in _data()["workload"][figure.workload].items()
        if name != "note"
    } | figure.options
    inter, tokens = entry["inter"], entry["tokens"] * figure.ranks
    if (
        entry.get("matrices") == 2
    ):  # two matrices of I columns have the work and bytes of a gated expert of 2 I / 3
        inter = round(2 * inter / 3)
    dtype = figure.options.get(
        "dispatch_dtype", "fp8" if figure.metric.startswith(("dispatch", "combine")) else "bf16"
    )
    made = plain_shape(
        hidden=entry["hidden"],
        inter=inter,
        experts=entry["experts"],
        top_k=entry["top_k"],
        dtype=dtype,
    )
    return _workload(made, figure.ranks, tokens, 0.0)


@cache
def _workload(shape, ranks, tokens, skew):
    return Workload.make(shape, ranks, tokens, skew=skew)


def set_of(figure):
    """[(machine, workload)] of a figure about a set."""
    entry = _data()["set"][figure.set]
    if "models" in entry:
        return [
            (
                machine_of(figure, ranks)[0],
                _workload(shape(model), ranks, tokens, entry["skew"]),
            )
            for model, ranks, tokens in _cases(figure)
        ]
    made = machine_of(figure)[0]
    return [
        (
            made,
            _workload(
                plain_shape(
                    **{name: values[name] for name in ("hidden", "inter", "experts", "top_k")}
                ),
                figure.ranks,
                values["tokens"] * figure.ranks,
                entry["skew"],
            ),
        )
        for values in entry["shapes"]
    ]


def _cases(figure):
    """(model, ranks, tokens) of a figure about a set of models."""
    entry = _data()["set"][figure.set]
    return [
        (model, ranks, tokens)
        for ranks in entry.get("ranks", (figure.ranks,))
        for model in entry["models"]
        if ranks <= shape(model).experts
        for tokens in entry["tokens"]
    ]


def points_of(figure):
    """The layers of a figure about a set of models on a machine of hardware.toml, as points."""
    skew = _data()["set"][figure.set]["skew"]
    return [
        Point(system, model, tokens, machine=figure.hardware, ranks=ranks, skew=skew)
        for model, ranks, tokens in _cases(figure)
        for system in (figure.system, *figure.over)
    ]


# -- asking ----------------------------------------------------------------------------------------


class Layers:
    """Layers that have been run, for figures that share them; ``results``: of points that were run
    elsewhere."""

    def __init__(self, results=None):
        self.run = {}
        self.known = {
            (point.system, runner.machine_of(point), point.model, point.tokens, point.skew): result
            for point, result in (results or {}).items()
            if point == Point(**{name: getattr(point, name) for name in PLAIN})
        }

    def __call__(self, system, machine, workload, program=""):
        name = workload.shape.name, workload.tokens, workload.skew
        if not program and (found := self.known.get((system, machine, *name))):
            return found
        key = system, machine, id(workload), program
        if key not in self.run:
            run = partial(run_program, program, system) if program else run_layer
            self.run[key] = run(scheme(system), machine, workload), workload
        return self.run[key][0]


def _rows_bytes(figure, workload):
    """Logical bytes that the bandwidth of a dispatch or combine is about: rows at a rank, mean of
    the ranks."""
    size = (
        workload.shape.dispatch_bytes
        if figure.metric.startswith("dispatch")
        else workload.shape.combine_bytes
    )
    return workload.distinct.sum() / workload.ranks * size


def _kernel(figure, layers):
    (made, nodes), workload = machine_of(figure), workload_of(figure)
    options = figure.options | nodes
    if figure.metric == "dispatch_call_us":
        return bench.dispatch_call_us(made, workload)
    way = bench.dispatch_us if figure.metric.startswith("dispatch") else bench.combine_us
    us = way(figure.system, made, workload, options)
    return us if figure.metric.endswith("_us") else _rows_bytes(figure, workload) / us / 1e3


def _comet_layer(figure, layers):
    return (
        bench.comet_layer(
            int(figure.metric[5]),
            machine_of(figure)[0],
            workload_of(figure),
            figure.options["tensor_parallel"],
        )
        / 1e3
    )


def _layer_ms(figure, layers):
    return layers(figure.system, machine_of(figure)[0], workload_of(figure)).us / 1e3


def _speedup_max(figure, layers):
    made, workload = machine_of(figure)[0], workload_of(figure)
    own = layers(figure.system, made, workload).us
    return max(layers(other, made, workload).us for other in figure.over) / own


def _layer_ratio(figure, layers, program=""):
    return geometric_mean(
        layers(figure.system, *point, program).us / layers(other, *point, program).us
        for other in figure.over
        for point in set_of(figure)
    )


def _layer_speedup(figure, layers):
    points = set_of(figure)
    return mean(
        layers(other, *point).us / layers(figure.system, *point).us
        for other in figure.over
        for point in points
    )


def _comm_fraction(figure, layers):
    results = [layers(figure.system, *point) for point in set_of(figure)]
    return mean(
        sum(dict(result.breakdown).get(phase, 0.0) for phase in COMMUNICATION) / result.us
        for result in results
    )


def _exposed_fraction(figure, layers):
    def work(machine, workload):
        first, second = expert_gemms(workload.shape)
        rows = max((workload.rows_at(rank) for rank in range(workload.ranks)), key=sum)
        return (
            grouped_gemm_us(machine.gpu, first, rows)
            + pass_us(machine.gpu, int(rows.sum()) * 6 * workload.shape.inter)
            + grouped_gemm_us(machine.gpu, second, rows)
        )

    return mean(1 - work(*point) / layers(figure.system, *point).us for point in set_of(figure))


def no_rows(ranks):
    """A workload for what has none of its own."""
    small = plain_shape(hidden=128, inter=128, experts=ranks, top_k=1)
    return _workload(small, ranks, ranks, 0.0)


def _flag(figure, layers):
    return bench.flag_us(machine_of(figure)[0], no_rows(figure.ranks))


def _alltoall(figure, layers):
    return bench.alltoall_us(machine_of(figure)[0], no_rows(figure.ranks), figure.options["bytes"])


def _end_to_end(figure, layers):
    def forward(system, machine, workload):
        return forward_us(
            machine, workload.shape, workload.tokens, layers(system, machine, workload).us
        )

    points = set_of(figure)
    return mean(
        forward(other, *point) / forward(figure.system, *point)
        for other in figure.over
        for point in points
    )


METRICS = {
    "dispatch_gbps": _kernel,
    "combine_gbps": _kernel,
    "dispatch_us": _kernel,
    "combine_us": _kernel,
    "dispatch_call_us": _kernel,
    "layer0_ms": _comet_layer,
    "layer1_ms": _comet_layer,
    "layer_ms": _layer_ms,
    "speedup_max": _speedup_max,
    "layer_ratio": _layer_ratio,
    "training_ratio": partial(_layer_ratio, program="step"),
    "layer_speedup": _layer_speedup,
    "comm_fraction": _comm_fraction,
    "exposed_fraction": _exposed_fraction,
    "flag_us": _flag,
    "alltoall_us": _alltoall,
    "end_to_end_speedup": _end_to_end,
}


def ask(figure, layers=None):
    """What the model says, in the unit of the figure. ``layers``: layers already run, to share
    among figures."""
    return METRICS[figure.metric](figure, Layers() if layers is None else layers)


def rows(
    select=lambda figure: figure.role in ("fit", "test"),
    report=lambda figure: None,
    results=None,
):
    """[:class:`Row`] of the figures that ``select`` takes; ``report`` is called before each is
    asked. ``results``: {point: result} of layers that have been run."""
    layers, result = Layers(results), []
    for one in filter(select, figures()):
        report(one)
        result.append(Row(one, ask(one, layers)))
    return result


def median_error(rows, role="test", group=""):
    """Median of the absolute relative errors of asked figures of a role and group."""
    errors = [
        abs(row.error) for row in rows if row.figure.role == role and row.figure.group == group
    ]
    return median(errors)
