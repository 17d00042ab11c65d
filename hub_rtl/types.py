"""Payloads of the streams and buses between the blocks, sized by a :class:`~hub_rtl.config.HubConfig`.

``types_of(cfg)`` gives one namespace of layouts per configuration, so that two blocks that meet always agree.
"""

from functools import cache

from amaranth.lib import data

from . import formats
from .config import ADDR_WIDTH, EPOCH_WIDTH, ROWID_WIDTH

__all__ = ["HubTypes", "types_of", "header_layout"]


def header_layout(packet_type=None):
    """128-bit header flit as a struct; with a packet type, its body fields are split out (all other bits kept)."""
    fields = {name: data.Field(width, low) for name, (low, width) in formats.HEADER.items()}
    for name, (low, width) in (formats.BODIES[packet_type] if packet_type is not None else {}).items():
        fields[name] = data.Field(width, low)
    return data.FlexibleLayout(128, fields)


class HubTypes:
    """All payload layouts of one configuration. Units: ``bytes`` fields count bytes, ``beats`` count 16-byte flits."""

    def __init__(self, cfg):
        struct = data.StructLayout
        rank, region, epoch, rowid = cfg.rank_width, cfg.region_width, EPOCH_WIDTH, ROWID_WIDTH

        # -- producer side ----------------------------------------------------------------------------------------------
        #: A store as the GPU crossbar delivers it.
        self.store = struct({"operand": 64, "cls": 1, "owner": 4, "data": 256, "mask": 32, "tag": cfg.tag_width})
        #: Answer to a store: ``status`` is a formats.Reason, OK when it was accepted.
        self.store_response = struct({"tag": cfg.tag_width, "status": 4})
        #: A store whose destination is known. ``block``: packet-sized block of the row (plain = 0) or of the address
        #: space (plain = 1). ``sector``: 32-byte sector in the block. ``full``: bytes that make the block complete.
        #: ``dest``: handle * replicas + replica, names the send counter.
        self.resolved = struct({"plain": 1, "cls": 1, "rank": rank, "region": region, "epoch": epoch, "rowid": rowid,
                                "block": max(cfg.row_block_width, cfg.addr_block_width), "sector": cfg.sector_width,
                                "full": cfg.bytes_width, "dest": cfg.dest_width, "data": 256, "mask": 32})
        #: fence, close, close all (formats.CommandOp)
        self.command = struct({"op": 2, "handle": cfg.handle_width, "epoch": epoch, "owner": 4, "tag": cfg.tag_width})
        self.command_response = self.store_response
        #: One (rank, region) pair of a decoder entry.
        self.replica = struct({"rank": rank, "region": region})
        #: One decoder entry. ``closed``: the epoch before ``epoch`` has been closed. ``log2_replicas``: 0..2.
        self.handle = struct({"valid": 1, "owner": 4, "epoch": epoch, "closed": 1, "row_bytes": cfg.row_bytes_width,
                              "lane_mode": 2, "lane": cfg.lane_width, "log2_replicas": 2,
                              "replica": data.ArrayLayout(self.replica, cfg.replicas)})

        # -- packets ----------------------------------------------------------------------------------------------------
        #: Packet stream. First flit is the header. ``err`` marks a flit that the link padded (its bytes are not written).
        self.flit = struct({"data": 128, "first": 1, "last": 1, "err": 1})

        # -- consumer side ----------------------------------------------------------------------------------------------
        #: What a write means to the scoreboard; travels through the memory writer and comes back with the answer.
        #: ``counted`` = 0: no counter moves. ``plain`` = 0: row-sparse, counts for (region, bank) and for (place, bank, group),
        #: where place differs from region only for overflowed rows. ``plain`` = 1: counts for dependency range ``dep``,
        #: group ``group`` of bank 0.
        self.context = struct({"counted": 1, "plain": 1, "region": region, "place": region, "bank": 1,
                               "group": cfg.group_width, "dep": cfg.dep_width, "bytes": cfg.bytes_width, "poison": 1})
        self.write = struct({"addr": ADDR_WIDTH, "beats": 5, "context": self.context})
        self.beat = struct({"data": 128, "strb": 16, "last": 1})
        self.ack = struct({"context": self.context, "ok": 1})
        #: Bytes that were sunk. ``known``: region and epoch name a bank whose refused total must grow. ``plain``: no region.
        #: ``report``: first time for this row, send REJECT and log it.
        self.refusal = struct({"known": 1, "plain": 1, "report": 1, "region": 11, "epoch": epoch, "rowid": rowid, "src": 7,
                               "reason": 4, "bytes": cfg.bytes_width})
        #: A producer's close, from the link or from the own rank. ``sent``: bytes.
        self.close = struct({"region": 11, "epoch": epoch, "src": 7, "sent": cfg.total_width, "ragged": 1, "abort": 1})
        #: READY / ALL / ERROR (formats.EventKind). ``plain``: ``region`` holds the dependency range.
        #: ``rows``: rows in the tile (READY) or in the region (ALL). ``refused``: some bytes were refused (ALL).
        self.event = struct({"kind": 2, "plain": 1, "region": max(region, cfg.dep_width), "epoch": epoch,
                             "group": cfg.group_width, "rows": cfg.slot_width, "status": 4, "refused": 1})

        # -- regions ----------------------------------------------------------------------------------------------------
        #: Geometry of a region, written by software while the region is FREE. Bytes unless said. ``expected``: closes that
        #: complete an epoch. ``flag_en``: write a 64-bit flag per group to memory.
        self.geometry = struct({"valid": 1, "base": data.ArrayLayout(ADDR_WIDTH, 2), "stride": cfg.stride_width,
                                "row_bytes": cfg.row_bytes_width, "capacity": cfg.slot_width, "group_base": cfg.group_width,
                                "log2_tile": 4, "row_first": ROWID_WIDTH, "row_span": ROWID_WIDTH + 1,
                                "spill_base": data.ArrayLayout(ADDR_WIDTH, 2), "overflow_en": 1, "overflow": region,
                                "expected": 8, "flag_en": 1, "flag_base": ADDR_WIDTH})
        self.geometry_write = struct({"en": 1, "region": region, "geometry": self.geometry})
        #: State of an epoch bank, broadcast by the scoreboard, one change per cycle at most.
        self.region_update = struct({"en": 1, "region": region, "bank": 1, "state": 2, "epoch": epoch})
        #: Software's order to a region (formats.RegionOp); bank is epoch[0].
        self.region_command = struct({"op": 2, "region": region, "epoch": epoch})
        #: Plain-store dependency range: group = group_base + ((addr - base) >> log2_stride) for base <= addr < limit;
        #: a group is ready at ``threshold`` acknowledged bytes. Counts while ``armed``.
        self.dep_range = struct({"armed": 1, "base": ADDR_WIDTH, "limit": ADDR_WIDTH, "log2_stride": 6,
                                 "group_base": cfg.group_width, "threshold": cfg.tile_width})
        self.dep_write = struct({"en": 1, "index": cfg.dep_width, "range": self.dep_range})
        #: Addresses that plain stores of one source rank may touch: base <= addr < limit.
        self.window = struct({"base": ADDR_WIDTH, "limit": ADDR_WIDTH})
        self.window_write = struct({"en": 1, "rank": rank, "window": self.window})

        # -- slot allocation ----------------------------------------------------------------------------------------------
        #: Address-pointer-table request: a new row (``slot`` ignored), or the address of a known slot after a restore.
        self.alloc_request = struct({"translate": 1, "region": region, "bank": 1, "overflow": 1, "slot": cfg.slot_width,
                                     "rowid": rowid})
        #: Its answer. ``reason`` is OK or why there is no slot.
        self.alloc_reply = struct({"reason": 4, "slot": cfg.slot_width, "overflow": 1, "place": region, "addr": ADDR_WIDTH,
                                   "group": cfg.group_width})


@cache
def types_of(cfg):
    """The :class:`HubTypes` of a configuration."""
    return HubTypes(cfg)
