# SPDX-License-Identifier: Apache-2.0
"""Promises of the event scan and the flag writer (``hub_rtl/scoreboard/event_scan.py``,
``event_flags.py``)."""

from amaranth import Cat, Mux, Signal
from amaranth.lib.data import View

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec
from hub_rtl.contract.packets import EventKind
from hub_rtl.scoreboard.end_bits import word_banks
from hub_rtl.scoreboard.event_scan import EventScan
from hub_rtl.scoreboard.records import scoreboard_types

from .whole import covers

__all__ = ["EachEndIsToldOnce", "EachTileIsToldOnce"]


class _Scan(Spec):
    """EventScan with free inputs; promises are about the event that ``loaded`` makes the next one
    at ``o_event``."""

    def build(self, m):
        cfg = self._cfg
        self.dut = dut = EventScan(cfg)
        m.submodules.dut = dut
        self.inside = inside = observe(dut)
        self.ends = ends = observe(inside.ends)
        self.tiles, self.next = inside.tiles, inside.coming
        self.free_inputs(dut)
        self.end_next = ends.scan_2 | ends.range_2  # its number is known, its word is being read
        self.end_found = inside.ends.found
        self.suppose(
            "nothing comes while clearing",
            ~dut.ready.en & ~dut.outcome.en & ~dut.drop.en,
            when=dut.clearing,
        )
        self.suppose("no end and drop at once", ~dut.outcome.en | ~dut.drop.en)
        self.suppose(
            "the bank is the epoch's lowest bit, that of a range is 0",
            dut.ready.bank == Mux(dut.ready.plain, 0, dut.ready.epoch[0]),
            when=dut.ready.en & ~dut.ready.clear,
        )
        banks, outcome = scoreboard_types(cfg).banks, dut.outcome
        self.suppose(
            "the bank is the lowest bit of the epoch that ends",
            outcome.word.epoch[0] == outcome.index[0],
            when=outcome.en & (outcome.index < banks),
        )
        self.promise(m)

    def common(self):
        """The event stream shows what was loaded, and counts what was taken."""
        dut = self.dut
        taken = dut.o_event.valid & dut.o_event.ready
        loaded = self.past(dut.loaded, "loaded_before")
        offered = self.past(dut.offered, "offered_before")
        self.always(
            "an event is what was loaded",
            dut.o_event.valid & (dut.o_event.payload.as_value() == offered),
            when=loaded,
        )
        self.always(
            "nothing loaded over an event that waits",
            ~dut.loaded,
            when=dut.o_event.valid & ~dut.o_event.ready,
        )
        self.always("loaded when there is room", dut.room, when=dut.loaded)
        waited = self.past(dut.o_event.valid & ~dut.o_event.ready, "waited")
        self.always("nothing else is offered", loaded | waited, when=dut.o_event.valid)
        self.always_held(dut.o_event, "o_event")
        for name, kind in (
            ("ready", EventKind.READY),
            ("all", EventKind.ALL),
            ("error", EventKind.ERROR),
        ):
            self.always(
                f"counts {name}", dut.counts[name] == (taken & (dut.o_event.payload.kind == kind))
            )

    def end_words(self):
        """Lemmas: the summaries and turns of the table of ends. Sets ``end_rows``, the words of the
        table."""
        ends, tiles, half = self.ends, self.tiles, word_banks(self._cfg)
        last, served = observe(ends.arbiter).last, ends.served
        self.end_rows = [
            known_word(self, ends.bits, n, f"ends_{n}") for n in range(len(ends.errors))
        ]
        for n, (word, known) in enumerate(self.end_rows):
            halves = Mux(known, Cat(word[:half].any(), word[half:].any()), 0)
            self.lemma(f"summary of ends {n}", Cat(ends.errors[n], ends.alls[n]) == halves)
            self.lemma(
                f"no end before {n} is known",
                ~ends.set_1 & ~ends.clear_1 & ~ends.scan_1,
                when=~known,
            )
        self.lemma(
            "one was served last",
            sum((last == 1 << n for n in range(1, len(last))), last == 1).bool(),
        )
        self.lemma("served last", (served == 0) | (served == last))
        self.lemma(
            "one at a time",
            tiles.scan_1
            + tiles.found_2
            + tiles.found_3
            + ends.scan_1
            + ends.range_1
            + ends.scan_2
            + ends.range_2
            + self.end_found.en
            + self.next.valid
            <= 1,
        )
        self.lemma("ranges only fail", ends.error_1, when=ends.range_1)
        self.lemma("ranges have only failed", ends.error_2, when=ends.range_2)

    def end_places(self, index, name):
        """Where the end of a bank or range is: ``(error, all, arrives, leaves, ranged, next,
        found)``: its bits; one is being set; one is being taken; a range's is being taken; its word
        is being read; found."""
        ends, half, dut = self.ends, word_banks(self._cfg), self.dut
        low, banks, word = (
            (half - 1).bit_length(),
            scoreboard_types(self._cfg).banks,
            Signal(2 * half, name=f"{name}_ends"),
        )
        for n, (each, known) in enumerate(self.end_rows):
            with self.m.If((index >> low == n) & known):
                self.m.d.comb += word.eq(each)
        of_range, at = index >= banks, index[:low]
        bit = Mux(
            of_range,
            ends.range_errors.bit_select((index - banks)[: len(ends.range_at_1)], 1),
            word[:half].bit_select(at, 1),
        )
        whole = ~of_range & word[half:].bit_select(at, 1)
        arrives = ~of_range & self.past(
            dut.outcome.en & (dut.outcome.index == index), f"{name}_arrives"
        )
        self.lemma(
            f"{name} arrives as it came",
            ends.error_1 == self.past(dut.outcome.error, f"{name}_was_error"),
            when=arrives,
        )
        here = ends.word_1 == index >> low
        leaves = ~of_range & ends.scan_1 & here & ends.picked.bit_select(at, 1)
        ranged = of_range & ends.range_1 & (ends.range_at_1 == index - banks)
        comes = self.end_next & (ends.place_2 == index)
        return (
            bit,
            whole,
            arrives,
            leaves,
            ranged,
            comes,
            self.end_found.en & (self.end_found.index == index),
        )

    def end_lemmas(self, index, region, bank):
        """Where the end of bank ``index`` is; an end shows its bank by its epoch, that of the other
        bank too. Returns the places of :meth:`end_places`, ``spared``: it is the next event, and
        what is remembered of it."""
        types, spare = scoreboard_types(self._cfg), self.next.event
        self.end_words()
        for each, name in ((index ^ 1, "other_end"), (index, "end")):
            row, _ = known_word(self, self.ends.outcomes, each, name)
            places = self.end_places(each, name)
            self.lemma(
                f"bank of {name}",
                View(types.outcome_word, row).epoch[0] == each[0],
                when=Cat(places).any() & (each < types.banks),
            )
        spared = (
            self.next.valid
            & (spare.kind != EventKind.READY)
            & ~spare.plain
            & (spare.region == region)
        )
        self.lemma(
            "bank of the next end",
            self.next.bank == spare.epoch[0],
            when=spared & (index < types.banks),
        )
        return *places, spared & (spare.epoch[0] == bank), row


