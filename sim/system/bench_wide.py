# SPDX-License-Identifier: Apache-2.0
"""Rate of the wide packet manager: cycles per packet, to one rank and to eight. ``moe-hub bench
--wide``."""

import tempfile
from pathlib import Path

from hub_rtl.contract.config import preset
from hub_rtl.wide_packet_manager.wide_packet_manager import WidePacketManager
from sim.bench.runner import run_bench

from .bench_speed import Line

__all__ = ["wide_rates"]

SLICE_BYTES, MOST = 64, 2.05


def wide_rates():
    """A line per destination and order of the stores: 128 entries, 600 packets of 128 bytes, every
    byte judged by the golden model."""
    cfg = preset("small", ranks=8, pool_depth=128)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        run_bench(
            WidePacketManager(cfg, SLICE_BYTES),
            module="sim.cocotb.wide_packet_manager.tests",
            name="wide_packet_manager_wide",
            tests=["rate"],
            cfg=cfg,
            params={"slice_bytes": SLICE_BYTES, "figures": str(figures)},
        )
        found = [line.split() for line in figures.read_text().splitlines()]
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
