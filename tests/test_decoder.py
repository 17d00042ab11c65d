"""LogicalDestinationDecoder, StoreSteer, StoreMerge and SendLedger under cocotb, against their golden models."""

import sys
from unittest.mock import patch

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.config import HubConfig
from hub_rtl.decoder import LogicalDestinationDecoder
from hub_rtl.producer.ledger import SendLedger, ledger_read, ledger_sent
from hub_rtl.steer import StoreMerge, StoreSteer
from hub_rtl.types import types_of
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

SMALLEST = HubConfig(name="smallest", ranks=2, lanes=1, handles=1, regions=1, groups=4, capacity=1, max_row_bytes=16,
                     pool_depth=4, tag_width=1)
ODD = HubConfig(name="odd", ranks=3, lanes=18, loop_lanes=3, packet_bytes=256, handles=5, replicas=4, regions=5,
                max_row_bytes=2000, tag_width=5)
PARTS = ODD.replace(name="parts", lanes=5)
TESTS = ["random_traffic", "every_fault", "full_rate", "every_epoch", "every_length", "rewritten_in_traffic",
         "responses_stall", "closing_race", "reset_in_traffic"]


class Parts(wiring.Component):
    """The small parts around the decoder, side by side in one simulation."""

    def __init__(self, cfg):
        types = types_of(cfg)
        store, resolved = stream.Signature(types.store), stream.Signature(types.resolved)
        super().__init__({
            "steer_i": In(store), "steer_o": Out(store).array(cfg.lanes),
            "merge_i": In(resolved).array(3), "merge_o": Out(resolved), "merge_flush": In(1), "merge_flushing": Out(1),
            "ledger_sent": In(ledger_sent(cfg)), "ledger_read": In(ledger_read(cfg)), "ledger_total": Out(cfg.total_width),
            "ledger_clearing": Out(1)})
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
            merge.flush.eq(self.merge_flush), self.merge_flushing.eq(merge.flushing), ledger.sent.eq(self.ledger_sent),
            ledger.read.eq(self.ledger_read), self.ledger_total.eq(ledger.total), self.ledger_clearing.eq(ledger.clearing),
        ]
        return m


def run(component, cfg, name, tests=TESTS, rounds=6):
    run_bench(component, name=name, module="sim.cocotb.decoder", tests=tests, cfg=cfg, params={"rounds": rounds})


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_decoder(cfg):
    run(LogicalDestinationDecoder(cfg), cfg, f"decoder_{cfg.name}")


def test_parts():
    run_bench(Parts(PARTS), name="decoder_parts", module="sim.cocotb.steer", cfg=PARTS,
              tests=["steers", "merges_and_flushes", "ledger_totals"])


def test_planted_early_fall():
    """`flushing` that forgets the store accepted in the cycle of the strobe loses it from a close."""
    with planted("hub_rtl/lib/flush.py", "Mux(self.flush, after,", "Mux(self.flush, inside,", also=["hub_rtl.decoder"]):
        import importlib
        module = importlib.import_module("hub_rtl.decoder")
        assert_caught(lambda: run(module.LogicalDestinationDecoder(SMALLEST), SMALLEST, "decoder_planted", ["random_traffic"]))


@pytest.mark.parametrize("good, bad", [("word.eq(Mux(same, written, old))", "word.eq(old)"),
                                       ("old.eq(Mux(changed, written, totals.r_data))", "old.eq(totals.r_data)")],
                         ids=["one_before", "two_before"])
def test_planted_stale_total(good, bad):
    """A ledger that does not see the change before, or the one before that, still on its way to the memory, loses bytes."""
    with planted("hub_rtl/producer/ledger.py", good, bad) as module, \
            patch.object(sys.modules[__name__], "SendLedger", module.SendLedger):
        assert_caught(lambda: run_bench(Parts(PARTS), name="ledger_planted", module="sim.cocotb.steer", cfg=PARTS,
                                        tests=["ledger_totals"]))
