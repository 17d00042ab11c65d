# SPDX-License-Identifier: Apache-2.0
"""Worker processes that do not outlive who started them."""

import os
from multiprocessing import parent_process
from threading import Thread

__all__ = ["end_with_parent"]


def end_with_parent():
    """For the workers of a pool, at their start: each ends when its parent has, however that ended;
    one that was killed cannot tell them to."""
    Thread(target=_watch, daemon=True).start()


def _watch():
    parent_process().join()
    os._exit(1)
