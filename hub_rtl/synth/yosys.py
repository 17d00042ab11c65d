"""Yosys in a process of its own, over the native library: it keeps one design per process and ends it on an error."""

import os
import subprocess
import sys
from pathlib import Path

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
    """Runs the passes in ``folder`` (file names are relative to it); all they print is in ``yosys.log`` there."""
    with open(folder / "yosys.log", "w") as log:
        command = [sys.executable, "-c", _SCRIPT, *steps]
        code = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT).returncode
    if code:
        lines = (folder / "yosys.log").read_text(errors="replace").strip().splitlines()
        raise YosysError(f"yosys: {lines[-1] if lines else 'no output'} (see {folder / 'yosys.log'})")


def yosys_program(path):
    """Writes a program to ``path`` that other tools can call as ``yosys``; returns its absolute path."""
    text = f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("yosys_main.py")}" "$@"\n'
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"yosys.{os.getpid()}")        # others may be running it
        scratch.write_text(text)
        scratch.chmod(0o755)
        scratch.rename(path)
    return path.resolve()
