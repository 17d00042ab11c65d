# SPDX-License-Identifier: Apache-2.0
"""Records inside the receive pool of a slice, and its sizes."""

from functools import cache

from amaranth.lib import data

from hub_rtl.contract.config import RESERVE, ConfigError, ceil_log2, first_share, index_width
from hub_rtl.contract.fields import EPOCH, GRANT, REGION, ROW_OFF, ROWID
from hub_rtl.contract.records import received_of

__all__ = ["PoolTypes", "pool_types_of"]

QUIET = 3  #: periods without a packet after which a source may lose its first share


class PoolTypes:
    """Layouts and sizes of one pool.

    ``places``, packets that find room; ``first``, of them each source's from reset on; ``most``,
    that one source may have.
    """

    def __init__(self, cfg, slice_bytes, places, most=None):
        struct, peers = data.StructLayout, cfg.ranks - 1
        if not RESERVE * peers <= places < 1 << GRANT - 1:
            raise ConfigError(
                f"places = {places}: must be between {RESERVE * peers} and {(1 << GRANT - 1) - 1}"
            )
        self.places, self.first = places, first_share(cfg.ranks, places)
        self.most = places - RESERVE * (peers - 1) if most is None else most
        if not self.first <= self.most <= places:
            raise ConfigError(f"most = {most}: must be between {self.first} and {places}")
        self.record = received_of(cfg, slice_bytes)
        self.parts = cfg.packet_bytes // slice_bytes
        rank, place = cfg.rank_width, index_width(places)
        self.place_width = place
        #: A packet that waits: where it is, and which parts it has.
        self.node = struct({"place": place, "parts": self.parts})
        #: A packet is there to its end.
        self.append = struct({"en": 1, "src": rank, "node": self.node})
        self.pick = struct({"en": 1, "src": rank})
        #: What the pool has for the next packet of a link; not ``admitted``: it is dropped.
        self.ticket = struct({"admitted": 1, "place": place})
        #: A packet's header as it is kept; its source is known from its list. ``body``: the block
        #: of a plain one, else the row and its block. ``lost_from``: the part, if ``lost``.
        block = ROW_OFF - ceil_log2(cfg.packet_flits)
        self.row = struct({"region": REGION, "epoch": EPOCH, "rowid": ROWID, "block": block})
        body = max(self.row.size, cfg.addr_block_width)
        self.kept = struct(
            {
                **dict.fromkeys(("plain", "phase", "cls", "news", "poison", "lost"), 1),
                "lost_from": self.record["part"].width,
                "body": body,
                "mask": cfg.packet_bytes,
            }
        )
        #: What is known of a source, from visit to visit. Packets since reset, mod 4096:
        #: ``granted`` beyond the first share, ``told``, ``freed``, ``back``, given back by it,
        #: ``then``, arrived when the period began; ``recent``, arrived in the period before;
        #: ``quiet``, periods since anything did, QUIET at most.
        totals = ("granted", "told", "freed", "back", "then", "recent")
        self.book = struct(dict.fromkeys(totals, GRANT) | {"quiet": QUIET.bit_length()})


@cache
def pool_types_of(cfg, slice_bytes, places, most=None):
    """The :class:`PoolTypes` of a pool."""
    return PoolTypes(cfg, slice_bytes, places, most)
