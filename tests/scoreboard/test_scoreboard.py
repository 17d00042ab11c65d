# SPDX-License-Identifier: Apache-2.0
"""Readiness scoreboard: bench against the golden model, bugs, configurations."""

from functools import partial

import pytest

from flow.verilog.lint import lint_verilog
from hub_rtl.contract.config import preset
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from sim.bench.runner import run_bench, to_verilog
from sim.quality.caught import assert_caught

MODULES = ",".join(
    f"sim.cocotb.scoreboard.{name}"
    for name in (
        "tests",
        "faults",
        "promises",
        "tables",
        "epochs",
        "tells",
        "overflow",
        "ranges",
        "widths",
    )
)
POUR = 40000  # cycles in which the widest sums grow
CONFIGS = {
    "small": (preset("small", lanes=2), 5),
    "tiny": (preset("tiny"), 8),
    "minimum": (
        preset("tiny", regions=1, capacity=1, max_row_bytes=16, dep_ranges=1, combine_depth=1),
        8,
    ),
    "odd": (preset("small", regions=3, ranks=3, groups=8, combine_depth=1), 6),
}


def run(config, *tests, module=MODULES, **options):
    """These cocotb tests, or all, on one configuration."""
    cfg, _ = CONFIGS[config]
    run_bench(
        partial(ReadinessScoreboard, cfg),
        name=f"scoreboard_{config}",
        module=module,
        cfg=cfg,
        tests=list(tests),
        **options,
    )


def is_caught(bug, *tests, config="tiny", **options):
    """These tests notice the planted bug."""
    assert_caught(lambda: run(config, *tests, bug=bug, **options))


#: The largest: by night.
SMALL = pytest.param("small", marks=pytest.mark.night)


@pytest.mark.parametrize("name", [SMALL, "tiny", "minimum", "odd"])
def test_against_golden(name):
    """All cocotb tests of the scoreboard on one configuration."""
    _, epochs = CONFIGS[name]
    run(name, params={"epochs": epochs, "pour": POUR if name == "tiny" else 200})


def rates(cfg, **more):
    run_bench(
        partial(ReadinessScoreboard, cfg),
        name="scoreboard_rates",
        module="sim.cocotb.scoreboard.rates",
        cfg=cfg,
        **more,
    )


RATES = preset("small", lanes=6, loop_lanes=2, groups=256, combine_depth=4)


def test_rates():
    """Acknowledgements of 256 tiles through eight slices."""
    rates(RATES)


MOMENTS = [
    "compensating_bytes",
    "acknowledged_as_it_quiesces",
    "last_byte_meets_close",
    "overlap_meets_verdict",
    "abort_spares_others",
    "taken_as_it_is_cleared",
    "sums_grow",
    "sums_are_of_their_tiles",
    "tables_written_in_each_cycle",
    "many_moves_at_once",
    "ranges_disarmed_together",
]


MOMENTS_MODULE = "sim.cocotb.scoreboard.moments"


@pytest.mark.parametrize("name", [SMALL, "tiny", "odd"])
def test_moments(name):
    """Sums that agree by accident, and two events at one register; the configurations have tiles of
    two rows."""
    run(name, *MOMENTS, module=MOMENTS_MODULE)


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        # ALL without all tiles, if the bytes add up to whole rows.
        ("scoreboard.all_without_all_tiles", "compensating_bytes"),
        # The tiles are cleared while an acknowledgement of the old epoch has not been taken.
        ("scoreboard.quiesce_not_awaited", "acknowledged_as_it_quiesces"),
        # Right in all it counts, but only as fast as the pipeline.
        ("scoreboard.sums_take_nothing", "sums_grow"),
        # What goes to the pipeline is added to the sums as well.
        ("scoreboard.direct_is_added_too", "sums_grow"),
        # A memory error of an acknowledgement that is added to a sum is forgotten.
        ("scoreboard.waiting_error_forgotten", "sums_are_of_their_tiles"),
        # An operation goes to the bank of sums of the one before it.
        ("scoreboard.sums_of_the_one_before", "sums_are_of_their_tiles"),
        # What comes as an operation leaves a combiner is not seen there.
        ("scoreboard.comes_unseen_as_one_leaves", "sums_are_of_their_tiles"),
        # A bank is given back while sums of its acknowledgements wait.
        ("scoreboard.sweep_not_said", "sums_are_of_their_tiles"),
        # A query shows the book as it was before its last operation.
        ("scoreboard.query_shows_the_book_before", "sums_are_of_their_tiles"),
    ],
)
def test_moments_are_noticed(name, test):
    is_caught(name, test, module=MOMENTS_MODULE)


