# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub registers``."""

import stat
import sys
from pathlib import Path

from flow.verilog.generate import write_files
from flow.verilog.register_rdl import registers_systemrdl
from flow.verilog.register_text import registers_header, registers_markdown
from moe_hub.files import write_text

from .console import fail
from .options import PresetOption, SettingsOption, configured, flag, option

__all__ = ["registers"]


def registers(
    preset: PresetOption = "small",
    settings: SettingsOption = None,
    markdown: flag("--markdown", "The manual, in Markdown.") = False,
    c_header: flag("--c-header", "The C header.") = False,
    systemrdl: flag("--systemrdl", "SystemRDL, for register tools.") = False,
    output: option(
        Path | None, "File to write; standard output by default.", "--output", "-o"
    ) = None,
):
    """Print the register manual, the C header or the SystemRDL."""
    if markdown + c_header + systemrdl > 1:
        fail("--markdown, --c-header, --systemrdl: choose one")
    cfg = configured(preset, settings)
    text = (
        registers_header if c_header else registers_systemrdl if systemrdl else registers_markdown
    )(cfg)
    if output is None:
        sys.stdout.write(text)
    elif output.exists() and not stat.S_ISREG(output.stat().st_mode):
        write_text(output, text)  # a device or a pipe is written to, not replaced
    else:
        write_files(output.parent, {output.name: text})
