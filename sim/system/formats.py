# SPDX-License-Identifier: Apache-2.0
"""Binary formats between Python and the native harness, and the C++ header that is made from them
and from the formats of the hub.

Operations go in and logs come out as the NumPy records below; the harness sees the same records,
the fields of the store operand and of the packets, and the enumerations as ``formats.h``, written
into the build folder by :func:`cxx_header`. Same input, same text.
"""

from enum import IntEnum

import numpy as np

from hub_rtl.contract import fields, packets
from hub_rtl.contract.packets import BODIES, place
from hub_rtl.contract.records import POOL_COUNTS

__all__ = [
    "ALLOC",
    "BEAT",
    "COMMAND",
    "COMMAND_REFUSAL",
    "EVENT",
    "ISSUE",
    "LOGS",
    "LinkUse",
    "OP",
    "OpKind",
    "PACKET",
    "READ",
    "REFUSAL",
    "RETURN",
    "STORE",
    "bin_record",
    "cxx_header",
    "header_word",
]


class OpKind(IntEnum):
    """Operations of a program; ``a`` to ``d``, ``n`` and ``m`` are fields of :data:`OP`."""

    # Row-sparse stores: a = operand of the first byte, b = payload offset, n = bytes; then a tail
    # of d bytes from payload offset c, whose own sectors are of class .nop.
    ROW = 1
    PLAIN = 2  # plain stores: a = address, the rest as above
    STORE = 3  # one store: a = operand, b = payload offset of its 32 bytes, n = byte mask, m = lane
    # a = CommandOp, b = handle, c = epoch, cls = abort; ANNOUNCE: rank = replica, n = bytes16,
    # m = more; waits for the answer, but with more
    COMMAND = 4
    SYNC = 5  # wait until every store of this thread has been answered
    CSR_WRITE = 6  # a = address, c = value
    CSR_READ = 7  # a = address; the value goes to the log
    CSR_POLL = 8  # a = address, c = mask: until (value & mask) == d
    WAIT_CYCLES = 9  # a = cycles
    WAIT_EVENTS = 10  # until the events of kind a (EventKind + 4 * plain) number at least b
    # a = address (8-byte aligned), c = mask: until (word & mask) == d, or != 0 when d is all ones
    WAIT_MEMORY = 11
    BARRIER = 12  # until every rank's thread of this number has come here
    MARK = 13  # a = number; the cycle goes to the log
    # Expert stand-in: a = address of the first row, n = rows, m = region, c = signals to wait for
    # (bit mask).
    EXPERT = 14
    SIGNAL = 15  # signal a (0..63) to the expert stand-in
    WAIT_END = 16  # until this rank took b ALL or ERROR events of region a, epoch c
    WAIT_MARK = 17  # until some thread of this rank has passed MARK a
    AGAIN = 18  # unless (value last read by CSR_READ & c) == d, go back a operations


class LinkUse(IntEnum):
    """What a link did in a cycle of its clock: the first of these that holds, seen at the pins, in
    the strobes of the slice's packet manager, and from the rank's programs."""

    SENT = 0  # a flit left
    WIRE = 1  # a flit waited for the fabric
    CREDIT = 2  # packets were ready, and none of their peers had granted a place
    ROOM = 3  # stores waited: the slice had no room for their peers
    INSIDE = 4  # bytes were on their way to the link, or waited for the rest of their packet
    SOFTWARE = 5  # a program waited before its next store
    EXPERT = 6  # none of these; an expert was at work on a tile
    NOTHING = 7  # none of these: nothing to send


