# SPDX-License-Identifier: Apache-2.0
"""Widths of the architecture, in bits, each stated once: formats, records, registers and ports take
them from here.

Plain Python (no Amaranth). What depends on a configuration (how many ranks *this* hub numbers) is a
property of :class:`~hub_rtl.contract.config.HubConfig`; what stands here is the same in every hub,
because it is written on a wire, in memory or in a register. A number that is not a width of its own
is computed from others.
"""

__all__ = [
    "AXI_BURST",
    "AXI_CACHE",
    "AXI_LEN",
    "AXI_PROT",
    "AXI_RESP",
    "AXI_SIZE",
    "ADDR",
    "ADDR16",
    "AGE",
    "BURST",
    "BYTE",
    "CAUSE",
    "CLOSES",
    "COMMAND_OP",
    "COUNTER",
    "CRC",
    "CREDIT",
    "CSR_ADDR",
    "EPOCH",
    "EXPECTED",
    "FLIT",
    "FLIT_BYTES",
    "GRANT",
    "HANDLE",
    "KIND",
    "LANE",
    "LANE_KEY",
    "LANE_MODE",
    "LEN",
    "LOG2_REPLICAS",
    "LOG2_STRIDE",
    "LOG2_TILE",
    "MISSING",
    "NEWS_COUNT",
    "OP",
    "ORDER_ERROR",
    "OWNER",
    "PLAINS",
    "PRIORITY",
    "RANK",
    "REASON",
    "REGION",
    "REGISTER",
    "REPLICA",
    "ROWID",
    "ROW_OFF",
    "SECTOR",
    "SECTOR_BYTES",
    "SECTOR_UNITS",
    "SENT16",
    "SEQ",
    "SLOT",
    "STATE",
    "TILE",
    "TIMER",
    "TOTAL",
    "TYPE",
    "UNIT",
    "WORD",
    "bits_of",
]


def bits_of(enum):
    """Bits that hold every member of an enumeration."""
    return max(enum).bit_length()


# -- what moves ------------------------------------------------------------------------------------
BYTE = 8
WORD = 64  # store operand, spill word, flag
FLIT = 128  # what a lane, a write port and a link move per cycle
SECTOR = 256  # data of one store
FLIT_BYTES = FLIT // BYTE  # also bits of its strobe
SECTOR_BYTES = SECTOR // BYTE  # also bits of its mask
SECTOR_UNITS = SECTOR // FLIT  # 16-byte units of a sector
UNIT = (FLIT_BYTES - 1).bit_length()  # low bits of a byte number inside a 16-byte unit

# -- names -----------------------------------------------------------------------------------------
RANK = 7  # of a GPU; a 72-GPU system fits, 128 at most
LANE = 5  # of a link, 32 at most
HANDLE = 11  # entry of a producer's decoder table, 2048 at most
REGION = 11  # region at its rank, 2048 at most
EPOCH = 4  # generation of a region, mod 16; its lowest bit is the bank
ROWID = 24  # row of a (region, epoch), chosen by software
OWNER = 4  # who issues stores and commands, checked against the decoder entry
PRIORITY = 2  # of rows and plain packets for one peer: who goes first
ADDR = 48  # byte in device memory
ADDR16 = ADDR - UNIT  # 16-byte unit of device memory
CSR_ADDR = 16  # byte in the register space: ten pages of 4 KiB

# -- amounts ---------------------------------------------------------------------------------------
ROW_OFF = 10  # 16-byte unit in a row: rows have 16 KiB at most
MISSING = ROW_OFF + UNIT + 1  # bytes of a row, 0..16384
SLOT = 20  # slot of a region, 2**20 at most
TILE = 24  # bytes of a tile: 1024 rows of 16 KiB, less one
SENT16 = 30  # 16-byte units that one producer sends to a region in an epoch
TOTAL = SENT16 + UNIT  # the same in bytes; every byte total of a region
LEN = 5  # payload flits of a packet, 0..16
NEWS_COUNT = 5  # entries of a NEWS packet, 1..16
EXPECTED = 8  # closes that complete an epoch
CLOSES = 9  # closes that have come, a repeated one included

# -- selectors -------------------------------------------------------------------------------------
TYPE = 4  # packets.PacketType on the wire, with room for more
REASON = 4  # packets.Reason, wherever something is answered, refused or logged
COMMAND_OP = 3  # packets.CommandOp
OP = 2  # packets.RegionOp
ORDER_ERROR = 3  # packets.OrderError: why an order to a region was not carried out
STATE = 2  # packets.RegionState
KIND = 2  # packets.EventKind
LANE_MODE = 2  # packets.LaneMode
CAUSE = 4  # why a packet waits in the slot allocator
LOG2_REPLICAS = 2  # 1, 2 or 4 replicas of a handle
REPLICA = 2  # one of them
LOG2_TILE = 4  # rows of a tile, 1..1024
LOG2_STRIDE = 6  # bytes of a dependency range's group

# -- choices ---------------------------------------------------------------------------------------
LANE_KEY = 12  # lane and replica of a row or block: sums and hashes are taken mod 4096 first

# -- links -----------------------------------------------------------------------------------------
SEQ = 10  # number of a packet per lane and hop, mod 1024
CREDIT = 8  # control buffers freed since reset, mod 256
GRANT = 12  # packets granted by a slice, or given back to it, since reset, mod 4096
PLAINS = 12  # plain packets of one slice to one rank since reset, by phase, mod 4096
CRC = 24  # reserved in the header

# -- registers -------------------------------------------------------------------------------------
REGISTER = 32  # a register, an AXI4-Lite beat
COUNTER = 48  # a counter, shown as two registers
TIMER = 16  # merge timeout and age limit, in cycles
AGE = TIMER  # of a pool entry, in cycles, saturating
BURST = 16  # bursts of a slice without an answer, as shown

# -- AXI4, as its specification gives them ---------------------------------------------------------
AXI_LEN = 8  # beats of a burst, less one
AXI_SIZE = 3  # log2 of the bytes of a beat
AXI_BURST = 2
AXI_CACHE = 4
AXI_PROT = 3
AXI_RESP = 2
