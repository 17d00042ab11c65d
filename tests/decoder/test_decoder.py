# SPDX-License-Identifier: Apache-2.0
"""LogicalDestinationDecoder, StoreSteer, StoreMerge and SendLedger under cocotb, against their
golden models."""

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
)
PARTS = ODD.replace(name="parts", lanes=5)
TESTS = [
    "random_traffic",
    "every_fault",
    "full_rate",
    "every_epoch",
    "every_length",
    "rewritten_in_traffic",
    "responses_stall",
    "closing_race",
    "reset_in_traffic",
]
MOMENTS = ["half_sectors", "flush_moments", "write_moments"]


def run(component, cfg, name, tests=TESTS, rounds=6, bug=None):
    run_bench(
        component,
        name=name,
        module="sim.cocotb.decoder.tests,sim.cocotb.decoder.moments",
        tests=tests,
        cfg=cfg,
        params={"rounds": rounds},
        bug=bug,
    )


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_decoder(cfg):
    run(LogicalDestinationDecoder(cfg), cfg, f"decoder_{cfg.name}")


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_moments(cfg):
    run(LogicalDestinationDecoder(cfg), cfg, f"decoder_{cfg.name}", MOMENTS)


def test_parts():
    run_bench(
        Parts(PARTS),
        name="decoder_parts",
        module="sim.cocotb.decoder.steer",
        cfg=PARTS,
        tests=["steers", "merges_and_flushes", "ledger_totals"],
    )


def test_early_fall_is_noticed():
    """`flushing` that forgets the store accepted in the cycle of the strobe loses it from a
    close."""
    assert_caught(
        lambda: run(
            LogicalDestinationDecoder(ODD),
            ODD,
            "decoder",
            ["random_traffic"],
            bug="parts.flush_misses_entering",
        )
    )


@pytest.mark.parametrize(
    "name, test",
    [
        ("decoder.half_sector_is_whole", "half_sectors"),
        ("parts.flush_enter_hides_leave", "flush_moments"),
        ("parts.flush_misses_strobe_at_leave", "flush_moments"),
    ],
)
def test_moments_are_noticed(name, test):
    """The lower unit behind a row's end is let through; of two events in one cycle only one
    counts."""
    assert_caught(lambda: run(LogicalDestinationDecoder(ODD), ODD, "decoder", [test], bug=name))


@pytest.mark.parametrize(
    "name", ["producer.sum_before_last_missed", "producer.sum_before_that_missed"]
)
def test_stale_total_is_noticed(name):
    """A ledger that does not see the change before, or the one before that, still on its way to the
    memory, loses bytes."""
    assert_caught(
        lambda: run_bench(
            Parts(PARTS),
            name="ledger",
            module="sim.cocotb.decoder.steer",
            cfg=PARTS,
            tests=["ledger_totals"],
            bug=name,
        )
    )
