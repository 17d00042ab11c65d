"""ProducerControl under cocotb, against its golden model."""

import pytest

from hub_rtl.config import HubConfig
from hub_rtl.producer_control import ProducerControl
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

SMALLEST = HubConfig(name="smallest", ranks=2, lanes=1, handles=1, regions=1, groups=4, capacity=1, max_row_bytes=16,
                     pool_depth=4, ctl_credits=1, tag_width=4)
ODD = HubConfig(name="odd", ranks=3, lanes=3, loop_lanes=2, handles=5, replicas=4, regions=5, max_row_bytes=2000,
                pool_depth=4, tag_width=5)
WIDE = HubConfig(name="wide", ranks=8, lanes=18, loop_lanes=3, handles=256, regions=64, pool_depth=64)
TESTS = ["random_commands", "every_fault", "two_epochs_ahead", "slow_peer", "dead_peer", "many_fences", "software_reads",
         "reset_in_traffic", "latency", "turns", "blocked_messages", "software_turns", "before_cleared",
         "drains", "dead_turns"]


def run(component, cfg, name, tests=TESTS, other=True):
    run_bench(component, name=name, module="sim.cocotb.producer_control,sim.cocotb.producer_control_limits", tests=tests,
              cfg=cfg, params={"commands": 40, "other": other})


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_producer_control(cfg):
    run(ProducerControl(cfg), cfg, f"producer_{cfg.name}")


def test_many_peers():
    run(ProducerControl(WIDE), WIDE, "producer_wide", ["close_all_rate", "blocked_messages"], other=False)


def test_planted_early_close():
    """A close that does not wait for its peer to drain carries too few bytes."""
    with planted("hub_rtl/producer/close_engine.py", "(drained | ~self.draining)", "(drained | self.draining | ~self.draining)",
                 also=["hub_rtl.producer_control"]):
        import importlib
        module = importlib.import_module("hub_rtl.producer_control")
        assert_caught(lambda: run(module.ProducerControl(SMALLEST), SMALLEST, "producer_planted", ["random_commands"]))
