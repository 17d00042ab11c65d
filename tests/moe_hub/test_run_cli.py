# SPDX-License-Identifier: Apache-2.0
"""The commands ``moe-hub run``, ``bench`` and ``lanes``: orders, messages, exit codes, files; on
the smallest layer."""

import inspect
import json
from typing import get_args

import pytest
from typer.testing import CliRunner

from hub_rtl.contract.config import ConfigError, preset
from moe_hub.command.bench import bench
from moe_hub.command.cli import app
from moe_hub.command.options import LatencyOption
from moe_hub.command.run import run
from sim.system.bench_speed import Line, speed_table
from sim.system.fabric import HOP_NS, HUB_GHZ, one_way
from sim.system.figures import behind
from sim.system.layer import ORDERS, plan_layer, rows_of
from sim.system.ways import BASELINES
from sim.workload.asked import asked_routing
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
    "--latency",
    "10",
]


@pytest.fixture
def call(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "out")])

    return run


def test_run_writes_report_and_picture(call, tmp_path):
    result = call(*SMALL, "--baseline", "address,flags", "--baseline", "rowflag")
    assert result.exit_code == 0, result.output
    assert "mismatches" in result.output
    reports = json.loads((tmp_path / "out" / "report.json").read_text())
    assert tuple(reports) == ("hub", *BASELINES)
    for report in reports.values():
        assert report["mismatches"] == 0 and report["differences"] == []
        assert report["rows"] == 32 and report["latency_cycles"] == 31
        usable = report["usable"]
        assert 0 < usable["first"] <= usable["median"] <= usable["last"] < report["layer_cycles"]
        assert report["answers"]["last"] <= report["layer_cycles"]
        assert 0 < report["efficiency"] == report["bound_cycles"] / report["layer_cycles"] < 1
        assert report["efficiency"] > report["links_busy"]  # the fullest link, and the mean of all
    hub = reports["hub"]
    assert hub["rows_placed"] == 32
    assert hub["stores"] == 32 * (9 + 8)
    assert hub["counters"]["rat_new"] == 32
    assert hub["usable"]["first"] < hub["last_close"] <= hub["all_ready"]["last"]
    assert result.output.count("The hub is") == len(BASELINES)
    assert (tmp_path / "out" / "timeline.png").read_bytes()[:4] == b"\x89PNG"


def test_run_takes_a_routing_log(call, tmp_path):
    write_trace(generate(tokens=21, top_k=2, experts=4, seed=3), tmp_path / "log.jsonl")
    result = call(
        *SMALL, "--trace", str(tmp_path / "log.jsonl"), "--tokens", "0", "--numbering", "turn"
    )
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["hub"]["tokens"] == 21 and report["hub"]["rows"] == 42


def test_run_stores_rows_by_expert(call, tmp_path):
    """Hub and software send the same rows; nothing but their order is another."""
    result = call(*SMALL, "--order", "expert", "--baseline", "address,flags,rowflag")
    assert result.exit_code == 0, result.output
    reports = json.loads((tmp_path / "out" / "report.json").read_text())
    for report in reports.values():
        assert report["mismatches"] == 0 and report["rows"] == 32


def test_orders_send_the_same_rows():
    """By expert: all rows for the first regions of all ranks before those for the second ones, in
    the order of tokens; each row has the same RowID in either order."""
    sent = {}
    for order in ORDERS:
        plan, sent[order] = layer_of(order=order), []
        for rank in range(plan.cfg.ranks):
            token, choice, expert = rows_of(plan, rank)
            rowids = plan.rowids(rank)[token, choice]
            rows = zip(token, choice, expert, rowids, strict=True)
            sent[order].append([tuple(map(int, row)) for row in rows])
    for by_token, by_expert in zip(sent["token"], sent["expert"], strict=True):
        assert by_token == sorted(by_token)
        assert by_expert == sorted(by_token, key=lambda row: row[2] % plan.local) != by_token


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
        (["--order", "odd"], "order = 'odd'"),
        (["--baseline", "address,mpi"], "baseline = 'mpi'"),
        (["--latency", "soon"], "latency = 'soon'"),
        (["--latency", "-1"], "latency = -1.0"),
        (["--hot", "101"], "hot = 101"),
        (["--hot", "100", "--model", "deepseek-v3", "--ranks", "64"], "share = 1.0"),
        (["--set", "pool_places"], "--set pool_places"),
        (["--set", "colour=1"], "colour"),
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


def layer_of(name="deepseek-v3", tokens=128, ranks=8, **more):
    shape = model(name)
    routing = generate(tokens=tokens, top_k=shape.top_k, experts=shape.experts)
    return plan_layer(shape, routing, ranks=ranks, **more)


def test_no_run_time_option_makes_another_hub():
    """Tokens, tiles, seeds, numberings, orders and models are told to the hub by its registers."""
    usual = layer_of().cfg
    for plan in (
        layer_of(tokens=8),
        layer_of(tokens=1000),
        layer_of(tile_rows=1),
        layer_of(tile_rows=64, seed=7, numbering="place", order="expert"),
        layer_of("olmoe-1b-7b", tokens=4471),
        layer_of("mixtral-8x7b"),
    ):
        assert plan.cfg == usual
    assert layer_of(tokens=1000, tile_rows=1).cfg.groups == 32768  # more than the room


