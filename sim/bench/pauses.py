# SPDX-License-Identifier: Apache-2.0
"""Pause patterns: when an agent of a bench stands still, and the grid of patterns that every block
is tested on."""

import itertools

__all__ = ["GRID", "PAUSES", "pause_pattern"]

PAUSES = ("none", "cyclic", "random")
GRID = tuple(itertools.product(PAUSES, PAUSES))  # (idle, back-pressure)


def pause_pattern(kind, rng=None):
    """Endless iterator of booleans, one per cycle: pause or not.

    ``none`` (or None); ``cyclic``, 3 go, 2 stop, 1 go, 1 stop; ``random``, runs of 1 to 6 cycles of
    either from ``rng``; ``stop``, always; or any iterable of your own.
    """
    if kind is None or kind == "none":
        return itertools.repeat(False)
    if kind == "cyclic":
        return itertools.cycle([False] * 3 + [True] * 2 + [False, True])
    if kind == "stop":
        return itertools.repeat(True)
    if kind == "random":
        if rng is None:
            raise ValueError("pause pattern 'random' needs an rng")
        return (
            value
            for _ in itertools.count()
            for value in [rng.random() < 0.5] * rng.choice((1, 1, 1, 2, 3, 6))
        )
    if isinstance(kind, str):
        raise ValueError(
            f"pause pattern {kind!r}: must be none, cyclic, random, stop or an iterable"
        )
    return iter(kind)
