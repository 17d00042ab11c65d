# SPDX-License-Identifier: Apache-2.0
"""Names of systems and texts of numbers on the results page."""

from sim.evaluate.schemes import SCHEMES

__all__ = ["NAMES", "error", "mean", "number", "percent", "ratio"]

_BY_PLACE = sorted(SCHEMES.items(), key=lambda item: item[1].place)
#: As the systems' authors write them, in the order of the page.
NAMES = {name: scheme.title for name, scheme in _BY_PLACE}


def ratio(value, digits=2):
    """A speed-up."""
    return f"{float(value):.{digits}f}"


def number(value, digits=0):
    """A number with thousands separated, ``digits`` behind the point where it is below 1,000."""
    value = float(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.{digits}f}"


def percent(value):
    """A percentage without sign."""
    return f"{float(value):.1f}"


def error(ours, published):
    """Relative error in per cent, with its sign."""
    return f"{100 * (float(ours) / float(published) - 1):+.1f}"


def mean(values):
    """Arithmetic mean."""
    return sum(values) / len(values)
