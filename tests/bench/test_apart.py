# SPDX-License-Identifier: Apache-2.0
"""Modules that are compiled once for all their instances: which they are, and that the program is
the same one."""

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.stream import StreamRegister
from sim.bench import apart, runner, verilator
from sim.bench.apart import Text
from sim.bench.runner import run_bench, to_verilog
from sim.cocotb.parts.tests import ITEM
from sim.quality.caught import assert_caught

TEXT = """/* made by hand */

module top(clk);
  cell_a a0 (
    .clk(clk)
  );
  cell_a \\output  (
    .clk(clk)
  );
  cell_b b (
    .clk(clk)
  );
endmodule

module cell_a(clk);
  cell_b b (
    .clk(clk)
  );
  cell_b c (
    .clk(clk)
  );
endmodule

module cell_b(clk);
  input clk;
endmodule
"""


@pytest.fixture
def anything(monkeypatch):
    """However small it is, what is there several times is a part."""
    monkeypatch.setattr(apart, "LEAST", 1)
    monkeypatch.setattr(verilator, "LEAST", 1)


def test_parts_come_before_what_has_them(anything):
    text = Text(TEXT, "top")
    assert text.apart == ["cell_b", "cell_a"]
    own, inside = text.of("cell_a")
    assert inside == ["cell_b"] and own.startswith("module cell_a(") and "module cell_b" not in own
    own, inside = text.of("top")
    assert sorted(inside) == ["cell_a", "cell_b"] and own.count("module ") == 1


def test_once_inside_of_a_part_is_no_part(anything):
    """It is written once, with its part."""
    once = TEXT.replace("  cell_b c (\n    .clk(clk)\n  );\n", "").replace(
        "  cell_b b (", "  x b (", 1
    )
    assert Text(once, "top").apart == ["cell_a"]
    own, inside = Text(once, "top").of("cell_a")
    assert inside == [] and "module cell_b" in own


def test_small_ones_are_no_parts():
    text = Text(TEXT, "top")
    assert text.apart == [] and text.of("top")[1] == []


@pytest.mark.parametrize("other", [TEXT.replace("cell_b(", "\\cell.b ("), "module top;\nendmodule"])
def test_other_texts_stay_whole(anything, other):
    assert Text(other, "top").apart == []


class Chain(wiring.Component):
    """Four registers, one behind the other; those in the middle are alike to the last port."""

    def __init__(self):
        item = stream.Signature(ITEM)
        super().__init__({"i": In(item), "o": Out(item)})

    def elaborate(self, platform):
        m = Module()
        last = wiring.flipped(self.i)
        for n in range(4):
            m.submodules[f"stage{n}"] = stage = StreamRegister(ITEM)
            wiring.connect(m, last, stage.i)
            last = stage.o
        wiring.connect(m, last, wiring.flipped(self.o))
        return m


def run(bug=None):
    tests = ["keeps_order", "reset_while_stalled"]
    more = {"items": 60, "latency": 4}
    run_bench(
        Chain(), name="chain", module="sim.cocotb.parts.tests", tests=tests, params=more, bug=bug
    )


@pytest.mark.night
def test_program_of_parts(anything):
    assert Text(to_verilog(Chain(), "chain"), "chain").apart == ["chain_stage1"]
    run()
    assert list((runner.BUILD / "cocotb" / "parts" / "chain_stage1").glob("*/libchain_stage1.a"))


@pytest.mark.night
def test_bug_in_a_part_is_noticed(anything):
    """Which bug a run has is told to every instance."""
    assert_caught(lambda: run("parts.register_loses_spare"))


def test_every_file_is_compiled_once(tmp_path):
    """Verilator's own files that have others in them are left out."""
    for name in ("Vtop__0", "Vtop__0__Slow", "Vtop_vm_classes_0", "Vtop_vm_classes_Slow_0"):
        (tmp_path / f"{name}.cpp").touch()
    command = verilator.make_command(tmp_path, "Vtop")
    assert {"VM_CLASSES_FAST=unit_fast0", "VM_CLASSES_SLOW=unit_slow0"} <= set(command)
    inside = [(tmp_path / f"unit_{speed}0.cpp").read_text() for speed in ("fast", "slow")]
    assert inside == ['#include "Vtop__0.cpp"\n', '#include "Vtop__0__Slow.cpp"\n']
