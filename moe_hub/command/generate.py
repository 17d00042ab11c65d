# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub generate``."""

from pathlib import Path

from flow.verilog.generate import generate as texts_of
from flow.verilog.generate import write_files

from .console import output_folder
from .options import PresetOption, SettingsOption, configured, flag, option

__all__ = ["generate"]


def generate(
    preset: PresetOption = "small",
    settings: SettingsOption = None,
    ram_modules: flag(
        "--ram-modules",
        "Each memory is an instance of a module named "
        "after its shape; the modules are in moehub_rams.v.",
    ) = False,
    output: option(Path, "Folder; files go to <folder>/<preset>/.", "--output", "-o") = Path(
        "build"
    ),
):
    """Write the Verilog, its AXI wrapper, moehub.json (ports, sizes, maps, memories), registers,
    and files for tools."""
    cfg = configured(preset, settings)
    folder = output_folder(output / preset)
    for path in write_files(folder, texts_of(cfg, ram_modules).files()):
        print(path)
