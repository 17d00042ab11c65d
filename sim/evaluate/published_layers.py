# SPDX-License-Identifier: Apache-2.0
"""The layers and exchanges that published figures are about: ``workload`` and ``set`` of
``data/published.toml``."""

from functools import cache

from sim.evaluate.machine.hardware import load_data
from sim.evaluate.machine.workload import Workload
from sim.workload.models import ModelShape, model

__all__ = ["cases", "gate_of", "no_rows", "plain_shape", "workload_of"]

SHARE_COLUMNS = ("comet", "megatron")  # systems with tensor parallelism


@cache
def _data():
    return load_data("published.toml")


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


def _of_two_matrices(inter):
    """Width of the gated expert that has the work and the bytes of one with two matrices of
    ``inter`` columns."""
    return round(2 * inter / 3)


def _shape_of(figure):
    """(shape, tokens over all ranks) of a figure with a workload."""
    entry = {
        name: value
        for name, value in _data()["workload"][figure.workload].items()
        if name not in ("note", "constants")
    } | figure.options
    inter, tokens = entry["inter"], entry["tokens"] * figure.ranks
    if entry.get("matrices") == 2:
        inter = _of_two_matrices(inter)
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
    return made, tokens


def workload_of(figure):
    """The workload of a figure that has one: uniform routing, as the systems' benchmarks draw
    it."""
    shape, tokens = _shape_of(figure)
    return _workload(shape, figure.ranks, tokens)


@cache
def _workload(shape, ranks, tokens):
    return Workload.make(shape, ranks, tokens, skew=0.0)


def _constants(entry, shared=None):
    """Constants of systems that a workload or a set has in place of their own; ``shared``: ranks
    that share an expert's columns."""
    of = entry.get("constants", {})
    if shared is not None:
        of = {
            system: values | ({"tensor_parallel": shared} if system in SHARE_COLUMNS else {})
            for system, values in of.items()
        }
    return tuple((system, *one) for system, values in of.items() for one in values.items())


def gate_of(figure, system):
    """Whose gate chooses where a system of a figure was timed: "" nobody's, the rows are given;
    else as :class:`sim.evaluate.runner.Point` has it."""
    kind = "workload" if figure.workload else "set"
    return _data()[kind][figure.workload or figure.set].get("gates", {}).get(system, "")


def cases(figure):
    """(model or shape, ranks, tokens over all of them, skew, constants) of each layer of a
    figure."""
    if figure.workload:
        shape, tokens = _shape_of(figure)
        entry = _data()["workload"][figure.workload]
        constants = _constants(entry, figure.options.get("tensor_parallel"))
        return [(shape, figure.ranks, tokens, 0.0, constants)]
    entry = _data()["set"][figure.set]
    kind = next(kind for kind in _KINDS if kind in entry)
    return list(_KINDS[kind](figure.ranks, entry))


def _of_sequences(ranks, entry):
    """One sequence for each group of ranks that share an expert's columns."""
    of = _data()["workload"][entry["workload"]]
    for name in entry["models"]:
        for tokens in entry["sequence"]:
            for shared in entry["tensor_parallel"]:
                yield name, ranks, tokens * ranks // shared, 0.0, _constants(of, shared)


def _of_models(ranks, entry):
    for count in entry.get("ranks", (ranks,)):
        for name in entry["models"]:
            if count <= model(name).experts:
                for tokens in entry["tokens"]:
                    yield name, count, tokens, entry["skew"], ()


def _of_grids(ranks, entry):
    of = _data()["workload"][entry["workload"]]
    width = {"hidden": of["hidden"], "inter": _of_two_matrices(of["inter"])}
    for part in entry["grid"]:
        constants = _constants(of, part["tensor_parallel"])
        for tokens in part["tokens"]:
            for experts in part["experts"]:
                for top_k in part["top_k"]:
                    shape = plain_shape(**width, experts=experts, top_k=top_k)
                    yield shape, ranks, tokens, 0.0, constants


def _of_shapes(ranks, entry):
    for of in entry["shapes"]:
        shape = plain_shape(**{name: of[name] for name in ("hidden", "inter", "experts", "top_k")})
        yield shape, ranks, of["tokens"] * ranks, entry["skew"], ()


# What a set has, the first of these: the layers it is about.
_KINDS = {
    "sequence": _of_sequences,
    "models": _of_models,
    "grid": _of_grids,
    "shapes": _of_shapes,
}


def no_rows(ranks):
    """A workload for what has none of its own."""
    small = plain_shape(hidden=128, inter=128, experts=ranks, top_k=1)
    return _workload(small, ranks, ranks)
