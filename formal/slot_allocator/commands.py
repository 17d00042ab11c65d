# SPDX-License-Identifier: Apache-2.0
"""Promises of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``) about what it tells the issue
stage, and of what that tells it."""

from amaranth import Signal

from formal.kit.spec import Spec, moves
from hub_rtl.contract.packets import Reason
from hub_rtl.slot_allocator.issue import Issue
from hub_rtl.slot_allocator.records import COMMANDS, REPLIES, Kind

from .pipe import PipeSpec

__all__ = ["CommandsAreOfAKind", "FilledIsExact"]


class CommandsAreOfAKind(PipeSpec):
    """A command is of a kind that there is, and has a reason exactly if it sinks its packet. No
    more answers are asked for than the issue stage has places for; it reads the data part for a
    victim only when no command waits there."""

    def build(self, m):
        self.pipe(m)
        self.checks()
        command = self.dut.o_command
        sinks, refused = command.p.kind == Kind.SINK, command.p.reason != Reason.OK
        self.always("kinds", command.p.kind <= Kind.SINK, when=command.valid)
        self.always("reasons", sinks == refused, when=command.valid)
        dut = self.dut
        asked = self.inside.asked.i
        open_ = Signal(range(REPLIES + 2))
        m.d.sync += open_.eq(open_ + moves(asked) - dut.alloc_taken)
        self.suppose("only what was asked for is taken", open_ != 0, when=dut.alloc_taken)
        self.always("answers fit", open_ < REPLIES, when=moves(asked))
        waiting = Signal(range(COMMANDS + 2))  # in the queue or held by issue
        issued = Signal()
        self.free(issued)
        m.d.sync += waiting.eq(waiting + moves(command) - (issued & (waiting != 0)))
        self.suppose("the queue has a place", waiting <= COMMANDS, when=command.ready)
        self.suppose("filled while no command waits", dut.filled == (waiting == 0))
        self.always("victims only between commands", dut.filled, when=dut.victim_look)


class FilledIsExact(Spec):
    """``filled`` says that no command is offered, and none was taken that has not become
    anything."""

    def build(self, m):
        m.submodules.dut = dut = Issue(self._cfg)
        self.free_inputs(dut)
        command = dut.i_command
        held = Signal()
        with m.If(command.ready):
            m.d.sync += held.eq(command.valid)
        self.always("filled while no command waits", dut.filled == ~(command.valid | held))
