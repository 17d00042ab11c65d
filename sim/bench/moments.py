# SPDX-License-Identifier: Apache-2.0
"""Tests in which two events meet at every distance."""

__all__ = ["turning_point"]


def turning_point(results, before, behind):
    """The results are ``before`` up to some distance and ``behind`` from it on; returns that
    distance, which is not 0."""
    first = results.index(behind)
    assert first and results == [before] * first + [behind] * (len(results) - first), results
    return first
