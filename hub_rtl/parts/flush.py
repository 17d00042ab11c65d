# SPDX-License-Identifier: Apache-2.0
"""Tells when everything that was inside a block at some moment has left it."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .mutants import mutant

__all__ = ["FlushCounter"]


class FlushCounter(wiring.Component):
    """Counts what is inside an in-order block and, after a strobe, what was inside at the strobe.

    Contract: after ``flush`` in cycle t, ``flushing`` is 1 from cycle t + 1 until all that entered
    in or before cycle t has left; 0 in cycle t + 1 when nothing of it is left. What enters later
    does not count, so continuous traffic cannot hold it up. A second strobe starts over with what
    is inside then.

    Parameters: ``depth``, most items inside, 1 or more. Ports: ``enter``, ``leave``, ``flush`` In
    strobes; ``flushing`` Out; ``occupied`` Out, something is inside.
    """

    def __init__(self, depth):
        super().__init__(
            {"enter": In(1), "leave": In(1), "flush": In(1), "flushing": Out(1), "occupied": Out(1)}
        )
        self._depth = depth

    def elaborate(self, platform):
        m = Module()
        inside = Signal(range(self._depth + 1))
        older = Signal(range(self._depth + 1))
        after = Signal(range(self._depth + 1))
        m.d.comb += [
            after.eq(
                mutant(
                    "parts.flush_enter_hides_leave",
                    inside + self.enter - self.leave,
                    Mux(self.enter, inside + 1, inside - self.leave),
                )
            ),
            self.flushing.eq(older.any()),
            self.occupied.eq(inside.any()),
        ]
        m.d.sync += [
            inside.eq(after),
            older.eq(
                Mux(
                    mutant(
                        "parts.flush_misses_strobe_at_leave", self.flush, self.flush & ~self.leave
                    ),
                    mutant("parts.flush_misses_entering", after, inside),
                    older - (self.leave & self.flushing),
                )
            ),
        ]
        return m
