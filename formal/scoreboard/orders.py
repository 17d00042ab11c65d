# SPDX-License-Identifier: Apache-2.0
"""Promises of the readiness scoreboard as a whole about software's orders."""

from amaranth import Cat, Signal, Value

from hub_rtl.contract.packets import RegionOp, RegionState
from hub_rtl.scoreboard.records import OpKind

from .whole import Pipeline, covers, lies

__all__ = ["KillOutlastsClear", "OpensShowBeforeTheNext", "OrphansEndFirst"]


class _Orders(Pipeline):
    def implied(self, name, holds, when):
        """As :meth:`always`, without a cover of ``when``, where that is too long a way for one."""
        self.always(name, ~Value.cast(when).bool() | holds)


class KillOutlastsClear(_Orders):
    """While a tile of a bank is forgotten by the event scan, and in the four cycles after, the
    bank's events are killed; so what the scan had picked up before does not come out (assumed by
    ``scoreboard.tile_is_told_once``). (A whole RELEASE is too long for a cover here;
    OrdersTakeTheirSteps reaches its steps.)"""

    def promise(self, m):
        ready, kill = self.parts_in.books.ready, self.parts_in.walker.kill
        forgets = Signal()
        calm = Signal(3)
        region = Signal.like(kill.region)
        bank = Signal()
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
        walker, way, _, answered = self.questions()
        run, command = walker.run, walker.command
        clears = [valid & (op.kind == OpKind.CLEAR) & ~op.plain for valid, op in way]
        frees = [valid & (op.kind == OpKind.FREE) for valid, op in way]
        self.reach("an order is asked", self.among("ORDERED"))
        for n, (_, op) in enumerate(way):
            self.lemma(
                f"a clear at {n} is the order's",
                self.frees()
                & lies(op.region, run.first, run.final)
                & (op.bank == command.epoch[0])
                & (op.source == 1),
                when=clears[n],
            )
            self.lemma(
                f"a FREE follows the clear at {n}",
                self.walks() | Cat(frees[:n]).any(),
                when=clears[n],
            )
        self.lemma("quiet for two cycles", calm <= walker.wait + 1, when=self.among("QUIET"))
        freed = self.among("FREED") & ~Cat(frees).any()
        self.lemma("a while after the last answer", (calm <= 2) | answered, when=freed)
        self.lemma(
            "the one that is forgotten",
            lies(region, run.first, run.final)
            & (bank == command.epoch[0])
            & (self.frees() | self.among("QUIET")),
            when=calm != 0,
        )


class OpensShowBeforeTheNext(_Orders):
    """After a command was taken ``i_command`` is not ready for a cycle. A bank becomes OPEN by an
    OPEN that was taken for it, and ``o_region_update`` tells so before ``i_command`` is ready again
    (assumed by ``hub.geometry_of_busy_region_stays``)."""

    def promise(self, m):
        dut = self.dut
        update, (command, busy) = dut.o_region_update, self.taken(m)
        taken = dut.i_command.valid & dut.i_command.ready
        named = (
            ((command.op == RegionOp.OPEN) | command.again)
            & lies(update.region, command.region, command.last)
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
        written = Signal()
        gave = Signal()
        strayed = Signal()
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

        walker, way, _, answered = self.questions()
        self.lemma("the order", busy & (walker.command == command), when=self.in_order())
        self.lemma(
            "the answer comes with the update", self.asks_books() & answered & named, when=opens
        )
        for n, (valid, op) in enumerate(way):
            self.lemma(
                f"an OPEN at {n} is the command's",
                lies(op.region, command.region, command.last)
                & (op.bank == command.epoch[0])
                & ((command.op == RegionOp.OPEN) | command.again),
                when=valid & (op.kind == OpKind.OPEN),
            )


class OrphansEndFirst(_Orders):
    """An ORPHAN that left the walker has been through the books, for whichever region, when the
    question behind it is answered, and so before the purge. An operation that is granted its turn
    is at the books' change three cycles after its register, whatever comes beside it. (For a cover
    an order is too long a way: OrdersTakeTheirSteps has those.)"""

    def promise(self, m):
        walker, way, asked, answered = self.questions()
        region = self.constant(self._cfg.region_width, "region")
        asks = self.parts_in.walker.o_op
        op, taken = asks.payload, asks.valid & asks.ready
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
            self.lemma(f"asked in its state at {n}", self.among("ORPHAN", "ORPHANED"), when=one)
            self.lemma(
                f"no question before the one at {n}",
                ~Cat(*asked[n + 1 :], answered).any(),
                when=one,
            )
