"""Set-up: the pins are exact and installed, every `make` target named in a document exists, missing tools are named."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib

import pytest

from sim.bench.runner import ROOT, BenchError, verilator_env

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def make(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True, text=True,
                          env={**clean, **environment})


def targets():
    return set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_pins_are_exact_and_installed(requirement):
    name, version = re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z-]+\])?==([0-9.]+(?:post[0-9]+)?)", requirement).groups()
    assert importlib.metadata.version(name) == version


def test_every_pin_has_a_reason():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for n, line in enumerate(lines):
        if re.match(r'    "[a-z0-9-]+.*==', line):
            assert lines[n - 1].strip().startswith("#"), line


def test_help_lists_every_target():
    assert {"demo", "test", "smoke", "verilog", "bench", "lint", "clean", "help"} <= targets()
    shown = make("help").stdout
    assert {line.split()[1] for line in shown.splitlines()} == targets()


def test_documents_name_real_targets():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z]+)", path.read_text()):
            assert name in targets(), f"{path.relative_to(ROOT)}: make {name}"


@pytest.mark.parametrize("tool, package", [("perl", "perl"), ("g++", "g++")])
def test_missing_tool_is_named(tool, package, tmp_path):
    for name in ("sh", "make", "perl", "g++", "python3"):
        if name != tool:
            (tmp_path / name).symlink_to("/usr/bin/true" if name in ("perl", "g++") else shutil.which(name))
    result = make("tools", PATH=str(tmp_path), PYTHON="true")
    assert result.returncode and f"missing: {tool} (Debian package: {package})" in result.stdout.splitlines()


def test_old_python_is_named():
    result = make("tools", "PYTHON=")
    assert result.returncode and "missing: Python 3.11 or newer (Debian package: python3)" in result.stdout.splitlines()


def test_ci_runs_what_a_developer_runs():
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_old_verilator_is_refused(monkeypatch, tmp_path):
    tool = tmp_path / "verilator"
    monkeypatch.setenv("MOE_HUB_VERILATOR", "system")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for text, fits in (("Verilator 5.006 2023-01-22", False), ("Verilator 5.036 2025-04-27", True), ("nonsense", False)):
        tool.write_text(f"#!/bin/sh\necho '{text}'\n")
        tool.chmod(0o755)
        if fits:
            assert verilator_env()["PATH"].startswith(str(tmp_path))
        else:
            with pytest.raises(BenchError, match=f"^cocotb needs Verilator 5.036 or newer; the system has: {text}$"):
                verilator_env()
