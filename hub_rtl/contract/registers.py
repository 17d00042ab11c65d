# SPDX-License-Identifier: Apache-2.0
"""The registers of the hub: one description that yields the decoder in hardware, the manual, the C
header and the sidecar.

Plain Python (no Amaranth), in the words of :mod:`hub_rtl.contract.register_map`.
``register_map(cfg)`` derives everything from the configuration.
"""

from .fields import (
    ADDR,
    AGE,
    BURST,
    BYTE,
    CAUSE,
    CLOSES,
    COMMAND_OP,
    COUNTER,
    EPOCH,
    EXPECTED,
    FLIT,
    HANDLE,
    LANE_MODE,
    LOG2_REPLICAS,
    LOG2_STRIDE,
    LOG2_TILE,
    OP,
    ORDER_ERROR,
    OWNER,
    PRIORITY,
    RANK,
    REASON,
    REGION,
    REGISTER,
    REPLICA,
    ROWID,
    SENT16,
    STATE,
    TILE,
    TIMER,
)
from .packets import CommandOp, LaneMode, OrderError, Reason, RegionOp, RegionState
from .register_map import Field, Page, Register, RegisterMap

__all__ = [
    "register_map",
    "policies",
    "COUNTER_BASE",
    "COUNTERS",
    "MAGIC",
    "ONE_SOURCE",
    "VERSION",
    "IRQ_SOURCES",
    "GEOMETRY_RULES",
]

MAGIC = 0x4D485542  # "MHUB"
VERSION = (0, 1, 0)
COUNTER_BASE = 0x100  # first counter in its page, two words each

#: Bits of IRQ_STATUS and IRQ_ENABLE, in order. The first is a level, the others are kept until
#: cleared.
IRQ_SOURCES = {
    "event": "an event waits on the event port (level)",
    "error": "an ERROR event was taken from the event port",
    "timeout": "a region made no progress for TIMEOUT cycles",
    "refusal": "a refusal was logged or lost",
    "command": "a region command was not possible, see regions.COMMAND_ERROR",
    "geometry": "a geometry was refused, see regions.ERROR",
    "bad_packet": "a received packet was dropped, see logs.BAD",
}

#: Bits of regions.ERROR, in order: why a geometry was refused. Nothing was changed then.
GEOMETRY_RULES = {
    "busy": "a bank of the region is not FREE",
    "row_bytes": "row_bytes must be a multiple of 16, 16 or more, and at most max_row_bytes",
    "stride": "stride must be a multiple of packet_bytes and at least row_bytes",
    "base": "both bases must be multiples of packet_bytes, spill and flag bases multiples of 8",
    "capacity": "capacity must be 1 or more and at most the configured capacity",
    "groups": (
        "group_base + tiles must not exceed groups; a tile has at most 1024 rows and "
        f"less than 2**{TILE} bytes"
    ),
    "rows": f"row_span must be 1 or more, and row_first + row_span at most 2**{ROWID}",
    "overflow": "the overflow region must exist and be another one",
    "valid": "FLAGS.valid must be 1",
}

