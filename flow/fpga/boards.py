# SPDX-License-Identifier: Apache-2.0
"""The boards that the self-test is built for, and the top that connects it to their pins."""

import importlib
from dataclasses import dataclass

from amaranth import Elaboratable, Module, Signal
from amaranth.lib import io

from .selftest import SelfTest
from .uart import LineSender

__all__ = ["BOARDS", "MEMORIES", "Board", "BoardTop", "platform"]

BAUD = 115200


@dataclass(frozen=True)
class Board:
    """``source``: ``module:Class`` within ``amaranth_boards``. ``open_tools``: a bitstream comes
    out; otherwise the files of a project for the vendor's tool."""

    name: str
    source: str
    open_tools: bool


BOARDS = {
    board.name: board
    for board in (
        Board("ecp5_5g_evn", "ecp5_5g_evn:ECP55GEVNPlatform", True),
        Board("ulx3s_85f", "ulx3s:ULX3S_85F_Platform", True),
        Board("arty_a7_100", "arty_a7:ArtyA7_100Platform", False),
    )
}


#: Passes of Yosys for open tools. What a memory of the hub reads while that very word is written is
#: never used (:class:`~hub_rtl.parts.ram.Ram`). Yosys does not see that by itself, and builds two
#: words of flip-flops and multiplexers around each block RAM. Lookup tables are scarce here, so
#: wide and deep memories are block RAM, pairs of words flip-flops, and ABC counts lookup tables
#: rather than their levels: the clock is slow.
MEMORIES = """\
proc
memory_collect
setparam -set RD_COLLISION_X_MASK 1'1 *.hub.*/t:$mem_v2
setattr -set ram_style "block" t:$mem_v2 r:WIDTH>=112 %i r:SIZE>2 %i
setattr -set ram_style "block" t:$mem_v2 r:SIZE>64 %i
setattr -set ram_style "registers" t:$mem_v2 r:SIZE<=2 %i
scratchpad -copy abc9.script.default.area abc9.script
"""


def platform(board):
    """The board's Amaranth platform."""
    module, _, name = board.source.partition(":")
    return getattr(importlib.import_module(f"amaranth_boards.{module}"), name)()


class BoardTop(Elaboratable):
    """The self-test on a board: LED 0 blinks while it runs, LED 1 is lit when it has passed, LED 2
    when it has failed; the serial line says the same with the cycles it took (115,200 baud, 8N1).
    Runs on the board's own clock.

    Parameters: ``plan``, :class:`~flow.fpga.plan.Plan`.
    """

    def __init__(self, plan=None):
        self._plan = plan

    def elaborate(self, platform):
        m = Module()
        m.submodules.test = test = SelfTest(self._plan)
        frequency = int(platform.default_clk_frequency)
        blink = Signal(range(frequency // 2))
        m.d.sync += blink.eq(blink + 1)
        for n, lit in enumerate((blink[-1] & test.running, test.passed, test.failed)):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request("led", n, dir="-"))
            m.d.comb += led.o.eq(lit)
        m.submodules.tx = tx = io.Buffer("o", platform.request("uart", 0, dir="-").tx)
        lines = [
            LineSender(
                f"MoE-Hub self-test: {word}, code ##, ######## cycles\r\n", frequency // BAUD
            )
            for word in ("PASSED", "FAILED")
        ]
        m.submodules.passed, m.submodules.failed = lines
        for line, verdict in zip(lines, (test.passed, test.failed), strict=True):
            m.d.comb += [
                line.number[:32].eq(test.cycles),
                line.number[32:].eq(test.code),
                line.send.eq(verdict),
            ]
        m.d.comb += tx.o.eq(lines[0].tx & lines[1].tx)
        return m
