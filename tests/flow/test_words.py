# SPDX-License-Identifier: Apache-2.0
"""The enumerations and words of software: in the C header, which a compiler reads and runs, in the
sidecar and in SystemRDL."""

import json
import random
import subprocess

import pytest

from flow.verilog.axi_wrapper import axi_wrapper
from flow.verilog.register_rdl import registers_systemrdl
from flow.verilog.register_text import registers_header
from flow.verilog.words_text import words_sidecar
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import CommandOp, EventKind, pack, unpack
from hub_rtl.contract.words import ENUMERATIONS, STRUCTURES
from sim.bench.runner import bench_seed

TINY = preset("tiny")


def printed(body, folder):
    """What a C program with the header prints: JSON."""
    source = folder / "words.c"
    (folder / "moehub_regs.h").write_text(registers_header(TINY))
    source.write_text(
        f'#include <stdio.h>\n#include "moehub_regs.h"\nint main(void) {{\n{body}\nreturn 0; }}\n'
    )
    program = folder / "words"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["g++", "-x", "c", *flags, source, "-o", program], check=True)
    return json.loads(subprocess.run([program], capture_output=True, check=True).stdout)


def member(field):
    """The one field whose name is a keyword of C."""
    return "short_" if field == "short" else field


def test_enumerations_in_c(tmp_path):
    names = [
        f"MOEHUB_{name.upper()}_{each.name}" for name, enum in ENUMERATIONS.items() for each in enum
    ]
    body = "".join(f'printf("%d,", {name});' for name in names)
    values = [int(each) for enum in ENUMERATIONS.values() for each in enum]
    assert printed('printf("[");' + body + 'printf("0]");', tmp_path) == [*values, 0]


def test_words_in_c(tmp_path):
    """A word of random fields, joined by C; the fields, parted by C; too large a field harms no
    other."""
    rng, wanted, lines = random.Random(bench_seed()), [], []
    for name, structure in STRUCTURES.items():
        fields = {field: rng.getrandbits(width) for field, (_, width) in structure.fields.items()}
        values = ", ".join(f".{member(field)} = {value}ull" for field, value in fields.items())
        lines.append(
            f'{{struct moehub_{name} f = {{{values}}}; printf("%llu,", '
            f"(unsigned long long)moehub_{name}_pack(f));}}"
        )
        word = pack(structure.fields, **fields)
        wanted.append(word)
        for field in fields:
            part = f"moehub_{name}_unpack({word}ull).{member(field)}"
            lines.append(f'printf("%llu,", (unsigned long long){part});')
        wanted += unpack(structure.fields, word).values()
        first = next(iter(fields))
        lines.append(
            f"{{struct moehub_{name} f = {{.{first} = ~0ull}}; "
            f'printf("%llu,", (unsigned long long)moehub_{name}_pack(f));}}'
        )
        low, width = structure.fields[first]
        wanted.append((1 << width) - 1 << low)
    body = 'printf("[");' + "\n".join(lines) + 'printf("0]");'
    assert printed(body, tmp_path) == [*wanted, 0]


def test_sidecar():
    words = words_sidecar()
    assert words["enumerations"]["event_kind"]["values"] == {"READY": 0, "ALL": 1, "ERROR": 2}
    assert {
        name: {f["name"]: (f["low"], f["width"]) for f in each["fields"]}
        for name, each in words["structures"].items()
    } == {name: each.fields for name, each in STRUCTURES.items()}


def test_systemrdl():
    """Fields refer to their enumeration; tests/flow/test_register_export.py compiles the file."""
    text = registers_systemrdl(TINY)
    assert "enum region_state { FREE = 0; OPEN = 1; DONE = 2; };" in text
    assert "encode=region_state;" in text and text.count("  enum reason {") == 1


@pytest.mark.parametrize("values", [EventKind, CommandOp])
def test_wrapper_says_values(values):
    assert ", ".join(f"{int(each)} {each.name}" for each in values) in axi_wrapper(TINY, "moehub")
