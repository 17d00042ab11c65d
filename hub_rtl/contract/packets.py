# SPDX-License-Identifier: Apache-2.0
"""Bit formats of the store operand and of the packets, and the pure functions that go with them.

Plain Python (no Amaranth): shared by RTL, golden model, benches and tools. ``docs/formats.md`` is
the text of it.
"""

from enum import IntEnum

from .fields import (
    ADDR,
    ADDR16,
    CRC,
    CREDIT,
    EPOCH,
    FLIT,
    GRANT,
    HANDLE,
    LANE,
    LANE_KEY,
    LEN,
    MISSING,
    NEWS_COUNT,
    PLAINS,
    RANK,
    REASON,
    REGION,
    ROW_OFF,
    ROWID,
    SENT16,
    SEQ,
    SLOT,
    TYPE,
    WORD,
)

__all__ = [
    "PacketType",
    "Reason",
    "EventKind",
    "RegionState",
    "RegionOp",
    "OrderError",
    "CommandOp",
    "LaneMode",
    "OPERAND_ROW",
    "OPERAND_PLAIN",
    "HEADER",
    "BODIES",
    "NEWS_ENTRIES",
    "NEWS_ENTRY",
    "DATA_TYPES",
    "CONTROL_TYPES",
    "REST",
    "place",
    "pack",
    "unpack",
    "lane_of",
    "link_of",
    "replica_of",
    "row_hash",
    "SPILL_WORD",
]


class PacketType(IntEnum):
    """Header type field; 3 and 8 to 15 are reserved and refused as BAD_HEADER."""

    IDLE = 0
    ROW = 1
    PLAIN = 2
    REJECT = 4
    CREDIT = 5
    ACK = 6
    NEWS = 7


DATA_TYPES = PacketType.ROW, PacketType.PLAIN, PacketType.NEWS  # take a place of a receive pool
CONTROL_TYPES = (PacketType.REJECT,)  # take a control credit


class Reason(IntEnum):
    """Why something was refused (store response, REJECT, log) or why a region is in ERROR (event
    status)."""

    OK = 0
    UNKNOWN = 1  # no such handle, rank or region
    FOREIGN = 2  # the owner may not use the handle, or the row belongs to another producer
    REGION_FULL = 3  # no slot left, here and in the overflow region
    EPOCH_STALE = 4  # the epoch is over
    EPOCH_EARLY = 5  # the epoch is not open yet
    ROW_OVERRUN = 6  # bytes beyond row_bytes
    ROW_RANGE = 7  # RowID outside row_first .. row_first + row_span - 1
    AFTER_CLOSE = 8  # the producer has closed this epoch
    BAD_LANE = 9  # the row is pinned to another lane
    BAD_HEADER = 10  # malformed packet
    MEM_ERROR = 11  # memory answered with an error
    PEER_DEAD = 12  # the peer is in state DRAIN
    WINDOW = 13  # plain store outside the window of its source rank
    OVERLAP = 14  # event status only: more bytes than the rows have
    # event status only: closed with rows that lack bytes, aborted by a producer, or poisoned
    INCOMPLETE = 15


class EventKind(IntEnum):
    """What an event says (m_event)."""

    READY = 0  # a tile, or a group of a dependency range, is complete in memory
    ALL = 1  # the region is complete
    ERROR = 2  # the region, or the group, is not usable; `status` is the reason


class RegionState(IntEnum):
    """State of one epoch bank of a region."""

    FREE = 0
    OPEN = 1
    DONE = 2  # all-ready was reached, or ERROR, or it is being aborted; nothing more is placed


class RegionOp(IntEnum):
    """Order to a region (regions.COMMAND)."""

    OPEN = 0  # FREE -> OPEN with an epoch
    RELEASE = 1  # DONE -> FREE
    ABORT = 2  # OPEN or DONE -> FREE, whatever has arrived
    FORGET = 3  # FREE: the bank's history is forgotten, any epoch may be opened next


class OrderError(IntEnum):
    """Why an order to a region was not carried out (regions.COMMAND_ERROR.reason)."""

    NONE = 0
    UNKNOWN = 1  # no such region; OPEN: the region has no geometry
    IN_USE = 2  # OPEN, FORGET: the bank is not FREE
    EPOCH = 3  # OPEN: the epoch is not 1 to 7 ahead of the bank's last one
    NOT_IN_USE = 4  # RELEASE, ABORT: the bank is FREE, or in use for another epoch
    NOT_DONE = 5  # RELEASE: the bank is still OPEN


class CommandOp(IntEnum):
    """Command of a producer (s_command, control.COMMAND)."""

    FENCE = 0
    CLOSE = 1
    CLOSE_ALL = 2
    ANNOUNCE = 3  # so many bytes come to one replica of a handle
    ANNOUNCE_ALL = 4  # none comes to those that were told nothing
    FENCE_REMOTE = 5  # answered when the peers' memories have acknowledged


class LaneMode(IntEnum):
    """How a row is pinned to a lane."""

    ROTATE = 0  # (RowID + handle) mod lanes
    HASH = 1  # (row_hash(RowID) + handle) mod lanes
    FIXED = 2  # the lane in the handle's entry


REST = None  # width of the one field that takes the bits which the others leave