@pytest.mark.parametrize(
    "name, tokens, rows",
    [
        ("deepseek-v3", 8, 1),
        ("deepseek-v3", 128, 1),  # half a row of an expert and rank
        ("deepseek-v3", 256, 2),  # 1, but 32 x 256 groups and those of the answers are too many
        ("olmoe-1b-7b", 704, 8),  # 11: 11.3 is where 8 and 16 part
        ("olmoe-1b-7b", 736, 16),  # 11.5
        ("olmoe-1b-7b", 4471, 64),
        ("mixtral-8x7b", 8 * 4096, 128),
    ],
)
def test_tiles_have_the_rows_of_an_expert_and_rank(name, tokens, rows):
    assert layer_of(name, tokens=tokens).tile_rows == rows


def test_a_preset_keeps_its_lanes_and_what_is_set():
    nvl8 = layer_of(tokens=8, base=preset("nvl8"))
    assert (nvl8.cfg.lanes, nvl8.cfg.slice_links, nvl8.cfg.loop_lanes) == (6, 3, 2)
    assert layer_of(tokens=8, base=preset("nvl72")).cfg.packet_bytes == 256
    assert layer_of(tokens=8, base=preset("nvl8"), lanes=3).cfg.lanes == 3
    assert layer_of(changes={"pool_places": 64, "ctl_credits": 15}).cfg.pool_places == 64
    with pytest.raises(ConfigError, match="groups = 64: the layer needs"):
        layer_of("olmoe-1b-7b", base=preset("nvl8", groups=64), tile_rows=1)


def test_latency_is_told_per_hop():
    assert [one_way(ns) for ns in (0, 20.48, HOP_NS, 500)] == [1, 64, 781, 1563]
    help_text = get_args(LatencyOption)[1].help
    assert f"{HUB_GHZ} GHz" in help_text and f"{HOP_NS:.0f} are {one_way(HOP_NS)} " in help_text
    assert "20.48 are 64." in help_text
    for command in (run, bench):
        assert inspect.signature(command).parameters["latency"].default == HOP_NS


def test_where_the_hub_is_not_ahead():
    def report(first, layer):
        return {"usable": {"first": first, "median": 5, "last": 9}, "layer_cycles": layer}

    reports = {"hub": report(2, 20), "flags": report(1, 30), "rowflag": report(3, 21)}
    reports["rowflag"]["usable"] = {"first": 3, "median": 6, "last": 10}
    assert behind(reports) == [
        "The hub is not ahead of flags in: first usable (2 against 1), "
        "median usable (5 against 5), last usable (9 against 9).",
        "The hub is ahead of row-flag in every column.",
    ]


def test_half_of_all_choices_at_one_rank():
    routing = asked_routing(model("deepseek-v3"), None, ranks=8, tokens=4, seed=1, hot=50)
    assert routing.rank_loads(8)[0] == routing.tokens * 4 == 128
    assert all(len(set(row)) == 8 for row in routing.experts.tolist())
    assert len(set(routing.experts[:, 0] < 32)) == 2  # the crowd is not first in every token
    with pytest.raises(ConfigError, match="hot = 50: only of made-up routing"):
        asked_routing(model("tiny"), "log.jsonl", 4, 4, 1, 50)


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


def test_page_of_the_bench(monkeypatch, tmp_path):
    """All lines there are, in the order in which they are measured."""
    name = "moe_hub.command.bench"
    monkeypatch.setattr(f"{name}.measure", lambda **given: [Line("a", 99.5, "%", ">=", 99)])
    monkeypatch.setattr(f"{name}.wide_rates", lambda: [Line("b", 3, "cycles")])
    monkeypatch.setattr(f"{name}.line_rate", lambda n: [Line(f"{n} lanes", n, "%", "<=", 17)])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: speed -->\nold\n<!-- end -->\nbehind\n")
    words = ["--page", str(page), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == 1  # 18 lanes miss their target
    figures = [line.split(" | ")[0] for line in page.read_text().splitlines() if "| " in line]
    lanes = [f"| {n} lanes" for n in (1, 2, 4, 9, 18)]
    assert figures == ["| figure", "| a", "| b", *lanes]
    assert "| a | 99.5 | % | >= 99.0 | yes |\n| b | 3.00 | cycles |  |  |\n" in page.read_text()
    assert "| 18 lanes | 18.0 | % | <= 17.0 | NO |" in page.read_text()


def test_lanes(tmp_path):
    write_trace(generate(tokens=300, top_k=2, experts=4, seed=3), tmp_path / "log.jsonl")
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- table: lanes -->\n<!-- end -->\n"
        "<!-- = lanes; place; slices=5; tokens per rank=128; routing=log; as .1f --><!-- . -->"
    )
    words = ["--ranks", "2", "--lanes", "3", "--lanes", "5", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(
        app, ["lanes", "--trace", str(tmp_path / "log.jsonl"), "--page", str(page), *words]
    )
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:-1] for line in result.output.splitlines() if "│" in line]
    tokens = [2**n for n in range(11)]
    of_log = tokens[:8]  # 150 tokens per rank
    assert [int(row[0]) for row in rows] == [*tokens, *of_log] * 2
    assert all(0 < float(share) <= 100 for row in rows for share in row[1:])
    text = page.read_text()
    made_up = "deepseek-v3, made up: token, %"
    of_three, _, of_five = text.partition("5 slices:")
    assert "3 slices:" in of_three and made_up in of_three and made_up in of_five
    for table, (*_, place, turn) in ((of_three, rows[len(rows) // 2 - 1]), (of_five, rows[-1])):
        assert f"| {place.strip()} | {turn.strip()} |\n" in table
    assert f"-->{place.strip()}<!-- . -->" in of_five


def test_lanes_without_the_log(tmp_path):
    words = ["--trace", str(tmp_path / "none.jsonl"), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["lanes", *words])
    assert (
        result.exit_code == 2
        and "none.jsonl: No such file" in result.stderr
        and result.stderr.count("\n") == 1
    )
