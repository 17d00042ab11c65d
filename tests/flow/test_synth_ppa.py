# SPDX-License-Identifier: Apache-2.0
"""``make ppa``: the hub taken apart, what is judged and how it is counted, the page; the flows
themselves stand in."""

import re

import pytest

from flow.synth import whole
from flow.synth.census import REST, UNITS, take_census
from flow.synth.designs import DesignStore
from flow.synth.measure import Settings
from flow.synth.memory_models import memory_models
from flow.synth.parts import PARTS
from flow.synth.peers import PEERS
from flow.synth.ppa import Measurement
from flow.synth.processes import ASAP7_BIT_UM2, Process, memory_area
from flow.synth.sweeps import SWEEPS, Sweep, fit_line, slice_and_shared
from flow.synth.targets import area_of_hub, judge
from hub_rtl.contract.config import preset
from moe_hub.command.ppa import report

TINY = preset("tiny", lanes=2, victim_sets=1)
KGE = {
    "decoder": 10,
    "packet_manager": 20,
    "serializer": 3,
    "link": 9,
    "receive_pool": 6,
    "loop_port": 2,
    "row_lookup": 15,
    "memory_writer": 4,
    "ack_combiner": 1,
}


@pytest.fixture(scope="module")
def census():
    return take_census(TINY)


class FakeLibrary:
    name, digest, nand_area, register_area = "asap7toy", "0", 1.0, 10.0


class OneSweep(Sweep):
    """Over the test's own hub, which is one of its points."""

    def configurations(self):
        return [(value, TINY.replace(**{self.field: value})) for value in self.values]


@pytest.fixture(scope="module")
def designs(tmp_path_factory):
    """Designs of all tests here, so that each is elaborated once."""
    return tmp_path_factory.mktemp("designs")


@pytest.fixture
def flows(monkeypatch, designs):
    """Flows that answer at once; the list of what they were asked for."""
    asked = []

    def answer(settings, flow, rtlil, folder):
        folder.mkdir(parents=True, exist_ok=True)
        name = folder.parent.name.partition("-")[0]
        asked.append((name, flow))
        if flow == "ecp5":
            return {
                "lut": 10,
                "ff": 5,
                "bram": 0,
                "dsp": 0,
                "mhz": 160.0,
                "runs": [150.0, 160.0, 170.0],
                "path": {},
            }
        if flow == "cells":
            return {
                "area": 1e3,
                "kge": 1.0,
                "ps": 300.0,
                "timer": "OpenSTA",
                "start": "a",
                "end": "b",
                "gates": 9,
            }
        return {
            "cells": 1,
            "kge": KGE.get(name, 5),
            "registers": 1,
            "memory_bits": 2000,
            "depth": 1,
            "memories": [
                {"name": "m", "depth": 20, "width": 100, "read_ports": 1, "write_ports": 1}
            ],
        }

    monkeypatch.setattr("flow.synth.ppa.DesignStore", lambda folder: DesignStore(designs))
    monkeypatch.setattr("flow.synth.measure.DesignStore", lambda folder: DesignStore(designs))
    monkeypatch.setattr(Settings, "run", answer)
    monkeypatch.setattr(Settings, "key", lambda settings, flow: f"{flow} {settings.seeds}")
    return asked


def _measurement(folder, libraries=(), **changes):
    options = {
        "blocks": preset("tiny"),
        "parts": ("spill_port_merge",),
        "hub": TINY,
        "sweeps": {"lanes": OneSweep("lanes", (1, 2), {}, "lanes")},
    } | changes
    return Measurement(folder, libraries, **options)


def test_every_unit_is_there_as_often_as_the_hub_has_it(census):
    counts = {name: count for name, (count, _) in census.items()}
    assert counts.pop(REST) == 1 and set(counts) == set(UNITS)
    per = {"lane": TINY.lanes, "slice": TINY.slices, "loop": TINY.loop_lanes, "hub": 1}
    assert counts == {name: per[unit.per] for name, unit in UNITS.items()}


