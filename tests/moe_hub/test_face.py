# SPDX-License-Identifier: Apache-2.0
"""``import moe_hub``: the functions, what they refuse, and their tables, held against the reports
they are made of."""

import csv
import json
import subprocess
import sys
import typing

import pytest

import moe_hub
from hub_rtl.contract.config import ConfigError
from sim.bench.runner import ROOT
from sim.evaluate.runner import Point, run_point
from sim.generated import generated
from sim.system.fabric import cycle_ns

from .test_run_cli import SMALL

#: The order of the command's tests, so that the harness is built once.
ORDER = {
    "model": "tiny",
    "preset": "small",
    "ranks": 4,
    "lanes": 2,
    "tokens": 4,
    "tile_rows": 4,
    "max_cycles": 60000,
    "hop_ns": 10,
}


def test_the_order_is_the_commands():
    told = dict(zip(SMALL[1::2], SMALL[2::2], strict=True))
    named = {name.replace("hop_ns", "latency").replace("_", "-"): v for name, v in ORDER.items()}
    assert {f"--{name}": str(value) for name, value in named.items()} == told


@pytest.fixture(scope="module")
def done():
    return moe_hub.run(**ORDER, baselines=["address"])


def test_tables_of_a_run(done):
    assert done.good and done.ended and done.differences == {"hub": [], "address": []}
    us = cycle_ns(done.config) / 1000
    frame, hub = done.frame(), done.reports["hub"]
    assert list(frame.index) == ["hub", "address"]
    assert frame.layer_us["hub"] == pytest.approx(hub["layer_cycles"] * us)
    assert frame.median_usable_us["hub"] == pytest.approx(hub["usable"]["median"] * us)
    assert frame.layer_over_hub["address"] == pytest.approx(
        done.reports["address"]["layer_cycles"] / hub["layer_cycles"]
    )
    usable = done.usable()
    assert usable[usable.way == "hub"].us.min() == pytest.approx(hub["usable"]["first"] * us)
    tiles = done.tiles()
    assert len(tiles) == hub["tiles"] and tiles.rows.sum() == hub["rows"]
    assert (tiles.first_us < tiles.ready_us).all()


def test_shares_of_the_links(done):
    """Of every rank and bin they make one, and all bins are there."""
    links = done.links()
    shares = links.groupby(["way", "rank", "us"]).share.sum()
    assert shares.between(0.999, 1.001).all()
    bins = sum(told.bins * told.ranks for told in done.histories.values())
    assert len(shares) == bins


def test_a_run_is_written(done, tmp_path):
    paths = {path.name for path in done.write(tmp_path)}
    assert paths == {path.name for path in tmp_path.iterdir()}
    assert json.loads((tmp_path / "report.json").read_text())["hub"]["mismatches"] == 0


def test_a_run_that_does_not_end():
    done = moe_hub.run(**ORDER | {"max_cycles": 500})
    assert not done.good and not done.ended and done.frame().empty and done.tiles().empty


@pytest.mark.parametrize(
    "wrong, line",
    [
        ({"ranks": 1}, "ranks = 1: must be between 2 and 128"),
        ({"hop_ns": -1}, "hop_ns = -1: must be between 0 and 1000000"),
        ({"baselines": ["hope"]}, "baselines = 'hope': must be one of "),
        ({"numbering": "luck"}, "numbering = 'luck': must be one of "),
        ({"order": "luck"}, "order = 'luck': must be one of "),
        ({"model": "none"}, "none"),
        ({"changes": {"handles": 0}}, "handles = 0"),
    ],
)
def test_a_wrong_order_is_one_line(wrong, line):
    with pytest.raises(ValueError, match=line) as error:
        moe_hub.run(**ORDER | wrong)
    assert "\n" not in str(error.value)


def test_generate(tmp_path, monkeypatch):
    """The files of the command, and tables of what they hold."""
    monkeypatch.setattr("moe_hub.verilog.texts_of", lambda cfg, ram, src: generated(cfg, ram))
    hub = moe_hub.generate("tiny", name="left")
    paths = hub.write(tmp_path)
    assert {path.name: path.read_text() for path in paths} == hub.files
    ports = hub.ports()
    for port in ports.itertuples():
        assert f" {port.name}" in hub.files["left.v"]
    memories = hub.memories()
    assert (memories.depth * memories.width).sum() == hub.sidecar["memory_bits"]
    with pytest.raises(ConfigError, match="lanes"):
        moe_hub.generate("tiny", changes={"lanes": 99})
    with pytest.raises(ValueError, match="name = Left"):
        moe_hub.generate("tiny", name="Left")


def test_predict():
    """As the point that it is; tokens are per rank."""
    order = {"model": "tiny", "ranks": 4, "fabric": {"link_gbps": 100.0}}
    asked = moe_hub.predict(tokens=8, systems=["megatron"], **order)
    frame = asked.frame()
    assert list(frame.index) == ["megatron", "moe_hub"]
    point = Point("megatron", "tiny", 32, ranks=4, fabric=(("link_gbps", 100.0),))
    assert frame.layer_us["megatron"] == run_point(point).us
    assert (
        frame.speedup_of_hub["megatron"] == frame.layer_us["megatron"] / frame.layer_us["moe_hub"]
    )
    assert (asked.phases().sum(axis=1) > 0).all()


@pytest.mark.parametrize(
    "wrong, line",
    [
        ({"systems": ["none"]}, "system = 'none'"),
        ({"machine": "none"}, "machine = 'none'"),
        ({"tokens": 0}, "tokens = 0: must be at least 1"),
        ({"fabric": {"none": 1.0}}, "none"),
    ],
)
def test_a_wrong_prediction_is_one_line(wrong, line):
    with pytest.raises(ValueError, match=line):
        moe_hub.predict("tiny", **{"ranks": 4, "tokens": 8} | wrong)


def test_evaluate(tmp_path):
    """Its tables are the CSV files that it writes."""
    done = moe_hub.evaluate("gemm")
    assert len(done.frame("gemm")) == len(done.reports["gemm"].rows) > 0
    paths = done.write(tmp_path)
    rows = (tmp_path / "gemm.csv").read_text().splitlines()
    assert tmp_path / "gemm.csv" in paths and len(rows) == len(done.frame("gemm")) + 1
    assert next(csv.reader(rows)) == list(done.frame("gemm").columns)
    with pytest.raises(ValueError, match="experiment = 'none'"):
        moe_hub.evaluate("none")


def test_everything_has_types_and_words():
    """Every public function tells the type of each parameter and of what it returns."""
    assert (ROOT / "moe_hub" / "py.typed").exists()
    for name in moe_hub.__all__:
        thing = getattr(moe_hub, name)
        assert thing.__doc__, name
        if not isinstance(thing, type):
            hints = thing.__annotations__
            code = thing.__code__
            count = code.co_argcount + code.co_kwonlyargcount
            assert set(code.co_varnames[:count]) <= set(hints) and "return" in hints, name
    with pytest.raises(AttributeError, match="has no attribute 'dance'"):
        _ = moe_hub.dance
    assert set(moe_hub.__all__) <= set(dir(moe_hub)) and typing.TYPE_CHECKING is False


def test_the_import_reads_no_library():
    script = "import sys, moe_hub; print(*sys.modules)"
    read = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "moe_hub" in read
    assert not {"numpy", "pandas", "amaranth", "sim", "flow", "matplotlib"} & set(read)
