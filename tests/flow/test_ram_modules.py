# SPDX-License-Identifier: Apache-2.0
"""Memories as modules of their own: the same machine, module by module."""

import re
import subprocess
from pathlib import Path

import pyosys
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from flow.synth.yosys import run_yosys
from flow.verilog.netlist import memories, to_rtlil, to_verilog
from flow.verilog.ram_modules import RamShape, ram_modules_verilog, with_ram_modules
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.stream import StreamQueue

#: Both machines side by side, as an AIGER file whose one output is 1 when they differ.
MITER = [
    f"tee -q {step}"
    for name, files in (("gold", "plain.v"), ("gate", "split.v rams.v"))
    for step in (
        f"read_verilog {files}",
        "hierarchy -check -top part",
        "proc",
        "flatten",
        "memory",
        f"rename part {name}",
        f"design -stash {name}",
    )
] + [
    f"tee -q {step}"
    for step in (
        "design -copy-from gold gold",
        "design -copy-from gate gate",
        "miter -equiv -flatten gold gate miter",
        "hierarchy -top miter",
        "opt_clean",
        "setundef -zero -init",
        "techmap",
        "dfflegalize -cell $_DFF_P_ 01",
        "aigmap",
        "write_aiger -zinit miter.aig",
    )
]


def equal(folder):
    """Whether ABC proves split.v with rams.v equal to plain.v (True) or shows a difference
    (False)."""
    run_yosys(MITER, folder)
    said = subprocess.run(
        [Path(pyosys.__file__).parent / "yosys-abc", "-q", "read_aiger miter.aig; strash; dprove"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    verdict = re.search("^Networks are (not )?equivalent", said, re.M)
    assert verdict, said
    return not verdict[1]


def write(folder, component):
    """Both texts of a component; the shapes of its memories."""
    rtlil = to_rtlil(component, "part")
    split, shapes = with_ram_modules([rtlil], memories([rtlil], "part"))
    for name, text in (
        ("plain", to_verilog([rtlil])),
        ("split", to_verilog(split)),
        ("rams", ram_modules_verilog(shapes)),
    ):
        (folder / f"{name}.v").write_text(text)
    return shapes


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: Ram(5, 4), RamShape(4, 5)),
        (lambda: Ram(1, 1), RamShape(2, 1)),
        (lambda: Ram(6, 3, granules=3), RamShape(3, 6, 3)),
        (lambda: Ram(4, 4, granules=4, clear=True), RamShape(4, 4, 4)),
        (lambda: Ram(6, 3, granules=2, bypass=False), RamShape(3, 6, 2)),
        (lambda: RamQueue(3, 3), RamShape(3, 3)),
        (lambda: StreamQueue(2, 4), RamShape(3, 2)),
    ],
    ids=["plain", "least", "granules", "cleared", "bare", "queue", "fifo"],
)
def test_same_machine(make, shape, tmp_path):
    """With the memory in a module of its own the part does the same, whatever comes in; proved by
    induction."""
    assert write(tmp_path, make()) == [shape]
    assert equal(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        ("if (r_en) r_data", "r_data"),
        ("memory[r_addr]", "(w_en && w_addr == r_addr) ? ~memory[r_addr] : memory[r_addr]"),
        ("if (w_en[part])", "if (w_en[0])"),
    ],
)
def test_proof_notices(wrong, tmp_path):
    """A memory that does not hold its word, that spoils parts not written, or that writes the wrong
    parts, is not equal."""
    write(tmp_path, Ram(4, 2, granules=2))
    text = (tmp_path / "rams.v").read_text()
    assert wrong[0] in text
    (tmp_path / "rams.v").write_text(text.replace(*wrong))
    assert not equal(tmp_path)


@pytest.mark.parametrize("granules", [1, 3])
def test_collisions_may_read_as_anything(granules, tmp_path):
    """Behind the bypass it does not matter what a memory gives for the bits that are written in the
    same cycle."""
    write(tmp_path, Ram(6, 3, granules=granules))
    for name in ("plain", "split"):  # a reset after the collision ends the word's time: not a case
        text = (tmp_path / f"{name}.v").read_text()
        assert "if (rst)" in text
        (tmp_path / f"{name}.v").write_text(text.replace("if (rst)", "if (1'b0)"))
    grain, enable = 6 // granules, "w_en[n]" if granules > 1 else "w_en"
    text = (tmp_path / "rams.v").read_text()
    spoilt = (
        f"begin r_data <= memory[r_addr]; for (n = 0; n < {granules}; n = n + 1) if "
        f"({enable} && w_addr == r_addr) "
        f"r_data[n*{grain} +: {grain}] <= ~w_data[n*{grain} +: {grain}]; end"
    )
    text = text.replace("r_data <= memory[r_addr];", spoilt).replace(
        "integer word", "integer n, word"
    )
    (tmp_path / "rams.v").write_text(text)
    assert equal(tmp_path)


class Other(wiring.Component):
    """A memory that no macro can replace."""

    def __init__(self, init=(), transparent=False, reads=1):
        super().__init__({"address": In(2), "data": In(4), "en": In(1), "q": Out(4 * reads)})
        self._init, self._transparent, self._reads = init, transparent, reads

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=4, depth=4, init=self._init)
        write = memory.write_port()
        m.d.comb += [
            write.addr.eq(self.address),
            write.data.eq(self.data),
            write.en.eq(self.en),
        ]
        for n in range(self._reads):
            read = memory.read_port(transparent_for=[write] if self._transparent else [])
            m.d.comb += [
                read.addr.eq(self.address),
                read.en.eq(1),
                self.q.word_select(n, 4).eq(read.data),
            ]
        return m


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"init": [1]}, "moehub_ram_4x4: a memory with contents cannot be a macro"),
        (
            {"transparent": True},
            "moehub_ram_4x4: a port of this kind has no place in a memory module",
        ),
        ({"reads": 2}, "module .part: must have one memory with one read and one write port"),
    ],
)
def test_other_memories_are_refused(changes, text):
    rtlil = to_rtlil(Other(**changes), "part")
    with pytest.raises(ValueError, match=f"^{text}$"):
        with_ram_modules([rtlil], [{"module": "part", "granules": 1}])


def test_unequal_enables_are_refused():
    """A memory whose write enables do not fall into equal parts."""
    rtlil = to_rtlil(Ram(6, 4, granules=3), "part")
    with pytest.raises(
        ValueError, match="^moehub_ram_4x6_we2: the write enables are not 2 equal parts$"
    ):
        with_ram_modules([rtlil], [{"module": "part", "granules": 2}])
    assert re.search(
        r"moehub_ram_4x6_we3", with_ram_modules([rtlil], [{"module": "part", "granules": 3}])[0][0]
    )
