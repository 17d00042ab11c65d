# SPDX-License-Identifier: Apache-2.0
"""``moe-hub test``: pytest's own names, and pytest's verdict."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from moe_hub.command.cli import app
from sim.bench.runner import ROOT


def order(*arguments, **env):
    return subprocess.run(
        [sys.executable, "-m", "moe_hub", "test", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | env,
    )


def test_lists_are_of_the_tests_there_are():
    """Every block with cocotb tests; of one of them the functions of its files, no other."""
    blocks = order().stdout.split()
    benches = {path.parent.name for path in (ROOT / "sim" / "cocotb").glob("*/tests.py")}
    # The wrapper is text around the hub, no block.
    assert set(blocks) == (benches - {"wrapper"}) | {"remote_fence"}
    names = order("refusals", "--list").stdout.splitlines()
    assert len(set(names)) == len(names)
    source = (ROOT / "tests" / "refusals" / "test_refusals.py").read_text()
    functions = {
        line[4:].partition("(")[0] for line in source.splitlines() if line[:8] == "def test"
    }
    assert {name.partition("[")[0] for name in names} == functions
    assert "test_reject_sender[odd]" in names
    wanted = [name for name in names if name.startswith("test_reject_sender[")]
    assert order("refusals", "test_reject_sender", "--list").stdout.splitlines() == wanted
    one = order("refusals", "test_reject_sender[odd]", "--list").stdout.splitlines()
    assert one == ["test_reject_sender[odd]"]


def test_verdict_is_pytests():
    passed = order("parts", "test_queue_depth_refused")
    assert passed.returncode == 0 and "1 passed" in passed.stdout
    failed = order("parts", "test_register", SIM="verlator")
    assert failed.returncode == 1
    assert "SIM = 'verlator': must be one of verilator, icarus" in failed.stdout


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["dance"], "block = 'dance': must be one of decoder, hub, "),
        (["parts", "dance"], "test = 'dance': must be one of `moe-hub test parts --list`"),
        (["parts", "--sim", "x"], "sim = 'x': must be one of verilator, icarus"),
        (["parts", "--seed", "-1"], "seed = -1: must be between 0 and 4294967295"),
        (
            ["parts", "test_register", "--sim", "icarus"],
            "not installed: iverilog (Debian package: iverilog)",
        ),
    ],
)
def test_wrong_orders_are_one_line(arguments, line, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    wrong = CliRunner().invoke(app, ["test", *arguments])
    assert wrong.exit_code == 2 and wrong.stderr.startswith(f"moe-hub: {line}")
    assert wrong.stderr.count("\n") == 1 and not wrong.stdout