class EachTileIsToldOnce(_Scan):
    """A tile that becomes pending is told by exactly one READY with its group, owner, epoch and
    rows, before ALL or ERROR of its bank, unless it is cleared or its bank killed first; a killed
    bank has no event, and after clear and kill none of before comes. A group of a range (``plain``)
    that fires again before it was told has one or more, never more than it fired. While the
    consumer takes events and nothing new comes, a pending tile means an event within eight
    cycles."""

    def __init__(self, cfg, plain=False):
        super().__init__(cfg)
        self._plain = plain

    def promise(self, m):
        cfg, dut, types = self._cfg, self.dut, scoreboard_types(self._cfg)
        ready, event, kill = dut.ready, dut.offered, dut.kill
        group, bank = (
            self.constant(cfg.group_width, "group"),
            0 if self._plain else self.constant(1, "bank"),
        )
        self.at = Cat(group, Signal(1, name="zero") if self._plain else bank)
        mine = ready.en & (Cat(ready.group, ready.bank) == self.at)
        sets, clears = mine & ~ready.clear, mine & ready.clear
        self.suppose("a group belongs to one kind of owner", ready.plain == self._plain, when=sets)
        what = self.what = Signal(types.ready_info)  # as it became pending
        m.d.comb += what.plain.eq(self._plain)
        killed = covers(kill, what.owner, bank) if not self._plain else 0
        told = Signal()
        self.bank_of = lambda each: Mux(each.plain, 0, each.epoch[0])
        m.d.comb += told.eq(
            dut.loaded
            & (event.kind == EventKind.READY)
            & (Cat(event.group, self.bank_of(event)) == self.at)
        )
        self.owed = owed = Signal(3)  # events that may come
        self.must = must = Signal()  # one must come
        gone = 0 if self._plain else clears
        for n in range(4 * (not self._plain)):
            gone = self.past(gone, f"clear_{n + 1}")
        m.d.sync += must.eq(sets | (must & ~told & ~clears & ~killed))
        m.d.sync += owed.eq(Mux(gone, 0, owed - told + (sets & (owed != 7))))
        if self._plain:
            owner = self.constant(len(ready.owner), "owner")
            m.d.comb += what.owner.eq(owner)
            self.suppose(
                "a group belongs to one range; its events have no epoch and no rows",
                (ready.owner == owner) & (ready.epoch == 0) & (ready.rows == 0),
                when=sets,
            )
        else:
            with m.If(sets):
                m.d.sync += [
                    what.owner.eq(ready.owner),
                    what.epoch.eq(ready.epoch),
                    what.rows.eq(ready.rows),
                ]
            self.before_the_end(m, sets, bank)
            # The tile counters fire once per epoch. The walker kills until the FREE that follows
            # the last CLEAR is answered.
            self.suppose("not again before it is told", owed == 0, when=sets)
            self.suppose(
                "tiles of killed banks do not become pending",
                ~covers(kill, ready.owner, bank),
                when=sets,
            )
            calm = self.calm = Signal(3)
            m.d.sync += calm.eq(Mux(clears, 4, Mux(calm != 0, calm - 1, 0)))
            self.suppose(
                "kill lasts while a tile is forgotten",
                killed & ~sets,
                when=(clears | (calm != 0)) & (owed != 0),
            )
            self.suppose("no tile becomes pending while it is forgotten", ~sets, when=calm != 0)
            self.always("no event of a killed bank", ~killed, when=told)
        self.always("READY only of a pending tile", owed != 0, when=told)
        self.always(
            "READY tells what became pending",
            (event.plain == what.plain)
            & (event.region == what.owner)
            & (event.epoch == what.epoch)
            & (event.rows == what.rows)
            & (event.status == 0)
            & ~event.refused,
            when=told,
        )
        quiet = ~ready.en & dut.o_event.ready & dut.room & ~kill.en & ~dut.loaded & must
        idle = Signal(4)
        m.d.sync += idle.eq(Mux(quiet, idle + (idle != 15), 0))
        self.always("a pending tile brings an event", idle < 9)
        self.common()
        self.locate(m)

    def before_the_end(self, m, sets, bank):
        """READY comes before ALL or ERROR: the bank of an arbitrary region ends while the tile is
        pending."""
        dut, event = self.dut, self.dut.offered
        region = self.constant(self._cfg.region_width, "region")
        index = Cat(bank, region)
        ended = Signal()
        kills = Signal(3)
        killed = covers(dut.kill, region, bank)
        end_told = (
            dut.loaded
            & (event.kind != EventKind.READY)
            & ~event.plain
            & (event.region == region)
            & (event.epoch[0] == bank)
        )
        m.d.sync += [
            kills.eq(Mux(killed, kills + (kills != 7), 0)),
            ended.eq(
                (dut.outcome.en & (dut.outcome.index == index)) | (ended & ~end_told & (kills != 7))
            ),
        ]
        # The books announce nothing after a bank's end; it is opened again after RELEASE or ABORT,
        # which drop and kill.
        self.suppose(
            "nothing becomes pending after the bank's end",
            ~ended,
            when=sets & (dut.ready.owner == region),
        )
        drops = dut.drop.en & (dut.drop.region == region) & (dut.drop.bank == bank)
        self.suppose(
            "a kill starts with a drop",
            drops | self.past(drops, "dropped") | self.past(killed, "killed_before"),
            when=killed,
        )
        self.suppose(
            "a bank ends once, and not while it is dropped or killed",
            ~ended & ~drops & ~killed,
            when=dut.outcome.en & (dut.outcome.index == index),
        )
        mine = self.what.owner == region
        self.always("READY before the end of its bank", ~(self.must & mine), when=end_told)
        error, whole, arrives, leaves, _, comes, found, spared, _ = self.end_lemmas(
            index, region, bank
        )
        clears = self.past(drops, "dropped_before")
        pending = ((error | whole) & ~clears) | arrives
        self.lemma(
            "an end on its way comes after the tile",
            ended & ~(self.must & mine),
            when=(leaves & ~clears) | comes | found | spared,
        )
        self.lemma(
            "an end that waits is known",
            ended & (kills == 0) & ~comes & ~found & ~spared,
            when=pending,
        )
        self.lemma("one end", error + whole + arrives <= 1)
        self.lemma("a kill finds what is read", kills <= 1, when=comes)
        self.lemma("a kill finds what was found", kills <= 2, when=found)
        self.lemma("a kill finds the next event", kills <= 3, when=spared)

    def locate(self, m):
        """Lemmas: where a pending tile is."""
        cfg, types, at, what = self._cfg, scoreboard_types(self._cfg), self.at, self.what
        inside, tiles, summary = self.inside, self.tiles, self.tiles.summary
        width = min(32, 2 * cfg.groups)
        row = at >> (width - 1).bit_length()
        word, known = known_word(self, inside.bits, row, "bits")
        info, _ = known_word(self, inside.infos, at, "info")
        news, spare = inside.news, self.next.event
        fresh = Signal()
        clear = Signal()
        m.d.comb += [
            fresh.eq(news.en & ~news.clear & (Cat(news.group, news.bank) == at)),
            clear.eq(news.en & news.clear & (Cat(news.group, news.bank) == at)),
        ]
        sets = self.past(fresh & ~inside.direct, "sets_now")
        bit = word.bit_select(at[: (width - 1).bit_length()], 1)
        comes, found = tiles.found_2 & (tiles.place_2 == at), tiles.found_3 & (tiles.place_3 == at)
        waits = (
            self.next.valid
            & (spare.kind == EventKind.READY)
            & (Cat(spare.group, self.next.bank) == at)
        )
        bit_there = bit & known
        places = fresh + sets + bit_there + comes + found + waits - (sets & bit_there)
        if self._plain:
            self.end_words()
        self.lemma("no more than owed", places <= self.owed)
        self.lemma("not lost", places != 0, when=self.must)
        self.lemma(
            "nothing yet",
            (self.owed == 0) & ~tiles.scan_1 & ~tiles.found_2 & ~tiles.found_3,
            when=~known,
        )
        self.lemma("summary", summary.bit_select(row, 1) == word.any(), when=known)
        self.lemma("empty summary", ~summary.bit_select(row, 1), when=~known)
        self.lemma(
            "remembered",
            View(types.ready_info, info) == what,
            when=bit_there | sets | comes | found,
        )
        self.lemma(
            "as offered",
            (spare.plain == what.plain)
            & (spare.region == what.owner)
            & (spare.status == 0)
            & (spare.epoch == what.epoch)
            & (spare.rows == what.rows)
            & ~spare.refused,
            when=waits,
        )
        self.lemma(
            "fresh",
            (news.plain == what.plain)
            & (news.owner == what.owner)
            & (news.epoch == what.epoch)
            & (news.rows == what.rows),
            when=fresh,
        )
        self.lemma("bank of the news", news.bank == self.bank_of(news), when=news.en & ~news.clear)
        self.lemma(
            "bank of what is pending",
            self.bank_of(what) == at[cfg.group_width],
            when=self.owed != 0,
        )
        # The same group of the other bank must not pass for this one.
        other = at ^ (1 << cfg.group_width)
        row = other >> (width - 1).bit_length()
        word, known = known_word(self, inside.bits, row, "other_bits")
        self.lemma("summary of the other", summary.bit_select(row, 1) == (known & word.any()))
        info, _ = known_word(self, inside.infos, other, "other_info")
        pending = word.bit_select(other[: (width - 1).bit_length()], 1) & known
        sets = self.past(
            news.en & ~news.clear & (Cat(news.group, news.bank) == other) & ~inside.direct,
            "other_sets",
        )
        self.lemma(
            "bank of the other",
            self.bank_of(View(types.ready_info, info)) == other[cfg.group_width],
            when=pending
            | sets
            | (tiles.found_2 & (tiles.place_2 == other))
            | (tiles.found_3 & (tiles.place_3 == other)),
        )
        self.lemma(
            "bank of the next event",
            self.next.bank == self.bank_of(spare),
            when=self.next.valid
            & (spare.kind == EventKind.READY)
            & (spare.group == at[: cfg.group_width]),
        )
        self.lemma("a set is a set", tiles.set_1 | ~sets)


