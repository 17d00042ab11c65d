"""Hubs in which some blocks are cut out: their outputs become free, or whatever a specification says."""

import contextlib
import importlib
from unittest.mock import patch

from amaranth import Module
from amaranth.hdl import Fragment
from amaranth.lib import wiring

from .spec import streams

__all__ = ["cut_out", "free_outputs"]


def cut_out(part, cuts):
    """``part`` with the classes ``cuts`` (``module:Class``, as the module that uses them names them) replaced by empty ones.

    Returns {cut: [stand-ins in the order of their making]}. A stand-in has the ports of its block and drives none of them:
    the specification has to.
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
    fragment.origins = fragment.origins[1:]     # `part` is entered again when the specification is elaborated
    part.elaborate = lambda platform: fragment
    return made


def free_outputs(spec, block, name, but=()):
    """Outputs of a stand-in, except ports in ``but``, may be anything; its streams keep an item until it is taken, which
    ``<block>.streams_held`` proves of the block."""
    for path, member, value in block.signature.flatten(block):
        if member.flow == wiring.Out and path[0] not in but:
            spec.free(value)
    for stream, flow, port in streams(block):
        if flow == wiring.Out and stream.split(".")[0] not in but:
            spec.suppose_held(port, f"{name}: {stream}")
