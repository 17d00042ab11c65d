# SPDX-License-Identifier: Apache-2.0
"""Keeps what is to be announced as pending bits and offers it as events."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.packets import EventKind
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin, lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, several
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .end_bits import EndBits
from .records import scoreboard_types

__all__ = ["EventScan"]


class Next(NamedTuple):
    """The event after the one that is offered."""

    event: data.View
    bank: Signal
    valid: Signal
    under_way: Signal  #: one more comes
    free: Value  #: the output takes one


class Scan(NamedTuple):
    """Tiles' bits, how far an operation on them is."""

    start: Signal  #: a word is looked through
    turn: Signal  #: some word had bits
    summary: Signal  #: of each word, whether it has bits
    set_1: Signal
    clear_1: Signal
    scan_1: Signal
    found_2: Signal
    found_3: Signal
    place_2: Signal
    place_3: Signal


class EventScanObserve(NamedTuple):
    """What a proof may see of an :class:`EventScan`."""

    bits: Ram  #: of tiles: words of pending bits
    infos: Ram  #: what is to be told of each tile
    ends: EndBits  #: the same of banks and ranges
    news: data.View  #: a tile that became pending, or was cleared, a cycle ago
    direct: Signal  #: it goes straight to the output
    coming: Next
    tiles: Scan


