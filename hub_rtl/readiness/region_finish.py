"""Decides whether a bank whose producers have all closed is complete, and announces its last tile and ALL, or ERROR."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..formats import Reason, RegionState
from ..lib.arbiter import RoundRobin
from ..lib.onehot import encode
from .scoreboard_types import OpKind, bank_index, compose, scoreboard_types

__all__ = ["RegionFinisher", "Divider"]


class Divider(wiring.Component):
    """Restoring divider, one quotient bit per cycle.

    Latency: ``width`` cycles after ``start``; ``busy`` meanwhile. The result holds until the next start.
    Parameters: ``width``, dividend and quotient bits; ``divisor_width``. Ports: ``start`` In; ``dividend``, ``divisor`` In
    (the divisor must be held); ``quotient``, ``remainder`` Out; ``busy`` Out. A divisor of 0 gives a quotient of ones.
    """

    def __init__(self, width, divisor_width):
        super().__init__({"start": In(1), "dividend": In(width), "divisor": In(divisor_width), "quotient": Out(width),
                          "remainder": Out(divisor_width), "busy": Out(1)})
        self._width = width

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self._width + 1))
        trial, fits = Signal(len(self.divisor) + 1), Signal()
        m.d.comb += [self.busy.eq(left != 0), trial.eq(Cat(self.quotient[-1], self.remainder)),
                     fits.eq(trial >= self.divisor)]
        with m.If(self.start):
            m.d.sync += [left.eq(self._width), self.quotient.eq(self.dividend), self.remainder.eq(0)]
        with m.Elif(self.busy):
            # The dividend leaves its register at the top as the quotient comes in below.
            m.d.sync += [left.eq(left - 1), self.quotient.eq(Cat(fits, self.quotient)),
                         self.remainder.eq(Mux(fits, trial - self.divisor, trial))]
        return m


class RegionFinisher(wiring.Component):
    """Works through the banks that may be complete, one at a time, and gives the verdict.

    Contract: a bank with all closes and acked + refused = sent becomes DONE with ALL when its bytes are exactly those of
    its rows by the allocator's count (slots given out in this region, to whomever, and its rows that went to its overflow
    region) and all full tiles were announced; its last partial tile is announced with the same operation. Otherwise ERROR
    INCOMPLETE; more bytes than sent: ERROR OVERLAP. Before that nothing happens. A bank that changes while it is judged is
    judged again. After ALL the overflow region is told.
    Latency: from ``check`` to the verdict about 16 cycles and one per quotient bit (at most 31).
    Order: round-robin over the banks. Waits for the pipeline only.

    Parameters: ``cfg``. Ports: ``check`` In {en, region, bank}: look at this one; ``o_op`` Out stream(op);
    ``result`` In; ``rows_query`` Out, ``rows`` In (allocator, two cycles); ``busy`` Out, ``at`` Out: bank being judged.
    Source: design 6.4.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own = self._types
        super().__init__({"check": In(own.bank_strobe), "o_op": Out(stream.Signature(own.op)),
                          "result": In(own.result), "rows_query": Out(own.bank_name), "rows": In(cfg.slot_width + 1),
                          "busy": Out(1), "at": Out(own.bank_name)})

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        banks = types.banks
        waiting = Signal(banks)
        m.submodules.arbiter = arbiter = RoundRobin(banks)
        m.d.comb += arbiter.requests.eq(waiting)

        row16 = cfg.row_bytes_width - 4
        width = min(cfg.total_width - 4, cfg.slot_width + row16)
        m.submodules.own_rows = own_rows = Divider(width, row16)
        m.submodules.over_rows = over_rows = Divider(width, row16)

        book, shape = Signal(types.book), Signal(types.geometry)
        here, total, wide = Signal(cfg.total_width), Signal(cfg.total_width + 1), Signal()
        placed, over, mask = Signal(cfg.slot_width), Signal(cfg.slot_width), Signal(16)
        exact = Signal()
        m.d.comb += [
            here.eq(book.acked - book.over),            # bytes that lie in this region
            total.eq(book.acked + book.refused),
            own_rows.dividend.eq(here[4:]), over_rows.dividend.eq(book.over[4:]),
            own_rows.divisor.eq(shape.row_bytes[4:]), over_rows.divisor.eq(shape.row_bytes[4:]),
            wide.eq((here >> (width + 4)).any() | (book.over >> (width + 4)).any()),
            placed.eq(own_rows.quotient[:cfg.slot_width]), over.eq(over_rows.quotient[:cfg.slot_width]),
            mask.eq((1 << shape.log2_tile) - 1),
            # Whole rows, as many as were placed, and each full tile announced.
            exact.eq(~wide & ~here[:4].any() & ~book.over[:4].any() & ~own_rows.remainder.any() & ~over_rows.remainder.any()
                     & ~own_rows.quotient[cfg.slot_width:].any() & ~over_rows.quotient[cfg.slot_width:].any()
                     & (placed + over == self.rows) & (placed >> shape.log2_tile == book.tiles)),
        ]
        name = bank_index(self.at.region, self.at.bank)
        again = Signal()
        m.d.comb += [self.rows_query.eq(self.at), again.eq(waiting.bit_select(name, 1))]
        answered = self.result.valid & (self.result.source == 0)

        kind, verdict, passing = Signal(4), Signal(4), Signal()
        m.d.comb += self.o_op.payload.eq(compose(
            types.op, kind=kind, region=Mux(passing, shape.overflow, self.at.region), bank=self.at.bank, epoch=book.epoch,
            status=verdict, rows=Mux(passing, over, placed), part=(verdict == 0) & (placed & mask).any(), bytes=book.over,
            group=(shape.group_base + (placed >> shape.log2_tile))[:cfg.group_width]))
        choice = Signal(types.bank_width)
        cleared = Signal(banks)
        m.d.comb += choice.eq(encode(arbiter.grant_onehot))
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                with m.If(waiting.any()):
                    m.d.comb += [arbiter.advance.eq(1), cleared.eq(arbiter.grant_onehot)]
                    m.d.sync += Cat(self.at.bank, self.at.region).eq(choice)
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += [self.o_op.valid.eq(1), kind.eq(OpKind.LOOK)]
                with m.If(self.o_op.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(answered):
                    m.d.sync += [book.eq(self.result.book), shape.eq(self.result.geometry)]
                    m.next = "WEIGH"
            with m.State("WEIGH"):
                m.d.sync += verdict.eq(Reason.OVERLAP)
                with m.If((book.state != RegionState.OPEN) | (book.num_closes < shape.expected) | (total < book.sent)):
                    m.next = "IDLE"
                with m.Elif(total > book.sent):
                    m.next = "VERDICT"
                with m.Else():
                    m.d.comb += [own_rows.start.eq(1), over_rows.start.eq(1)]
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):                     # the allocator's count has long been there at the end
                with m.If(~own_rows.busy):
                    m.d.sync += verdict.eq(Mux(exact, Reason.OK, Reason.INCOMPLETE))
                    m.next = "VERDICT"
            with m.State("VERDICT"):
                m.d.comb += [self.o_op.valid.eq(~again), kind.eq(OpKind.FINISH)]
                with m.If(again):                       # it has moved: the numbers are old
                    m.next = "IDLE"
                with m.Elif(self.o_op.ready):
                    m.next = "JUDGED"
            with m.State("JUDGED"):
                with m.If(answered):
                    m.next = "IDLE"
                    with m.If(self.result.ok & (verdict == 0) & shape.overflow_en):
                        m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += [self.o_op.valid.eq(1), kind.eq(OpKind.PASS), passing.eq(1)]
                with m.If(self.o_op.ready):
                    m.next = "IDLE"
        asked = ((Const(1, banks) << bank_index(self.check.region, self.check.bank)) & self.check.en.replicate(banks))[:banks]
        m.d.sync += waiting.eq((waiting & ~cleared) | asked)
        return m
