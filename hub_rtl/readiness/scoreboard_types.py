"""Internal records of the readiness scoreboard: what travels down its pipeline and what its tables hold."""

from enum import IntEnum
from functools import cache

from amaranth import Cat, Const, Value
from amaranth.lib import data

from ..config import ADDR_WIDTH, EPOCH_WIDTH, ceil_log2
from ..types import types_of

__all__ = ["OpKind", "ScoreboardTypes", "bank_index", "compose", "scoreboard_types"]


class OpKind(IntEnum):
    """What one slot of the pipeline does to a tile counter and to the book of a (region, bank)."""

    ACK = 0         # acknowledged bytes of a tile: counter and book of the place (plain: counter alone)
    OVER = 1        # the same bytes again, for the book of the region that overflowed
    REFUSE = 2      # sunk bytes
    CLOSE = 3       # a producer's close
    PASS = 4        # internal close: a primary tells its overflow region what it has brought there
    OVERLAP = 5     # a row got more bytes than it has
    OPEN = 6        # commands, as software gave them
    RELEASE = 7
    ABORT = 8
    FREE = 9        # last step of RELEASE and ABORT
    FINISH = 10     # verdict on a completed bank
    CLEAR = 11      # forget one tile: counter and pending bit
    LOOK = 12       # read the book, change nothing
    TICK = 13       # stall clock of one bank


def bank_index(region, bank):
    """Number of a (region, bank): bank is the lowest bit."""
    return Cat(bank, region)


def compose(layout, **fields):
    """Value of a struct from its fields, the others 0, in one piece.

    Field-wise assignments of constants beside conditional ones become Verilog blocks without an event to wait for.
    """
    unknown = set(fields) - {name for name, _ in layout}
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such field")
    parts = []
    for name, field in layout:
        part = Value.cast(fields.get(name, 0))
        parts.append(Cat(part, Const(0, max(0, field.width - len(part))))[:field.width])
    return Cat(parts)


class ScoreboardTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct = data.StructLayout
        region, group = cfg.region_width, cfg.group_width

        #: Bytes one accumulator holds before it takes no more: the packet that fills it still fits.
        self.acc_width = max(cfg.bytes_width + 1, 16)
        #: One slot of the pipeline. ``source``: who waits for the result (0 finisher, 1 commander). ``region`` names the
        #: book. ``part``: FINISH announces a partial tile ``group``. ``mem``, ``poison``, ``abort``: bad news.
        self.op = struct({"kind": 4, "source": 1, "region": region, "bank": 1, "epoch": EPOCH_WIDTH, "plain": 1,
                          "dep": cfg.dep_width, "group": group, "bytes": cfg.total_width, "src": cfg.rank_width,
                          "rows": cfg.slot_width, "mem": 1, "poison": 1, "abort": 1, "part": 1, "status": 4})
        #: Book of one (region, bank). ``used``: the bank has had an epoch. ``held``: the bank is FREE and its counters belong
        #: to epoch {tag, bank}, which is not open yet. ``taint``: one bit per epoch of this bank, news of it was lost.
        #: ``over``: acknowledged bytes that lie in the overflow region; ``touched``: some acknowledgement came from there.
        #: ``brought``: rows that primaries left here; the row total once DONE. ``tiles``: full tiles announced.
        #: ``passed``: the overflow region has been told.
        self.book = struct({"state": 2, "epoch": EPOCH_WIDTH, "used": 1, "held": 1, "tag": EPOCH_WIDTH - 1, "taint": 8,
                            "acked": cfg.total_width, "refused": cfg.total_width, "sent": cfg.total_width,
                            "over": cfg.total_width, "touched": 1, "passed": 1, "aborted": 1, "brought": cfg.slot_width,
                            "tiles": group + 1, "num_closes": 9, "closes": cfg.ranks, "status": 4, "seen": 1, "moved": 1,
                            "ticks": 2, "reported": 1})
        #: Geometry that books, finisher and walker need.
        self.geometry = struct({"valid": 1, "row_bytes": cfg.row_bytes_width, "log2_tile": 4, "group_base": group,
                             "capacity": cfg.slot_width, "expected": 8, "overflow_en": 1, "overflow": region})
        #: Answer to a pipeline slot of finisher or commander: the book before the slot. ``ok``: it did what it was to do.
        self.result = struct({"valid": 1, "source": 1, "ok": 1, "book": self.book, "geometry": self.geometry})
        #: A tile counter. ``fired``: already announced in this epoch.
        self.tile = struct({"bytes": cfg.tile_width, "fired": 1})
        #: Threshold of a region's tiles, of a dependency range's groups.
        self.threshold = struct({"bytes": cfg.tile_width, "log2_tile": 4})
        self.dep_threshold = struct({"armed": 1, "bytes": cfg.tile_width})
        #: A tile becomes pending, or (``clear``) is forgotten. ``owner``: region or dependency range.
        owner = max(region, cfg.dep_width)
        self.ready = struct({"en": 1, "clear": 1, "plain": 1, "owner": owner, "bank": 1, "epoch": EPOCH_WIDTH,
                             "group": group, "rows": cfg.slot_width})
        self.ready_info = struct({"plain": 1, "owner": owner, "epoch": EPOCH_WIDTH, "rows": cfg.slot_width})
        #: Number of (region, bank) pairs, and of these and the dependency ranges behind them.
        self.banks = 2 * cfg.regions
        self.sources = self.banks + cfg.dep_ranges
        self.bank_width = max(1, ceil_log2(self.banks))
        self.source_width = ceil_log2(self.sources)
        #: ALL or ERROR becomes pending for ``index``.
        self.outcome_word = struct({"epoch": EPOCH_WIDTH, "rows": cfg.slot_width, "status": 4, "refused": 1})
        self.outcome = struct({"en": 1, "error": 1, "index": self.source_width, "word": self.outcome_word})
        self.bank_strobe = struct({"en": 1, "region": region, "bank": 1})
        self.command_error = struct({"en": 1, "command": types_of(cfg).region_command})
        self.event_counts = struct({"ready": 1, "all": 1, "error": 1})
        self.bank_name = struct({"region": region, "bank": 1})
        #: A producer's second close.
        self.bad_close = struct({"en": 1, "region": region, "epoch": EPOCH_WIDTH, "src": cfg.rank_width})
        self.flag_word = struct({"en": 1, "base": ADDR_WIDTH, "group_base": group})
        self.flag = struct({"addr": ADDR_WIDTH, "data": 64})
        #: Answer to a CSR query.
        self.status = struct({"state": 2, "epoch": EPOCH_WIDTH, "closes": 9, "sent": cfg.total_width,
                              "acked": cfg.total_width, "refused": cfg.total_width, "rows": cfg.slot_width, "error": 4})
        #: One-cycle strobes for the counters: those of the books, then all.
        book_counts = ("acks_stray", "refused_stale", "close_stale", "early_kept", "tainted", "close_twice", "mem_errors",
                       "poisoned", "overlaps")
        self.book_counts = struct(dict.fromkeys(book_counts, 1))
        self.counts = struct(dict.fromkeys(book_counts + ("close_bad", "ready", "all", "error", "timeouts", "merges"), 1))


@cache
def scoreboard_types(cfg):
    """The :class:`ScoreboardTypes` of a configuration."""
    return ScoreboardTypes(cfg)
