# SPDX-License-Identifier: Apache-2.0
"""Taking parts out of a design: their outputs become free, or what a specification says."""

from amaranth import Module

__all__ = ["cut", "empty"]


def empty(part):
    """``part``, which exists already, does nothing: each output stays as reset leaves it, unless
    the specification drives it."""
    part.elaborate = lambda platform: Module()


def cut(spec, part, but=()):
    """Empties ``part``: its outputs may be anything, except ``but``, which the specification
    drives."""
    empty(part)
    spec.free_outputs(part, but)
