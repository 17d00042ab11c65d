# SPDX-License-Identifier: Apache-2.0
"""The commands ``moe-hub run``, ``bench`` and ``lanes``: orders, messages, exit codes, files; on
the smallest layer."""

import json

import pytest
from typer.testing import CliRunner

from moe_hub.cli import app
from sim.system.bench_speed import Line, speed_table
from sim.system.layer import plan_layer
from sim.workload.models import model
from sim.workload.traces import generate, write_trace

#: The hubs of the system tests, so that the harness is built once.
SMALL = [
    "run",
    "--model",
    "tiny",
    "--preset",
    "small",
    "--ranks",
    "4",
    "--lanes",
    "2",
    "--tokens",
    "4",
    "--tile-rows",
    "4",
    "--max-cycles",
    "60000",
]


@pytest.fixture
def call(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "out")])

    return run


def test_run_writes_report_and_picture(call, tmp_path):
    result = call(*SMALL, "--baseline")
    assert result.exit_code == 0, result.output
    assert "mismatches" in result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for way in ("hub", "baseline"):
        assert report[way]["mismatches"] == 0 and report[way]["differences"] == []
        assert report[way]["rows"] == 32
        assert (
            report[way]["tile_ready"]["first"]
            <= report[way]["all_ready"]["last"]
            <= report[way]["answers"]["last"]
        )
    hub = report["hub"]
    assert hub["rows_placed"] == 32
    assert hub["stores"] == 32 * (9 + 8)
    assert hub["counters"]["rat_new"] == 32
    assert (tmp_path / "out" / "timeline.png").read_bytes()[:4] == b"\x89PNG"


def test_run_takes_a_routing_log(call, tmp_path):
    write_trace(generate(tokens=21, top_k=2, experts=4, seed=3), tmp_path / "log.jsonl")
    result = call(
        *SMALL, "--trace", str(tmp_path / "log.jsonl"), "--tokens", "0", "--numbering", "place"
    )
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["hub"]["tokens"] == 21 and report["hub"]["rows"] == 42


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--model", "gpt-99"], "model = 'gpt-99'"),
        (["--ranks", "1"], "ranks = 1"),
        (["--tile-rows", "3"], "tile_rows = 3"),
        (["--row-bytes", "100"], "dispatch_bytes = 100"),
        (["--packet-bytes", "64"], "packet_bytes = 64"),
        (["--trace", "missing.jsonl"], "missing.jsonl"),
        (["--tokens", "0"], "tokens = 0"),
        (["--tokens", "400"], "groups = 64"),
        (["--preset", "huge"], "preset = 'huge'"),
        (["--numbering", "odd"], "numbering = 'odd'"),
    ],
)
def test_wrong_orders_end_with_one_line(call, arguments, text):
    result = call(*SMALL, *arguments)
    assert result.exit_code == 2
    assert text in result.stderr and result.stderr.count("\n") == 1


def test_watchdog_is_a_failure(call):
    result = call(*SMALL, "--max-cycles", "300")
    assert result.exit_code == 1
    assert "did not end" in result.stderr


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "olmoe-1b-7b", "qwen1.5-moe-a2.7b", "gpt-oss-120b", "mixtral-8x7b"]
)
@pytest.mark.parametrize("lanes", [1, 3])
def test_plans_fit_every_model(name, lanes):
    """Regions, combine buffer and scratch do not overlap, groups neither; every dependency
    threshold fits its field."""
    shape = model(name)
    plan = plan_layer(
        shape, generate(tokens=131, top_k=shape.top_k, experts=shape.experts), ranks=8, lanes=lanes
    )
    last = plan.region(plan.local - 1)
    assert plan.region(0).spill_base[0] >= 4096 and last.spill_base[1] + 8 * 131 <= plan.region_base
    assert (
        last.base[0] + last.capacity * last.stride <= plan.combine_base < plan.scratch < plan.arena
    )
    assert last.group_base + last.tiles <= plan.combine_groups
    for rank in range(8):
        ranges = plan.dep_ranges(rank)
        assert len(ranges) <= plan.cfg.dep_ranges
        assert all(dep.threshold < 1 << 24 and dep.limit <= plan.scratch for dep in ranges)
        assert plan.combine_groups + plan.combine_tiles(rank) <= plan.cfg.groups
    assert sum(plan.tokens(rank) for rank in range(8)) == 131


def test_lines_of_the_bench():
    lines = [Line("a", 99.5, "%", ">=", 99), Line("b", 15, "cycles", "<=", 14), Line("c", 3, "1/s")]
    assert [line.met for line in lines] == [True, False, True]
    assert speed_table(lines).row_count == 3


def test_lanes(tmp_path):
    write_trace(generate(tokens=300, top_k=2, experts=4, seed=3), tmp_path / "log.jsonl")
    result = CliRunner().invoke(
        app, ["lanes", "--trace", str(tmp_path / "log.jsonl"), "--ranks", "2", "--lanes", "3"]
    )
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:4] for line in result.output.splitlines() if "│" in line]
    assert [int(row[0]) for row in rows] == [16, 32, 64, 128]  # 150 tokens per rank
    assert all(0 < float(share) <= 100 for row in rows for share in row[1:])


def test_lanes_without_the_log(tmp_path):
    result = CliRunner().invoke(app, ["lanes", "--trace", str(tmp_path / "none.jsonl")])
    assert (
        result.exit_code == 2
        and "none.jsonl: No such file" in result.stderr
        and result.stderr.count("\n") == 1
    )
