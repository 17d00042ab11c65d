# SPDX-License-Identifier: Apache-2.0
"""Where the project is and where it builds, and locks between processes that build there."""

import contextlib
import fcntl
from pathlib import Path

__all__ = ["BUILD", "ROOT", "lock"]

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"


@contextlib.contextmanager
def lock(path):
    """Holds an exclusive lock on the file ``path`` over processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
