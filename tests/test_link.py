"""Link lanes: LinkPort against a Python peer, all ranks over a switch, the loop lane, planted bugs."""


import importlib

import pytest

from hub_rtl.config import preset
from hub_rtl.link import LinkPort
from sim.bench.link_mesh import LinkMesh
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

PEER = "sim.cocotb.link,sim.cocotb.link_credits,sim.cocotb.link_faults"
MESH = "sim.cocotb.link_mesh"
CONFIGS = {
    "tiny": preset("tiny"),
    "small": preset("small"),
    "odd": preset("tiny", ranks=3, packet_bytes=256, rx_credits=1, ctl_credits=1),
}


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_against_peer(name):
    cfg = CONFIGS[name]
    run_bench(LinkPort(cfg), name=f"link_{name}", module=PEER, cfg=cfg, params={"packets": 40})


def test_first_rank():
    """The same as rank 0: the last rank is a peer now."""
    cfg = CONFIGS["small"]
    run_bench(LinkPort(cfg), name="link_small", module=PEER, cfg=cfg, params={"packets": 40, "rank": 0})


def test_over_switch():
    cfg = CONFIGS["odd"]
    run_bench(LinkMesh(cfg), name="link_mesh_odd", module=MESH, cfg=cfg, params={"packets": 25})


@pytest.mark.parametrize("path, old, new, test, name", [
    # A CREDIT flit may push in between the flits of a packet.
    ("hub_rtl/links/link_tx.py", "go_credit.eq(~inside & reports.due", "go_credit.eq(reports.due", "traffic", "tiny"),
    # A buffer counts as free as soon as the packet is let in: sources get credits for places that are taken.
    ("hub_rtl/links/credits.py", "is_freed = free.en & (free.rank == n)",
     "is_freed = self.accept.en[cls] & (self.accept.src == n)",
     "traffic", "tiny"),
    # The packet queue is short of what the credits promise, by one flit beside the one at its output.
    ("hub_rtl/links/link_rx.py", "cfg.rx_credits * cfg.frame_flits)", "cfg.rx_credits * cfg.frame_flits - 2)", "credit_abuse",
     "tiny"),
    # A due CREDIT never pushes in before packets that keep coming.
    ("hub_rtl/links/link_tx.py", "pushes_in.eq(reports.due & urgent & ~paced)", "pushes_in.eq(0)", "credit_flits", "small"),
])
def test_planted(path, old, new, test, name):
    cfg = CONFIGS[name]
    also = [each for each in ("hub_rtl.links.credits", "hub_rtl.links.link_tx", "hub_rtl.links.link_rx", "hub_rtl.link")
            if each != path[:-3].replace("/", ".")]
    with planted(path, old, new, also):
        port = importlib.import_module("hub_rtl.link").LinkPort(cfg)
        assert_caught(lambda: run_bench(port, name="link_planted", module=PEER, cfg=cfg, tests=[test], params={"packets": 40}))