@pytest.mark.night
@pytest.mark.parametrize(
    "name",
    [
        # More rows than one region can have are never whole.
        "scoreboard.rows_of_one_region_fit",
        # A memory error that was merged into an accumulator is forgotten: READY although memory has
        # refused a byte.
        "scoreboard.merged_error_forgotten",
        # ALL does not wait for the READYs that are still pending.
        "scoreboard.all_overtakes_ready",
        # Bytes of two acknowledgements in a row for one tile: the second is added to what was there
        # before the first.
        "scoreboard.tile_in_front_missed",
        # The same for the totals of a region.
        "scoreboard.book_in_front_missed",
    ],
)
def test_mutants(name):
    """The bench notices what it is there for."""
    tests = "bad_news_survives_merging", "stalled_events", "stalled_flags", "both_regions_full"
    is_caught(name, *tests)


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        # Bit 0 of a timeout is not looked at.
        ("scoreboard.shortest_timeout_is_off", "only_open_banks_stall"),
        # Of a stride's log2 five bits are kept.
        ("scoreboard.strides_below_4_gib", "groups_are_written_off"),
        # Rows of 512 bytes and more of a last tile count for less.
        ("scoreboard.last_tile_is_short", "last_tiles_of_many_rows"),
        # Tiles of 16 rows and more are taken for smaller ones.
        ("scoreboard.tiles_below_16_rows", "last_tiles_of_any_size"),
        # Of refused bytes 22 bits are kept.
        ("scoreboard.refusals_below_4_mib", "many_refusals"),
    ],
)
def test_narrow_fields_are_noticed(name, test):
    """Each field holds what it can hold."""
    is_caught(name, test, params={"pour": POUR})


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        ("scoreboard.all_without_closes", "all_waits_for_closes"),
        ("scoreboard.rest_by_bytes_alone", "rest_needs_all_slots"),
        ("scoreboard.rest_not_marked", "row_behind_the_rest"),
        ("scoreboard.rest_not_noticed", "rest_before_closes"),
        ("scoreboard.news_of_busy_bank_dropped", "told_while_in_use"),
        ("scoreboard.aim_outlives_account", "rest_in_each_order"),
        ("scoreboard.old_aim_is_kept", "rest_in_each_order"),
        ("scoreboard.aim_beyond_capacity", "rest_of_a_full_region"),
        ("scoreboard.told_twice_counts", "told_twice_counts_once"),
        ("scoreboard.overflow_region_told_too_little", "overflow_region_is_told"),
        ("scoreboard.short_word_ignored", "words_are_blamed"),
        ("scoreboard.long_word_ignored", "all_waits_for_closes"),
        # The whole rows of a total that is none of rows are looked for in the last tile.
        ("scoreboard.torn_rest_is_looked_for", "parts_of_rows_have_no_rest"),
        # A part of a row in the overflow region is overlooked.
        ("scoreboard.torn_rows_elsewhere_pass", "torn_rows_elsewhere"),
        # A row went on after the word that none would.
        ("scoreboard.broken_promise_not_told", "rows_elsewhere_against_the_word"),
    ],
)
def test_bugs_of_announcements(name, test):
    """What must not be forgotten of tells, the last tile and the words of closes."""
    is_caught(name, test)


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        # A run goes on behind a bank whose order was refused.
        ("scoreboard.run_goes_over_refused", "ranges_split"),
        # What is opened again is the other bank.
        ("scoreboard.opens_other_bank", "ranges_turn_over"),
        # An overflow region is given back with others: nobody asks who overflows there.
        ("scoreboard.shared_bank_joins", "range_with_a_host"),
    ],
)
def test_bugs_of_ranges(name, test):
    """Of orders to ranges; each is noticed by the test that watches for it."""
    is_caught(name, test, config="small")


def test_lint():
    """The smallest shapes elaborate without a warning and the Verilog is clean."""
    cfg, _ = CONFIGS["minimum"]
    assert lint_verilog(to_verilog(ReadinessScoreboard(cfg), "scoreboard"), "scoreboard") == []
