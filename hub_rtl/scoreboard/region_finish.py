# SPDX-License-Identifier: Apache-2.0
"""Finds what the last tile of a bank will hold once all have told, and decides whether a bank whose
producers have all closed is complete: announces that tile and ALL, or ERROR."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REASON, bits_of
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.parts.mutants import mutant

from .bank_queue import BankQueue
from .records import OpKind, compose, scoreboard_types

__all__ = ["RegionFinisher", "Divider"]


class DividerObserve(NamedTuple):
    """What a proof may see of a :class:`Divider`."""

    left: Signal  #: quotient bits to come


class Divider(wiring.Component):
    """Restoring divider, one quotient bit per cycle.

    Latency: ``width`` cycles after ``start``; ``busy`` meanwhile. The result holds until the next
    start. Parameters: ``width``, dividend and quotient bits; ``divisor_width``. Ports: ``start``
    In; ``dividend``, ``divisor`` In (the divisor must be held); ``quotient``, ``remainder`` Out;
    ``busy`` Out. A divisor of 0 gives a quotient of ones.
    """

    observe: DividerObserve  # once elaborated

    def __init__(self, width, divisor_width):
        super().__init__(
            {
                "start": In(1),
                "dividend": In(width),
                "divisor": In(divisor_width),
                "quotient": Out(width),
                "remainder": Out(divisor_width),
                "busy": Out(1),
            }
        )
        self._width = width

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self._width + 1))
        self.observe = DividerObserve(left)
        trial = Signal(len(self.divisor) + 1)
        fits = Signal()
        m.d.comb += [
            self.busy.eq(left != 0),
            trial.eq(Cat(self.quotient[-1], self.remainder)),
            fits.eq(
                mutant(
                    "scoreboard.quotient_one_too_small", trial >= self.divisor, trial > self.divisor
                )
            ),
        ]
        with m.If(self.start):
            m.d.sync += [
                left.eq(self._width),
                self.quotient.eq(self.dividend),
                self.remainder.eq(0),
            ]
        with m.Elif(self.busy):
            # The dividend leaves its register at the top as the quotient comes in below.
            m.d.sync += [
                left.eq(left - 1),
                self.quotient.eq(Cat(fits, self.quotient)),
                self.remainder.eq(Mux(fits, trial - self.divisor, trial)),
            ]
        return m


class Count(NamedTuple):
    """What the quotients of a bank say."""

    placed: Signal  #: rows in this region, at a verdict
    over: Signal  #: rows in the overflow region
    full: Signal  #: full tiles of those placed
    part: Signal  #: there is one more tile, not full
    rows: Signal  #: rows told and not refused, the fraction cut off
    whole: Signal  #: there is no fraction
    fits: Signal  #: ``rows`` is as many; else it is more than any capacity


class Asked(NamedTuple):
    """What the finisher's operation is about."""

    kind: Signal
    verdict: Signal  #: a Reason
    aiming: Signal  #: it is an AIM
    passing: Signal  #: it is for the overflow region
    closing: Signal  #: ... and says how this one ended


class RegionFinisherObserve(NamedTuple):
    """What a proof may see of a :class:`RegionFinisher`."""

    queue: BankQueue  #: banks to be looked at
    all_rows: Divider  #: rows that were told and not refused
    over_rows: Divider  #: rows that lie in its overflow region
    book: data.View  #: as the look showed it
    shape: data.View  #: the region's geometry, as the look showed it
    due: Signal  #: bytes told and not refused
    total: Signal  #: bytes acknowledged and refused
    full: Signal  #: full tiles, by the quotients
    part: Signal  #: there is one more tile, not full
    rows: Signal  #: in both regions, by the quotients
    again: Signal  #: the bank has moved since the look
    verdict: Signal  #: a Reason
    aim: data.View  #: what the AIM says: {known, exact, rows, group, bytes}
    left: Signal  #: bits of the last tile's rows whose bytes are to be added yet
    factor: Signal  #: bytes of a row, times the value of the lowest of these bits
    judges: Signal  #: the bank is complete
    quick: Signal  #: its aim says how many rows
    spares: Signal  #: the overflow region is to be told that nothing comes
    closing: Signal  #: it is told how this one ended
    is_in: dict  #: 1 in that state, by its name