#: One operation.
OP = np.dtype(
    [
        ("kind", "<u2"),
        ("cls", "u1"),
        ("owner", "u1"),
        ("rank", "<u2"),
        ("thread", "<u2"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("n", "<u4"),
        ("m", "<u4"),
        ("c", "<u8"),
        ("d", "<u8"),
    ]
)
#: An event as taken from ``m_event``.
EVENT = np.dtype(
    [
        ("cycle", "<u8"),
        ("kind", "u1"),
        ("plain", "u1"),
        ("epoch", "u1"),
        ("status", "u1"),
        ("refused", "u1"),
        ("pad", "V3"),
        ("region", "<u4"),
        ("group", "<u4"),
        ("rows", "<u4"),
        ("pad2", "V4"),
    ]
)
#: A slot given, as ``obs_alloc`` shows it.
ALLOC = np.dtype(
    [
        ("cycle", "<u8"),
        ("rowid", "<u4"),
        ("slot", "<u4"),
        ("region", "<u2"),
        ("bank", "u1"),
        ("overflow", "u1"),
        ("pad", "V4"),
    ]
)
#: A packet as received: cycles of its first and last flit, header flit, bytes it carries.
PACKET = np.dtype(
    [
        ("first", "<u8"),
        ("last", "<u8"),
        ("low", "<u8"),
        ("high", "<u8"),
        ("link", "<u2"),
        ("bytes", "<u2"),
        ("flits", "<u4"),
    ]
)
#: A store or (``command``) a command that was not answered OK; ``operand`` of a command is a
#: :data:`COMMAND_REFUSAL`.
REFUSAL = np.dtype(
    [
        ("cycle", "<u8"),
        ("operand", "<u8"),
        ("lane", "<u2"),
        ("status", "u1"),
        ("command", "u1"),
        ("pad", "V4"),
    ]
)
#: CSR_READ, and MARK: ``address`` is its number then and ``mark`` is 1.
READ = np.dtype(
    [("cycle", "<u8"), ("address", "<u8"), ("value", "<u8"), ("mark", "<u4"), ("thread", "<u4")]
)
#: The first store of a row job was accepted.
ISSUE = np.dtype([("cycle", "<u8"), ("operand", "<u8")])
# The next three are written when the setting `watch` is 1: all that a user of the pins sees, for
# judges outside.
#: A store as it was taken, and its answer; of mask and data as much as a slice is wide.
STORE = np.dtype(
    [
        ("accepted", "<u8"),
        ("answered", "<u8"),
        ("operand", "<u8"),
        ("tag", "<u4"),
        ("echo", "<u4"),
        ("lane", "<u2"),
        ("owner", "u1"),
        ("status", "u1"),
        ("mask", "V16"),
        ("data", "V128"),
        ("pad", "V4"),
    ]
)
#: A command of the port: cycle in which it was first offered, cycle of its answer.
COMMAND = np.dtype(
    [
        ("begun", "<u8"),
        ("answered", "<u8"),
        ("op", "<u4"),
        ("handle", "<u4"),
        ("epoch", "u1"),
        ("owner", "u1"),
        ("status", "u1"),
        ("pad", "V5"),
    ]
)
#: A beat of a write in the cycle in which memory's answer was taken; the 64-bit port is the last.
BEAT = np.dtype(
    [
        ("answered", "<u8"),
        ("addr", "<u8"),
        ("strobe", "<u2"),
        ("port", "<u2"),
        ("error", "u1"),
        ("pad", "V3"),
        ("data", "V16"),
    ]
)
#: Last bytes of a row for the expert stand-in: where its result goes.
RETURN = np.dtype([("address", "<u8"), ("rank", "<u4"), ("token", "<u4")])

#: Logs of a rank by the ending of their file.
LOGS = {
    "events": EVENT,
    "allocs": ALLOC,
    "packets": PACKET,
    "refusals": REFUSAL,
    "reads": READ,
    "issues": ISSUE,
    "stores": STORE,
    "commands": COMMAND,
    "beats": BEAT,
    "sent": PACKET,  # this and the three before: with `watch`
}


def bin_record(links):
    """A bin of a rank with so many links: bytes written to memory, and of each link the flits
    received and the cycles of its clock by :class:`LinkUse`."""
    link = np.dtype([("received", "<u4"), ("use", "<u4", (len(LinkUse),))])
    return np.dtype([("written", "<u4"), ("links", link, (links,))])


COMMAND_REFUSAL = place({"handle": 32, "op": fields.COMMAND_OP})

_RECORDS = {
    "Op": OP,
    "EventRecord": EVENT,
    "AllocRecord": ALLOC,
    "PacketRecord": PACKET,
    "RefusalRecord": REFUSAL,
    "ReadRecord": READ,
    "IssueRecord": ISSUE,
    "StoreRecord": STORE,
    "CommandRecord": COMMAND,
    "BeatRecord": BEAT,
    "ReturnRecord": RETURN,
}
_LAYOUTS = {
    "operand_row": packets.OPERAND_ROW,
    "operand_plain": packets.OPERAND_PLAIN,
    "header": packets.HEADER,
    **{f"{kind.name.lower()}_body": layout for kind, layout in BODIES.items()},
    "spill_word": packets.SPILL_WORD,
    "command_refusal": COMMAND_REFUSAL,
    "pool_counts": place(POOL_COUNTS.members),
}
_ENUMS = (packets.PacketType, packets.EventKind, packets.CommandOp, OpKind, LinkUse)
_WIDTHS = ("EPOCH", "FLIT", "FLIT_BYTES", "SECTOR_BYTES", "LANE_KEY")


def header_word(packet):
    """Header flit of a :data:`PACKET` record as one number, for ``packets.unpack``."""
    return int(packet["low"]) | int(packet["high"]) << 64


def _member(name, kind):
    if kind.kind == "V":
        return f"    uint8_t {name}[{kind.itemsize}];"
    return f"    uint{8 * kind.itemsize}_t {name};"


def cxx_header():
    """Text of ``formats.h``: widths, enumerations, fields of the words, records."""
    lines = [
        "// Made by sim/system/formats.py from hub_rtl/contract; do not edit.",
        "#pragma once",
        '#include "word.h"',
        "",
        *(f"constexpr unsigned {name} = {getattr(fields, name)};" for name in _WIDTHS),
        f"constexpr unsigned LINK_USES = {len(LinkUse)};",
    ]
    for enum in _ENUMS:
        members = ", ".join(f"{member.name} = {int(member)}" for member in enum)
        lines += ["", f"struct {enum.__name__} {{", f"    enum : unsigned {{ {members} }};", "};"]
    for name, layout in _LAYOUTS.items():
        lines += ["", f"namespace {name} {{"]
        lines += [f"constexpr Field {f}{{{low}, {width}}};" for f, (low, width) in layout.items()]
        lines += ["}"]
    for name, record in _RECORDS.items():
        lines += ["", f"struct {name} {{"]
        lines += [_member(field, record.fields[field][0]) for field in record.names]
        lines += ["};", f'static_assert(sizeof({name}) == {record.itemsize}, "{name} is packed");']
    return "\n".join([*lines, ""])
