# SPDX-License-Identifier: Apache-2.0
"""Programs of the benches: built once per Verilog text, kept in ``build/cocotb/<name>``."""

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from sim.folders import BUILD, lock

__all__ = ["PROGRAMS", "BenchError", "command", "program", "tail"]

PROGRAMS = BUILD / "cocotb"
KEEP_BUILDS = 4  # programs of older Verilog texts kept per bench
KEEP_SECONDS = (
    1800  # ... and none is removed that was used this recently: somebody may be running it
)


class BenchError(RuntimeError):
    """The bench could not run: Verilog, build, import or crash. Not a verdict on the design."""


def command(cmd, env, log):
    """Runs a command of a build; what it says goes to the end of the file ``log``. Raises
    BenchError."""
    with open(log, "a") as file:
        code = subprocess.run(
            [str(part) for part in cmd], env=env, stdout=file, stderr=subprocess.STDOUT
        ).returncode
    if code:
        raise BenchError(f"build failed, see {log}:\n{tail(log)}")


def tail(path, lines=40):
    """The last lines of a log."""
    return "\n".join(Path(path).read_text(errors="replace").splitlines()[-lines:])


def program(text, name, kind, build):
    """Folder with the program for this Verilog text; ``build(source, log)`` makes it in the folder
    of ``source`` if there is none yet. ``kind``: all else that it depends on; ``name``: the
    bench's, or of a part that several have (``parts/<module>``)."""
    key = hashlib.sha256(repr((text, kind)).encode()).hexdigest()[:12]
    folder = PROGRAMS / name / key
    with lock(PROGRAMS / name / f"{key}.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            source = folder / f"{Path(name).name}.v"
            source.write_text(text)
            build(source, folder / "build.log")
            (folder / "done").touch()
        os.utime(folder)
    _prune(folder.parent)
    return folder


def _prune(folder):
    old = sorted(
        (path for path in folder.iterdir() if (path / "done").exists()),
        key=lambda path: path.stat().st_mtime,
    )
    for path in old[:-KEEP_BUILDS]:
        if time.time() - path.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
