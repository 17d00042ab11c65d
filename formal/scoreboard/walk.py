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

ORDERS = (OpKind.OPEN, OpKind.RELEASE, OpKind.ABORT, OpKind.FORGET)
QUIET = (OpKind.CLEAR, OpKind.PASS, OpKind.ORPHAN)  # not answered


class _Walker(Spec):
    """RegionWalker with free inputs. Its questions are followed: those without an answer are of one
    kind and of neighbouring regions, and are answered in their order."""

    def build(self, m):
        cfg, self.types = self._cfg, scoreboard_types(self._cfg)
        self.dut = dut = RegionWalker(cfg)
        m.submodules.dut = dut
        self.inside = inside = observe(dut)
        self.is_in = inside.is_in
        self.free_inputs(dut)
        op = dut.o_op.payload
        self.taken = Signal()
        self.answer = Signal()
        asks = Signal()
        self.asked = Signal(cfg.region_width + 1)  # questions without an answer
        self.head = Signal(cfg.region_width)  # the first of them
        self.kind = Signal.like(op.kind)
        m.d.comb += [
            self.taken.eq(moves(dut.o_op)),
            self.answer.eq(dut.result.valid & (dut.result.source == 1)),
            asks.eq(self.taken & ~one_of(op.kind, *QUIET)),
        ]
        m.d.sync += self.asked.eq(self.asked + asks - self.answer)
        with m.If(self.answer):
            m.d.sync += self.head.eq(self.head + 1)
        with m.If(asks & (self.asked == 0)):
            m.d.sync += [
                self.head.eq(op.region),
                self.kind.eq(op.kind),
            ]
        self.suppose("an answer follows a question", self.asked != 0, when=self.answer)
        self.always(
            "questions of one kind, region by region",
            (op.kind == self.kind) & (op.region == (self.head + self.asked)[: len(op.region)]),
            when=asks & (self.asked != 0),
        )
        self.lemma("questions are counted", inside.pending == self.asked)
        self.promise(m)

    def among(self, *names):
        """1 in one of these states."""
        return Cat(self.is_in[name] for name in names).any()


