# SPDX-License-Identifier: Apache-2.0
"""The whole way of the recorded row, from its first store to ALL, in one picture."""

from .scene import CONFIG
from .symbol import FONT, page_svg
from .timing import RECEIVE, SEND

__all__ = ["STATIONS", "journey_svg"]

CYCLE, ROW, LEFT, TOP = 6, 22, 250, 44  # pixels
LAST = 126  # cycle that is shown last

#: (what, rank, module, signal that is set in each of its cycles)
STATIONS = (
    ("store taken", SEND, "", "s_store0_valid"),
    ("resolved by the decoder", SEND, "producer.decoder0", "o_link__valid"),
    ("answered to the crossbar", SEND, "", "m_response0_valid"),
    ("packet leaves the packet manager", SEND, "producer.pool0", "o_record__valid"),
    ("flits on the link", SEND, "", "m_axis_link0_tvalid"),
    ("packet leaves the receive pool", RECEIVE, "link0", "o_record__valid"),
    ("slot given", RECEIVE, "", "obs_alloc_en"),
    ("AXI address", RECEIVE, "", "m_axi_mem0_awvalid"),
    ("AXI data", RECEIVE, "", "m_axi_mem0_wvalid"),
    ("AXI answer of the memory", RECEIVE, "", "m_axi_mem0_bvalid"),
    ("events: READY, then ALL", RECEIVE, "", "m_event_valid"),
)
COLOURS = {SEND: "#1565c0", RECEIVE: "#2e7d32"}


def _bars(values):
    """[(first cycle, cycles)] of the runs in which a signal is set."""
    runs, start = [], None
    for cycle, value in enumerate([*values, 0]):
        if value and start is None:
            start = cycle
        elif not value and start is not None:
            runs.append((start, cycle - start))
            start = None
    return runs


def journey_svg(recording):
    """SVG text; a line for each station, blue at the sender, green at the receiver."""
    height, body = TOP + ROW * len(STATIONS) + 30, [f"<g {FONT}>"]
    body.append(
        f"<text x='16' y='22' font-weight='bold'>A row of 128 bytes through two hubs of preset "
        f"{CONFIG.name}, in cycles from its first store</text>"
    )
    for cycle in range(0, LAST + 1, 10):
        x = LEFT + cycle * CYCLE
        body.append(
            f"<line x1='{x}' y1='{TOP}' x2='{x}' y2='{height - 24}' stroke='#cfd8dc'/>"
            f"<text x='{x}' y='{height - 8}' text-anchor='middle' font-size='10'>{cycle}</text>"
        )
    for n, (text, rank, module, name) in enumerate(STATIONS):
        y = TOP + ROW * n
        body.append(f"<text x='{LEFT - 8}' y='{y + 14}' text-anchor='end'>{text}</text>")
        for start, cycles in _bars(recording.values((rank, module), name, 0, LAST)):
            body.append(
                f"<rect x='{LEFT + start * CYCLE}' y='{y + 4}' width='{cycles * CYCLE}' "
                f"height='{ROW - 8}' fill='{COLOURS[rank]}'/>"
            )
    return page_svg(LEFT + (LAST + 2) * CYCLE + 16, height, "\n".join([*body, "</g>"]))
