# SPDX-License-Identifier: Apache-2.0
"""Promises of the readiness scoreboard as a whole (``hub_rtl/scoreboard/scoreboard.py``); those of
its parts, and those about orders, have
files of their own."""

from amaranth import Cat, Mux, Signal
from amaranth.lib.data import View

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, one_of
from hub_rtl.contract.packets import EventKind, RegionOp, RegionState
from hub_rtl.scoreboard.ack_bank import bank_places
from hub_rtl.scoreboard.end_bits import word_banks
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard

__all__ = [
    "InputsNeverWaitForEvents",
    "OutputsAgree",
    "Pipeline",
    "covers",
    "lies",
]


def lies(region, first, last):
    """Whether a region is of a range."""
    return (first <= region) & (region <= last)


def covers(run, region, bank):
    """Whether a strobe for a run of banks is for this one too."""
    return run.en & (run.region <= region) & (region <= run.last) & (run.bank == bank)


class Pipeline(Spec):
    """The scoreboard with free inputs, its outputs taken or not at will. The intake of
    acknowledgements is cut out: it offers whatever one may (``formal/scoreboard/intake.py``)."""

    def build(self, m):
        self.dut = dut = ReadinessScoreboard(self._cfg)
        self.parts_in = observe(dut)
        acks = self.acks = self.parts_in.acks
        cut(self, acks)
        op = acks.o.payload
        self.suppose(
            "only acknowledgements come from the slices",
            (op.source == 0) & ((op.kind == OpKind.ACK) | (op.kind == OpKind.OVER)),
            when=acks.o.valid,
        )
        m.submodules.dut = dut
        self.free_inputs(dut)
        given = dut.i_command.payload
        self.suppose("a range goes up", given.region <= given.last, when=dut.i_command.valid)
        self.promise(m)

    def among(self, *states):
        """The walker is in one of these states."""
        is_in = observe(self.parts_in.walker).is_in
        return Cat(is_in[each] for each in states).any()

    def taken(self, m):
        """The command taken last, and 1 until the next may be taken."""
        port = self.dut.i_command
        busy = Signal()
        command = Signal.like(port.payload)
        with m.If(port.valid & port.ready):
            m.d.sync += [command.eq(port.payload), busy.eq(1)]
        with m.Elif(port.ready):
            m.d.sync += busy.eq(0)
        return command, busy

    def in_order(self):
        """The walker carries out an order: it does not clear a range between two."""
        walker = observe(self.parts_in.walker)
        states = walker.is_in.keys() - {"IDLE", "RANGE"}
        return self.among(*sorted(states)) & ~(self.among("WALK") & walker.of_range)

    def asks_books(self):
        """The walker asks the books to take the order, or hears what they say."""
        return self.among("ORDER", "ORDERED")

    def questions(self):
        """What the walker asks and what becomes of it: what it shows, the operations between its
        port and the books (the youngest first), which of these are questions of the walker, whether
        one is answered. With the lemmas that it counts those without an answer."""
        inside = self.parts_in
        walker = observe(inside.walker)
        register = observe(inside.control).register
        spare, books = observe(register), observe(inside.books)
        way = [
            (spare.spare_valid, spare.spare),
            (register.o.valid, register.o.payload),
            (inside.valid, inside.op),
            (inside.tiles.o_valid, inside.tiles.o_op),
            (books.read_valid, books.read_op),
            (books.at.valid, books.at.op),
        ]
        orders = (OpKind.OPEN, OpKind.RELEASE, OpKind.ABORT, OpKind.FORGET)
        asked = [
            valid & (op.source == 1) & one_of(op.kind, *orders, OpKind.FREE, OpKind.LOOK)
            for valid, op in way
        ]
        result = inside.books.result
        answered = result.valid & (result.source == 1)
        self.lemma("the spare waits behind", register.o.valid, when=spare.spare_valid)
        told = inside.overlaps.o_op
        self.lemma(
            "overlaps ask nothing",
            (told.payload.source == 0) & ((told.payload.kind == OpKind.OVERLAP) | ~told.valid),
        )
        self.lemma("questions are counted", sum(asked, answered) == walker.pending)
        asks, frees = self.asks_books(), self.frees()
        for n, (valid, op) in enumerate(way):
            # The answer to a verdict or an aim is none for the walker.
            self.lemma(
                f"a verdict at {n} is the finisher's",
                op.source == 0,
                when=valid & one_of(op.kind, OpKind.FINISH, OpKind.AIM),
            )
            self.lemma(
                f"an order at {n} in its state",
                asks & (op.source == 1),
                when=valid & one_of(op.kind, *orders),
            )
            self.lemma(
                f"a FREE at {n} in its state",
                frees & (op.source == 1),
                when=valid & (op.kind == OpKind.FREE),
            )
        self._states(walker)
        self._regions(walker)
        return walker, way, asked, answered

    def walks(self):
        """The walker clears the tiles of a run."""
        of_range = observe(self.parts_in.walker).of_range
        return self.among("LOAD", "TELL", "FREE") | (self.among("WALK") & ~of_range)

    def frees(self):
        """The walker may have asked to free a bank of the run, without an answer."""
        return self.walks() | self.among("FREED")

    def _states(self, walker):
        """What the walker asks in its states."""
        order = self.in_order()
        ends = order & ~self.asks_books()
        self.lemma("a state", self.among(*walker.is_in))
        self.lemma(
            "the walker asks in its states",
            self.among("ORDER", "ORPHAN", "ORPHANED", "LOOK", "WALK", "TELL", "FREE"),
            when=walker.asks,
        )
        self.lemma(
            "the walker asks of known regions",
            walker.command.last < self._cfg.regions,
            when=walker.asks & self.among("ORDER"),
        )
        self.lemma("the run is there", walker.run.some, when=ends)
        self.lemma("no dependency range in an order", ~walker.of_range, when=order)
        self.lemma("a dependency range", walker.of_range, when=self.among("RANGE"))
        looks = self.among("LOOKED") | (self.among("ORPHANED") & ~walker.asks)
        self.lemma(
            "a look waits", walker.pending == looks, when=~(self.asks_books() | self.frees())
        )
        self.lemma("no question at first", walker.pending == 0, when=self.among("LOAD"))

    def _regions(self, walker):
        """The regions that the walker names are those of the order."""
        run, command, at = walker.run, walker.command, walker.at
        order, asks, frees = self.in_order(), self.asks_books(), self.frees()
        known = command.last < self._cfg.regions
        self.lemma("no run at rest", ~run.some & ~walker.opens, when=~order)
        self.lemma("goes up", command.region <= command.last, when=order)
        self.lemma("known", known | (self.among("ORDER") & ~walker.asks), when=order)
        self.lemma("asks if it is", walker.asks == known, when=self.among("ORDER"))
        self.lemma(
            "an unknown order is not asked",
            (run.heard == command.region) & (walker.pending == 0) & ~walker.opens & ~run.some,
            when=order & ~known,
        )
        order = order & known
        self.lemma("runs of the order", lies(run.first, command.region, command.last), when=order)
        self.lemma(
            "their ends",
            lies(run.final, run.first, command.last),
            when=order & (~asks | run.some | walker.opens),
        )
        last = Mux(walker.opens, run.final, command.last)
        self.lemma(
            "asked region by region",
            (walker.pending == (at - run.heard)[: len(walker.pending)])
            & lies(run.heard, run.first, at)
            & (at <= last + self.among("ORDERED")),
            when=asks & known,
        )
        self.lemma("opens again", command.again & ~run.some, when=walker.opens & order)
        early = order & ~asks & ~frees & ~self.among("QUIET")
        self.lemma("at the first", at == run.first, when=early)
        self.lemma("walking", lies(at, run.first, run.final), when=self.walks())
        self.lemma("all freed", at == run.final + 1, when=self.among("FREED"))
        self.lemma("not more than were freed", walker.pending <= at - run.first, when=frees)