class OrdersTakeTheirSteps(_Walker):
    """An order to a range is asked of the books region by region, as it came. For any region of it:
    it is an error exactly if the books refused it last, with their reason, and otherwise done at
    the end, once: OPEN and FORGET by the books' answer. RELEASE and ABORT: what is purged was
    granted last; a region that a geometry has named as overflow region is purged alone, after each
    region was asked, in order, to end if it overflows there, and a question behind the last was
    answered. The walker purges a run once; quiesces once, when no purge is going on; sweeps once,
    when the writers are quiet; goes on not before eight cycles after the combiners are swept, and
    not while a bank of the run is judged; looks at the book of a bank that has an overflow region;
    clears each tile of the capacity once, in order; tells the overflow region once if it has not
    been told, as a close, with the tell if that has not come before, and with abort if bytes came
    from there; frees the bank; and with ``again`` asks to open exactly the banks that it has freed,
    for the epoch two further. From the grant to two cycles after the end a bank's events are
    killed, and no other's. Beside waits for others, it does not stand still for more than 24
    cycles.

    Followed: one region; the others do as they may. Its geometry rests while it is given back."""

    def promise(self, m):
        cfg, dut, inside = self._cfg, self.dut, self.inside
        self.op, self.run = dut.o_op.payload, inside.run
        op = self.op
        self.command = command = Signal(types_of(cfg).region_order)
        self.region = region = self.constant(cfg.region_width, "region")
        self.suppose("a region", region < cfg.regions)
        given = dut.i_command.payload
        self.suppose("a range goes up", given.region <= given.last, when=dut.i_command.valid)
        bank = command.epoch[0]
        self.accepted = accepted = moves(dut.i_command)
        self.unknown = command.last >= cfg.regions
        self.ends = ends = one_of(command.op, RegionOp.RELEASE, RegionOp.ABORT)
        self.kinds = kinds = {
            OpKind(each): self.taken & (op.kind == each) & ~op.plain for each in OpKind
        }
        self.offers = {each: dut.o_op.valid & ~op.plain & (op.kind == each) for each in OpKind}
        self.ordering = Cat(self.offers[each] for each in ORDERS).any()
        busy = Signal()
        again = inside.opens
        with m.If(accepted):
            m.d.sync += [
                command.eq(dut.i_command.payload),
                busy.eq(1),
            ]
        with m.Elif(dut.i_command.ready):
            m.d.sync += busy.eq(0)
        self.busy = busy

        # What became of the followed region in this order.
        names = (
            *("granted", "over", "purged", "freed", "refused", "done"),
            *("opened", "looked", "told", "emptied"),
        )
        now = {name: Signal(name=f"is_{name}") for name in names}
        self.now = now
        ours = (op.region == region) & ~op.plain
        heard = self.answer & (self.head == region) & one_of(self.kind, *ORDERS)
        covers = (dut.purge.region <= region) & (region <= dut.purge.last)
        purged = dut.purge.en & covers
        error = dut.command_error
        freed = kinds[OpKind.FREE] & ours
        with m.If(heard & ~again):
            m.d.sync += [
                now["granted"].eq(dut.result.ok & ends),
                now["over"].eq(dut.result.geometry.overflow_en),
                now["done"].eq(dut.result.ok & ~ends),
            ]
        with m.If(heard & again):
            m.d.sync += now["opened"].eq(1)
        for name, when in (("purged", purged), ("freed", freed)):
            with m.If(when):
                m.d.sync += now[name].eq(1)
        with m.If(error.en & (error.command.region == region) & ~again):
            m.d.sync += now["refused"].eq(1)
        with m.If(accepted):
            m.d.sync += [each.eq(0) for each in now.values()]

        # Its tiles.
        shape = Signal.like(inside.shapes.r_data)
        write = dut.geometry_write
        with m.If(write.en & (write.region == region)):
            m.d.sync += [
                shape.base.eq(write.geometry.group_base),
                shape.full.eq(write.geometry.capacity >> write.geometry.log2_tile),
                shape.rest.eq(
                    (write.geometry.capacity & ((1 << write.geometry.log2_tile) - 1)).any()
                ),
            ]
        self.suppose("no geometry while clearing", ~write.en, when=dut.clearing)
        self.suppose(
            "geometry rests while its bank is given back",
            ~now["purged"] | now["freed"],
            when=write.en & (write.region == region),
        )
        cleared = Signal(len(inside.left))
        tiles = Signal(len(inside.left))
        m.d.comb += tiles.eq(shape.full + shape.rest)
        with m.If(accepted):
            m.d.sync += cleared.eq(0)
        with m.If(kinds[OpKind.CLEAR] & ours):
            m.d.sync += cleared.eq(cleared + 1)
        self.shape, self.cleared, self.tiles = shape, cleared, tiles

        self._asking(heard)
        self._emptying(m, purged, covers, bank)
        self._freeing(m, freed, bank)
        self._killing(m, heard, purged, bank)
        self.always("one order at a time", ~self.between, when=dut.i_command.ready)
        self.always_held(dut.o_op, "o_op")
        self._lemmas(m)
        self._going_on(m)

    def _asking(self, heard):
        """What is asked of the books, and errors."""
        dut, op, command, region, now = self.dut, self.op, self.command, self.region, self.now
        error, again = self.dut.command_error, self.inside.opens
        inside = (command.region <= op.region) & (op.region <= command.last) & ~self.unknown
        self.always(
            "an order is asked as it came",
            inside
            & same(op, bank=command.epoch[0], source=1)
            & (op.kind == Mux(again, OpKind.OPEN, OpKind.OPEN + command.op))
            & (op.epoch == (command.epoch + (again << 1))[: len(op.epoch)]),
            when=self.ordering & self.busy,
        )
        self.always("orders are asked in an order", self.busy, when=self.ordering)
        whole = self.is_in["ORDER"] & self.unknown
        self.always(
            "an error when it is refused",
            error.en == (whole | (self.answer & ~dut.result.ok & self._first_to_fail())),
        )
        self.always(
            "the error names the region and the order",
            (error.command.region == Mux(whole, command.region, self.head))
            & (error.command.op == Mux(again, RegionOp.OPEN, command.op))
            & (error.command.epoch == (command.epoch + (again << 1))[:4])
            & (error.reason == Mux(whole, OrderError.UNKNOWN, dut.result.reason)),
            when=error.en,
        )
        mine = (command.region <= region) & (region <= command.last) & ~self.unknown
        self.settled = settled = Mux(
            self.ends, now["freed"] | now["refused"], now["done"] | now["refused"]
        )
        self.always(
            "at the end it is done, or an error",
            settled & (now["opened"] == (now["freed"] & command.again)),
            when=dut.i_command.ready & self.busy & mine,
        )
        self.always("one of them", ~(now["freed"] & now["refused"]), when=self.busy)
        opens = self.ordering & again & (op.region == region)
        self.always(
            "only what was freed is opened again, once",
            now["freed"] & ~now["opened"] & command.again,
            when=opens,
        )

    def _first_to_fail(self):
        """The refusal is not one behind a run, or behind another one, which is asked again."""
        run, inside = self.run, self.inside
        orders = self.among("ORDER", "ORDERED")
        return orders & ~(self.ends & ~inside.opens & (run.some | run.stop))

    def _emptying(self, m, purged, covers, bank):
        """Purge, quiesce, sweep."""
        cfg, dut, run, now = self._cfg, self.dut, self.run, self.now
        op, command, region, kinds = self.op, self.command, self.region, self.kinds
        self.phase = phase = Signal(4)
        self.age = age = Signal(4)
        m.d.sync += age.eq(age + (age != 15))
        self.swept = swept = Signal(4)  # cycles since the combiners last held something old
        m.d.sync += swept.eq(Mux(dut.sweeping | dut.sweep, 0, swept + (swept != 15)))
        self.suppose(
            "nothing becomes old without a sweep",
            ~dut.sweeping,
            when=self.past(~dut.sweeping & ~dut.sweep, "swept_before"),
        )

        def to(number, when):
            with m.If(when):
                m.d.sync += [
                    phase.eq(number),
                    age.eq(0),
                ]

        first = run.first
        to(2, kinds[OpKind.LOOK] & (phase == 1))
        to(3, (phase == 2) & self.answer)
        self.orphans = orphans = Signal(cfg.region_width + 1)
        with m.If(self.ordering):
            m.d.sync += orphans.eq(0)
        with m.If(kinds[OpKind.ORPHAN]):
            m.d.sync += orphans.eq(orphans + 1)
        to(1, kinds[OpKind.ORPHAN])
        to(4, dut.purge.en)
        to(5, dut.quiesce)
        to(6, dut.sweep)
        goes_on = Cat(kinds[each] for each in (OpKind.CLEAR, OpKind.FREE)).any()
        to(7, kinds[OpKind.LOOK] & (phase == 6))
        to(8, goes_on)
        self.freed_all = (phase == 8) & self.is_in["FREED"] & (self.asked == 0)
        to(9, self.freed_all)
        to(0, (phase == 9) & (age == 1))
        self.between = (phase != 0) | self.is_in["PURGE"]

        # Whether it was named as an overflow region before its order was taken by the books.
        named = Signal()
        names = Signal()
        self.named_then = Signal()
        shape_write = dut.geometry_write
        m.d.comb += names.eq(
            named
            | (
                shape_write.en
                & shape_write.geometry.overflow_en
                & (shape_write.geometry.overflow == region)
            )
        )
        m.d.sync += named.eq(names)
        with m.If(self.ordering & self.taken & (op.region == region)):
            m.d.sync += self.named_then.eq(names)
        word, known = known_word(self, observe(run).shared, region, "shared")
        self.lemma("named is kept", word == named, when=known)
        self.lemma("named before it is cleared", ~named, when=~known)
        self.named = named

        self.always(
            "what is purged was granted, and nothing is asked",
            now["granted"] & ~now["freed"] & ~now["refused"] & (self.asked == 0) & self.ends,
            when=purged & self.busy,
        )
        self.always(
            "a run of the order",
            self.busy
            & (dut.purge.bank == bank)
            & (command.region <= dut.purge.region)
            & (dut.purge.region <= dut.purge.last)
            & (dut.purge.last <= command.last),
            when=dut.purge.en,
        )
        self.always(
            "who shares its memory is purged alone",
            dut.purge.region == dut.purge.last,
            when=purged & (self.named_then | now["over"]),
        )
        self.always(
            "whoever overflows there is asked before the purge",
            phase == 3,
            when=purged & self.named_then,
        )
        self.always(
            "each region is asked in its turn",
            one_of(phase, 0, 1)
            & (op.region == orphans)
            & (orphans < cfg.regions)
            & (op.bytes == first)
            & (op.bank == bank)
            & (op.epoch == command.epoch),
            when=self.offers[OpKind.ORPHAN],
        )
        self.always(
            "a question behind them",
            (orphans == cfg.regions)
            & same(op, region=first, bank=bank, epoch=command.epoch, source=1),
            when=self.offers[OpKind.LOOK] & (phase < 4),
        )
        self.always(
            "quiesce after the purge", (phase == 4) & (age >= 2) & ~dut.purging, when=dut.quiesce
        )
        self.always(
            "sweep when the writers are quiet",
            (phase == 5) & (age >= 3) & self.past(~dut.quiescing, "quiet_before"),
            when=dut.sweep,
        )
        at = dut.judged_at
        judged = dut.judging & (run.first <= at.region) & (at.region <= run.final)
        self.judged = judged = judged & (at.bank == bank)
        calm = self.past(~judged, "calm")
        goes = self.is_in["LOOK"] | self.is_in["LOAD"]
        self.always(
            "it goes on when everything has passed, and not while it is judged",
            calm & (swept >= 8),
            when=goes & (phase == 6) & self.past(self.is_in["FLUSHING"], "flushed"),
        )

    def _freeing(self, m, freed, bank):
        """Tiles, the overflow region, FREE."""
        dut, op, command, run = self.dut, self.op, self.command, self.run
        now, region, phase, kinds = self.now, self.region, self.phase, self.kinds
        book = Signal(self.types.book)
        over_at = Signal(len(region))
        self.book, self.over_at = book, over_at
        with m.If((phase == 7) & self.answer):
            m.d.sync += [
                book.eq(dut.result.book),
                over_at.eq(dut.result.geometry.overflow),
            ]
        with m.If((phase == 7) & self.answer & (run.first == region)):
            m.d.sync += now["looked"].eq(1)
        told = kinds[OpKind.PASS] & (run.first == region)
        with m.If(told):
            m.d.sync += now["told"].eq(1)
        ours = op.region == region
        here = now["purged"] & ~now["freed"] & one_of(phase, 6, 7, 8) & (self.swept >= 8)
        self.owes = owes = now["looked"] & ~book.passed
        self.always(
            "each tile is cleared in its turn",
            here
            & (self.cleared < self.tiles)
            & (op.bank == bank)
            & (op.group == (self.shape.base + self.cleared)[: len(op.group)]),
            when=self.offers[OpKind.CLEAR] & ours,
        )
        self.always(
            "the overflow region is told once",
            here
            & (self.cleared == self.tiles)
            & owes
            & ~now["told"]
            & (op.region == over_at)
            & (op.bank == bank)
            & same(op, close=1, tell=~book.promised, abort=book.touched)
            & (op.bytes == 0)
            & (op.rows == 0)
            & (op.epoch == command.epoch),
            when=self.offers[OpKind.PASS] & (run.first == region),
        )
        self.always(
            "free after all that",
            here
            & (self.cleared == self.tiles)
            & (now["told"] | ~owes)
            & (now["looked"] | ~now["over"])
            & same(op, bank=bank, epoch=command.epoch, source=1),
            when=self.offers[OpKind.FREE] & ours,
        )
        known = (*ORDERS, OpKind.LOOK, OpKind.ORPHAN, OpKind.CLEAR, OpKind.PASS, OpKind.FREE)
        asks = Cat(self.offers[each] for each in known).any()
        self.always("nothing else is asked", asks, when=dut.o_op.valid & ~op.plain)

    def _killing(self, m, heard, purged, bank):
        """Events of what is given back."""
        dut, region, now = self.dut, self.region, self.now
        kill = Signal()
        m.d.comb += kill.eq(dut.kill.en & (dut.kill.region <= region) & (region <= dut.kill.last))
        # From the purge until its run is through.
        given = Signal()
        through = (self.phase == 9) & (self.age == 1)
        m.d.sync += given.eq((given | purged) & ~through)
        self.given = given
        self.always("killed from the purge to two cycles after the end", kill, when=given | purged)
        self.always("of that bank", dut.kill.bank == bank, when=dut.kill.en)
        granted = heard & dut.result.ok & self.ends & ~self.inside.opens
        before = self.past(kill, "killed_before")
        self.always("a kill begins with its grant", granted, when=kill & ~before)
        self.always("nothing else is killed", now["granted"] | granted, when=kill)
        self.kill = kill

    def _lemmas(self, m):
        """Where the walker is."""
        cfg, inside, run = self._cfg, self.inside, self.run
        command, region, now, phase = self.command, self.region, self.now, self.phase
        at, age, swept, of_range = inside.at, self.age, self.swept, inside.of_range
        orders = self.among("ORDER", "ORDERED")
        asks = inside.asks
        first, final, heard, some = run.first, run.final, run.heard, run.some
        walks = self.among("LOAD", "FREE", "TELL") | (self.is_in["WALK"] & ~of_range)
        emptied = self.among("PURGING", "QUIESCING", "SWEEP", "SWEEPING", "FLUSHING")
        drained = emptied | self.among("LOOK", "LOOKED")
        empties = self.among("ORPHAN", "ORPHANED", "PURGE") | drained | walks
        ends = empties | self.among("FREED", "QUIET")
        self.rests = rests = self.among("IDLE", "RANGE") | (self.is_in["WALK"] & of_range)
        self.lemma("a state", self.among(*self.is_in))
        self.lemma("idle is idle", of_range | ~self.among("RANGE"), when=~self.busy)
        self.lemma("the order", inside.command == command, when=self.busy)
        self.lemma("an order is under way", self.busy, when=orders | ends)
        self.lemma("nothing is", self.is_in["IDLE"] | of_range, when=~self.busy)
        self.lemma("no dependency range in an order", ~of_range, when=orders | ends)
        self.lemma(
            "a dependency range", of_range, when=self.is_in["RANGE"] | (self.is_in["WALK"] & ~walks)
        )
        self.lemma(
            "of the order", ~self.unknown, when=(orders & asks) | self.is_in["ORDERED"] | ends
        )
        self.lemma("asked in its states", ~self.is_in["ORDER"] | asks | self.unknown)
        self.lemma("known at once", (self.asked == 0) & ~inside.opens, when=orders & self.unknown)
        bounds = (command.region <= first) & (first <= command.last)
        self.lemma("a run of it", bounds, when=(orders & ~self.unknown) | ends)
        last = Mux(inside.opens, final, command.last)
        self.lemma(
            "asking",
            (self.asked == (at - heard)[: len(self.asked)])
            & (first <= heard)
            & (heard <= at)
            & (at <= last + self.is_in["ORDERED"]),
            when=orders & ~self.unknown,
        )
        self.lemma(
            "asked",
            (at == last + 1) | run.stop,
            when=self.is_in["ORDERED"] & ~(inside.opens & run.stop),
        )
        self.lemma("no stop", ~run.stop, when=inside.opens & orders | ~self.ends & self.busy)
        self.lemma(
            "who is asked",
            (self.head == heard)
            & (self.kind == Mux(inside.opens, OpKind.OPEN, OpKind.OPEN + command.op)),
            when=orders & (self.asked != 0),
        )
        self.lemma("a run", some == (ends | (orders & some & ~inside.opens)))
        self.lemma(
            "its banks",
            (first <= final) & (final < heard),
            when=orders & some,
        )
        self.lemma("the banks given back", (first <= final) & (final <= command.last), when=ends)
        self.lemma(
            "those of again", (first <= final) & (final <= command.last), when=inside.opens & orders
        )
        self.lemma("ends with banks", self.ends, when=ends | some | inside.opens)
        self.lemma("opens in orders", command.again & ~some, when=inside.opens & (orders | ends))
        self.lemma("opens no more", ~inside.opens, when=rests | ends)
        self.lemma("contiguous", run.stop | (final == heard - 1), when=orders & some)
        self.lemma(
            "none yet", run.stop | (first == heard), when=orders & ~some & self.ends & ~inside.opens
        )
        self.lemma("alone", first == final, when=(some | ends) & run.alone)
        self.lemma("hosts and others are alone", run.alone, when=some & (run.hosts | run.over))

        # The followed region.
        mine = (command.region <= region) & (region <= command.last)
        in_run = (first <= region) & (region <= final)
        plain = orders & ~inside.opens
        later = Cat(now[name] for name in ("purged", "freed", "opened")).any()
        self.lemma(
            "nothing of it yet", ~later, when=self.busy & ((plain & (region >= first)) | ~mine)
        )
        fails = self.ends & (first == region) & run.stop & ~some
        self.lemma("it is refused", now["refused"], when=plain & mine & fails)
        self.lemma(
            "it is not refused",
            ~now["refused"],
            when=self.busy & (~mine | (plain & ~fails & (region >= Mux(self.ends, first, heard)))),
        )
        self.lemma("nothing but an order", ~later, when=self.busy & ~self.ends)
        self.lemma(
            "behind",
            ~later & ~now["refused"],
            when=(ends | (orders & inside.opens)) & (region > final),
        )
        self.lemma("ends it is", ~now["done"], when=self.ends)
        self.lemma(
            "done",
            now["done"] | now["refused"],
            when=~self.ends & plain & mine & (region < heard) & self.busy & ~self.unknown,
        )
        self.lemma(
            "in front",
            (now["refused"] | now["freed"]) & (now["opened"] == (now["freed"] & command.again)),
            when=self.busy & self.ends & mine & (region < first) & (orders | ends) & ~self.unknown,
        )
        self.lemma(
            "settled",
            self.settled & (now["opened"] == (now["freed"] & command.again)),
            when=rests & self.busy & mine & ~self.unknown,
        )
        self.lemma("one of both", ~(now["refused"] & now["freed"]))
        self.lemma("granted", now["granted"], when=(some | ends) & in_run & self.busy)
        self.lemma(
            "freed",
            now["freed"] & (now["opened"] == (region < heard)) & ~now["refused"],
            when=inside.opens & orders & in_run,
        )
        self.lemma("to be opened", ~now["opened"] & ~now["refused"], when=ends & in_run)
        self.lemma(
            "purged",
            now["purged"] == ~self.among("ORPHAN", "ORPHANED", "PURGE"),
            when=ends & in_run,
        )
        self.lemma("walking", (first <= at) & (at <= final), when=walks)
        self.lemma(
            "at the first",
            at == first,
            when=drained | self.among("ORPHAN", "ORPHANED", "PURGE", "LOAD"),
        )
        self.lemma(
            "walked",
            now["freed"] == ((walks & (region < at)) | self.among("FREED", "QUIET")),
            when=ends & in_run,
        )
        self.lemma("shared", ~self.named_then | run.hosts, when=(some | ends) & (first == region))
        self.lemma(
            "not shared",
            ~self.named_then & ~now["over"],
            when=(some | ends) & in_run & (first != final),
        )
        self.lemma("has one", run.over == now["over"], when=(some | ends) & (first == region))
        shared = observe(run).shared
        self.lemma("one ahead", self.past(shared.r_addr, "looks_at") == heard)
        self.lemma("it was named", ~self.named_then | self.named)

        # The steps.
        self.lemma("no phase", phase == 0, when=orders | rests)
        steps = {
            0: ("ORPHAN", "PURGE"),
            1: ("ORPHAN", "ORPHANED"),
            2: ("ORPHANED",),
            3: ("PURGE",),
            4: ("PURGING",),
            5: ("QUIESCING", "SWEEP"),
            6: ("SWEEPING", "FLUSHING", "LOOK", "LOAD", "WALK", "FREE"),
            7: ("LOOKED", "LOAD", "WALK", "TELL", "FREE"),
            8: ("WALK", "TELL", "FREE", "FREED"),
            9: ("QUIET",),
        }
        for number, those in steps.items():
            self.lemma(f"phase {number}", self.among(*those), when=(phase == number) & ends)
        self.lemma("phases", phase <= 9)
        self.lemma(
            "hosts", run.hosts, when=self.among("ORPHAN", "ORPHANED") | one_of(phase, 1, 2, 3)
        )
        self.lemma("none was asked", self.orphans == 0, when=self.is_in["ORDERED"])
        self.lemma("hosts are asked", (phase == 3) | ~run.hosts, when=self.is_in["PURGE"])
        self.lemma(
            "asking them",
            (inside.primary == self.orphans)
            & (self.orphans < cfg.regions)
            & ((phase == 1) == (self.orphans != 0))
            & asks,
            when=self.is_in["ORPHAN"],
        )
        self.lemma(
            "all were asked",
            self.orphans == cfg.regions,
            when=one_of(phase, 2, 3) | self.is_in["ORPHANED"],
        )
        self.lemma("asked behind", (phase == 2) == ~asks, when=self.is_in["ORPHANED"])
        asked = Const(0, 1) | (self.is_in["ORPHANED"] & ~asks) | self.is_in["LOOKED"]
        self.lemma(
            "one question",
            self.asked == asked,
            when=self.among("ORPHAN", "ORPHANED", "PURGE", "LOAD", "QUIET") | drained | rests,
        )
        self.lemma("about the first", (self.head == first) & (self.kind == OpKind.LOOK), when=asked)
        self.lemma(
            "frees",
            (self.asked <= at - first) & (self.kind == OpKind.FREE),
            when=(self.asked != 0) & (walks & ~self.is_in["LOAD"] | self.is_in["FREED"]),
        )
        self.lemma(
            "in their turn",
            self.head + self.asked == at,
            when=(self.asked != 0) & (walks | self.is_in["FREED"]),
        )
        self.lemma("all freed", at == final + 1, when=self.is_in["FREED"])
        self.lemma("clean", swept >= 8, when=walks | self.among("LOOK", "LOOKED"))
        self.lemma("flushing", swept + inside.wait >= 8, when=self.is_in["FLUSHING"])
        waits = self.among("PURGING", "QUIESCING", "SWEEPING")
        self.lemma("settling", Mux(inside.wait == 0, age >= 2, inside.wait + age == 2), when=waits)
        self.lemma("has settled", (inside.wait == 0) & (age >= 3), when=self.is_in["SWEEP"])
        self.lemma("quiet", inside.wait + age == 1, when=self.is_in["QUIET"])
        self.lemma("flush", inside.wait <= 8)
        self.lemma("asks", asks, when=self.among("ORPHAN", "LOOK", "TELL", "FREE"))
        self.lemma(
            "asks not",
            ~asks,
            when=self.among(
                "IDLE",
                "RANGE",
                "ORDERED",
                "PURGE",
                "PURGING",
                "QUIESCING",
                "SWEEP",
                "SWEEPING",
                "FLUSHING",
                "LOOKED",
                "LOAD",
                "FREED",
                "QUIET",
            ),
        )
        self.lemma("as the walk", asks == (inside.left != 0), when=self.is_in["WALK"])

        # Its tiles.
        word, known = known_word(self, inside.shapes, region, "shapes")
        self.lemma("shape is kept", word == self.shape.as_value(), when=known)
        self.lemma("no shape before it is cleared", ~self.shape.as_value().any(), when=~known)
        shown = self.past(inside.shapes.r_addr, "shown")
        self.lemma("it shows the first", shown == at, when=self.is_in["LOAD"])
        self.lemma(
            "it shows the next",
            shown == (at + 1)[: len(at)],
            when=self.is_in["FREE"] & (at != final),
        )
        self.lemma(
            "none cleared",
            self.cleared == 0,
            when=self.busy
            & (
                ~now["purged"]
                | ends
                & in_run
                & (~walks | (region > at) | self.is_in["LOAD"])
                & ~self.among("FREED", "QUIET")
            ),
        )
        self.lemma(
            "clearing",
            (self.cleared + inside.left == self.tiles)
            & (inside.group == (self.shape.base + self.cleared)[: len(inside.group)]),
            when=self.is_in["WALK"] & ~of_range & (at == region),
        )
        self.lemma(
            "all cleared",
            self.cleared == self.tiles,
            when=self.among("TELL", "FREE") & (at == region),
        )

        # The overflow region.
        self.lemma(
            "owes",
            inside.tell == run.over,
            when=drained & ~self.is_in["LOOKED"] | self.among("PURGE", "ORPHAN", "ORPHANED"),
        )
        self.lemma(
            "looks if it has one",
            run.over,
            when=self.among("LOOK", "LOOKED", "TELL") | (phase == 7),
        )
        self.lemma(
            "has looked",
            (phase == 7) | (phase == 8) & run.over | (phase == 6) & ~run.over,
            when=self.is_in["LOAD"],
        )
        is_first = first == region
        self.lemma(
            "was looked at",
            now["looked"] == (run.over & walks),
            when=ends & is_first & ~self.among("FREED", "QUIET"),
        )
        self.lemma(
            "what it owes",
            (inside.tell == (run.over & ~self.book.passed))
            & (
                ~run.over
                | same(
                    inside,
                    abort=self.book.touched,
                    promised=self.book.promised,
                    over_at=self.over_at,
                )
            ),
            when=walks,
        )
        self.lemma(
            "told",
            now["told"] == (self.is_in["FREE"] & inside.tell),
            when=(walks | drained) & is_first,
        )
        self.lemma(
            "not told",
            ~now["told"] & ~now["looked"],
            when=self.busy & (~now["purged"] | ends & in_run & ~is_first),
        )

        # Events.
        self.lemma(
            "killed as it is given",
            self.kill == ((some & in_run) | (run.joins & (heard == region))),
        )
        self.lemma(
            "given", self.given == (in_run & ends & ~self.among("ORPHAN", "ORPHANED", "PURGE"))
        )

    def _going_on(self, m):
        """Every wait is for somebody else: other cycles are few."""
        dut, inside, phase = self.dut, self.inside, self.phase
        others = (
            blocked(dut.o_op)
            | (self.asked != 0)
            | ((phase == 4) & dut.purging)
            | ((phase == 5) & dut.quiescing)
            | (self.among("SWEEPING", "FLUSHING") & (dut.sweeping | self.judged))
            | self.taken
        )
        idle = Signal(8)
        m.d.sync += idle.eq(Mux(self.rests | others, 0, idle + (idle != 255)))
        self.always("it goes on by itself", idle <= 25)
        for state, steps in (
            ("ORDER", 8),
            ("ORDERED", 2),
            ("ORPHAN", 3),
            ("ORPHANED", 1),
            ("PURGE", 3),
            ("PURGING", 6),
            ("QUIESCING", 9),
            ("SWEEP", 10),
            ("SWEEPING", 13),
            ("FLUSHING", 22),
            ("LOOK", 23),
            ("LOOKED", 1),
            ("LOAD", 23),
            ("WALK", 24),
            ("TELL", 25),
            ("FREE", 25),
            ("FREED", 2),
            ("QUIET", 5),
        ):
            waits = state in ("PURGING", "QUIESCING", "SWEEPING", "FLUSHING")
            self.lemma(
                f"idle in state {state}",
                idle + (inside.wait if waits else 0) <= steps,
                when=self.is_in[state] & ~self.rests,
            )
