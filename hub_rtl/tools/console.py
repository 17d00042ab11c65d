"""What commands say: their tables, and why one failed."""

import os
import sys

import typer
from rich.console import Console

__all__ = ["fail", "table_console"]

PIPE_COLUMNS = 160


def table_console():
    """A ``rich.console.Console`` on stdout: as wide as the terminal, or as ``COLUMNS`` says; in a pipe or file wide enough that
    no name is cut (160 columns)."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else PIPE_COLUMNS)


def fail(text, code=2, command="moe-hub"):
    """Ends the command: one line on stderr, then the exit code. 2: the order was wrong, nothing was done; 1: what was done
    failed."""
    print(f"{command}: {text}", file=sys.stderr)
    raise typer.Exit(code)
