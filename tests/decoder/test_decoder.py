# SPDX-License-Identifier: Apache-2.0
"""LogicalDestinationDecoder, StoreSteer, StoreMerge and SendLedger under cocotb, against their
golden models."""

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.records import types_of
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from hub_rtl.decoder.steer import StoreMerge, StoreSteer
from hub_rtl.producer.ledger import SendLedger
from hub_rtl.producer.records import producer_types_of
from sim.bench.runner import run_bench
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


class Parts(wiring.Component):
    """The small parts around the decoder, side by side in one simulation."""

    def __init__(self, cfg):
        types = types_of(cfg)
        store, resolved = stream.Signature(types.store), stream.Signature(types.resolved)
        super().__init__(
            {
                "steer_i": In(store),
                "steer_o": Out(store).array(cfg.lanes),
                "merge_i": In(resolved).array(3),
                "merge_o": Out(resolved),
                "merge_flush": In(1),
                "merge_flushing": Out(1),
                "ledger_sent": In(types_of(cfg).sent),
                "ledger_read": In(producer_types_of(cfg).ledger_read),
                "ledger_total": Out(cfg.total_width),
                "ledger_clearing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        m.submodules.steer = steer = StoreSteer(self._cfg)
        m.submodules.merge = merge = StoreMerge(self._cfg, 3)
        m.submodules.ledger = ledger = SendLedger(self._cfg)
        wiring.connect(m, wiring.flipped(self.steer_i), steer.i_store)
        wiring.connect(m, merge.o_store, wiring.flipped(self.merge_o))
        for mine, its in zip(self.steer_o, steer.o_store, strict=True):
            wiring.connect(m, its, wiring.flipped(mine))
        for mine, its in zip(self.merge_i, merge.i_store, strict=True):
            wiring.connect(m, wiring.flipped(mine), its)
        m.d.comb += [
            merge.flush.eq(self.merge_flush),
            self.merge_flushing.eq(merge.flushing),
            ledger.sent.eq(self.ledger_sent),
            ledger.read.eq(self.ledger_read),
            self.ledger_total.eq(ledger.total),
            self.ledger_clearing.eq(ledger.clearing),
        ]
        return m


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