class InputsNeverWaitForEvents(Pipeline):
    """Once the tables are clear, a refusal and a close wait at most four cycles, and what the
    intake of acknowledgements offers at most three, whatever ``o_event``, ``o_flag``, commands,
    queries and the allocator do. (How long the intake lets one wait: ``scoreboard.intake_serves``.)
    """

    def promise(self, m):
        dut, inside = self.dut, self.parts_in
        last = observe(inside.turns).last
        self.lemma(
            "one was served last", sum((last == 1 << n for n in range(1, 4)), last == 1).bool()
        )
        for number, (port, name, most) in enumerate(
            (
                (self.acks.o, "acknowledgements", 3),
                (dut.i_refused, "refusals", 4),
                (dut.i_news, "news", 4),
            )
        ):
            waits = Signal(3, name=f"{name}_wait")
            waiting = port.valid & ~port.ready & ~dut.clearing
            m.d.sync += waits.eq(Mux(waiting, waits + (waits != 7), 0))
            self.always(f"{name} are taken", waits <= most)
            distance = Signal(2, name=f"{name}_distance")  # lemma: how many are served before
            for n in range(4):
                with m.If(last[n]):
                    m.d.comb += distance.eq(number - n - 1)
            self.lemma(f"{name} before it", waits + distance <= 3, when=waiting)
        for register in (inside.refusals, inside.news):
            name = "refusals" if register is inside.refusals else "news"
            self.lemma(f"{name} full", register.o.valid, when=observe(register).spare_valid)


