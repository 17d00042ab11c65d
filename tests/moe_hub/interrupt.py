# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C for a real process."""

import signal
import subprocess
import sys

from sim.bench.runner import ROOT


def interrupt(script, said):
    """Runs a script of Python, which says ``said`` and then works; a real signal ends it with one
    line."""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Who runs the tests in the background may have it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == f"{said}\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "moe-hub: interrupted\n"
    assert process.returncode == 130
