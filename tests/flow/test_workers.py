# SPDX-License-Identifier: Apache-2.0
"""Workers of a pool end with who started them."""

import os
import signal
import subprocess
import sys
import time

import pytest

POOL = """
import os, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from flow.workers import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, get_context(sys.argv[1]), end_with_parent)
    print(*{future.result() for future in [pool.submit(os.getpid) for _ in range(8)]}, flush=True)
    print(*pool._processes, flush=True)
    pool.submit(time.sleep, 600)
    time.sleep(600)
"""


def alive(process):
    """Whether a process is there and no zombie."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_workers_end_with_a_parent_that_is_killed(tmp_path, context):
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with subprocess.Popen(
        [sys.executable, script, context],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
    ) as parent:
        parent.stdout.readline()
        workers = list(map(int, parent.stdout.readline().split()))
        assert len(workers) == 2 and all(map(alive, workers))
        os.kill(parent.pid, signal.SIGKILL)
    until = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    left = [worker for worker in workers if alive(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert not left
