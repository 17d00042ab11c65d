# SPDX-License-Identifier: Apache-2.0
"""Which neighbouring banks are given back together."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .records import scoreboard_types

__all__ = ["BankRun"]


class BankRunObserve(NamedTuple):
    """What a proof may see of a :class:`BankRun`."""

    shared: Ram  #: a bit per region: it was named as an overflow region


class BankRun(wiring.Component):
    """Hears what the books say to an order to one region after the other, and gathers those that
    are given back.

    Contract: ``begin`` starts with ``region``; from then on each cycle of ``hears`` is the answer
    about ``heard``, one region further each time. While ``ends``, a bank that is given back joins
    the run ``first`` to ``final``, unless one before it did not, which makes ``stop``; a bank that
    shares memory with others, as an overflow region (``hosts``) or as one that has one (``over``),
    joins only an empty run and keeps others from it (``alone``). ``empty`` ends the run. ``error``
    in a cycle of ``hears``: this bank's order was refused, and it is not one behind a ``stop`` or a
    run, which is to be asked again. Latency: all but ``error`` and ``joins`` in the next cycle.
    Illegal input: ``begin`` while ``some``, ``hears`` in that cycle.

    Parameters: ``cfg``. Ports: ``begin``, ``region``, ``hears``, ``ends``, ``empty``, ``result``,
    ``geometry_write`` In; ``heard``, ``first``, ``final``, ``some``, ``stop``, ``alone``,
    ``hosts``, ``over`` Out; ``joins``, ``error`` Out; ``last`` Out, ``final`` with what is heard
    now; ``clearing`` Out.
    """

    observe: BankRunObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg = cfg
        region = cfg.region_width
        super().__init__(
            {
                **{name: In(1) for name in ("begin", "hears", "ends", "empty")},
                "region": In(region),
                "result": In(scoreboard_types(cfg).result),
                "geometry_write": In(types_of(cfg).geometry_write),
                **{name: Out(region) for name in ("heard", "first", "final", "last")},
                **{name: Out(1) for name in ("some", "stop", "alone", "hosts", "over")},
                **{name: Out(1) for name in ("joins", "error", "clearing")},
            }
        )

    def elaborate(self, platform):
        m = Module()
        regions, shape = self._cfg.regions, self.geometry_write.geometry
        # Which regions were ever named as an overflow region: the others need not look for those
        # who overflow there.
        m.submodules.shared = shared = Ram(1, regions, clear=True, quick=regions <= SMALL)
        self.observe = BankRunObserve(shared)
        shares = Signal()
        over = self.result.geometry.overflow_en
        m.d.comb += [
            self.clearing.eq(shared.clearing),
            shared.w_en.eq(self.geometry_write.en & shape.overflow_en),
            shared.w_addr.eq(shape.overflow),
            shared.w_data.eq(1),
            shared.r_en.eq(1),
            shared.r_addr.eq(Mux(self.begin, self.region, self.heard + self.hears)),
            shares.eq(mutant("scoreboard.shared_bank_joins", shared.r_data | over, over)),
            self.joins.eq(
                self.hears
                & self.ends
                & self.result.ok
                & ~self.stop
                & (~self.some | ~(shares | self.alone))
            ),
            self.last.eq(Mux(self.joins, self.heard, self.final)),
            self.error.eq(self.hears & ~self.result.ok & ~(self.ends & (self.some | self.stop))),
        ]
        with m.If(self.hears):
            m.d.sync += [
                self.heard.eq(self.heard + 1),
                self.stop.eq(
                    self.stop
                    | (self.ends & mutant("scoreboard.run_goes_over_refused", ~self.joins, 0))
                ),
            ]
        with m.If(self.joins):
            m.d.sync += [
                self.some.eq(1),
                self.final.eq(self.heard),
            ]
        with m.If(self.joins & ~self.some):
            m.d.sync += [
                self.alone.eq(shares),
                self.hosts.eq(shared.r_data),
                self.over.eq(over),
            ]
        with m.If(self.empty):
            m.d.sync += self.some.eq(0)
        with m.If(self.begin):
            m.d.sync += [
                self.heard.eq(self.region),
                self.first.eq(self.region),
                self.stop.eq(0),
            ]
        return m
