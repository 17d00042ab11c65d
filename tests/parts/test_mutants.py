# SPDX-License-Identifier: Apache-2.0
# amaranth: UnusedElaboratable=no
"""Bugs by name: nobody asks, one is asked for, all are chosen by a signal; and their names."""

import pytest
from amaranth import Const, Module, Signal, signed, unsigned
from amaranth.back import rtlil
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hub_rtl.parts.mutants import MutantError, bug, mutant, mutated, selectable, variant
from hub_rtl.parts.stream import StreamRegister
from sim.bench.runner import ROOT
from sim.quality.mutation.names import catalogue, known

PAIR = data.StructLayout({"a": 2, "b": 2})


class Sum(wiring.Component):
    """``o`` is ``a`` + 1, if nothing is wrong."""

    def __init__(self):
        super().__init__({"a": In(3), "o": Out(4), "pair": Out(PAIR), "extra": Out(1)})

    def elaborate(self, platform):
        m = Module()
        pair = Signal(PAIR)
        chosen = mutant("parts.other_pair", pair, lambda: PAIR.const({"a": 1, "b": 3}))
        m.d.comb += [
            self.o.eq(mutant("parts.adds_two", self.a + 1, self.a + 2)),
            self.pair.a.eq(mutant("parts.number", 2, 3)),
            self.pair.b.eq(chosen.b),
        ]
        if (asked := bug("parts.extra")) is not None:
            with m.If(asked):
                m.d.comb += self.extra.eq(1)
        return m


def simulated(part, settings=()):
    """(o, pair.a, pair.b, extra) at a = 4 with ``settings`` {signal: value}."""
    seen = []

    async def bench(ctx):
        ctx.set(part.a, 4)
        for signal, value in settings:
            ctx.set(signal, value)
        seen.extend((ctx.get(part.o), *(ctx.get(part.pair[n]) for n in "ab"), ctx.get(part.extra)))

    simulator = Simulator(part)
    simulator.add_testbench(bench)
    simulator.run()
    return tuple(seen)


WRONG = {
    "parts.other_pair": (5, 2, 3, 0),
    "parts.adds_two": (6, 2, 0, 0),
    "parts.number": (5, 3, 0, 0),
    "parts.extra": (5, 2, 0, 1),
}


def test_nobody_asks():
    right = Signal(3)
    assert mutant("parts.any", right, 0) is right and bug("parts.any") is None
    assert variant("parts.any", "right", "wrong") == "right"
    assert simulated(Sum()) == (5, 2, 0, 0)


@pytest.mark.parametrize("name", WRONG)
def test_one_is_asked_for(name):
    with mutated(name):
        assert simulated(Sum()) == WRONG[name]


def test_all_in_one_netlist():
    select = Signal(3)
    for name in (None, *WRONG):
        with selectable(select) as numbers:
            part = Sum()
            rtlil.convert(part, ports=[part.a, part.o, select])  # elaborated: the numbers are known
        with selectable(select) as again:
            found = simulated(part, [(select, numbers.get(name, 0))])
        assert found == WRONG.get(name, (5, 2, 0, 0)) and again == numbers
    assert numbers == {name: number for number, name in enumerate(WRONG, 1)}


def test_a_structure_is_wrong_only_alone():
    with mutated("parts.depth"):
        assert variant("parts.depth", 3, 4) == 4
    with selectable(Signal(3)) as numbers:
        assert variant("parts.depth", 3, 4) == 3 and not numbers


def test_wrong_has_the_shape_of_right():
    with mutated("parts.any"):
        for shape in (unsigned(2), unsigned(9), signed(2), signed(9)):
            for wrong in (Const(5), Const(-1), Signal(4), 1):
                assert mutant("parts.any", Signal(shape), wrong).shape() == shape
    with selectable(Signal(1)):
        assert mutant("parts.any", Signal(2), Signal(9)).shape() == unsigned(2)


def test_what_is_not_there_is_one_line():
    with pytest.raises(MutantError, match=r"^parts\.gone: no such mutant in what was elaborated$"):
        with mutated("parts.gone"):
            rtlil.convert(StreamRegister(8))
    with pytest.raises(MutantError, match="ask for one at a time"):
        with mutated("parts.any"), mutated("parts.other"):
            pass
    with pytest.raises(MutantError, match=r"^parts\.second: a select of 1 bits has no number"):
        with selectable(Signal(1)):
            bug("parts.first"), bug("parts.second")
    assert bug("parts.any") is None, "nobody asks any more"


def test_names_of_the_source():
    assert known("parts.register_loses_spare").file == "hub_rtl/parts/stream.py"
    with pytest.raises(MutantError, match=r"^parts\.gone: no such mutant; "):
        known("parts.gone")
    for each in catalogue().values():
        assert each.kind == "bug" or each.right != each.wrong, each


def test_each_has_who_notices_it():
    """A bug that neither a test nor a check of the proofs names has never been seen to matter."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("formal/*/checks.toml")]
    text = "\n".join(path.read_text() for path in files)
    unnamed = [
        each.name
        for each in catalogue().values()
        if each.name not in text and f'"{each.name.partition(".")[2]}"' not in text
    ]
    assert unnamed == []


@pytest.mark.parametrize(
    "text, error",
    [
        ('mutant("parts.a", 1, 0)\nmutant("parts.a", 1, 0)', r"x\.py:2: parts\.a: is at .*:1 alr"),
        ('mutant("link.a", 1, 0)', r"x\.py:1: link\.a: must be parts\.what_is_wrong"),
        ('mutant("parts.A b", 1, 0)', r"must be parts\.what_is_wrong"),
        ("mutant(name, 1, 0)", r"x\.py:1: a mutant's name must be a literal"),
    ],
)
def test_a_bad_name_is_one_line(tmp_path, text, error):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "x.py").write_text(text)
    with pytest.raises(MutantError, match=error) as found:
        catalogue(tmp_path)
    assert "\n" not in str(found.value)
