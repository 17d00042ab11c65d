# SPDX-License-Identifier: Apache-2.0
"""Carries out software's orders to regions, and clears what an epoch leaves behind."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import ADDR, bits_of
from hub_rtl.contract.packets import OrderError, RegionOp
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import bug, mutant
from hub_rtl.parts.onehot import encode
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .records import OpKind, compose, scoreboard_types

__all__ = ["RegionWalker"]

SETTLE = 2  # cycles in which a purge or quiesce strobe shows at its busy signal
FLUSH = 8  # cycles after which everything that left the combiners has passed the pipeline


class RegionWalkerObserve(NamedTuple):
    """What a proof may see of a :class:`RegionWalker`."""

    shared: Ram  #: a bit per region: it was named as an overflow region
    command: data.View  #: the order under way
    primary: Signal  #: the region that is asked whether it overflows here
    group: Signal  #: to be cleared next
    left: Signal  #: groups to be cleared
    rest: Signal  #: there is a last tile, not full
    of_range: Signal  #: it is a range that is cleared
    tell: Signal  #: the overflow region is to be told
    over_at: Signal  #: that region
    abort: Signal  #: what it is told
    promised: Signal  #: it was told before that nothing comes
    wait: Signal  #: cycles to be waited
    asks: Signal  #: an operation is offered
    is_in: dict  #: 1 in that state, by its name


class RegionWalker(wiring.Component):
    """Commands OPEN, RELEASE, ABORT, FORGET, one at a time; clearing of a region's or a range's
    tiles.

    Contract: OPEN and FORGET take effect or are an error at once. RELEASE and ABORT: the bank goes
    to DONE; every region that overflows into it and is OPEN in the same epoch ends in ERROR, so
    that nobody's row is placed there from then on (only for regions that were named as an overflow
    region since reset); the bank is purged from the allocator, the writers and the combiners are
    emptied of what they hold, its tiles' counters and pending bits are cleared, the overflow region
    is told if it was not yet (abort, if some byte of this epoch went there), then the bank is FREE.
    A range that is written with ``armed`` = 0 has its groups cleared. Latency: OPEN to its
    broadcast 7 cycles. RELEASE and ABORT: purge and quiesce, then one cycle per tile of the
    capacity and about 42; for overflow regions one cycle per region and about 9 more. Order: as
    taken; ``i_command.ready`` is low meanwhile. Waits for the allocator's, writers' and pipeline's
    progress only. Illegal input: a command that does not fit the bank's state or epoch, or names no
    region with a geometry, changes nothing and pulses ``command_error`` with the reason.

    Parameters: ``cfg``. Ports: ``i_command`` In stream(region_command); ``command_error`` Out {en,
    command, reason}; ``dep_write`` In; ``dep_busy`` Out: a disarmed range is not yet clear;
    ``o_op`` Out stream(op); ``result`` In; ``purge`` Out, ``purging`` In; ``quiesce`` Out,
    ``quiescing`` In; ``sweep`` Out, ``sweeping`` In (combiners); ``judging`` In, ``judged_at`` In
    (finisher); ``kill`` Out {en, region, bank}: events of this bank not yet offered are dropped;
    ``enable`` In; ``geometry_write`` In; ``clearing`` Out. Source: docs/interfaces.md section 8.
    """

    observe: RegionWalkerObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own, types = self._types, types_of(cfg)
        super().__init__(
            {
                "i_command": In(stream.Signature(types.region_command)),
                "command_error": Out(own.command_error),
                "dep_write": In(types.dep_write),
                "dep_busy": Out(1),
                "o_op": Out(stream.Signature(own.op)),
                "result": In(own.result),
                "purge": Out(own.bank_strobe),
                "purging": In(1),
                "quiesce": Out(1),
                "quiescing": In(1),
                "sweep": Out(1),
                "sweeping": In(1),
                "judging": In(1),
                "judged_at": In(own.bank_name),
                "kill": Out(own.bank_strobe),
                "enable": In(1),
                "geometry_write": In(types.geometry_write),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        command = Signal(types_of(cfg).region_command)
        answered = self.result.valid & (self.result.source == 1)
        kind, telling = Signal(bits_of(OpKind)), Signal()
        promised = Signal(name="promised")  # the overflow region was told that nothing comes
        primary = Signal(cfg.region_width, name="primary")  # asked whether it overflows here
        orphaning = Signal(name="orphaning")
        group, left, of_range = (
            Signal(cfg.group_width),
            Signal(max(cfg.slot_width, cfg.group_width) + 1),
            Signal(),
        )
        tell, over_at, abort = Signal(), Signal(cfg.region_width), Signal()
        wait = Signal(range(FLUSH + 1))
        rest = Signal(name="rest")  # a last, partial tile
        asks = Signal(name="asks")  # registered: the state alone would be late for the pipeline
        dirty, served, first_dirty = self._keep_ranges(m)
        told_of = self._keep_shared(m, command, orphaning)
        region = Mux(orphaning, primary, Mux(telling, over_at, command.region))
        self._ask(m, command, kind, region, told_of, of_range, group, abort, promised, asks)
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.FSM() as fsm:
            m.d.comb += self.dep_busy.eq(dirty.any() | (of_range & ~fsm.ongoing("IDLE")))
            self._take(m, command, dirty, served, first_dirty, of_range, asks)
            self._order(m, command, kind, answered, primary, asks)
            self._orphan(m, kind, answered, primary, orphaning, asks)
            self._empty(m, command, wait, asks)
            self._look(m, kind, answered, group, left, rest, over_at, tell, abort, promised, asks)
            self._walk(m, kind, of_range, group, left, rest, tell, asks)
            self._free(m, kind, answered, telling, wait, asks)
            self._range(m, group, left, rest)
        is_in = {name: fsm.ongoing(name) for name in fsm.encoding}
        self.observe = RegionWalkerObserve(
            *(m.submodules.shared, command, primary, group, left, rest, of_range),
            *(tell, over_at, abort, promised, wait, asks, is_in),
        )
        return m

    def _keep_ranges(self, m):
        """Dependency ranges. Returns those that were disarmed and are to be cleared, the one that
        is served (the walk says which), the first of them."""
        cfg = self._cfg
        m.submodules.ranges = ranges = Ram(types_of(cfg).dep_range, cfg.dep_ranges, quick=True)
        dirty, served = Signal(cfg.dep_ranges), Signal(cfg.dep_ranges)
        first_dirty = lowest_set(m, dirty, "dirty_first")
        m.d.comb += [
            ranges.w_en.eq(self.dep_write.en),
            ranges.w_addr.eq(self.dep_write.index),
            ranges.w_data.eq(self.dep_write.range),
        ]
        written = Signal(cfg.dep_ranges)
        m.d.comb += written.eq(
            (self.dep_write.en & ~self.dep_write.range.armed) << self.dep_write.index
        )
        m.d.sync += dirty.eq((dirty & ~served) | written)
        return dirty, served, first_dirty

    def _keep_shared(self, m, command, orphaning):
        """Overflow regions. Returns what those who overflow are told: the name of this one."""
        cfg = self._cfg
        # Which regions were ever named as one: the others need not look for those who overflow
        # there.
        m.submodules.shared = shared = Ram(1, cfg.regions, clear=True, quick=cfg.regions <= SMALL)
        shape_write = self.geometry_write
        m.d.comb += [
            shared.w_en.eq(shape_write.en & shape_write.geometry.overflow_en),
            shared.w_addr.eq(shape_write.geometry.overflow),
            shared.w_data.eq(1),
            shared.r_addr.eq(command.region),
            self.clearing.eq(shared.clearing),
        ]
        told_of = Signal(cfg.total_width, name="told_of")
        with m.If(orphaning):
            m.d.comb += told_of.eq(command.region)
        return told_of

    def _ask(self, m, command, kind, region, told_of, of_range, group, abort, promised, asks):
        """The operation of the present state, and whose bank it is about."""
        bank = command.epoch[0]
        m.d.comb += [
            self.o_op.payload.eq(
                compose(
                    self._types.op,
                    kind=kind,
                    source=1,
                    bank=bank & ~of_range,
                    region=region,
                    bytes=told_of,
                    epoch=command.epoch,
                    group=group,
                    plain=mutant("scoreboard.range_cleared_as_bank", of_range, 0),
                    abort=abort,
                    tell=~promised,
                    close=1,
                )
            ),
            self.purge.region.eq(command.region),
            self.purge.bank.eq(bank),
            self.kill.region.eq(command.region),
            self.kill.bank.eq(bank),
            self.command_error.command.eq(command),
            self.o_op.valid.eq(asks),
        ]

    def _take(self, m, command, dirty, served, first_dirty, of_range, asks):
        """A range that was written off comes before the next command."""
        cfg, ranges = self._cfg, m.submodules.ranges
        with m.State("IDLE"):
            m.d.sync += of_range.eq(0)
            m.d.comb += self.i_command.ready.eq(self.enable & ~dirty.any())
            with m.If(dirty.any()):
                m.d.comb += [
                    served.eq(first_dirty),
                    ranges.r_en.eq(1),
                    ranges.r_addr.eq(encode(first_dirty)),
                ]
                m.d.sync += of_range.eq(1)
                m.next = "RANGE"
            with m.Elif(self.i_command.valid & self.enable):
                asked = self.i_command.payload
                m.d.sync += [
                    command.eq(asked),
                    asks.eq(asked.region < cfg.regions),
                ]
                m.next = "ORDER"

    def _order(self, m, command, kind, answered, primary, asks):
        """The books take or refuse it; what ends a bank goes on."""
        shared = m.submodules.shared
        ends = (command.op == RegionOp.RELEASE) | (command.op == RegionOp.ABORT)
        with m.State("ORDER"):
            # The four orders have the same order in both enumerations.
            m.d.comb += [
                kind.eq(OpKind.OPEN + command.op),
                shared.r_en.eq(1),
            ]
            with m.If(~asks):  # no such region
                m.d.comb += [
                    self.command_error.en.eq(1),
                    self.command_error.reason.eq(OrderError.UNKNOWN),
                ]
                m.next = "IDLE"
            with m.Elif(self.o_op.ready):
                m.d.sync += asks.eq(0)
                m.next = "ORDERED"
                if (asked := bug("scoreboard.order_not_awaited")) is not None:
                    with m.If(asked):
                        m.next = "IDLE"
        with m.State("ORDERED"):
            with m.If(answered):
                m.d.comb += [
                    self.command_error.en.eq(~self.result.ok),
                    self.command_error.reason.eq(self.result.reason),
                ]
                m.next = "IDLE"
                with m.If(self.result.ok & ends):
                    m.d.comb += self.kill.en.eq(1)
                    m.d.sync += [
                        asks.eq(shared.r_data),
                        primary.eq(0),
                    ]
                    with m.If(
                        mutant(
                            "scoreboard.shared_bank_not_told",
                            shared.r_data,
                            shared.r_data & command.op[0],
                        )
                    ):
                        m.next = "ORPHAN"
                    with m.Else():
                        m.next = "PURGE"

    def _orphan(self, m, kind, answered, primary, orphaning, asks):
        """Every region is asked whether it overflows here, and ends."""
        cfg = self._cfg
        with m.State("ORPHAN"):
            m.d.comb += [
                self.kill.en.eq(1),
                kind.eq(OpKind.ORPHAN),
                orphaning.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.d.sync += primary.eq(primary + 1)
                with m.If(primary == cfg.regions - 1):
                    m.next = "ORPHANED"
        with m.State("ORPHANED"):
            # The answer to a question behind them: their ends have been broadcast before the
            # purge.
            m.d.comb += [
                self.kill.en.eq(1),
                kind.eq(OpKind.LOOK),
            ]
            with m.If(self.o_op.ready):
                m.d.sync += asks.eq(0)
            with m.If(answered):
                m.next = "PURGE"

    def _empty(self, m, command, wait, asks):
        """Allocator, writers, combiners and pipeline give up what they hold of the bank."""
        bank = command.epoch[0]
        with m.State("PURGE"):
            m.d.comb += [
                self.kill.en.eq(1),
                self.purge.en.eq(1),
            ]
            m.d.sync += wait.eq(SETTLE)
            m.next = "PURGING"
        with m.State("PURGING"):
            m.d.comb += self.kill.en.eq(1)
            with m.If((wait == 0) & ~self.purging):
                m.d.comb += self.quiesce.eq(1)
                m.d.sync += wait.eq(SETTLE)
                m.next = "QUIESCING"
        with m.State("QUIESCING"):
            m.d.comb += self.kill.en.eq(1)
            with m.If(
                mutant("scoreboard.quiesce_not_awaited", (wait == 0) & ~self.quiescing, wait == 0)
            ):
                m.d.comb += self.sweep.eq(1)
                m.d.sync += wait.eq(SETTLE)
                m.next = "SWEEPING"
        with m.State("SWEEPING"):
            m.d.comb += self.kill.en.eq(1)
            with m.If((wait == 0) & ~self.sweeping):
                m.d.sync += wait.eq(FLUSH)
                m.next = "FLUSHING"
        with m.State("FLUSHING"):
            m.d.comb += self.kill.en.eq(1)
            # A verdict that was under way finds the bank DONE and ends by itself.
            mine = (
                self.judging
                & (self.judged_at.region == command.region)
                & (self.judged_at.bank == bank)
            )
            with m.If((wait == 0) & ~mine):
                m.d.sync += asks.eq(1)
                m.next = "LOOK"

    def _look(self, m, kind, answered, group, left, rest, over_at, tell, abort, promised, asks):
        """What there is to clear, and whether the overflow region is to be told."""
        book, shape = self.result.book, self.result.geometry
        with m.State("LOOK"):
            m.d.comb += [
                self.kill.en.eq(1),
                kind.eq(OpKind.LOOK),
            ]
            with m.If(self.o_op.ready):
                m.d.sync += asks.eq(0)
                m.next = "LOOKED"
        with m.State("LOOKED"):
            m.d.comb += self.kill.en.eq(1)
            m.d.sync += [
                group.eq(shape.group_base),
                left.eq(shape.capacity >> shape.log2_tile),
                rest.eq((shape.capacity & ((1 << shape.log2_tile) - 1)).any()),
                over_at.eq(shape.overflow),
                tell.eq(shape.overflow_en & ~book.passed),
                abort.eq(book.touched),
                promised.eq(book.promised),
            ]
            with m.If(answered):
                m.next = "COUNT"

    def _walk(self, m, kind, of_range, group, left, rest, tell, asks):
        """Clears one tile per cycle, of a bank or of a range."""
        with m.State("COUNT"):
            m.d.comb += self.kill.en.eq(~of_range)
            m.d.sync += [
                left.eq(left + rest),
                asks.eq(left.any() | rest),
            ]
            m.next = "WALK"
        with m.State("WALK"):
            m.d.comb += [
                self.kill.en.eq(~of_range),
                kind.eq(OpKind.CLEAR),
            ]
            with m.If(~asks):  # none is left
                m.d.sync += asks.eq(~of_range)
                m.next = "FREE"
                with m.If(of_range):
                    m.next = "IDLE"
                with m.Elif(tell):
                    m.next = "TELL"
            with m.Elif(self.o_op.ready):
                m.d.sync += [
                    left.eq(left - 1),
                    asks.eq(left != 1),
                    group.eq(group + 1),
                ]

    def _free(self, m, kind, answered, telling, wait, asks):
        """The overflow region is told, the bank is FREE."""
        with m.State("TELL"):
            m.d.comb += [
                self.kill.en.eq(1),
                kind.eq(OpKind.PASS),
                telling.eq(1),
            ]
            with m.If(self.o_op.ready):
                m.next = "FREE"
        with m.State("FREE"):
            m.d.comb += [
                self.kill.en.eq(1),
                kind.eq(OpKind.FREE),
            ]
            with m.If(self.o_op.ready):
                m.d.sync += asks.eq(0)
                m.next = "FREED"
        with m.State("FREED"):
            m.d.comb += self.kill.en.eq(1)
            with m.If(answered):
                m.d.sync += wait.eq(1)
                m.next = "QUIET"
        with m.State("QUIET"):
            # The last CLEAR may be two cycles old: what the event scan had picked up before it
            # comes out now.
            m.d.comb += self.kill.en.eq(1)
            with m.If(wait == 0):
                m.next = "IDLE"

    def _range(self, m, group, left, rest):
        """The groups of a range that was written off, if it was armed."""
        cfg, ranges = self._cfg, m.submodules.ranges
        span, shift = Signal(ADDR), Signal(6)
        armed = Signal(name="armed")  # the range that was written off had been armed
        with m.State("RANGE"):
            gone = ranges.r_data
            # limit - base - 1, and a carry if the limit is above the base.
            m.d.sync += [
                Cat(span, armed).eq(gone.limit + (~gone.base)[:ADDR]),
                shift.eq(gone.log2_stride),
                group.eq(gone.group_base),
                rest.eq(0),
            ]
            m.next = "SHIFT"
        with m.State("SHIFT"):  # one bit per cycle: no 48-bit shifter for a rare command
            with m.If(~armed):  # it never was
                m.next = "IDLE"
            with m.Elif(shift != 0):
                m.d.sync += [
                    shift.eq(shift - 1),
                    span.eq(span >> 1),
                ]
            with m.Else():
                m.d.sync += left.eq(
                    Mux(span >= cfg.groups, cfg.groups, span[: cfg.group_width] + 1)
                )
                m.next = "COUNT"
