# SPDX-License-Identifier: Apache-2.0
"""How far another routing moves the figures of the experiments that ask one routing only."""

from dataclasses import replace
from math import inf

import numpy as np

from sim.evaluate.study import HUB, Report, rows_of, speedup

from .shared import cases

__all__ = ["CASES", "SEEDS", "over_seeds"]

SEEDS = 5
CASES = 2  # of an experiment
MOST_GPUS = 16  # a layer of more takes longer than those of all others
GOLDEN = (5**0.5 - 1) / 2  # multiples of it are spread evenly, in step with no grid of cases


def _alone(points):
    """What differs by its routing alone, and can be compared: {case: points of its systems}."""
    found = cases(points, lambda p: replace(p, system=HUB))
    return {
        case: own
        for case, own in found.items()
        if case in own
        and not case.trace
        and case.ranks <= MOST_GPUS
        and max(case.delays, default=0.0) < inf
    }


def _sample(points):
    found = list(_alone(points).values())
    picked = {int(len(found) * (GOLDEN * n % 1)) for n in range(1, CASES + 1)} if found else ()
    return [found[n] for n in sorted(picked)]


def _drawn(options, points):
    """The sampled cases, each as often as there are seeds: [case][seed] points."""
    return [
        [
            [replace(point, seed=seed) for point in own]
            for seed in range(options.seed, options.seed + SEEDS)
        ]
        for own in _sample(points)
    ]


def over_seeds(experiments):
    """``points`` and ``report`` of an experiment that repeats cases of those of ``experiments``
    that have one seed, with :data:`SEEDS` of them; experiments of the same points count as one."""
    shared = cases(experiments, lambda experiment: experiment.points)

    def asked(options):
        for points, own in shared.items():
            drawn = points(options)
            if len({point.seed for point in drawn}) == 1:
                yield ", ".join(one.name for one in own), _drawn(options, drawn)

    def points(options):
        return [
            point for _, drawn in asked(options) for case in drawn for own in case for point in own
        ]

    def report(options, results):
        summary = []
        for names, drawn in asked(options):
            found = {
                point: np.array([speedup(results, replace(point, seed=p[0].seed)) for p in case])
                for case in drawn
                for point in case[0]
                if point.system != HUB
            }
            if not found:
                continue
            spread = {point: 100 * of.std(ddof=1) / of.mean() for point, of in found.items()}
            widest = max(spread, key=spread.get)
            summary.append(
                {
                    "experiments": names,
                    "cases": len(drawn),
                    "figures": len(found),
                    "deviation, median %": float(np.median(list(spread.values()))),
                    "deviation, largest %": float(spread[widest]),
                    "of": widest.system,
                    "model": getattr(widest.model, "name", widest.model),
                    "tokens": widest.tokens,
                    "GPUs": widest.ranks,
                    "on either side of 1": sum(of.min() < 1 < of.max() for of in found.values()),
                }
            )
        return Report(
            rows=rows_of(results, points(options)),
            summary=summary,
            notes=[
                f"standard deviation of a system's time over the hub's, {SEEDS} routings; in the "
                "last column, how many are above 1 in some and below in others"
            ],
        )

    return points, report
