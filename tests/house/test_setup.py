# SPDX-License-Identifier: Apache-2.0
"""Set-up: the lock is exact, complete and installed, every `make` target named in a document
exists, missing tools are named."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from sim.bench.runner import ROOT, BenchError, verilator_env

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: What the project needs, with all that `make` does; extra `cluster` is for other machines.
NEEDED = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *(EXTRAS[name] for name in EXTRAS if name != "cluster"))
    for text in texts
]
LIBRARIES = [each for each in NEEDED if each.name != PROJECT["name"]]
LOCK = [
    Requirement(line)
    for line in (ROOT / "requirements.lock").read_text().splitlines()
    if line and not line.startswith("#")
]
LOCKED = {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in LOCK}


def make(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**clean, **environment},
    )


def targets():
    return set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("pin", LOCK, ids=lambda each: each.name)
def test_the_lock_is_exact_and_installed(pin):
    """One version of each, by name alone: no address, no host."""
    assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)) and not pin.url
    assert importlib.metadata.version(pin.name) == LOCKED[canonicalize_name(pin.name)]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda each: each.name)
def test_the_lock_is_within_the_ranges(library):
    """What the code needs is a range, with a lower and, where a new one may break it, an upper
    end."""
    assert library.specifier.contains(LOCKED[canonicalize_name(library.name)])
    assert not any(each.operator == "==" for each in library.specifier)


def test_the_lock_is_complete():
    """What the locked ones bring is locked too, and nothing else is."""
    wanted, found = {canonicalize_name(each.name): each.extras for each in LIBRARIES}, set()
    while wanted:
        name, extras = wanted.popitem()
        found.add(name)
        for text in importlib.metadata.requires(name) or ():
            need = Requirement(text)
            here = [{"extra": extra} for extra in extras] or [{"extra": ""}]
            if need.marker and not any(need.marker.evaluate(each) for each in here):
                continue
            if (other := canonicalize_name(need.name)) not in found:
                wanted[other] = need.extras | wanted.get(other, set())
    assert found == set(LOCKED)


def test_the_lock_is_for_the_oldest_python():
    """The first release of the oldest version that may be: distributions stay near the one they
    began with, and there nothing could be installed at all."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    asked = {
        each.name: importlib.metadata.metadata(each.name).get("Requires-Python") for each in LOCK
    }
    too_new = {name for name, text in asked.items() if oldest not in SpecifierSet(text or "")}
    assert not too_new


def test_every_library_has_a_reason():
    """A comment above it, the same in both files."""
    reasons = {}
    for file, entry in (
        ("pyproject.toml", r'"([a-z0-9-]+).*[>=]='),
        ("requirements.lock", r"(.+)=="),
    ):
        above = []
        for line in (ROOT / file).read_text().splitlines():
            found = re.match(entry, line.strip())
            if found:
                name = found.group(1).partition("[")[0]
                reasons.setdefault(name, []).append([each.strip() for each in above])
            above = [*above, line] if line.strip().startswith("#") else []
    for library in LIBRARIES:
        first, second = reasons[library.name]
        assert first and first == second, library.name


def test_extra_dev_is_everything():
    [whole] = [Requirement(text) for text in EXTRAS["dev"] if text.startswith(PROJECT["name"])]
    assert whole.extras == set(EXTRAS) - {"dev", "cluster"}


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
            (tmp_path / name).symlink_to(
                "/usr/bin/true" if name in ("perl", "g++") else shutil.which(name)
            )
    result = make("tools", PATH=str(tmp_path), PYTHON="true")
    assert (
        result.returncode
        and f"missing: {tool} (Debian package: {package})" in result.stdout.splitlines()
    )


def test_old_python_is_named():
    result = make("tools", "PYTHON=")
    assert (
        result.returncode
        and "missing: Python 3.11 or newer (Debian package: python3)" in result.stdout.splitlines()
    )


def test_setup_takes_the_lock(tmp_path):
    """Anew when either file changes: the lock's versions, then the project without asking for
    more."""

    def installs(*changed):
        said = make("-n", "setup", *changed, f"VENV={tmp_path}", "PYTHON=true").stdout
        return re.findall(r"pip install .*", said)

    (tmp_path / ".ready").touch()
    assert not installs()
    for newer in ("pyproject.toml", "requirements.lock"):
        first, second = installs("-W", newer)
        assert first.endswith("--requirement requirements.lock")
        assert second.endswith("--no-deps --no-build-isolation --editable .")


def test_ci_runs_what_a_developer_runs():
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_old_verilator_is_refused(monkeypatch, tmp_path):
    tool = tmp_path / "verilator"
    monkeypatch.setenv("MOE_HUB_VERILATOR", "system")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for text, fits in (
        ("Verilator 5.006 2023-01-22", False),
        ("Verilator 5.036 2025-04-27", True),
        ("nonsense", False),
    ):
        tool.write_text(f"#!/bin/sh\necho '{text}'\n")
        tool.chmod(0o755)
        if fits:
            assert verilator_env()["PATH"].startswith(str(tmp_path))
        else:
            with pytest.raises(
                BenchError, match=f"^cocotb needs Verilator 5.036 or newer; the system has: {text}$"
            ):
                verilator_env()
