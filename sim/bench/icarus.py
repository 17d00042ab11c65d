# SPDX-License-Identifier: Apache-2.0
"""The benches' programs by Icarus Verilog: built in a second, run several times slower than
Verilator's. It is the system's; nothing of ``make`` needs it."""

import os
import re
import shutil
import subprocess

from .builds import BenchError, command, program
from .waves import WAVES

__all__ = ["NOT_INSTALLED", "available", "built", "runner"]

#: A register without a value at power-up: what a memory has read, and what a process computes.
UNSET = re.compile(r"^(  reg (?:\[\d+:0\] )?(?:\\\S+ |\w+));$", re.M)
NOT_INSTALLED = "not installed: iverilog (Debian package: iverilog)"

#: A second top module, which writes all signals of the bench's.
DUMP = """\
module waves();
  initial begin
    $dumpfile("{file}");
    $dumpvars(0, {top});
  end
endmodule
"""


def available():
    """Is there an Icarus Verilog?"""
    return shutil.which("iverilog") is not None and shutil.which("vvp") is not None


def built(text, name, waves, count):
    """As of :func:`sim.bench.verilator.built`; Icarus does not count lines.

    Registers start from 0, as under Verilator. An ``x`` in what a memory has not read yet would
    pass through logic that masks it, and stay: Verilog's ``busy | (1 << x) & 0`` is not ``busy``.
    """
    if not available():
        raise BenchError(NOT_INSTALLED)
    if count:
        raise BenchError("SIM = 'icarus': lines and branches are counted by Verilator only")
    version = subprocess.run(["iverilog", "-V"], capture_output=True, text=True).stdout
    text = UNSET.sub(r"\1 = 0;", text)
    return program(text, name, ("icarus", waves, version.partition("\n")[0]), _builder(name, waves))


def _builder(name, waves):
    def build(source, log):
        folder = source.parent
        tops, files = ["-s", name], [source]
        if waves:
            dump = folder / "waves.v"
            dump.write_text(DUMP.format(file=WAVES, top=name))
            tops, files = [*tops, "-s", "waves"], [source, dump]
        scale = folder / "scale.f"
        scale.write_text("+timescale+1ns/1ps\n")
        compiler = ["iverilog", "-g2005", "-f", scale, "-o", folder / "sim.vvp"]
        command([*compiler, *tops, *files], dict(os.environ), log)

    return build


def runner():
    """As of :func:`sim.bench.verilator.runner`."""
    from cocotb_tools.runner import Icarus

    return Icarus()
