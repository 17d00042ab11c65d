# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub plan``."""

from typing import Annotated

import typer

from sim.quality import testplan

__all__ = ["plan"]


def plan(
    check: Annotated[
        bool,
        typer.Option("--check", help="Only compare; exit code 1 when the page is out of date."),
    ] = False,
):
    """Write docs/testplan.md from docs/testplan/*.toml."""
    raise typer.Exit(testplan.main(check))
