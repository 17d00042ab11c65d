# SPDX-License-Identifier: Apache-2.0
"""Records inside the packet manager, and pure functions of its parts."""

from functools import cache

from amaranth import Const, Mux, Signal
from amaranth.lib import data

from hub_rtl.contract.config import ceil_log2, index_width
from hub_rtl.contract.fields import EPOCH, ROWID, SECTOR, SECTOR_BYTES, SECTOR_UNITS
from hub_rtl.contract.records import POOL_COUNTS, types_of

__all__ = ["PoolTypes", "pool_types_of", "decode", "encode", "by_rank"]


class PoolTypes:
    """Layouts of one configuration. ``index`` numbers pool entries; ``bytes`` counts bytes."""

    def __init__(self, cfg):
        struct = data.StructLayout
        self.index_width = index = index_width(cfg.pool_depth)
        self.count_width = cfg.pool_depth.bit_length()  # holds 0..pool_depth
        self.units = cfg.packet_flits
        self.log2_units = ceil_log2(cfg.packet_flits)
        #: Shared with other blocks; ``take``: an entry of a rank takes a credit.
        types = types_of(cfg)
        self.resolved, self.flit = types.resolved, types.flit
        self.mark, self.sent, self.oldest = types.mark, types.sent, types.oldest
        self.policy = types.policy
        self.take, self.counts = types.rank_strobe, POOL_COUNTS
        #: What identifies an entry; kept in memory because only one entry at a time is looked at.
        self.info = struct(
            {
                "plain": 1,
                "rank": cfg.rank_width,
                "region": cfg.region_width,
                "epoch": EPOCH,
                "rowid": ROWID,
                "block": self.resolved["block"].width,
                "dest": cfg.dest_width,
            }
        )
        #: One store on its way into the memories. ``fresh``: the entry was just allocated. ``had``:
        #: its sectors with bytes.
        self.write = struct(
            {
                "en": 1,
                "index": index,
                "fresh": 1,
                "had": cfg.packet_sectors,
                "sector": cfg.sector_width,
                "full": cfg.bytes_width,
                "data": SECTOR,
                "mask": SECTOR_BYTES,
            }
        )
        #: The two 16-byte units of a sector: which have a byte, which have all.
        self.sector_units = struct({"some": SECTOR_UNITS, "all": SECTOR_UNITS})
        #: One entry, this cycle.
        self.entry = struct({"en": 1, "index": index})
        #: One sector of one entry, to be read.
        self.fetch = struct({"en": 1, "index": index, "sector": cfg.sector_width})
        #: One entry leaves the pool.
        self.release = struct({"en": 1, "index": index, "rank": cfg.rank_width})
        #: The packet whose last flit waits at the output. ``row``: its bytes count for (dest,
        #: bank).
        self.tail = struct(
            {"waiting": 1, "row": 1, "rank": cfg.rank_width, "dest": cfg.dest_width, "bank": 1}
        )
        #: The scanner's visit to an entry and what it found.
        self.visit = struct({"en": 1, "index": index, "expired": 1, "old": 1})
        #: A locked entry, from the cycle after its lock until the next lock. ``some``, ``all``:
        #: units with a byte, with all.
        self.locked = struct(
            {
                "info": self.info,
                "mask": cfg.packet_bytes,
                "some": self.units,
                "all": self.units,
                "nop": 1,
                "index": index,
                "sectors": cfg.packet_sectors,
            }
        )


@cache
def pool_types_of(cfg):
    """The :class:`PoolTypes` of a configuration."""
    return PoolTypes(cfg)


def decode(m, index, count, enable=1, name="onehot"):
    """One-hot of ``index`` among ``count``, 0 unless ``enable``."""
    onehot = Signal(count, name=name)
    m.d.comb += onehot.eq(Mux(enable, 1 << index, 0))
    return onehot


def encode(onehot, width):
    """Index of the only set bit (0 when none is set), an OR tree."""
    bits = []
    for bit in range(width):
        terms = [onehot[n] for n in range(len(onehot)) if n >> bit & 1]
        while len(terms) > 1:
            terms = [
                terms[n] | terms[n + 1] if n + 1 < len(terms) else terms[n]
                for n in range(0, len(terms), 2)
            ]
        bits.append(terms[0] if terms else Const(0, 1))
    return bits


def by_rank(m, flags, rank_onehot, ranks, name="of_rank"):
    """Bit r of the result: some entry with its flag set belongs to rank r."""
    out = Signal(ranks, name=name)
    terms = [Mux(flags[n], onehot, 0) for n, onehot in enumerate(rank_onehot)]
    while len(terms) > 1:
        terms = [
            terms[n] | terms[n + 1] if n + 1 < len(terms) else terms[n]
            for n in range(0, len(terms), 2)
        ]
    m.d.comb += out.eq(terms[0])
    return out
