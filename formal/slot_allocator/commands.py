# SPDX-License-Identifier: Apache-2.0
"""Promises of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``) about what it tells the issue
stage."""

from hub_rtl.contract.packets import Reason
from hub_rtl.slot_allocator.records import Kind

from .pipe import PipeSpec

__all__ = ["CommandsAreOfAKind"]


class CommandsAreOfAKind(PipeSpec):
    """A command is of a kind that there is, and has a reason exactly if it sinks its packet."""

    def build(self, m):
        self.pipe(m)
        self.checks()
        command = self.dut.o_command
        sinks, refused = command.p.kind == Kind.SINK, command.p.reason != Reason.OK
        self.always("kinds", command.p.kind <= Kind.SINK, when=command.valid)
        self.always("reasons", sinks == refused, when=command.valid)
