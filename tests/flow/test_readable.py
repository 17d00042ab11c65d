# SPDX-License-Identifier: Apache-2.0
"""Names in the Verilog: those of the source, and nothing else is changed."""

import re

import pytest
from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from flow.synth.yosys import run_yosys
from flow.verilog.netlist import to_rtlil, to_verilog
from flow.verilog.readable import about, commented, readable, without_numbers
from hub_rtl.hub.hub import Hub
from hub_rtl.parts.ram import Ram

PAIR = data.StructLayout({"number": 3, "word": 5})


class Inner(wiring.Component):
    """Adds the number of a pair. Its word is not looked at."""

    pair: In(PAIR)
    more: In(PAIR)
    sum: Out(5)

    def elaborate(self, platform):
        m = Module()
        total = Signal(5)
        m.d.sync += total.eq(total + self.pair.number)
        m.d.comb += self.sum.eq(total + self.more.number)
        return m


class Outer(wiring.Component):
    """A pair whose parts come from different places."""

    i: In(8)
    o: Out(5)

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Inner()
        late = Signal(3)
        shown = Signal(3)
        m.d.sync += late.eq(late ^ self.i[:3])
        m.d.comb += [
            inner.pair.eq(Cat(late, self.i[3:])),
            inner.more.eq(Cat(self.i[2:5] & late, Const(5, 5))),
            shown.eq(late),
            self.o.eq(inner.sum ^ inner.more.number ^ shown),
        ]
        return m


def ports(verilog, module):
    text = verilog[verilog.index(f"module {module}(") :]
    found = re.findall(r"^  (?:input|output) (?:\[\d+:0\] )?(\S+?) ?;", text, re.M)
    return set(found[: text[: text.index(";")].count(",") + 1])


@pytest.fixture(scope="module")
def outer():
    """Verilog of an Outer, before and after."""
    before = [to_rtlil(Outer(), "part")]
    return to_verilog(before), to_verilog(readable(before))


def test_ports_and_expressions(outer):
    """A field's name for a port that has one; the signal's for an expression that is one; what a
    register takes next."""
    before, after = outer
    assert {"port_0", "port_1"} <= ports(before, "part_inner")
    named = {"pair__number", "pair__word", "more__number"}
    assert ports(after, "part_inner") == {"clk", "rst", "sum", *named}
    assert "port_" not in after and ports(after, "part") == ports(before, "part")
    assert "late__next" in after and "total__next" in after
    # What is connected to a register says nothing of how that one starts.
    assert re.search(r"\(\* init = 3'h0 \*\)\n  wire \[2:0\] (shown|late);", before)
    assert "init" not in after
    assert len(re.findall(r"\\\$\d+ ;", after)) < len(re.findall(r"\\\$\d+ ;", before))


@pytest.mark.parametrize("wrong", [None, ("late ^", "late |")])
def test_same_gates(outer, wrong, tmp_path):
    """Proved for this one: the same machine."""
    before, after = outer
    if wrong:
        assert wrong[0] in after
        after = after.replace(*wrong)
    (tmp_path / "gold.v").write_text(before)
    (tmp_path / "gate.v").write_text(after)
    steps = []
    for name in ("gold", "gate"):
        steps += [f"read_verilog {name}.v", "hierarchy -top part", "proc", "flatten", "opt_clean"]
        steps += [f"rename part {name}", f"design -stash {name}"]
    for name in ("gold", "gate"):
        steps.append(f"design -copy-from {name} {name}")
    steps += ["equiv_make gold gate both", "hierarchy -top both", "equiv_induct -undef"]
    steps += ["tee -o status equiv_status"]
    run_yosys(steps, tmp_path)
    proved = "Equivalence successfully proven!" in (tmp_path / "status").read_text()
    assert proved == (wrong is None)


def test_comments():
    """The class and its first sentence, above its module."""
    assert about(Inner) == f"{__name__}.Inner: Adds the number of a pair."
    assert about(Ram).startswith("hub_rtl.parts.ram.Ram: Memory with one read and one write port")
    assert about(Hub).startswith("hub_rtl.hub.hub.Hub: One hub: stores and commands in, packets")
    text = 'module a(x);\n(* src = "b.py:1" *)\nmodule b(y);\n'
    assert commented(text, {"b": "word " * 30}) == (
        "module a(x);\n// " + ("word " * 19)[:-1] + "\n// " + ("word " * 11)[:-1] + "\n"
        '(* src = "b.py:1" *)\nmodule b(y);\n'
    )


def test_source(tmp_path):
    """With paths from the package on, at modules, signals and cells; else without any."""
    components = {}
    text = to_rtlil(Ram(8, 5), "part", components, source=True)
    assert components == {"part": Ram}
    verilog = to_verilog([text], source=True)
    places = set(re.findall(r'src = "([^"]*)"', verilog))
    assert {place.partition(":")[0] for place in places} == {
        "hub_rtl/parts/ram.py",
        "amaranth/lib/memory.py",
        "amaranth/hdl/_ir.py",
    }
    assert re.search(r'^\(\* src = "hub_rtl/parts/ram.py:\d+" \*\)\nmodule part\(', verilog, re.M)
    assert "generator" not in verilog and "src" not in to_verilog([to_rtlil(Ram(8, 5), "part")])


def test_no_numbers_of_the_back_end():
    verilog = to_verilog([to_rtlil(Ram(8, 5, clear=True), "part")])
    assert "$auto$" in verilog
    after = without_numbers(verilog)
    assert "$auto$" not in after and "  reg at_start = 0;\n" in after
    assert "  reg at_start_ = 0;\n" in without_numbers(f"wire at_start;\n{verilog}")
    wires = [f"wire \\$auto$rtlil.cc:27:Not${n} ;\n" for n in (7, 9)]
    text = f"module a();\n{wires[0]}{wires[1]}{wires[0]}endmodule\nmodule b();\n{wires[1]}"
    assert re.findall(r"\S+ ;", without_numbers(text)) == [
        *("\\$not_1 ;", "\\$not_2 ;", "\\$not_1 ;"),
        "\\$not_1 ;",
    ]
