# SPDX-License-Identifier: Apache-2.0
"""``moe-hub explore``: areas between measured hubs, which hubs no other is better than, the
command's files and messages."""

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flow.pages.fill import MARK
from flow.pages.values import VALUE
from flow.synth import area_table as measuring
from flow.synth.census import UNITS
from flow.synth.measure import Settings
from flow.synth.ppa import Measurement
from hub_rtl.contract.config import PRESETS, preset
from moe_hub.command.cli import app
from sim.evaluate import explore
from sim.evaluate.explore import TABLES, Sweep, dominates, hubs, point, points, preset_hub, report
from sim.evaluate.hub_area import POOLS, Area, AreaTable, Built, NotMeasured, area_table
from sim.evaluate.machine.hardware import machine
from sim.evaluate.machine.network_settings import NetworkSettings, hub_preset
from sim.evaluate.runner import Result

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "explore.md"
SMALL = Sweep(model="qwen2-moe-2.7b", tokens=16)
TABLE = area_table()


def results(sweep, of):
    """Of all hubs of a sweep: ``of(Built)`` microseconds."""
    made = {}
    for built in hubs(sweep)[0]:
        layer = point(sweep, built)
        made[layer] = Result(layer, of(built), 1.0, 2.0, 100, 80, 0.5, 1.0, ())
    return made


# -- areas -----------------------------------------------------------------------------------------


def test_a_measured_hub_is_the_sum_of_its_units():
    for hub, units in TABLE.hubs.items():
        total = sum(units.values(), Area())
        made = TABLE.area(hub)
        assert made.kge == pytest.approx(total.kge) and made.bits == pytest.approx(total.bits)
        assert made.mm2 == pytest.approx(total.mm2)


def test_a_measured_size_is_taken_as_it_is():
    for name, kinds in TABLE.pools.items():
        for hub in TABLE.hubs:
            sizes = kinds[TABLE.kind_of(name, hub)]
            assert getattr(hub, POOLS[name]) in sizes
            for size, one in sizes.items():
                made = replace(hub, **{POOLS[name]: size})
                count = made.instances(UNITS[name].per)
                assert TABLE.units(made)[name].kge == pytest.approx(one.kge * count)


