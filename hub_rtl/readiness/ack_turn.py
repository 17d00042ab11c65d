"""Whose acknowledgement goes into the scoreboard's pipeline: round robin over the slices, decided a cycle ahead."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..lib.arbiter import any_before, lowest_set

__all__ = ["AckTurn"]


class AckTurn(wiring.Component):
    """The slice whose combiner may give its operation in this cycle, from registers.

    Contract: while ``waits``, ``turn`` names a slice that offers; it stays until ``served``. Then, and while none waits, it
    goes to the next slice behind it that will offer in the next cycle. So a slice that offers is served after at most
    ``slices`` - 1 others, and one that is alone in the first cycle in which it offers.

    Parameters: ``slices``, 1 or more. Ports, a bit per slice: ``offers`` In; ``later`` In, it offers in the next cycle even
    if what it offers now is served; ``turn`` Out, one-hot; one bit: ``waits`` Out, some slice offers; ``served`` In, only
    with ``waits``.
    """

    def __init__(self, slices):
        super().__init__({"offers": In(slices), "later": In(slices), "served": In(1),
                          "turn": Out(slices, init=1 << (slices - 1)), "waits": Out(1)})

    def elaborate(self, platform):
        m = Module()
        soon, behind = Signal.like(self.offers), Signal.like(self.offers)
        m.d.comb += [soon.eq(self.later | (self.offers & ~self.turn)), behind.eq(soon & any_before(m, self.turn, "after"))]
        first, wrapped = lowest_set(m, behind, "first"), lowest_set(m, soon, "wrapped")
        with m.If(self.served | ~self.waits):
            m.d.sync += self.waits.eq(soon.any())
            with m.If(soon.any()):
                m.d.sync += self.turn.eq(Mux(behind.any(), first, wrapped))
        return m
