# SPDX-License-Identifier: Apache-2.0
"""Runs layers beside each other by the name of their program."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sim.evaluate.machine.engine import LayerResult

from .hooked import HOOKED
from .overlap import dense, halves, one_stream, shared, shared_expert, two_batches, two_halves
from .streams import Box, Layer
from .training import forward_beside, step

__all__ = ["PROGRAMS", "Job", "Program", "run_program"]


@dataclass(frozen=True, kw_only=True)
class Program:
    """What each rank does: ``steps(job, rank)``, a generator. ``split``: in two micro-batches.
    ``lanes``: streams that communicate; ``apart``: on SMs kept for that. ``layers``: to simulate;
    the first fills the pipeline and gives the host its lead, the others are timed."""

    steps: Callable
    split: bool = False
    lanes: int = 1
    apart: bool = False
    layers: int = 2


PROGRAMS = {
    "one stream": Program(steps=one_stream),
    "shared expert": Program(steps=shared_expert, apart=True),
    "two halves": Program(steps=two_halves, split=True, lanes=2, apart=True),
    "two batches": Program(steps=two_batches, split=True, lanes=2, apart=True, layers=3),
    "step": Program(steps=step),
    "step, activation": Program(steps=partial(step, again="activation")),
    "step, layer": Program(steps=partial(step, again="layer")),
    "step, delayed": Program(steps=partial(step, delayed=True), apart=True, layers=3),
    "forward beside": Program(steps=forward_beside, lanes=2, apart=True),
}


class Job:
    """One run of a program: ``box``, ``scheme``, ``workload``, ``parts`` (its micro-batches),
    ``layers``, of which the first is not timed."""

    def __init__(self, box, scheme, workload, parts, layers):
        self.box, self.env, self.scheme = box, box.env, scheme
        self.workload, self.parts, self.layers = workload, parts, layers
        self.ends, self._made = [0.0] * layers, {}

    def once(self, name, make):
        """Something that all ranks share, by ``make()`` for the first."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def layer(self, number, lane=0, part=None, counted=False):
        """The system's layer of this number, of a lane and a micro-batch."""
        workload = self.workload if part is None else part
        return self.box.layer(
            (number, lane), lambda: Layer(self.box, self.scheme, workload, lane, counted)
        )

    def dense(self, layer, rank, sequences, tokens=None):
        """Attention on a rank, for ``tokens`` or those of the layer's micro-batch."""
        tokens = tokens or int(layer.workload.tokens_of[rank])
        gpu, shape = self.box.machine.gpu, self.workload.shape
        yield from self._kernels(layer, rank, dense(gpu, shape, tokens, sequences))

    def shared(self, layer, rank, tokens=None):
        """The shared experts on a rank."""
        tokens = tokens or int(layer.workload.tokens_of[rank])
        yield from self._kernels(layer, rank, shared(self.workload.shape, tokens))

    def _kernels(self, layer, rank, kernels):
        stream = layer.beside(rank)
        for kernel in kernels:
            yield from kernel.run(stream)

    def end(self, number):
        """A rank or a micro-batch has done this layer."""
        self.ends[number] = max(self.ends[number], self.env.now)

    def result(self):
        """:class:`LayerResult` of a layer: its time is that of those that are timed, over their
        number; bytes and phases are means of all."""
        us = (self.ends[-1] - self.ends[0]) / (self.layers - 1)
        box, layers, breakdown = self.box, self.box.layers, {}
        for layer in layers:
            for name, spent in layer.breakdown.items():
                breakdown[name] = breakdown.get(name, 0.0) + spent / self.layers
        machine = box.machine
        busy = sum(device.times.sm_us for device in box.devices)
        return LayerResult(
            us,
            us,
            us,
            box.network.wire_bytes // self.layers,
            box.network.payload_bytes // self.layers,
            breakdown,
            (),
            busy / (self.ends[-1] * machine.gpu.sms * machine.ranks),
        )


def run_program(name, system, scheme, machine, workload, seed=1, layers=None, **network_options):
    """Runs the program of this name with layers of ``scheme``, that of ``system``; returns the
    :class:`LayerResult` of one. ``layers``: another number than the program's, at least 2;
    ``network_options``: as :func:`run_layer` has them. Same arguments, same result.

    Raises ValueError where something should run beside a kernel that has all SMs, RuntimeError when
    a rank does not end, and :class:`WorkloadError`.
    """
    program = PROGRAMS[name]
    if program.apart and scheme.fused:
        raise ValueError(f"{name}: nothing runs beside the one kernel of {system}: it has all SMs")
    box = Box(machine, seed, program.lanes, program.apart, **network_options)
    scheme = HOOKED.get(system, scheme) if program.apart else scheme
    parts = halves(workload) if program.split else [workload]
    job = Job(box, scheme, workload, parts, layers or program.layers)
    ranks = [job.env.process(program.steps(job, rank)) for rank in range(machine.ranks)]
    box.env.run()
    if not all(rank.processed for rank in ranks):
        raise RuntimeError(f"{name}: a rank never finished: it waits for what does not come")
    return job.result()
