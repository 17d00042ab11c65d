# SPDX-License-Identifier: Apache-2.0
"""The hub taken apart: every unit once, with how many there are, and the rest that joins them.

A whole hub is too large to be measured flat, and equal lanes need not be mapped one by one.
A unit is measured out of context with its ports as they are; the rest has the units as black boxes.
"""

import re
from dataclasses import dataclass

from flow.verilog.netlist import ModuleLibrary, to_rtlil
from hub_rtl.hub.hub import Hub

__all__ = ["REST", "TOP", "UNITS", "Unit", "take_census"]

TOP = "moehub"
REST = "rest"  # of the hub: merges, arbiters and sums over the lanes, control messages


@dataclass(frozen=True)
class Unit:
    """name: in tables. module: pattern of the whole RTLIL module name. per: ``lane``, ``slice`` (a
    lane or a loopback lane has one), ``loop`` or ``hub``. mechanism: one of the parts that make
    MoE-Hub of a hub (decoder, pool, RAT, APT, scoreboard)."""

    name: str
    module: str
    per: str
    mechanism: bool = True


UNITS = {
    unit.name: unit
    for unit in (
        Unit("decoder", "moehub_decoder", "lane"),
        Unit("packet_manager", "moehub_packet_manager", "slice"),
        Unit("serializer", "moehub_link_slice_serializer0", "lane"),
        Unit("ledger", "moehub_producer_ledger", "hub"),
        Unit("receive_pool", "moehub_link_slice_pool", "lane", mechanism=False),
        Unit("link", "moehub_link_slice", "lane", mechanism=False),
        Unit("loop_port", "moehub_loop_port", "loop", mechanism=False),
        Unit("row_lookup", "moehub_consumer_allocator_slice0", "slice"),
        Unit("memory_writer", "moehub_memory_writer", "slice", mechanism=False),
        Unit("fence_asks", "moehub_fence_asks", "slice", mechanism=False),
        Unit("fence_answers", "moehub_fence_answers", "slice", mechanism=False),
        Unit("ack_combiner", "moehub_consumer_scoreboard_acks_combiner_0", "slice"),
        Unit("address_table", "moehub_consumer_allocator_table", "hub"),
        Unit("spill_engine", "moehub_consumer_allocator_engine", "hub"),
        Unit("victim_store", "moehub_consumer_allocator_store", "hub"),
        Unit("scoreboard", "moehub_consumer_scoreboard", "hub"),
        Unit("producer_control", "moehub_producer_control", "hub"),
        Unit("csr", "moehub_csr", "hub", mechanism=False),
        Unit("refusal_log", "moehub_log", "hub", mechanism=False),
        Unit("reject_sender", "moehub_reject_sender", "hub", mechanism=False),
        Unit("control_router", "moehub_router", "hub", mechanism=False),
        Unit("spill_port_merge", "moehub_consumer_flag_port", "hub", mechanism=False),
    )
}

_PART = re.compile(r'^(?=attribute \\generator "Amaranth"$)', re.M)
_MODULE = re.compile(r"^module \\(\S+)$", re.M)
_CELL = re.compile(r"^  cell \\(\S+) \\\S+$", re.M)
_PORT = re.compile(r"^  wire (?:width \d+ )?(?:input|output|inout) \d+ .*\n", re.M)


def take_census(cfg):
    """``{name: (instances, RTLIL)}`` for every unit and for ``rest``; ``top`` is the top module of
    each text.

    Units inside a unit are black boxes in it. Raises ValueError when the hub has no module of a
    unit's name.
    """
    library = ModuleLibrary()
    top = to_rtlil(Hub(cfg, library=library), TOP)
    modules, head = {}, top[: _PART.search(top).start()]
    for text in (*library.rtlil.values(), top):
        for part in _PART.split(text)[1:]:
            modules[_MODULE.search(part)[1]] = part
    cells = {
        name: [kind for kind in _CELL.findall(part) if kind in modules]
        for name, part in modules.items()
    }
    roots = {TOP: REST} | {
        unit.module: unit.name
        for unit in UNITS.values()
        if (cfg.loop_lanes or unit.per != "loop")
        and (cfg.victim_sets or unit.name != "victim_store")
    }
    for module, name in roots.items():
        if module not in modules:
            raise ValueError(f"{name}: the hub has no module {module}")
    counts = _instances(cells)
    return {
        name: (counts[module], head + _design(module, modules, cells, roots))
        for module, name in roots.items()
    }


def _instances(cells):
    """{module: how many the hub has}."""
    counts, waiting = {}, [(TOP, 1)]
    while waiting:
        module, times = waiting.pop()
        counts[module] = counts.get(module, 0) + times
        waiting += [(child, times) for child in cells[module]]
    return counts


def _design(root, modules, cells, roots):
    """Text of ``root`` and what is below it, down to other units, of which the ports stay."""
    found, waiting = [], [root]
    while waiting:
        module = waiting.pop(0)
        if module not in found:
            found.append(module)
            if module == root or module not in roots:
                waiting += cells[module]
    texts = []
    for module in sorted(found):
        text = modules[module]
        if module == root:
            text = text.replace(f"\nmodule \\{root}\n", "\nmodule \\top\n", 1)
        elif module in roots:
            text = f"attribute \\blackbox 1\nmodule \\{module}\n{''.join(_PORT.findall(text))}end\n"
        texts.append(text)
    return "".join(texts)
