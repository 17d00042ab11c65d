# SPDX-License-Identifier: Apache-2.0
"""Carries out software's orders to regions, and clears what their epochs leave behind."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import bits_of
from hub_rtl.contract.packets import OrderError, RegionOp
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import bug, mutant
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .bank_run import BankRun
from .disarmed_ranges import DisarmedRanges
from .records import OpKind, compose, scoreboard_types

__all__ = ["RegionWalker"]

SETTLE = 2  # cycles in which a purge or quiesce strobe shows at its busy signal
FLUSH = 8  # cycles after which everything that left the combiners has passed the pipeline


class RegionWalkerObserve(NamedTuple):
    """What a proof may see of a :class:`RegionWalker`."""

    run: BankRun
    shapes: Ram  #: per region, where its tiles are
    ranges: DisarmedRanges
    command: data.View  #: the order under way
    at: Signal  #: region that is asked, or cleared
    pending: Signal  #: questions without an answer
    opens: Signal  #: what was given back is opened again
    primary: Signal  #: the region that is asked whether it overflows here
    group: Signal  #: to be cleared next
    left: Signal  #: groups to be cleared
    of_range: Signal  #: it is a dependency range that is cleared
    tell: Signal  #: the overflow region is to be told
    over_at: Signal  #: that region
    abort: Signal  #: what it is told
    promised: Signal  #: it was told before that nothing comes
    wait: Signal  #: cycles to be waited
    asks: Signal  #: an operation is offered
    is_in: dict  #: 1 in that state, by its name


class RegionWalker(wiring.Component):
    """Orders OPEN, RELEASE, ABORT, FORGET to one region or to a range of them, one at a time;
    clearing of the tiles of regions and dependency ranges.

    Contract: OPEN and FORGET take effect or are an error at once, region by region. RELEASE and
    ABORT: neighbouring banks that are given back make a *run*, which is emptied at once; a bank
    that shares memory with others, as overflow region or as a region that has one, is a run of its
    own, and a run ends before a bank whose order is refused. Its banks go to DONE; every region
    that overflows into it and is OPEN in the same epoch ends in ERROR, so that nobody's row is
    placed there from then on (only for regions that were named as an overflow region since reset);
    the run is purged from the allocator, the writers and the combiners are emptied of what they
    hold, its tiles' counters and pending bits are cleared, the overflow region is told if it was
    not yet (abort, if some byte of this epoch went there), then its banks are FREE, and with
    ``again`` opened for the epoch two further. A bank whose order was refused is not opened. A
    dependency range that is written with ``armed`` = 0 has its groups cleared. Latency: OPEN to its
    broadcast 7 cycles. RELEASE and ABORT of a run: purge and quiesce, then per bank 2 cycles and
    one per tile of the capacity (with ``again`` one more), and about 40 (50); for overflow regions
    one cycle per region and about 9 more. Order: as taken; ``i_command.ready`` is low meanwhile.
    Waits for the allocator's, writers' and pipeline's progress only. Illegal input: an order that
    does not fit the bank's state or epoch changes nothing and pulses ``command_error`` with the
    reason; one whose ``last`` is no region is refused whole.

    Parameters: ``cfg``. Ports: ``i_command`` In stream(region_order); ``command_error`` Out {en,
    command, reason}; ``dep_write`` In; ``dep_busy`` Out: a disarmed range is not yet clear;
    ``o_op`` Out stream(op); ``result`` In; ``purge`` Out, ``purging`` In; ``quiesce`` Out,
    ``quiescing`` In; ``sweep`` Out, ``sweeping`` In (combiners); ``judging`` In, ``judged_at`` In
    (finisher); ``kill`` Out {en, region, last, bank}: events of these banks not yet offered are
    dropped; ``enable`` In; ``geometry_write`` In, none of a bank in use; ``clearing`` Out. Source:
    docs/interfaces.md section 8.
    """

    observe: RegionWalkerObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own, types = self._types, types_of(cfg)
        super().__init__(
            {
                "i_command": In(stream.Signature(types.region_order)),
                "command_error": Out(own.command_error),
                "dep_write": In(types.dep_write),
                "dep_busy": Out(1),
                "o_op": Out(stream.Signature(own.op)),
                "result": In(own.result),
                "purge": Out(own.run_strobe),
                "purging": In(1),
                "quiesce": Out(1),
                "quiescing": In(1),
                "sweep": Out(1),
                "sweeping": In(1),
                "judging": In(1),
                "judged_at": In(own.bank_name),
                "kill": Out(own.run_strobe),
                "enable": In(1),
                "geometry_write": In(types.geometry_write),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, quick = self._cfg, self._cfg.regions <= SMALL
        m.submodules.run = run = BankRun(cfg)
        m.submodules.shapes = shapes = Ram(
            data.StructLayout({"base": cfg.group_width, "full": cfg.slot_width, "rest": 1}),
            cfg.regions,
            clear=True,
            quick=quick,
        )
        m.submodules.ranges = ranges = DisarmedRanges(cfg)

        def region(name):
            return Signal(cfg.region_width, name=name)

        def bit(name):
            return Signal(name=name)

        self._inside = inside = RegionWalkerObserve(
            *(run, shapes, ranges, Signal(types_of(cfg).region_order, name="command")),
            *(region("at"), Signal(cfg.region_width + 1, name="pending"), bit("opens")),
            *(region("primary"), Signal(cfg.group_width, name="group")),
            Signal(max(cfg.slot_width, cfg.group_width) + 1, name="left"),
            *(bit("of_range"), bit("tell"), region("over_at"), bit("abort"), bit("promised")),
            Signal(range(FLUSH + 1), name="wait"),
            bit("asks"),  # registered: the state is not in the pipeline's path
            {},
        )
        kind = Signal(bits_of(OpKind))
        telling = Signal()
        orphaning = Signal()
        answered = Signal()
        m.d.comb += answered.eq(self.result.valid & (self.result.source == 1))
        with m.If(inside.wait != 0):
            m.d.sync += inside.wait.eq(inside.wait - 1)
        with m.FSM() as fsm:
            m.d.comb += self.dep_busy.eq(ranges.some | (inside.of_range & ~fsm.ongoing("IDLE")))
            self._take(m)
            self._order(m, kind, answered)
            self._orphan(m, kind, orphaning, answered)
            self._empty(m)
            self._look(m, kind, answered)
            self._walk(m, kind)
            self._free(m, kind, telling)
        inside.is_in.update({name: fsm.ongoing(name) for name in fsm.encoding})
        self._keep_shapes(m)
        self._ask(m, kind, telling, orphaning, answered)
        self._tell(m)
        self.observe = inside
        return m

    def _keep_shapes(self, m):
        """Where each region's tiles are."""
        inside, write, shapes = self._inside, self.geometry_write, self._inside.shapes
        shape = write.geometry
        m.d.comb += [
            inside.run.geometry_write.eq(write),
            self.clearing.eq(inside.run.clearing | shapes.clearing),
            shapes.w_en.eq(write.en),
            shapes.w_addr.eq(write.region),
            shapes.w_data.base.eq(shape.group_base),
            shapes.w_data.full.eq(shape.capacity >> shape.log2_tile),
            shapes.w_data.rest.eq((shape.capacity & ((1 << shape.log2_tile) - 1)).any()),
            # One ahead of what is cleared.
            shapes.r_en.eq(1),
            shapes.r_addr.eq(inside.at + (inside.is_in["WALK"] | inside.is_in["FREE"])),
        ]

    def _ask(self, m, kind, telling, orphaning, answered):
        """The operation of the present state, and whose bank it is about."""
        inside, command = self._inside, self._inside.command
        bank = command.epoch[0]
        quiet = Signal()  # it has no answer
        m.d.comb += [
            self.o_op.payload.eq(
                compose(
                    self._types.op,
                    kind=kind,
                    source=1,
                    bank=bank & ~inside.of_range,
                    region=Mux(orphaning, inside.primary, Mux(telling, inside.over_at, inside.at)),
                    bytes=Mux(orphaning, inside.at, 0),
                    epoch=command.epoch
                    + Mux(inside.opens, mutant("scoreboard.opens_other_bank", 2, 1), 0),
                    group=inside.group,
                    plain=mutant("scoreboard.range_cleared_as_bank", inside.of_range, 0),
                    abort=inside.abort,
                    tell=~inside.promised,
                    close=1,
                )
            ),
            self.o_op.valid.eq(inside.asks),
            quiet.eq((kind == OpKind.ORPHAN) | (kind == OpKind.CLEAR) | (kind == OpKind.PASS)),
        ]
        m.d.sync += inside.pending.eq(
            inside.pending + (inside.asks & self.o_op.ready & ~quiet) - answered
        )

    def _tell(self, m):
        """The run, and errors of orders."""
        inside, run, command = self._inside, self._inside.run, self._inside.command
        unknown = inside.is_in["ORDER"] & ~inside.asks
        for strobe, last in ((self.kill, run.last), (self.purge, run.final)):
            m.d.comb += [
                strobe.region.eq(run.first),
                strobe.last.eq(last),
                strobe.bank.eq(command.epoch[0]),
            ]
        m.d.comb += [
            self.kill.en.eq(run.some | run.joins),
            self.command_error.en.eq(unknown | run.error),
            self.command_error.reason.eq(Mux(unknown, OrderError.UNKNOWN, self.result.reason)),
            self.command_error.command.op.eq(Mux(inside.opens, RegionOp.OPEN, command.op)),
            self.command_error.command.region.eq(run.heard),
            self.command_error.command.epoch.eq(self.o_op.payload.epoch),
        ]

    def _begin(self, m, region, asks=1):
        """Orders from this region on."""
        run = self._inside.run
        m.d.comb += [
            run.begin.eq(1),
            run.region.eq(region),
        ]
        m.d.sync += [
            self._inside.at.eq(region),
            self._inside.asks.eq(asks),
        ]
        m.next = "ORDER"

    def _go_on(self, m, done):
        """Behind the banks up to ``done``."""
        inside = self._inside
        m.d.sync += inside.opens.eq(0)
        with m.If(done == inside.command.last):
            m.next = "IDLE"
        with m.Else():
            self._begin(m, done + 1)

    def _take(self, m):
        """A dependency range that was written off comes before the next command."""
        inside, ranges = self._inside, self._inside.ranges
        m.d.comb += ranges.dep_write.eq(self.dep_write)
        with m.State("IDLE"):
            m.d.sync += inside.of_range.eq(0)
            m.d.comb += self.i_command.ready.eq(self.enable & ~ranges.some)
            with m.If(ranges.some):
                m.d.comb += ranges.ask.eq(1)
                m.d.sync += inside.of_range.eq(1)
                m.next = "RANGE"
            with m.Elif(self.i_command.valid & self.enable):
                asked = self.i_command.payload
                m.d.sync += inside.command.eq(asked)
                self._begin(m, asked.region, asked.last < self._cfg.regions)
        with m.State("RANGE"):
            with m.If(ranges.done):
                m.d.sync += [
                    inside.group.eq(ranges.base),
                    inside.left.eq(ranges.groups),
                    inside.asks.eq(ranges.groups != 0),
                ]
                m.next = "WALK"

    def _order(self, m, kind, answered):
        """The books take or refuse it, bank by bank; what ends banks goes on."""
        inside, run, command = self._inside, self._inside.run, self._inside.command
        ends = (command.op == RegionOp.RELEASE) | (command.op == RegionOp.ABORT)
        m.d.comb += [
            run.ends.eq(ends & ~inside.opens),
            run.result.eq(self.result),
        ]
        with m.State("ORDER"):
            # The four orders have the same order in both enumerations.
            m.d.comb += [
                kind.eq(Mux(inside.opens, OpKind.OPEN, OpKind.OPEN + command.op)),
                run.hears.eq(answered),
            ]
            last = inside.at == Mux(inside.opens, run.final, command.last)
            with m.If(~inside.asks):  # no such region
                m.next = "IDLE"
            with m.Elif(self.o_op.ready):
                m.d.sync += inside.at.eq(inside.at + 1)
                with m.If(last | run.stop):
                    m.d.sync += inside.asks.eq(0)
                    m.next = "ORDERED"
                if (asked := bug("scoreboard.order_not_awaited")) is not None:
                    with m.If(asked):
                        m.next = "IDLE"
        with m.State("ORDERED"):
            m.d.comb += run.hears.eq(answered)
            with m.If(inside.pending == 0):
                m.d.sync += [
                    inside.at.eq(run.first),
                    inside.primary.eq(0),
                    inside.tell.eq(run.over),
                ]
                with m.If(run.some):
                    m.next = "PURGE"
                    with m.If(
                        mutant(
                            "scoreboard.shared_bank_not_told",
                            run.hosts,
                            run.hosts & command.op[0],
                        )
                    ):
                        m.d.sync += inside.asks.eq(1)
                        m.next = "ORPHAN"
                with m.Elif(inside.opens):
                    self._go_on(m, run.final)
                with m.Elif(run.stop):
                    self._go_on(m, run.first)
                with m.Else():
                    m.next = "IDLE"

    def _orphan(self, m, kind, orphaning, answered):
        """Every region is asked whether it overflows here, and ends."""
        inside = self._inside
        with m.State("ORPHAN"):
            m.d.comb += [
                kind.eq(OpKind.ORPHAN),
                orphaning.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.d.sync += inside.primary.eq(inside.primary + 1)
                with m.If(inside.primary == self._cfg.regions - 1):
                    m.next = "ORPHANED"
        with m.State("ORPHANED"):
            # The answer to a question behind them: their ends have been broadcast before the
            # purge.
            m.d.comb += kind.eq(OpKind.LOOK)
            with m.If(self.o_op.ready):
                m.d.sync += inside.asks.eq(0)
            with m.If(answered):
                m.next = "PURGE"

    def _empty(self, m):
        """Allocator, writers, combiners and pipeline give up what they hold of the run."""
        inside, at = self._inside, self.judged_at
        with m.State("PURGE"):
            m.d.comb += self.purge.en.eq(1)
            m.d.sync += inside.wait.eq(SETTLE)
            m.next = "PURGING"
        with m.State("PURGING"):
            with m.If((inside.wait == 0) & ~self.purging):
                m.d.comb += self.quiesce.eq(1)
                m.d.sync += inside.wait.eq(SETTLE)
                m.next = "QUIESCING"
        with m.State("QUIESCING"):
            settled = inside.wait == 0
            with m.If(mutant("scoreboard.quiesce_not_awaited", settled & ~self.quiescing, settled)):
                m.next = "SWEEP"
        with m.State("SWEEP"):
            m.d.comb += self.sweep.eq(mutant("scoreboard.sweep_not_said", 1, 0))
            m.d.sync += inside.wait.eq(SETTLE)
            m.next = "SWEEPING"
        with m.State("SWEEPING"):
            with m.If((inside.wait == 0) & ~self.sweeping):
                m.d.sync += inside.wait.eq(FLUSH)
                m.next = "FLUSHING"
        with m.State("FLUSHING"):
            # A verdict that was under way finds the bank DONE and ends by itself.
            mine = (
                self.judging
                & (at.region >= inside.run.first)
                & (at.region <= inside.run.final)
                & (at.bank == inside.command.epoch[0])
            )
            with m.If((inside.wait == 0) & ~mine):
                m.next = "LOAD"
                with m.If(inside.tell):
                    m.d.sync += inside.asks.eq(1)
                    m.next = "LOOK"

    def _look(self, m, kind, answered):
        """Whether the overflow region is to be told, and what."""
        inside, book = self._inside, self.result.book
        with m.State("LOOK"):
            m.d.comb += kind.eq(OpKind.LOOK)
            with m.If(self.o_op.ready):
                m.d.sync += inside.asks.eq(0)
                m.next = "LOOKED"
        with m.State("LOOKED"):
            m.d.sync += [
                inside.over_at.eq(self.result.geometry.overflow),
                inside.tell.eq(~book.passed),
                inside.abort.eq(book.touched),
                inside.promised.eq(book.promised),
            ]
            with m.If(answered):
                m.next = "LOAD"

    def _walk(self, m, kind):
        """Clears one tile per cycle, of a bank or of a dependency range."""
        inside = self._inside
        with m.State("LOAD"):
            self._load(m)
            m.next = "WALK"
        with m.State("WALK"):
            m.d.comb += kind.eq(OpKind.CLEAR)
            with m.If(self.o_op.ready):
                m.d.sync += [
                    inside.left.eq(inside.left - 1),
                    inside.group.eq(inside.group + 1),
                ]
            with m.If(~inside.asks | (self.o_op.ready & (inside.left == 1))):  # none is left
                m.d.sync += inside.asks.eq(~inside.of_range)
                m.next = "FREE"
                with m.If(inside.of_range):
                    m.next = "IDLE"
                with m.Elif(inside.tell):
                    m.next = "TELL"

    def _load(self, m):
        """The tiles of the bank that the table shows."""
        inside, shape = self._inside, self._inside.shapes.r_data
        m.d.sync += [
            inside.group.eq(shape.base),
            inside.left.eq(shape.full + shape.rest),
            inside.asks.eq((shape.full != 0) | shape.rest),
        ]

    def _free(self, m, kind, telling):
        """The overflow region is told, the bank is FREE; behind the last one, what was given back
        is opened again."""
        inside = self._inside
        with m.State("TELL"):
            m.d.comb += [
                kind.eq(OpKind.PASS),
                telling.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.next = "FREE"
        with m.State("FREE"):
            m.d.comb += kind.eq(OpKind.FREE)
            with m.If(self.o_op.ready):
                m.d.sync += inside.at.eq(inside.at + 1)
                self._load(m)
                m.next = "WALK"
                with m.If(inside.at == inside.run.final):
                    m.d.sync += inside.asks.eq(0)
                    m.next = "FREED"
        with m.State("FREED"):
            with m.If(inside.pending == 0):
                m.d.sync += inside.wait.eq(1)
                m.next = "QUIET"
        with m.State("QUIET"):
            # The last CLEAR may be two cycles old: what the event scan had picked up before it
            # comes out now.
            with m.If(inside.wait == 0):
                m.d.comb += inside.run.empty.eq(1)
                with m.If(inside.command.again):
                    m.d.sync += inside.opens.eq(1)
                    self._begin(m, inside.run.first)
                with m.Else():
                    self._go_on(m, inside.run.final)
