# SPDX-License-Identifier: Apache-2.0
"""Timing diagrams of the blocks' pages, drawn by WaveDrom from the recorded scene.

Nothing in them is drawn by hand: a diagram names a module, its ports and the cycles to show.
"""

import json
from dataclasses import dataclass

import wavedrom

__all__ = ["DIAGRAMS", "Diagram", "Port", "Wire", "diagram_svg", "wavejson"]

SEND, RECEIVE = 0, 1  # the ranks of the scene


@dataclass(frozen=True)
class Wire:
    """One signal of one bit, or a number. ``label``: its name in the drawing."""

    name: str
    label: str = ""
    number: bool = False

    def rows(self, values):
        found = values(self.name)
        if self.number:
            return [_numbers(self.label or self.name, found, [1] * len(found))]
        return [_levels(self.label or self.name, found)]


@dataclass(frozen=True)
class Port:
    """A stream: ``valid``, ``ready`` where it is ever low while something waits, and the
    ``fields`` of what is offered."""

    name: str
    fields: tuple = ()
    label: str = ""

    def rows(self, values):
        label = self.label or self.name.replace("__0", "[0]")
        valid = values(f"{self.name}__valid")
        yield _levels(f"{label}.valid", valid)
        ready = values(f"{self.name}__ready")
        if any(v and not r for v, r in zip(valid, ready, strict=True)):
            yield _levels(f"{label}.ready", ready)
        for each in self.fields:
            found = values(f"{self.name}__payload.{each}")
            yield _numbers(f"{label}.{each}", found, valid)


@dataclass(frozen=True)
class Diagram:
    """``place``: (rank, module) whose ports are shown; ``first``, ``last``: cycles, 0 is the one in
    which the first store is offered. ``text``: the caption."""

    place: tuple
    first: int
    last: int
    ports: tuple
    text: str


def _levels(name, values):
    return {"name": name, "wave": _runs(["1" if each else "0" for each in values])}


def _numbers(name, values, shown):
    """A row of numbers: a new box where the value changes, nothing where it is not valid."""
    signs, data, before = [], [], None
    for value, valid in zip(values, shown, strict=True):
        if not valid:
            signs.append("x")
        elif value == before:
            signs.append(".")
        else:
            signs.append("=")
            data.append(f"{value:#x}" if value > 255 else str(value))
        before = value if valid else None
    return {"name": name, "wave": _runs(signs), "data": data}


def _runs(signs):
    """WaveDrom writes a dot for *as before*."""
    again = zip(signs, ["", *signs[:-1]], strict=True)
    return "".join("." if sign == before and sign != "=" else sign for sign, before in again)


def wavejson(diagram, recording):
    """The diagram as WaveJSON, text."""

    def values(name):
        return recording.values(diagram.place, name, diagram.first, diagram.last)

    clock = {"name": "clk", "wave": "p" + "." * (diagram.last - diagram.first)}
    rows = [clock, *(row for port in diagram.ports for row in port.rows(values))]
    for row in rows:
        row["name"] = f"\u2002{row['name']}"  # WaveDrom cuts the first letter of a long name
    return json.dumps({"signal": rows, "head": {"tick": diagram.first}, "config": {"hscale": 1}})


def diagram_svg(diagram, recording):
    """The diagram as SVG, text."""
    text = wavedrom.render(wavejson(diagram, recording)).tostring()
    # White ground, so that it is read on a dark page too.
    return text.replace("<svg ", "<svg style='background:#fff' ", 1) + "\n"


#: By the name of the file, which begins with the block's word.
DIAGRAMS = {
    "decoder": Diagram(
        (SEND, "producer.decoder0"),
        0,
        9,
        (
            Port("i_store", ("tag",)),
            Port("o_link", ("rank", "rowid", "part")),
            Port("o_response", ("tag", "status")),
        ),
        "four stores of a row: resolved after 3 cycles, answered after 4, one per cycle",
    ),
    "packet_manager": Diagram(
        (SEND, "producer.pool0"),
        2,
        26,
        (
            Port("i_store", ("rank", "part")),
            Wire("o_take.en"),
            Port("o_record", ("header.rowid", "part", "last")),
            Wire("o_sent.en"),
        ),
        "four stores become one full packet, four beats of a record",
    ),
    "link_send": Diagram(
        (SEND, "link0"),
        19,
        38,
        (
            Port("i_record", ("part", "last")),
            Wire("tx__0__tvalid", "tx.tvalid"),
            Wire("tx__0__tlast", "tx.tlast"),
        ),
        "a record of four beats leaves as a header and eight flits",
    ),
    "link_receive": Diagram(
        (RECEIVE, "link0"),
        27,
        48,
        (
            Wire("rx__0__tvalid", "rx.tvalid"),
            Wire("rx__0__tlast", "rx.tlast"),
            Port("o_record", ("header.rowid", "part", "last")),
        ),
        "the flits become a record again, in the receive pool until its last flit is there",
    ),
    "slot_allocator": Diagram(
        (RECEIVE, "consumer.allocator"),
        42,
        60,
        (
            Port("i_record__0", ("header.rowid", "part")),
            Wire("obs_alloc.en"),
            Wire("obs_alloc.slot", number=True),
            Port("o_write__0", ("addr", "context.bytes")),
            Port("o_data__0", ("last",)),
        ),
        "a new row gets its slot, its packet the address",
    ),
    "memory": Diagram(
        (RECEIVE, "consumer.writer0"),
        53,
        67,
        (
            Port("i_write", ("addr",)),
            Port("i_data", ("last",)),
            Wire("mem__awvalid", "mem.awvalid"),
            Wire("mem__wvalid", "mem.wvalid"),
            Wire("mem__wlast", "mem.wlast"),
            Wire("mem__bvalid", "mem.bvalid"),
            Port("o_ack", ("context.bytes", "ok")),
        ),
        "a burst, memory's answer four cycles after its last beat, the acknowledgement",
    ),
    "scoreboard_ready": Diagram(
        (RECEIVE, "consumer.scoreboard"),
        62,
        73,
        (Port("i_ack__0", ("context.bytes",)), Port("o_event", ("kind", "region", "rows"))),
        "the last byte of a tile is acknowledged; READY (kind 0)",
    ),
    "scoreboard_all": Diagram(
        (RECEIVE, "consumer.scoreboard"),
        92,
        125,
        (
            Port("i_news", ("src", "tell", "close", "short", "over")),
            Port("o_event", ("kind", "region", "rows")),
        ),
        "the producer closes, having kept its promise; ALL (kind 1)",
    ),
    "register_bank": Diagram(
        (SEND, ""),
        -160,
        -148,
        (
            Wire("s_axil_csr_awvalid"),
            Wire("s_axil_csr_awready"),
            Wire("s_axil_csr_awaddr", number=True),
            Wire("s_axil_csr_wvalid"),
            Wire("s_axil_csr_wready"),
            Wire("s_axil_csr_wdata", number=True),
            Wire("s_axil_csr_bvalid"),
            Wire("s_axil_csr_bresp", number=True),
        ),
        "registers written one after the other by a master with one access under way",
    ),
}
