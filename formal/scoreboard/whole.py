# SPDX-License-Identifier: Apache-2.0
"""Promises of the readiness scoreboard as a whole (``hub_rtl/scoreboard/scoreboard.py``); those of
its parts are in ``readiness_*.py``."""

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib.data import View

from formal.kit.spec import Spec
from hub_rtl.contract.packets import EventKind, RegionOp, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.scoreboard.end_bits import word_banks
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard

from .readiness import Opened, covers

__all__ = [
    "InputsNeverWaitForEvents",
    "KillOutlastsClear",
    "OpensShowBeforeTheNext",
    "OrphansEndFirst",
    "OutputsAgree",
]


# The walker's states in the order in which its text names them.
(
    IDLE,
    RANGE,
    ORDER,
    WALK,
    ORDERED,
    PURGE,
    ORPHAN,
    ORPHANED,
    PURGING,
    QUIESCING,
    SWEEPING,
    FLUSHING,
    LOAD,
    LOOK,
    LOOKED,
    FREE,
    TELL,
    FREED,
    QUIET,
) = range(19)


class _Scoreboard(Spec):
    """The scoreboard with free inputs, its outputs taken or not at will."""

    def build(self, m):
        self.dut = ReadinessScoreboard(self._cfg)
        self.opened = Opened(m, self.dut)
        self.free_inputs(self.dut)
        given = self.dut.i_command.payload
        self.suppose("a range goes up", given.region <= given.last, when=self.dut.i_command.valid)
        self.promise(m)

    def implied(self, name, holds, when):
        """As :meth:`always`, without a cover of ``when``, where that is too long a way for one."""
        self.always(name, ~Value.cast(when).bool() | holds)

    def questions(self):
        """What the walker asks and what becomes of it: its state, whether it clears a range, its
        command, the operations between its port and the books (the youngest first), which of these
        are questions of the walker, whether one is answered. With the lemmas that it waits for one
        answer at a time."""
        opened, types = self.opened, scoreboard_types(self._cfg)
        state, of_range, command, asks, pending = opened.signals(
            "walker.fsm_state",
            "walker.of_range",
            "walker.command",
            "walker.asks",
            "walker.pending",
        )
        self.lemma(
            "the walker asks in its states",
            Cat(state == each for each in (ORDER, ORPHAN, ORPHANED, LOOK, WALK, TELL, FREE)).any(),
            when=asks,
        )
        order = View(types_of(self._cfg).region_order, command)
        self.lemma(
            "the walker asks of known regions",
            order.last < self._cfg.regions,
            when=asks & (state == ORDER),
        )
        way = [
            [opened.signals(path)[0] for path in pair]
            for pair in (
                ("control.register.spare_valid", "control.register.spare"),
                ("control.register.o__valid", "control.register.o__payload"),
                ("$signal#1", "op"),
                ("tiles.o_valid", "tiles.o_op"),
                ("books.read_valid", "books.read_op"),
                ("books.valid", "books.op"),
            )
        ]
        way = [(valid, View(types.op, payload)) for valid, payload in way]
        questions = (
            OpKind.OPEN,
            OpKind.RELEASE,
            OpKind.ABORT,
            OpKind.FORGET,
            OpKind.FREE,
            OpKind.LOOK,
        )
        asked = [
            valid & (op.source == 1) & Cat(op.kind == each for each in questions).any()
            for valid, op in way
        ]
        result = View(types.result, opened.signals("books.result")[0])
        answered = result.valid & (result.source == 1)
        self.lemma("the spare waits behind", way[1][0], when=way[0][0])
        told, valid = opened.signals("overlaps.o_op__payload", "overlaps.o_op__valid")
        told = View(types.op, told)
        self.lemma(
            "overlaps ask nothing", (told.source == 0) & ((told.kind == OpKind.OVERLAP) | ~valid)
        )
        self.lemma("questions are counted", sum(asked, answered) == pending)
        self.lemma("a state", state <= QUIET)
        busy = (state == ORDER) | (state == ORDERED)
        ends = ~((state == IDLE) | (state == RANGE) | busy | ((state == WALK) & of_range))
        walks = (state == LOAD) | (state == WALK) | (state == TELL) | (state == FREE)
        frees = (walks & ~of_range) | (state == FREED)
        self.lemma("the run is there", opened.signals("walker.run.some")[0], when=ends)
        self.lemma("no dependency range in an order", ~of_range, when=ends | busy)
        self.lemma("a dependency range", of_range, when=state == RANGE)
        looks = (state == LOOKED) | ((state == ORPHANED) & ~asks)
        self.lemma(
            "questions in their states",
            (pending == 0) | ((pending == 1) & looks),
            when=~(busy | frees),
        )
        self.lemma("a look waits", pending == 1, when=looks)
        self.lemma("no question at first", pending == 0, when=state == LOAD)
        rests = (state == IDLE) | (state == RANGE) | ((state == WALK) & of_range)
        self._names(order, state, rests, frees)
        for n, (valid, op) in enumerate(way):
            kinds = Cat(op.kind == each for each in questions[:4]).any()
            judged = (op.kind == OpKind.FINISH) | (op.kind == OpKind.AIM)
            self.lemma(f"the finisher's at {n}", op.source == 0, when=valid & judged)
            self.lemma(f"an order at {n} in its state", busy & (op.source == 1), when=valid & kinds)
            self.lemma(
                f"a FREE at {n} in its state",
                frees & (op.source == 1),
                when=valid & (op.kind == OpKind.FREE),
            )
        return (
            state,
            of_range,
            View(types_of(self._cfg).region_order, command),
            way,
            asked,
            answered,
        )

    def _names(self, command, state, rests, frees):
        """The regions that the walker names are those of the order."""
        opened = self.opened
        first, final, heard, at, some, pending, opens, asks, stop = opened.signals(
            *(f"walker.run.{name}" for name in ("first", "final", "heard")),
            "walker.at",
            "walker.run.some",
            *(f"walker.{name}" for name in ("pending", "opens", "asks")),
            "walker.run.stop",
        )
        known = command.last < self._cfg.regions
        orders = (state == ORDER) | (state == ORDERED)
        (of_range,) = opened.signals("walker.of_range")
        quiet = (state == IDLE) | (state == RANGE) | (state == WALK)
        self.lemma("clears no dependency range", ~of_range, when=~quiet)
        self.lemma("there is a run", some, when=~rests & ~orders)
        self.lemma("known", known | ((state == ORDER) & ~asks), when=~rests)
        self.lemma("asks if it is", asks == known, when=state == ORDER)
        self.lemma("goes up", command.region <= command.last, when=~rests)
        self.lemma(
            "at first of an unknown order",
            (heard == command.region) & (pending == 0) & ~opens & ~some,
            when=~rests & ~known,
        )
        self.lemma(
            "runs of the order",
            (command.region <= first) & (first <= command.last),
            when=~rests & known,
        )
        self.lemma(
            "their ends",
            (first <= final) & (final <= command.last),
            when=~rests & known & (~orders | some | opens),
        )
        last = Mux(opens, final, command.last)
        self.lemma(
            "asked region by region",
            (pending == (at - heard)[: len(pending)])
            & (first <= heard)
            & (heard <= at)
            & (at <= last + (state == ORDERED)),
            when=orders & known,
        )
        self.lemma("opens again", command.again & ~some, when=opens & ~rests)
        walks = frees & (state != FREED)
        early = ~rests & ~orders & ~walks & (state != FREED) & (state != QUIET)
        self.lemma("at the first", at == first, when=early)
        self.lemma("walking", (first <= at) & (at <= final), when=walks)
        self.lemma("all freed", at == final + 1, when=state == FREED)
        self.lemma("not more than were freed", pending <= at - first, when=frees)
        self.lemma("no run at rest", ~some & ~opens, when=rests)


