# SPDX-License-Identifier: Apache-2.0
"""One order of software to many regions, and to a bank's next epoch."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.packets import RegionOp
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant

__all__ = ["OrderRange"]


class OrderRange(wiring.Component):
    """Gives an order to a range of regions, one after the other.

    Contract: the order goes to ``order.region`` and to the ``more`` regions behind it, in order,
    each as a command of its own; with ``again``, each is followed by an OPEN of the same region for
    the epoch two further, the same bank's next. An order that is refused keeps no other from being
    given. Latency: the first command in the cycle of ``order_en``, if ``may`` is 1 then; each other
    in the first cycle of ``may`` after it. Stalls: ``busy`` from the cycle after ``order_en`` until
    the last command was given. Illegal input: an order while ``busy``, or beyond the last region,
    is the caller's to refuse.

    Parameters: ``cfg``. Ports: ``order_en`` In strobe; ``order`` In; ``more`` In; ``again`` In;
    ``may`` In: a command may be given; ``busy`` Out; ``command_en`` Out strobe, ``command`` Out.
    Source: docs/interfaces.md section 9, docs/registers.md.
    """

    def __init__(self, cfg):
        command = types_of(cfg).region_command
        super().__init__(
            {
                "order_en": In(1),
                "order": In(command),
                "more": In(cfg.region_width),
                "again": In(1),
                "may": In(1),
                "busy": Out(1),
                "command_en": Out(1),
                "command": Out(command),
            }
        )

    def elaborate(self, platform):
        m = Module()
        order, left, again = Signal.like(self.order), Signal.like(self.more), Signal()
        reopens = Signal()  # the next command is the OPEN that follows
        now, rest, twice = Signal.like(order), Signal.like(left), Signal()
        m.d.comb += [
            now.eq(Mux(self.busy, order, self.order)),
            rest.eq(Mux(self.busy, left, self.more)),
            twice.eq(Mux(self.busy, again, self.again)),
            self.command.region.eq(now.region),
            self.command.op.eq(Mux(reopens, RegionOp.OPEN, now.op)),
            self.command.epoch.eq(
                now.epoch + Mux(reopens, mutant("register_bank.opens_other_bank", 2, 1), 0)
            ),
            self.command_en.eq((self.busy | self.order_en) & self.may),
        ]
        done = self.command_en & (reopens | ~twice)  # with this region
        with m.If(self.busy | self.order_en):
            m.d.sync += [
                order.eq(now),
                left.eq(rest),
                again.eq(twice),
                self.busy.eq(~done | mutant("register_bank.range_one_short", rest != 0, rest > 1)),
            ]
        with m.If(self.command_en):
            m.d.sync += reopens.eq(twice & ~reopens)
        with m.If(done):
            m.d.sync += [
                order.region.eq(now.region + 1),
                left.eq(rest - 1),
            ]
        return m
