# SPDX-License-Identifier: Apache-2.0
"""Keeps which banks and dependency ranges have ended and not yet been told so: ALL and ERROR."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin, lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, several
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .records import bank_index, scoreboard_types

__all__ = ["EndBits", "word_banks"]


def word_banks(cfg):
    """Banks whose bits share one word: an ERROR bit of each, then an ALL bit of each."""
    return min(16, scoreboard_types(cfg).banks)


class EndBitsObserve(NamedTuple):
    """What a proof may see of :class:`EndBits`. One of a step was picked so many cycles ago."""

    bits: Ram  #: words of pending bits: an ERROR bit of each bank, then an ALL bit of each
    outcomes: Ram  #: what is to be told of each bank and range
    arbiter: RoundRobin  #: words and then ranges
    served: Signal  #: which of them had the last turn
    errors: Signal  #: of each word, whether it has ERROR bits
    alls: Signal  #: of each word, whether it has ALL bits
    range_errors: Signal  #: of each range, whether its ERROR is pending
    set_1: Signal  #: the word that was read gets a bit,
    clear_1: Signal  #: loses both of a bank,
    scan_1: Signal  #: or the bit that is picked
    range_1: Signal  #: a range was picked
    error_1: Signal  #: it is about ERROR
    word_1: Signal  #: which word
    range_at_1: Signal  #: which range
    picked: Signal  #: the bank of the word that is picked, one-hot
    scan_2: Signal
    range_2: Signal
    error_2: Signal
    place_2: Signal  #: number of the bank or range


class EndBits(wiring.Component):
    """Pending bits of ALL and ERROR. Those of banks are in a table of words with a summary bit per
    word, those of the few ranges in registers.

    Contract: each ``outcome`` is shown once, with its word, by a ``found`` that answers a ``pick``,
    unless it is dropped, or its range written, before the pick. ERROR before ALL. A pick that comes
    when ``some`` is up and ``busy`` is not finds one. Latency: an outcome of cycle 0 can be picked
    in cycle 1; a pick of cycle 0 is ``found`` in cycle 3. Nothing else of the same three cycles may
    be picked. Order: in turn over the words and ranges, the lowest bank of a word first. Illegal
    input: ``outcome`` and ``drop`` do not come in the same cycle. Nothing comes while ``clearing``.

    Parameters: ``cfg``. Ports: ``outcome``, ``drop``, ``dep_write`` In as EventScan; ``some`` Out,
    ``busy`` Out; ``pick`` In; ``on_way`` Out: a pick is not yet found; ``found`` Out {en, error,
    index, word}; ``clearing`` Out.

    Source: docs/interfaces.md section 8.
    """

    observe: EndBitsObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own = self._types
        super().__init__(
            {
                "outcome": In(own.outcome),
                "drop": In(own.bank_strobe),
                "dep_write": In(types_of(cfg).dep_write),
                "some": Out(1),
                "busy": Out(1),
                "pick": In(1),
                "on_way": Out(1),
                "found": Out(own.outcome),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        half, ranges = word_banks(cfg), cfg.dep_ranges
        words, low = -(-types.banks // half), (half - 1).bit_length()
        m.submodules.bits = bits = Ram(2 * half, words, clear=True, quick=words <= SMALL)
        m.submodules.outcomes = outcomes = Ram(types.outcome_word, types.sources)
        m.d.comb += [
            self.clearing.eq(bits.clearing),
            outcomes.w_en.eq(self.outcome.en),
            outcomes.w_addr.eq(self.outcome.index),
            outcomes.w_data.eq(self.outcome.word),
        ]

        # What is done to a word: it was read a cycle ago.
        set_1, clear_1, scan_1 = (Signal(name=name) for name in ("set_1", "clear_1", "scan_1"))
        error_1, bit_1, word_1 = (
            Signal(name="error_1"),
            Signal(half, name="bit_1"),
            Signal(index_width(words), name="word_1"),
        )
        of_range = self.outcome.index >= types.banks
        sets = self.outcome.en & ~of_range
        errors, alls = (
            Signal(words, name=name) for name in ("errors", "alls")
        )  # words with such bits
        range_errors = Signal(ranges)
        fresh = Mux(set_1, (Const(1, words) << word_1)[:words], 0)
        grant, some_error, served = self._turn(m, errors, alls, range_errors, fresh, error_1)
        m.d.comb += self.busy.eq(self.outcome.en | self.drop.en | clear_1 | scan_1)

        at = Signal(types.bank_width)
        m.d.comb += [
            at.eq(
                Mux(self.drop.en, bank_index(self.drop.region, self.drop.bank), self.outcome.index)
            ),
            bits.r_en.eq(1),
            bits.r_addr.eq(Mux(sets | self.drop.en, at >> low, encode(grant[:words]))),
        ]
        range_1, range_at_1 = Signal(name="range_1"), Signal(index_width(ranges), name="range_at_1")
        m.d.sync += [
            set_1.eq(sets),
            clear_1.eq(self.drop.en),
            scan_1.eq(self.pick & ~grant[words:].any()),
            word_1.eq(bits.r_addr),
            error_1.eq(Mux(self.pick, some_error, self.outcome.error)),
            bit_1.eq((Const(1, half) << at[:low])[:half]),
            range_1.eq(self.pick & grant[words:].any()),
            range_at_1.eq(encode(grant[words:])),
        ]
        word = bits.r_data
        picked = lowest_set(m, Mux(error_1, word[:half], word[half:]), "picked")
        self._change(m, bits, picked, set_1, clear_1, scan_1, error_1, bit_1, word_1, errors, alls)
        self._keep_ranges(m, range_errors, of_range, grant[words:])
        found = self._find(m, outcomes, picked, scan_1, range_1, error_1, word_1, range_at_1)
        self.observe = EndBitsObserve(
            *(bits, outcomes, m.submodules.arbiter, served, errors, alls, range_errors),
            *(set_1, clear_1, scan_1, range_1, error_1, word_1, range_at_1, picked, *found),
        )
        return m

    def _turn(self, m, errors, alls, range_errors, fresh, error_1):
        """Whose turn it is, words and then ranges, errors first; whether it is an error's; who had
        the last turn."""
        count = len(errors) + len(range_errors)
        m.submodules.arbiter = arbiter = RoundRobin(count)
        some_error = Signal()
        asks = Signal(count)
        served = Signal(count, name="served")
        grant = arbiter.grant_onehot
        m.d.comb += [
            asks.eq(Cat(errors | Mux(error_1, fresh, 0), range_errors)),
            some_error.eq(asks.any()),
            arbiter.requests.eq(Mux(some_error, asks, alls | Mux(error_1, 0, fresh))),
            arbiter.advance.eq(self.pick),
            arbiter.hold.eq(
                (arbiter.requests & served).any()
            ),  # a word is served until it is empty
            self.some.eq(arbiter.requests.any()),
        ]
        with m.If(self.pick):
            m.d.sync += served.eq(grant)
        return grant, some_error, served

    def _change(
        self, m, bits, picked, set_1, clear_1, scan_1, error_1, bit_1, word_1, errors, alls
    ):
        """One word is changed per cycle, and its summaries."""
        half, words, word = len(bit_1), len(errors), bits.r_data
        chosen = Signal(half)
        either = Signal(2 * half)
        m.d.comb += [
            chosen.eq(Mux(scan_1, picked, bit_1)),
            either.eq(
                Mux(clear_1, Cat(chosen, chosen), Mux(error_1, chosen, Cat(Const(0, half), chosen)))
            ),
            bits.w_en.eq(set_1 | clear_1 | scan_1),
            bits.w_addr.eq(word_1),
            bits.w_data.eq(
                mutant(
                    "scoreboard.end_lost_at_scan",
                    Mux(set_1, word | either, word & ~either),
                    Mux(scan_1, word, Mux(set_1, word | either, word & ~either)),
                )
            ),
        ]
        # Whether some bit of a half stays is found beside the word that is written, not from it.
        here = (Const(1, words) << word_1)[:words]
        for summary, own, part in ((errors, error_1, word[:half]), (alls, ~error_1, word[half:])):
            stays = Mux(clear_1, (part & ~bit_1).any(), set_1 | several(part))
            with m.If(clear_1 | ((set_1 | scan_1) & own)):
                m.d.sync += summary.eq(Mux(stays, summary | here, summary & ~here))

    def _keep_ranges(self, m, range_errors, of_range, picked):
        """The ranges' bits: a write to one forgets its ERROR."""
        types, ranges = self._types, len(range_errors)
        fails_at = (self.outcome.index - types.banks)[: index_width(ranges)]
        failed = Mux(self.outcome.en & of_range, (Const(1, ranges) << fails_at)[:ranges], 0)
        written = Mux(self.dep_write.en, (Const(1, ranges) << self.dep_write.index)[:ranges], 0)
        m.d.sync += range_errors.eq((range_errors & ~written & ~Mux(self.pick, picked, 0)) | failed)

    def _find(self, m, outcomes, picked, scan_1, range_1, error_1, word_1, range_at_1):
        """What was picked is a number a cycle later, and its word is there after one more. Returns
        the step between: {scan, range, error, place}."""
        types, half, words = self._types, len(picked), m.submodules.bits.depth
        scan_2, range_2, error_2 = (Signal(name=name) for name in ("scan_2", "range_2", "error_2"))
        picked_2 = Signal(half)
        word_2 = Signal.like(word_1)
        range_at_2 = Signal.like(range_at_1)
        place_2 = Signal(types.source_width, name="place_2")
        place = Cat(encode(picked_2), word_2) if words > 1 else encode(picked_2)
        m.d.comb += [
            place_2.eq(Mux(range_2, types.banks + range_at_2, place)),
            outcomes.r_en.eq(1),
            outcomes.r_addr.eq(place_2),
            self.found.word.eq(outcomes.r_data),
            self.on_way.eq(scan_1 | range_1 | scan_2 | range_2 | self.found.en),
        ]
        m.d.sync += [
            scan_2.eq(scan_1),
            range_2.eq(range_1),
            error_2.eq(error_1),
            picked_2.eq(picked),
            word_2.eq(word_1),
            range_at_2.eq(range_at_1),
            self.found.en.eq(range_2 | scan_2),
            self.found.error.eq(error_2),
            self.found.index.eq(place_2),
        ]
        return scan_2, range_2, error_2, place_2