def place(fields, size=None, low=0):
    """Layout ``{name: (lowest bit, width)}`` of fields that lie side by side from bit ``low`` on.

    ``size``: all bits of the word; one width may then be ``REST``. The name "" is a gap. Raises
    ValueError when the fields do not fit.
    """
    used = sum(width for width in fields.values() if width is not REST)
    if size is not None and used > size:
        raise ValueError(f"fields = {used} bits: must fit {size}")
    layout = {}
    for name, width in fields.items():
        layout[name] = low, size - used if width is REST else width
        low = sum(layout[name])
    layout.pop("", None)
    return layout


# Fields of each word, LSB first: the order here is the order on the wire, the lowest bits follow.
OPERAND_ROW = place(
    {"handle": HANDLE, "epoch": EPOCH, "rowid": ROWID, "row_off": ROW_OFF, "": REST, "plain": 1},
    WORD,
)
OPERAND_PLAIN = place({"addr": ADDR, "rank": RANK, "": REST, "plain": 1}, WORD)

_BODIES = {
    PacketType.ROW: {"region": REGION, "epoch": EPOCH, "rowid": ROWID, "row_off": ROW_OFF},
    PacketType.PLAIN: {"addr16": ADDR16, "phase": 1},
    PacketType.REJECT: {"region": REGION, "epoch": EPOCH, "rowid": ROWID, "reason": REASON},
    PacketType.CREDIT: {
        "granted": GRANT,
        "returned": GRANT,
        "grants": 1,
        "back": 1,
        "returns": 1,
        "asks": 1,
        "plains": PLAINS,
        "phase": 1,
        "answers": 1,
        "bad": 1,
    },
    PacketType.ACK: {"next": SEQ, "nak": 1},
    PacketType.NEWS: {"count": NEWS_COUNT},
}

HEADER = place(
    {
        "type": TYPE,
        "cls": 1,
        "masked": 1,
        "fan": 1,
        "poison": 1,
        "dst": RANK,
        "src": RANK,
        "lane": LANE,
        "len": LEN,
        "body": max(sum(body.values()) for body in _BODIES.values()),
        "zero": REST,
        "seq": SEQ,
        "credit": CREDIT,
        "crc": CRC,
    },
    FLIT,
)

# Bodies of the packet types; bit numbers count from the start of the flit.
BODIES = {kind: place(body, low=HEADER["body"][0]) for kind, body in _BODIES.items()}

NEWS_ENTRIES = 16  # of a NEWS packet at most, two to a flit

# What a producer says of one region and epoch; half a flit of a NEWS packet's payload.
NEWS_ENTRY = place(
    {
        "region": REGION,
        "tell": 1,
        "close": 1,
        "abort": 1,
        "short": 1,
        "over": 1,
        "ragged": 1,
        "epoch": EPOCH,
        "": REST,
        "bytes16": SENT16,
    },
    WORD,
)

# One row's mapping, spilled to device memory as one 64-bit word.
SPILL_WORD = place(
    {
        "rowtag": REST,
        "src": RANK,
        "missing": MISSING,
        "slot": SLOT,
        "overflow": 1,
        "epoch": EPOCH,
        "valid": 1,
    },
    WORD,
)


def pack(layout, **fields):
    """Fields to an integer. Raises ValueError when a field is unknown or its value does not fit."""
    word = 0
    for name, value in fields.items():
        if name not in layout:
            raise ValueError(f"{name}: no such field; the fields are {', '.join(layout)}")
        low, width = layout[name]
        if not 0 <= int(value) < 1 << width:
            raise ValueError(f"{name} = {int(value)}: must fit {width} bits")
        word |= int(value) << low
    return word


def unpack(layout, word):
    """An integer to a dictionary of fields."""
    return {name: (word >> low) & ((1 << width) - 1) for name, (low, width) in layout.items()}


_KEYS = 1 << LANE_KEY


def row_hash(value):
    """XOR fold of a RowID to 12 bits: cheap in gates, even over consecutive numbers."""
    key = 0
    for low in range(0, ROWID, LANE_KEY):
        key ^= value >> low
    return key & _KEYS - 1


def replica_of(rowid, replicas):
    """Which replica of its handle a row goes to: the same for every store of the row."""
    return row_hash(rowid) % replicas


def lane_of(operand, lanes, packet_bytes, mode=LaneMode.ROTATE, fixed=0):
    """Lane that a store belongs to; a pure function of its operand (and of the handle's lane mode).

    Rows are pinned whole, so that one RAT bank maps all packets of a row. Plain stores are pinned
    by packet-sized address block, so that two stores to one address keep their order. All sums are
    taken mod 2**LANE_KEY before the division, which keeps the hardware small.
    """
    row = unpack(OPERAND_ROW, operand)
    if row["plain"]:
        return unpack(OPERAND_PLAIN, operand)["addr"] // packet_bytes % _KEYS % lanes
    if mode == LaneMode.FIXED:
        return fixed % lanes
    key = row_hash(row["rowid"]) if mode == LaneMode.HASH else row["rowid"]
    return (key + row["handle"]) % _KEYS % lanes


def link_of(block, lanes, links):
    """Which link of its lane's slice a plain store's block goes over: all blocks of a lane go
    round."""
    return block % _KEYS // lanes % links
