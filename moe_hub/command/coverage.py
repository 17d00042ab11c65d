# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub coverage``."""

from typing import Annotated

import typer

from sim.quality.code_coverage import BLOCKS, main

from .options import flag, one_of

__all__ = ["coverage"]


def coverage(
    blocks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BLOCK]...",
            parser=one_of(BLOCKS),
            show_default=False,
            help=f"Of {', '.join(BLOCKS)}; all by default.",
        ),
    ] = None,
    judge: flag("--judge", "Tell what the last run counted.") = False,
    missed: flag("--missed", "List the missed points.") = False,
):
    """Run all tests once more, counting bins, lines and branches; exit code 1 when a bin is
    missed."""
    raise typer.Exit(main(blocks or [], judge, missed))
