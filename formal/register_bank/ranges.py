# SPDX-License-Identifier: Apache-2.0
"""Promise of orders to a range of regions."""

from amaranth import Mux, Signal

from formal.kit.spec import Spec
from hub_rtl.contract.packets import RegionOp
from hub_rtl.register_bank.order_range import OrderRange

__all__ = ["RangeIsGivenInOrder"]


class RangeIsGivenInOrder(Spec):
    """The commands of an order are those to its region and the ``more`` behind it, in order and
    each once, every one followed by the OPEN of its region for the epoch two further if that is
    wanted; no other command is given; each is given as soon as it may be.

    An order does not come while ``busy``."""

    def build(self, m):
        m.submodules.dut = dut = OrderRange(self._cfg)
        self.free_inputs(dut)
        width = len(dut.more) + 2
        due, begun = Signal(width), Signal()  # commands of the order to come; it is under way
        order, again, given = Signal.like(dut.order), Signal(), Signal(width)
        self.suppose("not while busy", ~begun, when=dut.order_en)
        now, twice = Signal.like(order), Signal()
        count = Mux(begun, due, (dut.more + 1) << dut.again)
        m.d.comb += [
            now.eq(Mux(begun, order, dut.order)),
            twice.eq(Mux(begun, again, dut.again)),
        ]
        asked = begun | dut.order_en
        self.always("when it may", dut.command_en == (asked & dut.may))
        self.always("busy", dut.busy == begun)
        step, opens = given >> twice, twice & given[0]
        command = dut.command
        self.always(
            "region by region",
            command.region == (now.region + step)[: len(command.region)],
            when=dut.command_en,
        )
        self.always("what", command.op == Mux(opens, RegionOp.OPEN, now.op), when=dut.command_en)
        self.always(
            "epoch",
            command.epoch == (now.epoch + (opens << 1))[: len(command.epoch)],
            when=dut.command_en,
        )
        last = dut.command_en & (count == 1)
        m.d.sync += [
            order.eq(now),
            again.eq(twice),
            begun.eq(asked & ~last),
            due.eq(count - dut.command_en),
            given.eq(Mux(asked & ~last, given + dut.command_en, 0)),
        ]
        self.reach("a range of two, opened again", last & (given == 3))
