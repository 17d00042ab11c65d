# SPDX-License-Identifier: Apache-2.0
"""Records that cross the walls of blocks, each declared once, sized by a
:class:`~hub_rtl.contract.config.HubConfig`.

``types_of(cfg)`` gives one namespace of layouts per configuration, so that two blocks that meet
always agree; a record that is the same in every configuration is a constant here. What stays inside
a block is in its own ``records.py``, in the same style: a class of layouts, one cached instance per
configuration.
"""

from functools import cache

from amaranth.lib import data

from . import packets
from .config import index_width
from .fields import (
    ADDR,
    AGE,
    BURST,
    BYTE,
    CAUSE,
    CLOSES,
    EPOCH,
    EXPECTED,
    FLIT,
    GRANT,
    HANDLE,
    LANE_MODE,
    LEN,
    LOG2_REPLICAS,
    LOG2_STRIDE,
    LOG2_TILE,
    OP,
    ORDER_ERROR,
    OWNER,
    PLAINS,
    RANK,
    REASON,
    REGION,
    ROWID,
    SENT16,
    STATE,
    WORD,
)
from .ports import alloc_fields, command_fields, event_fields, response_fields, store_fields
from .registers import COUNTERS, ONE_SOURCE, policies, register_map

__all__ = [
    "ALLOC_STROBES",
    "BAD_PACKET",
    "CLOSE_COUNTS",
    "FLAG",
    "HubTypes",
    "LINK_COUNTS",
    "LINK_STEPS",
    "LOG_ENTRY",
    "MEMORY_COUNTS",
    "MESSAGES",
    "POOL_COUNTS",
    "READY_COUNTS",
    "REJECT_REPORT",
    "STORE_COUNTS",
    "STORE_REFUSAL",
    "WAITING",
    "body_layout",
    "header_layout",
    "layout_of",
    "news_layout",
    "received_of",
    "record_of",
    "types_of",
]


def layout_of(fields, size=WORD):
    """A word of :mod:`~hub_rtl.contract.packets` (``{name: (lowest bit, width)}``) as a struct."""
    places = {name: data.Field(width, low) for name, (low, width) in fields.items()}
    return data.FlexibleLayout(size, places)


def header_layout(packet_type=None):
    """128-bit header flit as a struct; with a packet type, its body fields are split out (all other
    bits kept)."""
    body = packets.BODIES[packet_type] if packet_type is not None else {}
    return layout_of({**packets.HEADER, **body}, FLIT)


def body_layout(packet_type):
    """The header's body alone, split into the fields of a packet type."""
    start, size = packets.HEADER["body"]
    fields = packets.BODIES[packet_type].items()
    return layout_of({name: (low - start, width) for name, (low, width) in fields}, size)


def news_layout():
    """An entry of a NEWS packet as a struct."""
    return layout_of(packets.NEWS_ENTRY)


def _strobes(*names):
    return data.StructLayout(dict.fromkeys(names, 1))


# -- the same in every configuration ---------------------------------------------------------------

#: A decoder's one-cycle report of a refused store. ``handle`` and ``rank`` are as wide as the
#: operand's fields, so that numbers out of range are shown as they came.
STORE_REFUSAL = data.StructLayout(
    {
        "en": 1,
        "handle": HANDLE,
        "rowid": ROWID,
        "plain": 1,
        "rank": RANK,
        "reason": REASON,
        "owner": OWNER,
        "epoch": EPOCH,
    }
)
#: What a received REJECT says.
REJECT_REPORT = data.StructLayout(
    {"region": REGION, "epoch": EPOCH, "rowid": ROWID, "reason": REASON, "src": RANK}
)
#: A link's pulse for a packet dropped for its header.
BAD_PACKET = data.StructLayout({"en": 1, "header": FLIT, "reason": REASON})
#: One entry of the refusal log. ``side``, ``remote``: 0, 0 a packet refused here; 1, 0 a store
#: refused by a decoder here; 0, 1 a REJECT from another hub; 1, 1 a received packet dropped for its
#: header. ``number``: region, or handle of a store. ``rank``: the other rank.
LOG_ENTRY = data.StructLayout(
    {
        "reason": REASON,
        "side": 1,
        "remote": 1,
        "plain": 1,
        "owner": OWNER,
        "epoch": EPOCH,
        "number": max(REGION, HANDLE),
        "rowid": ROWID,
        "rank": RANK,
    }
)
#: The packet that waits in a slice of the slot allocator, and for what.
WAITING = data.StructLayout({"valid": 1, "cause": CAUSE, "region": REGION, "rowid": ROWID})
#: A flag write: byte address, multiple of 8, and its 64 bits.
FLAG = data.StructLayout({"addr": ADDR, "data": WORD})

