# SPDX-License-Identifier: Apache-2.0
"""Forward and backward passes of the expert part of layers alike.

Backward of a combine is a dispatch of gradients, with the rows and the type of the forward's
dispatch (DeepSeek-V3, arXiv 2412.19437, section 3.3.2, dispatches gradients in FP8 as it does
tokens); backward of a dispatch is a combine of gradients, BF16. Each GEMM has two: gradients of its
rows (``dgrad``), which the way back waits for, and of its weights (``wgrad``), which nothing waits
for. Where rows go is known from forward, so nobody counts. The router's backward is taken to be as
long as its forward. Every system goes backward by the steps that it goes forward.

==================  ================================================================================
step                forward, backward, gradients of weights behind it
step, activation    the activation is computed again before the backward pass
step, layer         the whole layer is: its dispatch and its combine too
step, delayed       gradients of weights on a stream of their own, from the end of a layer's dgrads
                    on, beside what gradients travel then, and the next layer's
forward beside      forward of one micro-batch beside backward of another, layer by layer, gradients
                    of weights on a third stream (DualPipe); SMs for communication are kept
==================  ================================================================================
"""

from dataclasses import dataclass, fields, replace

from sim.evaluate.machine.compute import Gemm
from sim.workload.models import ModelShape

__all__ = ["backward", "forward_beside", "step", "wgrads"]


@dataclass(frozen=True, kw_only=True)
class Backward(ModelShape):
    """A shape whose forward pass is another's backward pass, gradients of weights apart: rows into
    the down projection's dgrad, then into that of gate and up."""

    @property
    def matrices(self):
        return (self.inter, self.row), (self.row, 2 * self.inter)


def backward(workload):
    """The workload of the backward pass."""
    shape = workload.shape
    known = {field.name: getattr(shape, field.name) for field in fields(ModelShape)}
    return replace(workload, shape=Backward(**known))


def wgrads(shape, rows):
    """[(GEMM, its rows per expert)] of an expert's weights: inputs times gradients, as deep as
    there are rows of an expert, the mean of ``rows``; each of the experts with rows writes its
    matrix, BF16."""
    here = [int(count) for count in rows if count]
    if not here:
        return []
    deep = -(-sum(here) // len(here))
    return [
        (Gemm(n, deep, shape.dtype, shape.weight_bytes), [k] * len(here))
        for n, k in reversed(shape.matrices)
    ]


def _weights(stream, workload, rank):
    """Gradients of the weights; what backward of the activation moves more than forward, the two
    gradients that it writes and its output again for wgrad, goes with them."""
    shape, rows = workload.shape, workload.rows_at(rank)
    yield from stream.move(int(sum(rows)) * 4 * shape.inter, "activation")
    for gemm, count in wgrads(shape, rows):
        yield from stream.gemm(gemm, count, "wgrad")


def _later(job, layer, rank):
    yield layer.ready[rank]
    yield from _weights(layer.beside(rank), job.workload, rank)


def step(job, rank, again="", delayed=False):
    """A layer of forward passes to begin with, then so many forward and as many backward."""
    workload, open_ends = job.workload, []
    back = job.once("backward", lambda: backward(workload))
    for number in range(job.layers):
        yield from job.layer(number).run(rank)
        if not number:
            job.end(0)
    for number in range(job.layers, 2 * job.layers - 1):
        if again == "layer":
            yield from job.layer(-number).run(rank)
        layer = job.layer(number, 0, back, counted=True)
        if again == "activation":
            size = int(sum(workload.rows_at(rank))) * 6 * workload.shape.inter
            yield from layer.beside(rank).move(size, "activation")
        if delayed:
            open_ends.append(job.env.process(_later(job, layer, rank)))
        yield from layer.run(rank)
        if not delayed:
            yield from _weights(layer.beside(rank), workload, rank)
    yield job.env.all_of(open_ends)
    job.end(job.layers - 1)


def forward_beside(job, rank):
    back = job.once("backward", lambda: backward(job.workload))
    for number in range(job.layers):
        one, other = job.layer(number), job.layer(number, 1, back, counted=True)
        weights = job.env.process(_later(job, other, rank))
        both = [job.env.process(layer.run(rank)) for layer in (one, other)]
        yield job.env.all_of([*both, weights])
        job.end(number)
