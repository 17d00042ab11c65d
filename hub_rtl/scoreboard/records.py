# SPDX-License-Identifier: Apache-2.0
"""Internal records of the readiness scoreboard: what travels down its pipeline and what its tables
hold."""

from enum import IntEnum
from functools import cache

from amaranth import Cat, Const, Value
from amaranth.lib import data

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import (
    ADDR,
    CLOSES,
    EPOCH,
    EXPECTED,
    LOG2_TILE,
    ORDER_ERROR,
    REASON,
    STATE,
    bits_of,
)
from hub_rtl.contract.records import FLAG, READY_COUNTS, types_of

__all__ = ["OpKind", "ScoreboardTypes", "bank_index", "compose", "scoreboard_types"]


class OpKind(IntEnum):
    """What one slot of the pipeline does to a tile counter and to the book of a (region, bank)."""

    ACK = 0  # acknowledged bytes of a tile: counter and book of the place (plain: counter alone)
    OVER = 1  # the same bytes again, for the book of the region that overflowed
    REFUSE = 2  # sunk bytes
    NEWS = 3  # a producer's tell, close or both
    PASS = 4  # internal news: a primary tells its overflow region what it brings there
    OVERLAP = 5  # a row got more bytes than it has
    OPEN = 6  # commands, as software gave them
    RELEASE = 7
    ABORT = 8
    FORGET = 9
    FREE = 10  # last step of RELEASE and ABORT
    FINISH = 11  # verdict on a completed bank
    CLEAR = 12  # forget one tile: counter and pending bit
    LOOK = 13  # read the book, change nothing
    TICK = 14  # stall clock of one bank
    ORPHAN = 15  # the region named in `bytes` is given back: whoever overflows into it ends
    AIM = 16  # what the last tile, not full, will hold; announced at once if it is there


def bank_index(region, bank):
    """Number of a (region, bank): bank is the lowest bit."""
    return Cat(bank, region)


def compose(layout, **fields):
    """Value of a struct from its fields, the others 0, in one piece.

    Field-wise assignments of constants beside conditional ones become Verilog blocks without an
    event to wait for.
    """
    unknown = set(fields) - {name for name, _ in layout}
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such field")
    parts = []
    for name, field in layout:
        part = Value.cast(fields.get(name, 0))
        parts.append(Cat(part, Const(0, max(0, field.width - len(part))))[: field.width])
    return Cat(parts)


#: Ticks without motion that make one report.
TICKS = 4

#: Strobes that the books do not give.
ELSEWHERE = ("close_bad", "ready", "all", "error", "timeouts", "merges")


class ScoreboardTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct = data.StructLayout
        region, group, types = cfg.region_width, cfg.group_width, types_of(cfg)

        #: Shared with other blocks.
        self.bank_name, self.bank_strobe = types.bank_name, types.bank_strobe
        self.run_strobe = types.run_strobe
        self.command_error, self.bad_close = types.command_error, types.bad_close
        self.flag, self.status, self.counts = FLAG, types.status, READY_COUNTS
        #: Bytes one accumulator holds before it takes no more: the packet that fills it still fits.
        self.acc_width = max(cfg.bytes_width + 1, 16)
        #: One slot of the pipeline. ``source``: who waits for the result (0 finisher, 1 commander).
        #: ``region`` names the book. ``mem``, ``poison``: bad acknowledgement. ``tell``, ``close``:
        #: what NEWS and PASS say; ``abort``, ``exceeds``: the word was broken, by too little or too
        #: much. ``part``: FINISH announces a partial tile ``group``, AIM does if that holds
        #: ``bytes``. AIM: ``rows`` will lie in the region, which is all (``exact``); ``tell``: none
        #: in the overflow region. ``bytes`` of ORPHAN: the region that is given back.
        self.op = struct(
            {
                "kind": bits_of(OpKind),
                "source": 1,
                "region": region,
                "bank": 1,
                "epoch": EPOCH,
                "plain": 1,
                "dep": cfg.dep_width,
                "group": group,
                "bytes": cfg.total_width,
                "src": cfg.rank_width,
                "rows": cfg.slot_width,
                "mem": 1,
                "poison": 1,
                "tell": 1,
                "close": 1,
                "abort": 1,
                "exceeds": 1,
                "part": 1,
                "exact": 1,
                "status": REASON,
            }
        )
        #: What tells, closes and refusals say of one epoch. ``told``, ``closes``: one bit per rank;
        #: the numbers count primaries too. ``sent``: bytes told. ``brought``: rows that primaries
        #: left here; the row total once DONE. ``broken``: some close said that a word was broken,
        #: the first one by too much if ``exceeded``. ``blame``: the first rank that said so.
        self.account = struct(
            {
                "told": cfg.ranks,
                "num_told": CLOSES,
                "closes": cfg.ranks,
                "num_closes": CLOSES,
                "sent": cfg.total_width,
                "refused": cfg.total_width,
                "brought": cfg.slot_width,
                "broken": 1,
                "exceeded": 1,
                "blame": types.status["blame"].shape,
            }
        )
        #: The last tile, if it will not be full: it is ready at ``bytes`` (0: none) in ``group``.
        #: ``known``: found for the present account. ``rows`` will lie in the region; ``exact``:
        #: these are all.
        self.aim = struct(
            {
                "known": 1,
                "exact": 1,
                "rows": cfg.slot_width,
                "group": group,
                "bytes": cfg.tile_width,
            }
        )
        #: Book of one (region, bank). ``used``: the bank has had an epoch. ``held``: ``next`` is of
        #: the epoch {tag, bank} to come. ``taint``: one bit per epoch of this bank, news of it was
        #: dropped. ``over``: acknowledged bytes that lie in the overflow region; ``touched``: some
        #: acknowledgement came from there. ``tiles``: full tiles announced; ``rest``: the last
        #: tile, not full, was announced. ``looked``: the account has not changed since the
        #: finisher's look. ``promised``: the overflow region was told that nothing comes;
        #: ``passed``: it has been told how this ended, or has been given back.
        self.book = struct(
            {
                "state": STATE,
                "epoch": EPOCH,
                "used": 1,
                "held": 1,
                "tag": EPOCH - 1,
                "taint": 1 << EPOCH - 1,
                "account": self.account,
                "next": self.account,
                "acked": cfg.total_width,
                "over": cfg.total_width,
                "touched": 1,
                "promised": 1,
                "passed": 1,
                "tiles": group + 1,
                "rest": 1,
                "looked": 1,
                "aim": self.aim,
                "status": REASON,
                "seen": 1,
                "moved": 1,
                "ticks": ceil_log2(TICKS),
                "reported": 1,
            }
        )
        #: What the query reads of a book: its status, and the ranks that have told and closed.
        self.shown = struct({"status": types.status, "told": cfg.ranks, "closes": cfg.ranks})
        #: Geometry that books, finisher and walker need.
        self.geometry = struct(
            {
                "valid": 1,
                "row_bytes": cfg.row_bytes_width,
                "log2_tile": LOG2_TILE,
                "group_base": group,
                "capacity": cfg.slot_width,
                "expected": EXPECTED,
                "overflow_en": 1,
                "overflow": region,
            }
        )
        #: Answer to a pipeline slot of finisher or commander: the book before the slot. ``ok``: it
        #: did what it was to do; ``reason``: why an order did not (packets.OrderError).
        self.result = struct(
            {
                "valid": 1,
                "source": 1,
                "ok": 1,
                "reason": ORDER_ERROR,
                "book": self.book,
                "geometry": self.geometry,
            }
        )
        #: A tile counter. ``fired``: already announced in this epoch.
        self.tile = struct({"bytes": cfg.tile_width, "fired": 1})
        #: Threshold of a region's tiles, of a dependency range's groups.
        self.threshold = struct({"bytes": cfg.tile_width, "log2_tile": LOG2_TILE})
        self.dep_threshold = struct({"armed": 1, "bytes": cfg.tile_width})
        #: A tile becomes pending, or (``clear``) is forgotten. ``owner``: region or dependency
        #: range.
        owner = max(region, cfg.dep_width)
        self.ready = struct(
            {
                "en": 1,
                "clear": 1,
                "plain": 1,
                "owner": owner,
                "bank": 1,
                "epoch": EPOCH,
                "group": group,
                "rows": cfg.slot_width,
            }
        )
        self.ready_info = struct(
            {"plain": 1, "owner": owner, "epoch": EPOCH, "rows": cfg.slot_width}
        )
        #: Number of (region, bank) pairs, and of these and the dependency ranges behind them.
        self.banks = 2 * cfg.regions
        self.sources = self.banks + cfg.dep_ranges
        self.bank_width = max(1, ceil_log2(self.banks))
        self.source_width = ceil_log2(self.sources)
        #: ALL or ERROR becomes pending for ``index``.
        self.outcome_word = struct(
            {"epoch": EPOCH, "rows": cfg.slot_width, "status": REASON, "refused": 1}
        )
        self.outcome = struct(
            {"en": 1, "error": 1, "index": self.source_width, "word": self.outcome_word}
        )
        self.event_counts = struct({"ready": 1, "all": 1, "error": 1})
        self.flag_word = struct({"en": 1, "base": ADDR, "group_base": group})
        #: One-cycle strobes of the books; other parts give those of :data:`ELSEWHERE`.
        books = [name for name, _ in READY_COUNTS if name not in ELSEWHERE]
        self.book_counts = struct(dict.fromkeys(books, 1))


@cache
def scoreboard_types(cfg):
    """The :class:`ScoreboardTypes` of a configuration."""
    return ScoreboardTypes(cfg)
