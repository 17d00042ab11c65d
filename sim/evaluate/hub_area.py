# SPDX-License-Identifier: Apache-2.0
"""Area of a hub from the table of measured ones, ``data/hub_area.json``, which ``moe-hub explore
--measure`` writes (``flow/synth/area_table.py``).

A hub is the sum of its units, as in ``make ppa ARGS="--only units"``. Between two measured hubs
with the same slices, what is there once grows linearly with slices; between two measured sizes of a
pool its gates and bits grow linearly with the size. Nothing is told beyond what was measured.
"""

import json
from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from flow.synth.census import UNITS
from sim.evaluate.machine.hardware import load_data

__all__ = ["FILE", "Area", "AreaTable", "Built", "NotMeasured", "area_table"]

FILE = Path(__file__).parent / "data" / "hub_area.json"
#: Units with a size of their own, and the field that it is.
POOLS = {"packet_manager": "pool_depth", "receive_pool": "pool_places"}


class NotMeasured(ValueError):
    """The table does not reach to this hub; one line says where it ends."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """What of a hub both the table and the network model know; fields of ``HubConfig``."""

    lanes: int
    loop_lanes: int
    slice_links: int
    slice_bytes: int
    pool_depth: int
    pool_places: int

    @property
    def kind(self):
        """Of its slices."""
        return self.slice_links, self.slice_bytes

    @property
    def slices(self):
        return self.lanes + self.loop_lanes

    @property
    def options(self):
        """As ``NetworkSettings.of`` takes them."""
        return tuple(asdict(self).items())

    def instances(self, per):
        """Of a unit of :data:`flow.synth.census.UNITS`."""
        return {"lane": self.lanes, "slice": self.slices, "loop": self.loop_lanes}.get(per, 1)


@dataclass(frozen=True)
class Area:
    """``kge``: thousands of NAND2 equivalents, memories apart. ``bits``: of memories;
    ``small_bits``: of those under 1,024 bits, which are registers. They can be added and scaled."""

    kge: float = 0.0
    bits: float = 0.0
    small_bits: float = 0.0

    def __add__(self, other):
        return Area(
            self.kge + other.kge, self.bits + other.bits, self.small_bits + other.small_bits
        )

    def __mul__(self, times):
        return Area(self.kge * times, self.bits * times, self.small_bits * times)

    @property
    def mm2(self):
        """Cells and memories without wires, by ``data/silicon.toml``."""
        silicon = {name: each["value"] for name, each in load_data("silicon.toml")["asap7"].items()}
        gates = self.kge * 1e3 + self.small_bits * silicon["register_gates"]
        return (gates * silicon["gate_um2"] + self.bits * silicon["bit_um2"]) / 1e6


def _between(points, x, what):
    """Linear between the measured ``{x: Area}``. Raises :class:`NotMeasured` outside of them."""
    if x in points:
        return points[x]
    known = sorted(points)
    after = bisect_left(known, x)
    if not 0 < after < len(known):
        told = " .. ".join(f"{each:g}" for each in dict.fromkeys((known[0], known[-1])))
        raise NotMeasured(f"{what} = {x}: measured is {told}")
    low, high = known[after - 1 : after + 1]
    share = (x - low) / (high - low)
    return points[low] * (1 - share) + points[high] * share


def _area(figures):
    return Area(figures["kge"], figures["bits"], figures["small_bits"])


class AreaTable:
    """Areas from the data of :func:`flow.synth.area_table.measure_table`."""

    def __init__(self, data):
        self.commit, self.key, self.tool = data["commit"], data["key"], data["tool"]
        self.hubs = {}  # Built: {unit: Area of all its instances}
        self.pools = {name: {} for name in POOLS}  # unit: {kind: {size: Area of one}}
        for hub in data["hubs"]:
            built = Built(**{name: hub["config"][name] for name in Built.__dataclass_fields__})
            self.hubs[built] = {
                name: _area(unit) * unit["count"] for name, unit in hub["units"].items()
            }
            for name, field in POOLS.items():
                sizes = self.pools[name].setdefault(self.kind_of(name, built), {})
                sizes[getattr(built, field)] = _area(hub["units"][name])
        for pool in data["pools"]:
            name = pool["unit"]
            kind = pool["links"], pool["slice_bytes"]
            self.pools[name].setdefault(kind, {})[pool[POOLS[name]]] = _area(pool)

    @staticmethod
    def kind_of(unit, built):
        """(links, bytes) of its slice that a pool knows: the packet manager does not see the
        links."""
        return (built.slice_links if unit == "receive_pool" else None), built.slice_bytes

    def kinds(self):
        """(links, bytes) of the slices that were measured, in the order of the table."""
        return list(dict.fromkeys(hub.kind for hub in self.hubs))

    def units(self, built):
        """``{unit: Area}`` of all instances. Raises :class:`NotMeasured`."""
        alike = {hub: units for hub, units in self.hubs.items() if hub.kind == built.kind}
        if not alike:
            told = ", ".join(f"{links} x {size}" for links, size in self.kinds())
            raise NotMeasured(
                f"slice_links x slice_bytes = {built.slice_links} x {built.slice_bytes}: must be "
                f"one of {told}"
            )
        found = {}
        for name in next(iter(alike.values())):
            per = UNITS[name].per if name in UNITS else "hub"
            if name in POOLS:
                sizes = self.pools[name][self.kind_of(name, built)]
                one = _between(sizes, getattr(built, POOLS[name]), POOLS[name])
            elif exact := alike.get(self._as_measured(built, alike)):
                one = exact[name] * (1 / built.instances(per))
            else:
                one = _between(
                    {
                        hub.slices: all_[name] * (1 / hub.instances(per))
                        for hub, all_ in alike.items()
                    },
                    built.slices,
                    "slices and loopback slices",
                )
            found[name] = one * built.instances(per)
        return found

    @staticmethod
    def _as_measured(built, alike):
        """The hub with the pools that the table's have."""
        hub = next(iter(alike))
        return replace(built, pool_depth=hub.pool_depth, pool_places=hub.pool_places)

    def area(self, built):
        """The :class:`Area` of a hub. Raises :class:`NotMeasured`."""
        return sum(self.units(built).values(), Area())

    def left_out(self):
        """How far a measured size of a pool is from the line between its neighbours: a row for each
        inner one."""
        rows = []
        for name, kinds in self.pools.items():
            for (links, slice_bytes), sizes in kinds.items():
                for size in sorted(sizes)[1:-1]:
                    others = {each: area for each, area in sizes.items() if each != size}
                    rows.append(
                        _off(
                            f"{name}, {f'{links} links, ' if links else ''}{slice_bytes} bytes, "
                            f"{POOLS[name]} {size}",
                            sizes[size],
                            _between(others, size, name),
                        )
                    )
        return rows


def _off(what, measured, line):
    return {
        "what": what,
        "measured_kge": measured.kge,
        "from_others_kge": line.kge,
        "error_percent": 100 * (line.kge / measured.kge - 1),
        "mm2_error_percent": 100 * (line.mm2 / measured.mm2 - 1),
    }


@cache
def area_table():
    """The table of ``data/hub_area.json``. Raises ValueError when it is not there or no table."""
    try:
        return AreaTable(json.loads(FILE.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{FILE}: {error}; `moe-hub explore --measure` writes it") from None
