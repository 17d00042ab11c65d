# SPDX-License-Identifier: Apache-2.0
"""Promises of the walker that carries out software's orders
(``hub_rtl/scoreboard/region_walker.py``)."""

from amaranth import Cat, Const, Mux, Signal

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec, blocked, moves, one_of, same
from hub_rtl.contract.packets import OrderError, RegionOp
from hub_rtl.contract.records import types_of
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.region_walker import RegionWalker

__all__ = ["OrdersTakeTheirSteps"]


class _Walker(Spec):
    """RegionWalker with free inputs; an answer comes only after a question."""

    def build(self, m):
        self.types = scoreboard_types(self._cfg)
        self.dut = dut = RegionWalker(self._cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.is_in = self.inside.is_in
        self.free_inputs(dut)
        op = dut.o_op.payload
        self.taken, self.asked, self.answer = Signal(), Signal(), Signal()
        quiet = (OpKind.CLEAR, OpKind.PASS, OpKind.ORPHAN)
        m.d.comb += [
            self.taken.eq(moves(dut.o_op)),
            self.answer.eq(dut.result.valid & (dut.result.source == 1)),
        ]
        questions = self.taken & ~Cat(op.kind == kind for kind in quiet).any()
        m.d.sync += self.asked.eq(questions | (self.asked & ~self.answer))
        self.suppose("an answer follows a question", self.asked, when=self.answer)
        behind = self.is_in["ORPHANED"] & ~self.inside.asks
        self.lemma(
            "a question is open", self.asked == (self.among("ORDERED", "LOOKED", "FREED") | behind)
        )
        self.promise(m)

    def among(self, *names):
        """1 in one of these states."""
        return Cat(self.is_in[name] for name in names).any()


class OrdersTakeTheirSteps(_Walker):
    """An order is asked of the books once, and an error exactly if it names no region or they
    refuse it, with the reason; OPEN and FORGET are done then. RELEASE and ABORT of a region that a
    geometry has named as overflow region then ask each region once, in order, to end if it
    overflows there, and go on when a question behind the last is answered. They purge once; quiesce
    once, when no purge is going on; sweep once, when the writers are quiet; look at the book not
    before eight cycles after the combiners are swept, and not while the bank is judged; clear each
    tile of the capacity once, in order; tell the overflow region once if it has not been told, as a
    close, with the tell if that has not come before, and with abort if bytes came from there; free
    the bank; and are then ready for the next. All the while and two cycles longer the bank's events
    are killed. Beside waits for others, it does not stand still for more than 24 cycles."""

    def promise(self, m):
        cfg, dut, types, inside = self._cfg, self.dut, self.types, self.inside
        op, command = dut.o_op.payload, Signal(types_of(cfg).region_command)
        phase, age, cleared, told = Signal(4), Signal(4), Signal(len(inside.left)), Signal()
        book, shape = Signal(types.book), Signal(types.geometry)
        bank = command.epoch[0]
        accepted = moves(dut.i_command)
        unknown = command.region >= cfg.regions
        ends = one_of(command.op, RegionOp.RELEASE, RegionOp.ABORT)
        kinds = {OpKind(each): self.taken & (op.kind == each) & ~op.plain for each in OpKind}
        m.d.sync += age.eq(age + (age != 15))
        swept = Signal(4)  # cycles since the combiners were last seen to hold something old
        m.d.sync += swept.eq(Mux(dut.sweeping | dut.sweep, 0, swept + (swept != 15)))

        self.suppose(
            "nothing becomes old without a sweep",
            ~dut.sweeping,
            when=self.past(~dut.sweeping & ~dut.sweep, "swept_before"),
        )

        # Whether the region was named as an overflow region before its order was taken by the
        # books.
        over = self.constant(cfg.region_width, "over")
        named, names, named_then = Signal(), Signal(), Signal()
        orphans = Signal(cfg.region_width + 1)
        shape_write = dut.geometry_write
        self.suppose("no geometry while clearing", ~shape_write.en, when=dut.clearing)
        m.d.comb += names.eq(
            named
            | (
                shape_write.en
                & shape_write.geometry.overflow_en
                & (shape_write.geometry.overflow == over)
            )
        )
        m.d.sync += named.eq(names)
        word, known = known_word(self, inside.shared, over, "shared")
        self.lemma("named is kept", word == named, when=known)
        self.lemma("named before it is cleared", ~named, when=~known)

        def to(number, when):
            with m.If(when):
                m.d.sync += [
                    phase.eq(number),
                    age.eq(0),
                ]

        orders = (OpKind.OPEN, OpKind.RELEASE, OpKind.ABORT, OpKind.FORGET)
        order = Cat(kinds[each] for each in orders).any()
        with m.If(order):
            m.d.sync += named_then.eq(names & (command.region == over))
        with m.If(accepted):
            m.d.sync += [
                command.eq(dut.i_command.payload),
                cleared.eq(0),
                told.eq(0),
            ]
        to(1, accepted)
        to(0, (phase == 1) & unknown)
        to(2, order)
        to(Mux(dut.result.ok & ends, 3, 0), (phase == 2) & self.answer)
        with m.If(accepted):
            m.d.sync += orphans.eq(0)
        with m.If(kinds[OpKind.ORPHAN]):
            m.d.sync += orphans.eq(orphans + 1)
        to(11, kinds[OpKind.LOOK] & (phase == 3))
        to(12, (phase == 11) & self.answer)
        to(4, dut.purge.en)
        to(5, dut.quiesce)
        to(6, dut.sweep)
        to(7, kinds[OpKind.LOOK] & (phase == 6))
        with m.If((phase == 7) & self.answer):
            m.d.sync += [
                book.eq(dut.result.book),
                shape.eq(dut.result.geometry),
            ]
        to(8, (phase == 7) & self.answer)
        with m.If(kinds[OpKind.CLEAR]):
            m.d.sync += cleared.eq(cleared + 1)
        with m.If(kinds[OpKind.PASS]):
            m.d.sync += told.eq(1)
        to(9, kinds[OpKind.FREE])
        to(10, (phase == 9) & self.answer)
        to(0, (phase == 10) & (age == 1))

        rest = shape.capacity & ((1 << shape.log2_tile) - 1)
        tiles = (shape.capacity >> shape.log2_tile) + rest.any()
        owes = shape.overflow_en & ~book.passed
        mine = same(op, region=command.region, bank=bank, epoch=command.epoch, source=1)
        offers = {each: dut.o_op.valid & ~op.plain & (op.kind == each) for each in OpKind}
        ordering = Cat(offers[each] for each in orders).any()
        self.always(
            "an order is asked once, as it came",
            (phase == 1) & mine & ~unknown & (op.kind == OpKind.OPEN + command.op),
            when=ordering,
        )
        fails = ((phase == 1) & unknown) | ((phase == 2) & self.answer & ~dut.result.ok)
        self.always("an error when it fails", dut.command_error.en == fails)
        self.always("the error names the command", dut.command_error.command == command, when=fails)
        why = Mux(phase == 1, OrderError.UNKNOWN, dut.result.reason)
        self.always("and the reason", dut.command_error.reason == why, when=fails)
        self.always(
            "purge after the order",
            (one_of(phase, 3, 12))
            & (dut.purge.region == command.region)
            & (dut.purge.bank == bank),
            when=dut.purge.en,
        )
        self.always(
            "whoever overflows there is asked before the purge",
            phase == 12,
            when=dut.purge.en & named_then,
        )
        self.always(
            "each region is asked in its turn",
            (phase == 3)
            & (op.region == orphans)
            & (orphans < cfg.regions)
            & (op.bytes == command.region)
            & (op.bank == bank)
            & (op.epoch == command.epoch),
            when=offers[OpKind.ORPHAN],
        )
        self.always(
            "a question behind them",
            (orphans == cfg.regions) & mine,
            when=offers[OpKind.LOOK] & (phase == 3),
        )
        self.always(
            "quiesce after the purge", (phase == 4) & (age >= 2) & ~dut.purging, when=dut.quiesce
        )
        self.always(
            "sweep when the writers are quiet",
            (phase == 5) & (age >= 2) & ~dut.quiescing,
            when=dut.sweep,
        )
        judged = (
            dut.judging & (dut.judged_at.region == command.region) & (dut.judged_at.bank == bank)
        )
        look = offers[OpKind.LOOK] & (phase != 3)
        self.always(
            "look when everything has passed",
            (phase == 6) & mine & (swept >= 8),
            when=look & self.past(~look, "no_look_before"),
        )
        self.always(
            "and not while it is judged",
            ~self.past(judged, "judged_before"),
            when=look & self.past(~look, "no_look"),
        )
        self.always(
            "each tile is cleared in its turn",
            (phase == 8)
            & (cleared < tiles)
            & (op.bank == bank)
            & (op.group == (shape.group_base + cleared)[: cfg.group_width]),
            when=offers[OpKind.CLEAR],
        )
        self.always(
            "the overflow region is told once",
            (phase == 8)
            & (cleared == tiles)
            & owes
            & ~told
            & (op.region == shape.overflow)
            & (op.bank == bank)
            & same(op, close=1, tell=~book.promised, abort=book.touched)
            & (op.bytes == 0)
            & (op.rows == 0)
            & (op.epoch == command.epoch),
            when=offers[OpKind.PASS],
        )
        self.always(
            "free after all that",
            (phase == 8) & (cleared == tiles) & (told | ~owes) & mine,
            when=offers[OpKind.FREE],
        )
        known = (OpKind.LOOK, OpKind.ORPHAN, OpKind.CLEAR, OpKind.PASS, OpKind.FREE)
        asks = ordering | Cat(offers[each] for each in known).any()
        self.always("nothing else is asked", asks, when=dut.o_op.valid & ~op.plain)
        self.always("one order at a time", phase == 0, when=dut.i_command.ready)
        granted = (phase == 2) & self.answer & dut.result.ok & ends
        self.always(
            "killed from the grant to two cycles after the end",
            dut.kill.en & (dut.kill.region == command.region) & (dut.kill.bank == bank),
            when=(phase >= 3) | granted,
        )
        self.always("nothing else is killed", (phase >= 3) | granted, when=dut.kill.en)
        self.always_held(dut.o_op, "o_op")

        # Every wait is for somebody else: other cycles are few.
        others = (
            blocked(dut.o_op)
            | (self.asked & ~self.answer)
            | ((phase == 4) & dut.purging)
            | ((phase == 5) & dut.quiescing)
            | ((phase == 6) & (dut.sweeping | judged))
            | self.taken
        )
        idle = Signal(8)
        m.d.sync += idle.eq(Mux((phase == 0) | others, 0, idle + (idle != 255)))
        self.always("it goes on by itself", idle <= 24)

        # Lemmas: the phase is the state.
        states = {
            0: ("IDLE", "RANGE", "SHIFT", "COUNT", "WALK"),
            1: ("ORDER",),
            2: ("ORDERED",),
            3: ("PURGE", "ORPHAN", "ORPHANED"),
            4: ("PURGING",),
            5: ("QUIESCING",),
            6: ("SWEEPING", "FLUSHING", "LOOK"),
            7: ("LOOKED",),
            8: ("COUNT", "WALK", "TELL", "FREE"),
            9: ("FREED",),
            10: ("QUIET",),
            11: ("ORPHANED",),
            12: ("PURGE",),
        }
        for number, those in states.items():
            self.lemma(f"phase {number}", self.among(*those), when=phase == number)
        self.lemma(
            "asking them",
            (inside.primary == orphans) & (orphans < cfg.regions),
            when=self.is_in["ORPHAN"],
        )
        self.lemma(
            "all were asked", orphans == cfg.regions, when=self.is_in["ORPHANED"] | (phase == 12)
        )
        self.lemma("nobody was asked", orphans == 0, when=one_of(phase, 1, 2))
        self.lemma("it was looked up", inside.shared.r_data, when=(phase == 2) & named_then)
        self.lemma("nobody is to be asked", ~named_then, when=(phase == 3) & self.is_in["PURGE"])
        self.lemma("phases", (phase <= 12) & (inside.command == command))
        walks = self.among("RANGE", "SHIFT") | (self.among("COUNT", "WALK") & (phase == 0))
        self.lemma("a range", (phase == 0) & inside.of_range, when=walks)
        self.lemma("no range", ~inside.of_range, when=phase != 0)
        left, rest = inside.left, inside.rest
        counts = (phase == 8) & self.is_in["COUNT"]
        self.lemma(
            "the last tile",
            rest == (shape.capacity & ((1 << shape.log2_tile) - 1)).any(),
            when=counts,
        )
        asking = {
            "ORDER": ~unknown,
            "ORPHAN": 1,
            "ORPHANED": phase == 3,
            "LOOK": 1,
            "WALK": left != 0,
            "TELL": 1,
            "FREE": 1,
        }
        expected = sum((self.is_in[each] & now for each, now in asking.items()), Const(0, 1))
        self.lemma("asks as its state", inside.asks == expected)
        self.lemma(
            "the walk",
            (cleared + left + (rest & counts) == tiles)
            & (inside.tell == owes)
            & same(inside, abort=book.touched, promised=book.promised)
            & (inside.over_at == shape.overflow)
            & (inside.group == (shape.group_base + cleared)[: cfg.group_width]),
            when=phase == 8,
        )
        early = ((phase >= 1) & (phase <= 7)) | (phase >= 11)
        self.lemma("cleared before", cleared == 0, when=early)
        self.lemma("told at the end", ~told, when=early | ((phase == 8) & ~self.is_in["FREE"]))
        self.lemma(
            "nothing left",
            (left == 0) & (told == owes),
            when=(phase == 8) & self.is_in["FREE"],
        )
        self.lemma("telling", (left == 0) & owes, when=self.is_in["TELL"])
        waits = self.among("PURGING", "QUIESCING", "SWEEPING")
        self.lemma("settling", Mux(inside.wait == 0, age >= 2, inside.wait + age == 2), when=waits)
        self.lemma("flushing", swept + inside.wait >= 8, when=self.is_in["FLUSHING"])
        self.lemma("quiet", inside.wait + age == 1, when=self.is_in["QUIET"])
        self.lemma("flush", inside.wait <= 8)
        for state, steps in (
            ("ORDER", 1),
            ("ORDERED", 2),
            ("ORPHAN", 3),
            ("ORPHANED", 1),
            ("PURGE", 3),
            ("PURGING", 6),
            ("QUIESCING", 9),
            ("SWEEPING", 12),
            ("FLUSHING", 21),
            ("LOOK", 22),
            ("LOOKED", 3),
            ("COUNT", 4),
            ("WALK", 5),
            ("TELL", 6),
            ("FREE", 7),
            ("FREED", 3),
            ("QUIET", 4),
        ):
            others = state in ("PURGING", "QUIESCING", "SWEEPING", "FLUSHING")
            self.lemma(
                f"idle in state {state}",
                idle + (inside.wait if others else 0) <= steps,
                when=self.is_in[state] & (phase != 0),
            )
