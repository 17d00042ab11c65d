# SPDX-License-Identifier: Apache-2.0
"""The ready lists of one rank: which of them have an entry, and which one is next."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import PRIORITY
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode

from .records import BUCKETS, LISTS, PLAIN, REMNANT, REST, TAIL

__all__ = ["Priority", "REST_SHARE", "RankLists"]

REST_SHARE = 4  # of so many packets one is for what waits in the rest, at least
ROWS = (1 << BUCKETS) - 1 | 1 << TAIL  # lists of normal rows
PLAINS = 1 << PLAIN | 1 << REMNANT


class Priority(enum.Enum, shape=PRIORITY):
    """Register ``control.PRIORITY``: who goes first of packets for one rank."""

    ROWS = 0
    TURNS = 1
    PLAIN = 2


class RankLists(wiring.Component):
    """Chooses among the lists of a rank.

    Contract: the buckets come first, in a circle from the last one on; but after three packets that
    passed over it comes the rest: the first of its lists that has an entry (full plain, full .nop,
    not full of rows, of plain ones). ``priority`` ROWS: what is plain waits while a row is there;
    PLAIN: the other way round; full .nop ones have their turn in each. While the rank is ``old``
    neither holds: buckets and rest take turns, and so do the lists within them: no list is passed
    over more than 2 x BUCKETS times.

    Latency: ``choice`` is a register; it follows a push two cycles, a pop one cycle later, whether
    the list was left empty or not.

    Ports: ``fills`` In, one-hot list that gets an entry; ``pops`` In, one-hot list that loses one,
    ``last`` In, that was its only one; ``moves`` In, one-hot list whose head was written by a pop;
    ``picked`` In, the choice is used; ``old`` In; ``priority`` In; ``some`` Out, there is a choice,
    ``choice`` Out list number; ``starts`` Out, the list that gets an entry is empty; ``left`` Out:
    the head of the chosen list was written by a pop.
    """

    def __init__(self):
        super().__init__(
            {
                "fills": In(LISTS),
                "pops": In(LISTS),
                "last": In(1),
                "moves": In(LISTS),
                "picked": In(1),
                "old": In(1),
                "priority": In(Priority),
                "some": Out(1),
                "choice": Out(ceil_log2(LISTS)),
                "starts": Out(1),
                "left": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        filled = Signal(LISTS)
        starts = Signal(LISTS)
        left = Signal(LISTS)
        upward = Signal(BUCKETS, init=-1)
        rest_upward = Signal(REST, init=-1)
        passed = Signal(range(REST_SHARE))
        ends = Mux(self.last, self.pops, 0)
        m.d.comb += [
            starts.eq(self.fills & (~filled | mutant("packet_manager.push_at_last_pop", ends, 0))),
            self.starts.eq(starts.any()),
            self.left.eq((left | self.moves).bit_select(self.choice, 1)),
        ]
        m.d.sync += [
            filled.eq((filled & ~ends) | self.fills),
            left.eq((left | self.moves) & ~starts),
        ]
        rows_first = Signal()
        plain_first = Signal()
        m.d.comb += [
            rows_first.eq((self.priority == Priority.ROWS) & ~self.old),
            plain_first.eq((self.priority == Priority.PLAIN) & ~self.old),
        ]
        # What is next, if the list that is popped in this cycle is left empty and if not.
        outcomes = []
        for name, there in (("more", filled), ("less", filled & ~self.pops)):
            behind = mutant(
                "packet_manager.nobody_behind",
                Mux(rows_first & (there & ROWS).any(), PLAINS, 0)
                | Mux(plain_first & (there & PLAINS).any(), ROWS, 0),
                0,
            )
            lists = Signal(LISTS, name=f"lists_{name}")
            m.d.comb += lists.eq(there & ~behind)
            rest = lists[BUCKETS:]
            number = Mux(
                rest.any() & (passed.all() | ~lists[:BUCKETS].any()),
                BUCKETS
                + self._first(m, rest, rest_upward | ~self.old.replicate(REST), f"rest_{name}"),
                self._first(m, lists[:BUCKETS], upward, f"bucket_{name}"),
            )
            outcomes.append((lists.any(), number))
        (some_more, more), (some_less, less) = outcomes
        m.d.sync += [
            self.some.eq(Mux(self.last, some_less, some_more)),
            self.choice.eq(Mux(self.last, less, more)),
        ]
        with m.If(self.picked & (self.choice >= BUCKETS)):
            m.d.sync += [
                passed.eq(mutant("packet_manager.rest_comes_always", 0, passed)),
                rest_upward.eq(Cat(self.choice < BUCKETS + n for n in range(REST))),
            ]
        with m.Elif(self.picked):
            m.d.sync += upward.eq(
                Cat(
                    ((self.choice < n) if n else 0) | ((self.choice == n) & ~self.old)
                    for n in range(BUCKETS)
                )
            )
            with m.If(self.old):
                m.d.sync += passed.eq(-1)
            with m.Elif(filled[BUCKETS:].any() & ~passed.all()):
                m.d.sync += passed.eq(passed + 1)
        return m

    @staticmethod
    def _first(m, lists, upward, name):
        """Number of the first list in the circle."""
        ahead = lists & upward
        first, low = lowest_set(m, ahead, f"ahead_{name}"), lowest_set(m, lists, f"low_{name}")
        return Mux(ahead.any(), encode(first), encode(low))
