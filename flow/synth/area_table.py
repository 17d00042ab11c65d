# SPDX-License-Identifier: Apache-2.0
"""Gates and memories of a few hubs and of their pools at other sizes, as the table that
``moe-hub explore`` takes the area of all others from.

Each hub is taken apart as ``make ppa ARGS="--only units"`` takes the reference hub, of which they
are variants; units that two hubs share are counted once. Two units have a size that no other unit
sees, and are counted alone at other values of it: the packet manager its entries, the receive pool
its places.
"""

import json
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import hub_rtl
from flow.kept import digest, write
from flow.verilog.licence import LICENCE
from flow.verilog.netlist import to_rtlil
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.receive_pool.receive_pool import ReceivePool

from .designs import DesignStore
from .measure import FlowError, Settings, Task, run
from .processes import SMALL_BITS
from .sweeps import reference

__all__ = [
    "HUBS",
    "PLACES",
    "POOLS",
    "Pool",
    "measure_table",
    "source_key",
    "variant",
    "write_table",
]

#: Links and bytes of a slice, slices, loopback slices: preset ``nvl8`` with as many slices as the
#: links of an H800 need, and the reference hub. Places are 192 for each link of a slice, as in the
#: preset.
HUBS = ((3, 64, 3, 1), (3, 64, 6, 2))
PLACES = 192  # of a receive pool, for each link


@dataclass(frozen=True)
class Pool:
    """A unit with a size of its own. ``values``: measured beside that of the hubs; ``kinds``: links
    and bytes of the slices it is measured in, None where the unit does not know it."""

    field: str
    values: tuple
    kinds: tuple
    make: object


#: By unit. Places are given for each link.
POOLS = {
    "packet_manager": Pool("pool_depth", (64,), ((None, 64),), PacketManager),
    "receive_pool": Pool(
        "pool_places",
        (96, 384),
        ((3, 64),),
        lambda cfg: ReceivePool(cfg, cfg.slice_bytes, cfg.slice_links, cfg.pool_places),
    ),
}


def variant(links, slice_bytes, lanes=1, loop_lanes=1, **more):
    """The reference hub with such slices."""
    made = {"slice_links": links, "slice_bytes": slice_bytes, "pool_places": PLACES * links}
    return reference().replace(lanes=lanes, loop_lanes=loop_lanes, **(made | more))


def _pools():
    """``(unit, links, bytes, value, HubConfig)`` of what is counted alone."""
    for name, pool in POOLS.items():
        for links, slice_bytes in pool.kinds:
            for value in pool.values:
                size = value * links if pool.field == "pool_places" else value
                cfg = variant(links or 1, slice_bytes, **{pool.field: size})
                yield name, links, slice_bytes, size, cfg


def _figures(counted):
    """Of a unit: kGE, bits of memories that are macros, and of those too small to be one."""
    bits = [each["depth"] * each["width"] for each in counted["memories"]]
    small = sum(each for each in bits if each < SMALL_BITS)
    return {"kge": counted["kge"], "bits": sum(bits) - small, "small_bits": small}


def measure_table(folder, jobs=None, tell=print, hubs=HUBS, pools=True):
    """The table, as plain data; what is kept in ``folder`` is not run again. Raises FlowError."""
    store, settings = DesignStore(folder), Settings()

    def task(name, design):
        place = Path(folder) / "units" / f"{name}-{design.digest[:16]}" / "generic"
        return Task(name, "generic", design, settings, place)

    taken = {}
    for hub in hubs:
        tell(f"hub of {hub[2]} slices, {hub[0]} links and {hub[1]} bytes each")
        taken[hub] = {
            name: (count, task(name, design))
            for name, (count, design) in store.census(variant(*hub)).items()
        }
    alone = {
        (name, links, slice_bytes, size): task(
            name,
            store.made(
                name, cfg, lambda pool=POOLS[name], cfg=cfg: to_rtlil(pool.make(cfg), "top")
            ),
        )
        for name, links, slice_bytes, size, cfg in (_pools() if pools else ())
    }
    tasks = [each for units in taken.values() for _, each in units.values()]
    found, errors = run([*tasks, *alone.values()], jobs, tell=tell)
    if errors:
        raise FlowError(next(iter(errors.values())))
    return {
        "tool": f"pyosys {version('pyosys')}",
        "hubs": [
            {
                "config": variant(*hub).as_dict(),
                "units": {
                    name: {"count": count} | _figures(found[each.folder])
                    for name, (count, each) in units.items()
                },
            }
            for hub, units in taken.items()
        ],
        "pools": [
            {
                "unit": name,
                "links": links,
                "slice_bytes": slice_bytes,
                POOLS[name].field: size,
            }
            | _figures(found[each.folder])
            for (name, links, slice_bytes, size), each in alone.items()
        ],
    }


def source_key():
    """Key of the hub's sources."""
    files = sorted(Path(hub_rtl.__file__).parent.rglob("*.py"))
    return digest(*(path.read_text(encoding="utf-8") for path in files))


def _commit():
    """The commit that changed the hub last; empty without a repository of git."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--abbrev=12", "--", "."],
        cwd=Path(hub_rtl.__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def write_table(path, folder, jobs=None, tell=print):
    """Measures, and writes the table with where it comes from. Raises FlowError, OSError."""
    head = {
        "license": LICENCE,
        "written_by": "moe-hub explore --measure",
        "unit": "kge: thousands of NAND2 equivalents, memories apart; bits: of memories",
        "commit": _commit(),
        "key": source_key(),
    }
    write(path, json.dumps(head | measure_table(folder, jobs, tell), indent=1) + "\n")
