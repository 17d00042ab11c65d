# SPDX-License-Identifier: Apache-2.0
"""Layouts and pure functions inside the slot allocator: what its parts pass to each other."""

from enum import IntEnum
from functools import cache

from amaranth import Cat, Const
from amaranth.lib import data

from hub_rtl.contract.config import ceil_log2, index_width
from hub_rtl.contract.fields import (
    BYTE,
    EPOCH,
    LEN,
    RANK,
    REASON,
    REGION,
    ROWID,
    WORD,
    bits_of,
)
from hub_rtl.contract.packets import SPILL_WORD, PacketType, Reason
from hub_rtl.contract.records import ALLOC_STROBES, WAITING, body_layout, layout_of, types_of
from hub_rtl.parts.mutants import mutant

__all__ = [
    "COMMANDS",
    "EPOCH_NEVER",
    "REASONS",
    "REPLIES",
    "SliceTypes",
    "Kind",
    "VictimRank",
    "WaitCause",
    "fold_key",
    "of_run",
    "slice_types_of",
]

#: Commands between lookup and issue of one slice, and allocation answers on their way.
#: So many answers are on their way when each packet of a slice asks for one.
COMMANDS, REPLIES = 8, 6

#: A bank that was never opened counts as if this epoch were over (plus 1 for the odd bank): the
#: first packets are early.
EPOCH_NEVER = 14


#: Why a packet is refused here.
REASONS = (
    Reason.UNKNOWN,
    Reason.FOREIGN,
    Reason.REGION_FULL,
    Reason.EPOCH_STALE,
    Reason.EPOCH_EARLY,
    Reason.ROW_OVERRUN,
    Reason.ROW_RANGE,
    Reason.MEM_ERROR,
    Reason.WINDOW,
)


#: Strobes that the lookup gives; the issue stage gives the others.
LOOKUP_STROBES = (
    "rat_hits",
    "spills",
    "restores",
    "filter_false",
    "dropped",
    "spill_errors",
    "stall_lookup",
    "stall_spill",
    "stall_purge",
)


class Kind(IntEnum):
    """What the issue stage does with a packet."""

    ROW = 0
    PLAIN = 1
    SINK = 2


class VictimRank(IntEnum):
    """How willingly a way is given up."""

    NONE = 0
    REFUSED = 1  # a row without a slot
    PLACED = 2  # a row with one: it is spilled
    OVER = 3  # a row whose epoch is over


class WaitCause(IntEnum):
    """Why a slice's oldest packet waits (port ``waiting``)."""

    NONE = 0
    PAYLOAD = 1  # for a beat of its record
    ALLOC = 2  # for the answer of the address table
    WRITE = 3  # for the memory writer to take the command
    DATA = 4  # for the memory writer to take data
    REFUSED = 5  # for the scoreboard to take a refusal
    LOOKUP = 6  # for a place in the command queue
    SPILL = 7  # for the spill engine
    PURGE = 8  # for a purge to end


class SliceTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct, types = data.StructLayout, types_of(cfg)
        #: Shared with other blocks.
        self.alloc_reply, self.obs_alloc, self.waiting = types.alloc_reply, types.obs_alloc, WAITING
        self.bank, self.overlap, self.counts = (
            types.bank_name,
            types.bank_strobe,
            types.alloc_counts,
        )
        self.purge = types.run_strobe
        #: Bodies of the two packet types.
        self.row_body = body_layout(PacketType.ROW)
        self.plain_body = body_layout(PacketType.PLAIN)
        body = self.row_body.size
        #: Header as the lookup sees it. ``body``: as in the packet; ``len``: 16-byte units;
        #: ``bytes``: those that its mask names.
        self.head = struct(
            {
                "plain": 1,
                "poison": 1,
                "src": RANK,
                "len": LEN,
                "bytes": cfg.bytes_width,
                "body": body,
            }
        )
        #: A beat of a record: a ``part`` of its block, and which bytes of it are written.
        self.part_width = index_width(cfg.packet_bytes // cfg.slice_bytes)
        self.piece = struct(
            {
                "data": cfg.slice_bytes * BYTE,
                "strb": cfg.slice_bytes,
                "part": self.part_width,
                "last": 1,
            }
        )
        #: A row, and the tag part of one way of the RAT.
        row = {"region": cfg.region_width, "epoch": EPOCH, "rowid": ROWID}
        self.row = struct(row)
        self.tag = struct({"valid": 1, **row, "src": RANK})
        #: How a packet is related to one before it: same set of the RAT, same row, another source.
        self.twin = struct({"set": 1, "row": 1, "stranger": 1})
        #: What a set of the RAT holds for a packet: the way of its row, the ways with a row, and
        #: whether its row is of another source.
        self.seen = struct({"match": cfg.rat_ways, "used": cfg.rat_ways, "stranger": 1})
        #: What a packet that leaves the pipe does to its set: whether and where an entry is
        #: written, and whether the row stays in it.
        self.change = struct({"write": 1, "way": cfg.rat_ways, "keeps": 1})
        #: A slot as a spill word names it.
        self.slot = struct({"slot": cfg.slot_width, "overflow": 1})
        self.way_width = index_width(cfg.rat_ways)
        self.set_width = ceil_log2(cfg.rat_sets)
        self.rat_entries = ((cfg.rat_sets - 1) << ceil_log2(cfg.rat_ways)) + cfg.rat_ways
        self.index_width = index_width(self.rat_entries)
        #: A looked-up packet. ``fresh``: an allocation answer belongs to it; ``install``: keep the
        #: answer in the data part at ``index``. ``counted``, ``dep``, ``group_base``,
        #: ``group_step`` (its group is their sum): of a plain packet. ``reason``: of kind SINK.
        self.command = struct(
            {
                "kind": bits_of(Kind),
                "fresh": 1,
                "install": 1,
                "index": self.index_width,
                "poison": 1,
                "len": LEN,
                "bytes": cfg.bytes_width,
                "src": RANK,
                "body": body,
                "reason": REASON,
                "known": 1,
                "counted": 1,
                "dep": cfg.dep_width,
                "group_base": cfg.group_width,
                "group_step": cfg.group_width,
            }
        )
        #: Row to read or write in the spill table.
        self.spill_request = struct(
            {"write": 1, "region": cfg.region_width, "bank": 1, "rowid": ROWID, "word": WORD}
        )
        self.spill_reply = struct({"word": WORD, "error": 1})
        #: Of the victim store: a row and its word; a word that is not valid is no line.
        spilled = struct({"region": cfg.region_width, "bank": 1, "rowid": ROWID})
        self.line = struct({"row": spilled, "word": layout_of(SPILL_WORD)})
        #: Dependency range as the slices see it, and all of them.
        self.range = struct(
            {name: field.shape for name, field in types.dep_range if name != "threshold"}
        )
        self.ranges = data.ArrayLayout(self.range, cfg.dep_ranges)
        #: Which row a packet is of; 0 for a plain packet.
        self.name = struct({"region": REGION, "rowid": ROWID})
        #: One-cycle strobes of one slice: of its lookup; all. ``summed`` are added up over the
        #: slices, ``refused`` with its ``reason`` is counted by reason.
        self.summed = ALLOC_STROBES
        self.lookup_strobes = struct(dict.fromkeys(LOOKUP_STROBES, 1))
        issued = [name for name in ALLOC_STROBES if name not in LOOKUP_STROBES]
        all_strobes = (*LOOKUP_STROBES, "refused", *issued)
        self.strobes = struct({**dict.fromkeys(all_strobes, 1), "reason": REASON})


@cache
def slice_types_of(cfg):
    """The :class:`SliceTypes` of a configuration."""
    return SliceTypes(cfg)


def fold_key(region, bank, rowid, width):
    """Index of ``width`` bits (0: constant 0) for a row: the 24 bits ``rowid ^ {region, bank} <<
    12``, folded by XOR.

    Folding over all bits keeps the sets even although the rows of one lane are a lane count apart.
    """
    if width == 0:
        return Const(0, 1)
    key = rowid ^ Cat(Const(0, 12), bank, region)[:ROWID]
    index = key[:width]
    for low in range(width, ROWID, width):
        index = index ^ key[low : low + width]
    return index[:width]


def of_run(run, region, bank):
    """Is the bank one of a purge's ``run``?"""
    return (
        (region >= run.region)
        & mutant(
            "slot_allocator.last_bank_not_purged",
            region <= run.last,
            (region < run.last) | (run.region == run.last),
        )
        & (bank == run.bank)
    )
