"""The console that commands print their tables on."""

import os
import sys

from rich.console import Console

__all__ = ["table_console"]

PIPE_COLUMNS = 160


def table_console():
    """A ``rich.console.Console`` on stdout: as wide as the terminal, or as ``COLUMNS`` says; in a pipe or file wide enough that
    no name is cut (160 columns)."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else PIPE_COLUMNS)