class InputsNeverWaitForEvents(_Scoreboard):
    """Once the tables are clear, a refusal and a close wait at most four cycles, and an
    acknowledgement at most eight cycles per slice and one, whatever ``o_event``, ``o_flag``,
    commands, queries and the allocator do."""

    def promise(self, m):
        cfg, dut, opened = self._cfg, self.dut, self.opened
        (last,) = opened.signals("arbiter.last")
        for number, (port, name) in enumerate(
            ((dut.i_refused, "refusals"), (dut.i_news, "news")), 1
        ):
            waits = Signal(3, name=f"{name}_wait")
            waiting = port.valid & ~port.ready & ~dut.clearing
            m.d.sync += waits.eq(Mux(waiting, waits + (waits != 7), 0))
            self.always(f"{name} are taken", waits <= 4)
            distance = Signal(2, name=f"{name}_distance")  # lemma: how many are served before
            for n in range(4):
                with m.If(last[n]):
                    m.d.comb += distance.eq(number - n - 1)
            spare, valid = opened.signals(f"{name}.spare_valid", f"{name}.o__valid")
            self.lemma(f"{name} before it", waits + distance <= 3, when=waiting)
            self.lemma(f"{name} full", valid, when=spare)
        self.lemma(
            "one was served last", sum((last == 1 << n for n in range(1, 4)), last == 1).bool()
        )
        slices = cfg.slices
        (turn,) = opened.signals("ack_arbiter.last")
        self.lemma(
            "one slice was served last",
            sum((turn == 1 << n for n in range(1, slices)), turn == 1).bool(),
        )
        for number in range(slices):
            port, part = dut.i_ack[number], f"combiner_{number}"
            waits, left = (
                Signal(8, name=f"ack_{number}_waits"),
                Signal(2, name=f"ack_{number}_left"),
            )
            waiting = port.valid & ~port.ready & ~dut.clearing
            valid, leaves = opened.signals(f"{part}.valid", f"{part}.o__valid")
            (second,) = opened.signals(f"{part}.second")
            grants, own = opened.signals("arbiter.grant_onehot", "ack_arbiter.grant_onehot")
            gone = leaves & grants[0] & own[number]
            m.d.sync += [
                waits.eq(Mux(waiting, waits + (waits != 255), 0)),
                left.eq(Mux(waiting, left + gone, 0)),
            ]
            self.always(f"acknowledgements of slice {number} are taken", waits <= 8 * slices + 1)
            outer, inner = (
                Signal(2, name=f"outer_{number}"),
                Signal(range(max(2, slices)), name=f"inner_{number}"),
            )
            for n in range(4):
                with m.If(last[n]):
                    m.d.comb += outer.eq(0 - n - 1)
            for n in range(slices):
                with m.If(turn[n]):
                    m.d.comb += inner.eq((number - n - 1) % slices)
            self.lemma(f"slice {number} is full", valid.all(), when=waiting)
            self.lemma(
                f"slice {number} has the first gone",
                (left == 0) | (second & (left == 1)),
                when=waiting,
            )
            self.lemma(
                f"turn of slice {number}",
                waits + outer + 4 * inner + Mux(second, 0, 4 * slices) <= 8 * slices - 1,
                when=waiting,
            )


