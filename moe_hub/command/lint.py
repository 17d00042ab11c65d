# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub lint``."""

import typer

from flow.verilog import lint as rules
from flow.verilog.axi_wrapper import AXI_TOP
from flow.verilog.generate import TOP
from flow.verilog.generate import generate as texts_of
from hub_rtl.contract.config import PRESETS

from .options import SettingsOption, configured, option

__all__ = ["lint"]


def lint(
    preset: option(str | None, "Only this one; all by default.", "--preset", "-p") = None,
    settings: SettingsOption = None,
):
    """Check the Verilog and its AXI wrapper with Verilator, Yosys, slang and, where it is
    installed, Icarus; exit code 1 on a finding."""
    found = False
    for cfg in [configured(name, settings) for name in ([preset] if preset else PRESETS)]:
        around = texts_of(cfg).sources()
        findings = rules.lint_verilog(around.pop(f"{TOP}.v"), TOP, around=around, top=AXI_TOP)
        print(f"{cfg.name}: {'clean' if not findings else 'NOT clean'}")
        for finding in findings:
            print(finding)
        found |= bool(findings)
    waived = {**rules.WAIVED, **{f"slang: {n}": why for n, why in rules.SLANG_WAIVED.items()}}
    print("waived: " + "; ".join(f"{name} ({reason})" for name, reason in waived.items()))
    for tool, where in rules.MISSING.items():
        print(f"not installed: {tool} ({where})")
    if found:
        raise typer.Exit(1)
