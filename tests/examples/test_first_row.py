# SPDX-License-Identifier: Apache-2.0
"""``docs/first_row.md`` does what it says: its own commands, run in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from sim.bench.runner import ROOT

PAGE = (ROOT / "docs/first_row.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
SETUP = "make setup\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree, with the tools that set-up has made already."""
    folder = tmp_path_factory.mktemp("clone") / "moe-hub"
    shutil.copytree(ROOT, folder, ignore=LEFT_BEHIND)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def follow(commands, tree, **environment):
    """What the commands print, one after the other in one shell that stops at the first failure."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["sh", "-e", "-c", "".join(commands)],
        cwd=tree,
        env=clean | environment,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, f"{''.join(commands)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def printed():
    """The lines that the page shows of the end of the run."""
    shown = re.search(r"^```\n(READY: .*?)^```$", PAGE, re.M | re.S)[1]
    return [line for line in shown.splitlines() if line != "..."]


def test_page(tree):
    """Every command of the page, literally; it ends with READY and ALL as the page shows them."""
    setup, *commands = COMMANDS
    assert setup == SETUP
    assert re.search(r"^setup:", (ROOT / "Makefile").read_text(), re.M)
    lines = follow(commands, tree).splitlines()
    at = [lines.index(line) for line in printed()]
    assert at == sorted(at) and len(at) == 3


@pytest.mark.skipif(not shutil.which("iverilog"), reason="not installed: Debian package iverilog")
def test_icarus(tree):
    """The same under Icarus, of which the page says how."""
    generate, run = COMMANDS[1:]
    assert "`SIM=icarus`" in PAGE
    commands = [] if (tree / "build/tiny").exists() else [generate]
    assert set(printed()) <= set(follow([*commands, run], tree, SIM="icarus").splitlines())


def test_page_shows_the_code_that_runs():
    """Each listing is a piece of the file that it names."""
    pieces = re.findall(r"^<!-- from: (\S+) -->\n```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(pieces) == PAGE.count("```python")
    for path, piece in pieces:
        assert piece in (ROOT / path).read_text(), piece


def test_what_is_missing_is_named(tmp_path):
    """Without Icarus, or without Verilog, the example says so in one line."""
    run = [sys.executable, ROOT / "examples/first_row/run.py"]
    nothing = subprocess.run([*run, tmp_path], capture_output=True, text=True)
    assert nothing.returncode == 1
    assert nothing.stderr == (
        f"FOLDER = {tmp_path}: must be one that `moe-hub generate` has written\n"
    )
    (tmp_path / "moehub_axi.v").touch()
    empty = dict(os.environ, PATH=str(tmp_path), SIM="icarus")
    icarus = subprocess.run([*run, tmp_path], capture_output=True, text=True, env=empty)
    assert icarus.stderr == "not installed: Icarus Verilog (Debian package: iverilog)\n"