class OutputsAgree(_Scoreboard):
    """``o_region_update`` tells what the tile counters learnt one cycle before; closes are missing
    only from OPEN banks; the counters of events count the events that were taken; a second close
    and a stall are counted with their reports. Purge and errors name the command that was taken
    last, and come only before the next is taken. ``clearing`` ends after as many cycles as the
    largest table has words and one, for good; until then no input is ready."""

    def promise(self, m):
        cfg, dut, opened, types = self._cfg, self.dut, self.opened, scoreboard_types(self._cfg)
        update = dut.o_region_update
        live, alive = opened.signals("books.live_write", "books.live_value")
        live = View(types.bank_strobe, self.past(live, "live_before"))
        told = (update.region == live.region) & (update.bank == live.bank)
        self.always("a state is told after the tile counters know it", update.en == live.en)
        # What takes a whole order to reach is not covered again here: see readiness_walk.py.
        self.always(
            "the same state",
            ~update.en
            | (told & ((update.state != RegionState.FREE) == self.past(alive, "alive_before"))),
        )
        self.always(
            "closes are missing from open banks",
            ~dut.missing_from.any(),
            when=dut.status.state != RegionState.OPEN,
        )
        taken, kind = dut.o_event.valid & dut.o_event.ready, dut.o_event.payload.kind
        for name, each in (
            ("ready", EventKind.READY),
            ("all", EventKind.ALL),
            ("error", EventKind.ERROR),
        ):
            self.always(f"counts {name}", dut.counts[name] == (taken & (kind == each)))
        self.always("a second close is counted", dut.bad_close.en == dut.counts.close_twice)
        self.always("a stall is counted", dut.o_timeout.en == dut.counts.timeouts)
        command, busy = Signal(types_of(cfg).region_order), Signal()
        accepted = dut.i_command.valid & dut.i_command.ready
        with m.If(accepted):
            m.d.sync += [
                command.eq(dut.i_command.payload),
                busy.eq(1),
            ]
        with m.Elif(dut.i_command.ready):
            m.d.sync += busy.eq(0)
        error = dut.command_error.command
        self.always(
            "an error names a region of the order",
            busy
            & (command.region <= error.region)
            & ((error.region <= command.last) | (command.last >= cfg.regions))
            & ((error.op == command.op) | ((error.op == RegionOp.OPEN) & command.again)),
            when=dut.command_error.en,
        )
        named = (
            (command.region <= dut.purge.region)
            & (dut.purge.region <= dut.purge.last)
            & (dut.purge.last <= command.last)
            & (dut.purge.bank == command.epoch[0])
        )
        self.always("a purge names banks of the order", ~dut.purge.en | (busy & named))
        purged = Signal()
        m.d.sync += purged.eq(dut.purge.en | (purged & ~dut.quiesce))
        self.always("the writers finish after the purge", ~dut.quiesce | (purged & ~dut.purging))
        self.always("no order while a range is cleared", ~dut.i_command.ready, when=dut.dep_busy)
        disarmed = (
            dut.dep_write.en & ~dut.dep_write.range.armed & (dut.dep_write.index < cfg.dep_ranges)
        )
        self.always("a disarmed range is busy", dut.dep_busy, when=self.past(disarmed, "disarmed"))
        (judging,) = opened.signals("finisher.busy")
        rows_query = self.past(dut.rows_query, "rows_query_before")
        self.always(
            "the query for rows stays while a bank is judged",
            (dut.rows_query.as_value() == rows_query)
            | ~judging
            | ~self.past(judging, "judging_before"),
        )
        cleared, age = Signal(), Signal(8)
        words = max(2 * cfg.groups, 2 * cfg.regions)
        m.d.sync += [
            cleared.eq(~dut.clearing),
            age.eq(age + (age != 255)),
        ]
        self.always("cleared in time", dut.clearing == (age <= words))
        self.always("cleared for good", ~dut.clearing, when=cleared)
        inputs = Cat(
            dut.i_refused.ready,
            dut.i_news.ready,
            dut.i_command.ready,
            *(port.ready for port in dut.i_ack),
        )
        self.always("no input is taken before", ~inputs.any(), when=dut.clearing)

        # Lemmas.
        self.questions()
        depths = {
            "walker.run.shared": cfg.regions,
            "walker.shapes": cfg.regions,
            "tiles.tiles": 2 * cfg.groups,
            "tiles.thresholds": cfg.regions,
            "tiles.deps": cfg.dep_ranges,
            "tiles.lives": types.banks,
            "books.books": types.banks,
            "books.shapes": cfg.regions,
            "scan.bits": -(-2 * cfg.groups // 32),
            "flags.words": cfg.regions,
            "scan.ends.bits": -(-types.banks // word_banks(cfg)),
        }
        depths |= {
            f"{queue}.queue.{table}": types.banks
            for queue in ("finisher", "overlaps")
            for table in ("came", "gone")
        }
        for table, depth in depths.items():
            (walk,) = opened.signals(f"{table}.walk")
            self.lemma(f"walk of {table}", walk == Mux(age < depth, age, depth))
        state, order = opened.signals("walker.fsm_state", "walker.command")
        self.lemma("purged", purged | (state != PURGING))
        (of_range,) = opened.signals("walker.of_range")
        rests = (state == IDLE) | (state == RANGE) | ((state == WALK) & of_range)
        self.lemma("the order", busy & (order == command.as_value()), when=~rests)


class KillOutlastsClear(_Scoreboard):
    """While a tile of a bank is forgotten by the event scan, and in the four cycles after, the
    bank's events are killed; so what the scan had picked up before does not come out (assumed by
    ``scoreboard.tile_is_told_once``). (A whole RELEASE is too long for a cover here;
    OrdersTakeTheirSteps reaches its steps.)"""

    def promise(self, m):
        opened, types = self.opened, scoreboard_types(self._cfg)
        ready, kill = (
            View(shape, opened.signals(path)[0])
            for path, shape in (("books.ready", types.ready), ("walker.kill", types.run_strobe))
        )
        forgets, calm, region, bank = Signal(), Signal(3), Signal.like(kill.region), Signal()
        m.d.comb += forgets.eq(ready.en & ready.clear & ~ready.plain)
        with m.If(forgets):
            m.d.sync += [
                calm.eq(4),
                region.eq(ready.owner),
                bank.eq(ready.bank),
            ]
        with m.Elif(calm != 0):
            m.d.sync += calm.eq(calm - 1)
        self.implied("killed while it is forgotten", covers(kill, ready.owner, ready.bank), forgets)
        self.implied("killed for four cycles", covers(kill, region, bank), calm != 0)

        # Lemmas: the walker's operations between its port and the books, the youngest first.
        state, of_range, command, way, asked, answered = self.questions()
        clears = [valid & (op.kind == OpKind.CLEAR) & ~op.plain for valid, op in way]
        frees = [valid & (op.kind == OpKind.FREE) for valid, op in way]
        self.reach("an order is asked", state == ORDERED)
        walks = (state == LOAD) | (state == TELL) | (state == FREE) | ((state == WALK) & ~of_range)
        ends = walks | (state == FREED)
        first, final = opened.signals("walker.run.first", "walker.run.final")
        for n, (valid, op) in enumerate(way):
            self.lemma(
                f"a verdict at {n} is the finisher's",
                op.source == 0,
                when=valid & (op.kind == OpKind.FINISH),
            )
            self.lemma(
                f"a clear at {n} is the order's",
                ends
                & (first <= op.region)
                & (op.region <= final)
                & (op.bank == command.epoch[0])
                & (op.source == 1),
                when=clears[n],
            )
            self.lemma(
                f"a FREE follows the clear at {n}",
                walks | Cat(frees[:n]).any(),
                when=clears[n],
            )
        (wait,) = opened.signals("walker.wait")
        self.lemma("quiet for two cycles", calm <= wait + 1, when=state == QUIET)
        last = Cat(frees).any() | (state != FREED)
        self.lemma("a while after the last FREE", (calm <= 3) | last | answered, when=calm != 0)
        self.lemma("and when it is answered", (calm <= 2) | last | answered | (state != FREED))
        self.lemma(
            "the one that is forgotten",
            (first <= region)
            & (region <= final)
            & (bank == command.epoch[0])
            & (ends | (state == QUIET)),
            when=calm != 0,
        )


class OpensShowBeforeTheNext(_Scoreboard):
    """After a command was taken ``i_command`` is not ready for a cycle. A bank becomes OPEN by an
    OPEN that was taken for it, and ``o_region_update`` tells so before ``i_command`` is ready again
    (assumed by ``hub.geometry_of_busy_region_stays``)."""

    def promise(self, m):
        dut = self.dut
        command, busy, update = (
            Signal(types_of(self._cfg).region_order),
            Signal(),
            dut.o_region_update,
        )
        taken = dut.i_command.valid & dut.i_command.ready
        with m.If(taken):
            m.d.sync += [
                command.eq(dut.i_command.payload),
                busy.eq(1),
            ]
        with m.Elif(dut.i_command.ready):
            m.d.sync += busy.eq(0)
        named = (
            ((command.op == RegionOp.OPEN) | command.again)
            & (command.region <= update.region)
            & (update.region <= command.last)
            & (command.epoch[0] == update.bank)
        )
        opens = update.en & (update.state == RegionState.OPEN)
        self.always(
            "not ready after a command", ~dut.i_command.ready, when=self.past(taken, "taken")
        )
        self.implied(
            "a bank becomes OPEN by its OPEN, in time", busy & ~dut.i_command.ready & named, opens
        )
        # A free search does not get there: a geometry right after the clearing, an OPEN of bank 0,
        # and nothing else.
        other = Cat(
            *(port.valid for port in (*dut.i_ack, dut.i_refused, dut.i_news)),
            dut.dep_write.en,
            dut.overlap.en,
            dut.timeout,
            dut.i_command.payload,
            dut.geometry_write.region,
        )
        written, gave, strayed = Signal(), Signal(), Signal()
        m.d.sync += [
            written.eq(written | dut.geometry_write.en),
            gave.eq(gave | taken),
            strayed.eq(
                strayed
                | other.any()
                | (dut.geometry_write.en != (~dut.clearing & ~written))
                | (dut.i_command.valid != (written & ~gave))
            ),
        ]
        self.reach("a bank becomes OPEN", opens & ~strayed)

        state, of_range, order, way, _, answered = self.questions()
        rests = (state == IDLE) | (state == RANGE) | ((state == WALK) & of_range)
        self.lemma("the order", busy & (order.as_value() == command.as_value()), when=~rests)
        asking = (state == ORDER) | (state == ORDERED)
        self.lemma("the answer comes with the update", asking & answered & named, when=opens)
        for n, (valid, op) in enumerate(way):
            asks = valid & (op.kind == OpKind.OPEN)
            self.lemma(
                f"an OPEN at {n} is the command's",
                (op.source == 1)
                & asking
                & (command.region <= op.region)
                & (op.region <= command.last)
                & (op.bank == command.epoch[0])
                & ((command.op == RegionOp.OPEN) | command.again),
                when=asks,
            )
            self.lemma(
                f"a verdict at {n} is the finisher's",
                op.source == 0,
                when=valid & (op.kind == OpKind.FINISH),
            )


class OrphansEndFirst(_Scoreboard):
    """An ORPHAN that left the walker has been through the books, for whichever region, when the
    question behind it is answered, and so before the purge. An operation that is granted its turn
    is at the books' change three cycles after its register, whatever comes beside it. (For a cover
    an order is too long a way: OrdersTakeTheirSteps has those.)"""

    def promise(self, m):
        opened, types = self.opened, scoreboard_types(self._cfg)
        state, _, _, way, asked, answered = self.questions()
        region = self.constant(self._cfg.region_width, "region")
        (op,) = opened.signals("walker.o_op__payload")
        op = View(types.op, op)
        (valid,) = opened.signals("walker.asks")
        taken = valid & opened.signals("control.i__1__ready")[0]
        orphans = [there & (each.kind == OpKind.ORPHAN) & (each.source == 1) for there, each in way]
        follows = Signal()  # an ORPHAN of this region is on its way
        through = orphans[-1] & (way[-1][1].region == region)
        with m.If(taken & (op.kind == OpKind.ORPHAN) & (op.region == region)):
            m.d.sync += follows.eq(1)
        with m.Elif(through):
            m.d.sync += follows.eq(0)
        self.implied("none is on its way at the purge", ~follows, self.dut.purge.en)
        here = self.past(self.past(self.past(way[2][0], "one"), "two"), "three")
        self.always("granted operations change the book in time", way[5][0] == here)
        self.reach("an operation is granted", way[2][0])

        # Lemmas: where it is, and that the question is behind.
        ours = [one & (each.region == region) for one, (_, each) in zip(orphans, way, strict=True)]
        self.lemma("it is somewhere", Cat(ours).any(), when=follows)
        for n, one in enumerate(orphans):
            self.lemma(
                f"asked in its state at {n}", (state == ORPHAN) | (state == ORPHANED), when=one
            )
            self.lemma(
                f"no question before the one at {n}",
                ~Cat(*asked[n + 1 :], answered).any(),
                when=one,
            )
        for n, (there, each) in enumerate(way):
            self.lemma(
                f"a verdict at {n} is the finisher's",
                each.source == 0,
                when=there & (each.kind == OpKind.FINISH),
            )
