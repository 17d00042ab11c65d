# SPDX-License-Identifier: Apache-2.0
"""The command line: what it writes, and how it fails."""

import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from flow.verilog import lint
from flow.verilog.generate import TOP
from flow.verilog.register_rdl import registers_systemrdl
from flow.verilog.register_text import registers_header, registers_markdown
from hub_rtl.contract.config import preset
from moe_hub.command.cli import app
from sim.bench.runner import ROOT
from sim.generated import generated

RUN = CliRunner()


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--preset", "huge"], "preset = 'huge': must be one of tiny, small, fpga, nvl8, nvl72"),
        (["--set", "lanes=0"], "lanes = 0: must be between 1 and 32"),
        (["--set", "lanes=many"], "lanes = 'many': must be an integer"),
        (["--set", "lanes"], "--set lanes: must be FIELD=VALUE"),
        (["--set", "colour=1"], "colour: no such field; the fields are "),
        (["--set", "pool_depth=12"], "pool_depth = 12: must be a power of two"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "registers", "lint"])
def test_bad_configuration(command, arguments, line, tmp_path):
    """One line on stderr that names field, value and rule; exit code 2; nothing written."""
    result = RUN.invoke(
        app, [command, *arguments, *(["-o", str(tmp_path)] if command == "generate" else [])]
    )
    assert result.exit_code == 2
    assert (
        result.stderr.startswith(f"moe-hub: {line}")
        and result.stderr.count("\n") == 1
        and result.stdout == ""
    )
    assert not list(tmp_path.iterdir())


def test_generate(tmp_path, monkeypatch):
    """Files and sidecar; what is asked for is the preset with what is set."""
    asked = []

    def texts(cfg, *more):
        asked.append(cfg)
        return generated(preset("tiny"))

    monkeypatch.setattr("moe_hub.verilog.texts_of", texts)
    result = RUN.invoke(
        app, ["generate", "--preset", "tiny", "-o", str(tmp_path), "--set", "tag_width=3"]
    )
    assert result.exit_code == 0
    names = [
        f"moehub{end}"
        for end in (
            ".v",
            "_axi.v",
            "_axi.vt",
            ".f",
            ".json",
            "_regs.h",
            ".rdl",
            ".sdc",
            ".vlt",
            "_tb.v",
            ".xml",
            ".core",
        )
    ]
    assert result.stdout.split() == [str(tmp_path / "tiny" / name) for name in names]
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == sorted(names)
    assert asked == [preset("tiny", tag_width=3)]
    side = json.loads((tmp_path / "tiny" / "moehub.json").read_text())
    assert side["parameters"]["tag_width"] == preset("tiny").tag_width
    assert (tmp_path / "tiny" / "moehub_regs.h").read_text() == registers_header(preset("tiny"))


def test_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    result = RUN.invoke(app, ["registers", "-o", str(tmp_path / "file" / "registers.md")])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "file" in result.stderr


def test_registers(tmp_path):
    assert RUN.invoke(app, ["registers", "--preset", "tiny"]).stdout == registers_markdown(
        preset("tiny")
    )
    assert RUN.invoke(
        app, ["registers", "--c-header", "--preset", "tiny"]
    ).stdout == registers_header(preset("tiny"))
    assert RUN.invoke(
        app, ["registers", "--systemrdl", "--preset", "tiny"]
    ).stdout == registers_systemrdl(preset("tiny"))
    assert RUN.invoke(app, ["registers", "--markdown", "-o", str(tmp_path / "r.md")]).exit_code == 0
    assert (tmp_path / "r.md").read_text() == registers_markdown(preset("small"))
    for both in (["--markdown", "--c-header"], ["--c-header", "--systemrdl"]):
        result = RUN.invoke(app, ["registers", *both])
        assert (
            result.exit_code == 2
            and result.stderr == "moe-hub: --markdown, --c-header, --systemrdl: choose one\n"
        )


def test_lint_says_what_it_waives(monkeypatch):
    """Clean text: exit code 0. A finding: shown, exit code 1. The waivers are printed with their
    reasons. (On the real Verilog: ``test_wheel.py``.)"""
    text = SimpleNamespace(sources=lambda: {f"{TOP}.v": ""})
    verb = importlib.import_module("moe_hub.command.lint")
    monkeypatch.setattr(verb, "texts_of", lambda cfg: text)
    monkeypatch.setattr(lint, "lint_verilog", lambda *given, **more: [])
    clean = RUN.invoke(app, ["lint", "--preset", "tiny"])
    assert clean.exit_code == 0 and clean.stdout.startswith("tiny: clean\n")
    assert all(name in clean.stdout for name in lint.WAIVED)
    monkeypatch.setattr(lint, "lint_verilog", lambda *given, **more: ["verilator: something"])
    found = RUN.invoke(app, ["lint", "--preset", "tiny"])
    assert found.exit_code == 1
    assert found.stdout.startswith("tiny: NOT clean\nverilator: something\n")


def test_help():
    """Runs as a program; help lists the commands and takes no warning."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "moe_hub", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == "" and all(
        name in result.stdout for name in ("generate", "lint", "registers")
    )
