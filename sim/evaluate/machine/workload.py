# SPDX-License-Identifier: Apache-2.0
"""What a Mixture-of-Experts layer has to do: which rows go from which rank to which expert."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np

from sim.workload.models import ModelShape

__all__ = [
    "SKEW_EXPERTS",
    "TYPICAL_SKEW",
    "Workload",
    "WorkloadError",
    "shares_upwards",
    "std_of",
]

TYPICAL_SKEW = 0.032  # production training jobs, COMET (arXiv 2502.19811)
SKEW_EXPERTS = 8  # experts of the layer COMET states its standard deviations for


class WorkloadError(ValueError):
    """A workload cannot be made; one line with name, value and rule."""


def fractions(experts, top_k, std, rng):
    """Fractions of all rows that go to each expert: their sum is 1, their standard deviation
    ``std``, none is above 1/top_k.

    They are log-normal quantiles in an order drawn from ``rng``, so the shape is the same for every
    seed. Raises :class:`WorkloadError` when no routing can be so uneven.
    """
    return rng.permutation(shares_upwards(experts, top_k, std))


def std_of(skew, shape):
    """Standard deviation of the fractions of rows per expert; ``skew``: see
    :meth:`Workload.make`."""
    return skew * SKEW_EXPERTS / shape.experts


@lru_cache(maxsize=64)
def shares_upwards(experts, top_k, std):
    """The same, the smallest first."""
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / experts) for i in range(experts)])

    def made(spread):
        share, fixed = np.exp(spread * quantiles), np.zeros(experts, dtype=bool)
        while True:  # what is above the most an expert can get is spread over the others
            free = 1 - fixed.sum() / top_k
            result = np.where(
                fixed, 1 / top_k, share * (free / share[~fixed].sum()) if not fixed.all() else 0
            )
            above = (result > 1 / top_k + 1e-12) & ~fixed
            if not above.any():
                return result
            fixed |= above

    low, high = 0.0, 16.0
    if not 0 <= std <= made(high).std() + 1e-12:
        raise WorkloadError(
            f"skew: a standard deviation of {std:.4f} is not between 0 and the "
            f"{made(high).std():.4f} that "
            f"{experts} experts with top-{top_k} can have"
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if made(middle).std() < std else (low, middle)
    return made(low) if std else np.full(experts, 1 / experts)


def draw(tokens, top_k, shares, rng):
    """Experts of each token, [tokens, top_k], distinct in a row: every expert gets its share of
    rows as exactly as can be.

    Systematic sampling: experts lie in a random order on a line, each as long as its chance; a
    token takes those at u, u+1, ... Several orders are used, so that every pair of experts can
    meet.
    """
    orders = max(1, min(64, tokens // 16))
    chosen = np.empty((tokens, top_k), dtype=np.int32)
    for part in np.array_split(np.arange(tokens), orders):
        order = rng.permutation(len(shares))
        ends = np.cumsum(shares[order]) * top_k
        starts = (np.arange(len(part)) + rng.random()) / len(part)
        points = rng.permutation(starts)[:, None] + np.arange(top_k)
        chosen[part] = order[
            np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)
        ]
    return rng.permutation(chosen)


@dataclass(frozen=True, eq=False)
class Workload:
    """Rows of one layer.

    ``experts``: [tokens, top_k], expert numbers; ``source_of``: [tokens], rank that holds the
    token; ``rank_of``: [experts], rank that holds the expert. ``model``: the shape whose router
    chooses, where ``shape`` counts replicas as experts. Make one by :meth:`make`. Derived, all
    integer arrays:

    ``rows[src, expert]``; ``tokens_of[src]``; ``pair_rows[src, dst]``; ``distinct[src, dst]``,
    tokens of ``src`` with at least one expert on ``dst``: what a system sends that sends a token
    once per rank.
    """

    shape: ModelShape
    ranks: int
    experts: np.ndarray
    source_of: np.ndarray
    rank_of: np.ndarray
    skew: float | None = None
    label: str = ""
    model: ModelShape | None = None

    @classmethod
    def make(
        cls,
        shape,
        ranks,
        tokens=None,
        seed=1,
        skew=TYPICAL_SKEW,
        routing=None,
        placement="even",
        shares=None,
    ):
        """A workload of ``tokens`` tokens over all ranks.

        ``skew``: standard deviation of the fraction of rows per expert, as COMET and MoE-Hub give
        it, that is for eight experts; with other numbers of experts the coefficient of variation, 8
        x skew, is held. 0: every expert gets the same. ``routing``: a
        :class:`sim.workload.traces.Routing` in place of it; its tokens are repeated from the start
        when there are fewer, and its top-k and experts must be the shape's. ``placement``:
        ``even``, ranks hold equally many experts as nearly as can be; ``runs``, the first ranks
        hold ceil(experts/ranks) each, as the RTL's layers do. ``shares``: fractions of the rows
        that go to each expert, in place of those that ``skew`` would make. Same arguments, same
        workload.
        """
        if routing is not None:
            if (routing.num_experts, routing.top_k) != (shape.experts, shape.top_k):
                raise WorkloadError(
                    f"routing: top-{routing.top_k} of {routing.num_experts} experts does "
                    f"not fit {shape.name}, "
                    f"top-{shape.top_k} of {shape.experts}"
                )
            tokens = routing.tokens if tokens is None else tokens
        if tokens is None or tokens < ranks:
            raise WorkloadError(f"tokens = {tokens}: must be at least ranks = {ranks}")
        if ranks > shape.experts:
            raise WorkloadError(
                f"ranks = {ranks}: must not exceed the {shape.experts} experts of {shape.name}"
            )
        if placement not in ("even", "runs"):
            raise WorkloadError(f"placement = {placement!r}: must be even or runs")
        rng = np.random.default_rng([seed, tokens, shape.experts, shape.top_k])
        if routing is not None:
            experts, skew, label = (
                routing.experts[np.arange(tokens) % routing.tokens],
                None,
                routing.source,
            )
        else:
            if shares is None:
                shares = fractions(shape.experts, shape.top_k, std_of(skew, shape), rng)
            experts = draw(tokens, shape.top_k, shares, rng)
            label = f"skew {skew:g}"
        starts = np.arange(ranks + 1) * tokens // ranks
        source_of = np.repeat(np.arange(ranks), np.diff(starts))
        if placement == "runs":
            rank_of = np.arange(shape.experts) // -(-shape.experts // ranks)
        else:
            rank_of = np.repeat(
                np.arange(ranks),
                [len(part) for part in np.array_split(np.arange(shape.experts), ranks)],
            )
        return cls(shape, ranks, experts, source_of, rank_of, skew, label)

    @property
    def tokens(self):
        return len(self.experts)

    @cached_property
    def rows(self):
        """[ranks, experts]: rows that ``src`` has for each expert."""
        flat = self.source_of[:, None] * self.shape.experts + self.experts
        return np.bincount(flat.ravel(), minlength=self.ranks * self.shape.experts).reshape(
            self.ranks, self.shape.experts
        )

    @cached_property
    def tokens_of(self):
        """[ranks]: tokens that each rank holds."""
        return np.bincount(self.source_of, minlength=self.ranks)

    @cached_property
    def pair_rows(self):
        """[src, dst]: rows from rank to rank, one per token and expert."""
        return np.stack(
            [self.rows[:, self.rank_of == rank].sum(axis=1) for rank in range(self.ranks)], axis=1
        )

    @cached_property
    def distinct(self):
        """[src, dst]: tokens of ``src`` with an expert on ``dst``."""
        hits = np.zeros((self.tokens, self.ranks), dtype=bool)
        np.put_along_axis(hits, self.rank_of[self.experts], True, axis=1)
        return np.stack(
            [
                np.bincount(self.source_of, weights=hits[:, dst], minlength=self.ranks)
                for dst in range(self.ranks)
            ],
            axis=1,
        ).astype(np.int64)

    def experts_of(self, rank):
        """Numbers of the experts that a rank holds."""
        return np.flatnonzero(self.rank_of == rank)

    def rows_at(self, rank):
        """Rows of each expert of a rank, in the order of :meth:`experts_of`."""
        return self.rows[:, self.rank_of == rank].sum(axis=0)

    @property
    def loads(self):
        """Rows of each expert."""
        return self.rows.sum(axis=0)

    @property
    def measured_skew(self):
        """Standard deviation of the fractions of rows per expert, scaled to eight experts; see
        :meth:`make`."""
        return float((self.loads / self.loads.sum()).std() * self.shape.experts / SKEW_EXPERTS)

    @property
    def imbalance(self):
        """Rows at the busiest rank over the mean."""
        loads = self.pair_rows.sum(axis=0)
        return float(loads.max() / loads.mean())

    @property
    def duplication(self):
        """Rows that one-row-per-expert sending puts on links, over those of one row per rank; at
        least 1."""
        off = ~np.eye(self.ranks, dtype=bool)
        distinct = self.distinct[off].sum()
        return float(self.pair_rows[off].sum() / distinct) if distinct else math.nan
