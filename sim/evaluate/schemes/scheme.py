# SPDX-License-Identifier: Apache-2.0
"""What the evaluation knows of a system beside its steps."""

from collections.abc import Callable
from dataclasses import dataclass

from sim.evaluate.machine.engine import Cluster

__all__ = ["Scheme"]


@dataclass(frozen=True)
class Scheme:
    """A system that runs a layer: ``run(cluster)`` starts its processes.

    ``title``: as its authors write it. ``color``: the same in every figure. ``place``: order on the
    page, small numbers first. ``hub``: its GPUs have hubs, with their credits and loopback lanes.
    ``fused``: one kernel has all SMs from the gate to the combined tokens, so that nothing runs
    beside it.
    """

    run: Callable[[Cluster], None]
    title: str
    color: str
    place: int
    hub: bool = False
    fused: bool = False

    def __call__(self, cluster):
        self.run(cluster)
