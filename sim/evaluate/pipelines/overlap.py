# SPDX-License-Identifier: Apache-2.0
"""Forward passes of layers alike, with what software can run beside their communication.

===============  ===================================================================================
one stream       attention, the shared expert, the system's layer, one after the other
shared expert    the shared expert on a second stream, from the moment the dispatch has its SMs
two halves       the routed experts in two micro-batches, a stream each; attention for both together
two batches      two micro-batches from layer to layer, a stream each: attention of one beside the
                 dispatch and the combine of the other, experts of one beside both of the other
===============  ===================================================================================

Two micro-batches are halves of every rank's tokens, a sequence each; so attention has two sequences
in all forms. Each launches all its kernels.
"""

from dataclasses import replace

import numpy as np

from sim.evaluate.machine.dense import attention, has_attention, mlp
from sim.evaluate.machine.workload import WorkloadError

__all__ = ["dense", "halves", "one_stream", "shared", "shared_expert", "two_batches", "two_halves"]


def halves(workload):
    """Two workloads, the first and the second half of every rank's tokens. Raises
    :class:`WorkloadError` where a rank has fewer than two."""
    if min(workload.tokens_of) < 2:
        raise WorkloadError(
            f"tokens = {workload.tokens}: two micro-batches need two tokens on each of "
            f"{workload.ranks} ranks"
        )
    place = np.arange(workload.tokens) - np.searchsorted(workload.source_of, workload.source_of)
    first = 2 * place < workload.tokens_of[workload.source_of]
    return [
        replace(workload, experts=workload.experts[own], source_of=workload.source_of[own])
        for own in (first, ~first)
    ]


def dense(gpu, shape, tokens, sequences):
    """Kernels of attention; none for a shape without."""
    return attention(gpu, shape, tokens, sequences) if has_attention(shape) else []


def shared(shape, tokens):
    """Kernels of the shared experts, in the routed ones' type."""
    return mlp(shape, shape.shared, tokens, shape.dtype, shape.weight_bytes)


def one_stream(job, rank):
    for number in range(job.layers):
        layer = job.layer(number)
        yield from job.dense(layer, rank, sequences=2)
        yield from job.shared(layer, rank)
        yield from layer.run(rank)
        job.end(number)


def shared_expert(job, rank):
    def beside(layer):
        yield layer.sending[rank]
        yield from job.shared(layer, rank)

    for number in range(job.layers):
        layer = job.layer(number)
        yield from job.dense(layer, rank, sequences=2)
        other = job.env.process(beside(layer))
        yield from layer.run(rank)
        yield other
        job.end(number)


def two_halves(job, rank):
    for number in range(job.layers):
        both = [job.layer(number, lane, part) for lane, part in enumerate(job.parts)]
        whole = sum(int(part.tokens_of[rank]) for part in job.parts)
        yield from job.dense(both[0], rank, sequences=2, tokens=whole)
        yield from job.shared(both[0], rank, tokens=whole)
        yield job.env.all_of([job.env.process(layer.run(rank)) for layer in both])
        job.end(number)


def two_batches(job, rank):
    def lane(lane, part):
        for number in range(job.layers):
            layer = job.layer(number, lane, part)
            yield from job.dense(layer, rank, sequences=1)
            yield from job.shared(layer, rank)
            yield from layer.run(rank)
            job.end(number)

    yield job.env.all_of([job.env.process(lane(*both)) for both in enumerate(job.parts)])
