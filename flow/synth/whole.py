# SPDX-License-Identifier: Apache-2.0
"""Timing of a hub that was mapped unit by unit: one slice, one loopback slice and all that is
shared, put together again."""

import re
from dataclasses import asdict

from flow.kept import digest, keep, recall

from . import timer
from .cells import NETLIST
from .census import REST, UNITS
from .memory_models import MODEL

__all__ = ["unit_text", "whole_timing"]


def whole_timing(netlists, cfg, library, folder):
    """``{ps, start, end, gates, clocks}``: the slowest register-to-register path of the hub's clock
    within and between the units; ``clocks``: {clock: the same of each}.

    ``netlists``: {unit: folder with its mapped netlist}, ``rest`` among them. Slices are equal:
    the netlist has slice 0 and the first loopback slice, the others are black boxes. Kept in
    ``folder`` while nothing changes. Raises ValueError, OSError.
    """
    texts = {name: (path / NETLIST).read_text() for name, path in sorted(netlists.items())}
    key = digest(repr((sorted(texts.items()), library.digest, "by clock")), length=64)
    if known := recall(folder / "result.json", key):
        return known
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.v").write_text(unit_text(name, text, cfg))
    paths = timer.slowest_paths(library.unpack(), [f"{name}.v" for name in texts], folder)
    clocks = {clock: asdict(path) for clock, path in paths.items()}
    return keep(folder / "result.json", key, {**clocks["clk"], "clocks": clocks})


def unit_text(name, text, cfg):
    """The netlist of a unit with module names that are unique in the hub."""
    text = re.sub(rf"\b{MODEL}(\d+)\b", rf"{name}_{MODEL}\1", text)
    if name != REST:
        text = re.sub(r"^module top\(", f"module {UNITS[name].module}(", text, count=1, flags=re.M)
    for unit in UNITS.values():
        if unit.per != "hub":
            text = re.sub(
                rf"^(  {unit.module})( \\?(\S*?)(\d+) +\()",
                lambda found: (
                    found[1]
                    + ("" if int(found[4]) in (0, cfg.lanes) else "_of_another_lane")
                    + found[2]
                ),
                text,
                flags=re.M,
            )
    return text
