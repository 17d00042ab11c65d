# SPDX-License-Identifier: Apache-2.0
"""Taking parts out of a design: their outputs become free, or what a specification says."""

import contextlib
import importlib
from unittest.mock import patch

from amaranth import Module
from amaranth.hdl import Fragment

__all__ = ["cut", "cut_out"]


def cut(spec, part, but=()):
    """Empties ``part``, which exists already: its outputs may be anything, except ``but``, which
    the specification drives."""
    part.elaborate = lambda platform: Module()
    spec.free_outputs(part, but)


def cut_out(part, cuts):
    """``part`` with the classes ``cuts`` (``module:Class``, as the module that uses them names
    them) replaced by empty ones.

    Returns {cut: [stand-ins in the order of their making]}. A stand-in has the ports of its block
    and drives none of them: the specification has to.
    """
    made = {cut: [] for cut in cuts}

    def stand_in(cut, block):
        empty = type(block.__name__, (block,), {"elaborate": lambda self, platform: Module()})

        def make(*arguments, **named):
            made[cut].append(empty(*arguments, **named))
            return made[cut][-1]

        return make

    with contextlib.ExitStack() as stack:
        for cut in cuts:
            user, _, name = cut.partition(":")
            module = importlib.import_module(user)
            stack.enter_context(patch.object(module, name, stand_in(cut, getattr(module, name))))
        fragment = Fragment.get(part, None)
    fragment.origins = fragment.origins[
        1:
    ]  # `part` is entered again when the specification is elaborated
    part.elaborate = lambda platform: fragment
    return made
