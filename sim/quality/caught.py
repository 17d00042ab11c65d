# SPDX-License-Identifier: Apache-2.0
"""Proof that a bench can fail: it runs on a design with a bug (:mod:`hub_rtl.parts.mutants`).

::

    def test_lost_item_is_noticed():
        bug = "parts.register_loses_spare"
        assert_caught(lambda: run_bench(StreamRegister(8), ..., bug=bug))
"""

import shutil

from sim.bench.runner import BenchFailure

__all__ = ["assert_caught"]

CATCHES = ("AssertionError", "SimTimeoutError")


def assert_caught(run):
    """Passes only if ``run()`` ends with a cocotb test that failed by an assertion or a timeout;
    returns the failed tests.

    A build error, a crash or a mistake in the test itself (AttributeError, ...) is not a catch.
    """
    try:
        run()
    except BenchFailure as failure:
        if any(kind in CATCHES for kind in failure.failed.values()):
            shutil.rmtree(
                failure.run, ignore_errors=True
            )  # this failure is wanted, nobody will look at its log
            return list(failure.failed)
        raise
    raise AssertionError("the bug was not caught: every test passed")
