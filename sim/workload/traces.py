# SPDX-License-Identifier: Apache-2.0
"""Routing of tokens to experts: logs of real models, and made-up routing as skewed as theirs.

A log is JSON lines, as route loggers of vLLM write them: a ``meta`` line, then one ``route`` line
per token and layer::

    {"type": "meta", "model_id": "...", "top_k": 2, "num_experts": 8} {"type": "route", "req_id":
    "r0", "token_idx": 0, "layer": 0, "topk_ids": [3, 5], "topk_weights": [0.6, 0.4]}

Real logs are not part of the project: :func:`read_trace` reads yours, :func:`fit_skew` finds the
parameters with which :func:`generate` makes routing of the same skew, :func:`write_trace` writes it
in the same format.
"""

import json
import math
from dataclasses import dataclass

import numpy as np

__all__ = [
    "crowd",
    "Routing",
    "Skew",
    "TraceError",
    "busiest_over_mean",
    "fit_skew",
    "generate",
    "gini",
    "read_trace",
    "write_trace",
]

FIT_STEPS = 24  # halvings of the search interval
FIT_ROUNDS = 5  # turns between the two statistics
MAX_ALPHA = 8.0
MAX_HOT = 1e6


class TraceError(ValueError):
    """A routing log is not as it must be; the text is ``file:line: what is wrong`` on one line."""


def gini(loads):
    """Gini coefficient of the loads: 0 when all are equal, towards 1 when one has everything."""
    loads = np.sort(np.asarray(loads, dtype=float))
    total = loads.sum()
    if total == 0:
        return 0.0
    n = len(loads)
    return float(2 * (np.arange(1, n + 1) * loads).sum() / (n * total) - (n + 1) / n)


def busiest_over_mean(loads):
    """Largest load over the mean load, at least 1."""
    loads = np.asarray(loads, dtype=float)
    return float(loads.max() / loads.mean()) if loads.sum() else 1.0


