# SPDX-License-Identifier: Apache-2.0
"""Files that are written, so that an error names the file."""

import tempfile
from pathlib import Path

__all__ = ["output_folder", "write_text"]


def write_text(path, text):
    """Writes a file, its folder made if need be; an OSError names the file, also when the disk is
    full."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def output_folder(folder):
    """Makes the folder and tries to write into it: a long run should not find out at its end.
    Raises OSError."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder
