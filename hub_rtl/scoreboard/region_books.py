# SPDX-License-Identifier: Apache-2.0
"""Keeps the book of every (region, epoch bank): states, tells, closes, byte totals, and what
follows from each change."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import EPOCH, ORDER_ERROR
from hub_rtl.contract.packets import OrderError, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .book_change import Stage, change, decide, tell_status
from .records import OpKind, bank_index, scoreboard_types

__all__ = ["FIT", "RegionBooks"]

#: Of an operation and its book: the epoch is the book's; that epoch is in use; it is to come; what
#: the book keeps for the next epoch is of it or nothing; the producer has told, has closed; news of
#: the epoch were dropped.
FIT = data.StructLayout(
    dict.fromkeys(("same", "current", "early", "mine", "told", "closed", "lost"), 1)
)
#: Why the finisher may have to look: something grew; what the aim rests on changed; the last tile
#: is there.
GROWTH = data.StructLayout(dict.fromkeys(("any", "aim", "rest"), 1))


class RegionBooksObserve(NamedTuple):
    """What a proof may see of :class:`RegionBooks`: its tables, and the operations inside."""

    books: Ram  #: per bank
    shown: Ram  #: what the query tells of each
    shapes: Ram  #: geometries, per region
    read_valid: Signal  #: there is an operation whose book the table shows
    read_op: data.View
    at: Stage  #: the one whose book is changed


class RegionBooks(wiring.Component):
    """Second half of the scoreboard's pipeline: one read-modify-write of a book per cycle; the only
    writer of states.

    Contract: totals are exact and do not depend on the order of acknowledgements, refusals and
    closes. A bank leaves OPEN once per epoch: by a verdict of the finisher (ALL), by bad news
    (ERROR, at once) or by ABORT. OPEN goes forward: to an epoch 2, 4 or 6 ahead of the bank's last
    one, to any one if it has none. A bank whose overflow region is given back in its epoch (ORPHAN)
    ends in ERROR and has nothing to tell there any more. News of the epoch to come are kept in
    ``next``, whether the bank is in use or FREE. News that is dropped, because they are of yet
    another epoch or theirs seems to be over, taints its epoch: the OPEN of it is an ERROR. An AIM
    stays until the account changes. Latency: an
    operation at ``i_op`` in cycle 0, its tile's verdict in cycle 1, has its effects at ``ready``,
    ``outcome`` and ``drop`` in cycle 2, at the registered ``region_update`` and ``result`` in cycle
    3: the book is read, registered, changed. Throughput one per cycle, of one bank too (forwarded).
    Never stalls. Illegal input: a producer's second tell or close changes nothing and is counted; a
    second close is reported (``bad_close``).

    Parameters: ``cfg``. Ports: ``i_op`` In {valid, op} and, a cycle later, {hit, over, held, live,
    rows} of TileCounters; ``region_update`` Out; ``ready``, ``outcome`` Out to EventScan; ``drop``
    Out: pending news of this bank is forgotten; ``check`` Out: this bank may be complete, or its
    last tile; ``live_write`` Out; ``result`` Out; ``timeout`` Out; ``bad_close`` Out; ``query`` In,
    ``status``, ``missing``, ``silent`` Out two cycles later; ``geometry_write``, ``dep_write`` In;
    ``counts`` Out; ``clearing`` Out. Source: docs/interfaces.md section 8; rules R1, R2, R6 of
    docs/architecture.md.
    """

    observe: RegionBooksObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        types, own = types_of(cfg), self._types
        super().__init__(
            {
                "i_valid": In(1),
                "i_op": In(own.op),
                "hit": In(1),
                "over": In(1),
                "held": In(cfg.tile_width),
                "live": In(1),
                "rows": In(cfg.slot_width),
                "region_update": Out(types.region_update),
                "ready": Out(own.ready),
                "outcome": Out(own.outcome),
                "drop": Out(own.bank_strobe),
                "check": Out(own.bank_strobe),
                "live_write": Out(own.bank_strobe),
                "live_value": Out(1),
                "result": Out(own.result),
                "timeout": Out(own.bank_strobe),
                "bad_close": Out(own.bad_close),
                "query": In(own.bank_name),
                "status": Out(own.status),
                "missing": Out(cfg.ranks),
                "silent": Out(cfg.ranks),
                "geometry_write": In(types.geometry_write),
                "dep_write": In(types.dep_write),
                "counts": Out(own.book_counts),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        books, shown, shapes = self._tables(m)
        at = self._read(m, books, shapes, shown)
        do = decide(m, at)
        tell_status(m, at, do)
        change(m, self._types, at, do, self.timeout.en)
        self._write(m, books, at, do)
        self._tell(m, at, do)
        self._seek(m, at, do)
        self._answer(m, at, do)
        self._report(m, shown, at)
        return m

    def _tables(self, m):
        """The books, what the query tells of them, and the geometries."""
        cfg, types = self._cfg, self._types
        m.submodules.books = books = Ram(
            types.book, types.banks, clear=True, quick=types.banks <= SMALL
        )
        m.submodules.shown = shown = Ram(types.shown, types.banks, clear=True)
        m.submodules.shapes = shapes = Ram(types.geometry, cfg.regions, clear=True)
        m.d.comb += self.clearing.eq(books.clearing | shapes.clearing)
        m.d.comb += [
            shapes.w_en.eq(self.geometry_write.en),
            shapes.w_addr.eq(self.geometry_write.region),
        ]
        m.d.comb += [
            shapes.w_data[field].eq(self.geometry_write.geometry[field])
            for field, _ in types.geometry
            if field != "valid"
        ]
        m.d.comb += shapes.w_data.valid.eq(
            self.geometry_write.geometry.valid & self.geometry_write.geometry.row_bytes[4:].any()
        )
        return books, shown, shapes

    def _read(self, m, books, shapes, shown):
        """An operation's book is read, then registered with all that is known of them: the
        :class:`Stage` in which it is changed."""
        cfg, types = self._cfg, self._types
        m.d.comb += [
            books.r_en.eq(self.i_valid),
            books.r_addr.eq(bank_index(self.i_op.region, self.i_op.bank)),
            shapes.r_en.eq(self.i_valid),
            shapes.r_addr.eq(self.i_op.region),
        ]
        read_valid, valid = (Signal(name=name) for name in ("read_valid", "valid"))
        read_op, op = (
            Signal(types.op, name=name) for name in ("read_op", "op")
        )  # read_op: the table shows its book
        was, now = (Signal(types.book, name=name) for name in ("was", "now"))
        shape = Signal(types.geometry)
        hit = Signal()
        over = Signal()
        live = Signal()
        full_rows = Signal(cfg.slot_width)
        held = Signal(cfg.tile_width)
        # The operation in front may be changing that very book.
        follows = Signal()
        m.d.sync += [
            follows.eq(
                read_valid
                & ~read_op.plain
                & (self.i_op.region == read_op.region)
                & (self.i_op.bank == read_op.bank)
            ),
            read_valid.eq(self.i_valid),
            read_op.eq(self.i_op),
            valid.eq(read_valid),
            op.eq(read_op),
            was.eq(
                mutant(
                    "scoreboard.book_in_front_missed", Mux(follows, now, books.r_data), books.r_data
                )
            ),
            shape.eq(shapes.r_data),
            hit.eq(self.hit),
            over.eq(self.over),
            held.eq(self.held),
            live.eq(self.live),
            full_rows.eq(self.rows),
        ]
        known = self._kinds(m, books, shapes, read_valid, read_op, now, follows)
        at = Stage(valid, op, was, now, shape, hit, over, live, held, full_rows, *known)
        self.observe = RegionBooksObserve(books, shown, shapes, read_valid, read_op, at)
        return at

    def _kinds(self, m, books, shapes, read_valid, read_op, now, follows):
        """What an operation is, and how its epoch stands to that of its book, are registers too:
        the last fields of a :class:`Stage`."""
        cfg = self._cfg

        def kinds(*kinds):
            return Cat(read_op.kind == kind for kind in kinds).any()

        does = {kind: Signal(name=f"does_{kind.name.lower()}") for kind in OpKind}
        acks, plain_ack, news = (Signal(name=name) for name in ("acks", "plain_ack", "news"))
        answers = Signal()
        fails = Signal()
        homeless = Signal(name="homeless")
        fit = Signal(FIT)
        m.d.sync += [does[kind].eq(read_valid & (read_op.kind == kind)) for kind in OpKind]
        m.d.sync += [
            acks.eq(read_valid & ~read_op.plain & kinds(OpKind.ACK, OpKind.OVER)),
            plain_ack.eq(read_valid & read_op.plain & kinds(OpKind.ACK, OpKind.OVER)),
            news.eq(read_valid & kinds(OpKind.REFUSE, OpKind.NEWS, OpKind.PASS)),
            answers.eq(
                read_valid
                & kinds(
                    OpKind.OPEN,
                    OpKind.RELEASE,
                    OpKind.ABORT,
                    OpKind.FORGET,
                    OpKind.FREE,
                    OpKind.FINISH,
                    OpKind.LOOK,
                    OpKind.AIM,
                )
            ),
            fails.eq(read_op.status.any()),
            homeless.eq(
                shapes.r_data.overflow_en
                & (
                    mutant(
                        "scoreboard.orphans_of_others_end",
                        shapes.r_data.overflow == read_op.bytes[: cfg.region_width],
                        shapes.r_data.overflow != read_op.bytes[: cfg.region_width],
                    )
                )
            ),
            fit.eq(
                mutant(
                    "scoreboard.fit_in_front_missed",
                    Mux(
                        follows,
                        self._fit(m, now, read_op, "changed"),
                        self._fit(m, books.r_data, read_op, "stored"),
                    ),
                    lambda: self._fit(m, books.r_data, read_op, "stored"),
                )
            ),
        ]
        return does, acks, plain_ack, news, answers, fails, homeless, fit

    def _write(self, m, books, at, do):
        """The book, the state for the hub and for the tile counters."""
        op = at.op
        m.d.comb += [
            books.w_en.eq(at.valid & ~op.plain),
            books.w_addr.eq(bank_index(op.region, op.bank)),
            books.w_data.eq(at.now),
        ]
        changed = (
            do.fail
            | do.opens
            | do.ends
            | (at.does[OpKind.FREE] & do.busy)
            | (do.aborts & do.opened)
        )
        m.d.sync += [
            self.region_update.en.eq(changed),
            self.region_update.region.eq(op.region),
            self.region_update.bank.eq(op.bank),
            self.region_update.state.eq(at.now.state),
            self.region_update.epoch.eq(
                mutant("scoreboard.epoch_before_is_told", at.now, at.was).epoch
            ),
        ]
        m.d.comb += [
            self.live_write.en.eq(changed),
            self.live_write.region.eq(op.region),
            self.live_write.bank.eq(op.bank),
            self.live_value.eq(~at.does[OpKind.FREE]),
        ]

    def _tell(self, m, at, do):
        """Events: READY of a tile, ALL and ERROR of a bank or dependency range."""
        cfg, types, op, was, does = self._cfg, self._types, at.op, at.was, at.does
        failed = Signal(cfg.dep_ranges)  # dependency ranges in ERROR until they are written again
        plain_fail = Signal()
        usable = Signal()
        m.d.comb += [
            usable.eq(at.plain_ack & at.live & ~failed.bit_select(op.dep, 1)),
            plain_fail.eq(usable & do.bad_news),
            self.ready.en.eq(
                (usable & at.hit & ~do.bad_news)
                | do.ready_tile
                | do.rest_ready
                | (do.ends & op.part & ~was.rest)
                | does[OpKind.CLEAR]
            ),
            self.ready.clear.eq(does[OpKind.CLEAR]),
            self.ready.plain.eq(op.plain),
            self.ready.owner.eq(Mux(op.plain, op.dep, op.region)),
            self.ready.bank.eq(op.bank),
            self.ready.epoch.eq(Mux(op.plain, 0, was.epoch)),
            self.ready.group.eq(op.group),
            self.ready.rows.eq(
                Mux(
                    does[OpKind.FINISH] | does[OpKind.AIM],
                    op.rows & ((Const(1, 16) << at.shape.log2_tile) - 1),
                    at.full_rows,
                )
            ),
            self.outcome.en.eq(do.ends | do.fail | plain_fail),
            self.outcome.error.eq(~do.ends),
            self.outcome.index.eq(
                Mux(op.plain, types.banks + op.dep, bank_index(op.region, op.bank))
            ),
            self.outcome.word.epoch.eq(Mux(op.plain, 0, at.now.epoch)),
            self.outcome.word.status.eq(Mux(do.ends, 0, do.status)),
            self.outcome.word.rows.eq(Mux(do.ends, op.rows, 0)),
            self.outcome.word.refused.eq(
                ~op.plain
                & Mux(do.opens, do.kept & was.next.refused.any(), was.account.refused.any())
            ),
            self.drop.en.eq(
                do.aborts | (does[OpKind.RELEASE] & at.fit.same & (was.state == RegionState.DONE))
            ),
        ]
        for strobe in (self.drop, self.timeout):
            m.d.comb += [
                strobe.region.eq(op.region),
                strobe.bank.eq(op.bank),
            ]
        with m.If(plain_fail):
            m.d.sync += failed.eq(failed | (Const(1, cfg.dep_ranges) << op.dep)[: cfg.dep_ranges])
        with m.If(self.dep_write.en):
            m.d.sync += failed.bit_select(self.dep_write.index, 1).eq(0)

    def _fit(self, m, book, op, name):
        """How the epoch, and the closing producer, of ``op`` stand to ``book``."""
        fit, ahead = Signal(FIT, name=f"fit_{name}"), Signal(EPOCH, name=f"ahead_{name}")
        account = Mux(fit.current, book.account, book.next)
        outer = op.kind == OpKind.NEWS
        m.d.comb += [
            ahead.eq(op.epoch - book.epoch),
            fit.same.eq(op.epoch == book.epoch),
            fit.current.eq(fit.same & (book.state != RegionState.FREE)),
            fit.early.eq(~book.used | (~ahead[3] & ahead.any())),
            fit.mine.eq(~book.held | (book.tag == op.epoch[1:])),
            fit.told.eq(outer & self._types.account(account).told.bit_select(op.src, 1)),
            fit.closed.eq(outer & self._types.account(account).closes.bit_select(op.src, 1)),
            fit.lost.eq(book.taint.bit_select(op.epoch[1:], 1)),
        ]
        return fit

    def _seek(self, m, at, do):
        """What may make a bank complete: its aim has to be found anew, its last tile is there, or
        all have closed and no byte is missing. The finisher looks closer, not before all have
        told."""
        types, op, now, shape = self._types, at.op, at.now, at.shape
        grows = Signal(GROWTH)
        m.d.comb += [
            grows.any.eq(((do.moved & do.opened) | do.opens) & ~do.fail),
            grows.aim.eq(do.resets | do.opens),
            grows.rest.eq(mutant("scoreboard.rest_not_noticed", do.rest_there, 0)),
        ]
        grown, expected, told, closes = (
            Signal(GROWTH, name="grown"),
            Signal.like(shape.expected, name="expected"),
            Signal.like(now.account.num_told, name="told"),
            Signal.like(now.account.num_closes, name="closed"),
        )
        arrived = Signal(len(now.acked) + 1, name="arrived")
        sent = Signal.like(now.account.sent)
        grown_at = Signal(types.bank_strobe, name="grown_at")
        m.d.sync += [
            grown.eq(grows),
            expected.eq(shape.expected),
            told.eq(now.account.num_told),
            closes.eq(now.account.num_closes),
            arrived.eq(now.acked + now.account.refused),
            sent.eq(now.account.sent),
            grown_at.region.eq(op.region),
            grown_at.bank.eq(op.bank),
        ]
        all_closed = mutant(
            "scoreboard.end_not_sought_at_last_close", closes >= expected, closes > expected
        )
        m.d.comb += [
            self.check.eq(grown_at),
            self.check.en.eq(
                grown.any
                & (told >= expected)
                & (grown.aim | grown.rest | (all_closed & (arrived >= sent)))
            ),
        ]

    def _answer(self, m, at, do):
        """The answer to who asked, and what is counted."""
        op, does, take, fit = at.op, at.does, do.take, at.fit
        acked = at.acks | at.plain_ack
        m.d.sync += [
            self.result.valid.eq(at.answers),
            self.result.source.eq(op.source),
            self.result.ok.eq(do.ok),
            self.result.book.eq(at.was),
            self.result.geometry.eq(at.shape),
            self.result.reason.eq(self._refusal(m, does, at.was, at.shape, do.busy, fit)),
            self.bad_close.en.eq(does[OpKind.NEWS] & take & op.close & fit.closed),
            self.bad_close.region.eq(op.region),
            self.bad_close.epoch.eq(op.epoch),
            self.bad_close.src.eq(op.src),
            self.counts.acks_stray.eq((at.plain_ack & ~at.live) | (at.acks & ~do.busy)),
            self.counts.refused_stale.eq(does[OpKind.REFUSE] & ~take & ~fit.early),
            self.counts.close_stale.eq(
                (does[OpKind.NEWS] | does[OpKind.PASS]) & ~take & ~fit.early
            ),
            self.counts.early_kept.eq(at.news & take & ~fit.current),
            self.counts.tainted.eq(
                (at.news & ~take & fit.early) | (at.was.held & (do.forgets | (do.opens & ~do.kept)))
            ),
            self.counts.told_twice.eq(does[OpKind.NEWS] & take & op.tell & fit.told),
            self.counts.close_twice.eq(does[OpKind.NEWS] & take & op.close & fit.closed),
            self.counts.mem_errors.eq(does[OpKind.ACK] & op.mem),
            self.counts.poisoned.eq(does[OpKind.ACK] & op.poison),
            self.counts.overlaps.eq((acked & at.over) | does[OpKind.OVERLAP]),
        ]

    def _refusal(self, m, does, was, shape, busy, fit):
        """Why an order does not fit; of several reasons the first."""
        reason = Signal(ORDER_ERROR)
        with m.If(does[OpKind.OPEN] & ~shape.valid):
            m.d.comb += reason.eq(OrderError.UNKNOWN)
        with m.Elif((does[OpKind.OPEN] | does[OpKind.FORGET]) & busy):
            m.d.comb += reason.eq(OrderError.IN_USE)
        with m.Elif(does[OpKind.OPEN] & ~fit.early):
            m.d.comb += reason.eq(OrderError.EPOCH)
        with m.Elif((does[OpKind.RELEASE] | does[OpKind.ABORT]) & ~(busy & fit.same)):
            m.d.comb += reason.eq(OrderError.NOT_IN_USE)
        with m.Elif(does[OpKind.RELEASE] & (was.state != RegionState.DONE)):
            m.d.comb += reason.eq(OrderError.NOT_DONE)
        return reason

    def _report(self, m, shown, at):
        """The query has a table of its own, so that it never waits and never disturbs: what it
        tells of a book is written with the book."""
        op, account = at.op, Signal(self._types.account, name="shown_account")
        book = mutant("scoreboard.query_shows_the_book_before", at.now, at.was)
        opened = shown.r_data.status.state == RegionState.OPEN
        m.d.comb += [
            account.eq(Mux(book.state == RegionState.FREE, book.next, book.account)),
            shown.w_en.eq(at.valid & ~op.plain),
            shown.w_addr.eq(bank_index(op.region, op.bank)),
            *(
                shown.w_data.status[name].eq(value)
                for name, value in (
                    ("state", book.state),
                    ("epoch", book.epoch),
                    ("told", account.num_told),
                    ("closes", account.num_closes),
                    ("sent", account.sent),
                    ("acked", book.acked),
                    ("refused", account.refused),
                    ("rows", account.brought),
                    ("error", book.status),
                    ("blame", account.blame),
                )
            ),
            shown.w_data.told.eq(account.told),
            shown.w_data.closes.eq(account.closes),
            shown.r_en.eq(1),
            shown.r_addr.eq(bank_index(self.query.region, self.query.bank)),
        ]
        m.d.sync += [
            self.status.eq(shown.r_data.status),
            self.missing.eq(Mux(opened, ~shown.r_data.closes, 0)),
            self.silent.eq(Mux(opened, ~shown.r_data.told, 0)),
        ]
