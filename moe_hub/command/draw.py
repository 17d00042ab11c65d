# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub draw``."""

import sys

import typer

from moe_hub.files import write_text
from sim.drawings.pictures import FOLDER, pictures

from .options import flag

__all__ = ["draw"]


def draw(
    check: flag("--check", "Only compare; exit code 1 when a drawing is out of date.") = False,
):
    """Draw the symbols and timing diagrams of the blocks' pages anew, from a simulated row."""
    files = {FOLDER / name: text for name, text in pictures().items()}
    stale = [path for path, text in files.items() if not _same(path, text)]
    if check:
        for path in stale:
            print(f"{path.name}: not as drawn from this design: moe-hub draw", file=sys.stderr)
        raise typer.Exit(1 if stale else 0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in stale:
        write_text(path, files[path])
    print(f"{len(stale)} of {len(files)} drawings in {FOLDER} written")


def _same(path, text):
    return path.exists() and path.read_text() == text
