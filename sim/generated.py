# SPDX-License-Identifier: Apache-2.0
"""The generated texts of a hub, made once for all benches and tests that ask for them."""

import pickle
import time
import warnings

from flow.kept import digest, write

from .folders import BUILD, ROOT, lock

__all__ = ["generated"]

FOLDER = BUILD / "generated"
KEEP_SECONDS = 86400  # texts that nobody has asked for since then go


def generated(cfg, ram_modules=False):
    """As :func:`flow.verilog.generate.generate`, kept while no source file changes; Amaranth's
    warnings are errors."""
    folders = (ROOT / name for name in ("hub_rtl", "flow/verilog"))
    sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
    path = FOLDER / f"{digest(cfg, ram_modules, *(each.read_text() for each in sources))}.pickle"
    with lock(path.with_suffix(".lock")):
        if not path.exists():
            from flow.verilog.generate import generate

            with warnings.catch_warnings():
                warnings.simplefilter("error")
                write(path, pickle.dumps(generate(cfg, ram_modules)))
        path.touch()
        found = pickle.loads(path.read_bytes())
    for old in FOLDER.glob("*.pickle"):
        if time.time() - old.stat().st_mtime > KEEP_SECONDS:
            old.unlink(missing_ok=True)
    return found