# One-cycle strobes for the counters, by the block that gives them.
#: Decoder: ``stall``, a store waits.
STORE_COUNTS = _strobes("stores", "refused", "stall")
CLOSE_COUNTS = _strobes("closes", "closes_dropped", "tells", "tells_dropped", "fences")
POOL_COUNTS = _strobes(
    "merges",
    "overlaps",
    "packets_full",
    "packets_partial",
    "packets_timeout",
    "sunk",
    "stall_pool",
    "stall_credit",
)
#: tx_busy, rx_busy: a flit moved. tx_idle_waiting: none moved though one waited. credit_stall: a
#: control flit waits for a credit. credits_sent: CREDIT flits. seq_errors: headers whose number was
#: not the expected one. credit_violations: packets dropped because the source had no credit.
#: truncated: packets that ended too early or too late. bad_totals: credit totals that a peer cannot
#: have reached. control_sunk: control flits for a dead peer, not sent.
LINK_COUNTS = _strobes(
    "tx_busy",
    "tx_idle_waiting",
    "credit_stall",
    "credits_sent",
    "rx_busy",
    "seq_errors",
    "credit_violations",
    "truncated",
    "bad_totals",
    "control_sunk",
)
#: Most that a link with a clock of its own adds to a counter in one cycle of the hub.
LINK_STEPS = 3
#: Bursts and beats taken by the memory; cycles in which an address or a beat waited for it.
MEMORY_COUNTS = _strobes("writes", "beats", "stall_aw", "stall_w")
#: What slices tell each other in CREDIT flits, and the records of it.
MESSAGES = {"granted": "grant", "returned": "returned", "asked": "ask", "answered": "answer"}
#: Strobes of one slice of the slot allocator that are added up over the slices.
ALLOC_STROBES = (
    "rat_hits",
    "spills",
    "restores",
    "filter_false",
    "dropped",
    "spill_errors",
    "stall_lookup",
    "stall_spill",
    "stall_purge",
    "reports",
    "stall_payload",
    "stall_alloc",
    "stall_write",
    "stall_data",
    "stall_refused",
)
READY_COUNTS = _strobes(
    "acks_stray",
    "refused_stale",
    "close_stale",
    "early_kept",
    "tainted",
    "told_twice",
    "close_twice",
    "mem_errors",
    "poisoned",
    "overlaps",
    "close_bad",
    "ready",
    "all",
    "error",
    "timeouts",
    "merges",
)


