# SPDX-License-Identifier: Apache-2.0
"""The same gate in another design, and which check notices that it is wrong."""

import json
import tempfile
from pathlib import Path

import pytest
from amaranth import Module, Mux, Signal
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from formal.kit import notice
from formal.kit.notice import GateNotice
from formal.kit.table import Check
from hub_rtl.parts.stream import StreamRegister
from sim.quality.mutation import run
from sim.quality.mutation.blocks import BLOCKS, Block
from sim.quality.mutation.gates import Design, as_written, designs, gates
from sim.quality.mutation.netlist import mutated
from sim.quality.mutation.origins import Origins

HELD = Check(
    name="toy.held",
    spec="kit.streams:BlockHoldsItems",
    arguments={"block": "hub_rtl.parts.stream:StreamRegister", "shape": 8},
    bug="parts.register_pushed_over_waiting",
)


class Pair(wiring.Component):
    """Two registers, one behind the other: the same part twice."""

    def __init__(self, width, names=("front", "back")):
        self._width, self._names = width, names
        super().__init__({"i": In(width), "push": In(1), "pop": In(1), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        front, back = (StreamRegister(self._width) for _ in range(2))
        m.submodules[self._names[0]], m.submodules[self._names[1]] = front, back
        m.d.comb += [
            front.i.payload.eq(self.i),
            front.i.valid.eq(self.push),
            back.o.ready.eq(self.pop),
            self.o.eq(back.o.payload),
        ]
        wiring.connect(m, back.i, front.o)
        return m


class Sum(wiring.Component):
    """Two gates of one kind in one line."""

    def __init__(self, width):
        super().__init__({"a": In(width), "b": In(width), "c": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq((self.a + self.b)[:2] + self.c)
        m.d.sync += Signal(name="clocked").eq(1)
        return m


class Kept(wiring.Component):
    """A register with an enable, and two outputs by the same gate, written twice."""

    def __init__(self):
        super().__init__({"a": In(4), "b": In(4), "en": In(1), "o": Out(4), "p": Out(4)})

    def elaborate(self, platform):
        m = Module()
        kept = Signal(4)
        with m.If(self.en):
            m.d.sync += kept.eq(self.a + 1)
        m.d.comb += self.o.eq((kept - self.b) ^ self.a)
        m.d.comb += self.p.eq((kept - self.b) & self.a)
        return m


class Counted(wiring.Component):
    """A register whose next value, which may be the one it has, is read by others, too."""

    def __init__(self):
        super().__init__({"a": In(4), "en": In(1), "up": In(1), "o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        was, now = Signal(4), Signal(4)
        m.d.comb += [now.eq(Mux(self.up, self.a, was)), self.o.eq(now)]
        m.d.sync += was.eq(Mux(self.en, now, self.a + 1))
        return m


def gate(parts, flat, mutant):
    """The likeliest one."""
    return next(iter(gates(parts, flat, mutant)), None)


def read(component, folder):
    """Its design as it is written."""
    other = Path(tempfile.mkdtemp(dir=folder))
    (other / "design.il").write_text(rtlil.convert(component, name="other"))
    return as_written(other, "other")


@pytest.fixture
def single(tmp_path):
    """Netlist of a stream register."""
    return mutated(StreamRegister(8), "single", 60, 1, tmp_path)


def test_the_same_gate_in_a_wider_design(single, tmp_path):
    """Every gate that is not Yosys' own is found in a register of more bits, where the same lines
    made it; one that the other has twice is of either, for its file is not a shared part's."""
    parts, flat = designs(single)
    wider = read(StreamRegister(11), tmp_path)
    found = 0
    for mutant in single.mutants:
        if changed := gate(parts, flat, mutant):
            module, name = wider.place(changed)
            cell = wider.cells[module][name]
            assert (cell.kind, cell.sources) == (changed.cell.kind, changed.cell.sources)
            assert mutant.cell.startswith("$auto$") or changed.cell.name == mutant.cell
            assert wider.changes(changed, (module, name))[0].startswith(
                f"mutate -mode {mutant.mode}"
            )
            found += 1
        else:
            assert mutant.cell.startswith(("$auto$", "$proc"))
    assert found > len(single.mutants) / 2


def test_one_of_several_in_a_line(tmp_path):
    netlist = mutated(Sum(4), "sum", 60, 1, tmp_path)
    parts, flat = designs(netlist)
    wider, places = read(Sum(5), tmp_path), set()
    for mutant in netlist.mutants:
        if (changed := gate(parts, flat, mutant)) and changed.alike == 2:
            assert wider.place(changed)[1] == changed.cell.name
            places.add(changed.place)
    assert places == {0, 1}


def test_a_bit_that_is_not_there_has_no_place(single, tmp_path):
    parts, flat = designs(single)
    narrow = read(StreamRegister(2), tmp_path)
    changes = [gate(parts, flat, mutant) for mutant in single.mutants]
    assert [each for each in changes if each and not narrow.place(each)]
    assert all(narrow.place(each) for each in changes if each and each.bit < 1)


def test_a_shared_part_is_the_one_of_its_name(tmp_path):
    """Of two instances the gate is in the one that is called alike; where none is, nowhere."""
    netlist = mutated(Pair(8), "pair", 80, 1, tmp_path)
    parts, flat = designs(netlist)
    changes = [gate(parts, flat, mutant) for mutant in netlist.mutants]
    changes = [each for each in changes if each and each.cell.sources]
    wider, others = read(Pair(9), tmp_path), read(Pair(9, ("one", "other")), tmp_path)
    names = {each.instance[0] for each in changes}
    assert names == {"front", "back"}
    for each in changes:
        place = wider.place(each)
        assert place and place[0].endswith(f".{each.instance[0]}") and not others.place(each)


@pytest.fixture
def kept(tmp_path):
    return mutated(Kept(), "kept", 200, 1, tmp_path)


def test_equal_gates_are_changed_together(kept):
    """Yosys has made one of them: what changes one only is another mutant."""
    origins = Origins(kept)
    parts, flat = designs(kept)
    for mutant in kept.mutants:
        found = gates(parts, flat, mutant)
        if found and found[0].cell.kind == "$sub" and mutant.mode == "inv":
            both, one = found
            assert both.twins and not one.twins
            assert origins.proved(both, mutant) and not origins.proved(one, mutant)
            return
    raise AssertionError("no such mutant")


def test_data_of_a_register_come_in_behind_its_enable(kept):
    origins, (parts, _) = Origins(kept), designs(kept)
    data = [each for each in kept.mutants if each.port == "D"]
    assert any(each.control is not None for each in data)
    for mutant in data:
        (gate,) = origins.gates(mutant)
        (change,) = parts.changes(gate, (gate.module, gate.cell.name))
        assert "procmux" in change and origins.proved(gate, mutant)


def test_what_holds_a_register_reads_it_unchanged(kept):
    """Its output inverted, also by another bit: the enable of the netlist holds as before."""
    origins = Origins(kept)
    outputs = [each for each in kept.mutants if each.port == "Q"]
    assert {each.mode for each in outputs} == {"inv", "cnot0", "cnot1", "const0", "const1"}
    for mutant in outputs:
        (gate,) = origins.gates(mutant)
        assert origins.proved(gate, mutant)


def test_what_reads_a_register_without_enable_reads_it_changed(tmp_path):
    netlist = mutated(Counted(), "counted", 200, 1, tmp_path)
    origins = Origins(netlist)
    outputs = [each for each in netlist.mutants if each.port == "Q"]
    assert "inv" in {each.mode for each in outputs}
    for mutant in outputs:
        (gate,) = origins.gates(mutant)
        assert not gate.held and origins.proved(gate, mutant)


def test_bits_of_connections():
    """Yosys writes constants of 32 bits as numbers."""
    lines = ("module \\toy", "  wire width 3 \\a", "end", "")
    design = Design("\n".join(lines))
    (toy,) = design.cells
    assert design.bits(toy, "{ 2'10 \\a [2:1] }") == [("\\a", 1), ("\\a", 2), ("", 0), ("", 1)]
    assert design.bits(toy, "\\a") == [("\\a", 0), ("\\a", 1), ("\\a", 2)]
    assert [len(design.bits(toy, each)) for each in ("0", "-1", "3'000")] == [32, 32, 3]


def test_branches_are_known_by_what_they_choose(single, tmp_path):
    """Multiplexers that Yosys makes of branches have no line of the source: the signal that gets
    their value tells them from each other, in a wider design, too."""
    wider, origins = read(StreamRegister(11), tmp_path), Origins(single)
    made = [each for each in single.mutants if each.cell.startswith("$procmux")]
    assert made
    for mutant in made:
        *_, alone = origins.gates(mutant)
        assert wider.place(alone)[1] == alone.cell.name and origins.proved(alone, mutant)


def test_another_change_is_not_the_mutant(kept):
    origins, places = Origins(kept), {}
    for mutant in kept.mutants:
        if (found := origins.gates(mutant)) and (mutant.mode, mutant.port) == ("inv", "A"):
            places[found[0].cell.name, found[0].port, found[0].bit] = found[0], mutant
    (gate, mutant), (_, other) = list(places.values())[:2]
    assert origins.proved(gate, mutant) and not origins.proved(gate, other)


def test_a_check_notices_a_wrong_gate(single):
    """What makes a waiting item change is noticed; what only loses a free place is not."""
    ask, said = GateNotice([HELD], write=lambda text: None), {}
    for mutant in single.mutants[:24]:
        said.setdefault(ask(single, mutant), []).append(mutant)
    assert set(said) == {"", "toy.held"}
    modes = {
        name: {each.mode for each in mutants if each.wire == "o__ready[0]"}
        for name, mutants in said.items()
    }
    assert modes == {"": {"const0"}, "toy.held": {"const1"}}


def test_no_check_is_asked_that_does_not_hold(single, monkeypatch):
    monkeypatch.setattr(notice, "holds", lambda *_: False)
    with pytest.raises(RuntimeError, match="toy.held: not proved of the design as it is"):
        GateNotice([HELD])(single, single.mutants[0])


def test_a_campaign_asks_once(tmp_path, monkeypatch):
    """Who survives the bench and is not equivalent is asked; answers stay with the key."""
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setitem(BLOCKS, "toy", Block(lambda cfg: StreamRegister(8), None, "none"))

    def bench(*_, params, **__):
        verdicts = ["survived", "survived", "killed", "survived", "survived"]
        lines = [{"sources": {"Makefile": ""}}]
        lines += [
            {"mutant": max(n - 1, 0), "verdict": each, "seen": []}
            for n, each in enumerate(verdicts)
        ]
        out = tmp_path / "toy" / "out.jsonl"
        out.write_text("\n".join(json.dumps(line) for line in lines))

    class Judge:
        def __init__(self, *_):
            pass

        def decide(self, number):
            return "equivalent" if number == 2 else "open"

    monkeypatch.setattr(run, "run_bench", bench)
    monkeypatch.setattr(run, "Prover", Judge)

    class Ask:
        key, asked = "a", []

        def __call__(self, netlist, mutant):
            self.asked.append(mutant.number)
            return "toy.check"

    ask = Ask()
    for key, asked in (("a", [3]), ("a", [3]), ("b", [3, 3])):
        ask.key = key
        result = run.campaign("toy", count=3, ask=ask, write=lambda text: None)
        assert ask.asked == asked
        assert result["verdicts"][3] == {"verdict": "noticed", "asked": "toy.check"}
        assert result["verdicts"][2] == {"verdict": "equivalent"}
