# SPDX-License-Identifier: Apache-2.0
"""The registers in the formats of other tools: SystemRDL, and what PeakRDL makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from systemrdl import RDLCompiler
from systemrdl.node import FieldNode, RegNode
from systemrdl.rdltypes import AccessType, OnWriteType

from flow.verilog.register_rdl import registers_systemrdl
from hub_rtl.contract.config import preset
from hub_rtl.contract.registers import register_map
from sim.bench.runner import ROOT


@pytest.mark.parametrize("name", ["tiny", "nvl72"])
def test_systemrdl(name, tmp_path):
    """The compiled SystemRDL says what the description says: every register and field, address,
    reset value and access."""
    cfg = preset(name)
    (tmp_path / "moehub.rdl").write_text(registers_systemrdl(cfg))
    compiler = RDLCompiler()
    compiler.compile_file(str(tmp_path / "moehub.rdl"))
    top = compiler.elaborate().top
    found = {
        node.get_path().removeprefix("moehub."): node
        for node in top.descendants()
        if isinstance(node, (RegNode, FieldNode))
    }
    wanted = {
        "ro": (AccessType.r, None, False),
        "rw": (AccessType.rw, None, True),
        "wo": (AccessType.w, None, True),
        "w1c": (AccessType.rw, OnWriteType.woclr, True),
    }
    for path, address, register in register_map(cfg):
        node = found.pop(path)
        assert (node.absolute_address, node.size, node.external) == (address, 4, register.external)
        for field in register.fields:
            node = found.pop(f"{path}.{field.name}")
            assert (node.low, node.width, node.get_property("reset")) == (
                field.low,
                field.width,
                field.reset,
            )
            assert (
                node.get_property("sw"),
                node.get_property("onwrite"),
                node.implements_storage,
            ) == wanted[field.access]
            assert node.is_hw_writable == (
                not register.constant and (register.load or field.access in ("ro", "w1c"))
            )
            assert field.text in (node.get_property("desc") or "")
    assert not found


def test_register_documents(tmp_path):
    """`make registers` writes the HTML manual and a header that a C compiler takes, by PeakRDL."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(
        [
            "make",
            "-s",
            "-o",
            ".venv/.ready",
            "registers",
            "PRESET=tiny",
            f"BIN={Path(sys.executable).parent}",
            f"REGISTERS={tmp_path}",
        ],
        cwd=ROOT,
        env=clean,
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "html" / "index.html").exists()
    program = tmp_path / "use.c"
    program.write_text(
        '#include "moehub_peakrdl.h"\n#include <stddef.h>\n'
        'static_assert(offsetof(moehub_t, control.TIMEOUT) == 0x1018, "");\n'
        'static_assert(MOEHUB__CONTROL__STATUS__RANGE_BUSY_bp == 8, "");\n'
    )
    subprocess.run(["g++", "-fsyntax-only", "-x", "c++", str(program)], check=True)
