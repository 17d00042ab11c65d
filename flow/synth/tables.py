# SPDX-License-Identifier: Apache-2.0
"""Tables of what was measured: for the screen, and as Markdown."""

from flow import tables

__all__ = ["markdown", "rows", "screen"]

HEADS = {
    "generic": (
        "part",
        "of each",
        "cells",
        "kGE",
        "registers",
        "memory bits",
        "memories",
        "gates in a row",
    ),
    "ecp5": ("part", "LUT", "FF", "BRAM", "DSP", "MHz", "seeds", "slowest path"),
    "cells": ("part", "area", "kGE", "ps", "cells on it", "timer", "slowest path"),
}
TITLES = {
    "generic": "Gates (NAND2 equivalents; memories apart)",
    "ecp5": "ECP5-85F, speed 8, placed and routed, out of context",
    "cells": "Standard cells, no wires, ideal clock; memories apart",
}


def rows(flow, found, counts):
    """Rows of text, one per part; ``counts``: how many of each part a hub has."""
    for name, flows in found.items():
        each = flows[flow]
        if flow == "generic":
            yield (
                name,
                str(counts[name]),
                f"{each['cells']:,}",
                f"{each['kge']:.1f}",
                f"{each['registers']:,}",
                f"{each['memory_bits']:,}",
                str(len(each["memories"])),
                str(each["depth"]),
            )
        elif flow == "ecp5":
            path = each["path"]
            where = (
                f"{path['start']} → {path['end']} ({path['logic_ns']} ns + {path['routing_ns']} ns)"
                if path
                else "-"
            )
            yield (
                name,
                f"{each['lut']:,}",
                f"{each['ff']:,}",
                str(each["bram"]),
                str(each["dsp"]),
                f"{each['mhz']:.0f}",
                " ".join(f"{mhz:.0f}" for mhz in each["runs"]),
                where,
            )
        else:
            yield (
                name,
                f"{each['area']:,.0f}",
                f"{each['kge']:.1f}",
                f"{each['ps']:,.0f}",
                str(each["gates"]),
                each["timer"],
                f"{each['start']} → {each['end']}" if each["start"] else "-",
            )


def screen(flow, found, counts):
    """A table for the terminal."""
    return tables.screen(HEADS[flow], rows(flow, found, counts), title=TITLES[flow])


def markdown(found, counts, flows):
    """All tables, as text."""
    lines = []
    for flow in flows:
        body = ((f"`{row[0]}`", *row[1:]) for row in rows(flow, found, counts))
        lines += [f"### {TITLES[flow]}", "", *tables.markdown(HEADS[flow], body), ""]
    return "\n".join(lines)
