# SPDX-License-Identifier: Apache-2.0
"""Records of the packet manager, and what its parts agree on."""

from functools import cache

from amaranth.lib import data

from hub_rtl.contract.config import ceil_log2, index_width
from hub_rtl.contract.fields import AGE, BYTE, EPOCH, FLIT_BYTES, ROWID
from hub_rtl.contract.records import POOL_COUNTS, record_of, types_of

__all__ = [
    "BANKS",
    "BUCKETS",
    "HOME",
    "LISTS",
    "LOW",
    "PLACES",
    "PLAIN",
    "REMNANT",
    "REST",
    "SLOTS",
    "WAYS",
    "PoolTypes",
    "covers",
    "pool_types_of",
]

#: Tags stand in three memories: two hashed ones with so many ways, and one with a way per rank.
BANKS, WAYS = 3, 4
HOME = 2 * WAYS  # number of a rank's own way, behind those of its two sets
PLACES = HOME + 1

SLOTS = 8  # for the bytes of stores that have no entry yet, of which there are five at most

#: Ready lists of a rank: full packets of normal rows by RowID; full plain ones; full .nop ones;
#: what is not full, of rows and of plain ones.
BUCKETS = 8
PLAIN, LOW, TAIL, REMNANT = range(BUCKETS, BUCKETS + 4)
LISTS = REMNANT + 1
REST = LISTS - BUCKETS


class PoolTypes:
    """Layouts of one configuration. ``index`` numbers entries; ``part`` numbers pieces of
    ``slice_bytes`` of a block; ``list`` is one of a rank's ready lists."""

    def __init__(self, cfg):
        struct = data.StructLayout
        types, depth, rank = types_of(cfg), cfg.pool_depth, cfg.rank_width
        self.slice_bytes = slice_bytes = cfg.slice_bytes
        self.parts = cfg.packet_bytes // slice_bytes
        self.index_width = index = index_width(depth)
        self.count_width = depth.bit_length()  # holds 0..pool_depth
        self.part_width = part = index_width(self.parts)
        self.units = slice_bytes // FLIT_BYTES  # 16-byte units of a part
        self.unit_count = (cfg.packet_bytes // FLIT_BYTES).bit_length()
        #: Tags at half load: as many sets in each of two memories as keep twice the entries.
        self.set_count = max(2, depth // WAYS)
        self.set_width = max(ceil_log2(self.set_count), rank)
        self.mark, self.sent, self.oldest = types.mark, types.sent, types.oldest
        self.policy = types.policy
        self.take, self.counts = types.rank_strobe, POOL_COUNTS

        #: What makes a block: row, or address.
        self.row = struct(
            {
                "rowid": ROWID,
                "block": cfg.row_block_width,
                "epoch": EPOCH,
                "region": cfg.region_width,
            }
        )
        self.body = data.UnionLayout({"row": self.row, "block": cfg.addr_block_width})
        self.key = struct({"plain": 1, "rank": rank, "body": self.body})
        self.store = types.resolved
        #: A store without its bytes, which wait in a memory of their own. ``units``: that make the
        #: block complete. ``slot``: where they wait.
        self.slim = struct(
            {
                "key": self.key,
                "cls": 1,
                "part": part,
                "units": self.unit_count,
                "dest": cfg.dest_width,
                "slot": ceil_log2(SLOTS),
            }
        )
        self.bytes = struct({"data": slice_bytes * BYTE, "mask": slice_bytes})
        self.arrives = struct({"en": 1, "bytes": self.bytes})
        #: Who an entry is. ``link``: of its slice's links, a plain one's.
        link = index_width(cfg.slice_links)
        self.info = struct({"key": self.key, "dest": cfg.dest_width, "link": link})
        #: What a sweep looks at of it. ``name``: the row, of a plain one nothing.
        name = struct({"region": cfg.region_width, "epoch": EPOCH, "rowid": ROWID})
        self.look = struct({"plain": 1, "rank": rank, "dest": cfg.dest_width, "name": name})
        #: Where a tag stands.
        self.place = struct(
            {"bank": ceil_log2(BANKS), "set": self.set_width, "way": ceil_log2(WAYS)}
        )
        self.closing = struct({"en": 1, "place": self.place})
        #: Where a key may stand: its two hashes and its rank.
        self.sets = data.ArrayLayout(self.set_width, BANKS)
        #: A new entry's tag is written, into these ways.
        self.opens = struct({"ways": PLACES, "sets": self.sets, "key": self.key, "index": index})
        #: A store on its way there. ``early``: a fence covers it.
        self.stage = struct({"valid": 1, "early": 1, "store": self.slim, "sets": self.sets})
        #: A store that has its entry.
        self.found = struct(
            {
                "en": 1,
                "new": 1,
                "early": 1,
                "index": index,
                "place": self.place,
                "store": self.slim,
            }
        )
        #: A store that waits: for a way beside ``rival``, for an entry of the shared ones, for one
        #: of its rank's own.
        self.waits = struct({"way": 1, "shared": 1, "own": 1, "rank": rank, "rival": index})
        self.entry = struct({"en": 1, "index": index})
        #: An entry was opened, its tag stands there.
        self.opened = struct(
            {"en": 1, "early": 1, "index": index, "place": self.place, "info": self.info}
        )
        #: An entry leaves. ``sunk``: not as a packet.
        self.leaves = struct({"en": 1, "sunk": 1, "index": index, "rank": rank})
        #: A list. ``lists``: words of a memory that has one for each.
        self.list = struct({"rank": rank, "number": ceil_log2(LISTS)})
        self.lists = LISTS << rank
        #: An entry is ready. ``expired``: by its merge timer.
        self.ready = struct({"en": 1, "expired": 1, "index": index, "list": self.list})
        #: A store whose mask joins its entry's. ``part``: one-hot.
        self.merging = struct(
            {
                "en": 1,
                "new": 1,
                "index": index,
                "part": self.parts,
                "mask": slice_bytes,
                "units": self.unit_count,
                "cls": 1,
                "plain": 1,
                "list": self.list,
            }
        )
        #: An entry leaves next. ``dead``: it is sunk.
        self.lock = struct({"en": 1, "dead": 1, "index": index})
        #: What is sent of a locked entry: parts with bytes, whether it has a normal store.
        self.had = struct({"parts": self.parts, "normal": 1})
        self.fetch = struct({"en": 1, "index": index, "part": part})
        #: A fence does not wait for this entry.
        self.innocent = struct({"en": 1, "index": index, "rank": rank})
        #: The last beat of a packet is at the output.
        self.tail = struct({"waits": 1, "taken": 1, "rank": rank})
        #: A cycle of a record, as it leaves.
        self.record = record_of(cfg, slice_bytes)
        self.clock = AGE + 1  # of births: an entry is visited twice before half of it has passed
        #: A visit to an entry. ``turn``: the first one of a sweep. ``long``: its age has saturated.
        #: ``sleeps``: not yet ready; ``here``: not yet locked.
        self.visit = struct(
            {
                **dict.fromkeys(("en", "turn", "rival", "long", "expired", "old"), 1),
                **dict.fromkeys(("reason", "innocent", "sleeps", "here"), 1),
                "index": index,
                "age": self.clock,
                "look": self.look,
            }
        )


@cache
def pool_types_of(cfg):
    """The :class:`PoolTypes` of a configuration."""
    return PoolTypes(cfg)


def covers(mark, log2_replicas, plain, dest):
    """This mark is for such stores."""
    return mark.all | (~plain & ((dest >> log2_replicas) == mark.handle))