@dataclass(frozen=True, eq=False)
class Routing:
    """Which experts each token goes to.

    ``experts``: integers [tokens, k], distinct in each row, 0 .. num_experts-1. ``weights``:
    [tokens, k], what each expert's answer is multiplied with; they need not sum to one. ``source``:
    where it comes from, for reports. Raises ValueError when the arrays do not fit each other.
    """

    experts: np.ndarray
    weights: np.ndarray
    num_experts: int
    source: str = ""

    def __post_init__(self):
        if self.experts.ndim != 2 or self.experts.shape != self.weights.shape:
            raise ValueError(
                f"experts {self.experts.shape} and weights {self.weights.shape}: must both "
                "be [tokens, k]"
            )
        if not 1 <= self.top_k <= self.num_experts:
            raise ValueError(
                f"k = {self.top_k}: must be between 1 and num_experts = {self.num_experts}"
            )
        if self.tokens and not 0 <= self.experts.min() <= self.experts.max() < self.num_experts:
            raise ValueError(f"expert numbers must be between 0 and {self.num_experts - 1}")
        if self.tokens and (np.diff(np.sort(self.experts, axis=1), axis=1) == 0).any():
            raise ValueError("a token names one expert twice")

    @property
    def tokens(self):
        return self.experts.shape[0]

    @property
    def top_k(self):
        return self.experts.shape[1]

    @property
    def loads(self):
        """Rows per expert."""
        return np.bincount(self.experts.ravel(), minlength=self.num_experts)

    @property
    def gini(self):
        return gini(self.loads)

    @property
    def busiest_over_mean(self):
        return busiest_over_mean(self.loads)

    def window(self, start, count):
        """Routing of ``count`` tokens from ``start`` on; raises ValueError when there are not so
        many."""
        if start < 0 or count < 0 or start + count > self.tokens:
            raise ValueError(f"tokens {start} .. {start + count - 1}: there are {self.tokens}")
        return Routing(
            self.experts[start : start + count],
            self.weights[start : start + count],
            self.num_experts,
            self.source,
        )

    def rank_loads(self, ranks):
        """Rows per rank when equal runs of experts are given to the ranks in order."""
        local = -(-self.num_experts // ranks)
        return np.bincount(self.experts.ravel() // local, minlength=ranks)


def _whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _field(record, name, ok, what):
    if name not in record:
        raise ValueError(f"no {name!r}, must be {what}")
    if not ok(record[name]):
        shown = json.dumps(record[name])
        raise ValueError(
            f"{name} = {shown if len(shown) <= 60 else shown[:57] + '...'}: must be {what}"
        )
    return record[name]


def _weight(value):
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def _meta(record):
    """(top_k, experts) of a meta line."""
    experts = _field(record, "num_experts", lambda v: _whole(v) and v >= 1, "a positive integer")
    top_k = _field(
        record,
        "top_k",
        lambda v: _whole(v) and 1 <= v <= experts,
        f"an integer between 1 and {experts}",
    )
    return top_k, experts


def _route(record, top_k, experts):
    """(layer, expert numbers, weights) of a route line."""
    _field(record, "req_id", lambda v: isinstance(v, str), "a string")
    _field(record, "token_idx", lambda v: _whole(v) and v >= 0, "an integer from 0 on")
    layer = _field(record, "layer", lambda v: _whole(v) and v >= 0, "an integer from 0 on")
    ids = _field(
        record,
        "topk_ids",
        lambda v: isinstance(v, list) and len(v) == top_k and all(map(_whole, v)),
        f"a list of {top_k} integers",
    )
    outside = [v for v in ids if not 0 <= v < experts]
    if outside:
        raise ValueError(f"expert {outside[0]}: must be between 0 and {experts - 1}")
    if len(set(ids)) < top_k:
        raise ValueError(f"topk_ids = {ids}: an expert is named twice")
    weights = _field(
        record,
        "topk_weights",
        lambda v: isinstance(v, list) and len(v) == top_k and all(map(_weight, v)),
        f"a list of {top_k} numbers from 0 on",
    )
    return layer, ids, weights


def read_trace(path, layer=None):
    """Reads a routing log; with ``layer`` only the tokens of that layer. Fields it does not know
    are ignored.

    Raises :class:`TraceError` for the first line that is not JSON, lacks a field, has one of the
    wrong type or an expert out of range, and when nothing is left; OSError when the file cannot be
    read.
    """
    number, meta, experts, weights, layers = 0, None, [], [], set()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                number += 1
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"not JSON: {error}") from None
                if not isinstance(record, dict):
                    raise ValueError("must be a JSON object")
                kind = record.get("type")
                if kind not in ("meta", "route"):
                    raise ValueError(f'type = {json.dumps(kind)}: must be "meta" or "route"')
                if (kind == "meta") == (meta is not None):
                    raise ValueError(
                        "second meta line"
                        if meta is not None
                        else "route line before the meta line"
                    )
                if kind == "meta":
                    meta, (top_k, count) = record, _meta(record)
                    continue
                at, ids, shares = _route(record, top_k, count)
                layers.add(at)
                if layer is None or at == layer:
                    experts.append(ids)
                    weights.append(shares)
        if meta is None:
            raise ValueError("no meta line")
        if not experts:
            known = ", ".join(map(str, sorted(layers)))
            raise ValueError(
                f"no route lines of layer {layer}; the layers are: {known}"
                if known
                else "no route lines"
            )
    except ValueError as error:
        raise TraceError(f"{path}:{number}: {error}") from None
    source = str(meta.get("model_id", path)) + (f", layer {layer}" if layer is not None else "")
    return Routing(np.array(experts, dtype=np.int32), np.array(weights, dtype=float), count, source)


def write_trace(routing, path, layer=0):
    """Writes routing as a log that :func:`read_trace` reads; weights are rounded to five places."""
    with open(path, "w", encoding="utf-8") as file:
        meta = {
            "type": "meta",
            "model_id": routing.source,
            "layers_logged": [layer],
            "top_k": routing.top_k,
            "num_experts": routing.num_experts,
        }
        file.write(json.dumps(meta) + "\n")
        for token, (ids, shares) in enumerate(
            zip(routing.experts.tolist(), routing.weights.tolist(), strict=True)
        ):
            record = {
                "type": "route",
                "req_id": "r0",
                "token_idx": token,
                "layer": layer,
                "topk_ids": ids,
                "topk_weights": [round(share, 5) for share in shares],
            }
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


@dataclass(frozen=True)
class Skew:
    """How popular the experts are: the n-th most popular in proportion to n**-alpha, the first one
    ``hot`` times that."""

    alpha: float = 0.0
    hot: float = 1.0


def generate(*, tokens, top_k, experts, skew=None, seed=1):
    """Made-up routing: each token draws ``top_k`` distinct experts by their popularity.

    Drawing is without replacement, one expert after the other in proportion to popularity (Gumbel
    keys); which expert is how popular is shuffled. Weights are the softmax over the drawn keys,
    largest first. Same arguments, same routing.
    """
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k = {top_k}: must be between 1 and experts = {experts}")
    skew = skew or Skew()
    if skew.alpha < 0 or skew.hot <= 0:
        raise ValueError(
            f"skew alpha = {skew.alpha}, hot = {skew.hot}: alpha must be from 0 on, hot above 0"
        )
    rng = np.random.default_rng(seed)
    keys = rng.gumbel(size=(tokens, experts))
    experts_by_rank = rng.permutation(experts)
    return _draw(
        keys,
        experts_by_rank,
        top_k,
        skew,
        f"generated, alpha {skew.alpha:.3g}, hot {skew.hot:.3g}, seed {seed}",
    )


def crowd(*, tokens, top_k, experts, first, share, seed=1):
    """Made-up routing with a crowd: of each token's choices, ``share`` (0..1, rounded to a whole
    number of them) go to the ``first`` experts, all equally popular; the others too among
    themselves.

    Raises ValueError when there are not so many experts.
    """
    inside = int(share * top_k + 0.5)
    if not (0 <= inside <= first and 0 <= top_k - inside <= experts - first):
        raise ValueError(
            f"share = {share}: {inside} of top_k = {top_k} choices cannot be among {first} of "
            f"{experts} experts"
        )
    rng = np.random.default_rng(seed)
    keys = rng.gumbel(size=(tokens, experts))
    here, there = np.argsort(-keys[:, :first]), first + np.argsort(-keys[:, first:])
    chosen = np.concatenate([here[:, :inside], there[:, : top_k - inside]], axis=1)
    chosen = rng.permuted(chosen, axis=1)
    weights = np.full(chosen.shape, 1 / top_k)
    return Routing(
        chosen.astype(np.int32), weights, experts, f"crowd of {inside} in {top_k}, seed {seed}"
    )


def _draw(noise, experts_by_rank, top_k, skew, source):
    experts = len(experts_by_rank)
    scores = -skew.alpha * np.log(np.arange(1, experts + 1))
    scores[0] += math.log(skew.hot)
    popularity = np.empty(experts)
    popularity[experts_by_rank] = scores
    keys = noise + popularity
    chosen = np.argsort(-keys, axis=1, kind="stable")[:, :top_k]
    drawn = np.take_along_axis(keys, chosen, axis=1)
    shares = np.exp(drawn - drawn[:, :1])
    return Routing(
        chosen.astype(np.int32), shares / shares.sum(axis=1, keepdims=True), experts, source
    )


def _bisect(measure, low, high, target):
    """The argument at which the rising ``measure`` reaches ``target``; ``low`` when it is above it
    from the start."""
    if measure(low) >= target:
        return low
    for _ in range(FIT_STEPS):
        middle = (low + high) / 2
        if measure(middle) < target:
            low = middle
        else:
            high = middle
    return high


def fit_skew(*, top_k, experts, gini=None, busiest=None, tokens=4096, seed=1):
    """The :class:`Skew` with which ``generate(tokens=..., seed=seed)`` has the wanted statistics.

    ``gini`` alone or ``busiest`` (busiest expert over mean) alone sets ``alpha``; both set
    ``alpha`` and ``hot``. An even draw has some skew too, by chance: a target below it gives
    ``alpha`` 0. With both, ``hot`` at least makes the first expert as popular as the second: a
    busiest expert below that is met as nearly as can be. Raises ValueError for a target that no
    routing can have.
    """
    if gini is None and busiest is None:
        raise ValueError("gini or busiest must be given")
    if gini is not None and not 0 <= gini < 1 - top_k / experts + 1e-9:
        raise ValueError(
            f"gini = {gini}: must be at least 0 and below 1 - top_k/experts = "
            f"{1 - top_k / experts:.3f}"
        )
    if busiest is not None and not 1 <= busiest < experts / top_k + 1e-9:
        raise ValueError(
            f"busiest = {busiest}: must be at least 1 and below experts/top_k = "
            f"{experts / top_k:.3f}"
        )
    rng = np.random.default_rng(seed)
    noise, order = rng.gumbel(size=(tokens, experts)), rng.permutation(experts)

    def drawn(alpha, hot=1.0):
        return _draw(noise, order, top_k, Skew(alpha, hot), "")

    if busiest is None:
        return Skew(_bisect(lambda alpha: drawn(alpha).gini, 0, MAX_ALPHA, gini))
    if gini is None:
        return Skew(_bisect(lambda alpha: drawn(alpha).busiest_over_mean, 0, MAX_ALPHA, busiest))
    alpha, hot = 0.0, 1.0
    for _ in range(FIT_ROUNDS):  # each hardly moves the other's statistic
        log_hot = _bisect(
            lambda value, alpha=alpha: drawn(alpha, math.exp(value)).busiest_over_mean,
            -alpha * math.log(2),
            math.log(MAX_HOT),
            busiest,
        )
        hot = math.exp(log_hot)
        alpha = _bisect(lambda value, hot=hot: drawn(value, hot).gini, 0, MAX_ALPHA, gini)
    return Skew(alpha, hot)
