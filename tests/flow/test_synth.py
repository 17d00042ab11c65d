# SPDX-License-Identifier: Apache-2.0
"""``moe-hub synth``: the flows on a small part, what is kept, and what is said when something is
wrong."""

import json
import os
import re

import pytest
from typer.testing import CliRunner

from flow.synth import ecp5
from flow.synth.cells import NETLIST, map_cells
from flow.synth.ecp5 import place_ecp5
from flow.synth.generic import measure_generic
from flow.synth.liberty import Library, libraries
from flow.synth.measure import FlowError, Settings, measure
from flow.synth.parts import PARTS, part_rtlil
from flow.synth.targets import fpga_targets
from flow.synth.timer import has_timer, slowest_paths
from hub_rtl.contract.config import preset
from moe_hub.command.cli import app

TINY = preset("tiny")
PART = "spill_port_merge"

# The least a mapper needs. A NAND2 has area 2, so kGE is area / 2000.
CELL = """  cell ({name}) {{ area : {area};
    {inputs}
    pin (Y) {{ direction : output; function : "{function}"; {arcs} }} }}
"""
ARC = """timing () {{ related_pin : "{pin}"; timing_sense : negative_unate;
      cell_rise (scalar) {{ values ("0.01"); }} rise_transition (scalar) {{ values ("0.01"); }}
      cell_fall (scalar) {{ values ("0.01"); }} fall_transition (scalar) {{ values ("0.01"); }}
      }}"""
FLOP = """  cell (dff1) { area : 8; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; clock : true; capacitance : 0.001; }
    pin (D) { direction : input; capacitance : 0.001; }
    pin (Q) { direction : output; function : "IQ"; } }
"""

EDGES = ("rise", "fall")
# Where a timer measures delays and slews, percent of the supply.
THRESHOLDS = {
    **{f"{side}_threshold_pct_{edge}": 50 for side in ("input", "output") for edge in EDGES},
    **{f"slew_lower_threshold_pct_{edge}": 20 for edge in EDGES},
    **{f"slew_upper_threshold_pct_{edge}": 80 for edge in EDGES},
}


def _cell(name, area, pins, function):
    inputs = " ".join(f"pin ({pin}) {{ direction : input; capacitance : 0.001; }}" for pin in pins)
    return CELL.format(
        name=name,
        area=area,
        inputs=inputs,
        function=function,
        arcs=" ".join(ARC.format(pin=pin) for pin in pins),
    )


def _library(path, cells):
    path.write_text(
        "library (toy) {\n  delay_model : table_lookup;\n"
        '  time_unit : "1ns"; capacitive_load_unit (1, pf);\n'
        + "".join(f"  {name} : {value};\n" for name, value in THRESHOLDS.items())
        + "".join(cells)
        + "}\n"
    )
    return path


@pytest.fixture
def library(tmp_path):
    cells = [
        _cell("inv1", 1, "A", "!A"),
        _cell("buf1", 1.5, "A", "A"),
        _cell("nand2", 2, "AB", "!(A B)"),
        FLOP,
    ]
    return Library([_library(tmp_path / "toy.lib", cells)], tmp_path / "liberty")


@pytest.fixture(autouse=True)
def no_timer(monkeypatch):
    """The mapper's own figures, whatever is installed."""
    monkeypatch.setattr("shutil.which", lambda name: None)


def test_every_part_is_a_module():
    for name in PARTS:
        if name != "hub":
            assert "module \\top\n" in part_rtlil(name, TINY)


def test_generic_counts(tmp_path):
    """The memory writer keeps two queues in memories; their bits are no gates."""
    found = measure_generic(part_rtlil("memory_writer", TINY), tmp_path)
    assert found.memory_bits == sum(each["depth"] * each["width"] for each in found.memories) > 0
    assert found.registers < found.cells and found.depth > 0
    assert found.kge * 4000 >= 24 * found.registers


def test_ecp5_and_cells(tmp_path, library):
    """One small part through both; what is unchanged is not measured again."""
    settings, told = Settings((1,), library, 1000), []
    found = measure(TINY, [PART], ("ecp5", "cells"), settings, tmp_path, tell=told.append)[PART]
    assert (
        found["ecp5"]["ff"] > 0
        and found["ecp5"]["lut"] > 0
        and found["ecp5"]["runs"] == [found["ecp5"]["mhz"]]
    )
    assert found["ecp5"]["path"]["start"] and found["ecp5"]["path"]["end"]
    assert found["cells"]["kge"] == round(found["cells"]["area"] / 2000, 2)
    assert found["cells"]["timer"] == "ABC"
    assert len(told) == 2
    (kept,) = tmp_path.glob(f"tiny/{PART}-*/ecp5/result.json")
    stamp = kept.stat().st_mtime_ns
    assert (
        measure(TINY, [PART], ("ecp5",), settings, tmp_path, tell=told.append)[PART]["ecp5"]
        == found["ecp5"]
    )
    assert kept.stat().st_mtime_ns == stamp