def test_units_are_whole_and_the_rest_has_them_as_boxes(census):
    """Every module that a design names is in it, with a body or as a black box."""
    for name, (_, text) in census.items():
        modules = re.findall(r"^module \\(\S+)$", text, re.M)
        kinds = set(re.findall(r"^  cell \\(\S+) \\\S+$", text, re.M))
        assert modules.count("top") == 1 and kinds <= set(modules), name
    boxes = census[REST][1].count("attribute \\blackbox 1")
    inside = {"ack_combiner", "serializer", "receive_pool"}  # scoreboard, slice with links
    assert boxes == len(UNITS.keys() - inside)


def test_designs_are_elaborated_once(tmp_path, monkeypatch):
    store = DesignStore(tmp_path)
    assert not store.has_part("spill_port_merge", TINY)
    first = store.part("spill_port_merge", TINY)
    monkeypatch.setattr("flow.synth.parts.part_rtlil", None)
    assert (
        DesignStore(tmp_path).part("spill_port_merge", TINY) == first
        and "module \\top\n" in first.text()
    )


def test_memories_become_registers_at_their_ports():
    """Two read bits, a word enable that is one net on two bits of the port, a constant that needs
    no pin."""
    ports = {
        "RD_ADDR": [2],
        "RD_CLK": [9],
        "RD_DATA": [3, 4],
        "RD_EN": ["1"],
        "WR_ADDR": [5],
        "WR_CLK": [9],
        "WR_DATA": [6, "0"],
        "WR_EN": [7, 7],
    }
    text, passes = memory_models(
        [{"name": "a.memory", "ports": ports, "parameters": ["SIZE", "WIDTH"]}]
    )
    assert "RD_DATA <= {WR_ADDR[0], RD_ADDR[0]};" in text
    assert "taken <= {WR_EN[0], WR_DATA[0]};" in text and "[1:0] taken" in text
    assert passes == [
        "setparam -unset SIZE -unset WIDTH c:a.memory",
        "chtype -set MEMORY_0 c:a.memory",
    ]


def test_slice_and_shared_add_up_to_the_hub():
    counts = {
        name: {"lane": 2, "slice": 3, "loop": 1, "hub": 1}[unit.per] for name, unit in UNITS.items()
    } | {REST: 1}
    values = {name: KGE.get(name, 5) for name in counts}
    one, shared, total = slice_and_shared(values, counts, TINY)
    assert one == 10 + 20 + 3 + 6 + 9 + 15 + 4 + 1 + 5 + 5
    assert shared == 5 * (1 + sum(unit.per == "hub" for unit in UNITS.values()))
    assert total == 2 * one + (one - 10 - 9 - 6 - 3 + 2) + shared
    counts["serializer"] *= 3  # one per link
    assert slice_and_shared(values, counts, TINY)[:2] == (one + 6, shared)


def test_line():
    line = fit_line([1, 2, 4], [30, 50, 90])
    assert (round(line.start, 6), round(line.slope, 6), round(line.r2, 6)) == (
        10,
        20,
        1,
    ) and line.worst < 1e-9
    assert fit_line([1, 2, 3], [10, 20, 40]).worst > 0.05


def test_small_memories_count_as_flip_flops():
    memories = [{"depth": 32, "width": 32}, {"depth": 31, "width": 33}]
    area = memory_area(memories, Process("x", 200, bit_um2=0.1), FakeLibrary)
    assert area == pytest.approx(1024 * 0.1 + 1023 * 10)
    assert memory_area(memories, Process("x", 200), FakeLibrary) is None
    assert pytest.approx(0.0672, abs=1e-4) == ASAP7_BIT_UM2


def test_other_lanes_are_left_out_of_the_whole():
    """Lane 0 and the first loopback lane stay; names of memories are those of one unit."""
    text = (
        "module top(clk);\n  moehub_packet_manager \\producer.pool0  (\n  "
        "moehub_packet_manager \\producer.pool1  (\n"
        "  moehub_packet_manager \\producer.pool2  (\n  MEMORY_3 \\a.memory  (\n"
    )
    kinds = re.findall(r"^  (\S+) ", whole.unit_text(REST, text, TINY), re.M)
    assert kinds == [
        "moehub_packet_manager",
        "moehub_packet_manager_of_another_lane",
        "moehub_packet_manager",
        "rest_MEMORY_3",
    ]
    assert whole.unit_text("csr", text, TINY).startswith("module moehub_csr(clk);")


