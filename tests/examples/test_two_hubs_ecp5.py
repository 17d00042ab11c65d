# SPDX-License-Identifier: Apache-2.0
"""``examples/two_hubs_ecp5``: a row crosses from hub to hub, and the project is whole."""

import importlib.util
import sys

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from amaranth_boards.ecp5_5g_evn import ECP55GEVNPlatform

from sim.bench.runner import ROOT

SPEC = importlib.util.spec_from_file_location(
    "two_hubs", ROOT / "examples/two_hubs_ecp5/two_hubs.py"
)
two_hubs = sys.modules["two_hubs"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(two_hubs)


@pytest.mark.night
def test_row_crosses():
    """The switches' byte is shown when the far hub has said READY, and not before."""
    top = two_hubs.TwoHubs()
    simulator = Simulator(top)
    simulator.add_clock(1e-6)

    async def bench(ctx):
        ctx.set(top.value, 0xA5)
        for _ in range(1000):
            if ctx.get(top.ready):
                break
            assert ctx.get(top.shown) == 0
            await ctx.tick()
        assert ctx.get(top.ready), "no READY in 1,000 cycles"
        assert ctx.get(top.shown) == 0xA5

    simulator.add_testbench(bench)
    simulator.run()


class Stand(wiring.Component):
    """The ports of the two hubs, elaborated above: what the switches say is shown."""

    value: In(8)
    shown: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.shown.eq(self.value)
        return m


def test_board(tmp_path, monkeypatch):
    """Amaranth writes the project: a script for Yosys, and a pin for each switch and LED, the clock
    and the reset."""
    monkeypatch.setattr(two_hubs, "TwoHubs", Stand)
    ECP55GEVNPlatform().prepare(two_hubs.Board(), "two_hubs").extract(tmp_path)
    assert "synth_ecp5" in (tmp_path / "two_hubs.ys").read_text()
    pins = (tmp_path / "two_hubs.lpf").read_text()
    assert pins.count("LOCATE COMP") == 8 + 8 + 1 + 1