# Counters, in address order: name -> text. Strobes of all lanes (or slices) are added up.
_REFUSED = (
    "UNKNOWN",
    "FOREIGN",
    "REGION_FULL",
    "EPOCH_STALE",
    "EPOCH_EARLY",
    "ROW_OVERRUN",
    "ROW_RANGE",
    "AFTER_CLOSE",
    "BAD_LANE",
    "BAD_HEADER",
    "MEM_ERROR",
    "PEER_DEAD",
    "WINDOW",
)
COUNTERS = {
    # Decoders
    "stores": "stores taken",
    "stores_refused": "stores refused by the decoders",
    "store_stalls": "cycles a store waited at a decoder",
    # Packet managers
    "merges": "stores merged into an entry of the pool",
    "overlaps": "stores that hit a byte already in the pool (rule R2 broken)",
    "packets_full": "packets sent complete",
    "packets_partial": "packets sent incomplete",
    "packets_timeout": "partial packets sent because their merge timer had expired",
    "sunk": "entries sunk for a dead peer",
    "stall_pool": "cycles a store waited for a place in the pool",
    "stall_credit": "cycles an eligible entry waited for a credit",
    # News of the producer
    "closes": "closes sent",
    "closes_dropped": "closes dropped because the peer is dead",
    "tells": "tells sent before their close",
    "tells_dropped": "tells dropped because the peer is dead",
    "fences": "fences answered",
    # Links and loop lanes
    "tx_busy": "flits sent",
    "tx_idle_waiting": "cycles a flit waited for the fabric",
    "credit_stall": "cycles a control message waited for a credit",
    "credits_sent": "CREDIT flits sent",
    "rx_busy": "flits received",
    "seq_errors": "packets with an unexpected sequence number",
    "credit_violations": "packets dropped because the source had no credit",
    "truncated": "packets received too short or too long",
    "bad_totals": "credit totals that a peer cannot have reached",
    "control_sunk": "control messages sunk for a dead peer",
    "bad_packets": "packets dropped for their header",
    "closes_received": "closes received, own ones included",
    "rejects_received": "REJECT messages received",
    # Slot allocator
    "rat_new": "rows placed",
    "rat_hits": "packets of rows already in a RAT",
    "spills": "rows spilled to memory",
    "restores": "rows restored from memory",
    "filter_false": "restores that found nothing",
    "dropped": "RAT entries dropped in place of a spill",
    "spill_errors": "spill accesses that memory answered with an error",
    "written_out": "spilled rows that left the victim store for memory",
    "stall_lookup": "cycles a packet waited for a place behind the lookup",
    "stall_spill": "cycles a packet waited for the spill engine",
    "stall_purge": "cycles a packet waited for a purge",
    "stall_payload": "cycles a packet waited for its payload",
    "stall_alloc": "cycles a packet waited for its slot",
    "stall_write": "cycles a packet waited for the memory writer to take its address",
    "stall_data": "cycles a packet waited for the memory writer to take data",
    "stall_refused": "cycles until a packet's refusal was taken, the last one included",
    "reports": "rows reported as refused",
    **{f"refused_{name.lower()}": f"packets refused with {name}" for name in _REFUSED},
    # Memory writers and the 64-bit port
    "writes": "bursts sent to memory",
    "beats": "beats sent to memory",
    "stall_aw": "cycles a write address waited for memory",
    "stall_w": "cycles write data waited for memory",
    "flag_errors": "flag writes that memory answered with an error",
    # Scoreboard
    "ready": "READY events",
    "all": "ALL events",
    "error": "ERROR events",
    "acks_stray": "acknowledgements for a FREE bank or a range that is not armed",
    "refused_stale": "refusals for an epoch that is over",
    "close_stale": "tells and closes for an epoch that is over",
    "early_kept": "tells, closes and refusals kept for the epoch to come",
    "tainted": "early tells, closes and refusals lost: those of another epoch were kept",
    "told_twice": "second tells of a producer",
    "close_twice": "second closes of a producer",
    "close_bad": "tells and closes of an unknown region or producer",
    "mem_errors": "acknowledgements, merged ones once, with a memory error",
    "poisoned": "acknowledgements, merged ones once, of poisoned data",
    "row_overlaps": "rows that got more bytes than they have",
    "timeouts": "stalls of a region reported",
    "ack_merges": "cycles in which acknowledgements were merged",
    # Reports
    "rejects_sent": "REJECT messages sent",
    "rejects_lost": "REJECT messages lost: queue full, rank dead or none",
    "news_lost": "entries of NEWS packets lost: the packet came too short, or they say nothing",
}
#: Counters of which a hub has one strobe; the others have one for each lane or slice.
ONE_SOURCE = frozenset(
    (
        "closes",
        "closes_dropped",
        "tells",
        "tells_dropped",
        "fences",
        "closes_received",
        "rejects_received",
        "rat_new",
        "written_out",
        "flag_errors",
        "ready",
        "all",
        "error",
        "acks_stray",
        "refused_stale",
        "close_stale",
        "early_kept",
        "tainted",
        "told_twice",
        "close_twice",
        "close_bad",
        "mem_errors",
        "poisoned",
        "row_overlaps",
        "timeouts",
        "ack_merges",
        "rejects_sent",
        "rejects_lost",
    )
)


def _wide(name, offset, access, text, width=ADDR):
    """A value of more than 32 bits: two registers, low word first. Proofs have narrower totals."""
    high = max(1, width - REGISTER)
    return [
        Register(
            f"{name}_LO",
            offset,
            (Field("value", 0, REGISTER, access, 0, f"{text}, bits {REGISTER - 1}:0"),),
        ),
        Register(
            f"{name}_HI",
            offset + 4,
            (Field("value", 0, high, access, 0, f"{text}, bits {high + REGISTER - 1}:{REGISTER}"),),
        ),
    ]


