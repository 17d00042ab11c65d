# SPDX-License-Identifier: Apache-2.0
"""What took long to compute is kept under a key of everything that it came from."""

import hashlib
import json
import os
from pathlib import Path

__all__ = ["digest", "keep", "recall", "write"]


def digest(*texts, length=16):
    """So many characters of a hash of texts, in their order."""
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()[:length]


def write(path, text):
    """Writes a file of text or bytes, its folder made if need be; who reads it meanwhile finds the
    old one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_bytes(text if isinstance(text, bytes) else text.encode())
    scratch.rename(path)


def keep(path, key, figures):
    """Keeps ``figures``, which came from what ``key`` says, in the file ``path``; returns them."""
    write(path, json.dumps({"key": key, "figures": figures}))
    return figures


def recall(path, key):
    """The figures that were kept in the file if they came from what ``key`` says, or None."""
    if path.exists() and (known := json.loads(path.read_text()))["key"] == key:
        return known["figures"]
    return None
