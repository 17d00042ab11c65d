# SPDX-License-Identifier: Apache-2.0
"""Every published figure beside what the model says: ``data/published.toml``, ours, the error, good
or bad.

for row in rows():      # figures of role "test" and "fit"
    print(row.figure.id, row.figure.value, row.ours, row.error)
"""

from dataclasses import dataclass, field
from functools import cache
from statistics import geometric_mean, mean, median

from sim.evaluate.machine.compute import expert_gemms, grouped_gemm_us, pass_us
from sim.evaluate.machine.hardware import load_data

from . import bench, host, runner
from . import published_machines as machines
from .end_to_end import forward_us
from .published_layers import cases, no_rows, own_workloads, workload_of
from .runner import Point, run_point

__all__ = [
    "Figure",
    "Layers",
    "Row",
    "ask",
    "figure",
    "figures",
    "median_error",
    "nccl_alltoall_us",
    "points_of",
    "rows",
]

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
    over_hardware: str | None = None
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


SEEDS = 5  # of a layer whose rows are drawn at random

# -- what a figure is about ------------------------------------------------------------------------


def machine_of(figure, ranks=None):
    """(machine, options of its nodes) of a figure; ``ranks``: where its set has several."""
    return machines.hardware(figure.hardware, ranks or figure.ranks)


def _host(entry):
    """Constants to replace on a machine whose host is known by figures."""
    return host.slower(entry["host_factor"]) if "host_factor" in entry else ()


def points_of(figure):
    """{system: [its layers]} that a figure is about, its own and those it is over, as points in the
    same order; empty for what is no layer."""
    if figure.metric not in LAYERS:
        return {}
    entries = {figure.system: machines.entry(figure.hardware)}
    for system in figure.over:
        entries[system] = machines.entry(figure.over_hardware or figure.hardware)
    return {
        system: [
            Point(
                system,
                shape,
                tokens,
                machine=entry["base"],
                ranks=ranks,
                skew=skew,
                program="step" if figure.metric == "training_ratio" else "",
                gpu=tuple(entry.get("gpu", {}).items()),
                fabric=tuple(machines.fabric(entry, ranks).items()),
                constants=constants + _host(entry),
            )
            for shape, ranks, tokens, skew, constants in cases(figure)
        ]
        for system, entry in entries.items()
    }


# -- asking ----------------------------------------------------------------------------------------


class Layers(dict):
    """{point: result}; a layer that is not there is run when it is asked for."""

    def __missing__(self, point):
        return self.setdefault(point, run_point(point))


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
    number, shared = int(figure.metric[5]), figure.options["tensor_parallel"]
    machine, workload = machine_of(figure)[0], workload_of(figure)
    if not figure.options.get("own_rows"):
        return bench.comet_layer(number, machine, workload, shared) / 1e3
    drawn = [own_workloads(figure, seed) for seed in range(1, SEEDS + 1)]
    return mean(bench.comet_layer(number, machine, workload, shared, own) for own in drawn) / 1e3


def _own(figure, layers):
    """(point, result) of the layers of the figure's own system."""
    return [(point, layers[point]) for point in points_of(figure)[figure.system]]


def _ratios(figure, layers, us=lambda point, result: result.us):
    """Times of the systems that a figure is over, over its own, of each layer."""
    points = points_of(figure)
    return [
        us(other, layers[other]) / us(own, layers[own])
        for system in figure.over
        for own, other in zip(points[figure.system], points[system], strict=True)
    ]


def _layer_ms(figure, layers):
    return mean(result.us for _, result in _own(figure, layers)) / 1e3


def _speedup_max(figure, layers):
    return max(_ratios(figure, layers))


def _layer_ratio(figure, layers):
    return 1 / geometric_mean(_ratios(figure, layers))


def _layer_speedup(figure, layers):
    return mean(_ratios(figure, layers))


def _model_us(figure):
    """Function of (point, result): time of the whole model."""
    host_us = machines.entry(figure.hardware).get("rest_us", 0.0)

    def us(point, result):
        return forward_us(runner.machine_of(point), point.shape, point.tokens, result.us, host_us)

    return us


def _end_to_end(figure, layers):
    return mean(_ratios(figure, layers, _model_us(figure)))


def _comm_most(figure, layers):
    model_us = _model_us(figure)

    def share(point, result):
        us = sum(dict(result.breakdown).get(phase, 0.0) for phase in COMMUNICATION)
        return us * point.shape.moe_layers / model_us(point, result)

    return max(share(point, result) for point, result in _own(figure, layers))


def _exposed_fraction(figure, layers):
    def work(point):
        gpu, workload = runner.machine_of(point).gpu, runner.workload_of(point)
        first, second = expert_gemms(workload.shape)
        rows = max((workload.rows_at(rank) for rank in range(workload.ranks)), key=sum)
        return (
            grouped_gemm_us(gpu, first, rows)
            + pass_us(gpu, int(rows.sum()) * 6 * workload.shape.inter)
            + grouped_gemm_us(gpu, second, rows)
        )

    return mean(1 - work(point) / result.us for point, result in _own(figure, layers))


def _flag(figure, layers):
    return bench.flag_us(machine_of(figure)[0], no_rows(figure.ranks))


def nccl_alltoall_us(name, machine, size):
    """NCCL's all-to-all of ``size`` bytes of a rank on ``machine``; ``name``: of its ``hardware``,
    if published.toml has it."""
    more = machines.entry(name).get("collective_us", 0.0) if name in machines.names() else 0.0
    return bench.alltoall_us(machine, no_rows(machine.ranks), size) + more


def _alltoall(figure, layers):
    return nccl_alltoall_us(figure.hardware, machine_of(figure)[0], figure.options["bytes"])


#: Metrics of layers.
LAYERS = {
    "layer_ms": _layer_ms,
    "speedup_max": _speedup_max,
    "layer_ratio": _layer_ratio,
    "training_ratio": _layer_ratio,
    "layer_speedup": _layer_speedup,
    "comm_most": _comm_most,
    "exposed_fraction": _exposed_fraction,
    "end_to_end_speedup": _end_to_end,
}
METRICS = LAYERS | {
    "dispatch_gbps": _kernel,
    "combine_gbps": _kernel,
    "dispatch_us": _kernel,
    "combine_us": _kernel,
    "dispatch_call_us": _kernel,
    "layer0_ms": _comet_layer,
    "layer1_ms": _comet_layer,
    "flag_us": _flag,
    "alltoall_us": _alltoall,
}


def ask(figure, layers=None):
    """What the model says, in the unit of the figure. ``layers``: :class:`Layers` to share among
    figures."""
    return METRICS[figure.metric](figure, Layers() if layers is None else layers)


def rows(
    select=lambda figure: figure.role in ("fit", "test"),
    report=lambda figure: None,
    results=None,
):
    """[:class:`Row`] of the figures that ``select`` takes; ``report`` is called before each is
    asked. ``results``: {point: result} of layers that have been run."""
    layers, result = Layers(results or {}), []
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