class EventScan(wiring.Component):
    """Pending bits of tiles and banks, scanned into the event stream; READY before ERROR before
    ALL.

    Contract: each bit set yields one event, unless it is cleared or killed first; ALL and ERROR of
    a bank come after all its READYs. A stream that is never taken delays nothing else (rule R4):
    the bits have room for everything. Latency: ``ready`` in cycle 0 gives a valid event in cycle 2
    when nothing is pending, else by scan. Throughput: one event per cycle while the consumer keeps
    up, one per four cycles from the bits. Order: READYs fairly over the words of bits, ERROR and
    ALL in turn (EndBits). An event that is offered stays offered, also when its bank is aborted.
    Structure: bits in a table of words with a summary bit per word; one read-modify-write per
    cycle, sets first.

    Parameters: ``cfg``. Ports: ``ready`` In: a tile becomes pending or is cleared; ``outcome`` In:
    ALL or ERROR of a bank or range; ``drop`` In {en, region, bank}: forget ALL and ERROR; ``kill``
    In {en, region, last, bank}: drop events not yet offered; ``dep_write`` In: forget the range's
    ERROR; ``o_event`` Out stream(event); ``room`` In: the flag writer takes one more; ``loaded``
    Out: the payload of ``offered`` Out becomes the event in the next cycle; ``counts`` Out {ready,
    all, error}; ``clearing`` Out. Source: docs/interfaces.md section 8, rule R4.
    """

    observe: EventScanObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        self._width = min(32, 2 * cfg.groups)  # of a word of bits
        self._words = 2 * cfg.groups // self._width
        own, types = self._types, types_of(cfg)
        super().__init__(
            {
                "ready": In(own.ready),
                "outcome": In(own.outcome),
                "drop": In(own.bank_strobe),
                "kill": In(own.run_strobe),
                "dep_write": In(types.dep_write),
                "o_event": Out(stream.Signature(types.event)),
                "room": In(1),
                "loaded": Out(1),
                "offered": Out(types.event),
                "counts": Out(own.event_counts),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bits = bits = Ram(
            self._width, self._words, clear=True, quick=self._words <= SMALL
        )
        m.submodules.infos = infos = Ram(self._types.ready_info, 2 * self._cfg.groups)
        spare = Signal(types_of(self._cfg).event)
        spare_bank, spare_valid = Signal(name="spare_bank"), Signal(name="spare_valid")
        under_way = Signal()
        out_free = ~self.o_event.valid | self.o_event.ready
        coming = Next(spare, spare_bank, spare_valid, under_way, out_free)
        news, summary, direct = self._straight(m, coming)
        tiles = self._scan(m, bits, infos, news, summary, direct)
        m.submodules.ends = ends = EndBits(self._cfg)
        self.observe = EventScanObserve(bits, infos, ends, news, direct, coming, tiles)
        m.d.comb += [
            ends.outcome.eq(self.outcome),
            ends.drop.eq(self.drop),
            ends.dep_write.eq(self.dep_write),
            self.clearing.eq(bits.clearing | ends.clearing),
        ]
        self._choose(m, coming, tiles, ends, news, infos.r_data)
        self._offer(m, coming, news, direct)
        return m

    def _straight(self, m, coming):
        """A tile becomes pending: straight to the output when all is idle, else a bit. Returns what
        is new, the summary of the bits, and whether it goes straight."""
        news, summary = Signal(self._types.ready, name="news"), Signal(self._words, name="summary")
        m.d.sync += news.eq(self.ready)
        direct = Signal()
        m.d.comb += direct.eq(
            news.en
            & ~news.clear
            & coming.free
            & self.room
            & ~coming.under_way
            & ~coming.valid
            & ~summary.any()
            & mutant(
                "scoreboard.killed_tile_told_directly",
                ~self._killed(news.plain, news.owner, news.bank),
                1,
            )
        )
        return news, summary, direct

    def _scan(self, m, bits, infos, news, summary, direct):
        """The bits: one read-modify-write per cycle, sets first. Returns the :class:`Scan`."""
        cfg, width, words = self._cfg, self._width, self._words
        place, bit_width = Cat(news.group, news.bank), index_width(width)
        m.submodules.word_arbiter = word_arbiter = RoundRobin(words)
        scan = Signal()
        word = Signal(index_width(words))
        # Whose turn it is, a cycle old: a word emptied meanwhile brings nothing, one just come may
        # wait a round longer.
        turn, turn_valid = Signal(words, name="turn"), Signal(name="turn_valid")
        m.d.sync += [
            turn.eq(word_arbiter.grant_onehot),
            turn_valid.eq(summary.any()),
        ]
        m.d.comb += [
            word_arbiter.requests.eq(summary),
            word_arbiter.advance.eq(scan),
            word.eq(Mux(news.en, place >> (width - 1).bit_length(), encode(turn))),
            bits.r_en.eq(1),
            bits.r_addr.eq(word),
            infos.w_en.eq(news.en & ~news.clear & ~direct),
            infos.w_addr.eq(place),
            infos.w_data.plain.eq(news.plain),
            infos.w_data.owner.eq(news.owner),
            infos.w_data.epoch.eq(news.epoch),
            infos.w_data.rows.eq(news.rows),
        ]
        set_1, clear_1, scan_1 = (Signal(name=name) for name in ("set_1", "clear_1", "scan_1"))
        word_1 = Signal.like(word)
        bit_1 = Signal(width)
        m.d.sync += [
            set_1.eq(news.en & ~news.clear & ~direct),
            clear_1.eq(news.en & news.clear),
            scan_1.eq(scan),
            word_1.eq(word),
            bit_1.eq((Const(1, width) << place[:bit_width])[:width]),
        ]
        picked = lowest_set(m, bits.r_data, "picked")
        # What was picked is a number a cycle later, and its info is there after one more.
        found_2, place_2 = (
            Signal(name="found_2"),
            Signal(index_width(2 * cfg.groups), name="place_2"),
        )
        found_3, place_3 = Signal(name="found_3"), Signal.like(place_2, name="place_3")
        picked_2 = Signal(width)
        word_2 = Signal.like(word)
        m.d.comb += place_2.eq(Cat(encode(picked_2), word_2) if words > 1 else encode(picked_2))
        m.d.sync += [
            found_2.eq(scan_1 & bits.r_data.any()),
            picked_2.eq(picked),
            word_2.eq(word_1),
            found_3.eq(found_2),
            place_3.eq(place_2),
        ]
        left = Signal(width)
        m.d.comb += [
            left.eq(
                Mux(
                    scan_1,
                    bits.r_data & ~picked,
                    Mux(set_1, bits.r_data | bit_1, bits.r_data & ~bit_1),
                )
            ),
            bits.w_en.eq(set_1 | clear_1 | scan_1),
            bits.w_addr.eq(word_1),
            bits.w_data.eq(left),
            infos.r_en.eq(found_2),
            infos.r_addr.eq(place_2),
        ]
        # Whether some bit stays is found beside `left`, not from it.
        some_left = Signal()
        here = (Const(1, words) << word_1)[:words]
        m.d.comb += some_left.eq(
            Mux(scan_1, several(bits.r_data), set_1 | (bits.r_data & ~bit_1).any())
        )
        with m.If(bits.w_en):
            m.d.sync += summary.eq(Mux(some_left, summary | here, summary & ~here))

        steps = (set_1, clear_1, scan_1, found_2, found_3, place_2, place_3)
        return Scan(scan, turn_valid, summary, *steps)

    def _choose(self, m, coming, tiles, ends, news, info):
        """One at a time is on its way to be the next event, READY first."""
        types, group, spare = self._types, self._cfg.group_width, coming.event
        # `spare` is free by the time it is needed: what is in it now leaves in this cycle.
        free = Signal()
        quiet = mutant(
            "scoreboard.all_overtakes_ready",
            ~news.en & ~tiles.set_1 & ~tiles.clear_1 & ~tiles.summary.any(),
            ~news.en & ~tiles.set_1 & ~tiles.clear_1,
        )
        m.d.comb += [
            coming.under_way.eq(tiles.scan_1 | tiles.found_2 | tiles.found_3 | ends.on_way),
            free.eq(~coming.valid | (coming.free & self.room)),
            tiles.start.eq(~coming.under_way & free & ~news.en & tiles.turn & tiles.summary.any()),
            ends.pick.eq(~coming.under_way & free & quiet & ends.some & ~ends.busy),
        ]
        end = ends.found
        with m.If(tiles.found_3):
            m.d.sync += [
                coming.valid.eq(1),
                spare.eq(0),
                spare.kind.eq(EventKind.READY),
                spare.plain.eq(info.plain),
                spare.region.eq(info.owner),
                spare.epoch.eq(info.epoch),
                spare.rows.eq(info.rows),
                spare.group.eq(
                    mutant("scoreboard.group_of_next_place", tiles.place_3, tiles.place_2)[:group]
                ),
                coming.bank.eq(tiles.place_3[group]),
            ]
        with m.Elif(end.en):
            of_range = end.index >= types.banks
            m.d.sync += [
                coming.valid.eq(1),
                spare.eq(0),
                spare.kind.eq(Mux(end.error, EventKind.ERROR, EventKind.ALL)),
                spare.plain.eq(of_range),
                spare.region.eq(Mux(of_range, end.index - types.banks, end.index[1:])),
                spare.epoch.eq(end.word.epoch),
                spare.rows.eq(end.word.rows),
                spare.status.eq(end.word.status),
                spare.refused.eq(end.word.refused),
                coming.bank.eq(end.index[0] & ~of_range),
            ]
        with m.Elif(
            self._killed(spare.plain, spare.region, coming.bank) | (coming.free & self.room)
        ):
            m.d.sync += coming.valid.eq(0)

    def _offer(self, m, coming, news, direct):
        """The output. What may be loaded is chosen early: news go straight out only when there is
        no next event."""
        spare = coming.event
        m.d.comb += [
            self.offered.eq(spare),
            self.loaded.eq(
                direct
                | (
                    coming.valid
                    & coming.free
                    & self.room
                    & ~self._killed(spare.plain, spare.region, coming.bank)
                )
            ),
        ]
        with m.If(~coming.valid):
            m.d.comb += [
                self.offered.eq(0),
                self.offered.plain.eq(news.plain),
                self.offered.region.eq(news.owner),
                self.offered.epoch.eq(news.epoch),
                self.offered.group.eq(news.group),
                self.offered.rows.eq(news.rows),
            ]
        with m.If(self.loaded):
            m.d.sync += [
                self.o_event.valid.eq(1),
                self.o_event.payload.eq(self.offered),
            ]
        with m.Elif(self.o_event.ready):
            m.d.sync += self.o_event.valid.eq(0)
        taken = self.o_event.valid & self.o_event.ready
        for name, kind in (
            ("ready", EventKind.READY),
            ("all", EventKind.ALL),
            ("error", EventKind.ERROR),
        ):
            m.d.comb += self.counts[name].eq(taken & (self.o_event.payload.kind == kind))

    def _killed(self, plain, region, bank):
        return (
            self.kill.en
            & ~plain
            & (region >= self.kill.region)
            & (region <= self.kill.last)
            & (bank == self.kill.bank)
        )
