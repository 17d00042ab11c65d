# SPDX-License-Identifier: Apache-2.0
"""Free to use: every source and every generated file carries the licence, and so does the
package."""

import json
import subprocess
import tomllib

import pytest

from flow.verilog.licence import LICENCE, SPDX
from hub_rtl.contract.config import preset
from sim.bench.runner import ROOT
from sim.generated import generated

SOURCES = (".py", ".toml", ".cpp", ".h", ".cff")
NAMES = ("Makefile", ".ci/run")


def tracked():
    """The files that git knows; where there is no repository (a source archive), all outside hidden
    folders and build/."""
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if known.returncode == 0:
        return [name for name in known.stdout.splitlines() if (ROOT / name).exists()]
    files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [
        str(path)
        for path in files
        if path.parts[0] in (".ci",) or path.parts[0][0] != "." and path.parts[0] != "build"
    ]


def test_every_source_says_its_licence():
    """In the first line; in the second one behind `#!` and behind what a tool wants to read in the
    first."""
    sources = [name for name in tracked() if name.endswith(SOURCES) or name in NAMES]
    assert len(sources) > 400
    missing = [
        name
        for name in sources
        if not any(line.endswith(SPDX) for line in (ROOT / name).read_text().splitlines()[:2])
    ]
    assert not missing, f"no line `{SPDX}`: {', '.join(missing)}"


@pytest.mark.parametrize("ram_modules", [False, pytest.param(True, marks=pytest.mark.night)])
def test_every_generated_file_says_its_licence(ram_modules):
    files = generated(preset("tiny"), ram_modules).files()
    assert json.loads(files.pop("moehub.json"))["license"] == LICENCE
    core = files.pop("moehub.core").splitlines()
    assert core[0] == "CAPI=2:" and core[1] == f"# {SPDX}"
    assert files.pop("moehub.xml").splitlines()[1] == f"<!-- {SPDX} -->"
    for name, text in files.items():
        assert text.splitlines()[0].strip("/*# ") == SPDX, name


def test_the_package_says_its_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == LICENCE and project["license-files"] == ["LICENSE"]
    assert (
        "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    )
    assert f"license: {LICENCE}" in (ROOT / "CITATION.cff").read_text()
