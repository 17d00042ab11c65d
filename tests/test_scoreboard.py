"""Readiness scoreboard: bench against the golden model, planted bugs, configurations."""

import importlib

import pytest

from hub_rtl.config import preset
from hub_rtl.tools.lint import lint_verilog
from hub_rtl.scoreboard import ReadinessScoreboard
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench, to_verilog

MODULES = "sim.cocotb.scoreboard,sim.cocotb.scoreboard_faults,sim.cocotb.scoreboard_promises,sim.cocotb.scoreboard_tables"
CONFIGS = {
    "small": (preset("small", lanes=2), 5),
    "tiny": (preset("tiny"), 8),
    "minimum": (preset("tiny", regions=1, capacity=1, max_row_bytes=16, dep_ranges=1, combine_depth=1), 8),
    "odd": (preset("small", regions=3, ranks=3, groups=8, combine_depth=1), 6),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_against_golden(name):
    """All cocotb tests of the scoreboard on one configuration."""
    cfg, epochs = CONFIGS[name]
    run_bench(ReadinessScoreboard(cfg), name=f"scoreboard_{name}", module=MODULES, cfg=cfg,
              params={"epochs": epochs, "pour": 40000 if name == "tiny" else 200})


PLANTED = {
    # A memory error that was merged into an accumulator is forgotten: READY although memory has refused a byte.
    "merged_error": ("hub_rtl/readiness/ack_combiner.py", "mem[n].eq(mem[n] | ~ok)", "mem[n].eq(mem[n])"),
    # ALL does not wait for the READYs that are still pending.
    "all_overtakes": ("hub_rtl/readiness/event_scan.py", "~clear_1 & ~summary.any()", "~clear_1"),
    # Bytes of two acknowledgements in a row for one tile: the second is added to what was there before the first.
    "tile_in_front": ("hub_rtl/readiness/tile_counters.py", "tile.eq(Mux(follows, tiles.w_data, tiles.r_data))",
                      "tile.eq(tiles.r_data)"),
    # The same for the totals of a region.
    "book_in_front": ("hub_rtl/readiness/region_books.py", "was.eq(Mux(follows, now, books.r_data))", "was.eq(books.r_data)"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted(bug):
    """The bench notices what it is there for."""
    with planted(*PLANTED[bug], also=["hub_rtl.scoreboard"]):
        design = importlib.import_module("hub_rtl.scoreboard").ReadinessScoreboard
        cfg = preset("tiny")
        assert_caught(lambda: run_bench(design(cfg), name=f"scoreboard_planted_{bug}", cfg=cfg,
                                        module="sim.cocotb.scoreboard,sim.cocotb.scoreboard_faults",
                                        tests=["bad_news_survives_merging", "stalled_events", "stalled_flags"]))


def test_lint():
    """The smallest shapes elaborate without a warning and the Verilog is clean."""
    cfg, _ = CONFIGS["minimum"]
    assert lint_verilog(to_verilog(ReadinessScoreboard(cfg), "scoreboard"), "scoreboard") == []
