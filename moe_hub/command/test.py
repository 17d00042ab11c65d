# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub test``: pytest's names of a block's tests, and pytest run on some of them."""

import os
import subprocess
import sys
from typing import Annotated

import typer

from sim.bench import icarus
from sim.bench.runner import ROOT, SIMULATORS

from .console import fail
from .options import flag, number, one_of, option

__all__ = ["test"]

#: The blocks whose tests run cocotb benches.
BLOCKS = sorted(
    {
        path.parent.name
        for path in (ROOT / "tests").glob("*/test_*.py")
        if (ROOT / "hub_rtl" / path.parent.name).is_dir() and "run_bench(" in path.read_text()
    }
)


def _pytest(*arguments, **more):
    """Runs pytest in the repository."""
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], cwd=ROOT, **more)


def _collected(block):
    """The tests of a block, as pytest names them."""
    said = _pytest("--collect-only", f"tests/{block}", capture_output=True, text=True)
    if said.returncode:
        fail(f"{block}: pytest cannot collect it: {said.stdout}{said.stderr}", 1)
    return [line for line in said.stdout.splitlines() if "::" in line]


def _short(test):
    """What stands behind the file: ``test_writer[odd]``."""
    return test.partition("::")[2]


def test(
    block: Annotated[
        str | None,
        typer.Argument(
            metavar="BLOCK",
            parser=one_of(BLOCKS),
            show_default=False,
            help=f"Of {', '.join(BLOCKS)}; without one, they are listed.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="TEST",
            show_default=False,
            help="As --list says it, or with any parameters as said without its brackets; "
            "all tests of the block without.",
        ),
    ] = None,
    names: flag("--list", "List what would run, and end.") = False,
    sim: option(
        str, f"Simulator: {', '.join(SIMULATORS)}; SIM by default.", parser=one_of(SIMULATORS)
    ) = None,
    waves: flag("--waves", "Keep the waves, and say how to open them.") = False,
    seed: number(0, 2**32 - 1, "Of the random traffic; MOE_HUB_SEED by default.", "--seed") = None,
):
    """Run the tests of a block, all or one by name, with pytest; exit code 1 when one fails."""
    if block is None:
        print("\n".join(BLOCKS))
        return
    tests = _collected(block)
    if name is not None:
        tests = [each for each in tests if name in (_short(each), _short(each).partition("[")[0])]
        if not tests:
            fail(f"test = {name!r}: must be one of `moe-hub test {block} --list`")
    if names:
        print("\n".join(map(_short, tests)))
        return
    if sim == "icarus" and not icarus.available():
        fail(icarus.NOT_INSTALLED)
    asked = {"SIM": sim, "MOE_HUB_SEED": seed, "MOE_HUB_WAVES": "1" if waves else None}
    env = os.environ | {key: str(value) for key, value in asked.items() if value is not None}
    show = ["-s"] if waves else []  # where the waves are, also of what passes
    if _pytest(*show, *tests, env=env).returncode:
        raise typer.Exit(1)
