# SPDX-License-Identifier: Apache-2.0
"""How the hub grows: one size varied at a time, and the straight line through the lanes."""

from dataclasses import dataclass
from statistics import linear_regression

from hub_rtl.contract.config import ConfigError, preset

from .census import UNITS

__all__ = ["REFERENCE", "SWEEPS", "Line", "Sweep", "fit_line", "slice_and_shared", "reference"]

#: Slice, shared part and the whole hub are judged on this: preset and what is changed in it.
REFERENCE = ("nvl8", {"regions": 256})
_ONE = {"lanes": 1, "loop_lanes": 1}


def reference():
    """The configuration that area targets are judged on: 8 ranks, 256 regions, 18 links."""
    name, changes = REFERENCE
    return preset(name, **changes)


@dataclass(frozen=True)
class Sweep:
    """field: of HubConfig. values: it takes. changes: beside it, to preset ``nvl8``. axis: name of
    what is varied. scale: of values on the axis."""

    field: str
    values: tuple
    changes: dict
    axis: str
    scale: int = 1

    def configurations(self):
        """``[(value, HubConfig)]``. Raises ConfigError when the field cannot be varied."""
        return [
            (value, preset("nvl8", **self.changes, **{self.field: value})) for value in self.values
        ]

    def refusal(self):
        """Why this sweep cannot be run, or None."""
        try:
            self.configurations()
        except ConfigError as error:
            return str(error).partition(";")[0]
        return None


SWEEPS = {
    sweep.field: sweep
    for sweep in (
        Sweep("lanes", (1, 2, 3, 4, 6), {"loop_lanes": 1}, "slices"),
        Sweep("slice_bytes", (32, 64, 128), _ONE, "bytes of a slice"),
        Sweep("ranks", (2, 4, 8, 16, 32, 72), _ONE, "ranks"),
        Sweep("regions", (16, 64, 256, 1024), _ONE, "regions"),
        Sweep("rat_sets", (16, 64, 256, 1024), _ONE, "RAT entries of a slice", 4),
        Sweep("pool_depth", (16, 32, 64, 128), _ONE, "pool entries of a slice"),
    )
}


@dataclass(frozen=True)
class Line:
    """value = start + slope * x. r2: share of the variance it explains. worst: largest distance of
    a point from it, as a share of the point."""

    start: float
    slope: float
    r2: float
    worst: float


def fit_line(xs, ys):
    """The :class:`Line` of least squares through at least three points."""
    slope, start = linear_regression(xs, ys)
    off = [y - (start + slope * x) for x, y in zip(xs, ys, strict=True)]
    mean = sum(ys) / len(ys)
    spread = sum((y - mean) ** 2 for y in ys)
    return Line(
        start,
        slope,
        1 - sum(each**2 for each in off) / spread if spread else 1.0,
        max(abs(each / y) for each, y in zip(off, ys, strict=True)),
    )


def slice_and_shared(values, counts, cfg):
    """``(slice, shared, total)``: of one value per unit, those of one slice with its links, of all
    that is there once, and of the whole hub.

    Units of kind ``lane``, ``slice`` and ``loop`` are shared out evenly. What is left of the hub
    when the slices and the loopback slices are taken away is shared: all that joins them counts
    there.
    """
    sums = dict.fromkeys(("lane", "slice", "loop"), 0)
    for name, unit in UNITS.items():
        if unit.per in sums:
            sums[unit.per] += values.get(name, 0) * counts.get(name, 0)
    total = sum(values[name] * counts[name] for name in values)
    one = sums["lane"] / cfg.lanes + sums["slice"] / cfg.slices
    return one, total - sum(sums.values()), total
