# SPDX-License-Identifier: Apache-2.0
"""The layers and exchanges that published figures are about: ``workload`` and ``set`` of
``data/published.toml``."""

from functools import cache

import numpy as np

from sim.evaluate.machine.hardware import load_data
from sim.evaluate.machine.workload import Workload
from sim.workload.models import ModelShape, model
from sim.workload.traces import Routing

__all__ = ["cases", "no_rows", "own_workloads", "plain_shape", "workload_of"]

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


def own_workloads(figure, seed):
    """Workloads, one of each rank, where the ranks of a benchmark draw the rows of all apart.

    Each draws a weight for every expert, uniformly, and then each token's experts by these weights.
    Same arguments, same workloads. Source: bytedance/flux db4ffe0
    python/flux/testing/moe_ag_scatter_utils.py, moe_utils.py (gen_moe_gating_args), and
    dist_utils.py, by which ranks have different seeds.
    """
    shape, tokens = _shape_of(figure)
    return tuple(_drawn(shape, figure.ranks, tokens, (seed, rank)) for rank in range(figure.ranks))


@cache
def _drawn(shape, ranks, tokens, seeds):
    rng = np.random.default_rng([*seeds, tokens, shape.experts, shape.top_k])
    scores = np.log(rng.random(shape.experts)) + rng.gumbel(size=(tokens, shape.experts))
    chosen = np.argsort(-scores, axis=1)[:, : shape.top_k].astype(np.int32)
    equal = np.full(chosen.shape, 1 / shape.top_k)
    routing = Routing(chosen, equal, shape.experts, "weights of each rank")
    return Workload.make(shape, ranks, tokens, routing=routing)


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
        yield shape, ranks, of["tokens"] * ranks, entry["skew"], _constants(entry)


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
