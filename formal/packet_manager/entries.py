# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's entries (``hub_rtl/packet_manager/entries.py``)."""

from amaranth import Array, Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import known_word, observe, peek
from formal.kit.spec import Spec
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import LANE_KEY
from hub_rtl.packet_manager.entries import Entries
from hub_rtl.packet_manager.records import SLOTS, pool_types_of

__all__ = ["BytesMerge", "EntriesNameTheirLink"]


class EntriesNameTheirLink(Spec):
    """A plain entry is opened with the link of its block, as the formats give it; every other one
    with 0."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = Entries(cfg)
        self.free_inputs(dut)
        key, link = dut.opened.info.key, dut.opened.info.link
        its = key.body.block[:LANE_KEY] // cfg.lanes % cfg.slice_links
        self.always("a plain one's", link == its, when=dut.opened.en & key.plain)
        self.always("no other's", link == 0, when=dut.opened.en & ~key.plain)
        self.always("it exists", link < cfg.slice_links, when=dut.opened.en)


class BytesMerge(Spec):
    """The bytes of a store join the entry that was found for it: what is fetched of an entry has a
    byte exactly if a store since its opening had it, with the newest value; ``had`` names just the
    parts that stores were for, which have a byte each, and a normal store if there was one;
    and no entry is said to be full
    that lacks a byte of its block.

    An arbitrary byte of an arbitrary entry is followed. What is fetched is not stored to in the
    two cycles before; stores of an entry name one length; an entry begins with a store that opens
    it.
    """

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = Entries(cfg)
        self.inner = observe(dut)
        self.free_inputs(dut)
        t = self.types = pool_types_of(cfg)
        self.entry = self.constant(t.index_width, "entry")
        self.place = place = self.constant(range(cfg.packet_bytes), "place")
        size = ceil_log2(cfg.slice_bytes)
        self.byte, self.part = place[:size], place[size:]

        # The followed byte of the stores that wait.
        seen = data.StructLayout({"bit": 1, "value": 8})
        waits = Array(Signal(seen, name=f"waits_{n}") for n in range(SLOTS))
        here = Signal(seen)
        came = Signal(SLOTS)
        m.d.comb += [
            here.bit.eq(dut.arrives.bytes.mask.bit_select(self.byte, 1)),
            here.value.eq(dut.arrives.bytes.data.word_select(self.byte, 8)),
        ]
        with m.If(dut.arrives.en):
            m.d.sync += [waits[dut.slot].eq(here), came.bit_select(dut.slot, 1).eq(1)]
        self.suppose("stores have a byte", dut.arrives.bytes.mask.any(), dut.arrives.en)
        self.suppose("a store that came", came.bit_select(dut.found.store.slot, 1), dut.found.en)
        self.waits, self.came = waits, came

        # Stores on their way: C4, C5, C6. ``its``: of the followed entry; ``hits``: the byte.
        step = data.StructLayout({"found": t.found, "seen": seen, "its": 1, "hits": 1, "there": 1})
        now, *self.steps = steps = [Signal(step, name=f"step_{n}") for n in range(4)]
        its = dut.found.en & (dut.found.index == self.entry)
        m.d.comb += [
            now.found.eq(dut.found),
            now.seen.eq(waits[dut.found.store.slot]),
            now.its.eq(its),
            now.there.eq(its & (dut.found.store.part == self.part)),
            now.hits.eq(now.there & now.seen.bit),
        ]
        m.d.sync += [after.eq(before) for before, after in zip(steps, steps[1:], strict=False)]
        units = Signal(t.unit_count)
        opened = Signal()
        with m.If(its):
            m.d.sync += [units.eq(dut.found.store.units), opened.eq(1)]
        self.suppose("opened first", opened | dut.found.new, when=its)
        length = dut.found.store.units
        self.suppose("one length", length == units, when=its & ~dut.found.new)
        self.suppose("stores name a length", (length != 0) & (length <= cfg.packet_flits), when=its)
        self.units, self.opened = units, opened

        # What the entry has, when the store in C5 has joined it.
        c4, c5, _ = self.steps
        state = data.StructLayout(
            {
                **dict.fromkeys(("known", "had", "has", "normal"), 1),
                "value": 8,
                "units": t.unit_count,
            }
        )
        self.state = Signal(state)
        then = Signal(state)
        old = ~c5.found.new
        m.d.comb += then.eq(self.state)
        with m.If(c5.its):
            m.d.comb += [
                then.known.eq(1),
                then.had.eq((self.state.had & old) | c5.there),
                then.has.eq((self.state.has & old) | c5.hits),
                then.normal.eq((self.state.normal & old) | ~c5.found.store.cls),
                then.units.eq(c5.found.store.units),
                then.value.eq(Mux(c5.hits, c5.seen.value, self.state.value)),
            ]
        m.d.sync += self.state.eq(then)
        self._judge(m, c4, c5)
        self._lemmas(m)

    def _judge(self, m, c4, c5):
        dut, state = self.parts[0], self.state
        fetch = dut.fetch.en & (dut.fetch.index == self.entry)
        self.suppose("fetched when stores have landed", ~c4.its & ~c5.its, when=fetch)
        known = state.known
        fetched = self.past(fetch, "fetched") & known
        self.always(
            "mask as it was stored",
            (dut.mask.bit_select(self.place, 1) & state.had) == state.has,
            when=fetched,
        )
        its_part = dut.mask.word_select(self.part, self._cfg.slice_bytes)
        self.always("parts have bytes", its_part.any(), when=fetched & state.had)
        self.always(
            "byte as it was stored",
            dut.data.word_select(self.byte, 8) == state.value,
            when=fetched & self.past(dut.fetch.part == self.part, "its_part") & state.has,
        )
        peeked = self.past(dut.peek.en & (dut.peek.index == self.entry), "peeked") & known
        self.always("parts told", dut.had.parts.bit_select(self.part, 1) == state.had, when=peeked)
        self.always("normal store told", dut.had.normal == state.normal, when=peeked)
        full = dut.full.en & (dut.full.index == self.entry)
        self.always("full has all bytes", state.has, when=full & self._asked(self.steps[2]))

    def _asked(self, step):
        """The block of this store shall have the followed byte."""
        return step.found.store.units > self.place[4:]

    def _lemmas(self, m):
        """What memories and registers mean."""
        inner, state, known = self.inner, self.state, self.state.known
        c4, c5, c6 = self.steps
        layout = self.types.bytes
        for n, wait in enumerate(self.waits):
            word = data.View(layout, peek(m, inner.waiting, n))
            bit, value = word.mask.bit_select(self.byte, 1), word.data.word_select(self.byte, 8)
            right = (bit == wait.bit) & (value == wait.value) & word.mask.any()
            self.lemma(f"slot {n}", right, when=self.came[n])
        read = inner.waiting.r_data
        bit, value = read.mask.bit_select(self.byte, 1), read.data.word_select(self.byte, 8)
        read_right = (bit == c4.seen.bit) & (value == c4.seen.value) & read.mask.any()
        self.lemma("slot read", read_right, when=c4.found.en)
        for name, step in (("C4", c4), ("C5", c5), ("C6", c6)):
            its = step.found.en & (step.found.index == self.entry)
            there = its & (step.found.store.part == self.part)
            self.lemma(
                f"{name} known",
                (step.its == its) & (step.there == there) & (step.hits == (there & step.seen.bit)),
            )
            units = step.found.store.units
            named = (units != 0) & (units <= self._cfg.packet_flits)
            self.lemma(f"{name} names a length", named, when=its)
        self.lemma("op", inner.op.as_value() == c4.found.as_value())
        for name, reg, step in (("merging", inner.merging, c5), ("last", inner.last, c6)):
            found = step.found
            self.lemma(
                name,
                (reg.index == found.index)
                & (reg.new == found.new)
                & (reg.part == 1 << found.store.part)
                & (reg.units == found.store.units)
                & (reg.cls == found.store.cls)
                & (reg.mask.bit_select(self.byte, 1) == step.seen.bit)
                & reg.mask.any(),
                when=found.en,
            )
            self.lemma(f"{name} is there", reg.en == found.en)
        # What is opened, and how long it is.
        before = Mux(c5.its, c5.found.store.units, state.units)
        latest = Mux(c4.its, c4.found.store.units, before)
        inside = known | c5.its
        self.lemma("opened", self.opened == (inside | c4.its))
        self.lemma("opened in C5", c5.found.new, when=c5.its & ~known)
        self.lemma("opened in C4", c4.found.new, when=c4.its & ~inside)
        self.lemma("latest length", self.units == latest, when=self.opened)
        self.lemma("same in C4", c4.found.store.units == before, when=c4.its & ~c4.found.new)
        self.lemma("same in C5", c5.found.store.units == state.units, when=c5.its & ~c5.found.new)
        self.lemma("same in C6", c6.found.store.units == state.units, when=c6.its)
        self.lemma("came in C6", known & (state.had | ~c6.there) & (state.has | ~c6.hits), c6.its)
        self.lemma("had", state.had, when=state.has)
        self._words(m, known)

    def _words(self, m, known):
        """The entry's words in the memories."""
        inner, state, t, entry = self.inner, self.state, self.types, self.entry
        c4, c5, c6 = self.steps
        word = Cat(self.part, entry)
        byte = peek(m, inner.payload, word).word_select(self.byte, 8)
        now = Mux(c5.hits, c5.seen.value, state.value)
        has = (state.has & ~(c5.its & c5.found.new)) | c5.hits
        self.lemma("payload", byte == now, when=has)
        for name, ram in (("state", inner.state), ("state_out", inner.state_out)):
            had = data.View(t.had, known_word(self, ram, entry, name)[0])
            right = had.parts.bit_select(self.part, 1) == state.had
            self.lemma(f"{name} parts", right & (had.normal == state.normal), when=known)
        mask, _ = known_word(self, inner.masks, word, "masks")
        right = mask.any() & (mask.bit_select(self.byte, 1) == state.has)
        self.lemma("mask", right, when=state.had)
        out = peek(m, inner.masks_out, entry)
        right = out.word_select(self.part, self._cfg.slice_bytes).any()
        right &= out.bit_select(self.place, 1) == state.has
        self.lemma("mask out", right, when=state.had)
        # What of it is complete.
        done, _ = known_word(self, inner.done, entry, "done")
        asked = state.units > self.place[4:]
        needs = asked & ~state.has
        part_done = done.bit_select(self.part, 1) & state.had
        self.lemma("done", ~part_done, when=known & needs & ~c6.its)
        unit = self.place[4 : 4 + ceil_log2(t.units)]
        had_6 = inner.had_6.bit_select(self.part, 1)
        self.lemma("done before C6", ~(done.bit_select(self.part, 1) & had_6), when=c6.its & needs)
        self.lemma("had before C6", state.had == (had_6 | c6.there), when=c6.its)
        self.lemma("whole", state.has, when=c6.there & inner.whole.bit_select(unit, 1))
        self.lemma("needed", inner.needed.bit_select(unit, 1) == asked, when=c6.there)
        self.lemma("asked", inner.parts.bit_select(self.part, 1) | ~asked, when=c6.its)
