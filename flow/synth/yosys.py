# SPDX-License-Identifier: Apache-2.0
"""Yosys in a process of its own, over the native library: it keeps one design per process and ends
it on an error."""

import subprocess
import sys
from pathlib import Path

from flow.tools import write_program

__all__ = ["YosysError", "run_yosys", "yosys_program"]

_SCRIPT = """import sys
from pyosys import libyosys
design = libyosys.Design()
for step in sys.argv[1:]:
    libyosys.run_pass(step, design)
"""


class YosysError(RuntimeError):
    """A pass failed; the last line it printed."""


def run_yosys(steps, folder):
    """Runs the passes in ``folder`` (file names are relative to it); all they print is in
    ``yosys.log`` there."""
    with open(folder / "yosys.log", "w") as log:
        command = [sys.executable, "-c", _SCRIPT, *steps]
        code = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT).returncode
    if code:
        lines = (folder / "yosys.log").read_text(errors="replace").strip().splitlines()
        raise YosysError(
            f"yosys: {lines[-1] if lines else 'no output'} (see {folder / 'yosys.log'})"
        )


def yosys_program(path):
    """Writes a program to ``path`` that other tools can call as ``yosys``; returns its absolute
    path."""
    main = Path(__file__).with_name("yosys_main.py")
    return write_program(path, [sys.executable, main])
