# SPDX-License-Identifier: Apache-2.0
"""Victim store: keeps the mappings of spilled rows on chip, in front of the spill table."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import SPILL_WORD
from hub_rtl.contract.records import layout_of
from hub_rtl.parts.arbiter import RoundRobin, lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram

from .records import fold_key, of_run, slice_types_of

__all__ = ["STORE_WAYS", "VictimStore"]

STORE_WAYS = 4  #: rows of a set


class VictimStoreObserve(NamedTuple):
    """What a proof may see of a :class:`VictimStore`."""

    lines: Ram  #: per set, a line per way
    outside: Ram  #: per bank: words of it were written out
    request: data.View  #: the one under way
    who: Signal  #: one-hot, the slice that asked
    way: Signal  #: that is written for it
    hit: Signal  #: its row's line is in that way
    room: Signal  #: nothing is lost when that way is written
    turn: Signal  #: one-hot, the way that makes place next
    posted: data.View  #: the write that memory has not answered yet
    run: data.View  #: banks that are purged
    walk: Signal  #: set that is read
    region: Signal  #: whose banks are forgotten
    is_in: dict  #: name of a state of its machine: 1 while it is in it


class VictimStore(wiring.Component):
    """A set-associative memory of spilled rows: what slices write to the spill table stays here
    until its set is full, and is read from here.

    For a slice it is the spill table, but for time: a request that needs no memory is answered 5
    cycles after it was granted, the slices in turn. A row's word is here or in memory. A row that
    finds its set full takes the place of another one, whose word is written to memory while the
    store goes on; the next request that needs memory waits for that. Of a bank of which no word was
    ever written out nothing is read: a row that is not here was not spilled.

    An error that memory answers to a read is the slice's. One to a write: ``errors``, and if a
    row's mapping is lost by that, its bank is told at ``o_lost``; the next word is written out
    after that was taken.

    ``purge`` forgets the lines of a run of banks, and that words of them were written out, once no
    slice purges (``settled``) and all that was lost is told; ``purging`` is 1 from the next cycle
    on. One set and one region per cycle. Requests wait; none is for such a bank from when slices
    are settled until it opens again.

    Parameters: ``cfg``; ``cfg.victim_sets`` sets of :data:`STORE_WAYS`, 1 or more. Ports:
    ``i_request`` In, stream per slice; ``done`` Out, one bit per slice, with ``reply`` {word,
    error}; ``o_request`` Out, stream to the spill table, ``answered`` In with ``answer``, once for
    each; ``purge``, ``settled`` In, ``purging`` Out; ``o_lost`` Out, stream; ``errors``,
    ``written_out`` Out, strobes; ``clearing`` Out, after reset."""

    observe: VictimStoreObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "i_request": In(stream.Signature(own.spill_request)).array(cfg.slices),
                "done": Out(cfg.slices),
                "reply": Out(own.spill_reply),
                "o_request": Out(stream.Signature(own.spill_request)),
                "answered": In(1),
                "answer": In(own.spill_reply),
                "purge": In(own.purge),
                "settled": In(1),
                "purging": Out(1),
                "o_lost": Out(stream.Signature(own.bank)),
                "errors": Out(1),
                "written_out": Out(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own = self._cfg, self._own
        m.submodules.arbiter = RoundRobin(cfg.slices)
        m.submodules.lines = lines = Ram(
            data.ArrayLayout(own.line, STORE_WAYS), cfg.victim_sets, granules=STORE_WAYS, clear=True
        )
        m.submodules.outside = outside = Ram(1, 2 * cfg.regions, clear=True)
        request = Signal(own.spill_request)
        who = Signal(cfg.slices)
        posted = Signal(data.StructLayout({"busy": 1, "tells": 1, "bank": own.bank}))
        way = Signal(STORE_WAYS)
        hit = Signal()
        room = Signal()
        turn = Signal(STORE_WAYS, init=1)
        run = Signal(own.purge)
        walk = Signal(range(cfg.victim_sets + 1))
        region = Signal(cfg.region_width)
        self._word = Signal(layout_of(SPILL_WORD))
        m.d.comb += [
            self._word.eq(request.word),
            self.clearing.eq(lines.clearing | outside.clearing),
        ]
        m.d.sync += self.done.eq(0)
        with m.FSM() as fsm:
            is_in = {}
            self.observe = VictimStoreObserve(
                lines, outside, request, who, way, hit, room, turn, posted, run, walk, region, is_in
            )
            self._take(m, m.submodules.arbiter)
            self._look(m)
            self._serve(m)
            self._write_out(m)
            self._ask(m)
            self._forget(m)
        is_in |= {name: fsm.ongoing(name) for name in fsm.encoding}
        self._post(m)
        self._purge(m)
        return m

    def _take(self, m, arbiter):
        """A request, or a purge: it comes before the next request, or it would wait for ever."""
        inside, posted = self.observe, self.observe.posted
        m.d.comb += arbiter.requests.eq(Cat(each.valid for each in self.i_request))
        with m.State("IDLE"):
            m.d.sync += [
                inside.walk.eq(0),
                inside.region.eq(inside.run.region),
            ]
            with m.If(self.purging & self.settled):
                with m.If(
                    mutant(
                        "slot_allocator.purge_overtakes_loss",
                        ~posted.busy & ~self.o_lost.valid,
                        1,
                    )
                ):
                    m.next = "FORGET"
            with m.Else():
                m.d.comb += arbiter.advance.eq(1)
                m.d.sync += inside.who.eq(arbiter.grant_onehot)
                with m.If(arbiter.requests.any()):
                    m.next = "TAKE"
        with m.State("TAKE"):
            m.d.comb += [each.ready.eq(inside.who[n]) for n, each in enumerate(self.i_request)]
            m.d.sync += inside.request.eq(
                select(inside.who, [each.payload.as_value() for each in self.i_request])
            )
            m.next = "LOOK"

    def _look(self, m):
        """Where the row's line is, or may go: a way without one, else the ways in turn."""
        inside, request, lines = self.observe, self.observe.request, self.observe.lines
        hits = Signal(STORE_WAYS)
        free = Signal(STORE_WAYS)
        m.d.comb += lines.w_addr.eq(self._set(request))
        for n in range(STORE_WAYS):
            line = lines.r_data[n]
            m.d.comb += [
                free[n].eq(~line.word.valid),
                hits[n].eq(
                    line.word.valid
                    & (line.row.region == request.region)
                    & (line.row.bank == request.bank)
                    & mutant(
                        "slot_allocator.lines_of_16_bits",
                        line.row.rowid == request.rowid,
                        line.row.rowid[:16] == request.rowid[:16],
                    )
                ),
            ]
        with m.State("LOOK"):
            m.d.comb += [
                lines.r_en.eq(1),
                lines.r_addr.eq(self._set(request)),
                inside.outside.r_en.eq(1),
                inside.outside.r_addr.eq(Cat(request.bank, request.region)),
            ]
            m.next = "CHOOSE"
        with m.State("CHOOSE"):
            m.d.sync += [
                inside.hit.eq(hits.any()),
                inside.room.eq(hits.any() | free.any()),
                inside.way.eq(
                    Mux(hits.any(), hits, Mux(free.any(), lowest_set(m, free), inside.turn))
                ),
            ]
            with m.If(~hits.any() & ~free.any()):
                m.d.sync += inside.turn.eq(Cat(inside.turn[-1], inside.turn[:-1]))
            m.next = "SERVE"

    def _set(self, row):
        """Rows of one set of a RAT are in several sets here: their RowIDs were folded to another
        width."""
        width = ceil_log2(self._cfg.victim_sets)
        other = max(width, self._own.set_width) + 1
        return fold_key(row.region, row.bank, row.rowid, other)[:width] if width else 0

    def _put(self, m):
        """The row's line as the request wants it; without a word, none."""
        inside, request = self.observe, self.observe.request
        m.d.comb += [
            inside.lines.w_en.eq(inside.way),
            *(
                line.eq(Cat(Cat(request.region, request.bank, request.rowid), request.word))
                for line in (inside.lines.w_data[n].as_value() for n in range(STORE_WAYS))
            ),
        ]

    def _answer(self, m, word, error=0):
        m.d.sync += [
            self.done.eq(self.observe.who),
            self.reply.word.eq(word),
            self.reply.error.eq(error),
        ]
        m.next = "IDLE"

    def _line(self):
        """The one in the chosen way."""
        lines = self.observe.lines.r_data
        line = select(self.observe.way, [lines[n].as_value() for n in range(STORE_WAYS)])
        return data.View(self._own.line, line)

    def _serve(self, m):
        """What needs no memory is done."""
        inside, request = self.observe, self.observe.request
        keeps = request.write & self._word.valid
        with m.State("SERVE"):
            with m.If(keeps & ~inside.room):
                m.next = "WRITE_OUT"
            with m.Elif(keeps):
                self._put(m)
                self._answer(m, 0)
            with m.Else():
                with m.If(mutant("slot_allocator.erased_line_stays", request.write, 0)):
                    with m.If(inside.hit):
                        self._put(m)
                with m.If(inside.outside.r_data & (request.write | ~inside.hit)):
                    m.next = "ASK"
                with m.Else():
                    self._answer(m, Mux(inside.hit, self._line().word.as_value(), 0))

    def _write_out(self, m):
        """Another row makes place."""
        inside, posted = self.observe, self.observe.posted
        asked, line = self.o_request, self._line()
        with m.State("WRITE_OUT"):
            m.d.comb += [
                asked.valid.eq(~self.o_lost.valid),
                asked.p.write.eq(1),
                asked.p.region.eq(line.row.region),
                asked.p.bank.eq(line.row.bank),
                asked.p.rowid.eq(line.row.rowid),
                asked.p.word.eq(line.word),
            ]
            with m.If(asked.valid & asked.ready):
                self._put(m)
                m.d.comb += [
                    self.written_out.eq(1),
                    inside.outside.w_en.eq(mutant("slot_allocator.written_out_unnoticed", 1, 0)),
                    inside.outside.w_addr.eq(Cat(line.row.bank, line.row.region)),
                    inside.outside.w_data.eq(1),
                ]
                m.d.sync += [
                    posted.busy.eq(1),
                    posted.tells.eq(1),
                    posted.bank.region.eq(line.row.region),
                    posted.bank.bank.eq(line.row.bank),
                ]
                self._answer(m, 0)

    def _ask(self, m):
        """The row's word is in memory, if anywhere: it is read, or overwritten."""
        asked, request, posted = self.o_request, self.observe.request, self.observe.posted
        with m.State("ASK"):
            m.d.comb += [
                asked.valid.eq(1),
                asked.payload.eq(request),
            ]
            with m.If(asked.ready):
                m.next = "ANSWER"
                with m.If(request.write):
                    m.d.sync += [
                        posted.busy.eq(1),
                        posted.tells.eq(0),
                    ]
                    self._answer(m, 0)
        with m.State("ANSWER"):
            with m.If(self.answered):
                self._answer(m, self.answer.word, self.answer.error)

    def _post(self, m):
        """Memory's answer to a write that nobody waits for."""
        lost, posted = self.o_lost, self.observe.posted
        with m.If(lost.ready):
            m.d.sync += lost.valid.eq(0)
        with m.If(self.answered):
            m.d.sync += posted.busy.eq(0)
        m.d.comb += self.errors.eq(self.answered & posted.busy & self.answer.error)
        with m.If(self.errors & posted.tells):
            m.d.sync += [
                lost.valid.eq(1),
                lost.payload.eq(posted.bank),
            ]

    def _purge(self, m):
        with m.If(self.purge.en):
            m.d.sync += [
                self.purging.eq(1),
                self.observe.run.eq(self.purge),
            ]

    def _forget(self, m):
        """A set is read while the lines of the one before it are looked at."""
        inside, run, walk = self.observe, self.observe.run, self.observe.walk
        lines, outside, sets = inside.lines, inside.outside, self._cfg.victim_sets
        all_sets = walk == sets
        last_region = inside.region >= run.last
        with m.State("FORGET"):
            m.d.comb += [
                lines.r_en.eq(~all_sets),
                lines.r_addr.eq(walk),
                lines.w_addr.eq(walk - 1),
                lines.w_data.eq(0),
                lines.w_en.eq(
                    Mux(
                        walk == 0,
                        0,
                        Cat(
                            of_run(run, line.row.region, line.row.bank)
                            for line in (lines.r_data[n] for n in range(STORE_WAYS))
                        ),
                    )
                ),
                outside.w_en.eq(inside.region <= run.last),
                outside.w_addr.eq(Cat(run.bank, inside.region)),
                outside.w_data.eq(0),
            ]
            with m.If(~all_sets):
                m.d.sync += walk.eq(walk + 1)
            with m.If(~last_region):
                m.d.sync += inside.region.eq(inside.region + 1)
            with m.If(all_sets & last_region):
                m.d.sync += self.purging.eq(0)
                m.next = "IDLE"
