# SPDX-License-Identifier: Apache-2.0
"""Arbiters and priority pickers, built as parallel-prefix trees: depth grows with the logarithm of
the width."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .mutants import mutant

__all__ = ["RoundRobin", "lowest_set", "any_before"]


def any_before(m, bits, name="before"):
    """Bit n of the result: some bit below n of ``bits`` is set. A parallel-prefix OR, log2(width)
    levels."""
    width = len(bits)
    acc = list(Cat(0, bits)[:width])
    step = 1
    level = 0
    while step < width:
        nxt = Signal(width, name=f"{name}_{level}")
        m.d.comb += nxt.eq(
            Cat(acc[n] | acc[n - step] if n >= step else acc[n] for n in range(width))
        )
        acc = list(nxt)
        step *= 2
        level += 1
    return Cat(acc)


def lowest_set(m, bits, name="lowest"):
    """One-hot of the lowest set bit, 0 when none is set."""
    out = Signal(len(bits), name=name)
    m.d.comb += out.eq(bits & ~any_before(m, bits, name + "_before"))
    return out


class RoundRobinObserve(NamedTuple):
    """What a proof may see of a :class:`RoundRobin`."""

    last: Signal  #: one-hot: served last


class RoundRobin(wiring.Component):
    """Round-robin arbiter with a combinational, one-hot grant.

    The request after the last one served wins first, so every steady request is served within
    ``count`` advances. With ``hold`` the grant stays with the input served last, whatever the
    requests.

    Parameters: ``count``, requesters, 1 or more. Ports: ``requests`` In ``count``; ``grant_onehot``
    Out ``count``; ``advance`` In, the grant was used in this cycle; ``hold`` In.
    """

    observe: RoundRobinObserve  # once elaborated

    def __init__(self, count):
        super().__init__(
            {"requests": In(count), "grant_onehot": Out(count), "advance": In(1), "hold": In(1)}
        )
        self._count = count

    def elaborate(self, platform):
        m = Module()
        last = Signal(self._count, init=1 << (self._count - 1))
        self.observe = RoundRobinObserve(last)
        # Inputs after `last` first, then all.
        after = any_before(m, last, "after")
        masked = Signal(self._count)
        m.d.comb += masked.eq(
            mutant(
                "parts.arbiter_has_priorities",
                self.requests & mutant("parts.arbiter_grants_last_again", after, last),
                0,
            )
        )
        first = lowest_set(m, masked, "first")
        wrapped = lowest_set(m, self.requests, "wrapped")
        m.d.comb += self.grant_onehot.eq(
            Mux(
                self.hold,
                last,
                mutant("parts.arbiter_wraps_always", Mux(masked.any(), first, wrapped), wrapped),
            )
        )
        with m.If(self.advance & self.grant_onehot.any()):
            m.d.sync += last.eq(self.grant_onehot)
        return m
