# SPDX-License-Identifier: Apache-2.0
"""The results page: what was measured, how, and what of it meets its target."""

from pathlib import Path

from flow.tables import markdown

from .census import REST, UNITS
from .page_text import AREA, CELLS, COMMANDS, FPGA, GATES, GROWTH, HEAD, MEMORIES, PEERS_TEXT, SLICE
from .parts import PARTS
from .peers import PEERS, peer_of
from .plots import draw_areas, draw_clocks, draw_lanes, draw_sweeps
from .processes import process_of
from .sweeps import fit_line, slice_and_shared
from .tables import HEADS, rows
from .targets import area_of_hub, sweep_values

__all__ = ["draw", "page"]


def draw(measurement, folder):
    """Draws what is known into ``folder``; returns {picture: path}."""
    made, census = {}, measurement.census(measurement.hub_cfg)
    blocks = {name: flows for name, flows in measurement.blocks().items() if "ecp5" in flows}
    if census:
        made["areas"] = folder / "ppa_units.png"
        draw_areas(*census, made["areas"])
    if blocks:
        made["clocks"] = folder / "ppa_clocks.png"
        draw_clocks(blocks, made["clocks"])
    series = {field: _series(measurement, sweep) for field, sweep in measurement.sweeps.items()}
    if series.get("lanes"):
        made["lanes"] = folder / "ppa_lanes.png"
        draw_lanes(series["lanes"], made["lanes"])
    others = [
        (measurement.sweeps[field], found)
        for field, found in series.items()
        if found and field != "lanes"
    ]
    if others:
        made["sweeps"] = folder / "ppa_sweeps.png"
        draw_sweeps(others, made["sweeps"])
    return made


def page(measurement, goals, errors, pictures):
    """Text of the page in Markdown."""
    lines = [
        HEAD,
        *table(("Target", "Found", ""), [(goal.text, goal.value, goal.word) for goal in goals]),
    ]
    if errors:
        lines += ["", "Failed:", "", *(f"- {error}" for error in errors)]
    lines += [
        COMMANDS,
        FPGA,
        *_picture(
            pictures, "clocks", "Clock of every block beside the hub's target and its nearest peer"
        ),
        *_ecp5(measurement),
        PEERS_TEXT,
        *_peers(measurement),
        GATES,
        *_blocks(measurement),
        SLICE,
        *_picture(pictures, "areas", "Gates and memory bits of every unit"),
        *_units(measurement),
        CELLS,
        *_timing(measurement),
        AREA,
        *_hub_area(measurement),
        MEMORIES,
        *_memories(measurement),
        GROWTH,
        *_picture(pictures, "lanes", "Area of the hub over its slices, with the line fitted to it"),
        *_picture(pictures, "sweeps", "Area of a slice and of the shared part over each size"),
        *_growth(measurement),
    ]
    return "\n".join(lines).rstrip() + "\n"


def table(heads, body):
    """Lines of a Markdown table, or a line that says that nothing was measured."""
    body = list(body)
    return ["", *markdown(heads, body)] if body else ["", "Not measured yet."]


def _picture(pictures, name, text):
    return ["", f"![{text}](../images/{Path(pictures[name]).name})"] if name in pictures else []


def _series(measurement, sweep):
    """{title: points} of a sweep, of every way of counting that has all its points."""
    if sweep.refusal():
        return {}
    found = {"NAND2 equivalents": sweep_values(measurement, sweep)}
    found |= {
        process_of(library).title.split(" (")[0]: sweep_values(measurement, sweep, library)
        for library in measurement.libraries
    }
    return {title: points for title, points in found.items() if points}


def _ecp5(measurement):
    found = {name: flows for name, flows in measurement.blocks().items() if "ecp5" in flows}
    return table(HEADS["ecp5"], [(f"`{name}`", *rest) for name, *rest in rows("ecp5", found, {})])


def _blocks(measurement):
    found = {name: flows for name, flows in measurement.blocks().items() if "generic" in flows}
    counts = {name: PARTS[name].count(measurement.block_cfg) for name in found}
    heads, body = (
        list(HEADS["generic"]),
        [[f"`{row[0]}`", *row[1:]] for row in rows("generic", found, counts)],
    )
    for library in measurement.libraries:
        if any(library.name in flows for flows in found.values()):
            title = process_of(library).title.split(" (")[0]
            heads += [f"{title} kGE", f"{title} ps"]
            for row, flows in zip(body, found.values(), strict=True):
                each = flows.get(library.name)
                row += [f"{each['kge']:.1f}", f"{each['ps']:,.0f}"] if each else ["-", "-"]
    return table(heads, body)


