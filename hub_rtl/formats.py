"""Bit formats of the store operand and of the packets, and the pure functions that go with them.

Plain Python (no Amaranth): shared by RTL, golden model, benches and tools. ``docs/formats.md`` is the text of it.
"""

from enum import IntEnum

__all__ = ["PacketType", "Reason", "EventKind", "RegionState", "RegionOp", "CommandOp", "LaneMode", "OPERAND_ROW",
           "OPERAND_PLAIN", "HEADER", "BODIES", "pack", "unpack", "lane_of", "replica_of", "row_hash", "SPILL_WORD"]


class PacketType(IntEnum):
    """Header type field; 7 to 15 are reserved and refused as BAD_HEADER."""

    IDLE = 0
    ROW = 1
    PLAIN = 2
    CLOSE = 3
    REJECT = 4
    CREDIT = 5
    ACK = 6


class Reason(IntEnum):
    """Why something was refused (store response, REJECT, log) or why a region is in ERROR (event status)."""

    OK = 0
    UNKNOWN = 1         # no such handle, rank or region
    FOREIGN = 2         # the owner may not use the handle, or the row belongs to another producer
    REGION_FULL = 3     # no slot left, here and in the overflow region
    EPOCH_STALE = 4     # the epoch is over
    EPOCH_EARLY = 5     # the epoch is not open yet
    ROW_OVERRUN = 6     # bytes beyond row_bytes
    ROW_RANGE = 7       # RowID outside row_first .. row_first + row_span - 1
    AFTER_CLOSE = 8     # the producer has closed this epoch
    BAD_LANE = 9        # the row is pinned to another lane
    BAD_HEADER = 10     # malformed packet
    MEM_ERROR = 11      # memory answered with an error
    PEER_DEAD = 12      # the peer is in state DRAIN
    WINDOW = 13         # plain store outside the window of its source rank
    OVERLAP = 14        # event status only: more bytes than the rows have
    INCOMPLETE = 15     # event status only: closed with rows that lack bytes, aborted by a producer, or poisoned


class EventKind(IntEnum):
    READY = 0
    ALL = 1
    ERROR = 2


class RegionState(IntEnum):
    """State of one epoch bank of a region."""

    FREE = 0
    OPEN = 1
    DONE = 2            # all-ready was reached, or ERROR, or it is being aborted; nothing more is placed


class RegionOp(IntEnum):
    OPEN = 0            # FREE -> OPEN with an epoch
    RELEASE = 1         # DONE -> FREE
    ABORT = 2           # OPEN or DONE -> FREE, whatever has arrived


class CommandOp(IntEnum):
    FENCE = 0
    CLOSE = 1
    CLOSE_ALL = 2


class LaneMode(IntEnum):
    """How a row is pinned to a lane."""

    ROTATE = 0          # (RowID + handle) mod lanes
    HASH = 1            # (row_hash(RowID) + handle) mod lanes
    FIXED = 2           # the lane in the handle's entry


# Fields as {name: (lowest bit, width)}, LSB first.
OPERAND_ROW = {"handle": (0, 11), "epoch": (11, 4), "rowid": (15, 24), "row_off": (39, 10), "plain": (63, 1)}
OPERAND_PLAIN = {"addr": (0, 48), "rank": (48, 7), "plain": (63, 1)}

HEADER = {"type": (0, 4), "cls": (4, 1), "masked": (5, 1), "fan": (6, 1), "poison": (7, 1), "dst": (8, 7), "src": (15, 7),
          "lane": (22, 5), "len": (27, 5), "body": (32, 49), "zero": (81, 4), "seq": (85, 10), "credit_cls": (95, 1),
          "credit": (96, 8), "crc": (104, 24)}

# Bodies of the packet types; bit numbers count from the start of the flit.
BODIES = {
    PacketType.ROW: {"region": (32, 11), "epoch": (43, 4), "rowid": (47, 24), "row_off": (71, 10)},
    PacketType.PLAIN: {"addr16": (32, 44)},
    PacketType.CLOSE: {"region": (32, 11), "epoch": (43, 4), "sent16": (47, 30), "ragged": (77, 1), "abort": (78, 1)},
    PacketType.REJECT: {"region": (32, 11), "epoch": (43, 4), "rowid": (47, 24), "reason": (71, 4)},
    PacketType.CREDIT: {"total0": (32, 8), "total1": (40, 8)},
    PacketType.ACK: {"next": (32, 10), "nak": (42, 1)},
}

# One row's mapping, spilled to device memory as one 64-bit word.
SPILL_WORD = {"rowtag": (0, 16), "src": (16, 7), "missing": (23, 15), "slot": (38, 20), "overflow": (58, 1), "epoch": (59, 4),
              "valid": (63, 1)}


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


def row_hash(value):
    """12-bit XOR fold of a 24-bit number: cheap in gates, even over consecutive numbers."""
    return (value ^ (value >> 12)) & 0xFFF


def replica_of(rowid, replicas):
    """Which replica of its handle a row goes to: the same for every store of the row."""
    return row_hash(rowid) % replicas


def lane_of(operand, lanes, packet_bytes, mode=LaneMode.ROTATE, fixed=0):
    """Lane that a store belongs to; a pure function of its operand (and of the handle's lane mode).

    Rows are pinned whole, so that one RAT bank maps all packets of a row. Plain stores are pinned by packet-sized
    address block, so that two stores to one address keep their order. All sums are taken mod 4096 before the division,
    which keeps the hardware small.
    """
    if operand >> 63 & 1:
        return (unpack(OPERAND_PLAIN, operand)["addr"] // packet_bytes) % 4096 % lanes
    row = unpack(OPERAND_ROW, operand)
    if mode == LaneMode.FIXED:
        return fixed % lanes
    key = row_hash(row["rowid"]) if mode == LaneMode.HASH else row["rowid"]
    return (key + row["handle"]) % 4096 % lanes
