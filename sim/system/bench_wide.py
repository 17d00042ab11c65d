# SPDX-License-Identifier: Apache-2.0
"""Rates of the blocks of a wide slice, ``moe-hub bench --wide``: cycles per packet of the packet
manager, to one rank and to eight; share of the links that the receive pool keeps busy;
acknowledgements per cycle of the scoreboard."""

import tempfile
from pathlib import Path

from hub_rtl.contract.config import preset
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.receive_pool.receive_pool import ReceivePool
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from sim.bench.runner import run_bench

from .bench_speed import Line

__all__ = ["wide_rates"]

SLICE_BYTES, MOST = 64, 2.05
LINKS, PLACES, LEAST = 3, 576, 98


def wide_rates():
    """The lines of all blocks of a wide slice."""
    return [*packet_manager_rates(), *receive_pool_rates(), *scoreboard_rates()]


def packet_manager_rates():
    """A line per destination and order of the stores: 128 entries, 600 packets of 128 bytes, every
    byte judged by the golden model."""
    cfg = preset("nvl8", pool_depth=128, slice_bytes=SLICE_BYTES)
    found = figures(PacketManager(cfg), cfg, "packet_manager.tests", ["rate"], {})
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
    found = figures(
        ReceivePool(cfg, **pool), cfg, "receive_pool.tests", ["over_a_microsecond"], pool
    )
    names = {
        "one": "one source alone, round trip of 1 us: three links",
        "all": "seven sources: three links",
        "stopped": "six sources, one stopped inside a packet: the other two links",
    }
    return [
        Line(names[sources], 100 * float(share), "% of the links", ">=", LEAST)
        for sources, share in found
    ]


def scoreboard_rates():
    """A line per size of packets: acknowledgements of 4,096 rows of 256 tiles, shuffled over eight
    slices, every event judged by the golden model."""
    cfg = preset("small", lanes=6, loop_lanes=2, groups=256, combine_depth=4)
    found = figures(
        ReadinessScoreboard(cfg), cfg, "scoreboard.rates", ["full_packets", "small_packets"], {}
    )
    # A burst of full packets ends a few cycles after the last one was offered; of small ones two
    # slices' oldest may be for one bank.
    least = {"full": 98.5, "small": 50}
    return [
        Line(
            f"acknowledgements of 256 tiles, {packets} packets on eight slices: {rate} per cycle",
            100 * float(rate) / float(offered),
            f"% of {offered} offered",
            ">=",
            least[packets],
        )
        for packets, offered, rate in found
    ]


def figures(component, cfg, module, tests, params):
    """What tests of a block's bench ``block.module`` write, a list of words per line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        run_bench(
            component,
            module=f"sim.cocotb.{module}",
            name=f"{module.partition('.')[0]}_wide",
            tests=tests,
            cfg=cfg,
            params={**params, "figures": str(path)},
        )
        return [line.split() for line in path.read_text().splitlines()]
