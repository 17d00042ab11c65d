"""Keeps the book of every (region, epoch bank): states, closes, byte totals, and what follows from each change."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..formats import Reason, RegionState
from ..lib.ram import Ram
from .scoreboard_types import OpKind, bank_index, scoreboard_types
from ..types import types_of

__all__ = ["RegionBooks"]


class RegionBooks(wiring.Component):
    """Second half of the scoreboard's pipeline: one read-modify-write of a book per cycle; the only writer of states.

    Contract: totals are exact and do not depend on the order of acknowledgements, refusals and closes. A bank leaves OPEN
    once per epoch: by a verdict of the finisher (ALL), by bad news (ERROR, at once) or by ABORT. News for an epoch that is not
    open yet are kept while the bank is FREE and of that epoch, else they taint it. News of an epoch that is over is counted as
    stale. Latency: an operation at ``i_op`` in cycle 0, its tile's verdict in cycle 1, has its effects at ``ready``,
    ``outcome`` and ``drop`` in cycle 2, at the registered ``region_update`` and ``result`` in cycle 3: the book is read,
    registered, changed. Throughput one per cycle, of one bank too (forwarded). Never stalls.
    Illegal input: a producer's second close and closes of unknown producers change nothing and are reported (``bad_close``).

    Parameters: ``cfg``. Ports: ``i_op`` In {valid, op} and, a cycle later, {hit, over, live, rows} of TileCounters;
    ``region_update`` Out; ``ready``, ``outcome`` Out to EventScan; ``drop`` Out: pending news of this bank is forgotten;
    ``check`` Out: this bank may be complete; ``live_write`` Out; ``result`` Out; ``timeout`` Out; ``bad_close`` Out;
    ``query`` In, ``status``, ``missing`` Out two cycles later; ``geometry_write``, ``dep_write`` In; ``counts`` Out;
    ``clearing`` Out. Source: design 6.4, rules R1, R2, R6.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        types, own = types_of(cfg), self._types
        super().__init__({
            "i_valid": In(1), "i_op": In(own.op), "hit": In(1), "over": In(1), "live": In(1), "rows": In(cfg.slot_width),
            "region_update": Out(types.region_update), "ready": Out(own.ready), "outcome": Out(own.outcome),
            "drop": Out(own.bank_strobe), "check": Out(own.bank_strobe),
            "live_write": Out(own.bank_strobe), "live_value": Out(1), "result": Out(own.result),
            "timeout": Out(own.bank_strobe), "bad_close": Out(own.bad_close),
            "query": In(own.bank_name), "status": Out(own.status), "missing": Out(cfg.ranks),
            "geometry_write": In(types.geometry_write), "dep_write": In(types.dep_write),
            "counts": Out(own.book_counts), "clearing": Out(1)})

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        m.submodules.books = books = Ram(types.book, types.banks, clear=True)
        m.submodules.mirror = mirror = Ram(types.book, types.banks, clear=True)
        m.submodules.shapes = shapes = Ram(types.geometry, cfg.regions, clear=True)
        m.d.comb += self.clearing.eq(books.clearing | shapes.clearing)
        m.d.comb += [shapes.w_en.eq(self.geometry_write.en), shapes.w_addr.eq(self.geometry_write.region)]
        m.d.comb += [shapes.w_data[field].eq(self.geometry_write.geometry[field])
                     for field, _ in types.geometry if field != "valid"]
        m.d.comb += shapes.w_data.valid.eq(self.geometry_write.geometry.valid
                                           & self.geometry_write.geometry.row_bytes[4:].any())

        # -- read ---------------------------------------------------------------------------------------------------------
        m.d.comb += [books.r_en.eq(self.i_valid), books.r_addr.eq(bank_index(self.i_op.region, self.i_op.bank)),
                     shapes.r_en.eq(self.i_valid), shapes.r_addr.eq(self.i_op.region)]
        read_valid, valid = (Signal(name=name) for name in ("read_valid", "valid"))
        read_op, op = (Signal(types.op, name=name) for name in ("read_op", "op"))   # read_op: the table shows its book
        was, now = (Signal(types.book, name=name) for name in ("was", "now"))
        shape = Signal(types.geometry)
        hit, over, live, full_rows = Signal(), Signal(), Signal(), Signal(cfg.slot_width)
        name = bank_index(op.region, op.bank)
        # The operation in front may be changing that very book.
        follows = books.w_en & (name == bank_index(read_op.region, read_op.bank))
        m.d.sync += [read_valid.eq(self.i_valid), read_op.eq(self.i_op), valid.eq(read_valid), op.eq(read_op),
                     was.eq(Mux(follows, now, books.r_data)), shape.eq(shapes.r_data),
                     hit.eq(self.hit), over.eq(self.over), live.eq(self.live), full_rows.eq(self.rows)]

        # -- change -------------------------------------------------------------------------------------------------------
        busy, opened, same = Signal(), Signal(), Signal()
        ahead, early, mine, take = Signal(4), Signal(), Signal(), Signal()
        m.d.comb += [
            busy.eq(was.state != RegionState.FREE), opened.eq(was.state == RegionState.OPEN),
            same.eq(op.epoch == was.epoch), ahead.eq(op.epoch - was.epoch),
            early.eq(~was.used | (~ahead[3] & ahead.any())),
            mine.eq(~was.held | (was.tag == op.epoch[1:])),
            take.eq(Mux(busy, same, early & mine)),
        ]
        fail, status = Signal(), Signal(4)                  # bad news for an open bank
        news, moved = Signal(), Signal()                    # news tagged with an epoch; some total grows
        ok = Signal()
        counts = Signal(types.book_counts)
        bad_news = op.mem | op.poison | over
        m.d.comb += [now.eq(was), self.ready.owner.eq(Mux(op.plain, op.dep, op.region)), self.ready.plain.eq(op.plain),
                     self.ready.bank.eq(op.bank), self.ready.group.eq(op.group), self.ready.rows.eq(full_rows),
                     self.ready.epoch.eq(Mux(op.plain, 0, was.epoch))]

        failed = Signal(cfg.dep_ranges)                     # dependency ranges in ERROR until they are written again
        plain_fail = Signal()
        with m.Switch(op.kind):
            with m.Case(OpKind.ACK, OpKind.OVER):
                m.d.comb += status.eq(Mux(op.mem, Reason.MEM_ERROR, Mux(over, Reason.OVERLAP, Reason.INCOMPLETE)))
                with m.If(op.plain):
                    usable = live & ~failed.bit_select(op.dep, 1)
                    m.d.comb += [plain_fail.eq(valid & usable & bad_news),
                                 self.ready.en.eq(valid & usable & hit & ~bad_news), counts.acks_stray.eq(~live)]
                with m.Elif(busy):
                    m.d.comb += [now.acked.eq(was.acked + op.bytes), moved.eq(1), fail.eq(opened & bad_news)]
                    with m.If(op.kind == OpKind.OVER):
                        m.d.comb += [now.over.eq(was.over + op.bytes), now.touched.eq(1)]
                    with m.Elif(opened & hit & ~bad_news):
                        m.d.comb += [self.ready.en.eq(valid), now.tiles.eq(was.tiles + 1)]
                with m.Else():
                    m.d.comb += counts.acks_stray.eq(1)
                m.d.comb += [counts.mem_errors.eq(op.mem & (op.kind == OpKind.ACK)),
                             counts.poisoned.eq(op.poison & (op.kind == OpKind.ACK)), counts.overlaps.eq(over)]
            with m.Case(OpKind.REFUSE):
                m.d.comb += [news.eq(1), counts.refused_stale.eq(~take & ~early)]
                with m.If(take):
                    m.d.comb += now.refused.eq(was.refused + op.bytes)
            with m.Case(OpKind.CLOSE):
                twice = take & was.closes.bit_select(op.src, 1)
                m.d.comb += [news.eq(1), counts.close_stale.eq(~take & ~early), counts.close_twice.eq(twice)]
                with m.If(take & ~twice):
                    m.d.comb += [now.sent.eq(was.sent + op.bytes), now.num_closes.eq(was.num_closes + 1),
                                 now.closes.eq(was.closes | (Const(1, cfg.ranks) << op.src)[:cfg.ranks]),
                                 now.aborted.eq(was.aborted | op.abort)]
                # As `take`, of an open bank.
                m.d.comb += [fail.eq(opened & same & op.abort & ~was.closes.bit_select(op.src, 1)),
                             status.eq(Reason.INCOMPLETE)]
            with m.Case(OpKind.PASS):
                m.d.comb += [news.eq(1), counts.close_stale.eq(~take & ~early)]
                with m.If(take):
                    m.d.comb += [now.sent.eq(was.sent + op.bytes), now.num_closes.eq(was.num_closes + 1),
                                 now.brought.eq(was.brought + op.rows), now.aborted.eq(was.aborted | op.abort)]
                m.d.comb += [fail.eq(opened & same & op.abort), status.eq(Reason.INCOMPLETE)]
            with m.Case(OpKind.OVERLAP):
                m.d.comb += [fail.eq(opened), status.eq(Reason.OVERLAP), counts.overlaps.eq(1)]
            with m.Case(OpKind.OPEN):
                with m.If(~busy & shape.valid):
                    m.d.comb += ok.eq(1)
                    self._open(m, op, was, now, fail, status)
            with m.Case(OpKind.RELEASE):
                m.d.comb += ok.eq(same & (was.state == RegionState.DONE))
            with m.Case(OpKind.ABORT):
                m.d.comb += ok.eq(same & busy)
                with m.If(ok):
                    m.d.comb += now.state.eq(RegionState.DONE)
            with m.Case(OpKind.FREE):
                # Only the history stays.
                m.d.comb += [ok.eq(1), now.eq(0), now.epoch.eq(was.epoch), now.used.eq(1), now.taint.eq(was.taint)]
            with m.Case(OpKind.FINISH):
                m.d.comb += [ok.eq(opened & same), status.eq(op.status)]
                with m.If(ok & op.status.any()):
                    m.d.comb += fail.eq(1)
                with m.Elif(ok):
                    m.d.comb += [
                        now.state.eq(RegionState.DONE), now.passed.eq(1), now.brought.eq(op.rows),
                        self.ready.en.eq(valid & op.part),
                        self.ready.rows.eq(op.rows & ((Const(1, 16) << shape.log2_tile) - 1)),
                    ]
            with m.Case(OpKind.CLEAR):
                m.d.comb += [self.ready.en.eq(valid), self.ready.clear.eq(1)]
            with m.Case(OpKind.TICK):
                self._tick(m, valid & opened & was.seen, was, now)
        with m.If(news & take):
            m.d.comb += moved.eq(~counts.close_twice)       # a second close must not hold off the report of a stall
            with m.If(~busy):
                m.d.comb += [now.held.eq(1), now.tag.eq(op.epoch[1:]), counts.early_kept.eq(1)]
        with m.Elif(news & early):
            m.d.comb += [now.taint.eq(was.taint | (Const(1, 8) << op.epoch[1:])[:8]), counts.tainted.eq(1)]
        with m.If(moved):
            m.d.comb += [now.moved.eq(1), now.seen.eq(1)]
        with m.If(fail):
            m.d.comb += [now.state.eq(RegionState.DONE), now.status.eq(status)]

        # -- write --------------------------------------------------------------------------------------------------------
        writes = valid & ~op.plain
        for table in (books, mirror):
            m.d.comb += [table.w_en.eq(writes), table.w_addr.eq(name), table.w_data.eq(now)]
        moves = Cat(op.kind == OpKind.OPEN, op.kind == OpKind.FINISH, (op.kind == OpKind.FREE) & busy,
                    (op.kind == OpKind.ABORT) & (was.state != RegionState.DONE)).any()
        changed = writes & (fail | (ok & moves))
        m.d.sync += [self.region_update.en.eq(changed), self.region_update.region.eq(op.region),
                     self.region_update.bank.eq(op.bank), self.region_update.state.eq(now.state),
                     self.region_update.epoch.eq(now.epoch)]
        m.d.comb += [self.live_write.en.eq(changed), self.live_write.region.eq(op.region), self.live_write.bank.eq(op.bank),
                     self.live_value.eq(now.state != RegionState.FREE)]

        # -- consequences -------------------------------------------------------------------------------------------------
        done = valid & ok & (op.kind == OpKind.FINISH) & ~op.status.any()
        error = valid & fail
        m.d.comb += [
            self.outcome.en.eq(done | error | plain_fail), self.outcome.error.eq(~done),
            self.outcome.index.eq(Mux(plain_fail, types.banks + op.dep, name)),
            self.outcome.word.epoch.eq(Mux(op.plain, 0, now.epoch)), self.outcome.word.status.eq(Mux(done, 0, status)),
            self.outcome.word.rows.eq(Mux(done, op.rows, 0)), self.outcome.word.refused.eq(~op.plain & was.refused.any()),
            self.drop.en.eq(valid & ok & ((op.kind == OpKind.ABORT) | (op.kind == OpKind.RELEASE))),
        ]
        for strobe in (self.drop, self.timeout):
            m.d.comb += [strobe.region.eq(op.region), strobe.bank.eq(op.bank)]
        with m.If(plain_fail):
            m.d.sync += failed.eq(failed | (Const(1, cfg.dep_ranges) << op.dep)[:cfg.dep_ranges])
        with m.If(self.dep_write.en):
            m.d.sync += failed.bit_select(self.dep_write.index, 1).eq(0)

        # A bank may be complete after any growth with all closes there; the finisher looks closer.
        grown, expected, closes = Signal(), Signal.like(shape.expected), Signal.like(now.num_closes)
        grown_at = Signal(types.bank_strobe)
        m.d.sync += [grown.eq(writes & (now.state == RegionState.OPEN) & (moved | (op.kind == OpKind.OPEN))),
                     expected.eq(shape.expected), closes.eq(now.num_closes),
                     grown_at.region.eq(op.region), grown_at.bank.eq(op.bank)]
        m.d.comb += [self.check.eq(grown_at), self.check.en.eq(grown & (closes >= expected))]

        m.d.sync += [
            self.result.valid.eq(valid & ((op.kind >= OpKind.OPEN) & (op.kind <= OpKind.FINISH) | (op.kind == OpKind.LOOK))),
            self.result.source.eq(op.source), self.result.ok.eq(ok), self.result.book.eq(was), self.result.geometry.eq(shape),
            self.bad_close.en.eq(valid & counts.close_twice), self.bad_close.region.eq(op.region),
            self.bad_close.epoch.eq(op.epoch), self.bad_close.src.eq(op.src),
            self.counts.eq(Mux(valid, counts, 0)),
        ]
        self._report(m, mirror)
        return m

    def _open(self, m, op, was, now, fail, status):
        """OPEN: what was kept for this epoch becomes valid, what was kept for another taints that one."""
        kept = Signal()
        bits = Signal(8)
        m.d.comb += [kept.eq(was.held & (was.tag == op.epoch[1:])),
                     bits.eq(was.taint | Mux(was.held & ~kept, (Const(1, 8) << was.tag)[:8], 0))]
        with m.If(~kept):
            m.d.comb += now.eq(0)
        m.d.comb += [now.state.eq(RegionState.OPEN), now.epoch.eq(op.epoch), now.used.eq(1), now.held.eq(0)]
        # Of the taints only those of the next three epochs of this bank still mean something.
        slot = op.epoch[1:]
        for n in range(8):
            distance = (Const(n, 3) - slot)[:3]
            m.d.comb += now.taint[n].eq(bits[n] & (distance >= 1) & (distance <= 3))
        with m.If(bits.bit_select(slot, 1)):
            m.d.comb += [fail.eq(1), status.eq(Reason.EPOCH_EARLY)]
        with m.Elif(kept & was.aborted):
            m.d.comb += [fail.eq(1), status.eq(Reason.INCOMPLETE)]

    def _tick(self, m, runs, was, now):
        """Stall clock: four ticks without motion after the tick that saw the last motion make one report."""
        with m.If(runs & was.moved):
            m.d.comb += [now.moved.eq(0), now.ticks.eq(0), now.reported.eq(0)]
        with m.Elif(runs & ~was.reported):
            m.d.comb += [now.ticks.eq(was.ticks + 1), now.reported.eq(was.ticks == 3)]
            m.d.comb += self.timeout.en.eq(was.ticks == 3)

    def _report(self, m, mirror):
        """The query has its own copy of the books, so that it never waits and never disturbs."""
        book = mirror.r_data
        m.d.comb += [mirror.r_en.eq(1), mirror.r_addr.eq(Cat(self.query.bank, self.query.region))]
        m.d.sync += [
            self.status.state.eq(book.state), self.status.epoch.eq(book.epoch), self.status.closes.eq(book.num_closes),
            self.status.sent.eq(book.sent), self.status.acked.eq(book.acked), self.status.refused.eq(book.refused),
            self.status.rows.eq(book.brought), self.status.error.eq(book.status),
            self.missing.eq(Mux(book.state == RegionState.OPEN, ~book.closes, 0)),
        ]