class HubTypes:
    """All payload layouts of one configuration. Units: ``bytes`` fields count bytes, ``beats``
    count 16-byte flits."""

    def __init__(self, cfg):
        struct = data.StructLayout
        rank, region, epoch, rowid = cfg.rank_width, cfg.region_width, EPOCH, ROWID

        # -- producer side -------------------------------------------------------------------------
        self.store = struct(store_fields(cfg))
        self.store_response = struct(response_fields(cfg))
        #: A store whose destination is known. ``block``: packet-sized block of the row (plain = 0)
        #: or of the address space (plain = 1). ``part``: piece of ``slice_bytes`` of the block.
        #: ``full``: bytes that make the block complete. ``dest``: handle * replicas + replica,
        #: names the send counter.
        self.resolved = struct(
            {
                "plain": 1,
                "cls": 1,
                "rank": rank,
                "region": region,
                "epoch": epoch,
                "rowid": rowid,
                "block": max(cfg.row_block_width, cfg.addr_block_width),
                "part": index_width(cfg.packet_bytes // cfg.slice_bytes),
                "full": cfg.bytes_width,
                "dest": cfg.dest_width,
                "data": cfg.slice_bytes * BYTE,
                "mask": cfg.slice_bytes,
            }
        )
        self.command = struct(command_fields(cfg))
        self.command_response = self.store_response
        #: One (rank, region) pair of a decoder entry.
        self.replica = struct({"rank": rank, "region": region})
        #: One decoder entry. ``closed``: the epoch before ``epoch`` has been closed.
        #: ``log2_replicas``: 0..2.
        self.handle = struct(
            {
                "valid": 1,
                "owner": OWNER,
                "epoch": epoch,
                "closed": 1,
                "row_bytes": cfg.row_bytes_width,
                "lane_mode": LANE_MODE,
                "lane": cfg.lane_width,
                "log2_replicas": LOG2_REPLICAS,
                "replica": data.ArrayLayout(self.replica, cfg.replicas),
            }
        )
        #: Writes one entry of the decoder table; reads one.
        self.handle_write = struct({"en": 1, "index": cfg.handle_width, "handle": self.handle})
        self.handle_read = struct({"en": 1, "index": cfg.handle_width})
        #: Broadcast write of one decoder entry. ``hold``: a close of the epoch that used the same
        #: bank before is not sent yet. Stores of the entry's epoch are EPOCH_EARLY as long as it is
        #: set, else their bytes would be counted into that close.
        self.handle_broadcast = struct(
            {"en": 1, "index": cfg.handle_width, "handle": self.handle, "hold": 1}
        )
        #: All entries of the pool that a fence or close waits for are marked: of one handle, or
        #: ``all``.
        self.mark = struct({"en": 1, "all": 1, "handle": cfg.handle_width})
        #: How packets are sent, as the registers with ``policy`` say.
        registers = register_map(cfg)
        self.policy = struct(
            {name: registers.register(path).fields[0].width for name, path in policies(cfg).items()}
        )
        #: Bytes of a packet that left, for the send ledger.
        self.sent = struct({"en": 1, "dest": cfg.dest_width, "bank": 1, "bytes": cfg.bytes_width})
        #: Oldest entry of a pool, for the HANG page.
        self.oldest = struct(
            {
                "valid": 1,
                "plain": 1,
                "rank": rank,
                "region": region,
                "epoch": epoch,
                "rowid": rowid,
                "age": AGE,
            }
        )

        # -- packets -------------------------------------------------------------------------------
        #: Packet stream. First flit is the header. ``err`` marks a flit that the link padded (its
        #: bytes are not written).
        self.flit = struct({"data": FLIT, "first": 1, "last": 1, "err": 1})
        #: An event of one rank: a credit was taken, a buffer was freed.
        self.rank_strobe = struct({"en": 1, "rank": rank})
        #: What a slice's receive pool tells a source: packets granted since reset beyond its first
        #: share, mod 4096; ``back``: it is asked to give back what it does not use.
        self.grant = struct({"rank": rank, "total": GRANT, "back": 1})
        #: What a source gave back since reset, mod 4096.
        self.returned = struct({"rank": rank, "total": GRANT})
        #: What a remote fence asks a rank: have all these plain packets of that phase been dealt
        #: with? ``total``: since reset, mod 4096.
        self.ask = struct({"rank": rank, "total": PLAINS, "phase": 1})
        #: They have. ``bad``: one of them was refused, cut, or answered with an error.
        self.answer = struct({"rank": rank, "bad": 1})
        #: A message of a peer's slice, by its name: strobe and record.
        self.messages = {
            name: struct({"en": 1, "what": getattr(self, what)}) for name, what in MESSAGES.items()
        }
        #: One dropped packet of all links.
        self.first_bad = struct({"en": 1, "lane": cfg.link_width, "header": FLIT, "reason": REASON})

        # -- consumer side -------------------------------------------------------------------------
        #: What a write means to the scoreboard; travels through the memory writer and comes back
        #: with the answer. ``counted`` = 0: no counter moves. ``plain`` = 0: row-sparse, counts for
        #: (region, bank) and for (place, bank, group), where place differs from region only for
        #: overflowed rows. ``plain`` = 1: counts for dependency range ``dep``, group ``group`` of
        #: bank 0. ``src``, ``phase``: of a plain packet, whose it is.
        self.context = struct(
            {
                "counted": 1,
                "plain": 1,
                "region": region,
                "place": region,
                "bank": 1,
                "group": cfg.group_width,
                "dep": cfg.dep_width,
                "bytes": cfg.bytes_width,
                "poison": 1,
                "src": rank,
                "phase": 1,
            }
        )
        #: A write to memory: ``addr`` of its first beat, and beats of ``slice_bytes``.
        self.write = struct({"addr": ADDR, "beats": LEN, "context": self.context})
        self.beat = struct({"data": cfg.slice_bytes * BYTE, "strb": cfg.slice_bytes, "last": 1})
        self.ack = struct({"context": self.context, "ok": 1})
        #: Bytes that were sunk. ``known``: of a region with a geometry: the books judge the epoch.
        #: ``plain``: no region; of ``phase``. ``report``: first time for this row, send REJECT and
        #: log it.
        self.refusal = struct(
            {
                "known": 1,
                "plain": 1,
                "phase": 1,
                "report": 1,
                "region": REGION,
                "epoch": epoch,
                "rowid": rowid,
                "src": RANK,
                "reason": REASON,
                "bytes": cfg.bytes_width,
            }
        )
        #: One entry of announcements, from the link or from the own rank: what rank ``src`` says of
        #: one region and epoch. ``tell``: it promises 16 * ``bytes16`` bytes (and up to 15 more if
        #: ``ragged``). ``close``: it sends nothing more; only with it ``abort``: it gave up,
        #: ``short``, ``over``: it sent less, more than it told. One of tell, close is set.
        self.news = struct(
            {
                "region": REGION,
                "epoch": epoch,
                "src": RANK,
                "tell": 1,
                "close": 1,
                "abort": 1,
                "short": 1,
                "over": 1,
                "ragged": 1,
                "bytes16": SENT16,
            }
        )
        self.event = struct(event_fields(cfg))

        # -- regions -------------------------------------------------------------------------------
        #: Geometry of a region, written by software while the region is FREE. Bytes unless said.
        #: ``expected``: closes that complete an epoch. ``flag_en``: write a 64-bit flag per group
        #: to memory.
        self.geometry = struct(
            {
                "valid": 1,
                "base": data.ArrayLayout(ADDR, 2),
                "stride": cfg.stride_width,
                "row_bytes": cfg.row_bytes_width,
                "capacity": cfg.slot_width,
                "group_base": cfg.group_width,
                "log2_tile": LOG2_TILE,
                "row_first": ROWID,
                "row_span": ROWID + 1,
                "spill_base": data.ArrayLayout(ADDR, 2),
                "overflow_en": 1,
                "overflow": region,
                "expected": EXPECTED,
                "flag_en": 1,
                "flag_base": ADDR,
            }
        )
        self.geometry_write = struct({"en": 1, "region": region, "geometry": self.geometry})
        #: State of an epoch bank, broadcast by the scoreboard, one change per cycle at most.
        self.region_update = struct(
            {"en": 1, "region": region, "bank": 1, "state": STATE, "epoch": epoch}
        )
        #: Software's order to a region (packets.RegionOp); bank is epoch[0].
        self.region_command = struct({"op": OP, "region": region, "epoch": epoch})
        #: An order that was not carried out; ``reason``: packets.OrderError.
        self.command_error = struct(
            {"en": 1, "command": self.region_command, "reason": ORDER_ERROR}
        )
        #: Its like to all regions from ``region`` to ``last``. ``again``: each that is given back
        #: is opened for the epoch two further.
        self.region_order = struct(
            {"op": OP, "region": region, "epoch": epoch, "last": region, "again": 1}
        )
        #: A region's bank, and one this cycle.
        self.bank_name = struct({"region": region, "bank": 1})
        self.bank_strobe = struct({"en": 1, "region": region, "bank": 1})
        #: The same bank of all regions from ``region`` to ``last``, this cycle.
        self.run_strobe = struct({"en": 1, "region": region, "last": region, "bank": 1})
        #: A producer's second close.
        self.bad_close = struct({"en": 1, "region": region, "epoch": epoch, "src": rank})
        #: Book of a bank, as a CSR query shows it. ``told``, ``closes``: how many have come.
        #: ``blame``: the first rank whose close said that it broke its word.
        self.status = struct(
            {
                "state": STATE,
                "epoch": epoch,
                "told": CLOSES,
                "closes": CLOSES,
                "sent": cfg.total_width,
                "acked": cfg.total_width,
                "refused": cfg.total_width,
                "rows": cfg.slot_width,
                "error": REASON,
                "blame": struct({"valid": 1, "rank": rank}),
            }
        )
        #: Plain-store dependency range: group = group_base + ((addr - base) >> log2_stride) for
        #: base <= addr < limit; a group is ready at ``threshold`` acknowledged bytes. Counts while
        #: ``armed``.
        self.dep_range = struct(
            {
                "armed": 1,
                "base": ADDR,
                "limit": ADDR,
                "log2_stride": LOG2_STRIDE,
                "group_base": cfg.group_width,
                "threshold": cfg.tile_width,
            }
        )
        self.dep_write = struct({"en": 1, "index": cfg.dep_width, "range": self.dep_range})
        #: Addresses that plain stores of one source rank may touch: base <= addr < limit.
        self.window = struct({"base": ADDR, "limit": ADDR})
        self.window_write = struct({"en": 1, "rank": rank, "window": self.window})

        # -- slot allocation -----------------------------------------------------------------------
        #: Address-pointer-table request: a new row (``slot`` ignored), or the address of a known
        #: slot after a restore.
        self.alloc_request = struct(
            {
                "translate": 1,
                "region": region,
                "bank": 1,
                "overflow": 1,
                "slot": cfg.slot_width,
                "rowid": rowid,
            }
        )
        #: Its answer. ``reason`` is OK or why there is no slot.
        self.alloc_reply = struct(
            {
                "reason": REASON,
                "slot": cfg.slot_width,
                "overflow": 1,
                "place": region,
                "addr": ADDR,
                "group": cfg.group_width,
            }
        )
        self.obs_alloc = struct(alloc_fields(cfg))

        # -- registers -----------------------------------------------------------------------------
        #: Strobes of all slices, added up; ``refused`` is indexed by reason.
        many = cfg.slices.bit_length()
        self.alloc_counts = struct(
            {
                "rat_new": 1,
                "written_out": 1,
                **dict.fromkeys(ALLOC_STROBES, many),
                "refused": data.ArrayLayout(many, 1 << REASON),
            }
        )
        #: What the HANG page shows of one slice.
        self.view = struct(
            {
                "oldest": self.oldest,
                "waiting": WAITING,
                "outstanding": BURST,
                "no_credit": cfg.ranks,
                "no_ctl_credit": cfg.ranks,
            }
        )
        #: What a link gives to the counters in one cycle of the hub, its slice's own included:
        #: strobes, or up to LINK_STEPS and two more where the link has a clock of its own.
        step = (LINK_STEPS + 2).bit_length() if cfg.link_clock else 1
        self.link_counts = struct(dict.fromkeys(dict(LINK_COUNTS), step))
        #: Increments of all counters.
        sources = cfg.links + cfg.loop_lanes
        most = dict.fromkeys(COUNTERS, sources)
        most |= dict.fromkeys(dict(LINK_COUNTS), sources * ((1 << step) - 1))
        most |= dict.fromkeys(ONE_SOURCE, 1)
        self.counts = struct({name: most[name].bit_length() for name in COUNTERS})


def _record(cfg, slice_bytes, region, in_header, in_beat=()):
    """A record with more fields in its header and more marks of one bit in each beat."""
    header = {
        "plain": 1,
        "cls": 1,
        "rank": cfg.rank_width,
        "region": region,
        "epoch": EPOCH,
        "rowid": ROWID,
        "block": max(cfg.row_block_width, cfg.addr_block_width),
        **in_header,
    }
    return data.StructLayout(
        {
            "header": data.StructLayout(header),
            "mask": cfg.packet_bytes,
            "part": index_width(cfg.packet_bytes // slice_bytes),
            "last": 1,
            **dict.fromkeys(in_beat, 1),
            "data": slice_bytes * BYTE,
        }
    )


@cache
def record_of(cfg, slice_bytes):
    """One cycle of a record, a packet inside the hub.

    A record has one such beat for each ``part`` of ``slice_bytes`` of its block that has a byte, in
    order; ``header`` and ``mask``, of the whole block, stand beside all of them. Bytes of ``data``
    that the mask does not name are anything. ``header.cls`` = 1: `.nop`. ``header.rank``: the other
    rank, here that it goes to. ``header.phase``, of a plain one: which remote fences cover it;
    ``header.link``: over which of its slice's links it goes (:func:`.packets.link_of`).
    ``header.news``: the bytes are entries of announcements, 8 each, from the first on; of the rest
    of the header only the rank means something.
    """
    link = index_width(cfg.slice_links)
    return _record(cfg, slice_bytes, cfg.region_width, {"phase": 1, "news": 1, "link": link})


@cache
def received_of(cfg, slice_bytes):
    """One cycle of a record that came over a link: as :func:`record_of`, ``header.rank`` is its
    source; ``header.region`` is as wide as in the packet, so that numbers out of range are shown as
    they came.

    ``header.news``: the bytes are entries of announcements, 8 each; of the rest of the header only
    the rank means something. ``header.poison``: as in the packet; behind the receive pool also set
    if the packet was cut. ``lost``: of this part and those behind it nothing is written, the packet
    was cut in or before it. A packet whose mask names no byte has one beat nevertheless; before the
    receive pool, each packet has one for its last part.
    """
    return _record(cfg, slice_bytes, REGION, {"phase": 1, "news": 1, "poison": 1}, ("lost",))


@cache
def types_of(cfg):
    """The :class:`HubTypes` of a configuration."""
    return HubTypes(cfg)
