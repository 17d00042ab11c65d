# SPDX-License-Identifier: Apache-2.0
"""LogicalDestinationDecoder, StoreSteer, StoreMerge under cocotb, against their golden models."""

from functools import partial

import pytest

from hub_rtl.contract.config import HubConfig
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from sim.bench.runner import run_bench
from sim.cocotb.decoder.parts import Parts
from sim.quality.caught import assert_caught

SMALLEST = HubConfig(
    name="smallest",
    ranks=2,
    lanes=1,
    handles=1,
    regions=1,
    groups=4,
    capacity=1,
    max_row_bytes=16,
    pool_depth=4,
    tag_width=1,
    slice_bytes=16,
)
ODD = HubConfig(
    name="odd",
    ranks=3,
    lanes=18,
    loop_lanes=3,
    packet_bytes=256,
    handles=5,
    replicas=4,
    regions=5,
    max_row_bytes=2000,
    tag_width=5,
    slice_bytes=64,
)
WHOLE = SMALLEST.replace(name="whole", max_row_bytes=512, slice_bytes=128)
PARTS = ODD.replace(name="parts", lanes=5)


def run(cfg, tests=None, bug=None):
    """Tests of the decoder's bench, all of them by default."""
    run_bench(
        partial(LogicalDestinationDecoder, cfg),
        name=f"decoder_{cfg.name}",
        module="sim.cocotb.decoder.tests,sim.cocotb.decoder.moments",
        tests=tests,
        cfg=cfg,
        params={"rounds": 6},
        bug=bug,
    )


@pytest.mark.parametrize("cfg", [SMALLEST, ODD, WHOLE], ids=lambda cfg: cfg.name)
def test_decoder(cfg):
    run(cfg)


def parts(bug=None):
    run_bench(
        Parts(PARTS),
        name="decoder_parts",
        module="sim.cocotb.decoder.steer",
        cfg=PARTS,
        bug=bug,
    )


def test_parts():
    parts()


@pytest.mark.night
@pytest.mark.parametrize(
    "name",
    [
        "decoder.steers_by_unit_not_packet",
        "decoder.steer_overwrites_waiting",
        "decoder.merge_counts_first_input_only",
    ],
)
def test_bug_of_parts_is_noticed(name):
    """Plain stores of a packet leave on several lanes; a store that waits is lost; a flush does not
    see what came in at another input."""
    assert_caught(lambda: parts(name))


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        ("parts.flush_misses_entering", "random_traffic"),
        ("decoder.part_behind_is_inside", "parts_of_parts"),
        ("parts.flush_enter_hides_leave", "flush_moments"),
        ("parts.flush_misses_strobe_at_leave", "flush_moments"),
        ("decoder.store_before_cleared", "table_cleared"),
        ("parts.ram_cleared_with_written_word", "table_cleared"),
        ("decoder.last_entry_not_written", "table_cleared"),
        ("decoder.own_rank_asked_for_dead", "random_traffic"),
        ("decoder.last_unit_never_overruns", "parts_of_parts"),
        ("decoder.counts_for_replica_0", "every_fault"),
        ("decoder.plain_store_never_own", "full_rate"),
        ("decoder.plain_store_reports_epoch", "random_traffic"),
        ("decoder.empty_store_counts_as_refused", "random_traffic"),
    ],
)
def test_bug_is_noticed(name, test):
    """A store of the strobe's cycle is forgotten; the lower or upper unit behind a row's end is let
    through; of two events in one cycle only one counts; a reset leaves entries, or makes some; an
    entry is not there; who is dead, own or another replica is mistaken; a report says too much."""
    assert_caught(lambda: run(ODD, [test], bug=name))


def test_lane_of_entry_does_not_wrap():
    """An entry's FIXED lane that is not there belongs to no lane."""
    bug = "decoder.fixed_lane_without_wrap"
    assert_caught(lambda: run(SMALLEST, ["every_fault"], bug))