class EachEndIsToldOnce(_Scan):
    """ALL or ERROR of a bank, and ERROR of a range, that becomes pending is told by exactly one
    event with its epoch, rows, status and refused mark, unless the bank is dropped or killed or the
    range written first. While the consumer takes events, nothing new comes and no READY is pending,
    an end means an event within eight cycles."""

    def promise(self, m):
        dut, types = self.dut, scoreboard_types(self._cfg)
        outcome, event, kill = dut.outcome, dut.offered, dut.kill
        index = self.constant(types.source_width, "index")
        of_range = index >= types.banks
        region, bank = Mux(of_range, index - types.banks, index >> 1), Mux(of_range, 0, index[0])
        self.suppose("a bank or a range", outcome.index < types.sources, when=outcome.en)
        self.suppose("it is one that is watched", index < types.sources)
        self.suppose(
            "ranges only have errors",
            outcome.error,
            when=outcome.en & (outcome.index >= types.banks),
        )
        sets = outcome.en & (outcome.index == index)
        forgets = Mux(
            of_range,
            dut.dep_write.en & (dut.dep_write.index == region),
            dut.drop.en & (dut.drop.region == region) & (dut.drop.bank == bank),
        )
        killed = ~of_range & covers(kill, region, bank)
        told = Signal()
        m.d.comb += told.eq(
            dut.loaded
            & (event.kind != EventKind.READY)
            & (event.plain == of_range)
            & (event.region == region)
            & (of_range | (event.epoch[0] == bank))
        )
        may = Signal()
        must = Signal()
        error = Signal()
        word = Signal(types.outcome_word)
        m.d.sync += [
            may.eq((may & ~told) | sets),
            must.eq((must & ~told & ~forgets & ~killed) | sets),
        ]
        with m.If(sets):
            m.d.sync += [
                word.eq(outcome.word),
                error.eq(outcome.error),
            ]
        # The books end a bank once per epoch and a range once until it is written; the walker kills
        # until the bank is FREE.
        self.suppose("not again before it is told", ~may & ~forgets & ~killed, when=sets)
        self.always("only of what ended", may, when=told)
        self.always(
            "told as it ended",
            (event.kind == Mux(error, EventKind.ERROR, EventKind.ALL))
            & (event.epoch == word.epoch)
            & (event.rows == word.rows)
            & (event.status == word.status)
            & (event.refused == word.refused),
            when=told,
        )
        self.always("no event of a killed bank", ~killed, when=told)
        quiet = (
            ~dut.ready.en
            & dut.o_event.ready
            & dut.room
            & ~kill.en
            & ~dut.drop.en
            & ~dut.dep_write.en
            & ~dut.loaded
            & must
            & ~self.tiles.summary.any()
            & ~dut.outcome.en
        )
        idle = Signal(4)
        m.d.sync += idle.eq(Mux(quiet, idle + (idle != 15), 0))
        self.always("an end brings an event", idle < 9)

        # Lemmas: where it is.
        spare = self.next.event
        at_error, at_all, arrives, _, ranged, comes, found, _, row = self.end_lemmas(
            index, region, bank
        )
        spared = (
            self.next.valid
            & (spare.kind != EventKind.READY)
            & (spare.plain == of_range)
            & (spare.region == region)
            & (of_range | (spare.epoch[0] == bank))
        )
        places = at_error + at_all + arrives + ranged + comes + found + spared
        self.lemma("no more than pending", places <= may)
        self.lemma("not lost", places != 0, when=must)
        self.lemma(
            "remembered",
            row == word.as_value(),
            when=Cat(at_error, at_all, arrives, ranged, comes, found).any(),
        )
        self.lemma("waits as", Cat(at_error, at_all) == Cat(error, ~error), when=at_error | at_all)
        self.lemma("arrives as", self.past(outcome.error, "came_as") == error, when=arrives)
        self.lemma("read as", self.ends.error_2 == error, when=comes)
        self.lemma("found as", self.end_found.error == error, when=found)
        kind = Mux(error, EventKind.ERROR, EventKind.ALL)
        self.lemma(
            "offered as",
            (spare.kind == kind)
            & (spare.epoch == word.epoch)
            & (spare.rows == word.rows)
            & (spare.status == word.status)
            & (spare.refused == word.refused),
            when=spared,
        )
        self.lemma("bank of what is pending", of_range | (word.epoch[0] == bank), when=may)
        self.lemma("a range has failed", error, when=may & of_range)
