# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub generate``."""

from pathlib import Path

from flow.verilog.generate import TOP, named, write_files
from flow.verilog.generate import generate as texts_of

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
    name: option(
        str, "In place of moehub in all names, so that two hubs stand in one design."
    ) = TOP,
    output: option(Path, "Folder; files go to <folder>/<preset>/.", "--output", "-o") = Path(
        "build"
    ),
):
    """Write the Verilog, its AXI wrapper, moehub.json (ports, sizes, maps, memories), registers,
    and files for tools."""
    cfg = configured(preset, settings)
    named({}, name)  # a wrong one is told at once
    folder = output_folder(output / preset)
    for path in write_files(folder, named(texts_of(cfg, ram_modules).files(), name)):
        print(path)
