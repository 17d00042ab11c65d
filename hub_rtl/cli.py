"""Command line: ``moe-hub generate``, ``lint``, ``registers``, ``synth``, ``fpga``; and what else of the project is there."""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from .config import PRESETS, ConfigError
from .fpga.cli import fpga
from .synth.cli import synth
from .tools.console import fail
from .tools.options import PresetOption, SettingsOption, configured

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="MoE-Hub: a GPU hub for Mixture-of-Experts communication, in Verilog.")

def _configured(name, settings):
    try:
        return configured(name, settings)
    except ConfigError as error:
        fail(error)


def _texts(cfg, ram_modules=False):
    from .tools.generate import generate as texts_of
    try:
        return texts_of(cfg, ram_modules)
    except ConfigError as error:
        fail(error)


def _write(folder, files):
    from .tools.generate import write_files
    try:
        return write_files(folder, files)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")


@app.command()
def generate(preset: PresetOption = "small", settings: SettingsOption = None,
             ram_modules: Annotated[bool, typer.Option("--ram-modules", help="Each memory is an instance of a module named "
                                                       "after its shape; the modules are in moehub_rams.v.")] = False,
             output: Annotated[Path, typer.Option("--output", "-o",
                                                  help="Folder; files go to <folder>/<preset>/.")] = Path("build")):
    """Write the Verilog, its AXI wrapper, moehub.json (ports, sizes, maps, memories), registers, and files for tools."""
    for path in _write(output / preset, _texts(_configured(preset, settings), ram_modules).files()):
        print(path)


@app.command()
def lint(preset: Annotated[str | None, typer.Option("--preset", "-p", help="Only this one; all by default.")] = None,
         settings: SettingsOption = None):
    """Check the Verilog and its AXI wrapper with Verilator and Yosys; exit code 1 on a finding."""
    from .tools.axi_wrapper import AXI_TOP
    from .tools.generate import TOP
    from .tools.lint import WAIVED, lint_verilog
    found = False
    for cfg in [_configured(name, settings) for name in ([preset] if preset else PRESETS)]:
        around = _texts(cfg).sources()
        findings = lint_verilog(around.pop(f"{TOP}.v"), TOP, around=around, top=AXI_TOP)
        print(f"{cfg.name}: {'clean' if not findings else 'NOT clean'}")
        for finding in findings:
            print(finding)
        found |= bool(findings)
    print("waived: " + "; ".join(f"{name} ({reason})" for name, reason in WAIVED.items()))
    if found:
        raise typer.Exit(1)


@app.command()
def registers(preset: PresetOption = "small", settings: SettingsOption = None,
              markdown: Annotated[bool, typer.Option("--markdown", help="The manual, in Markdown.")] = False,
              c_header: Annotated[bool, typer.Option("--c-header", help="The C header.")] = False,
              systemrdl: Annotated[bool, typer.Option("--systemrdl", help="SystemRDL, for register tools.")] = False,
              output: Annotated[Path | None, typer.Option("--output", "-o",
                                                          help="File to write; standard output by default.")] = None):
    """Print the register manual, the C header or the SystemRDL."""
    from .tools.register_rdl import registers_systemrdl
    from .tools.register_text import registers_header, registers_markdown
    if markdown + c_header + systemrdl > 1:
        fail("--markdown, --c-header, --systemrdl: choose one")
    cfg = _configured(preset, settings)
    text = (registers_header if c_header else registers_systemrdl if systemrdl else registers_markdown)(cfg)
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output.parent, {output.name: text})


app.command()(synth)
app.command()(fpga)

if importlib.util.find_spec("sim") and importlib.util.find_spec("sim.run_cli"):
    from sim import run_cli

    for command in ("run", "bench", "lanes"):
        app.command(command)(getattr(run_cli, command))

if importlib.util.find_spec("sim") and importlib.util.find_spec("sim.evaluate"):
    from sim.evaluate.cli import evaluate

    app.command()(evaluate)

if importlib.util.find_spec("formal"):
    from formal.cli import formal

    app.command()(formal)


def main():
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
