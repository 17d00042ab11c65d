# SPDX-License-Identifier: Apache-2.0
"""Event counters: 48 bits each in one memory, fed by narrow accumulators."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import COUNTER, REGISTER
from hub_rtl.contract.records import types_of
from hub_rtl.contract.registers import COUNTERS
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram

__all__ = ["Counters"]


class CountersObserve(NamedTuple):
    """What a proof may see of :class:`Counters`."""

    live: Ram  #: the counters
    copies: Ram  #: what software reads
    fronts: list  #: a register per counter: its increments since its last visit
    place: Signal  #: the counter visited in this cycle
    visited: Signal  #: the same, one-hot
    taken: Signal  #: second cycle of a visit: increments to add
    at: Signal  #: its counter
    fresh: Signal  #: it starts from 0
    keep: Signal  #: it is also copied
    valid: Signal  #: there is one
    visits: Signal  #: visits left that start from 0
    copying: Signal  #: visits left that also copy
    clears: Signal  #: some of the former are left
    copies_too: Signal  #: some of the latter are left
    start_clear: Signal  #: first of a clearing round


class Counters(wiring.Component):
    """All counters of the hub. Few gates: one wide adder walks over a memory and collects narrow
    accumulators.

    Contract: no increment is lost (an accumulator holds all that can come between two visits);
    counters wrap at 2**width. Throughput: every counter takes the largest increment of its field in
    every cycle. A counter is visited every N cycles (N counters). ``clear`` is exact: what comes in
    the cycle after it and later counts, what comes with it or earlier does not. ``snapshot`` copies
    each counter on its next visit, from the cycle after it on: the copies are at most N cycles
    apart. ``freeze`` stops all in the same cycle (what happens meanwhile is not counted). After
    reset counters and copies are 0 after one round. Illegal input: ``snapshot`` and ``clear`` while
    ``busy`` are ignored.

    Parameters: ``cfg``; ``width``, bits of a counter, 48 in a hub; less where a test has to see
    them wrap. Ports: ``counts`` In record ``counts``; ``freeze`` In; ``snapshot``, ``clear`` In
    strobes; ``busy`` Out; ``read_en`` In, ``read_index`` In (word: counter * 2 + half),
    ``read_data`` Out, copies, one cycle later. Source: docs/interfaces.md section 9,
    docs/registers.md.
    """

    observe: CountersObserve  # once elaborated

    def __init__(self, cfg, width=COUNTER):
        self._layout, self._width = types_of(cfg).counts, width
        super().__init__(
            {
                "counts": In(self._layout),
                "freeze": In(1),
                "snapshot": In(1),
                "clear": In(1),
                "busy": Out(1),
                "read_en": In(1),
                "read_index": In(index_width(2 * len(COUNTERS))),
                "read_data": Out(REGISTER),
            }
        )

    def elaborate(self, platform):
        m = Module()
        number = len(COUNTERS)
        # Quick: their words go through the adder, and to the bus. A counter is read in the cycle
        # before it is written.
        m.submodules.live = live = Ram(self._width, number, quick=True, bypass=False)
        m.submodules.copies = copies = Ram(self._width, number, quick=True)
        # Between two visits: `number` increments.
        fronts = [
            Signal(range(number * ((1 << width) - 1) + 1), name=f"front_{name}")
            for name, width in self._layout.members.items()
        ]

        place = Signal(range(number))  # visited in this cycle
        visited = Signal(number, init=1)  # the same, one-hot
        m.d.sync += [
            visited.eq(visited.rotate_left(1)),
            place.eq(Mux(visited[number - 1], 0, place + 1)),
        ]
        visits, copying, clears, copies_too, start_clear = self._orders(m)

        for n, name in enumerate(COUNTERS):
            add = Signal.like(self.counts[name], name=f"add_{name}")
            m.d.comb += add.eq(Mux(self.freeze, 0, self.counts[name]))
            m.d.sync += fronts[n].eq(Mux(visited[n] | start_clear, 0, fronts[n]) + add)

        # First cycle: read the counter, take the accumulator. Second cycle: add and write back.
        taken = Signal(max(map(len, fronts)))
        at = Signal.like(place)
        fresh = Signal()
        keep = Signal()
        valid = Signal()
        m.d.sync += [
            taken.eq(Mux(start_clear, 0, select(visited, fronts))),
            at.eq(place),
            valid.eq(1),
        ]
        m.d.sync += [
            fresh.eq(clears),
            keep.eq(copies_too),
        ]
        self.observe = CountersObserve(
            live=live,
            copies=copies,
            fronts=fronts,
            place=place,
            visited=visited,
            taken=taken,
            at=at,
            fresh=fresh,
            keep=keep,
            valid=valid,
            visits=visits,
            copying=copying,
            clears=clears,
            copies_too=copies_too,
            start_clear=start_clear,
        )
        total = Signal(self._width)
        m.d.comb += [
            live.r_en.eq(1),
            live.r_addr.eq(place),
            total.eq(Mux(fresh, 0, live.r_data) + taken),
            live.w_en.eq(valid),
            live.w_addr.eq(at),
            live.w_data.eq(total),
            copies.w_en.eq(valid & keep),
            copies.w_addr.eq(mutant("register_bank.counter_written_elsewhere", at, place)),
            copies.w_data.eq(total),
            copies.r_en.eq(self.read_en),
            copies.r_addr.eq(self.read_index[1:]),
        ]
        high = Signal()
        with m.If(self.read_en):
            m.d.sync += high.eq(self.read_index[0])
        m.d.comb += self.read_data.eq(Mux(high, copies.r_data[REGISTER:], copies.r_data[:REGISTER]))
        return m

    def _orders(self, m):
        """(``visits``, ``copying``, ``clears``, ``copies_too``, ``start_clear``), see
        :class:`CountersObserve`."""
        number = len(COUNTERS)
        visits = Signal(
            range(number + 1), init=number
        )  # visits left that start from 0: the first round clears
        copying = Signal(
            range(number + 1), init=number
        )  # visits left that also copy: the first round, too
        # Such visits are left: registers, so that nothing is compared.
        clears = Signal(init=1)
        copies_too = Signal(init=1)
        start_clear = Signal()  # the first of these visits: every accumulator starts again, too
        m.d.comb += self.busy.eq(clears | copies_too)
        # An order sets single bits here, all else follows from them a cycle later: nothing wide
        # hangs on the bus' address.
        m.d.sync += start_clear.eq(self.clear & ~self.busy)
        for order, left, under_way in (
            (self.clear, visits, clears),
            (self.snapshot, copying, copies_too),
        ):
            with m.If(under_way):
                m.d.sync += [
                    left.eq(left - 1),
                    under_way.eq(left != 1),
                ]
            with m.Else():
                m.d.sync += [
                    left.eq(number),
                    under_way.eq(order & ~self.busy),
                ]
        return visits, copying, clears, copies_too, start_clear
