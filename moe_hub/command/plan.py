# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub plan``."""

import typer

from sim.quality import testplan

from .options import flag

__all__ = ["plan"]


def plan(
    check: flag("--check", "Only compare; exit code 1 when the page is out of date.") = False,
):
    """Write docs/testplan.md from docs/testplan/*.toml."""
    raise typer.Exit(testplan.main(check))
