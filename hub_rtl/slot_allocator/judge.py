# SPDX-License-Identifier: Apache-2.0
"""What the RAT holds for a packet, kept true on the packet's way through the pipe."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant

from .records import slice_types_of

__all__ = ["Judge"]


class JudgeObserve(NamedTuple):
    """What a proof may see of a :class:`Judge`."""

    second: data.View  #: what the set holds for the packet in R2


class Judge(wiring.Component):
    """Two stages of the pipe, R2 and R3: has the packet's row an entry, and if not, is there a way
    for one?

    ``seen`` is what the set holds for the packet in R1. With ``move`` each packet goes on, and the
    one in R3 leaves: ``change`` says what it does to its set, and those behind it are told
    (``far``, ``near``: how they are related to it). So at each stage, in each cycle, what is seen
    is what all packets that have left made of the set. ``way`` is one-hot: the row's (``hit``), or
    the lowest one without a row (``has_way``). ``freed``: the packet in R3 gets ``freed_way``.

    Parameters: ``cfg``. Ports: ``move`` In; ``seen``, ``far`` In, of the packet in R1; ``near`` In,
    of the one in R2; ``change`` In; ``freed``, ``freed_way`` In; ``foreign_next`` Out: the packet
    in R2 will find its row to be of another source; ``hit``, ``way``, ``has_way`` Out, registers,
    of the one in R3."""

    observe: JudgeObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._own, self._ways = own, cfg.rat_ways
        super().__init__(
            {
                "move": In(1),
                "seen": In(own.seen),
                "far": In(own.twin),
                "near": In(own.twin),
                "change": In(own.change),
                "freed": In(1),
                "freed_way": In(cfg.rat_ways),
                "foreign_next": Out(1),
                "hit": Out(1),
                "way": Out(cfg.rat_ways),
                "has_way": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        second = Signal(self._own.seen)
        third = Signal(self._own.seen)
        self.observe = JudgeObserve(second)
        self._told(m, second, self.near, third)
        hit = third.match.any()
        free = lowest_set(m, ~third.used, "free_way")
        m.d.comb += self.foreign_next.eq(hit & third.stranger)
        with m.If(self.move):
            self._told(m, self.seen, self.far, second, domain="sync")
            m.d.sync += [
                self.hit.eq(hit),
                self.way.eq(Mux(hit, third.match, free)),
                self.has_way.eq(~third.used.all()),
            ]
        with m.If(self.freed):
            m.d.sync += [
                self.way.eq(self.freed_way),
                self.has_way.eq(1),
            ]
        return m

    def _told(self, m, before, twin, after, domain="comb"):
        """``after`` is ``before`` and what the packet that leaves makes of it."""
        change = self.change
        written = Signal(self._ways)
        twins = mutant("slot_allocator.twin_not_told", change.write & twin.row, 0)
        m.d.comb += written.eq(Mux(change.write & twin.set, change.way, 0))
        m.d[domain] += [
            after.match.eq((before.match & ~written) | Mux(twins & change.keeps, written, 0)),
            after.used.eq((before.used & ~written) | Mux(change.keeps, written, 0)),
            after.stranger.eq(Mux(twins, twin.stranger, before.stranger)),
        ]