def _peers(measurement):
    found = measurement.blocks()

    def number(value):
        return "-" if value is None else f"{value:g}"

    def ours(name):
        figures = found.get(name, {}).get("ecp5")
        return (f"{figures['lut']:,}", f"{figures['mhz']:.0f}") if figures else ("-", "-")

    beside = [
        (
            f"`{name}`",
            *ours(name),
            f"{peer.name} ({peer.source}; {peer.parameters})",
            peer.job,
            f"{peer.lut:,}",
            number(peer.mhz),
        )
        for name in found
        if (peer := peer_of(name))
    ]
    distinct = {(peer.name, peer.parameters): peer for peer in PEERS}.values()
    every = [
        (
            peer.name,
            peer.source,
            peer.parameters,
            f"{peer.lut:,} / {peer.ff:,} / {peer.bram}",
            number(peer.mhz),
            number(peer.kge),
            number(peer.sg13g2_mhz),
            number(peer.asap7_ps),
        )
        for peer in distinct
    ]
    return [
        *table(("Block", "LUT", "MHz", "Nearest peer", "What both do", "LUT", "MHz"), beside),
        *table(
            (
                "Peer",
                "From",
                "Parameters",
                "LUT / FF / BRAM",
                "MHz",
                "SG13G2 kGE",
                "SG13G2 MHz",
                "ASAP7 ps",
            ),
            every,
        ),
    ]


def _units(measurement):
    census = measurement.census(measurement.hub_cfg)
    if not census:
        return table((), [])
    figures, counts = census
    heads, mapped = ["Unit", "per", "in the hub", "kGE of one", "registers", "memory bits"], []
    for library in measurement.libraries:
        if found := measurement.census(measurement.hub_cfg, library):
            title = process_of(library).title.split(" (")[0]
            heads += [f"{title} kGE", f"{title} ps"]
            mapped.append(found[0])
    body = []
    for name in sorted(figures, key=lambda name: -figures[name]["kge"]):
        each = figures[name]
        body.append(
            (
                f"`{name}`" if name != REST else "what joins them",
                UNITS[name].per if name in UNITS else "hub",
                str(counts[name]),
                f"{each['kge']:.1f}",
                f"{each['registers']:,}",
                f"{each['memory_bits']:,}",
                *(
                    text
                    for cells in mapped
                    for text in (f"{cells[name]['kge']:.1f}", f"{cells[name]['ps']:,.0f}")
                ),
            )
        )
    sums = [
        slice_and_shared(
            {name: each["kge"] for name, each in found.items()}, counts, measurement.hub_cfg
        )
        for found in (figures, *mapped)
    ]
    for at, text in enumerate(("**one slice**", "**shared**", "**hub**")):
        body.append(
            (
                text,
                "",
                "",
                f"{sums[0][at]:,.1f}",
                "",
                "",
                *(cell for each in sums[1:] for cell in (f"{each[at]:,.1f}", "")),
            )
        )
    return table(heads, body)


def _timing(measurement):
    body = []
    for library in measurement.libraries:
        for clock, path in (measurement.whole(library) or {"clocks": {}})["clocks"].items():
            body.append(
                (
                    process_of(library).title,
                    clock,
                    f"{path['ps']:,.0f}",
                    f"{1e3 / path['ps']:.2f}",
                    str(path["gates"]),
                    f"`{path['start']}` → `{path['end']}`",
                )
            )
    return table(
        ("Library", "clock", "ps", "GHz without wires", "cells on the path", "from → to"), body
    )


def _hub_area(measurement):
    lines = []
    for library in measurement.libraries:
        if area := area_of_hub(measurement, library):

            def of(names, area=area):
                return [sum(area[name][part] for name in names) / 1e6 for part in (1, 2)]

            ours = [name for name in area if name in UNITS and UNITS[name].mechanism]
            groups = [
                *((f"`{name}`", [name]) for name in ours),
                ("**the mechanism**", ours),
                ("`receive_pool`", ["receive_pool"]),
                ("`link`", ["link"]),
                (
                    "all else",
                    [name for name in area if name not in (*ours, "receive_pool", "link")],
                ),
                ("**hub**", list(area)),
            ]
            lines += table(
                (process_of(library).title, "logic mm²", "memories mm²", "together mm²"),
                [
                    (text, *(f"{value:.4f}" for value in (*of(names), sum(of(names)))))
                    for text, names in groups
                ],
            )
    return lines or table((), [])


def _memories(measurement):
    census = measurement.census(measurement.hub_cfg)
    if not census:
        return table((), [])
    figures, counts = census
    return table(
        ("Unit", "memory", "words × bits", "ports", "bits", "in the hub"),
        (
            (
                f"`{name}`",
                f"`{each['name']}`",
                f"{each['depth']:,} × {each['width']}",
                f"{each['read_ports']}R{each['write_ports']}W",
                f"{each['depth'] * each['width']:,}",
                str(counts[name]),
            )
            for name, found in figures.items()
            for each in found["memories"]
        ),
    )


def _growth(measurement):
    lines = []
    for sweep in measurement.sweeps.values():
        if refusal := sweep.refusal():
            lines += ["", f"Over {sweep.axis}: not possible, `{refusal}`."]
        for title, points in _series(measurement, sweep).items():
            lines += table(
                (sweep.axis, f"one slice, kGE ({title})", "shared, kGE", "hub, kGE"),
                [
                    (f"{value * sweep.scale:,}", *(f"{kge:,.1f}" for kge in rest))
                    for value, *rest in points
                ],
            )
            if sweep.field == "lanes":
                line = fit_line([x for x, *_ in points], [total for *_, total in points])
                lines += [
                    "",
                    f"Line through the hub's area: {line.start:.1f} + {line.slope:.2f} × "
                    "slices kGE, "
                    f"R² = {line.r2:.6f}; the furthest point lies {line.worst:.2%} off.",
                ]
    return lines