def test_routed_seeds_are_kept(tmp_path):
    """A second placement of the same netlist asks for the missing seed only."""
    measure(TINY, [PART], ("ecp5",), Settings((1,)), tmp_path, tell=str)
    (folder,) = tmp_path.glob(f"tiny/{PART}-*/ecp5")
    stamps = {name: (folder / name).stat().st_mtime_ns for name in ("top.json", "route_1.json")}
    found = measure(TINY, [PART], ("ecp5",), Settings((1, 2)), tmp_path, tell=str)[PART]["ecp5"]
    assert len(found["runs"]) == 2
    assert {name: (folder / name).stat().st_mtime_ns for name in stamps} == stamps


@pytest.mark.night
def test_large_parts_have_another_placer(tmp_path, monkeypatch):
    """A change of the placer keeps the netlist and routes every seed anew."""
    rtlil = part_rtlil(PART, TINY)
    place_ecp5(rtlil, tmp_path, (1,))
    stamps = {name: (tmp_path / name).stat().st_mtime_ns for name in ("top.json", "route_1.json")}
    assert "HeAP" in (tmp_path / "route_1.log").read_text()
    monkeypatch.setattr(ecp5, "LARGE", 1)
    place_ecp5(rtlil, tmp_path, (1,))
    assert "HeAP" not in (tmp_path / "route_1.log").read_text()
    assert (tmp_path / "top.json").stat().st_mtime_ns == stamps["top.json"]
    assert (tmp_path / "route_1.json").stat().st_mtime_ns > stamps["route_1.json"]


def test_netlist_has_what_timers_read(tmp_path, library):
    """Cells, instances and aliases of single bits; stand-ins of memories are there and do not count
    as area."""
    found = map_cells(part_rtlil("memory_writer", TINY), library, 1000, tmp_path)
    text = (tmp_path / NETLIST).read_text()
    assert not re.search(r"^  assign \{| \? |#\(|^  \\?\$", text, re.M)
    modules = dict(re.findall(r"^module (\w+)\((.*?)^endmodule", text, re.M | re.S))
    assert "MEMORY_0" in modules and re.search(r"^  MEMORY_0 ", modules["top"], re.M)
    cells = re.findall(r"^  (inv1|buf1|nand2|dff1) ", modules["top"], re.M)
    assert found.area == sum(
        {"inv1": 1, "buf1": 1.5, "nand2": 2, "dff1": 8}[cell] for cell in cells
    )


def test_a_library_without_nand(tmp_path):
    poor = _library(tmp_path / "poor.lib", [_cell("inv1", 1, "A", "!A"), FLOP])
    with pytest.raises(ValueError, match="liberty: no two-input NAND cell found in toy"):
        Library([poor], tmp_path)


def test_files_of_one_library_belong_together(tmp_path):
    """Libraries are told apart by the first word of their names."""
    whole = [
        _cell("inv1", 1, "A", "!A"),
        _cell("buf1", 1.5, "A", "A"),
        _cell("nand2", 2, "AB", "!(A B)"),
        FLOP,
    ]
    paths = [
        _library(tmp_path / "a.lib", whole[:2]),
        _library(tmp_path / "b.lib", whole[2:]),
        _library(tmp_path / "c.lib", whole),
    ]
    paths[2].write_text(paths[2].read_text().replace("library (toy)", "library (other_tt)"))
    found = libraries(paths, tmp_path / "store")
    assert [(each.name, len(each.files)) for each in found] == [("toy", 2), ("other", 1)]
    assert found[0].nand_area == 2 and found[0].register_area == 8
    assert [path.name for path in found[0].unpack()] == ["a.lib", "b.lib"]


def test_a_tool_that_fails_is_named(tmp_path, library, monkeypatch):
    monkeypatch.setattr("flow.synth.cells.ABC", "no_such_command\n")
    with pytest.raises(FlowError, match="spill_port_merge, cells: yosys: "):
        measure(TINY, [PART], ("cells",), Settings((1,), library), tmp_path, tell=str)


