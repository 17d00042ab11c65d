# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub generate``."""

from pathlib import Path

from flow.verilog.generate import TOP, named
from hub_rtl.contract.config import preset as preset_of
from moe_hub.files import output_folder
from moe_hub.verilog import generate as verilog

from .options import PresetOption, SettingsOption, changes_of, flag, option

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
    src: flag(
        "--src", "Modules, signals and cells say which line of the source they are from."
    ) = False,
    output: option(Path, "Folder; files go to <folder>/<preset>/.", "--output", "-o") = Path(
        "build"
    ),
):
    """Write the Verilog, its AXI wrapper, moehub.json (ports, sizes, maps, memories), registers,
    and files for tools."""
    changes = changes_of(settings)
    preset_of(preset, **changes), named({}, name)  # a wrong one makes no folder
    folder = output_folder(output / preset)
    hub = verilog(preset, changes=changes, ram_modules=ram_modules, name=name, source=src)
    for path in hub.write(folder):
        print(path)
