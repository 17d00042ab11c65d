# SPDX-License-Identifier: Apache-2.0
"""What commands say: their tables, their progress, and why one failed."""

import os
import sys
import time

import typer
from rich.console import Console

__all__ = ["Progress", "fail", "table_console"]

PIPE_COLUMNS = 160


def table_console():
    """A ``rich.console.Console`` on stdout: as wide as the terminal, or as ``COLUMNS`` says; in a
    pipe or file wide enough that no name is cut (160 columns)."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else PIPE_COLUMNS)


def fail(text, code=2, command="moe-hub"):
    """Ends the command: one line on stderr, then the exit code. 2: the order was wrong, nothing was
    done; 1: what was done failed."""
    print(f"{command}: {text}", file=sys.stderr)
    raise typer.Exit(code)


class Progress:
    """What a long command is doing, on stderr: on a terminal one line that changes; elsewhere (a
    log, a pipe) a line for each stage and at most one per ``period`` seconds in between. To be used
    in a ``with``."""

    def __init__(self, period=10.0):
        self._console = Console(stderr=True)
        self._period, self._last = period, time.monotonic()
        self._bar = self._task = None
        if self._console.is_terminal:
            # Slow to import, and no verb that answers at once needs it.
            from rich import progress as bars

            self._bar = bars.Progress(
                bars.SpinnerColumn(),
                bars.TextColumn("{task.description}"),
                bars.TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )

    def __enter__(self):
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("")
        return self

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.stop()

    def stage(self, text):
        """Something else begins."""
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        else:
            print(text, file=sys.stderr, flush=True)
        self._last = time.monotonic()

    def note(self, text):
        """Something to keep: it stays on a terminal too."""
        if self._bar is not None:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            self.stage(text)

    def show(self, text):
        """How far it is; may be called often."""
        if self._bar is not None or time.monotonic() - self._last >= self._period:
            self.stage(text)