class RegionFinisher(wiring.Component):
    """Works through the banks that may be complete, one at a time: sets the aim, gives the verdict.

    Contract, aim: once all have told, the rows that will lie in the region are those told and not
    refused, or its capacity. If they leave a last tile that is not full and are a number of rows
    (or reach the capacity), the bank gets an AIM: group and bytes of that tile. The tile is
    announced when it holds these bytes and the allocator has given out that many slots, so that
    none is to come: its rows are whole, whatever else happens. If no byte can overflow, the
    overflow region is told so. A new account makes a new aim. Contract, verdict: a bank with all
    tells, all closes and acked + refused = sent becomes DONE with ALL when its bytes are exactly
    those of its rows by the allocator's count (slots given out in this region, to whomever, and its
    rows that went to its overflow region) and all full tiles were announced; its last partial tile
    is announced with the same operation, if it was not before. Otherwise ERROR INCOMPLETE; more
    bytes than sent: ERROR OVERLAP. Before that nothing happens. A bank that changes while it is
    judged is judged again. After ALL the overflow region is told. Latency: from ``check`` to an aim
    about 30 cycles and one per quotient bit (at most 30); from the check of an aim that is known to
    READY or verdict about 12, else as an aim. Order: first come, first served. Waits for the
    pipeline only. No ``check`` may come while ``clearing``.

    Parameters: ``cfg``. Ports: ``check`` In {en, region, bank}: look at this one; ``o_op`` Out
    stream(op); ``result`` In; ``rows_query`` Out, ``rows`` In (allocator, two cycles); ``busy``
    Out, ``at`` Out: bank being judged; ``clearing`` Out. Source: docs/interfaces.md section 8.
    """

    observe: RegionFinisherObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own = self._types
        super().__init__(
            {
                "check": In(own.bank_strobe),
                "o_op": Out(stream.Signature(own.op)),
                "result": In(own.result),
                "rows_query": Out(own.bank_name),
                "rows": In(cfg.slot_width + 1),
                "busy": Out(1),
                "at": Out(own.bank_name),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        m.submodules.queue = queue = BankQueue(cfg)
        m.d.comb += [
            queue.put.eq(self.check),
            self.clearing.eq(queue.clearing),
        ]
        book, shape = Signal(types.book, name="book"), Signal(types.geometry, name="shape")
        due = Signal(cfg.total_width + 1, name="due")  # bytes told and not refused; < 0: top bit
        exact = Signal()
        divides = Signal()
        quick = Signal(name="quick")
        dividers, count = self._count(m, book, shape, due, exact, divides, quick)
        again, moves = self._watch(m)
        answered = self.result.valid & (self.result.source == 0)
        aim, judges = Signal(types.aim, name="aim"), Signal(name="judges")
        spares = Signal(name="spares")  # nothing will overflow, and nobody was told so yet
        asked = self._ask(m, book, shape, count, aim, spares)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            self._look(m, queue, asked.kind, again, moves)
            total = self._weigh(
                m, answered, dividers[0], book, shape, due, divides, quick, judges, asked, aim
            )
            left, factor = self._found(
                m, exact, judges, asked.verdict, count, book, shape, due, aim, spares
            )
            self._aim(m, answered, judges, asked, spares)
            self._tell(m, answered, shape, again, judges, asked)
        is_in = {name: fsm.ongoing(name) for name in fsm.encoding}
        self.observe = RegionFinisherObserve(
            *(queue, *dividers, book, shape, due, total, count.full, count.part, count.rows),
            *(again, asked.verdict, aim, left, factor, judges, quick, spares, asked.closing),
            is_in,
        )
        return m

    def _count(self, m, book, shape, due, exact, divides, quick):
        """The bank's bytes as rows, when the returned dividers are not busy any more (``quick``: as
        its aim has them); ``exact``: all that was to come."""
        cfg = self._cfg
        row16 = cfg.row_bytes_width - 4
        both = cfg.slot_width + 1  # rows of the region and its overflow region
        width = min(cfg.total_width - 4, both + row16)
        m.submodules.all_rows = all_rows = Divider(width, row16)
        m.submodules.over_rows = over_rows = Divider(width, row16)

        answer = self.result.book
        rows = Signal(both)
        over = Signal(cfg.slot_width)
        mask = Signal(16)
        m.d.comb += [
            all_rows.dividend.eq((answer.account.sent - answer.account.refused)[4:]),
            over_rows.dividend.eq(answer.over[4:]),
            all_rows.divisor.eq(shape.row_bytes[4:]),
            over_rows.divisor.eq(shape.row_bytes[4:]),
            all_rows.start.eq(divides),
            over_rows.start.eq(divides),
            quick.eq(book.aim.known & book.aim.exact & ~book.over.any()),
            rows.eq(Mux(quick, book.aim.rows, all_rows.quotient[:both])),
            over.eq(Mux(quick, 0, over_rows.quotient[: cfg.slot_width])),
            mask.eq(
                mutant(
                    "scoreboard.tiles_below_16_rows",
                    (1 << shape.log2_tile) - 1,
                    (1 << shape.log2_tile[:2]) - 1,
                )
            ),
        ]
        # What the quotients say a cycle later. At a verdict what is due has come: these rows, less
        # those that went on, lie here, and each full tile of them was announced.
        count = Count(
            placed=Signal(both, name="placed"),
            over=Signal(cfg.slot_width, name="over"),
            full=Signal(cfg.slot_width, name="full"),
            part=Signal(name="part"),
            rows=Signal(both, name="rows"),
            whole=Signal(name="whole"),
            fits=Signal(name="fits"),
        )
        placed = rows - over
        over_whole = Signal(name="over_whole")
        m.d.sync += [
            count.placed.eq(placed),
            count.over.eq(over),
            count.full.eq(placed[: cfg.slot_width] >> shape.log2_tile),
            count.part.eq((placed & mask).any()),
            count.rows.eq(rows),
            count.fits.eq(
                ~(due >> (width + 4)).any()
                & mutant(
                    "scoreboard.rows_of_one_region_fit",
                    ~all_rows.quotient[both:].any(),
                    ~all_rows.quotient[cfg.slot_width :].any(),
                )
                | quick
            ),
            count.whole.eq((~due[:4].any() & ~all_rows.remainder.any()) | quick),
            over_whole.eq(
                ~(book.over >> (width + 4)).any()
                & ~book.over[:4].any()
                & ~over_rows.remainder.any()
                & ~over_rows.quotient[cfg.slot_width :].any()
                | quick
            ),
        ]
        m.d.comb += exact.eq(
            count.fits
            & count.whole
            & mutant("scoreboard.torn_rows_elsewhere_pass", over_whole, 1)
            & (count.rows == self.rows)
            & (count.over <= count.rows)
            & ~count.placed[cfg.slot_width :].any()
            & mutant("scoreboard.all_without_all_tiles", count.full == book.tiles, 1)
        )
        return (all_rows, over_rows), count

    def _watch(self, m):
        """Whether the bank that is judged moves, and whether it has moved since the look."""
        # The bank has moved since the look; it is in the queue again.
        again = Signal(name="again")
        moves = Signal()
        m.d.comb += [
            self.rows_query.eq(self.at),
            moves.eq(
                self.check.en
                & (self.check.region == self.at.region)
                & (self.check.bank == self.at.bank)
            ),
        ]
        m.d.sync += again.eq(mutant("scoreboard.second_question_forgotten", again | moves, moves))
        return again, moves

    def _ask(self, m, book, shape, count, aim, spares):
        """The operation: a look, an aim, the verdict, or the word to the overflow region."""
        cfg, types = self._cfg, self._types
        asked = Asked(
            kind=Signal(bits_of(OpKind), name="kind"),
            verdict=Signal(REASON, name="verdict"),
            aiming=Signal(name="aiming"),
            passing=Signal(name="passing"),
            closing=Signal(name="closing"),
        )
        full = aim.rows == shape.capacity
        final = Mux(full, self.rows >= shape.capacity, self.rows == aim.rows)
        shot = mutant("scoreboard.rest_by_bytes_alone", final, 1) & aim.bytes.any() & ~book.rest
        over = Mux(asked.closing, book.over, 0)
        m.d.comb += self.o_op.payload.eq(
            compose(
                types.op,
                kind=asked.kind,
                region=Mux(asked.passing, shape.overflow, self.at.region),
                bank=self.at.bank,
                epoch=book.epoch,
                status=asked.verdict,
                rows=Mux(
                    asked.aiming,
                    aim.rows,
                    Mux(asked.passing, Mux(asked.closing, count.over, 0), count.placed),
                ),
                part=Mux(asked.aiming, shot, (asked.verdict == 0) & count.part),
                exact=aim.exact,
                bytes=Mux(asked.aiming, aim.bytes, over),
                group=Mux(
                    asked.aiming,
                    aim.group,
                    (shape.group_base + count.full)[: cfg.group_width],
                ),
                tell=Mux(asked.aiming, spares, ~asked.closing | ~book.promised),
                close=asked.closing,
                exceeds=mutant(
                    "scoreboard.broken_promise_not_told",
                    asked.closing & book.promised & book.over.any(),
                    0,
                ),
            )
        )
        return asked

    def _look(self, m, queue, kind, again, moves):
        """The next bank of the queue is looked at."""
        with m.State("IDLE"):
            m.d.sync += Cat(self.at.bank, self.at.region).eq(queue.o.payload)
            with m.If(queue.o.valid):
                m.next = "LOOK"
        with m.State("LOOK"):
            m.d.comb += [
                self.o_op.valid.eq(1),
                kind.eq(OpKind.LOOK),
                queue.o.ready.eq(self.o_op.ready),
            ]
            m.d.sync += again.eq(moves)  # the look shows all that was before
            with m.If(self.o_op.ready):
                m.next = "ANSWER"

    def _weigh(self, m, answered, divider, book, shape, due, divides, quick, judges, asked, aim):
        """What the look showed is weighed: not yet, too much, or whether its rows are exact, or
        where the last tile is. Returns the bytes acknowledged and refused."""
        answer = self.result.book
        total = Signal(self._cfg.total_width + 1, name="total")
        with m.State("ANSWER"):
            with m.If(answered):
                m.d.comb += divides.eq(1)
                m.d.sync += [
                    book.eq(answer),
                    aim.eq(answer.aim),
                    shape.eq(self.result.geometry),
                    due.eq(
                        answer.account.sent
                        - mutant(
                            "scoreboard.refusals_below_4_mib",
                            answer.account.refused,
                            answer.account.refused[:22],
                        )
                    ),
                    total.eq(answer.acked + answer.account.refused),
                    asked.closing.eq(0),
                ]
                m.next = "WEIGH"
        account, known = book.account, book.aim.known
        told = account.num_told >= shape.expected
        closed = mutant("scoreboard.all_without_closes", account.num_closes >= shape.expected, told)
        complete = closed & (total == account.sent)
        with m.State("WEIGH"):
            m.d.sync += [
                asked.verdict.eq(Reason.OVERLAP),
                judges.eq(complete),
            ]
            with m.If((book.state != RegionState.OPEN) | ~told):
                m.next = "IDLE"
            with m.Elif(
                closed
                & mutant(
                    "scoreboard.exact_sum_is_overflow",
                    total > account.sent,
                    total >= account.sent,
                )
            ):
                m.next = "VERDICT"
            with m.Elif(complete & quick):
                m.next = "FOUND"
            with m.Elif(complete | ~known):
                m.next = "DIVIDE"
            with m.Elif(aim.bytes.any() & ~book.rest):
                m.next = "AIM"
            with m.Else():
                m.next = "IDLE"
        with m.State("DIVIDE"):  # the allocator's count has long been there at the end
            with m.If(~divider.busy):
                m.next = "FOUND"
        return total

    def _found(self, m, exact, judges, verdict, count, book, shape, due, aim, spares):
        """The verdict, if the bank is judged, and unless that is ALL the aim, if it is not known:
        bytes of the last tile, summed up bit by bit. Returns what the sum is made of."""
        cfg = self._cfg
        left, factor = Signal(cfg.slot_width, name="left"), Signal(cfg.tile_width, name="factor")
        # More rows than the region has, whole or not; or so many.
        beyond = ~count.fits | (count.rows >= shape.capacity)
        here = Mux(beyond, shape.capacity, count.rows)[: cfg.slot_width]
        sound = ~due[-1] & (count.whole | beyond)
        with m.State("FOUND"):
            m.d.sync += [
                verdict.eq(Mux(exact, Reason.OK, Reason.INCOMPLETE)),
                left.eq(0),
                factor.eq(shape.row_bytes),
            ]
            with m.If(~book.aim.known):
                m.d.sync += [
                    aim.known.eq(1),
                    aim.exact.eq(
                        count.fits & count.whole & (count.rows <= shape.capacity) & ~due[-1]
                    ),
                    aim.rows.eq(mutant("scoreboard.aim_beyond_capacity", here, count.rows)),
                    aim.group.eq((shape.group_base + (here >> shape.log2_tile))[: cfg.group_width]),
                    aim.bytes.eq(0),
                    spares.eq(
                        shape.overflow_en
                        & ~book.passed
                        & ~book.promised
                        & mutant(
                            "scoreboard.overflow_region_told_too_little",
                            ~beyond
                            | due[-1]
                            | (count.fits & count.whole & (count.rows == shape.capacity)),
                            1,
                        )
                    ),
                    left.eq(
                        Mux(
                            mutant("scoreboard.torn_rest_is_looked_for", sound, 1),
                            here & ((1 << shape.log2_tile) - 1),
                            0,
                        )
                    ),
                ]
            m.next = "SUM"
            with m.If(judges & exact):
                m.d.sync += spares.eq(0)  # the last word tells it
                m.next = "VERDICT"
        with m.State("SUM"):
            m.d.sync += [
                left.eq(left >> 1),
                factor.eq(factor << 1),
            ]
            with m.If(left[0]):
                m.d.sync += aim.bytes.eq(
                    aim.bytes + mutant("scoreboard.last_tile_is_short", factor, factor[:9])
                )
            with m.If(~left.any()):
                m.next = "AIM"
        return left, factor

    def _aim(self, m, answered, judges, asked, spares):
        """The aim goes to the books, and announces the tile if it is there and all slots are given
        out; the overflow region is told that nothing comes. A verdict follows."""
        with m.State("AIM"):
            m.d.comb += [
                self.o_op.valid.eq(1),
                asked.kind.eq(OpKind.AIM),
                asked.aiming.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.next = "AIMED"
        with m.State("AIMED"):
            with m.If(answered):
                m.d.sync += spares.eq(0)
                with m.If(self.result.ok & spares):
                    m.next = "PASS"
                with m.Elif(judges):
                    m.next = "VERDICT"
                with m.Else():
                    m.next = "IDLE"

    def _tell(self, m, answered, shape, again, judges, asked):
        """The verdict goes to the books, unless it is old; after ALL to the overflow region too."""
        with m.State("VERDICT"):
            m.d.comb += [
                self.o_op.valid.eq(~again),
                asked.kind.eq(OpKind.FINISH),
            ]
            with m.If(again):  # it has moved: the numbers are old
                m.next = "IDLE"
            with m.Elif(self.o_op.ready):
                m.next = "JUDGED"
        with m.State("JUDGED"):
            with m.If(answered):
                m.next = "IDLE"
                with m.If(self.result.ok & (asked.verdict == 0) & shape.overflow_en):
                    m.d.sync += asked.closing.eq(1)
                    m.next = "PASS"
        with m.State("PASS"):
            m.d.comb += [
                self.o_op.valid.eq(1),
                asked.kind.eq(OpKind.PASS),
                asked.passing.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.next = "IDLE"
                with m.If(judges & ~asked.closing):
                    m.next = "VERDICT"
