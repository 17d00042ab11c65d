# SPDX-License-Identifier: Apache-2.0
"""Readiness scoreboard: counts acknowledged bytes and says when tiles and regions are ready."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REGISTER, UNIT
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import bug, mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.stream import StreamMerge, StreamRegister

from .ack_intake import AckIntake
from .bank_sources import OverlapInbox, StallClock
from .event_flags import EventFlags
from .event_scan import EventScan
from .records import OpKind, scoreboard_types
from .region_books import RegionBooks
from .region_finish import RegionFinisher
from .region_walker import RegionWalker
from .tile_counters import TileCounters

__all__ = ["ReadinessScoreboard"]


class ReadinessScoreboardObserve(NamedTuple):
    """What a proof may see of a :class:`ReadinessScoreboard`: its parts, and the operation between
    them."""

    acks: AckIntake
    refusals: StreamRegister
    news: StreamRegister
    control: StreamMerge  #: operations of finisher, walker, overlaps, clock
    turns: RoundRobin  #: acknowledgements, refusals, news, control
    valid: Signal  #: an operation enters the pipeline
    op: data.View
    tiles: TileCounters
    books: RegionBooks
    finisher: RegionFinisher
    walker: RegionWalker
    overlaps: OverlapInbox
    clock: StallClock
    scan: EventScan
    flags: EventFlags


class ReadinessScoreboard(wiring.Component):
    """Owns the state of every (region, epoch bank), tile counters, announcements, and the events
    (data availability manager).

    Contract: READY of a tile when memory has acknowledged every byte of it, once per epoch; of the
    last tile, if it does not get full, when every producer has told how much it sends: it waits for
    no close. ALL of a bank when every producer has told and closed and every byte told was
    acknowledged or refused, with the true number of rows, after all its READYs; in their place one
    ERROR when that cannot come true any more, with the rank that broke its word where a close says
    so. Everything is counted exactly and in any order of arrival.

    Latency: last acknowledgement taken to READY valid: 7 cycles when idle, of the last tile about
    25. Throughput: one operation per cycle of all slices together (two for overflowed rows);
    what waits of one tile is summed up. News and refusals are in the books within a few cycles.
    Ordering and stalls: events as in EventScan. Acknowledgements, refusals, news and overlaps never
    wait for ``o_event``, ``o_flag``, commands or software. Commands run one at a time; RELEASE and
    ABORT wait for allocator and writers. After reset, inputs are not ready while
    ``clearing``. On illegal input: second tells and closes, news of unknown producers, stale news
    and bytes for FREE banks change nothing and are counted.

    Parameters: ``cfg``, HubConfig. Ports: see ``docs/interfaces.md``, section 8.
    Source: arXiv 2605.05888 (Data Availability Manager), docs/interfaces.md section 8.
    """

    observe: ReadinessScoreboardObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own, types = self._types, types_of(cfg)
        super().__init__(
            {
                "i_ack": In(stream.Signature(types.ack)).array(cfg.slices),
                "i_refused": In(stream.Signature(types.refusal)),
                "i_news": In(stream.Signature(types.news)),
                "i_command": In(stream.Signature(types.region_order)),
                "command_error": Out(own.command_error),
                "geometry_write": In(types.geometry_write),
                "dep_write": In(types.dep_write),
                "dep_busy": Out(1),
                "overlap": In(own.bank_strobe),
                "o_region_update": Out(types.region_update),
                "rows_query": Out(own.bank_name),
                "rows": In(cfg.slot_width + 1),
                "purge": Out(own.run_strobe),
                "purging": In(1),
                "quiesce": Out(1),
                "quiescing": In(1),
                "o_event": Out(stream.Signature(types.event)),
                "o_flag": Out(stream.Signature(own.flag)),
                "query": In(own.bank_name),
                "status": Out(own.status),
                "missing_from": Out(cfg.ranks),
                "silent": Out(cfg.ranks),
                "timeout": In(REGISTER),
                "o_timeout": Out(own.bank_strobe),
                "bad_close": Out(own.bad_close),
                "counts": Out(own.counts),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.tiles = tiles = TileCounters(cfg)
        m.submodules.books = books = RegionBooks(cfg)
        m.submodules.finisher = finisher = RegionFinisher(cfg)
        m.submodules.walker = walker = RegionWalker(cfg)
        m.submodules.scan = scan = EventScan(cfg)
        m.submodules.flags = flags = EventFlags(cfg)
        m.submodules.overlaps = overlaps = OverlapInbox(cfg)
        m.submodules.clock = clock = StallClock(cfg)
        m.submodules.refusals = StreamRegister(types_of(cfg).refusal)
        m.submodules.news = StreamRegister(types_of(cfg).news)
        m.submodules.acks = acks = AckIntake(cfg)
        for outer, inner in zip(self.i_ack, acks.i, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        clearing = Signal(init=1)
        m.d.sync += clearing.eq(
            mutant(
                "scoreboard.tiles_not_awaited_at_start",
                tiles.clearing | books.clearing,
                books.clearing,
            )
            | scan.clearing
            | flags.clearing
            | finisher.clearing
            | overlaps.clearing
            | walker.clearing
            | acks.clearing
        )
        m.d.comb += self.clearing.eq(clearing)
        refuse_op, news_op, news_fit = self._take_news(m, clearing)
        valid, op = self._choose(m, refuse_op, news_op)
        self._pipeline(m, clearing, valid, op)
        self._outside(m, news_fit)
        parts = m.submodules
        self.observe = ReadinessScoreboardObserve(
            *(acks, parts.refusals, parts.news, parts.control, parts.arbiter, valid, op),
            *(tiles, books, finisher, walker, overlaps, clock, scan, flags),
        )
        return m

    def _take_news(self, m, clearing):
        """Refusals and news as operations for the pipeline; whether the entry that comes names a
        book."""
        cfg, types = self._cfg, self._types
        refusals, news = m.submodules.refusals, m.submodules.news
        refuse_op = Signal(types.op)
        news_op = Signal(types.op)
        refusal, entry = refusals.o.payload, news.o.payload
        # What names no book is dropped before the registers: the comparisons are not in the
        # arbiter's path.
        sunk, said = self.i_refused.payload, self.i_news.payload
        refusal_fits = sunk.known & ~sunk.plain & (sunk.region < cfg.regions)
        news_fit = (said.region < cfg.regions) & (said.src < cfg.ranks)
        for outer, register, fits in (
            (self.i_refused, refusals, refusal_fits),
            (self.i_news, news, news_fit),
        ):
            m.d.comb += [
                register.i.payload.eq(outer.payload),
                register.i.valid.eq(outer.valid & mutant("scoreboard.unfit", fits, 1) & ~clearing),
                outer.ready.eq(register.i.ready & ~clearing),
            ]
        m.d.comb += [
            refuse_op.kind.eq(OpKind.REFUSE),
            refuse_op.region.eq(refusal.region),
            refuse_op.epoch.eq(refusal.epoch),
            refuse_op.bank.eq(refusal.epoch[0]),
            refuse_op.bytes.eq(refusal.bytes),
            news_op.kind.eq(OpKind.NEWS),
            news_op.region.eq(entry.region),
            news_op.epoch.eq(entry.epoch),
            news_op.bank.eq(entry.epoch[0]),
            news_op.bytes.eq(Cat(Const(0, UNIT), entry.bytes16)),
            news_op.src.eq(entry.src),
            news_op.tell.eq(entry.tell),
            news_op.close.eq(entry.close),
            news_op.abort.eq(
                mutant(
                    "scoreboard.short_word_ignored",
                    entry.abort | entry.ragged | entry.short,
                    entry.abort | entry.ragged,
                )
            ),
            news_op.exceeds.eq(mutant("scoreboard.long_word_ignored", entry.over, 0)),
        ]
        return refuse_op, news_op, news_fit

    def _choose(self, m, refuse_op, news_op):
        """One operation per cycle: acknowledgements, refusals, news, all else, in turn."""
        types, parts = self._types, m.submodules
        acks, refusals, news = parts.acks, parts.refusals, parts.news
        m.submodules.control = control = StreamMerge(types.op, 4)
        for n, part in enumerate((parts.finisher, parts.walker, parts.overlaps, parts.clock)):
            wiring.connect(m, part.o_op, control.i[n])
        m.submodules.arbiter = arbiter = RoundRobin(4)
        m.d.comb += [
            arbiter.requests.eq(Cat(acks.o.valid, refusals.o.valid, news.o.valid, control.o.valid)),
            arbiter.advance.eq(
                mutant("scoreboard.turns_of_one_input_only", 1, arbiter.requests[3])
            ),
            acks.o.ready.eq(arbiter.grant_onehot[0]),
            refusals.o.ready.eq(arbiter.grant_onehot[1]),
            news.o.ready.eq(arbiter.grant_onehot[2]),
            control.o.ready.eq(arbiter.grant_onehot[3]),
        ]
        valid, op = Signal(name="op_valid"), Signal(types.op, name="op")
        m.d.sync += [
            valid.eq(arbiter.requests.any()),
            op.eq(
                select(
                    arbiter.grant_onehot, (acks.o.payload, refuse_op, news_op, control.o.payload)
                )
            ),
        ]
        return valid, op

    def _pipeline(self, m, clearing, valid, op):
        """Tiles, books, events: one operation per cycle, never stalls. Finisher and walker hear the
        answers."""
        parts = m.submodules
        tiles, books, scan, flags = parts.tiles, parts.books, parts.scan, parts.flags
        acks, finisher, walker = parts.acks, parts.finisher, parts.walker
        m.d.comb += [
            tiles.i_valid.eq(valid),
            tiles.i_op.eq(op),
            books.i_valid.eq(tiles.o_valid),
            books.i_op.eq(tiles.o_op),
            books.hit.eq(tiles.hit),
            books.over.eq(tiles.over),
            books.held.eq(tiles.held),
            books.live.eq(tiles.live),
            books.rows.eq(tiles.rows),
            scan.ready.eq(books.ready),
            scan.kill.eq(walker.kill),
            scan.room.eq(flags.room),
            flags.loaded.eq(scan.loaded),
            flags.event.eq(
                mutant("scoreboard.flag_of_event_before", scan.offered, scan.o_event.payload)
            ),
            finisher.result.eq(books.result),
            walker.result.eq(books.result),
            walker.judging.eq(finisher.busy),
            walker.judged_at.eq(finisher.at),
            walker.enable.eq(~clearing),
            walker.sweeping.eq(acks.sweeping),
            acks.sweep.eq(walker.sweep),
            acks.enable.eq(~clearing),
        ]
        # What does not decide when a READY comes takes a register: the books' change is the longest
        # path. Ends, drops and writes to ranges keep their order.
        m.d.sync += [
            tiles.live_write.eq(books.live_write),
            tiles.live_value.eq(books.live_value),
            scan.outcome.eq(books.outcome),
            scan.drop.eq(books.drop),
            scan.dep_write.eq(self.dep_write),
        ]
        m.d.comb += finisher.check.eq(books.check)
        for part in (tiles, books, flags, walker):
            m.d.comb += part.geometry_write.eq(self.geometry_write)
        for part in (tiles, books, walker):
            m.d.comb += part.dep_write.eq(self.dep_write)

    def _outside(self, m, news_fit):
        """The ports of the parts that are ports of the scoreboard, and the counters."""
        types, parts = self._types, m.submodules
        books, scan, flags, overlaps = parts.books, parts.scan, parts.flags, parts.overlaps
        finisher, walker, clock = parts.finisher, parts.walker, parts.clock
        wiring.connect(m, wiring.flipped(self.i_command), walker.i_command)
        wiring.connect(m, scan.o_event, wiring.flipped(self.o_event))
        if (asked := bug("scoreboard.event_withdrawn_at_ready")) is not None:
            with m.If(asked & (self.clearing | books.ready.en)):
                m.d.comb += self.o_event.valid.eq(0)
        wiring.connect(m, flags.o_flag, wiring.flipped(self.o_flag))
        m.d.comb += [
            self.command_error.eq(walker.command_error),
            self.dep_busy.eq(walker.dep_busy),
            overlaps.overlap.eq(self.overlap),
            self.o_region_update.eq(books.region_update),
            self.rows_query.eq(finisher.rows_query),
            finisher.rows.eq(self.rows),
            self.purge.eq(walker.purge),
            walker.purging.eq(self.purging),
            self.quiesce.eq(walker.quiesce),
            walker.quiescing.eq(self.quiescing),
            books.query.eq(self.query),
            self.status.eq(books.status),
            self.missing_from.eq(books.missing),
            self.silent.eq(
                mutant("scoreboard.silent_have_not_closed", books.silent, books.missing)
            ),
            clock.timeout.eq(self.timeout),
            self.bad_close.eq(books.bad_close),
        ]
        m.d.sync += self.o_timeout.eq(books.timeout)
        for name, _ in types.book_counts:
            m.d.comb += self.counts[name].eq(books.counts[name])
        for name, _ in types.event_counts:
            m.d.comb += self.counts[name].eq(scan.counts[name])
        m.d.comb += self.counts.timeouts.eq(self.o_timeout.en)
        m.d.sync += [
            self.counts.close_bad.eq(self.i_news.valid & self.i_news.ready & ~news_fit),
            self.counts.merges.eq(parts.acks.merged),
        ]
