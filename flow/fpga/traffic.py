# SPDX-License-Identifier: Apache-2.0
"""The GPU of the self-test: stores the rows of an epoch, closes it, and looks at the answers and
events."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import BYTE
from hub_rtl.contract.packets import CommandOp, EventKind

from .plan import GROUP_ROWS, RANKS

__all__ = ["Traffic", "unit_of"]


def unit_of(rowid, unit, epoch):
    """The 16 bytes at unit ``unit`` of a row: they say where they belong, in four different
    ways."""
    word = Cat(
        rowid, Const(0, 16 - len(rowid)), unit, Const(0, 8 - len(unit)), epoch, Const(0xA, 4)
    )
    return Cat(word, ~word, word ^ 0x9E3779B9, word[7:], word[:7])


class Traffic(wiring.Component):
    """Stores ``rows`` rows to each rank, its own first, in groups of rows in turn, closes the
    epoch, and waits for the region to be complete.

    Latency and throughput: one store per cycle when the hub takes it. Illegal input: any answer
    other than OK, an ERROR event or a wrong number of rows sets ``error`` for good.

    Parameters: ``plan``. Ports: ``fault`` In, store one wrong bit in the
    last row (to see the test fail); ``start`` In, strobe; ``epoch`` In; ``done`` Out, from the ALL
    event until the next start; ``error`` Out; ``store``, ``response``, ``command``,
    ``command_response``, ``event``: the hub's ports, {valid, ready, fields}.
    """

    def __init__(self, plan):
        self._plan = plan
        super().__init__(
            {
                "fault": In(1),
                "start": In(1),
                "epoch": In(4),
                "done": Out(1),
                "error": Out(1),
                "store_valid": Out(1),
                "store_ready": In(1),
                "store_operand": Out(64),
                "store_data": Out(plan.cfg.slice_bytes * BYTE),
                "store_mask": Out(plan.cfg.slice_bytes),
                "response_valid": In(1),
                "response_status": In(4),
                "command_valid": Out(1),
                "command_ready": In(1),
                "command_op": Out(2),
                "command_epoch": Out(4),
                "command_response_valid": In(1),
                "command_response_status": In(4),
                "event_valid": In(1),
                "event_kind": In(2),
                "event_rows": In(plan.cfg.slot_width),
                "event_refused": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        plan = self._plan
        rows, parts = plan.rows, plan.parts
        per = plan.cfg.slice_bytes // 16  # units of a part
        row = Signal(range(GROUP_ROWS))  # counts first, then the part, the group, the rank
        part = Signal(range(parts))
        group = Signal(range(max(2, rows // GROUP_ROWS)))
        dest = Signal(range(RANKS))
        rowid = Signal(plan.slot_width)
        epoch = Signal(4)
        last = (
            (row == GROUP_ROWS - 1)
            & (part == parts - 1)
            & (group == rows // GROUP_ROWS - 1)
            & (dest == RANKS - 1)
        )
        bits = ceil_log2(per)
        units = [unit_of(rowid, Cat(Const(n, bits), part), epoch) for n in range(per)]
        m.d.comb += [
            # A mirror brings back what is for the other rank: other rows than the own ones.
            rowid.eq(dest * rows + group * GROUP_ROWS + row),
            self.store_operand.eq(
                Cat(
                    dest,
                    Const(0, 11 - len(dest)),
                    epoch,
                    rowid,
                    Const(0, 24 - len(rowid)),
                    Const(0, bits),
                    part,
                )
            ),
            self.store_data.eq(Cat(*units) ^ Mux(last & self.fault, 1, 0)),
            self.store_mask.eq(
                Mux(part == parts - 1, (1 << 16 * (plan.units - (parts - 1) * per)) - 1, -1)
            ),
            self.command_op.eq(CommandOp.CLOSE_ALL),
            self.command_epoch.eq(epoch),
        ]
        taken = self.store_valid & self.store_ready
        with m.If(taken):
            m.d.sync += row.eq(row + 1)
            with m.If(row == GROUP_ROWS - 1):
                m.d.sync += part.eq(Mux(part == parts - 1, 0, part + 1))
                with m.If(part == parts - 1):
                    m.d.sync += group.eq(Mux(group == rows // GROUP_ROWS - 1, 0, group + 1))
                    with m.If(group == rows // GROUP_ROWS - 1):
                        m.d.sync += dest.eq(dest + 1)

        open_stores = Signal(range(RANKS * rows * parts + 1))
        m.d.sync += open_stores.eq(open_stores + taken - self.response_valid)
        told = Signal(range(plan.region_rows + 1))
        whole = Signal()
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [
                        epoch.eq(self.epoch),
                        told.eq(0),
                        whole.eq(0),
                        self.done.eq(0),
                    ]
                    m.next = "STORE"
            with m.State("STORE"):
                m.d.comb += self.store_valid.eq(1)
                with m.If(taken & last):
                    m.next = "ANSWERS"
            with m.State("ANSWERS"):
                with m.If(open_stores == 0):
                    m.next = "CLOSE"
            with m.State("CLOSE"):
                m.d.comb += self.command_valid.eq(1)
                with m.If(self.command_ready):
                    m.next = "CLOSED"
            with m.State("CLOSED"):
                with m.If(self.command_response_valid):
                    m.next = "EVENTS"
            with m.State("EVENTS"):
                with m.If(whole):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"

        # Tiles, then the region: the rows of the tiles are all the rows there are.
        refused = (self.response_valid & (self.response_status != 0)) | (
            self.command_response_valid & (self.command_response_status != 0)
        )
        wrong = Signal()
        with m.If(self.event_valid):
            with m.Switch(self.event_kind):
                with m.Case(EventKind.READY):
                    m.d.sync += told.eq(told + self.event_rows)
                with m.Case(EventKind.ALL):
                    m.d.sync += whole.eq(1)
                    m.d.comb += wrong.eq(
                        (self.event_rows != plan.region_rows)
                        | (told != plan.region_rows)
                        | self.event_refused
                    )
                with m.Default():
                    m.d.comb += wrong.eq(1)
        with m.If(refused | wrong):
            m.d.sync += self.error.eq(1)
        return m
