# SPDX-License-Identifier: Apache-2.0
"""Promises of the victim store (``hub_rtl/slot_allocator/victim_store.py``)."""

from amaranth import Array, Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import SPILL_WORD
from hub_rtl.contract.records import layout_of
from hub_rtl.slot_allocator.records import fold_key, slice_types_of
from hub_rtl.slot_allocator.victim_store import STORE_WAYS, VictimStore

from .pipe import covers

__all__ = ["StoreKeepsWords"]

WORD = layout_of(SPILL_WORD)


class StoreKeepsWords(Spec):
    """For any row: a read gives the word written last, or none if it was erased, was never written,
    or its bank was purged since; wherever the word is, whatever is asked for other rows. It gives
    an error only if memory did. That holds until memory answers a write of the row's word with an
    error: if it was to keep a mapping, the row's bank is told, and nobody's else, before the next
    word is written out and before a purge ends.

    Each request gets one answer, one at a time. A purge ends when no slice purges.

    User: nothing while clearing; the next purge when ``purging`` is 0. The spill table answers each
    request once, takes the next after that, keeps words, and is zero where nothing was written
    since a purge."""

    def build(self, m):
        cfg = self._cfg
        own = slice_types_of(cfg)
        m.submodules.dut = self.dut = dut = VictimStore(cfg)
        self.inside = observe(dut)
        self.free_inputs(dut)
        self.suppose(
            "nothing while clearing",
            ~(Cat(each.valid for each in dut.i_request).any() | dut.purge.en),
            when=dut.clearing,
        )
        self.suppose("one purge at a time", ~dut.purge.en, when=dut.purging)
        self.row = row = Signal(own.line["row"].shape)
        for name, field in row.shape():
            m.d.comb += row[name].eq(self.constant(field.shape, name))

        self._slices(m)
        self._memory(m)
        self._purges(m)
        self._words(m)
        self._losses(m)
        self._lemmas(m)

    def is_row(self, request):
        row = self.row
        return (
            (request.region == row.region)
            & (request.bank == row.bank)
            & (request.rowid == row.rowid)
        )

    def _slices(self, m):
        """The request under way, and whose it is."""
        dut, cfg = self.dut, self._cfg
        n = self.constant(range(cfg.slices), "slice")
        self.suppose("slice exists", n < cfg.slices)
        took = Cat(moves(each) for each in dut.i_request)
        self.asker = n
        self.job = Signal(dut.i_request[0].p.shape())
        self.open = Signal()
        self.ours = Signal()
        with m.If(took.any()):
            m.d.sync += self.ours.eq(Array(took)[n])
        for each in dut.i_request:
            with m.If(moves(each)):
                m.d.sync += self.job.eq(each.p)
        self.took, self.done = took.any(), dut.done.any()
        self.flag(self.open, self.took, self.done)
        self.always("one slice is taken", (took & (took - 1)) == 0)
        self.always("one at a time", ~self.open | self.done, when=self.took)
        self.always("one slice is answered", (dut.done & (dut.done - 1)) == 0)
        self.always("done only when asked", self.open, when=self.done)
        self.always("who asked is answered", Array(dut.done)[n] == self.ours, when=self.done)

    def _memory(self, m):
        """The spill table: what it works at, and the row's word there."""
        dut = self.dut
        asked, answer = dut.o_request, dut.answer
        self.busy = Signal()
        self.sent = Signal(asked.p.shape())
        self.below = Signal(64)
        self.flag(self.busy, moves(asked), dut.answered)
        with m.If(moves(asked)):
            m.d.sync += self.sent.eq(asked.p)
        self.mine = self.is_row(self.sent)
        self.suppose("memory answers what was asked", self.busy, when=dut.answered)
        self.suppose("one access at a time", ~self.busy, when=asked.ready)
        self.suppose(
            "memory keeps words",
            answer.word == self.below,
            when=dut.answered & ~self.sent.write & self.mine & ~answer.error,
        )
        self.failed = dut.answered & self.sent.write & answer.error
        with m.If(dut.answered & self.sent.write & self.mine & ~answer.error):
            m.d.sync += self.below.eq(self.sent.word)
        keeps = Signal(WORD)
        m.d.comb += keeps.eq(self.sent.word)
        self.kept = keeps.valid
        self.always("errors are counted", dut.errors == self.failed)
        with m.If(self.ends(m) & self.purged):
            m.d.sync += self.below.eq(0)

    def ends(self, m):
        """A purge ends; was the row's bank in it?"""
        dut = self.dut
        if not hasattr(self, "purged"):
            self.run = Signal(slice_types_of(self._cfg).purge)
            with m.If(dut.purge.en):
                m.d.sync += self.run.eq(dut.purge)
            self.purged = covers(self.run, self.row.region, self.row.bank)
            self.ended = self.past(dut.purging, "purged_before") & ~dut.purging
        return self.ended

    def _purges(self, m):
        dut = self.dut
        began, went = self.past(dut.purge.en, "began"), self.past(dut.purging, "went")
        self.settled = Signal()  # in this purge
        self.flag(self.settled, dut.purging & dut.settled, dut.purge.en)
        self.always("purging begins", dut.purging, when=began)
        self.always("purging only when asked", began | went, when=dut.purging)

    def _words(self, m):
        """What the row's word is, for the slices; ``sure`` until memory refused to keep it."""
        dut = self.dut
        word = Signal(WORD)
        self.held = held = Signal(WORD)
        self.sure = sure = Signal(init=1)
        self.job_word = job_word = Signal(WORD)
        m.d.comb += [
            word.eq(dut.reply.word),
            job_word.eq(self.job.word),
        ]
        self.job_keeps = self.job.write & job_word.valid
        self.read = self.is_row(self.job) & ~self.job.write
        for each in dut.i_request:
            came = Signal(WORD, name="came")
            m.d.comb += came.eq(each.p.word)
            with m.If(moves(each) & self.is_row(each.p) & each.p.write):
                m.d.sync += held.eq(Mux(came.valid, came, 0))
        with m.If(self.failed & self.mine):
            m.d.sync += sure.eq(0)
        with m.If(self.ended & self.purged):
            m.d.sync += [
                held.eq(0),
                sure.eq(1),
            ]
        answers = self.done & self.read & ~dut.reply.error
        self.always(
            "a word comes back",
            word.as_value() == held.as_value(),
            when=answers & sure & held.valid,
        )
        self.always("no word is invented", ~word.valid, when=answers & sure & ~held.valid)
        failed = self.past(dut.answered & ~self.sent.write & dut.answer.error, "read_failed")
        self.always("errors are memory's", failed, when=self.done & dut.reply.error)
        self.reach("from the store", answers & held.valid & ~self.past(dut.answered, "asked"))
        self.reach("from memory", answers & held.valid & self.past(dut.answered, "asked_memory"))

    def _losses(self, m):
        dut = self.dut
        bank = Cat(dut.o_lost.p.region, dut.o_lost.p.bank)
        lost = self.past(self.failed & self.kept, "lost")
        whose = self.past(Cat(self.sent.region, self.sent.bank), "whose")
        waits = self.past(dut.o_lost.valid & ~dut.o_lost.ready, "loss_waits")
        self.always("what is lost is told", dut.o_lost.valid & (bank == whose), when=lost)
        self.always("told only when lost", lost | waits, when=dut.o_lost.valid)
        self.always("told before the next", ~(lost & waits))
        unsaid = dut.o_lost.valid | (self.busy & self.sent.write)
        self.always("told before a purge ends", ~unsaid, when=self.ended)
        self.always("slices have purged", self.settled, when=self.ended)

    def home(self, row):
        """The row's set."""
        cfg, own = self._cfg, slice_types_of(self._cfg)
        width = ceil_log2(cfg.victim_sets)
        other = max(width, own.set_width) + 1
        return fold_key(row.region, row.bank, row.rowid, other)[:width] if width else 0

    def _lemmas(self, m):
        inside, dut, row, cfg = self.inside, self.dut, self.row, self._cfg
        own = slice_types_of(cfg)
        job, is_in, held = self.job, inside.is_in, self.held
        home = Signal(max(1, ceil_log2(cfg.victim_sets)))
        m.d.comb += home.eq(self.home(row))
        layout, job_set = data.ArrayLayout(own.line, STORE_WAYS), self.home(job)
        sets = [known_word(self, inside.lines, n, f"set{n}") for n in range(cfg.victim_sets)]
        word = Signal(layout, name="home_lines")
        m.d.comb += word.eq(Array(lines for lines, _ in sets)[home])
        lines = [word[n] for n in range(STORE_WAYS)]
        bank = Cat(row.bank, row.region)
        noted, noted_known = known_word(self, inside.outside, bank, "outside")
        noted = noted[0] if hasattr(noted, "__getitem__") else noted
        ready = ~dut.clearing

        # The machine.
        working = ~(is_in["IDLE"] | is_in["TAKE"] | is_in["FORGET"])
        self.lemma("states", Cat(*is_in.values()).any())
        self.lemma("open while working", self.open == (working | self.done))
        self.lemma("done when idle", ~self.done | is_in["IDLE"])
        who = inside.who
        asks = Cat(each.valid for each in dut.i_request)
        one = (who != 0) & ((who & (who - 1)) == 0)
        self.lemma("one slice asks", one, when=working | is_in["TAKE"])
        self.lemma("it asks", (who & ~asks) == 0, when=is_in["TAKE"])
        self.lemma("who asks", Array(who)[self.asker] == self.ours, when=working)
        self.lemma("same request", inside.request.as_value() == job.as_value(), when=working)
        self.lemma("idle while clearing", is_in["IDLE"] & ~dut.purging, when=dut.clearing)
        self.lemma("same run", inside.run.as_value() == self.run.as_value(), when=dut.purging)
        self.lemma("purging", dut.purging & self.settled, when=is_in["FORGET"])
        self.lemma(
            "memory's work",
            (inside.posted.busy == (self.busy & self.sent.write))
            & ((self.busy & ~self.sent.write) == is_in["ANSWER"]),
        )
        self.lemma(
            "read what is asked", self.sent.as_value() == job.as_value(), when=is_in["ANSWER"]
        )
        self.lemma(
            "what is posted",
            (inside.posted.tells == self.kept)
            & (inside.posted.bank.region == self.sent.region)
            & (inside.posted.bank.bank == self.sent.bank)
            | (~inside.posted.tells & ~self.kept),
            when=inside.posted.busy,
        )
        self.lemma("one loss", ~(inside.posted.busy & inside.posted.tells), when=dut.o_lost.valid)
        self.lemma("writes out", self.job_keeps & ~inside.room, when=is_in["WRITE_OUT"])
        self.lemma("asks for what it has not", ~self.job_keeps, when=is_in["ASK"] | is_in["ANSWER"])
        self.lemma("reads", ~job.write, when=is_in["ANSWER"])

        # What was chosen, in the row's set.
        at_home = job_set == home
        chosen = is_in["SERVE"] | is_in["WRITE_OUT"]
        shows = inside.lines.r_data.as_value() == word.as_value()
        for n, (stored, _) in enumerate(sets):
            there = data.View(layout, stored)
            strays = Cat(
                there[way].word.valid & self.is_row(there[way].row) for way in range(STORE_WAYS)
            )
            self.lemma(f"no line of the row in set {n}", strays == 0, when=ready & (home != n))
            self.lemma(
                f"set {n} is shown",
                inside.lines.r_data.as_value() == stored,
                when=(job_set == n) & (is_in["CHOOSE"] | chosen),
            )
        way, hit, room = inside.way, inside.hit, inside.room
        here = Cat(each.word.valid & self.is_row(each.row) for each in lines)
        used = Cat(each.word.valid for each in lines)
        of_job = Cat(
            each.word.valid & (each.row.as_value() == Cat(job.region, job.bank, job.rowid))
            for each in lines
        )
        for what, ways, when in (
            ("one way", way, chosen & ~hit),
            ("a way in turn", inside.turn, 1),
        ):
            self.lemma(what, (ways != 0) & ((ways & (ways - 1)) == 0), when=when)
        self.lemma("a hit has room", room | ~hit, when=chosen)
        self.lemma("hit", hit == of_job.any(), when=at_home & chosen)
        self.lemma("way that is hit", (way & ~of_job) == 0, when=at_home & chosen & hit)
        self.lemma("way that is free", (way & used) == 0, when=at_home & chosen & room & ~hit)
        shown = Cat(inside.lines.r_data[n].word.valid for n in range(STORE_WAYS))
        self.lemma("no way is free", shown.all(), when=chosen & ~room)
        bank_job = (job.region == row.region) & (job.bank == row.bank)
        self.lemma(
            "bank is shown",
            inside.outside.r_data == noted,
            when=bank_job & (is_in["CHOOSE"] | chosen),
        )
        self.lemma(
            "asks where words are",
            noted,
            when=bank_job & (is_in["ASK"] | is_in["ANSWER"]),
        )

        # Where the row's word is.
        writing = working & self.is_row(job) & job.write
        wants = Mux(self.job_keeps, self.job_word, 0)
        self.lemma("word wanted", held.as_value() == wants, when=writing)
        sending = self.busy & self.sent.write & self.mine
        below = Signal(WORD)
        sent = Signal(WORD)
        m.d.comb += [
            below.eq(self.below),
            sent.eq(self.sent.word),
        ]
        self.lemma("one line", (here & (here - 1)) == 0, when=ready)
        self.lemma("erased before it is asked", ~here.any(), when=writing & is_in["ASK"])
        self.lemma(
            "not here when asked", ~here.any(), when=self.read & (is_in["ASK"] | is_in["ANSWER"])
        )
        forgetting = self.purged & (is_in["FORGET"] | self.ended)
        certain = ready & self.sure & ~forgetting
        self.lemma("nothing below", ~below.valid & ~sending, when=certain & ~noted)
        quiet = certain & ~writing
        for n, line in enumerate(lines):
            self.lemma(
                f"word in way {n}",
                (line.word.as_value() == held.as_value()),
                when=quiet & here[n],
            )
        kept_below = noted & Mux(
            sending, sent.as_value() == held.as_value(), below.as_value() == held.as_value()
        )
        self.lemma("word is somewhere", here.any() | kept_below, when=quiet & held.valid)
        none_below = Mux(sending, ~sent.valid, ~below.valid)
        self.lemma("no word anywhere", ~here.any() & none_below, when=quiet & ~held.valid)
        self.lemma("held words are valid", held.valid | (held.as_value() == 0))

        # Purges.
        walk = inside.walk
        banks = is_in["FORGET"]
        self.lemma("walk", walk <= cfg.victim_sets)
        self.lemma(
            "regions walked",
            (inside.region >= inside.run.region) & (inside.region <= inside.run.last),
            when=banks & (inside.run.region <= inside.run.last),
        )
        self.lemma("set walked", shows, when=banks & (walk == home + 1))
        self.lemma("lines forgotten", ~here.any(), when=banks & self.purged & (walk > home + 1))
        self.lemma(
            "bank forgotten", ~noted, when=banks & self.purged & (inside.region > row.region)
        )
        self.lemma("forgets once all is told", ~(dut.o_lost.valid | self.busy), when=banks)
        gone = self.ended & self.purged
        self.lemma("purged", ~here.any() & ~noted & ~self.busy, when=gone)

        # Clearing.
        for n, (stored, known) in enumerate(sets):
            self.lemma(f"set {n} cleared", stored == 0, when=dut.clearing & known)
        self.lemma("banks cleared", ~noted, when=dut.clearing & noted_known)
        self.lemma(
            "nothing yet", ~held.valid & self.sure & ~below.valid & ~self.busy, when=dut.clearing
        )