def test_each_clock_has_its_path(tmp_path, monkeypatch):
    """As OpenSTA reports them; a clock without a path between its registers has none."""

    def report(start, end, arrival):
        return (
            f"Startpoint: {start}$_DFF_P_ (rising edge)\nEndpoint: {end}$_DFF_P_ (rising edge)\n"
            f"   0.1900    0.1900 ^ {start}/Q (x)\n   0.0700    {arrival} v _1_/Y (y)\n"
            f"             {arrival}   data arrival time\n"
            "  -0.1200 99999.8750   library setup time\n"
        )

    said = f"clock clk\n{report('a', 'b', 0.5)}clock link_clk\n{report('c', 'd', 0.25)}"
    program = tmp_path / "sta"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "a.lib").write_text('time_unit : "1ns";')
    paths = slowest_paths(["a.lib"], ["top.v"], tmp_path)
    assert {clock: (path.ps, path.start, path.end) for clock, path in paths.items()} == {
        "clk": (620.0, "a", "b"),
        "link_clk": (370.0, "c", "d"),
    }
    said = "clock clk\nNo paths found.\n" + said[said.index("clock link_clk") :]
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
    assert list(slowest_paths(["a.lib"], ["top.v"], tmp_path)) == ["link_clk"]
    program.write_text("#!/bin/sh\necho clock clk\n")
    with pytest.raises(ValueError, match="no register-to-register path"):
        slowest_paths(["a.lib"], ["top.v"], tmp_path)


TIMED_FLOP = """  cell (dff1) { area : 8; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; clock : true; capacitance : 0.001; }
    pin (D) { direction : input; capacitance : 0.001;
      timing () { related_pin : "C"; timing_type : setup_rising;
        rise_constraint (scalar) { values ("0.1"); } fall_constraint (scalar) { values ("0.1"); }
      } }
    pin (Q) { direction : output; function : "IQ";
      timing () { related_pin : "C"; timing_type : rising_edge; timing_sense : non_unate;
        cell_rise (scalar) { values ("0.3"); } rise_transition (scalar) { values ("0.01"); }
        cell_fall (scalar) { values ("0.3"); } fall_transition (scalar) { values ("0.01"); }
      } } }
"""


@pytest.mark.skipif(not has_timer(), reason="OpenSTA (program sta) is not installed")
def test_clock_without_registers_is_no_error(tmp_path):
    """A unit may have the links' clock as a port and no register of it."""
    _library(tmp_path / "toy.lib", [TIMED_FLOP])
    (tmp_path / "top.v").write_text(
        "module top (clk, link_clk, d, q);\n  input clk, link_clk, d;\n  output q;\n  wire n;\n"
        "  dff1 a (.C(clk), .D(d), .Q(n));\n  dff1 b (.C(clk), .D(n), .Q(q));\nendmodule\n"
    )
    paths = slowest_paths(["toy.lib"], ["top.v"], tmp_path)
    assert {clock: (path.ps, path.start, path.end) for clock, path in paths.items()} == {
        "clk": (400.0, "a", "b")
    }


def test_fpga_targets():
    """Payload and size of the hub, LUTs beside the peer's where it is judged by; fewer than three
    seeds judge no clock that is near the target."""

    def hub(mhz, slice_bytes, runs=3, lut=30000):
        figures = {"hub": {"ecp5": {"mhz": mhz, "lut": lut, "runs": [mhz] * runs}}}
        return [goal.met for goal in fpga_targets(figures, slice_bytes)]

    assert hub(100.0, 64) == [True, True] and hub(99.9, 64)[0] is False
    assert hub(150.0, 32)[0] is False and hub(100.0, 64, runs=1)[0] is None
    assert hub(91.0, 64, runs=1)[0] is None and hub(89.0, 64, runs=1)[0] is False
    assert hub(111.0, 64, runs=2)[0] is True and hub(150.0, 64, runs=2)[0] is True
    assert hub(100.0, 64, lut=65001)[1] is False
    figures = {
        "decoder": {"ecp5": {"mhz": 150.0, "lut": 1315, "runs": [1, 2, 3]}},
        "scoreboard": {"ecp5": {"mhz": 150.0, "lut": 9999, "runs": [1, 2, 3]}},
        "memory_writer": {},
        "hub": {},
    }
    assert [goal.met for goal in fpga_targets(figures, 64)] == [False, None, None, None]


def test_command(tmp_path):
    done = CliRunner().invoke(
        app, ["synth", PART, "-p", "tiny", "--flow", "generic", "-o", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "tiny" / "synth.json").read_text())
    assert (
        written["configuration"]["name"] == "tiny" and written["parts"][PART]["generic"]["kge"] > 0
    )
    assert f"`{PART}`" in (tmp_path / "tiny" / "synth.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "part = 'nothing': must be one of"),
        (["--flow", "x"], "flow = 'x': must be one of generic, ecp5, cells"),
        (["--flow", "cells"], "--flow cells: needs --liberty FILE"),
        (["--set", "lanes=0"], "lanes = 0: must be between 1 and 32"),
    ],
)
def test_wrong_words(words, said, capfd):
    done = CliRunner().invoke(app, ["synth", *words])
    assert done.exit_code == 2
    assert said in done.output + capfd.readouterr().err
