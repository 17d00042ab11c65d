# SPDX-License-Identifier: Apache-2.0
"""Programs that come in Python packages: found by the package, wherever it was installed to (an
environment, a user's folder, a path of one's own)."""

import importlib.util
import os
import shlex
import sys
from importlib.metadata import entry_points
from pathlib import Path

__all__ = ["package_folder", "script_command", "write_program"]


def package_folder(package):
    """The folder of a package, or None where it is not installed."""
    spec = importlib.util.find_spec(package)
    return Path(next(iter(spec.submodule_search_locations))) if spec else None


def script_command(name):
    """Command line of a package's console script. Raises FileNotFoundError."""
    for entry in entry_points(group="console_scripts", name=name):
        call = f"import sys; from {entry.module} import {entry.attr}; sys.exit({entry.attr}())"
        return [sys.executable, "-c", call]
    raise FileNotFoundError(f"{name}: no installed package has such a program")


def write_program(path, command):
    """Writes a program to ``path`` that runs ``command`` with its own arguments behind; returns its
    absolute path."""
    text = f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n'
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.{os.getpid()}")  # others may be running it
        scratch.write_text(text)
        scratch.chmod(0o755)
        scratch.rename(path)
    return path.resolve()