def test_between_measured_values_areas_are_between_them():
    for hub in TABLE.hubs:
        sizes = sorted(TABLE.pools["receive_pool"][hub.kind])
        for low, high in pairwise(sizes):
            ends = [TABLE.area(replace(hub, pool_places=size)) for size in (low, high)]
            middle = TABLE.area(replace(hub, pool_places=(low + high) // 2))
            assert min(each.kge for each in ends) <= middle.kge <= max(each.kge for each in ends)
            assert ends[0].bits < middle.bits < ends[1].bits


def test_a_larger_pool_is_never_smaller():
    for kinds in TABLE.pools.values():
        for sizes in kinds.values():
            known = [area for _, area in sorted(sizes.items())]
            for less, more in pairwise(known):
                assert less.bits < more.bits and less.mm2 < more.mm2
                assert less.kge < more.kge


def test_nothing_is_told_beyond_what_was_measured():
    hub = next(iter(TABLE.hubs))
    for change, text in (
        ({"pool_places": 2047}, "pool_places = 2047: measured is 288 .. 1152"),
        ({"pool_depth": 16}, "pool_depth = 16: measured is 64 .. 128"),
        ({"lanes": 30}, "slices and loopback slices = 31: measured is 4 .. 8"),
        ({"slice_bytes": 16}, "slice_links x slice_bytes = 3 x 16: must be one of 3 x 64"),
    ):
        with pytest.raises(NotMeasured, match=text):
            TABLE.area(replace(hub, **change))


def test_slices_between_two_measured_hubs_are_on_their_line():
    """Of a made-up table: a lane is 10, a loopback slice 3, what is there once 20 and 5 a slice."""

    def units(lanes, loops):
        counts = {"link": lanes, "loop_port": loops, "scoreboard": 1}
        counts |= {"packet_manager": lanes + loops, "receive_pool": lanes}
        kge = {"link": 10.0, "loop_port": 3.0, "scoreboard": 20.0 + 5 * (lanes + loops)}
        return {
            name: {"count": count, "kge": kge.get(name, 1.0), "bits": 100, "small_bits": 0}
            for name, count in counts.items()
        }

    made = [measuring.variant(3, 64, lanes, loops) for lanes, loops in ((2, 1), (6, 2))]
    data = {"commit": "", "key": "", "tool": "", "pools": []}
    data["hubs"] = [
        {"config": cfg.as_dict(), "units": units(cfg.lanes, cfg.loop_lanes)} for cfg in made
    ]
    hub = Built(**{name: getattr(made[0], name) for name in Built.__dataclass_fields__})
    area = AreaTable(data).area(replace(hub, lanes=4, loop_lanes=2))
    assert area.kge == pytest.approx(4 * 10 + 2 * 3 + (20 + 5 * 6) + 6 + 4)


def test_square_millimetres_are_gates_and_bits():
    assert Area(1000.0).mm2 == pytest.approx(0.0563)
    assert Area(bits=1e6).mm2 == pytest.approx(0.0672)
    assert Area(small_bits=1000).mm2 == pytest.approx(Area(6.0).mm2)
    assert (Area(1.0, 2.0, 3.0) + Area(1.0) * 2).kge == 3.0


@pytest.fixture
def flows(monkeypatch):
    """Flows that answer at once, another figure for each design; the list of what they were
    asked."""
    asked = []

    def answer(settings, flow, rtlil, folder):
        folder.mkdir(parents=True, exist_ok=True)
        asked.append(folder.parent.name.partition("-")[0])
        memories = [{"depth": 100, "width": 11}, {"depth": 8, "width": 8}]
        return {"kge": len(rtlil) / 1000, "memories": memories}

    monkeypatch.setattr(Settings, "run", answer)
    monkeypatch.setattr(measuring, "reference", lambda: preset("tiny", victim_sets=1))
    return asked


def test_a_table_agrees_with_the_units_of_make_ppa(flows, tmp_path):
    """Both count the same designs: after one nothing is left for the other to run."""
    kind = (1, 32, 2, 1)
    made = measuring.measure_table(tmp_path, 1, lambda _: None, [kind], pools=False)
    before = list(flows)
    assert set(before) == {"rest", *UNITS}
    same = Measurement(tmp_path, hub=measuring.variant(*kind))
    same.run("units", 1, lambda _: None)
    assert flows == before
    found, counts = same.census(same.hub_cfg)
    table = AreaTable(made | {"commit": "", "key": ""})
    (hub,) = table.hubs
    area = table.area(hub)
    assert area.kge == pytest.approx(sum(found[name]["kge"] * counts[name] for name in found))
    assert area.bits == 1100 * sum(counts.values()) and area.small_bits == 64 * sum(counts.values())


# -- hubs ------------------------------------------------------------------------------------------


def test_the_presets_hub_is_the_models():
    """What is built as the preset is has the layer of a hub that nobody changed."""
    for name in ("h800", "h800_400"):
        sweep = replace(SMALL, machine=name)
        own = preset_hub(sweep)
        box = machine(name, 8)
        same = NetworkSettings.of(box, built=own.options)
        assert same == NetworkSettings.of(box)
        assert own in hubs(sweep)[0]
        wanted = hub_preset(8) | {"lanes": own.lanes, "loop_lanes": own.loop_lanes}
        assert dict(own.options).items() <= wanted.items()
    assert own.lanes * own.slice_links == PRESETS["nvl8"].links  # 16 links take all six slices


def test_every_hub_carries_the_links():
    found, _ = hubs(SMALL)
    assert {built.lanes for built in found} == {3, 4, 6}
    for built in found:
        assert built.lanes * built.slice_links >= 8
    assert {point.network for point in points(SMALL)} == {
        (("built", built.options),) for built in found
    }


def test_no_hub_of_the_front_is_dominated():
    done = report(SMALL, results(SMALL, lambda built: 1e5 / built.pool_places + built.pool_depth))
    front = [row for row in done.rows if row["pareto"]]
    assert front and not any(dominates(other, row) for row in front for other in done.rows)
    for row in done.rows:
        if not row["pareto"]:
            assert any(dominates(other, row) for other in front)
    assert [row["us"] for row in front] == sorted((row["us"] for row in front), reverse=True)
    assert [row["mm2"] for row in done.rows] == sorted(row["mm2"] for row in done.rows)
    assert [row["hub"] for row in done.summary].count("preset") == 1


def test_what_is_better_than_the_preset_is_named():
    alike = report(SMALL, results(SMALL, lambda built: 100.0))
    smallest = alike.rows[0]
    assert [row["pareto"] for row in alike.rows].count(1) == 1 and smallest["pareto"]
    assert "; as fast and as small, or better: " in alike.notes[0]
    assert f"pool of {smallest['pool']}, {smallest['places']} places" in alike.notes[1]
    own = preset_hub(SMALL)
    best = report(SMALL, results(SMALL, lambda built: 1.0 if built == own else 9.0))
    assert "no hub of the sweep is as fast and as small" in best.notes[0]


def test_equal_rows_do_not_dominate_each_other():
    one, other = {"us": 1.0, "mm2": 2.0}, {"us": 1.0, "mm2": 1.0}
    assert dominates(other, one) and not dominates(one, other) and not dominates(one, dict(one))


def test_what_was_not_measured_is_left_out_and_said(monkeypatch):
    sweep = replace(SMALL, places=(192, 600))
    found, left = hubs(sweep)
    assert all(built.pool_places < 600 * built.slice_links for built in found)
    assert any("pool_places = 1800: measured is 288 .. 1152" in each for each in left)
    notes = report(sweep, results(sweep, lambda _: 1.0)).notes
    assert any(note == "left out: pool_places = 1800: measured is 288 .. 1152" for note in notes)
    monkeypatch.setattr(explore, "source_key", lambda: "another")
    notes = report(sweep, results(sweep, lambda _: 1.0)).notes
    assert any("has changed since its gates were counted" in note for note in notes)


# -- the command -----------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(app, ["explore", *map(str, arguments)])


def test_the_command_writes_its_files_twice_the_same(tmp_path):
    order = ("--model", "qwen2-moe-2.7b", "--tokens", 4, "--slices", 3, "--pool", 128)
    for folder in ("one", "two"):
        done = call(*order, "--places", 96, "--jobs", 1, "-o", tmp_path / folder)
        assert done.exit_code == 0, done.output
    for name in ("explore.csv", "explore.png"):
        one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
        assert one == two
    assert "preset: " in done.stdout and "2 of 2" not in done.stdout
    with open(tmp_path / "one" / "explore.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["places"] for row in rows] == ["288", "576"]
    assert [row["hub"] for row in rows] == ["", "preset"]
    # Places move to whom needs them: half of them may do, and are no gain.
    assert float(rows[0]["us"]) > 0.99 * float(rows[1]["us"])


def test_a_page_gets_table_numbers_and_picture(tmp_path):
    """The table's rows are the file's; the text beside them stays."""
    page, images = tmp_path / "results" / "page.md", tmp_path / "images"
    page.parent.mkdir(), images.mkdir()
    number = "<!-- = explore; us; hub=preset; as .1f -->"
    page.write_text(f"before\n<!-- table: explore -->\n<!-- end -->\n{number}?<!-- . --> after\n")
    order = ("--model", "qwen2-moe-2.7b", "--tokens", 4, "--slices", 3, "--pool", 128)
    done = call(*order, "--places", 96, "--jobs", 1, "-o", tmp_path / "out", "--page", page)
    assert done.exit_code == 0, done.output
    with open(tmp_path / "out" / "explore.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    lines, own = page.read_text().splitlines(), next(row for row in rows if row["hub"])
    table = [line.split(" | ") for line in lines if line.startswith("| ")][2:]
    assert [cells[2] for cells in table] == ["288", "576"]
    assert lines[0] == "before" and lines[-1].endswith(" after")
    assert f"{number}{float(own['us']):.1f}<!-- . -->" in lines[-1]
    assert (images / "explore.png").read_bytes() == (tmp_path / "out" / "explore.png").read_bytes()


def test_the_page_has_what_the_code_writes():
    """The page's table has rows, and its numbers are of columns that there are."""
    text = PAGE.read_text()
    (name, body), *others = MARK.findall(text)
    assert name in TABLES and not others
    assert len([line for line in body.splitlines() if line.startswith("| ")]) > 4
    assert len(VALUE.findall(text)) == 4


@pytest.mark.parametrize(
    "order, text",
    [
        (["--page", "no.md"], "no.md"),
        (["--model", "gpt-9"], "model = 'gpt-9': must be one of "),
        (["--machine", "z80"], "machine = 'z80': must be one of "),
        (["--ranks", "16"], "ranks = 16: must be between 2 and 8"),
        (["--tokens", "0"], "tokens = 0: must be between 1 and 1048576"),
        (["--places", "900"], "pool_places = 2700: must be between "),
        (["--pool", "5"], "pool_depth = 5: must be a power of two"),
        (["--pool", "8"], "pool_depth = 8: must exceed ranks = 8"),
        (["--slices", "0"], "slices = 0: must be between 1 and 32"),
        (["--slices", "20"], "slice_links = 3: must be at most 1, with lanes = 20"),
    ],
)
def test_a_wrong_order_is_one_line(order, text, tmp_path):
    done = call(*order, "-o", tmp_path / "out")
    assert done.exit_code == 2 and done.stdout == "" and not (tmp_path / "out").exists()
    assert done.stderr.startswith("moe-hub: ") and done.stderr.count("\n") == 1
    assert text in done.stderr
