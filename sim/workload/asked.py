# SPDX-License-Identifier: Apache-2.0
"""The layer that an order asks for: a model's shape and its routing, both from a log where there is
one."""

from hub_rtl.contract.config import ConfigError

from .models import model
from .traces import crowd, generate, read_trace

__all__ = ["asked_routing", "asked_shape"]


def asked_shape(name, trace=None, experts=None, row_bytes=None):
    """The model's shape; a log says how many experts there are and how many a token takes.

    ``trace``: file of a log, or None. ``experts``, ``row_bytes``: in place of the model's. Raises
    ValueError, OSError.
    """
    shape = model(name)
    if trace is not None:
        routing = read_trace(trace)
        shape = shape.changed(experts=routing.num_experts, top_k=routing.top_k)
    if experts is not None:
        shape = shape.changed(experts=experts)
    if row_bytes is not None:
        shape = shape.changed(row_bytes=row_bytes)
    return shape


def asked_routing(shape, trace, ranks, tokens, seed, hot=None):
    """Routing from a log, or made up; ``tokens`` per rank, 0: all of the log. ``hot``: percent of
    made-up choices that go to rank 0.

    Raises ConfigError when the log is too short, ValueError for a share that cannot be.
    """
    if hot is not None:
        if trace is not None:
            raise ConfigError(f"hot = {hot}: only of made-up routing, {trace} is a log")
        return crowd(
            tokens=ranks * tokens,
            top_k=shape.top_k,
            experts=shape.experts,
            first=shape.local_experts(ranks),
            share=hot / 100,
            seed=seed,
        )
    if trace is None:
        return generate(tokens=ranks * tokens, top_k=shape.top_k, experts=shape.experts, seed=seed)
    routing = read_trace(trace)
    if tokens:
        if ranks * tokens > routing.tokens:
            raise ConfigError(
                f"tokens = {tokens}: {trace} has only {routing.tokens // ranks} per rank "
                f"for {ranks} ranks"
            )
        routing = routing.window(0, ranks * tokens)
    return routing
