# SPDX-License-Identifier: Apache-2.0
"""Decides whether a bank whose producers have all closed is complete, and announces its last tile
and ALL, or ERROR."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

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
        trial, fits = Signal(len(self.divisor) + 1), Signal()
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


class RegionFinisherObserve(NamedTuple):
    """What a proof may see of a :class:`RegionFinisher`."""

    queue: BankQueue  #: banks to be looked at
    own_rows: Divider  #: rows that lie in the region
    over_rows: Divider  #: rows that lie in its overflow region
    book: data.View  #: as the look showed it
    shape: data.View  #: the region's geometry, as the look showed it
    here: Signal  #: bytes in the region
    total: Signal  #: bytes acknowledged and refused
    full: Signal  #: full tiles, by the quotients
    part: Signal  #: there is one more tile, not full
    rows: Signal  #: in both regions, by the quotients
    again: Signal  #: the bank has moved since the look
    verdict: Signal  #: a Reason
    is_in: dict  #: 1 in that state: IDLE, LOOK, ANSWER, WEIGH, DIVIDE, EXACT, VERDICT, JUDGED, PASS


class RegionFinisher(wiring.Component):
    """Works through the banks that may be complete, one at a time, and gives the verdict.

    Contract: a bank with all closes and acked + refused = sent becomes DONE with ALL when its bytes
    are exactly those of its rows by the allocator's count (slots given out in this region, to
    whomever, and its rows that went to its overflow region) and all full tiles were announced; its
    last partial tile is announced with the same operation. Otherwise ERROR INCOMPLETE; more bytes
    than sent: ERROR OVERLAP. Before that nothing happens. A bank that changes while it is judged is
    judged again. After ALL the overflow region is told. Latency: from ``check`` to the verdict
    about 16 cycles and one per quotient bit (at most 30). Order: first come, first judged. Waits
    for the pipeline only. No ``check`` may come while ``clearing``.

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
        here = Signal(cfg.total_width, name="here")  # bytes that lie in this region
        exact, divides = Signal(), Signal()
        dividers, placed, over, counted = self._count(m, book, shape, here, exact, divides)
        own_rows, full, part = dividers[0], *counted[:2]
        again, moves = self._watch(m)
        answered = self.result.valid & (self.result.source == 0)
        kind, verdict, passing = self._ask(m, book, shape, placed, over, full, part)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            self._look(m, queue, kind, again, moves)
            total = self._weigh(m, answered, own_rows, book, shape, here, exact, divides, verdict)
            self._tell(m, answered, shape, again, kind, verdict, passing)
        is_in = {name: fsm.ongoing(name) for name in fsm.encoding}
        self.observe = RegionFinisherObserve(
            queue, *dividers, book, shape, here, total, *counted, again, verdict, is_in
        )
        return m

    def _count(self, m, book, shape, here, exact, divides):
        """The bank's bytes as rows, when the returned dividers are not busy any more: placed in
        this region, in the overflow region; {full tiles, a part of one, rows in both}; ``exact``:
        all that was to come."""
        cfg = self._cfg
        row16 = cfg.row_bytes_width - 4
        width = min(cfg.total_width - 4, cfg.slot_width + row16)
        m.submodules.own_rows = own_rows = Divider(width, row16)
        m.submodules.over_rows = over_rows = Divider(width, row16)

        answer = self.result.book
        placed, over, mask = Signal(cfg.slot_width), Signal(cfg.slot_width), Signal(16)
        m.d.comb += [
            # Bytes that lie in this region, and those in the overflow region.
            own_rows.dividend.eq((answer.acked - answer.over)[4 : cfg.total_width]),
            over_rows.dividend.eq(answer.over[4:]),
            own_rows.divisor.eq(shape.row_bytes[4:]),
            over_rows.divisor.eq(shape.row_bytes[4:]),
            own_rows.start.eq(divides),
            over_rows.start.eq(divides),
            placed.eq(own_rows.quotient[: cfg.slot_width]),
            over.eq(over_rows.quotient[: cfg.slot_width]),
            mask.eq((1 << shape.log2_tile) - 1),
        ]
        # Whole rows, as many as were placed, and each full tile announced: what the quotients say a
        # cycle later.
        full, part, rows = (
            Signal(cfg.slot_width, name="full"),
            Signal(name="part"),
            Signal(cfg.slot_width + 1, name="rows"),
        )
        whole, fits = Signal(name="whole"), Signal(name="fits")
        m.d.sync += [
            full.eq(placed >> shape.log2_tile),
            part.eq((placed & mask).any()),
            rows.eq(placed + over),
            fits.eq(
                ~(here >> (width + 4)).any()
                & ~(book.over >> (width + 4)).any()
                & ~here[:4].any()
                & ~book.over[:4].any()
            ),
            whole.eq(
                ~Cat(
                    each.remainder.any() | each.quotient[cfg.slot_width :].any()
                    for each in (own_rows, over_rows)
                ).any()
            ),
        ]
        m.d.comb += exact.eq(
            mutant(
                "scoreboard.all_without_all_tiles",
                fits & whole & (rows == self.rows) & (full == book.tiles),
                fits & whole & (rows == self.rows),
            )
        )
        return (own_rows, over_rows), placed, over, (full, part, rows)

    def _watch(self, m):
        """Whether the bank that is judged moves, and whether it has moved since the look."""
        # The bank has moved since the look; it is in the queue again.
        again, moves = Signal(name="again"), Signal()
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

    def _ask(self, m, book, shape, placed, over, full, part):
        """The operation: a look, the verdict, or the word to the overflow region."""
        cfg, types = self._cfg, self._types
        kind, verdict, passing = Signal(4), Signal(4, name="verdict"), Signal()
        m.d.comb += self.o_op.payload.eq(
            compose(
                types.op,
                kind=kind,
                region=Mux(passing, shape.overflow, self.at.region),
                bank=self.at.bank,
                epoch=book.epoch,
                status=verdict,
                rows=Mux(passing, over, placed),
                part=(verdict == 0) & part,
                bytes=book.over,
                group=(shape.group_base + full)[: cfg.group_width],
            )
        )
        return kind, verdict, passing

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

    def _weigh(self, m, answered, own_rows, book, shape, here, exact, divides, verdict):
        """What the look showed is weighed: not yet, too much, or whether its rows are exact.
        Returns the bytes acknowledged and refused."""
        answer = self.result.book
        total = Signal(self._cfg.total_width + 1, name="total")
        with m.State("ANSWER"):
            with m.If(answered):
                m.d.comb += divides.eq(1)
                m.d.sync += [
                    book.eq(answer),
                    shape.eq(self.result.geometry),
                    here.eq(answer.acked - answer.over),
                    total.eq(answer.acked + answer.refused),
                ]
                m.next = "WEIGH"
        with m.State("WEIGH"):
            m.d.sync += verdict.eq(Reason.OVERLAP)
            with m.If(
                (book.state != RegionState.OPEN)
                | (book.num_closes < shape.expected)
                | (total < book.sent)
            ):
                m.next = "IDLE"
            with m.Elif(
                mutant("scoreboard.exact_sum_is_overflow", total > book.sent, total >= book.sent)
            ):
                m.next = "VERDICT"
            with m.Else():
                m.next = "DIVIDE"
        with m.State("DIVIDE"):  # the allocator's count has long been there at the end
            with m.If(~own_rows.busy):
                m.next = "EXACT"
        with m.State("EXACT"):
            m.d.sync += verdict.eq(Mux(exact, Reason.OK, Reason.INCOMPLETE))
            m.next = "VERDICT"
        return total

    def _tell(self, m, answered, shape, again, kind, verdict, passing):
        """The verdict goes to the books, unless it is old; after ALL to the overflow region too."""
        with m.State("VERDICT"):
            m.d.comb += [
                self.o_op.valid.eq(~again),
                kind.eq(OpKind.FINISH),
            ]
            with m.If(again):  # it has moved: the numbers are old
                m.next = "IDLE"
            with m.Elif(self.o_op.ready):
                m.next = "JUDGED"
        with m.State("JUDGED"):
            with m.If(answered):
                m.next = "IDLE"
                with m.If(self.result.ok & (verdict == 0) & shape.overflow_en):
                    m.next = "PASS"
        with m.State("PASS"):
            m.d.comb += [
                self.o_op.valid.eq(1),
                kind.eq(OpKind.PASS),
                passing.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.next = "IDLE"