def _word(name, offset, width, access, text, reset=0, **more):
    return Register(name, offset, (Field("value", 0, width, access, reset, text),), **more)


def _bitmap(name, offset, bits, access, text):
    """One bit per rank, 32 ranks per register."""
    return [
        _word(
            f"{name}{n}",
            offset + 4 * n,
            min(REGISTER, bits - REGISTER * n),
            access,
            f"{text}, ranks {REGISTER * n} and up",
        )
        for n in range(-(-bits // REGISTER))
    ]


def _id_page(cfg):
    numbers = {k: v for k, v in cfg.as_dict().items() if type(v) is int}
    registers = [
        _word("MAGIC", 0x00, REGISTER, "ro", "the letters MHUB", MAGIC, constant=True),
        Register(
            "VERSION",
            0x04,
            tuple(
                Field(n, low, BYTE, "ro", value, f"{n} version")
                for n, low, value in zip(
                    ("patch", "minor", "major"), (0, BYTE, 2 * BYTE), reversed(VERSION), strict=True
                )
            ),
            constant=True,
        ),
        _word(
            "RANK",
            0x08,
            cfg.rank_width,
            "rw",
            "own rank. SLVERR: no such rank, or the hub has taken a store or moved a flit since "
            "reset",
            guarded=True,
        ),
    ]
    registers += [
        _word(
            f"CFG_{name.upper()}",
            0x40 + 4 * n,
            REGISTER,
            "ro",
            f"configuration: {name}",
            value,
            constant=True,
        )
        for n, (name, value) in enumerate(numbers.items())
    ]
    return Page("id", 0, tuple(registers), "Identity and configuration")


def _control_page(cfg):
    kept = tuple(
        Field(n, bit, 1, "ro" if bit == 0 else "w1c", 0, text)
        for bit, (n, text) in enumerate(IRQ_SOURCES.items())
    )
    enable = tuple(
        Field(n, bit, 1, "rw", 0, text) for bit, (n, text) in enumerate(IRQ_SOURCES.items())
    )
    return Page(
        "control",
        1,
        (
            Register(
                "STATUS",
                0x00,
                (
                    Field("cleared", 0, 1, "ro", 0, "tables are cleared, traffic may start"),
                    Field("command_busy", 1, 1, "ro", 0, "a command of COMMAND has no answer yet"),
                    Field(
                        "region_busy",
                        2,
                        1,
                        "ro",
                        0,
                        "a region command is not done: 0 again once its banks read as it leaves "
                        "them, or as they were if it was not possible",
                    ),
                    Field("fetch_busy", 3, 1, "ro", 0, "handles.FETCH is on its way"),
                    Field("query_busy", 4, 1, "ro", 0, "regions.QUERY is on its way"),
                    Field(
                        "snapshot_busy", 5, 1, "ro", 0, "counters.SNAPSHOT or CLEAR is on its way"
                    ),
                    Field("purging", 6, 1, "ro", 0, "a bank is being purged"),
                    Field("in_flight", 7, 1, "ro", 0, "some decoder holds a store"),
                    Field(
                        "range_busy",
                        8,
                        1,
                        "ro",
                        0,
                        "the counters of a disarmed dependency range are being cleared",
                    ),
                ),
            ),
            Register("IRQ_STATUS", 0x04, kept),
            Register("IRQ_ENABLE", 0x08, enable),
            _word(
                "MERGE_TIMEOUT",
                0x10,
                TIMER,
                "rw",
                "cycles until a partial packet may leave; rows in turn need it to fill one each",
                512,
                policy=True,
            ),
            _word(
                "AGE_LIMIT",
                0x14,
                TIMER,
                "rw",
                "cycles until an entry goes before all younger ones",
                1024,
                policy=True,
            ),
            _word(
                "TIMEOUT",
                0x18,
                REGISTER,
                "rw",
                "cycles without progress until an OPEN region is reported, 0 = never",
            ),
            _word(
                "BUCKET_SHIFT",
                0x1C,
                ROWID.bit_length(),
                "rw",
                "full packets of a peer leave by RowID >> this, in eight turns",
                policy=True,
            ),
            _word(
                "PRIORITY",
                0x30,
                PRIORITY,
                "rw",
                "of packets for one peer: 0 rows before plain ones, 1 in turns, 2 plain ones first",
                policy=True,
            ),
            Register(
                "COMMAND",
                0x20,
                (
                    Field(
                        "op",
                        0,
                        COMMAND_OP,
                        "wo",
                        0,
                        "the command; not ANNOUNCE, which is the register of that name",
                        CommandOp,
                    ),
                    Field("owner", 4, OWNER, "wo", 0, "owner in whose name it is given"),
                    Field("epoch", 8, EPOCH, "wo"),
                    Field("abort", 12, 1, "wo", 0, "CLOSE: the producer gives up"),
                    Field("handle", 16, cfg.handle_width, "wo"),
                ),
                "Doorbell; SLVERR while STATUS.command_busy, or not cleared",
            ),
            Register(
                "ANSWER",
                0x24,
                (
                    Field("busy", 0, 1, "ro", 0, "not answered yet"),
                    Field("status", 4, REASON, "ro", 0, "of the last answer", Reason),
                ),
            ),
            Register(
                "ANNOUNCE_TO",
                0x28,
                (
                    Field("owner", 4, OWNER, "rw", 0, "owner in whose name ANNOUNCE is given"),
                    Field("epoch", 8, EPOCH, "rw"),
                    Field("replica", 12, REPLICA, "rw"),
                    Field("handle", 16, cfg.handle_width, "rw", 0, "ANNOUNCE steps to the next"),
                ),
                "Whose bytes the next ANNOUNCE tells",
                load=True,
            ),
            Register(
                "ANNOUNCE",
                0x2C,
                (
                    Field("bytes16", 0, SENT16, "wo", 0, "bytes / 16 that come in this epoch"),
                    Field("more", 31, 1, "wo", 0, "another one follows at once"),
                ),
                "Doorbell as COMMAND; the answer is in ANSWER",
            ),
        ),
        "Control, interrupts, timeouts, commands",
    )


def _peer_page(cfg):
    return Page(
        "peers",
        2,
        (
            _word(
                "MAX_ENTRIES",
                0x00,
                cfg.pool_depth.bit_length(),
                "rw",
                "most pool entries of one peer per lane",
                cfg.pool_depth,
                policy=True,
            ),
            *_bitmap("DRAIN", 0x10, cfg.ranks, "rw", "1: the peer is dead, sink what goes there"),
        ),
        "Peers",
    )


def _handle_page(cfg):
    return Page(
        "handles",
        3,
        (
            _word("INDEX", 0x00, cfg.handle_width, "rw", "handle that COMMIT and FETCH mean"),
            _word(
                "COMMIT",
                0x04,
                1,
                "wo",
                "any value: write the fields below to the handle, in one cycle. SLVERR: no "
                "such handle, or not cleared",
            ),
            _word(
                "FETCH",
                0x08,
                1,
                "wo",
                "any value: read the handle into the fields below. SLVERR: no such handle, "
                "busy, or not cleared",
            ),
            Register(
                "FLAGS",
                0x10,
                (
                    Field(
                        "valid",
                        0,
                        1,
                        "rw",
                        0,
                        "the handle may be used; 0 takes it back: its stores are answered UNKNOWN",
                    ),
                    Field("closed", 1, 1, "rw", 0, "the epoch before `epoch` has been closed"),
                    Field("owner", 4, OWNER, "rw"),
                    Field("epoch", 8, EPOCH, "rw"),
                    Field("log2_replicas", 12, LOG2_REPLICAS, "rw"),
                    Field("lane_mode", 16, LANE_MODE, "rw", 0, "of rows", LaneMode),
                    Field("lane", 20, cfg.lane_width, "rw", 0, "lane for FIXED"),
                ),
                load=True,
            ),
            _word("ROW_BYTES", 0x14, cfg.row_bytes_width, "rw", "bytes of a row", load=True),
            *[
                Register(
                    f"REPLICA{n}",
                    0x20 + 4 * n,
                    (
                        Field("rank", 0, cfg.rank_width, "rw"),
                        Field("region", 16, cfg.region_width, "rw"),
                    ),
                    load=True,
                )
                for n in range(cfg.replicas)
            ],
        ),
        "Decoder entries: INDEX, fields, COMMIT",
    )


def _region_page(cfg):
    return Page(
        "regions",
        4,
        (
            _word(
                "INDEX", 0x00, cfg.region_width, "rw", "region that COMMIT, COMMAND and QUERY mean"
            ),
            _word(
                "COMMIT",
                0x04,
                1,
                "wo",
                "any value: check the geometry below and write it. SLVERR: no such region, "
                "or not cleared",
            ),
            Register(
                "ERROR",
                0x08,
                tuple(
                    Field(n, bit, 1, "w1c", 0, text)
                    for bit, (n, text) in enumerate(GEOMETRY_RULES.items())
                ),
                "Why a COMMIT was refused",
            ),
            Register(
                "COMMAND",
                0x10,
                (
                    Field("op", 0, OP, "wo", 0, "the order", RegionOp),
                    Field(
                        "again",
                        4,
                        1,
                        "wo",
                        0,
                        "RELEASE only: opens the bank for epoch + 2 as soon as it is free",
                    ),
                    Field("epoch", 8, EPOCH, "wo"),
                    Field(
                        "more",
                        16,
                        cfg.region_width,
                        "wo",
                        0,
                        "regions behind INDEX that get the same order, one after the other",
                    ),
                ),
                "SLVERR: a region that does not exist, again without RELEASE, "
                "STATUS.region_busy, or not cleared",
            ),
            Register(
                "COMMAND_ERROR",
                0x14,
                (
                    Field(
                        "valid",
                        0,
                        1,
                        "w1c",
                        0,
                        "a command was not possible, nothing was changed; the first one is kept",
                    ),
                    Field("op", 4, OP, "ro", 0, "the order", RegionOp),
                    Field("epoch", 8, EPOCH, "ro"),
                    Field("reason", 12, ORDER_ERROR, "ro", 0, "why not", OrderError),
                    Field("region", 16, cfg.region_width, "ro"),
                ),
            ),
            Register(
                "FLAGS",
                0x20,
                (
                    Field(
                        "valid", 0, 1, "rw", 0, "must be 1: COMMIT refuses a geometry without it"
                    ),
                    Field(
                        "overflow_en", 1, 1, "rw", 0, "`overflow` takes the rows of a full region"
                    ),
                    Field(
                        "flag_en", 2, 1, "rw", 0, "READY of a group also writes its flag to memory"
                    ),
                    Field("log2_tile", 4, LOG2_TILE, "rw", 0, "rows of a tile"),
                    Field("expected", 8, EXPECTED, "rw", 0, "closes that complete an epoch"),
                    Field("overflow", 16, cfg.region_width, "rw", 0, "overflow region"),
                ),
            ),
            *_wide("BASE0", 0x28, "rw", "address of slot 0, even epochs"),
            *_wide("BASE1", 0x30, "rw", "address of slot 0, odd epochs"),
            _word("STRIDE", 0x38, cfg.stride_width, "rw", "bytes from row to row"),
            _word("ROW_BYTES", 0x3C, cfg.row_bytes_width, "rw", "bytes of a row"),
            _word("CAPACITY", 0x40, cfg.slot_width, "rw", "slots"),
            _word("GROUP_BASE", 0x44, cfg.group_width, "rw", "group of the first tile"),
            _word("ROW_FIRST", 0x48, ROWID, "rw", "smallest RowID"),
            _word("ROW_SPAN", 0x4C, ROWID + 1, "rw", "number of RowIDs"),
            *_wide("SPILL_BASE0", 0x50, "rw", "spill table, even epochs"),
            *_wide("SPILL_BASE1", 0x58, "rw", "spill table, odd epochs"),
            *_wide("FLAG_BASE", 0x60, "rw", "flag of the first group"),
            _word(
                "QUERY",
                0x80,
                1,
                "wo",
                "bank to read into the registers below; SLVERR: no such region, busy, or "
                "not cleared",
            ),
            Register(
                "STATE",
                0x84,
                (
                    Field("state", 0, STATE, "ro", 0, "of the bank", RegionState),
                    Field("epoch", 4, EPOCH, "ro"),
                    Field("error", 8, REASON, "ro", 0, "why the epoch ended in ERROR", Reason),
                    Field("closes", 16, CLOSES, "ro", 0, "closes received"),
                ),
            ),
            *_wide("SENT", 0x88, "ro", "bytes told by all who told", cfg.total_width),
            *_wide("ACKED", 0x90, "ro", "bytes acknowledged by memory", cfg.total_width),
            *_wide("REFUSED", 0x98, "ro", "bytes refused", cfg.total_width),
            _word("ROWS", 0xA0, cfg.slot_width, "ro", "rows"),
            _word("TOLD", 0xA4, CLOSES, "ro", "tells received"),
            Register(
                "BLAME",
                0xA8,
                (
                    Field("valid", 0, 1, "ro", 0, "a close said that its producer broke its word"),
                    Field("rank", 8, cfg.rank_width, "ro", 0, "the first one that did"),
                ),
            ),
            *_bitmap("MISSING", 0xB0, cfg.ranks, "ro", "1: no close yet"),
            *_bitmap("SILENT", 0xC0, cfg.ranks, "ro", "1: has not told yet"),
        ),
        "Regions: INDEX, geometry, COMMIT; commands; state",
    )


def _dep_page(cfg):
    return Page(
        "deps",
        5,
        (
            _word("INDEX", 0x00, cfg.dep_width, "rw", "range that COMMIT writes"),
            _word(
                "COMMIT",
                0x04,
                1,
                "wo",
                "any value: write the range. SLVERR: no such range, STATUS.range_busy, or "
                "not cleared",
            ),
            Register(
                "FLAGS",
                0x10,
                (
                    Field("armed", 0, 1, "rw"),
                    Field("log2_stride", 8, LOG2_STRIDE, "rw", 0, "bytes of a group"),
                ),
            ),
            *_wide("BASE", 0x18, "rw", "first byte"),
            *_wide("LIMIT", 0x20, "rw", "first byte behind"),
            _word("GROUP_BASE", 0x28, cfg.group_width, "rw", "first group"),
            _word("THRESHOLD", 0x2C, cfg.tile_width, "rw", "bytes that make a group ready"),
        ),
        "Dependency ranges of plain stores",
    )


def _window_page(cfg):
    return Page(
        "windows",
        6,
        (
            _word("INDEX", 0x00, cfg.rank_width, "rw", "source rank that COMMIT means"),
            _word(
                "COMMIT",
                0x04,
                1,
                "wo",
                "any value: write the window. SLVERR: no such rank, or not cleared",
            ),
            *_wide("BASE", 0x10, "rw", "first byte that plain stores of that rank may touch"),
            *_wide("LIMIT", 0x18, "rw", "first byte behind"),
        ),
        "Windows of plain stores",
    )


def _counter_page(cfg):
    registers = [
        Register("CONTROL", 0x00, (Field("freeze", 0, 1, "rw", 0, "1: all counters stand still"),)),
        _word(
            "SNAPSHOT",
            0x04,
            1,
            "wo",
            "any value: copy all counters to the registers below. SLVERR: busy",
        ),
        _word("CLEAR", 0x08, 1, "wo", "any value: all counters to zero. SLVERR: busy"),
    ]
    for n, (name, text) in enumerate(COUNTERS.items()):
        for half, bits in enumerate((REGISTER, COUNTER - REGISTER)):
            registers.append(
                Register(
                    f"{name.upper()}_{'LO' if half == 0 else 'HI'}",
                    COUNTER_BASE + 8 * n + 4 * half,
                    (
                        Field(
                            "value",
                            0,
                            bits,
                            "ro",
                            0,
                            text if half == 0 else f"bits {COUNTER - 1}:{REGISTER}",
                        ),
                    ),
                    external=True,
                )
            )
    return Page(
        "counters", 7, tuple(registers), f"Counters, {COUNTER} bits; SNAPSHOT first, then read"
    )


def _log_page(cfg):
    return Page(
        "logs",
        8,
        (
            _word(
                "INDEX",
                0x00,
                max(1, (cfg.log_depth - 1).bit_length()),
                "rw",
                "entry shown below, 0 is the oldest",
            ),
            _word("COUNT", 0x04, cfg.log_depth.bit_length(), "ro", "entries kept"),
            _word(
                "LOST",
                0x08,
                REGISTER,
                "ro",
                "refusals and bad packets that found the log or its queue full",
            ),
            _word("CLEAR", 0x0C, 1, "wo", "any value: empty the log"),
            Register(
                "ENTRY",
                0x10,
                (
                    Field("reason", 0, REASON, "ro", 0, "why it was refused", Reason),
                    Field(
                        "side",
                        4,
                        1,
                        "ro",
                        0,
                        "with remote: 00 packet refused here, 10 store refused by a decoder here",
                    ),
                    Field(
                        "remote",
                        5,
                        1,
                        "ro",
                        0,
                        "01 REJECT from another hub, 11 received packet dropped for its header",
                    ),
                    Field("plain", 6, 1, "ro"),
                    Field("owner", 8, OWNER, "ro", 0, "owner of a store"),
                    Field("epoch", 12, EPOCH, "ro"),
                    Field(
                        "number", 16, max(REGION, HANDLE), "ro", 0, "region, or handle of a store"
                    ),
                ),
            ),
            Register(
                "ENTRY_ROW",
                0x14,
                (
                    Field("rowid", 0, ROWID, "ro"),
                    Field("rank", ROWID, RANK, "ro", 0, "the other rank"),
                ),
            ),
            Register(
                "BAD",
                0x20,
                (
                    Field("valid", 0, 1, "w1c", 0, "the first bad packet is kept until cleared"),
                    Field("reason", 4, REASON, "ro", 0, "why it was dropped", Reason),
                    Field("lane", 8, cfg.link_width, "ro", 0, "number of the link"),
                ),
            ),
            *[
                _word(
                    f"BAD_HEADER{n}",
                    0x30 + 4 * n,
                    REGISTER,
                    "ro",
                    f"header bits {REGISTER * (n + 1) - 1}:{REGISTER * n}",
                )
                for n in range(FLIT // REGISTER)
            ],
        ),
        "Logs",
    )


def _hang_page(cfg):
    return Page(
        "hang",
        9,
        (
            _word(
                "SLICE",
                0x00,
                cfg.slice_width,
                "rw",
                "slice shown below: links first, then loopback",
            ),
            Register(
                "OLDEST",
                0x10,
                (
                    Field("valid", 0, 1, "ro"),
                    Field("plain", 1, 1, "ro"),
                    Field("epoch", 4, EPOCH, "ro"),
                    Field("rank", 8, cfg.rank_width, "ro", 0, "destination"),
                    Field("region", 16, cfg.region_width, "ro"),
                ),
                "Oldest entry of the slice's packet manager",
            ),
            _word("OLDEST_ROWID", 0x14, ROWID, "ro", "its RowID"),
            _word("OLDEST_AGE", 0x18, AGE, "ro", "its age in cycles"),
            Register(
                "WAITING",
                0x20,
                (
                    Field("valid", 0, 1, "ro"),
                    Field("cause", 4, CAUSE, "ro"),
                    Field("region", 16, REGION, "ro"),
                ),
                "Packet that waits in the slice's slot allocator",
            ),
            _word("WAITING_ROWID", 0x24, ROWID, "ro", "its RowID"),
            _word(
                "OUTSTANDING",
                0x28,
                BURST,
                "ro",
                "bursts of the slice without an answer from memory",
            ),
            Register(
                "TIMEOUT",
                0x30,
                (
                    Field("valid", 0, 1, "w1c", 0, "the last timeout; later ones replace it"),
                    Field("bank", 1, 1, "ro"),
                    Field("epoch", 4, EPOCH, "ro"),
                    Field("region", 16, cfg.region_width, "ro"),
                ),
            ),
            *_bitmap(
                "TIMEOUT_MISSING", 0x40, cfg.ranks, "ro", "1: no close at the time of the timeout"
            ),
            *_bitmap("TIMEOUT_SILENT", 0x50, cfg.ranks, "ro", "1: had not told at the timeout"),
            *_bitmap(
                "NO_CREDIT", 0x60, cfg.ranks, "ro", "1: no data credit for that rank in the slice"
            ),
            *_bitmap(
                "NO_CTL_CREDIT",
                0x80,
                cfg.ranks,
                "ro",
                "1: no control credit for that rank in the slice",
            ),
        ),
        "Why it hangs: the oldest thing in every block",
    )


def register_map(cfg):
    """The :class:`RegisterMap` of a configuration."""
    return RegisterMap(
        [
            page(cfg)
            for page in (
                _id_page,
                _control_page,
                _peer_page,
                _handle_page,
                _region_page,
                _dep_page,
                _window_page,
                _counter_page,
                _log_page,
                _hang_page,
            )
        ],
        tuple(COUNTERS),
    )


def policies(cfg):
    """{field: path} of the registers that say how packets are sent."""
    return {
        register.name.lower(): path for path, _, register in register_map(cfg) if register.policy
    }
