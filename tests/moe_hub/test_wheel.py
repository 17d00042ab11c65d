# SPDX-License-Identifier: Apache-2.0
"""The wheel: what it holds, and every verb of it in an environment that knows nothing of this
repository.

The environment is a fresh one with the wheel alone; the libraries are those of the one the tests
run in, through a line in a ``.pth`` file, so that neither network nor minutes are needed. Such a
line does not run that environment's own ``.pth`` files: the project as installed there stays
unseen.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest

from flow.verilog.lint import WAIVED
from flow.verilog.register_text import registers_markdown
from hub_rtl.contract.config import preset
from moe_hub.command.verbs import VERBS
from sim.bench.runner import ROOT
from sim.generated import generated

PACKAGES = ("flow", "hub_rtl", "moe_hub")
#: All that a builder finds: also what must stay out of the wheel.
FOUND = (*PACKAGES, "formal", "sim", "tests", "pyproject.toml", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def run(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: a builder leaves its files where it works."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in FOUND:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source)
    run(*PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def call(wheel, tmp_path_factory):
    """Runs ``moe-hub`` as installed from the wheel, in an empty folder."""
    place = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", place / "env")
    python, here = place / "env" / "bin" / "python", place / "here"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    [site] = place.glob("env/lib/*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    here.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def program(*arguments):
        return subprocess.run(
            [place / "env" / "bin" / "moe-hub", *arguments],
            cwd=here,
            env=clean,
            capture_output=True,
            text=True,
        )

    program.folder = here
    names = (
        "import hub_rtl, flow, moe_hub; print(hub_rtl.__file__, flow.__file__, moe_hub.__file__)"
    )
    read = run(python, "-c", names, cwd=here, env=clean).stdout.split()
    assert [Path(each).parents[1] for each in read] == [site] * 3
    absent = "import importlib.util as u; print(u.find_spec('sim'), u.find_spec('formal'))"
    assert run(python, "-c", absent, cwd=here, env=clean).stdout == "None None\n"
    return program


def test_what_the_wheel_holds(wheel):
    """Every file of the three packages, as it is here, and nothing else."""
    expected = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as file:
        held = {name: file.read(name) for name in file.namelist() if ".dist-info/" not in name}
        [about] = [name for name in file.namelist() if name.endswith("/METADATA")]
        folders = {name.split("/")[0] for name in file.namelist()}
        assert folders == {*PACKAGES, about.split("/")[0]}
        assert file.read(about.replace("METADATA", "licenses/LICENSE"))
    assert held == expected


def test_what_the_wheel_says(wheel, call):
    """Its extras, and that little is needed without them."""
    [about] = call.folder.parent.glob("env/lib/*/site-packages/moe_hub-*.dist-info")
    said = Distribution.at(about)
    assert said.metadata["License-Expression"] == "Apache-2.0"
    assert set(said.metadata.get_all("Provides-Extra")) == {
        "fpga",
        "formal",
        "evaluate",
        "dev",
        "cluster",
    }
    needed = [each for each in said.requires if "extra ==" not in each]
    for library in ("numpy", "matplotlib", "cocotb", "pytest"):
        assert not any(each.startswith(library) for each in needed)
    done = call("--version")
    assert (done.returncode, done.stdout) == (0, f"moe-hub {version('moe-hub')}\n")


def test_generate(call):
    """The same bytes as from the repository."""
    done = call("generate", "--preset", "tiny")
    assert (done.returncode, done.stderr) == (0, "")
    made = {path.name: path.read_text() for path in (call.folder / "build" / "tiny").iterdir()}
    assert made == generated(preset("tiny")).files()


@pytest.mark.night
def test_lint(call):
    done = call("lint", "--preset", "tiny")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("tiny: clean\n")
    assert all(name in done.stdout for name in WAIVED)


def test_registers(call):
    done = call("registers", "--preset", "tiny")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == registers_markdown(preset("tiny"))


@pytest.mark.night
def test_synth(call):
    """The smallest part, through Yosys, place and route."""
    done = call("synth", "decoder", "--preset", "tiny", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert (call.folder / "build" / "synth" / "tiny" / "synth.json").exists()
    assert "decoder" in done.stdout and done.stderr.endswith("decoder, ecp5\n")


@pytest.mark.night
def test_fpga(call):
    """For a board of a vendor's tool: the sources, the pins and the script."""
    done = call("fpga", "--board", "arty_a7_100", "--rounds", "1", "--rows", "8")
    assert (done.returncode, done.stderr) == (0, "")
    made = {path.name for path in (call.folder / "build" / "fpga" / "arty_a7_100").iterdir()}
    assert {f"moehub_selftest.{end}" for end in ("v", "xdc", "tcl")} <= made
    assert "build_moehub_selftest.sh" in made and "vendor's tool" in done.stdout


@pytest.mark.parametrize("verb", [each.name for each in VERBS if each.checkout])
def test_verbs_of_the_repository(call, verb):
    """One line, and nothing is made."""
    before = sorted(call.folder.rglob("*"))
    done = call(verb)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"moe-hub: {verb}: needs a checkout of the repository, installed from there\n",
    )
    assert sorted(call.folder.rglob("*")) == before
