# SPDX-License-Identifier: Apache-2.0
"""Routing of gates that have learnt nothing, as a benchmark has it that makes a layer and times
it."""

import numpy as np

from sim.workload.traces import Routing

__all__ = ["untrained"]

SCALE = 0.02  # of the inputs


def untrained(shape, ranks, tokens, seed):
    """The :class:`sim.workload.traces.Routing` of ``tokens`` tokens over all ranks, each with
    weights of its own.

    A gate is a linear layer with bias as PyTorch begins it, uniform up to the inverse root of the
    inputs' number. Inputs are uniform and positive, those of rank r up to 0.02 x (r + 1), so they
    have a mean, and what a rank's gate makes of that and its bias is more than what tells tokens
    apart: most tokens of a rank go to the same few experts. Same arguments, same routing. Source:
    ZSL98/Megatron-LM fd11ea94 tests/unit_tests/transformer/moe/test_moe.py (inputs_shard; seeds by
    rank), laekov/fastmoe fmoe/gates/naive_gate.py.
    """
    rng = np.random.default_rng([seed, tokens, shape.experts, shape.top_k])
    most, starts = shape.hidden**-0.5, np.arange(ranks + 1) * tokens // ranks
    chosen = []
    for rank, count in enumerate(np.diff(starts)):
        inputs = rng.random((count, shape.hidden), dtype=np.float32) * (SCALE * (rank + 1))
        weights = rng.uniform(-most, most, (shape.hidden, shape.experts)).astype(np.float32)
        scores = inputs @ weights + rng.uniform(-most, most, shape.experts)
        chosen.append(np.argsort(-scores, axis=1)[:, : shape.top_k])
    experts = np.concatenate(chosen).astype(np.int32)
    equal = np.full(experts.shape, 1 / shape.top_k)
    return Routing(experts, equal, shape.experts, "untrained gates")
