# SPDX-License-Identifier: Apache-2.0
"""A model of one bank's book, written from docs/interfaces.md, section 8: what the RegionBooks must
know of it."""

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib.data import View

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.region_books import RegionBooks

__all__ = ["BooksSpec"]


class BooksSpec(Spec):
    """RegionBooks with free operations; one arbitrary (region, bank) is watched and kept in a model
    beside it.

    The model sees an operation two cycles after the books took it (``mine``, ``op``): then its
    effects show at the ports.
    """

    def build(self, m):
        cfg, types = self._cfg, scoreboard_types(self._cfg)
        self.dut = dut = RegionBooks(cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        self.region, self.bank = self.constant(cfg.region_width, "region"), self.constant(1, "bank")
        came = dut.i_op
        here = dut.i_valid & ~came.plain & (came.region == self.region) & (came.bank == self.bank)
        names_epoch = [
            OpKind.REFUSE,
            OpKind.NEWS,
            OpKind.PASS,
            OpKind.OPEN,
            OpKind.RELEASE,
            OpKind.ABORT,
            OpKind.FORGET,
        ]
        self.suppose(
            "the bank is the epoch's lowest bit",
            came.bank == came.epoch[0],
            when=dut.i_valid
            & ~came.plain
            & sum(
                (came.kind == kind for kind in names_epoch[1:]), came.kind == names_epoch[0]
            ).bool(),
        )
        self.suppose(
            "news come from ranks",
            came.src < cfg.ranks,
            when=dut.i_valid & (came.kind == OpKind.NEWS),
        )
        self.suppose(
            "only acknowledgements and CLEAR are plain",
            (came.kind == OpKind.ACK) | (came.kind == OpKind.CLEAR),
            when=dut.i_valid & came.plain,
        )
        self.suppose(
            "nothing comes while clearing", ~dut.i_valid & ~dut.geometry_write.en, when=dut.clearing
        )
        read = self.past(here, "read")
        between = Signal(types.op)
        self.mine = mine = self.past(read, "mine")
        self.op = op = Signal(types.op)
        self.hit, self.over, self.rows, self.held = (
            self.past(port, f"{name}1")
            for name, port in (
                ("hit", dut.hit),
                ("over", dut.over),
                ("rows", dut.rows),
                ("held", dut.held),
            )
        )
        m.d.sync += [
            between.eq(came),
            op.eq(between),
        ]
        self._geometry(m, inside.shapes)
        self._model(m, op, mine)
        self.suppose(
            "FREE is given to banks that are DONE",
            self.state == RegionState.DONE,
            when=self.does(OpKind.FREE),
        )

        place = Cat(self.bank, self.region)
        word, known = known_word(self, inside.books, place, "books")
        book = View(types.book, word)
        for field, model in self.book.items():
            self.lemma(f"{field} in books", book[field] == model, when=known)
            self.lemma(f"{field} starts as 0", Value.cast(model) == 0, when=~known)
        word, known = known_word(self, inside.shown, place, "shown")
        self.lemma("what is shown of it", word == self.shown(), when=known)
        for field, model in self.book.items():
            self.lemma(f"{field} at the change", inside.at.was[field] == model, when=mine)
        self._registers(inside.at, between)
        walks = [observe(ram).walk for ram in (inside.books, inside.shown)]
        self.lemma("both tables are cleared together", walks[0] == walks[1])
        rest = [
            model
            for field, model in self.book.items()
            if field not in ("epoch", "used", "taint", "tag", "held", "next")
        ]
        self.lemma("a FREE bank has nothing", ~Cat(rest).any(), when=~self.busy)
        self.lemma(
            "nothing of the next epoch", ~Cat(self.book["next"]).any(), when=~self.book["held"]
        )
        self.lemma("a state", self.state <= RegionState.DONE)
        self.lemma("a busy bank has been opened", self.book["used"], when=self.busy)
        account = self.book["account"]
        self.lemma(
            "news are seen", self.book["seen"], when=account.closes.any() | account.told.any()
        )
        self.promise(m)

    def shown(self):
        """What a query is to tell of the bank: a word of ``shown`` of
        :class:`~hub_rtl.scoreboard.records.ScoreboardTypes`."""
        types, book = scoreboard_types(self._cfg), self.book
        told = View(types.account, Mux(self.busy, book["account"], book["next"]))
        status = {
            "state": book["state"],
            "epoch": book["epoch"],
            "told": told.num_told,
            "closes": told.num_closes,
            "sent": told.sent,
            "acked": book["acked"],
            "refused": told.refused,
            "rows": told.brought,
            "error": book["status"],
            "blame": told.blame,
        }
        return Cat(
            *(status[name] for name, _ in types.shown["status"].shape), told.told, told.closes
        )

    def _registers(self, at, between):
        """What was found out about an operation before its change is true of it and of its book."""
        b, op = type("Book", (), self.book), self.op
        reading = self.past(self.dut.i_valid, "reading")
        valid = self.past(reading, "changing")
        for each, there, name in ((between, reading, "read"), (op, valid, "changed")):
            self.lemma(
                f"what is plain when {name}",
                (each.kind == OpKind.ACK) | (each.kind == OpKind.CLEAR),
                when=there & each.plain,
            )
        kinds = Cat(op.kind == kind for kind in (OpKind.ACK, OpKind.OVER)).any()
        self.lemma("plain as it came", at.op.plain == op.plain)
        self.lemma(
            "acknowledgements",
            Cat(at.acks, at.plain_ack) == Cat(valid & kinds & ~op.plain, valid & kinds & op.plain),
        )
        self.lemma(
            "news",
            at.news
            == (
                valid
                & Cat(op.kind == kind for kind in (OpKind.REFUSE, OpKind.NEWS, OpKind.PASS)).any()
            ),
        )
        for kind in OpKind:
            self.lemma(f"does {kind.name}", at.does[kind] == (valid & (op.kind == kind)))
        tag = op.epoch[1:]
        known = {
            "same": op.epoch == b.epoch,
            "current": self.current,
            "early": self.early,
            "mine": ~b.held | (b.tag == tag),
            "told": (op.kind == OpKind.NEWS) & self.old.told.bit_select(op.src, 1),
            "closed": (op.kind == OpKind.NEWS) & self.old.closes.bit_select(op.src, 1),
            "lost": b.taint.bit_select(tag, 1),
        }
        there = self.shape.overflow_en & (self.shape.overflow == op.bytes[: self._cfg.region_width])
        self.lemma("homeless", at.homeless == there, when=self.mine)
        for name, found in known.items():
            self.lemma(f"{name} at the change", at.fit[name] == found, when=self.mine)

    def _geometry(self, m, shapes):
        """Geometry of the region as an operation finds it: the last one written, at the latest in
        its own cycle."""
        write, types = self.dut.geometry_write, scoreboard_types(self._cfg)
        last = Signal(types.geometry)
        now = Signal(types.geometry)
        self.shape = Signal(types.geometry)
        m.d.comb += now.eq(last)
        with m.If(write.en & (write.region == self.region)):
            m.d.comb += [now[field].eq(write.geometry[field]) for field, _ in types.geometry]
            m.d.comb += now.valid.eq(write.geometry.valid & (write.geometry.row_bytes >= 16))
        read = Signal(types.geometry)
        m.d.sync += [
            last.eq(now),
            read.eq(now),
            self.shape.eq(read),
        ]
        word, known = known_word(self, shapes, self.region, "shapes")
        self.lemma("geometry", word == last.as_value(), when=known)
        self.lemma("no geometry yet", last.as_value() == 0, when=~known)

    def does(self, *kinds):
        """The operation at the model is of one of these kinds."""
        return (
            self.mine
            & sum((self.op.kind == kind for kind in kinds[1:]), self.op.kind == kinds[0]).bool()
        )

    def _model(self, m, op, mine):
        types = scoreboard_types(self._cfg)
        fields = [name for name, _ in types.book]
        self.book = book = {
            name: Signal(types.book[name].shape, name=f"model_{name}") for name in fields
        }
        b = type("Book", (), book)
        self.state, self.epoch, does = b.state, b.epoch, self.does

        self.busy, self.open, self.same = (
            b.state != RegionState.FREE,
            b.state == RegionState.OPEN,
            op.epoch == b.epoch,
        )
        self.current = self.busy & self.same
        ahead = Signal(4)
        m.d.comb += ahead.eq(op.epoch - b.epoch)
        self.early = ~b.used | ((ahead >= 1) & (ahead <= 7))
        self.news = does(OpKind.REFUSE, OpKind.NEWS, OpKind.PASS)
        belongs = self.belongs = Signal()
        m.d.comb += belongs.eq(
            self.news & (self.current | (self.early & (~b.held | (b.tag == op.epoch[1:]))))
        )
        self.old = View(types.account, Mux(self.current, b.account, b.next))
        self._announcements(does)
        self.lost = self.news & ~belongs  # dropped: it cannot be kept, or its epoch seems over
        self.acks = acks = does(OpKind.ACK, OpKind.OVER) & self.busy
        bad = op.mem | op.poison | self.over
        self.opens = opens = does(OpKind.OPEN) & ~self.busy & self.shape.valid & self.early
        self.forgets = forgets = does(OpKind.FORGET) & ~self.busy
        self.kept = kept = b.held & (b.tag == op.epoch[1:])
        self.late = opens & b.taint.bit_select(op.epoch[1:], 1)
        finish = does(OpKind.FINISH) & self.open & self.same
        self.all = finish & (op.status == 0)
        self.aims = does(OpKind.AIM) & self.open & self.same
        self.aborts = does(OpKind.ABORT) & self.busy & self.same
        self.releases = does(OpKind.RELEASE) & (b.state == RegionState.DONE) & self.same
        self.ready_tile = does(OpKind.ACK) & self.open & self.hit & ~bad
        # The last tile, not full: by the AIM that finds it there, or with the verdict.
        self.ready_rest = (self.aims & self.hit) | (self.all & op.part & ~b.rest)
        # The overflow region is given back in this epoch: nothing can lie there, nothing is told
        # there, any more.
        self.orphaned = (
            does(OpKind.ORPHAN)
            & self.busy
            & self.same
            & self.shape.overflow_en
            & (self.shape.overflow == op.bytes[: self._cfg.region_width])
        )

        # Why a bank ends in ERROR; a bank ends once.
        ill = self.closes & self.current & self.open
        causes = [
            (acks & self.open & op.mem, Reason.MEM_ERROR),
            (acks & self.open & self.over, Reason.OVERLAP),
            (acks & self.open & op.poison, Reason.INCOMPLETE),
            (ill & op.abort, Reason.INCOMPLETE),
            (ill & op.exceeds, Reason.OVERLAP),
            (does(OpKind.OVERLAP) & self.open, Reason.OVERLAP),
            (self.orphaned & self.open, Reason.INCOMPLETE),
            (self.late, Reason.EPOCH_EARLY),
            (opens & kept & b.next.broken & b.next.exceeded, Reason.OVERLAP),
            (opens & kept & b.next.broken, Reason.INCOMPLETE),
            (finish & (op.status != 0), op.status),
        ]
        self.error = Signal()
        self.reason = Signal(4)
        for cause, reason in reversed(causes):
            with m.If(cause):
                m.d.comb += [
                    self.error.eq(1),
                    self.reason.eq(reason),
                ]

        moves = self.moves = Signal()
        m.d.comb += moves.eq((self.stands & self.current) | acks)
        with m.If(acks):
            m.d.sync += b.acked.eq(b.acked + op.bytes)
            with m.If(op.kind == OpKind.OVER):
                m.d.sync += [
                    b.over.eq(b.over + op.bytes),
                    b.touched.eq(1),
                ]
        with m.If(self.ready_tile):
            m.d.sync += b.tiles.eq(b.tiles + 1)
        with m.If(belongs & self.current):
            self._write_down(m, op, b.account)
        with m.If(self.restates):
            m.d.sync += [
                b.looked.eq(0),
                b.aim.known.eq(0),
            ]
        with m.If(belongs & ~self.current):
            self._write_down(m, op, b.next)
            m.d.sync += [
                b.held.eq(1),
                b.tag.eq(op.epoch[1:]),
            ]
        with m.If(does(OpKind.LOOK) & self.open & (op.source == 0)):
            m.d.sync += b.looked.eq(1)
        with m.If(self.aims):
            m.d.sync += [
                b.rest.eq(b.rest | self.hit),
                b.promised.eq(b.promised | op.tell),
            ]
            with m.If(b.looked):
                m.d.sync += b.aim.known.eq(1)
                m.d.sync += [b.aim[name].eq(op[name]) for name, _ in types.aim if name != "known"]
        with m.If(self.lost):
            m.d.sync += b.taint.bit_select(op.epoch[1:], 1).eq(1)
        with m.If(moves):
            m.d.sync += [
                b.moved.eq(1),
                b.seen.eq(1),
            ]
        self.ousted = b.held & (forgets | (opens & ~kept))
        with m.If(forgets):  # never opened, but for what was lost
            m.d.sync += [book[name].eq(0) for name in fields if name != "taint"]
            with m.If(b.held):
                m.d.sync += b.taint.bit_select(b.tag, 1).eq(1)
        with m.If(opens):  # nothing of another epoch stays but that it was lost
            m.d.sync += [book[name].eq(0) for name in fields if name != "taint"]
            m.d.sync += [
                b.state.eq(RegionState.OPEN),
                b.epoch.eq(op.epoch),
                b.used.eq(1),
            ]
            with m.If(kept):
                m.d.sync += [
                    b.account.eq(b.next),
                    b.seen.eq(1),
                    b.moved.eq(1),
                ]
            for n in range(
                8
            ):  # epochs that are 1 to 7 ahead of the new one; all others of the first one
                distance = Signal(3, name=f"distance_{n}")
                m.d.comb += distance.eq(n - op.epoch[1:])
                lost = b.taint[n] | (b.held & (b.tag == n))
                m.d.sync += b.taint[n].eq(lost & (distance >= 1) & ((distance <= 3) | ~b.used))
        with m.If(self.all):
            m.d.sync += [
                b.state.eq(RegionState.DONE),
                b.passed.eq(1),
                b.account.brought.eq(op.rows),
            ]
        with m.If(self.error):
            m.d.sync += [
                b.state.eq(RegionState.DONE),
                b.status.eq(self.reason),
            ]
        with m.If(self.aborts):
            m.d.sync += b.state.eq(RegionState.DONE)
        with m.If(self.orphaned):
            m.d.sync += b.passed.eq(1)
        with m.If(does(OpKind.FREE)):
            history = ("epoch", "used", "taint", "held", "tag", "next")
            m.d.sync += [book[name].eq(0) for name in fields if name not in history]
        # The stall clock: four ticks without motion after the one that saw the last.
        self.stalled = Signal()
        with m.If(does(OpKind.TICK) & self.open & b.seen):
            with m.If(b.moved):
                m.d.sync += [
                    b.moved.eq(0),
                    b.ticks.eq(0),
                    b.reported.eq(0),
                ]
            with m.Elif(~b.reported):
                m.d.comb += self.stalled.eq(b.ticks == 3)
                m.d.sync += [
                    b.ticks.eq(b.ticks + 1),
                    b.reported.eq(b.ticks == 3),
                ]

    def _announcements(self, does):
        """What an operation says for the first time, and what it repeats; a primary says each
        thing once."""
        op, old, outer = self.op, self.old, does(OpKind.NEWS)
        known, gone = old.told.bit_select(op.src, 1), old.closes.bit_select(op.src, 1)
        says = self.belongs & does(OpKind.NEWS, OpKind.PASS)
        self.told_twice, self.twice = (
            outer & self.belongs & op.tell & known,
            outer & self.belongs & op.close & gone,
        )
        self.tells = says & op.tell & ~self.told_twice
        self.closes = says & op.close & ~self.twice
        self.stands = (self.belongs & does(OpKind.REFUSE)) | self.tells | self.closes
        # What the aim rests on: what was told and what was refused.
        self.restates = ((self.belongs & does(OpKind.REFUSE)) | self.tells) & self.current

    def _write_down(self, m, op, account):
        """What news change in their account."""
        outer = op.kind == OpKind.NEWS
        broken = self.closes & (op.abort | op.exceeds)
        with m.If(op.kind == OpKind.REFUSE):
            m.d.sync += account.refused.eq(account.refused + op.bytes)
        with m.If(self.tells):
            m.d.sync += [
                account.num_told.eq(account.num_told + 1),
                account.sent.eq(account.sent + op.bytes),
            ]
        with m.If(self.tells & outer):
            m.d.sync += account.told.bit_select(op.src, 1).eq(1)
        with m.If(self.closes):
            m.d.sync += [
                account.num_closes.eq(account.num_closes + 1),
                account.brought.eq(account.brought + op.rows),
            ]
        with m.If(self.closes & outer):
            m.d.sync += account.closes.bit_select(op.src, 1).eq(1)
        with m.If(broken):
            m.d.sync += account.broken.eq(1)
        with m.If(broken & ~account.broken):
            m.d.sync += account.exceeded.eq(~op.abort)
        with m.If(broken & outer & ~account.blame.valid):
            m.d.sync += [
                account.blame.valid.eq(1),
                account.blame.rank.eq(op.src),
            ]