@pytest.mark.night
def test_second_call_runs_nothing_and_writes_the_same(tmp_path, flows):
    told, pages = [], []
    for _ in range(2):
        made = _measurement(tmp_path / "build")
        code = report(made, made.steps(), 1, tmp_path / "build", tmp_path / "docs/results/ppa.md")
        told.append(len(flows))
        pages.append((tmp_path / "docs/results/ppa.md").read_text())
    assert code == 1  # no library was given: two targets cannot be judged
    assert told[0] == told[1] > 20 and pages[0] == pages[1]
    assert {flow for _, flow in flows} == {"generic", "ecp5"}
    for picture in re.findall(r"\]\(\.\./images/(\S+)\)", pages[0]):
        assert (tmp_path / "docs/images" / picture).exists()
    assert "times the LUTs of dma_if_desc_mux (461) | 10 LUTs, 0.02 times | met |" in pages[0]
    assert "kGE per GB/s, NAND2 equivalents | 268 kGE, 5.4 per GB/s | MISSED |" in pages[0]


def test_steps_can_be_run_one_by_one(tmp_path, flows):
    made = _measurement(tmp_path)
    made.run("blocks", 1, tell=str)
    assert flows == [("spill_port_merge", "generic")]
    words = {goal.text.split(":")[0]: goal.word for goal in judge(made)}
    assert words["hub"] == words["area grows linearly with slices"] == "not measured"


def test_what_fails_is_reported_and_the_rest_goes_on(tmp_path, flows, monkeypatch):
    answer = Settings.run

    def broken(settings, flow, rtlil, folder):
        if folder.parent.name.startswith("csr-"):
            raise ValueError("no such thing")
        return answer(settings, flow, rtlil, folder)

    monkeypatch.setattr(Settings, "run", broken)
    made = _measurement(tmp_path, sweeps={})
    made.run("units", 1, tell=str)
    assert made.errors == {"units": ["csr, generic: no such thing"]}
    assert made.census(TINY) is None and len(flows) == len(UNITS)  # all but one, and the rest
    assert report(made, ["blocks"], 1, tmp_path, tmp_path / "docs/results/ppa.md") == 1


def test_area_of_the_hub_with_memories(tmp_path, flows):
    """Every unit: logic as mapped, memory by the bit, times the instances."""
    made = _measurement(tmp_path, [FakeLibrary], sweeps={})
    for step in ("units", "blocks"):
        made.run(step, 1, tell=str)
    assert area_of_hub(made, FakeLibrary) is None
    made.whole = lambda library, measure=False: None
    made.run("units-cells", 1, tell=str)
    area = area_of_hub(made, FakeLibrary)
    assert area["decoder"] == (2, 2000.0, pytest.approx(2 * 2000 * ASAP7_BIT_UM2))
    goal = next(goal for goal in judge(made) if goal.text.startswith("what the mechanism adds"))
    instances = sum(
        count for name, (count, _, _) in area.items() if name in UNITS and UNITS[name].mechanism
    )
    assert goal.met and goal.value == f"{instances * (1000 + 2000 * ASAP7_BIT_UM2) / 1e6:.3f} mm²"


def test_a_size_that_cannot_be_varied_is_a_missed_target(tmp_path, flows):
    made = _measurement(tmp_path, sweeps={"no_such": Sweep("no_such", (1, 2), {}, "nothing")})
    assert [goal.met for goal in judge(made) if goal.text == "sweep over nothing"] == [False]


def test_tables_name_what_exists():
    assert {peer.part for peer in PEERS if peer.part} <= set(PARTS)
    for sweep in SWEEPS.values():
        assert len(sweep.configurations()) >= 3
