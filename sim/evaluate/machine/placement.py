# SPDX-License-Identifier: Apache-2.0
"""Which rank holds which expert when their loads differ and drift: replicas of those that get most
rows, packed onto the ranks.

The method is that of DeepSeek's EPLB as its authors describe it (github.com/deepseek-ai/EPLB,
README; global balancing, as all ranks share one fabric): of the expert with the most rows per
replica one more replica is made, until there are enough; then replicas, the heaviest first, go each
to the rank with the least load that has room; every rank has equally many. Rows of an expert are
spread evenly over its replicas.

Loads drift by a model, no log of a day is public: experts are ordered by a number each, an
autoregressive process of first order (normal, unit variance, ``kept``: its correlation from one
hour to the next), and the shares that :func:`.workload.shares_upwards` makes go to them in that
order. So the skew stays while experts trade places.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from .workload import Workload, WorkloadError, shares_upwards, std_of

__all__ = [
    "as_numbered",
    "balance",
    "drifted",
    "imbalance",
    "pack",
    "placed",
    "replicate",
    "shares_at",
]

DRIFT = 0xD0  # of the seed: other numbers than those of a layer's routing


@lru_cache(maxsize=256)
def shares_at(shape, seed, skew, hour, kept):
    """[experts]: fractions of the rows at an ``hour``, 0 or later. Same arguments, same shares.

    ``skew``: as :meth:`.workload.Workload.make` has it. Raises :class:`WorkloadError`."""
    if hour < 0:
        raise WorkloadError(f"hour = {hour}: must not be below 0")
    if not 0 <= kept <= 1:
        raise WorkloadError(f"kept = {kept}: must be between 0 and 1")
    rng = np.random.default_rng([seed, DRIFT])
    order = rng.normal(size=shape.experts)
    for _ in range(hour):
        order = kept * order + np.sqrt(1 - kept**2) * rng.normal(size=shape.experts)
    shares = np.empty(shape.experts)
    shares[np.argsort(order)] = shares_upwards(shape.experts, shape.top_k, std_of(skew, shape))
    return shares


def replicate(loads, replicas):
    """[experts + replicas]: the expert that each one is a replica of, 0, 1, ... first."""
    counts, copies = np.ones(len(loads), dtype=int), list(range(len(loads)))
    for _ in range(replicas):
        hottest = int(np.argmax(loads / counts))
        counts[hottest] += 1
        copies.append(hottest)
    return np.array(copies)


def pack(weights, ranks):
    """[weights]: the rank of each, equally many at each. Raises :class:`WorkloadError`."""
    if len(weights) % ranks:
        raise WorkloadError(
            f"replicas: {len(weights)} experts with their replicas must be a multiple of "
            f"ranks = {ranks}"
        )
    load, room = np.zeros(ranks), np.full(ranks, len(weights) // ranks)
    rank_of = np.empty(len(weights), dtype=int)
    for number in np.argsort(-np.asarray(weights), kind="stable"):
        rank = int(np.argmin(np.where(room > 0, load, np.inf)))
        rank_of[number] = rank
        load[rank] += weights[number]
        room[rank] -= 1
    return rank_of


def balance(loads, ranks, replicas):
    """(expert, rank) of every replica, rank by rank, for these loads of the experts."""
    copies = replicate(loads, replicas)
    rank_of = pack((loads / np.bincount(copies))[copies], ranks)
    by_rank = np.argsort(rank_of, kind="stable")
    return copies[by_rank], rank_of[by_rank]


def as_numbered(experts, ranks):
    """The same of experts without replicas as :meth:`.workload.Workload.make` places them."""
    return np.arange(experts), np.repeat(
        np.arange(ranks), [len(part) for part in np.array_split(np.arange(experts), ranks)]
    )


def imbalance(shares, copies, rank_of):
    """Load of the busiest rank over the mean, when experts get these shares."""
    load = np.bincount(rank_of, weights=(shares / np.bincount(copies))[copies])
    return float(load.max() / load.mean())


def placed(workload, copies, rank_of):
    """The workload with these replicas as its experts: the rows that each rank has for an expert
    take its replicas in turn."""
    experts = workload.shape.experts
    flat, source = workload.experts.ravel(), workload.source_of.repeat(workload.shape.top_k)
    ends = np.bincount(flat, minlength=experts).cumsum()
    replica = np.empty_like(flat)
    for expert, rows in enumerate(np.split(np.lexsort((source, flat)), ends[:-1])):
        own = np.flatnonzero(copies == expert)
        replica[rows] = own[np.arange(len(rows)) % len(own)]
    return replace(
        workload,
        shape=replace(workload.shape, experts=len(copies)),
        experts=replica.reshape(workload.experts.shape),
        rank_of=rank_of,
        model=workload.shape,
    )


def drifted(shape, ranks, tokens, seed, skew, *, hour, kept, replicas=None, age=0):
    """A workload of :meth:`.workload.Workload.make` at an ``hour`` of a day over which routing
    drifts.

    ``replicas``: None, experts lie as they are numbered; else so many more of them, 0 too, balanced
    for the loads of ``age`` hours ago. Raises :class:`WorkloadError`.
    """
    shares = shares_at(shape, seed, skew, hour, kept)
    workload = Workload.make(shape, ranks, tokens, seed=seed, skew=skew, shares=shares)
    if replicas is None:
        return workload
    known = shares_at(shape, seed, skew, hour - age, kept)
    return placed(workload, *balance(known, ranks, replicas))
