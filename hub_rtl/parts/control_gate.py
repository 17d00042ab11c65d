# SPDX-License-Identifier: Apache-2.0
"""One control message per peer on its way: what every sender of control messages asks first."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ControlGate"]


class ControlGate(wiring.Component):
    """Which peers have a control message on its way from this sender to a link: they must not get a
    second one.

    A peer is ``busy`` from the cycle after ``choose`` until 4 cycles after ``done``, when the
    link's ``ctl_ready`` shows what is left. Parameters: ``ranks``. Ports: ``choose``, ``done`` In
    ``ranks`` pulses, ``busy`` Out ``ranks``.
    """

    SETTLE = 3  # cycles after the link took the message

    def __init__(self, ranks):
        super().__init__({"choose": In(ranks), "done": In(ranks), "busy": Out(ranks)})
        self._ranks = ranks

    def elaborate(self, platform):
        m = Module()
        settled = self.done
        for n in range(self.SETTLE):
            later = Signal(self._ranks, name=f"settled{n}")
            m.d.sync += later.eq(settled)
            settled = later
        m.d.sync += self.busy.eq((self.busy & ~settled) | self.choose)
        return m