class OutputsAgree(Pipeline):
    """``o_region_update`` tells what the tile counters learnt one cycle before; closes are missing
    only from OPEN banks; the counters of events count the events that were taken; a second close
    and a stall are counted with their reports. Purge and errors name the command that was taken
    last, and come only before the next is taken. ``clearing`` ends after as many cycles as the
    largest table has words and one, for good; until then no input is ready."""

    def promise(self, m):
        cfg, dut, inside, types = self._cfg, self.dut, self.parts_in, scoreboard_types(self._cfg)
        update, alive = dut.o_region_update, inside.books.live_value
        live = View(types.bank_strobe, self.past(inside.books.live_write, "live_before"))
        told = (update.region == live.region) & (update.bank == live.bank)
        self.always("a state is told after the tile counters know it", update.en == live.en)
        # What takes a whole order to reach is not covered again here: see walk.py.
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
        command, busy = self.taken(m)
        error = dut.command_error.command
        self.always(
            "an error names a region of the order",
            busy
            & lies(error.region, command.region, command.last)
            & ((error.region == command.region) | (command.last < cfg.regions))
            & ((error.op == command.op) | ((error.op == RegionOp.OPEN) & command.again)),
            when=dut.command_error.en,
        )
        named = (
            (dut.purge.region <= dut.purge.last)
            & lies(dut.purge.region, command.region, command.last)
            & lies(dut.purge.last, command.region, command.last)
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
        judging = inside.finisher.busy
        rows_query = self.past(dut.rows_query, "rows_query_before")
        self.always(
            "the query for rows stays while a bank is judged",
            (dut.rows_query.as_value() == rows_query)
            | ~judging
            | ~self.past(judging, "judging_before"),
        )
        cleared = Signal()
        age = Signal(8)
        words = max(2 * cfg.groups, 2 * cfg.regions)
        m.d.sync += [
            cleared.eq(~dut.clearing),
            age.eq(age + (age != 255)),
        ]
        self.suppose("sums are clear in time", self.acks.clearing == (age < bank_places(cfg)))
        accepts = Cat(port.ready for port in self.acks.i).any()
        self.suppose("the intake takes nothing before", ~accepts, when=~self.acks.enable)
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
        for table, (ram, depth) in self._tables().items():
            walk = observe(ram).walk
            self.lemma(f"walk of {table}", walk == Mux(age < depth, age, depth))
        walker, *_ = self.questions()
        self.lemma("purged", purged | ~self.among("PURGING"))
        self.lemma("the order", busy & (walker.command == command), when=self.in_order())

    def _tables(self):
        """``{name: (table, words)}`` of all that a walker clears, acknowledgements aside."""
        cfg, types, inside = self._cfg, scoreboard_types(self._cfg), self.parts_in
        tiles, books, walker = (
            observe(each) for each in (inside.tiles, inside.books, inside.walker)
        )
        limits, scan = observe(tiles.limits), observe(inside.scan)
        tables = {
            "walker.run.shared": (observe(walker.run).shared, cfg.regions),
            "walker.shapes": (walker.shapes, cfg.regions),
            "tiles.tiles": (tiles.tiles, 2 * cfg.groups),
            "tiles.limits.thresholds": (limits.thresholds, cfg.regions),
            "tiles.limits.deps": (limits.deps, cfg.dep_ranges),
            "tiles.limits.lives": (limits.lives, types.banks),
            "books.books": (books.books, types.banks),
            "books.shapes": (books.shapes, cfg.regions),
            "scan.bits": (scan.bits, -(-2 * cfg.groups // 32)),
            "flags.words": (observe(inside.flags).words, cfg.regions),
            "scan.ends.bits": (observe(scan.ends).bits, -(-types.banks // word_banks(cfg))),
        }
        for name, part in (("finisher", inside.finisher), ("overlaps", inside.overlaps)):
            queue = observe(observe(part).queue)
            tables[f"{name}.queue.came"] = queue.came, types.banks
            tables[f"{name}.queue.gone"] = queue.gone, types.banks
        return tables
