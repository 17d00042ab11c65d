# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub bins``."""

import typer

from sim.quality import coverage

from .options import flag

__all__ = ["bins"]


def bins(
    short: flag("--short", "Only the missed bins and the total; never a failure.") = False,
):
    """List the coverage bins of the test plan and which tests hit them; exit code 1 while one is
    missed."""
    if coverage.report(short=short) and not short:
        raise typer.Exit(1)
