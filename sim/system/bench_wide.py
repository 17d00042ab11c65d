# SPDX-License-Identifier: Apache-2.0
"""Rates of the blocks of a wide slice, ``moe-hub bench --wide``: cycles per packet of the packet
manager, to one rank and to eight; share of the links that the receive pool keeps busy."""

import tempfile
from pathlib import Path

from hub_rtl.contract.config import preset
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.receive_pool.receive_pool import ReceivePool
from sim.bench.runner import run_bench

from .bench_speed import Line

__all__ = ["wide_rates"]

SLICE_BYTES, MOST = 64, 2.05
LINKS, PLACES, LEAST = 3, 576, 98


def wide_rates():
    """The lines of all blocks of a wide slice."""
    return [*packet_manager_rates(), *receive_pool_rates()]


def packet_manager_rates():
    """A line per destination and order of the stores: 128 entries, 600 packets of 128 bytes, every
    byte judged by the golden model."""
    cfg = preset("nvl8", pool_depth=128, slice_bytes=SLICE_BYTES)
    found = figures(PacketManager(cfg), cfg, "packet_manager", "rate", {})
    return [
        Line(
            f"packets to {'one rank' if spread == 'one' else 'eight ranks'}, stores "
            + (f"moved by up to {window}" if int(window) else "in order"),
            float(cycles),
            "cycles per packet",
            "<=",
            MOST,
        )
        for spread, window, cycles in found
    ]


def receive_pool_rates():
    """A line per set of sources: full packets over links with 1,042 cycles there and back, three
    flits in two cycles, every byte judged by the golden model."""
    cfg = preset("small", ranks=8)
    pool = {"slice_bytes": SLICE_BYTES, "links": LINKS, "places": PLACES, "period": 1024}
    found = figures(ReceivePool(cfg, **pool), cfg, "receive_pool", "over_a_microsecond", pool)
    names = {
        "one": "one source alone, round trip of 1 us: three links",
        "all": "seven sources: three links",
        "stopped": "six sources, one stopped inside a packet: the other two links",
    }
    return [
        Line(names[sources], 100 * float(share), "% of the links", ">=", LEAST)
        for sources, share in found
    ]


def figures(component, cfg, block, test, params):
    """What a test of a block's wide bench writes, a list of words per line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        run_bench(
            component,
            module=f"sim.cocotb.{block}.tests",
            name=f"{block}_wide",
            tests=[test],
            cfg=cfg,
            params={**params, "figures": str(path)},
        )
        return [line.split() for line in path.read_text().splitlines()]
