# SPDX-License-Identifier: Apache-2.0
"""Promises of the readiness scoreboard as a whole (``hub_rtl/scoreboard/scoreboard.py``); those of
its parts are in ``readiness_*.py``."""

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib.data import View

from formal.kit.spec import Spec
from hub_rtl.contract.packets import EventKind, RegionOp, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.scoreboard.ack_bank import ack_banks, bank_places
from hub_rtl.scoreboard.end_bits import word_banks
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard

from .readiness import Opened

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
    ORDERED,
    ORPHAN,
    PURGE,
    ORPHANED,
    PURGING,
    QUIESCING,
    SWEEPING,
    FLUSHING,
    LOOK,
    LOOKED,
    COUNT,
    WALK,
    FREE,
    TELL,
    FREED,
    QUIET,
    SHIFT,
) = range(20)


class _Scoreboard(Spec):
    """The scoreboard with free inputs, its outputs taken or not at will."""

    def build(self, m):
        self.dut = ReadinessScoreboard(self._cfg)
        self.opened = Opened(m, self.dut)
        self.free_inputs(self.dut)
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
        state, of_range, command, asks = opened.signals(
            "walker.fsm_state", "walker.of_range", "walker.command", "walker.asks"
        )
        self.lemma(
            "the walker asks in its states",
            Cat(state == each for each in (ORDER, ORPHAN, ORPHANED, LOOK, WALK, TELL, FREE)).any(),
            when=asks,
        )
        order = View(types_of(self._cfg).region_command, command)
        self.lemma(
            "the walker asks of known regions",
            order.region < self._cfg.regions,
            when=asks & (state == ORDER),
        )
        way = [
            [opened.signals(path)[0] for path in pair]
            for pair in (
                ("control.register.spare_valid", "control.register.spare"),
                ("control.register.o__valid", "control.register.o__payload"),
                ("op_valid", "op"),
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
        for n in range(ack_banks(self._cfg)):
            total, valid = opened.signals(f"waiting_{n}.o__payload", f"waiting_{n}.o__valid")
            total = View(types.op, total)
            acks = (total.kind == OpKind.ACK) | (total.kind == OpKind.OVER)
            self.lemma(f"sums {n} ask nothing", (total.source == 0) & acks, when=valid)
        waits = (
            (state == ORDERED)
            | (state == LOOKED)
            | (state == FREED)
            | ((state == ORPHANED) & ~asks)
        )
        self.lemma("one question, one answer", sum(asked, answered) == waits)
        return (
            state,
            of_range,
            View(types_of(self._cfg).region_command, command),
            way,
            asked,
            answered,
        )


class InputsNeverWaitForEvents(_Scoreboard):
    """Once the tables are clear, a refusal and a close wait at most four cycles, and an
    acknowledgement at most eight cycles per slice, each for the slices and every bank of sums, and
    one, whatever ``o_event``, ``o_flag``,
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
        slices, turns = cfg.slices, 1 + ack_banks(cfg)
        turn, sum_turn, leave = opened.signals(
            "ack_arbiter.last", "sum_arbiter.last", "heads_leave"
        )
        self.lemma(
            "the slices or a bank were served last",
            sum((sum_turn == 1 << n for n in range(1, turns)), sum_turn == 1).bool(),
        )
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
            gone = leaves & leave[number]
            m.d.sync += [
                waits.eq(Mux(waiting, waits + (waits != 255), 0)),
                left.eq(Mux(waiting, left + gone, 0)),
            ]
            self.always(
                f"acknowledgements of slice {number} are taken", waits <= 8 * slices * turns + 1
            )
            outer, middle, inner = (
                Signal(2, name=f"outer_{number}"),
                Signal(range(turns), name=f"middle_{number}"),
                Signal(range(max(2, slices)), name=f"inner_{number}"),
            )
            for n in range(4):
                with m.If(last[n]):
                    m.d.comb += outer.eq(0 - n - 1)
            for n in range(turns):
                with m.If(sum_turn[n]):
                    m.d.comb += middle.eq((-n - 1) % turns)
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
                waits + outer + 4 * (middle + turns * inner) + Mux(second, 0, 4 * slices * turns)
                <= 8 * slices * turns - 1,
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
        command, busy = Signal(types_of(cfg).region_command), Signal()
        accepted = dut.i_command.valid & dut.i_command.ready
        with m.If(accepted):
            m.d.sync += [
                command.eq(dut.i_command.payload),
                busy.eq(1),
            ]
        with m.Elif(dut.i_command.ready):
            m.d.sync += busy.eq(0)
        self.always(
            "an error names the command",
            busy & (dut.command_error.command == command),
            when=dut.command_error.en,
        )
        named = (dut.purge.region == command.region) & (dut.purge.bank == command.epoch[0])
        self.always("a purge names the command", ~dut.purge.en | (busy & named))
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
        depths = {
            "walker.shared": cfg.regions,
            "tiles.tiles": 2 * cfg.groups,
            "tiles.thresholds": cfg.regions,
            "tiles.deps": cfg.dep_ranges,
            "tiles.lives": types.banks,
            "books.books": types.banks,
            "books.shapes": cfg.regions,
            "scan.bits": -(-2 * cfg.groups // 32),
            "flags.words": cfg.regions,
            **{f"waiting_{n}.sums": bank_places(cfg) for n in range(ack_banks(cfg))},
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
        self.lemma(
            "the order",
            busy & (order == command.as_value()),
            when=(state >= ORDER)
            & (state < SHIFT)
            & ~(((state == COUNT) | (state == WALK)) & of_range),
        )
        self.lemma("a range", of_range, when=(state == RANGE) | (state == SHIFT))


class KillOutlastsClear(_Scoreboard):
    """While a tile of a bank is forgotten by the event scan, and in the four cycles after, the
    bank's events are killed; so what the scan had picked up before does not come out (assumed by
    ``scoreboard.tile_is_told_once``). (A whole RELEASE is too long for a cover here;
    OrdersTakeTheirSteps reaches its steps.)"""

    def promise(self, m):
        opened, types = self.opened, scoreboard_types(self._cfg)
        ready, kill = (
            View(shape, opened.signals(path)[0])
            for path, shape in (("books.ready", types.ready), ("walker.kill", types.bank_strobe))
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
        self.implied(
            "killed while it is forgotten",
            kill.en & (kill.region == ready.owner) & (kill.bank == ready.bank),
            when=forgets,
        )
        self.implied(
            "killed for four cycles",
            kill.en & (kill.region == region) & (kill.bank == bank),
            when=calm != 0,
        )

        # Lemmas: the walker's operations between its port and the books, the youngest first.
        state, of_range, command, way, asked, answered = self.questions()
        clears = [valid & (op.kind == OpKind.CLEAR) & ~op.plain for valid, op in way]
        frees = [valid & (op.kind == OpKind.FREE) for valid, op in way]
        self.reach("an order is asked", state == ORDERED)
        ends = (state == TELL) | (state == FREE) | (state == FREED)
        for n, (valid, op) in enumerate(way):
            self.lemma(
                f"a verdict at {n} is the finisher's",
                op.source == 0,
                when=valid & (op.kind == OpKind.FINISH),
            )
            mine = (op.region == command.region) & (op.bank == command.epoch[0])
            self.lemma(
                f"a clear at {n} is the command's",
                mine & (ends | ((state == WALK) & ~of_range)),
                when=clears[n],
            )
            self.lemma(
                f"the walker frees at {n}",
                (state == FREED) & (op.source == 1) & ~Cat(clears[:n]).any(),
                when=frees[n],
            )
            self.lemma(
                f"nobody else clears or frees at {n}", op.source == 1, when=clears[n] | frees[n]
            )
        self.lemma(
            "free is on its way, or answered", Cat(*frees, answered).any(), when=state == FREED
        )
        self.lemma(
            "no clear after the answer", ~Cat(clears).any(), when=(state == FREED) & answered
        )
        self.lemma(
            "no range in an order",
            ~of_range | (state < ORDER) | (state == COUNT) | (state == WALK) | (state == SHIFT),
        )
        self.lemma("a range", of_range, when=(state == RANGE) | (state == SHIFT))
        (wait,) = opened.signals("walker.wait")
        self.lemma("quiet for two cycles", calm <= wait + 1, when=state == QUIET)
        self.lemma(
            "the one that is forgotten",
            (region == command.region)
            & (bank == command.epoch[0])
            & (ends | (state == QUIET) | ((state == WALK) & ~of_range)),
            when=calm != 0,
        )


class OpensShowBeforeTheNext(_Scoreboard):
    """After a command was taken ``i_command`` is not ready for a cycle. A bank becomes OPEN by an
    OPEN that was taken for it, and ``o_region_update`` tells so before ``i_command`` is ready again
    (assumed by ``hub.geometry_of_busy_region_stays``)."""

    def promise(self, m):
        dut = self.dut
        command, busy, update = (
            Signal(types_of(self._cfg).region_command),
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
            (command.op == RegionOp.OPEN)
            & (command.region == update.region)
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
        self.lemma(
            "the order",
            busy & (order.as_value() == command.as_value()),
            when=(state >= ORDER)
            & (state < SHIFT)
            & ~(((state == COUNT) | (state == WALK)) & of_range),
        )
        self.lemma(
            "no range in an order",
            ~of_range | (state < ORDER) | (state == COUNT) | (state == WALK) | (state == SHIFT),
        )
        self.lemma("a range", of_range, when=(state == RANGE) | (state == SHIFT))
        self.lemma(
            "the answer comes with the update", (state == ORDERED) & answered & named, when=opens
        )
        for n, (valid, op) in enumerate(way):
            asks = valid & (op.kind == OpKind.OPEN)
            self.lemma(
                f"an OPEN at {n} is the command's",
                (op.source == 1)
                & (state == ORDERED)
                & (op.region == command.region)
                & (op.bank == command.epoch[0])
                & (command.op == RegionOp.OPEN),
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
