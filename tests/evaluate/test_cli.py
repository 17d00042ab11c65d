# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub evaluate``: files, determinism, processes, tables, messages and exit codes; on
small grids."""

import csv
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from flow.pages.rows import csv_text
from moe_hub.command.cli import app
from sim.evaluate import assumptions, sweeps
from sim.evaluate.experiments import EXPERIMENTS, STANDARD
from sim.evaluate.kept import Kept
from sim.evaluate.page.charts import Panel, Plot, draw
from sim.evaluate.page.tables import shown
from sim.evaluate.runner import Point, run_point, run_points
from sim.evaluate.schemes import SCHEMES
from sim.evaluate.study import Options
from sim.evaluate.systems import all_constants
from sim.workload.traces import generate, write_trace

SMALL = [
    "--model",
    "qwen2-moe-2.7b",
    "--tokens",
    "256",
    "--system",
    "megatron",
    "--jobs",
    "1",
    "--fresh",
]


@pytest.fixture
def call(tmp_path):
    def run(*arguments, folder="out"):
        return CliRunner().invoke(app, ["evaluate", *arguments, "--output", str(tmp_path / folder)])

    return run


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_an_experiment_writes_its_files_twice_the_same(call, tmp_path):
    for folder in ("one", "two"):
        result = call("layer", "end-to-end", *SMALL, folder=folder)
        assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    ends = (".csv", "-summary.csv", ".png")
    assert names == sorted(f"{name}{end}" for name in ("layer", "end-to-end") for end in ends)
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), (
            name
        )
    layers = rows(tmp_path / "one" / "layer.csv")
    assert [(row["machine"], row["system"]) for row in layers] == [
        (machine, system)
        for machine in [*["h800"] * 4, "h800_400"]
        for system in ("megatron", "moe_hub")
    ]
    assert [row["ranks"] for row in layers] == [r for r in ("2", "4", "8", "16", "8") for _ in "12"]
    assert float(layers[0]["us"]) / float(layers[1]["us"]) == pytest.approx(
        float(layers[0]["speedup_of_hub"]), rel=1e-4
    )
    assert json.loads(layers[0]["breakdown"])["gemm1"] > 0
    summary = rows(tmp_path / "one" / "layer-summary.csv")
    assert summary[0]["hub over"] == "megatron" and summary[0]["points"] == "4"
    assert summary[0]["paper"] == ""  # one model and one length are not what the paper averages


@pytest.mark.parametrize(
    "name",
    [
        "tokens",
        "skew",
        "links",
        "gpus",
        "ablation",
        "shapes",
        "sensitivity",
        "pangu",
        "gemm",
        "alltoall",
    ],
)
def test_the_other_experiments(call, tmp_path, name, monkeypatch):
    monkeypatch.setattr(
        assumptions,
        "ASSUMPTIONS",
        {name: assumptions.ASSUMPTIONS[name] for name in ("hop_ns", "eager_op_us")},
    )
    monkeypatch.setattr(sweeps, "PANGU_RANKS", (8,))
    monkeypatch.setattr(sweeps, "SKEWS", (0.0, 0.05))
    result = call(name, *SMALL)
    assert result.exit_code == 0, result.output
    assert rows(tmp_path / "out" / f"{name}.csv") and rows(tmp_path / "out" / f"{name}-summary.csv")
    assert (tmp_path / "out" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_published_figures_of_a_system(call, tmp_path):
    result = call("published", "--system", "deepep_v2")
    assert result.exit_code == 0, result.output
    figures = rows(tmp_path / "out" / "published.csv")
    assert {row["role"] for row in figures} == {"fit", "test"} and all(
        row["source"] for row in figures
    )
    assert all(
        abs(float(row["ours"]) / float(row["published"]) - 1) < 0.15
        for row in figures
        if row["met"] == "yes"
    )


def test_routing_logs(call, tmp_path):
    write_trace(generate(tokens=120, top_k=4, experts=60, seed=3), tmp_path / "log.jsonl")
    result = call(
        "traces", "--trace", str(tmp_path / "log.jsonl"), "--system", "megatron", "--jobs", "1"
    )
    assert result.exit_code == 0, result.output
    summary = rows(tmp_path / "out" / "traces-summary.csv")
    assert summary[0]["model"] == "qwen1.5-moe-a2.7b" and summary[0]["tokens"] == "120"
    assert rows(tmp_path / "out" / "traces.csv")[0]["trace"] == "log.jsonl"


def test_pangu_points_cover_the_machine():
    points = EXPERIMENTS["pangu"].points(Options())
    assert {point.ranks for point in points} == {8, 16, 64} and {
        point.model for point in points
    } == {"pangu-ultra-moe-718b"}


def test_the_standard_set_is_everything_but_the_logs():
    assert set(EXPERIMENTS) - set(STANDARD) == {"traces"}
    for name in STANDARD:
        assert all(isinstance(point, Point) for point in EXPERIMENTS[name].points(Options()))


def test_a_point_has_the_numbers_it_is_given(call, tmp_path):
    """Every knob reaches the layer; what an experiment varies itself it goes on to vary."""
    changes = ["gpu.sms=66", "fabric.hop_ns=500", "host.eager_op_us=3.5"]
    sets = [word for change in changes for word in ("--set", change)]
    result = call("layer", "links", *SMALL, "--ranks", "4", "--skew", "0.01", *sets)
    assert result.exit_code == 0, result.output
    layers = rows(tmp_path / "out" / "layer.csv")
    assert {row["ranks"] for row in layers} == {"4"} and {row["skew"] for row in layers} == {"0.01"}
    assert {row["gpu"] for row in layers} == {'{"sms": 66}'}
    assert {row["fabric"] for row in layers} == {'{"hop_ns": 500}'}
    assert {row["constants"] for row in layers} == {"host.eager_op_us=3.5"}
    own = {"gpu": (("sms", 66),), "fabric": (("hop_ns", 500),), "ranks": 4, "skew": 0.01}
    point = Point(
        "megatron", "qwen2-moe-2.7b", 256, constants=(("host", "eager_op_us", 3.5),), **own
    )
    assert float(layers[0]["us"]) == pytest.approx(run_point(point).us, rel=1e-4)
    assert [json.loads(row["fabric"]) for row in rows(tmp_path / "out" / "links.csv")[::2]] == [
        {"hop_ns": 500, "link_gbps": gbps} for gbps in sweeps.LINKS
    ]


def test_fresh_layers_are_kept_so_that_an_interrupted_run_goes_on(tmp_path):
    point = Point("ideal", "qwen2-moe-2.7b", 64, ranks=4)
    run_points([point], jobs=1, kept=Kept(tmp_path, fresh=True))
    before = next(tmp_path.rglob("*.json")).stat().st_mtime_ns
    assert Kept(tmp_path, fresh=True).get(point) is None
    run_points([point], jobs=1, kept=Kept(tmp_path))
    assert next(tmp_path.rglob("*.json")).stat().st_mtime_ns == before
    run_points([point], jobs=1, kept=Kept(tmp_path, fresh=True))
    assert next(tmp_path.rglob("*.json")).stat().st_mtime_ns > before


def test_processes_give_the_same_results():
    points = [Point("moe_hub", "qwen2-moe-2.7b", tokens, ranks=4) for tokens in (64, 128, 64)]
    assert run_points(points, jobs=2) == {point: run_point(point) for point in points}


def test_a_layer_that_reads_none_of_the_constants_is_not_simulated_again(monkeypatch):
    plain = Point("megatron", "qwen2-moe-2.7b", 64, ranks=4)
    same = replace(plain, constants=(("comet", "combine_ctas", 7),))
    other = replace(plain, constants=(("comet", "combine_ctas", 7), ("host", "eager_op_us", 50.0)))
    simulated = []

    def timed(point):
        simulated.append(point)
        return run_point(point), 1.0

    monkeypatch.setattr("sim.evaluate.runner._timed", timed)
    found = run_points([same, other, plain], jobs=1)
    assert simulated == [plain, other]
    assert found == {point: run_point(point) for point in (same, other, plain)}
    assert found[other].us > found[plain].us
    run_points([same], jobs=1)
    assert simulated[2:] == [same]


@pytest.mark.parametrize("system", sorted(SCHEMES))
def test_constants_that_a_layer_does_not_read_change_nothing_in_it(system):
    point = Point(system, "qwen2-moe-2.7b", 256, machine="gh200_nvl32", ranks=4)
    layer = run_point(point)
    others = [each for each in all_constants() if each[:2] not in layer.read]
    assert layer.read and others
    twice = replace(point, constants=tuple((*name, 2 * value) for *name, value in others))
    assert run_point(twice) == replace(layer, point=twice)


@pytest.fixture
def nobody_answers(monkeypatch):
    """Dask as it behaves when nobody listens at the address, which takes it ten seconds; it need
    not be installed."""

    def client(address, timeout):
        raise OSError(f"Timed out trying to connect to {address} after {timeout}")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=client))


def test_a_scheduler_has_to_answer_also_when_all_layers_were_kept(tmp_path, nobody_answers):
    kept, points = Kept(tmp_path), [Point("moe_hub", "qwen2-moe-2.7b", 64, ranks=4)]
    found = run_points(points, jobs=1, kept=kept)
    assert run_points(points, jobs=1, kept=kept) == found
    with pytest.raises(ValueError, match="--scheduler tcp://127.0.0.1:1: Timed out"):
        run_points(points, scheduler="tcp://127.0.0.1:1", kept=kept)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["layers"], "experiment = 'layers'"),
        (["layer", "--model", "gpt-99"], "model = 'gpt-99'"),
        (["layer", "--system", "magic"], "system = 'magic'"),
        (["layer", "--machine", "h900"], "machine = 'h900'"),
        (["layer", "--tokens", "0"], "tokens = 0"),
        (["skew", *SMALL, "--tokens", "4"], "tokens = 4"),
        (["layer", "--set", "gpu.sm=3"], "gpu.sm: h800 has no such field"),
        (["layer", "--set", "gpu.bf16_efficiency=2"], "bf16_efficiency = 2: must not exceed 1"),
        (["layer", "--set", "host.nothing=3"], "host: no constant nothing"),
        (["layer", "--set", "nobody.x=3"], "system = 'nobody'"),
        (["layer", "--set", "gpu.sms"], "--set gpu.sms: must be PART.NAME=VALUE, a number"),
        (["layer", "--ranks", "99"], "ranks = 99"),
        (["layer", "--skew", "-1"], "skew = -1.0: must be at least 0"),
        (["traces"], "needs at least one --trace"),
        (["traces", "--trace", "missing.jsonl"], "missing.jsonl"),
        (
            ["layer", *SMALL, "--scheduler", "tcp://127.0.0.1:1"],
            "--scheduler tcp://127.0.0.1:1: Timed out",
        ),
        (
            ["gemm", "--scheduler", "tcp://127.0.0.1:1"],
            "--scheduler tcp://127.0.0.1:1: Timed out",
        ),  # no layer to simulate
        (
            ["fit", "--scheduler", "tcp://127.0.0.1:1"],
            "--scheduler tcp://127.0.0.1:1: fit runs on this machine",
        ),
    ],
)
def test_wrong_orders_give_one_line(call, nobody_answers, arguments, text):
    result = call(*arguments)
    assert result.exit_code == 2
    assert text in result.stderr and result.stderr.count("\n") == 1


def test_tables_show_numbers_shortly():
    values = {
        None: "",
        1234: "1,234",
        12345.6: "12,346",
        123.45: "123.5",
        1.23456: "1.235",
        "x": "x",
    }
    assert [shown(value) for value in values] == list(values.values())
    assert csv_text([{"a": 1 / 3, "b": None}, {"a": 2, "c": "x"}]) == "a,b,c\n0.333333,,\n2,,x\n"


def test_plots_do_not_depend_on_the_day(tmp_path):
    panel = Panel(
        title="t",
        kind="lines",
        x=(1, 2, 4),
        series={"moe_hub": (1, 2, 3), "b": (3, None, 1)},
        xlabel="GPUs",
        ylabel="layer, µs",
        log_x=True,
    )
    for name in ("a.png", "b.png"):
        draw(Plot(title="p", panels=[panel, panel]), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
